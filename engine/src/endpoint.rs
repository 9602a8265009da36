//! Endpoints: reliable-connected queue pairs.
//!
//! The direct path is inlined in the posts; the verbs path is called.
//!
//! Decisions:
//! - `docs/decisions/008-qp-number-outlives-its-cqes.md`
//! - `docs/decisions/011-cold-calls-get-copies.md`

use core::fmt;
use core::mem::ManuallyDrop;

use crate::control::{
    ConnectOptions, DataInOrder, EndpointAddress, MemoryWindow, QpState, VerbsQp,
};
use crate::error::{ControlError, ControlErrorKind};
use crate::path::QueuePair;
use crate::request::{BindRequest, ListError, Message, PostError, RecvRequest, SendRequest};
use crate::thread::Thread;
use mlx5_rings::PostReceives;
use mlx5_rings::layout::{RecvLayout, SendLayout};
use mlx5_rings::wire::LONGEST_WINDOW;

mod create;
mod handle;
mod options;

pub use handle::EndpointHandle;
use handle::QpStage;
pub use options::{EndpointOptions, InlineShape, ThreadMode};

/// A reliable-connected queue pair, and the right to post to it.
///
/// Its completions are reported to the completion queues that it was created with.
/// Other threads may poll these; see [`crate::CompletionQueue`].
pub struct Endpoint {
    path: ManuallyDrop<QueuePair>,
    handle: ManuallyDrop<EndpointHandle>,
    max_inline: u32,
}

