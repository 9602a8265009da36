//! Endpoints: reliable connections, as the application sees them.

use core::fmt;
use core::mem::ManuallyDrop;
use std::thread;

use crate::control::{ConnectOptions, EndpointAddress, MemoryWindow, QpState, VerbsQp};
use crate::error::{ControlError, ControlErrorKind};
use crate::path;
use crate::request::{BindRequest, ListError, PostError, RecvRequest, SendRequest};
use crate::thread::SignalsBlocked;
use mlx5_rings::layout::{RecvLayout, SendLayout};
use mlx5_rings::wire::LONGEST_WINDOW;

mod create;
mod handle;
mod options;

pub use handle::EndpointHandle;
use handle::State;
pub use options::{EndpointOptions, InlineShape, Posters};

/// A reliable connection and the right to post to it.
///
/// Its completions appear in the completion queues that it was created with.
/// They may be polled by other threads; see [`crate::CompletionQueue`].
pub struct Endpoint {
    path: ManuallyDrop<path::QueuePair>,
    handle: ManuallyDrop<EndpointHandle>,
    max_inline: u32,
}

impl Endpoint {
    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then. `NotReady` before [`Self::init`]
    /// (or [`Self::open_receives`]), and if the receives come from a shared queue.
    ///
    /// # Safety
    /// The memory of the segments is writable and left alone until the receive
    /// completes, or until the endpoint is reset or dropped and its completion
    /// queue has been polled (or settled, or dropped) after that.
    #[inline]
    pub unsafe fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.path.post_recv(request) }
    }

    /// Posts several receives with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every request.
    #[inline]
    pub unsafe fn post_recv_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: passed on to the caller.
        unsafe { self.path.post_recv_list(requests) }
    }

    /// Posts one request to the send queue.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then. `NotReady` before [`Self::connect`]
    /// (or [`Self::open_sends`]).
    ///
    /// # Safety
    /// Inline: the memory of the segments is readable now. Otherwise it is left
    /// alone (for a read: writable and unused) until the request completes, or
    /// until the endpoint is reset or dropped and its completion queue has been
    /// polled (or settled, or dropped) after that.
    #[inline]
    pub unsafe fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.path.post_send(request) }
    }

    /// [`Self::post_send`] of a request whose completion carries `note` in its
    /// `imm`: what the poller is to know of the request besides the cookie.
    ///
    /// # Errors
    /// As for [`Self::post_send`].
    ///
    /// # Safety
    /// As for [`Self::post_send`].
    #[inline]
    pub unsafe fn post_send_noted(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
    ) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.path.post_send_noted(request, note) }
    }

    /// Posts a bind, or an unbind, of a memory window. Answers the key that peers
    /// name the window by once that is done; the key before is good until then.
    /// What is posted behind it starts only when it is done.
    ///
    /// A bind that the device refuses completes as [`crate::Status::MwBind`] and
    /// ends the connection; one that is not carried out leaves the window as it
    /// was, but for the key that [`MemoryWindow::rkey`] tells.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The region stays registered until another bind or unbind of the window
    /// was posted, or the window is gone.
    pub unsafe fn post_bind(
        &mut self,
        window: &mut MemoryWindow,
        request: &BindRequest<'_>,
        note: u32,
    ) -> Result<u32, PostError> {
        if !window.is_of(self.handle.verbs().domain()) {
            return Err(PostError::OtherDomain);
        }
        if let Some(target) = &request.target {
            if !window.goes_with(target.region) {
                return Err(PostError::OtherDomain);
            }
            if target.length > LONGEST_WINDOW {
                return Err(PostError::WindowTooLong);
            }
        }
        // No bytes are nothing to open.
        let request = BindRequest {
            target: request.target.filter(|target| target.length != 0),
            ..*request
        };
        // SAFETY: passed on to the caller.
        let key = unsafe { self.path.post_bind(window, &request, note) }?;
        window.bound(key, request.target.map(|target| target.region));
        Ok(key)
    }

    #[inline(always)]
    pub(crate) fn path(&self) -> &path::QueuePair {
        &self.path
    }

    #[inline(always)]
    pub(crate) fn path_mut(&mut self) -> &mut path::QueuePair {
        &mut self.path
    }

    /// Posts several requests to the send queue with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_send`], for every request.
    #[inline]
    pub unsafe fn post_send_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: passed on to the caller.
        unsafe { self.path.post_send_list(requests) }
    }

    /// Its queue pair's number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.handle.qpn()
    }

    /// What the peer needs to connect to it through a port.
    ///
    /// # Errors
    /// The port is missing or not active, or on RoCE has no usable GID.
    pub fn local_address(&self, port: u8) -> Result<EndpointAddress, ControlError> {
        self.handle.local_address(port)
    }

    /// Lets receives be posted, before the peer is known.
    ///
    /// # Errors
    /// The endpoint is past that state, or the port does not exist.
    pub fn init(&mut self, options: &ConnectOptions) -> Result<(), ControlError> {
        self.handle.init(options)?;
        self.open_receives();
        Ok(())
    }

    /// Connects to the endpoint at `peer`, which must connect to this one.
    /// Includes [`Self::init`] if that was not called.
    ///
    /// # Errors
    /// The port is not active, the peer cannot be addressed, or the endpoint
    /// was connected before and not reset since.
    pub fn connect(
        &mut self,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        let connected = self.handle.connect(peer, options);
        // As far as it came.
        self.open_receives();
        self.open_sends();
        connected
    }

    /// Ends the connection, or the attempt at one, from any state: everything
    /// posted completes, most of it as [`crate::Status::WrFlush`], and so does
    /// what is posted from now on.
    ///
    /// # Errors
    /// The device failed.
    pub fn to_error(&mut self) -> Result<(), ControlError> {
        self.handle.to_error()?;
        self.open_receives();
        self.open_sends();
        Ok(())
    }

    /// Lets receives be posted, if the endpoint has left RESET: for the posting
    /// thread, after another has moved the endpoint through its
    /// [`EndpointHandle`]. Answers whether it is so; until then posts fail with
    /// [`PostError::NotReady`].
    pub fn open_receives(&mut self) -> bool {
        let takes = self.handle.lock().state.takes_receives();
        if takes {
            self.path.open_receives();
        }
        takes
    }

    /// Lets sends be posted, if the endpoint is connected, or in ERR, where
    /// they are flushed. As [`Self::open_receives`].
    pub fn open_sends(&mut self) -> bool {
        let takes = self.handle.lock().state.takes_sends();
        if takes {
            self.path.open_sends();
        }
        takes
    }

    /// Whether every send that was posted has been retired by a completion that
    /// was polled. A send that is not signalled counts as outstanding until a
    /// later one is.
    #[inline]
    #[must_use]
    pub fn sends_idle(&self) -> bool {
        self.path.sends_idle()
    }

    /// Receives of its own queue that were posted and whose completions were
    /// not polled; 0 with a shared queue.
    #[inline]
    #[must_use]
    pub fn recvs_outstanding(&self) -> u32 {
        self.path.recvs_outstanding()
    }

    /// What moves it through its states, and looks at it, while another thread
    /// posts.
    #[must_use]
    pub fn handle(&self) -> EndpointHandle {
        EndpointHandle::clone(&self.handle)
    }

    /// Back to the state after creation. Everything posted is forgotten, and
    /// completions that were not polled yet will not be seen. On the direct path
    /// they hold their places in the completion queues until these are polled:
    /// do that before it connects again, or the queues may overrun.
    ///
    /// # Errors
    /// The device failed; or it speaks iWARP ([`VerbsQp::may_be_reset`]), and
    /// another endpoint is to be made in place of this one.
    pub fn reset(&mut self) -> Result<(), ControlError> {
        let mut inner = self.handle.lock();
        if !self.handle.verbs().may_be_reset() {
            // SAFETY: refused.
            return unsafe { self.handle.verbs().to_reset() };
        }
        self.path.before_reset();
        // SAFETY: the rings begin anew below; nothing is posted meanwhile.
        unsafe { self.handle.verbs().to_reset() }?;
        inner.state = State::Reset;
        self.path.reset();
        inner.watch = Some(self.path.watch());
        Ok(())
    }

    /// The state that the device reports.
    ///
    /// # Errors
    /// The device failed.
    pub fn state(&self) -> Result<QpState, ControlError> {
        self.handle.state()
    }

    /// Takes no more than so many sends, and receives of its own queue, at a
    /// time, where the queues would hold more; until [`Self::reset`]. Where more
    /// are outstanding already, as many as that: call it before posting, or to
    /// raise the limit.
    pub fn limit(&mut self, sends: u32, receives: u32) {
        self.path.limit(sends, receives);
    }

    /// How many sends may be outstanding.
    #[must_use]
    pub fn send_capacity(&self) -> u32 {
        self.path.send_capacity()
    }

    /// How many receives may be outstanding; 0 if they come from a shared queue.
    #[must_use]
    pub fn recv_capacity(&self) -> u32 {
        self.path.recv_capacity()
    }

    /// How many bytes one inline send may have.
    #[must_use]
    pub fn max_inline(&self) -> u32 {
        self.max_inline
    }

    /// The verbs object, for matching asynchronous events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsQp {
        self.handle.verbs()
    }

    /// Where its send ring lies: for tests and measurements that play the device.
    /// `None` on the verbs path.
    #[must_use]
    pub fn send_layout(&self) -> Option<SendLayout> {
        self.verbs().send_layout()
    }

    /// Where its receive ring lies, if it has one: for tests and measurements
    /// that play the device. `None` on the verbs path.
    #[must_use]
    pub fn recv_layout(&self) -> Option<RecvLayout> {
        self.verbs().recv_layout()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Moves that are under way end first, and none begins after.
        let mut inner = self.handle.lock();
        let flushed = core::mem::replace(&mut inner.state, State::Gone) == State::Error;
        let connects = inner.may_be_connecting;
        inner.watch = None;
        self.path.before_reset();
        // In ERR nothing is begun any more, and if this is the last that knows
        // the queue pair it is destroyed below, which ends the rest: as good as
        // RESET where no completion is looked for by its number, and much
        // cheaper with Soft-RoCE.
        let destroyed = flushed && self.handle.is_the_last() && self.path.may_go_from_error();
        let reset = match destroyed {
            true => self.handle.verbs().require_here(),
            // SAFETY: the rings go below.
            false => unsafe { self.handle.verbs().end() },
        };
        match reset {
            // The parent goes on using the queues; this copy of the handle must
            // not touch them.
            Err(error) if error.kind() == ControlErrorKind::Forked => {
                drop(inner);
                // SAFETY: not used again: this is the value's own drop.
                unsafe { ManuallyDrop::drop(&mut self.handle) };
                return;
            }
            Err(error) => tracing::error!("dropping an endpoint: {error}"),
            Ok(()) => {}
        }
        drop(inner);
        // SAFETY: not used again: this is the value's own drop.
        let handle = unsafe {
            ManuallyDrop::drop(&mut self.path);
            ManuallyDrop::take(&mut self.handle)
        };
        match connects {
            true => destroy_aside(handle),
            false => drop(handle),
        }
    }
}

/// Destroys a queue pair on a thread of its own: of one that the kernel is to
/// connect, on iWARP, that waits until the kernel gives up.
#[cold]
fn destroy_aside(handle: EndpointHandle) {
    let blocked = SignalsBlocked::new();
    let thread = thread::Builder::new().name("engine-end".into());
    if let Err(error) = thread.spawn(move || drop(handle)) {
        tracing::warn!("no thread to destroy a queue pair on: {error}");
    }
    drop(blocked);
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("qpn", &self.qpn())
            .field("state", &self.handle.lock().state)
            .finish_non_exhaustive()
    }
}