impl Endpoint {
    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then. `NotReady` before [`Self::init`] (or
    /// [`Self::open_receives`]), and if the endpoint takes its receives from a
    /// shared receive queue.
    ///
    /// # Safety
    /// The memory of the segments is writable, and not used otherwise until the
    /// receive completes, or until the endpoint was reset or dropped and its
    /// completion queue was polled (or has processed its commands, or was dropped) after that.
    #[inline(always)]
    pub unsafe fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut *self.path {
                QueuePair::Direct(path) => path.receives.post(request)?,
                QueuePair::Verbs(path) => path.post_recv(&request.reborrow())?,
            }
        }
        Ok(())
    }

    /// Returns whether the endpoint is on the direct path, as all endpoints of its device are.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(*self.path, QueuePair::Direct(_))
    }

    /// Posts as [`Self::post_recv`] does if there is room and the request has one segment.
    /// Returns whether the receive is posted. Makes no outlined call.
    ///
    /// # Safety
    /// As for [`Self::post_recv`]; and the endpoint is on the direct path.
    #[inline(always)]
    pub unsafe fn try_post_recv(&mut self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: the path is direct, and the segments' memory stays until the requests complete.
        unsafe { self.path.direct().receives.try_post(request) }
    }

    /// Posts as [`Self::post_recv`] does if the endpoint is on the verbs path. Returns whether the
    /// receive is posted. Compiled into the caller, which knows the number of segments.
    ///
    /// # Safety
    /// As for [`Self::post_recv`].
    #[inline(always)]
    pub unsafe fn try_post_recv_by_verbs(&mut self, request: &RecvRequest<'_>) -> bool {
        match &mut *self.path {
            QueuePair::Direct(_) => false,
            // SAFETY: the segments' memory stays until the requests complete.
            QueuePair::Verbs(path) => unsafe { path.post_recv_inlined(request) }.is_ok(),
        }
    }

    /// Posts receives of a list, with as few doorbells as the path allows, until one needs
    /// [`Self::post_recv`]. `message` returns a message of the list, and `None` ends the list.
    /// Returns how many are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every message.
    #[inline(always)]
    pub unsafe fn try_post_recvs<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message> + Copy,
    ) -> usize {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut *self.path {
                QueuePair::Direct(path) => path.receives.try_post_messages(list, message),
                QueuePair::Verbs(path) => path.try_post_recv_messages(list, message),
            }
        }
    }

    /// Posts several receives with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the invalid one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every request.
    #[inline]
    pub unsafe fn post_recv_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut *self.path {
                QueuePair::Direct(path) => path.receives.post_list(requests),
                QueuePair::Verbs(path) => path.post_recv_list(requests),
            }
        }
    }

    /// Posts one request to the send queue.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then. `NotReady` before [`Self::connect`]
    /// (or [`Self::open_sends`]).
    ///
    /// # Safety
    /// With inline data, the memory of the segments is readable during the call.
    /// Otherwise it is not written (for a read: writable and not used) until the
    /// request completes, or until the endpoint was reset or dropped and its
    /// completion queue was polled (or has processed its commands, or was dropped) after that.
    #[inline(always)]
    pub unsafe fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.post_send_with_data(request, 0) }
    }

    /// Posts a request as [`Self::post_send`] does. The `imm` field of its
    /// completion carries `wr_data`: 32 bits for the polling thread besides `wr_id`.
    ///
    /// # Errors
    /// As for [`Self::post_send`].
    ///
    /// # Safety
    /// As for [`Self::post_send`].
    #[inline(always)]
    pub unsafe fn post_send_with_data(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Result<(), PostError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut *self.path {
                QueuePair::Direct(path) => path.sends.post(request, wr_data)?,
                QueuePair::Verbs(path) => {
                    path.post_send_with_data(&request.reborrow(), wr_data)?;
                }
            }
        }
        Ok(())
    }

    /// Posts as [`Self::post_send_with_data`] does if there is room and the request has one
    /// segment. Returns whether the request is posted. Makes no outlined call.
    ///
    /// # Safety
    /// As for [`Self::post_send`]; and the endpoint is on the direct path.
    #[inline(always)]
    pub unsafe fn try_post_send(&mut self, request: &SendRequest<'_>, wr_data: u32) -> bool {
        // SAFETY: the path is direct, and the segments' memory stays until the requests complete.
        unsafe { self.path.direct().sends.try_post(request, wr_data) }
    }

    /// Posts as [`Self::post_send_with_data`] does if the endpoint is on the verbs path. Returns
    /// whether the request is posted. Compiled into the caller, which knows the operation and the
    /// number of segments.
    ///
    /// # Safety
    /// As for [`Self::post_send`].
    #[inline(always)]
    pub unsafe fn try_post_send_by_verbs(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> bool {
        match &mut *self.path {
            QueuePair::Direct(_) => false,
            // SAFETY: the segments' memory stays until the requests complete.
            QueuePair::Verbs(path) => unsafe { path.post_send_inlined(request, wr_data) }.is_ok(),
        }
    }

    /// Posts signalled sends of a list, those of up to `inline` bytes inline, otherwise as
    /// [`Self::try_post_recvs`]. The `wr_data` of each is its length.
    ///
    /// # Safety
    /// As for [`Self::post_send`], for every message.
    #[inline(always)]
    pub unsafe fn try_post_sends<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message> + Copy,
        inline: u32,
    ) -> usize {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut *self.path {
                QueuePair::Direct(path) => path.sends.try_post_messages(list, message, inline),
                QueuePair::Verbs(path) => path.try_post_send_messages(list, message, inline),
            }
        }
    }

    /// Posts a bind or an unbind of a memory window. Returns the window's new rkey.
    /// Peers use it once the bind has completed; the old rkey is valid until then.
    /// Requests that are posted later start after the bind has completed.
    ///
    /// A bind that the device refuses completes as [`crate::Status::MwBind`] and
    /// breaks the connection. A bind that is flushed leaves the window unchanged,
    /// except that [`MemoryWindow::rkey`] returns the new rkey.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The region stays registered until another bind or unbind of the window was
    /// posted, or the window was dropped.
    pub unsafe fn post_bind(
        &mut self,
        window: &mut MemoryWindow,
        request: &BindRequest<'_>,
        wr_data: u32,
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
        // A bind of 0 bytes opens nothing: it is an unbind.
        let request = BindRequest {
            target: request.target.filter(|target| target.length != 0),
            ..*request
        };
        // SAFETY: the region stays registered while the window is bound to it.
        let key = unsafe { self.path.post_bind(window, &request, wr_data) }?;
        window.bound(key, request.target.map(|target| target.region));
        Ok(key)
    }

    /// Posts several requests to the send queue with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the invalid one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_send`], for every request.
    #[inline]
    pub unsafe fn post_send_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe {
            match &mut *self.path {
                QueuePair::Direct(path) => path.sends.post_list(requests),
                QueuePair::Verbs(path) => path.post_send_list(requests),
            }
        }
    }

    /// Asks whether the last byte of a peer's RDMA write may be polled in memory:
    /// [`EndpointHandle::data_in_order`].
    #[must_use]
    pub fn data_in_order(&self) -> DataInOrder {
        self.handle.data_in_order()
    }

    /// Returns the queue pair's number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.handle.qpn()
    }

    /// Returns the address that the peer needs to connect to this endpoint through
    /// a port.
    ///
    /// # Errors
    /// The port is missing or not active, or on RoCE has no usable GID.
    pub fn local_address(&self, port: u8) -> Result<EndpointAddress, ControlError> {
        self.handle.local_address(port)
    }

    /// Moves the endpoint to INIT, where receives can be posted before the peer is
    /// known.
    ///
    /// # Errors
    /// The endpoint is not in RESET, or the port does not exist.
    pub fn init(&mut self, options: &ConnectOptions) -> Result<(), ControlError> {
        self.handle.init(options)?;
        self.open_receives();
        Ok(())
    }

    /// Connects to the endpoint at `peer`, which must connect to this one. Calls
    /// [`Self::init`] first if the endpoint is in RESET.
    ///
    /// # Errors
    /// The port is not active, the peer is unreachable, or the endpoint was
    /// connected before and not reset since.
    pub fn connect(
        &mut self,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        let connected = self.handle.connect(peer, options);
        // Receives can be posted even if only INIT was reached.
        self.open_receives();
        self.open_sends();
        connected
    }

    /// Moves the endpoint from any state to the error state, which ends the
    /// connection. Everything posted completes, most of it as
    /// [`crate::Status::WrFlush`], and so does everything posted afterwards.
    ///
    /// # Errors
    /// The device failed.
    pub fn to_error(&mut self) -> Result<(), ControlError> {
        self.handle.to_error()?;
        self.open_receives();
        self.open_sends();
        Ok(())
    }

    /// Allows receives to be posted if the endpoint has left RESET. The posting
    /// thread calls this after another thread has moved the endpoint through its
    /// [`EndpointHandle`]. Returns whether receives can be posted; until then posts
    /// fail with [`PostError::NotReady`].
    pub fn open_receives(&mut self) -> bool {
        let takes = self.handle.lock().state.takes_receives();
        if takes {
            self.path.open_receives();
        }
        takes
    }

    /// Allows sends to be posted if the endpoint is in RTS, or in ERR, where they
    /// are flushed. Returns whether sends can be posted. See
    /// [`Self::open_receives`].
    pub fn open_sends(&mut self) -> bool {
        let takes = self.handle.lock().state.takes_sends();
        if takes {
            self.path.open_sends();
        }
        takes
    }

    /// Returns whether every posted send was retired by a polled completion. An
    /// unsignalled send is outstanding until a later send completes with a CQE.
    #[inline]
    #[must_use]
    pub fn sends_idle(&self) -> bool {
        self.path.sends_idle()
    }

    /// Returns the number of receives in the endpoint's own queue that were posted
    /// and whose completions were not polled; 0 with a shared receive queue.
    #[inline]
    #[must_use]
    pub fn recvs_outstanding(&self) -> u32 {
        self.path.recvs_outstanding()
    }

    /// Returns a handle that moves the endpoint through its states and inspects it
    /// while another thread posts.
    #[must_use]
    pub fn handle(&self) -> EndpointHandle {
        EndpointHandle::clone(&self.handle)
    }

    /// Moves the endpoint back to RESET, the state after creation. Everything
    /// posted is discarded, and completions that were not polled yet are not
    /// reported. On the direct path these stale CQEs occupy entries of the
    /// completion queues until the queues are polled. Poll the queues before the
    /// endpoint connects again, or they may overrun.
    ///
    /// # Errors
    /// The device failed; or the device is iWARP ([`VerbsQp::may_be_reset`]), where
    /// another endpoint has to be created instead.
    pub fn reset(&mut self) -> Result<(), ControlError> {
        let mut inner = self.handle.lock();
        if !self.handle.verbs().may_be_reset() {
            // SAFETY: this device refuses the change of state.
            return unsafe { self.handle.verbs().to_reset() };
        }
        self.path.before_reset();
        // SAFETY: the rings are rebuilt below, and nothing is posted before.
        unsafe { self.handle.verbs().to_reset() }?;
        inner.state = QpStage::Reset;
        self.path.reset();
        inner.watch = Some(self.path.watch());
        Ok(())
    }

    /// Returns the state that the device reports.
    ///
    /// # Errors
    /// The device failed.
    pub fn state(&self) -> Result<QpState, ControlError> {
        self.handle.state()
    }

    /// Limits the outstanding sends, and the outstanding receives of the endpoint's
    /// own queue, to less than the queues hold, until [`Self::reset`]. If more are
    /// outstanding now, the limit is their number. Call this before posting, or to
    /// raise the limit.
    pub fn limit(&mut self, sends: u32, receives: u32) {
        self.path.limit(sends, receives);
    }

    /// Returns how many sends may be outstanding.
    #[must_use]
    pub fn send_capacity(&self) -> u32 {
        self.path.send_capacity()
    }

    /// Returns how many receives may be outstanding; 0 with a shared receive queue.
    #[must_use]
    pub fn recv_capacity(&self) -> u32 {
        self.path.recv_capacity()
    }

    /// Returns the most bytes of an inline send.
    #[must_use]
    pub fn max_inline(&self) -> u32 {
        self.max_inline
    }

    /// Returns the libibverbs queue pair, for matching asynchronous events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsQp {
        self.handle.verbs()
    }

    /// Returns the location of the send ring, for tests and benchmarks that
    /// simulate the device. `None` on the verbs path.
    #[must_use]
    pub fn send_layout(&self) -> Option<SendLayout> {
        self.verbs().send_layout()
    }

    /// Returns the location of the receive ring, if there is one, for tests and
    /// benchmarks that simulate the device. `None` on the verbs path.
    #[must_use]
    pub fn recv_layout(&self) -> Option<RecvLayout> {
        self.verbs().recv_layout()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Under the lock: changes of state in progress end first, and none begins
        // later.
        let mut inner = self.handle.lock();
        let flushed = core::mem::replace(&mut inner.state, QpStage::Gone) == QpStage::Error;
        let connects = inner.may_be_connecting;
        inner.watch = None;
        self.path.before_reset();
        // A device in ERR starts no request. If this is the last handle, the queue
        // pair is destroyed below, which ends the requests in progress. Destroying
        // from ERR is as safe as RESET where completions are not found by QP
        // number, and much faster with Soft-RoCE.
        let destroyed =
            flushed && self.handle.is_last_handle() && self.path.may_be_destroyed_in_error();
        let reset = match destroyed {
            true => self.handle.verbs().require_here(),
            // SAFETY: the rings are dropped below.
            false => unsafe { self.handle.verbs().end() },
        };
        match reset {
            // After a fork the queues belong to the parent, so this copy of the
            // handle must not destroy them.
            Err(error) if error.kind() == ControlErrorKind::Forked => {
                drop(inner);
                // SAFETY: the field is not used again: this is the value's own
                // drop.
                unsafe { ManuallyDrop::drop(&mut self.handle) };
                return;
            }
            Err(error) => tracing::error!("cannot drop an endpoint cleanly: {error}"),
            Ok(()) => {}
        }
        drop(inner);
        // SAFETY: the field is not used again: this is the value's own drop.
        let handle = unsafe {
            ManuallyDrop::drop(&mut self.path);
            ManuallyDrop::take(&mut self.handle)
        };
        match connects {
            true => destroy_on_thread(handle),
            false => drop(handle),
        }
    }
}

/// Destroys a queue pair on a separate thread. On iWARP, destroying a queue pair
/// that the kernel is about to connect blocks until the kernel gives up.
#[cold]
fn destroy_on_thread(handle: EndpointHandle) {
    if let Err(error) = Thread::start(c"engine-end", move || drop(handle)) {
        tracing::warn!("cannot start a thread to destroy a queue pair: {error}");
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("qpn", &self.qpn())
            .field("state", &self.handle.lock().state)
            .finish_non_exhaustive()
    }
}
