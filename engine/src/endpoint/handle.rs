//! Moving an endpoint through its states, apart from posting to it.
//!
//! A connection manager runs on a thread of its own and must bring a queue pair
//! to RTS, or to ERR, while the application's thread posts receives. So what
//! moves a queue pair takes `&self` here and is serialised by a lock that no
//! post touches, and what admits posts stays with the one who posts
//! ([`super::Endpoint::open_receives`], [`super::Endpoint::open_sends`]).

use core::fmt;
use std::sync::Arc;

use crate::control::{
    Access, ConnectOptions, EndpointAddress, Greeting, IwarpRoute, QpState, Route, VerbsQp,
};
use crate::error::{ControlError, ControlErrorKind};
use crate::path::Watch;
use crate::sync::{Mutex, MutexGuard};

/// As far as we moved it. The device may have gone to the error state since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    Error,
    /// The endpoint was dropped.
    Gone,
}

impl State {
    /// Whether the device takes receives, be it to flush them.
    pub(super) fn takes_receives(self) -> bool {
        !matches!(self, Self::Reset | Self::Gone)
    }

    /// Whether the device takes sends, be it to flush them.
    pub(super) fn takes_sends(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::Error)
    }
}

/// An endpoint without the right to post to it. Clones are handles to the same
/// endpoint, for any thread.
///
/// The endpoint's number stays taken until its handles are gone too. Once the
/// endpoint is dropped they refuse to move it.
#[derive(Clone)]
pub struct EndpointHandle(Arc<Shared>);

struct Shared {
    verbs: Arc<VerbsQp>,
    /// Held while the queue pair is moved, so that one move ends before the
    /// next begins.
    inner: Mutex<Inner>,
}

/// What changes when the queue pair is moved.
pub(super) struct Inner {
    pub(super) state: State,
    /// None when the endpoint is gone: the rings are not kept for a handle.
    pub(super) watch: Option<Watch>,
    /// Since it was told to a connection manager ([`EndpointHandle::asks_to_connect`]), on
    /// iWARP, it has not been connected: the kernel may be about to.
    pub(super) may_be_connecting: bool,
}

impl EndpointHandle {
    pub(super) fn new(verbs: Arc<VerbsQp>, watch: Watch) -> Self {
        Self(Arc::new(Shared {
            verbs,
            inner: Mutex::new(Inner {
                state: State::Reset,
                watch: Some(watch),
                may_be_connecting: false,
            }),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock()
    }

    /// Whether there is no other handle to the endpoint.
    pub(super) fn is_the_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The lock, if there is still an endpoint to move.
    fn lock_for(&self, operation: &'static str) -> Result<MutexGuard<'_, Inner>, ControlError> {
        let inner = self.lock();
        if inner.state == State::Gone {
            return Err(ControlError::new(
                ControlErrorKind::Invalid,
                operation,
                format!("the endpoint of QP {:#x} was dropped", self.qpn()),
            ));
        }
        Ok(inner)
    }

    /// Its queue pair's number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.0.verbs.qpn()
    }

    /// The verbs object, for matching asynchronous events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsQp {
        &self.0.verbs
    }

    /// The state that the device reports.
    ///
    /// # Errors
    /// The device failed.
    pub fn state(&self) -> Result<QpState, ControlError> {
        self.0.verbs.state()
    }

    /// Whether it has no peer yet: an attempt to connect it that has failed left
    /// it as it was, and it may be connected without being reset.
    #[must_use]
    pub fn awaits_peer(&self) -> bool {
        matches!(self.lock().state, State::Reset | State::Init)
    }

    /// Whether it can be reset and connected again: [`VerbsQp::may_be_reset`].
    #[must_use]
    pub fn may_be_reset(&self) -> bool {
        self.0.verbs.may_be_reset()
    }

    /// A connection manager is about to ask for a connection of it. Answers
    /// whether it greets the peer: for [`crate::cm::ConnectionSink::greets`].
    #[must_use]
    pub fn asks_to_connect(&self) -> bool {
        self.lock().may_be_connecting = !self.may_be_reset();
        self.0.verbs.greets()
    }

    /// What its requester's greeting comes to, if one has to come: for
    /// [`crate::cm::ConnectionSink::greeting`].
    ///
    /// # Errors
    /// The device registers no more memory.
    pub fn greeting(&self) -> Result<Option<Arc<Greeting>>, ControlError> {
        Ok(self.0.verbs.greeting()?.map(Arc::new))
    }

    /// What the peer needs to connect to it through a port.
    ///
    /// # Errors
    /// The port is missing or not active, or on RoCE has no usable GID.
    pub fn local_address(&self, port: u8) -> Result<EndpointAddress, ControlError> {
        self.0.verbs.local_address(port)
    }

    /// RESET to INIT, before the peer is known. The posting thread may then
    /// [`super::Endpoint::open_receives`].
    ///
    /// # Errors
    /// The endpoint is past that state or gone, or the port does not exist.
    pub fn init(&self, options: &ConnectOptions) -> Result<(), ControlError> {
        let mut inner = self.lock_for("initialise an endpoint")?;
        self.init_locked(&mut inner, options)
    }

    /// Connects to the endpoint at `peer`, which must connect to this one:
    /// [`Self::init`] if that was not called, then [`Self::ready_to_receive`]
    /// and [`Self::ready_to_send`]. The posting thread may then
    /// [`super::Endpoint::open_sends`].
    ///
    /// # Errors
    /// The port is not active, the peer cannot be addressed, or the endpoint
    /// was connected before and not reset since, or is gone.
    pub fn connect(
        &self,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        let mut inner = self.lock_for("connect an endpoint")?;
        if inner.state == State::Reset {
            self.init_locked(&mut inner, options)?;
        }
        self.receive_locked(&mut inner, peer, options)?;
        self.send_locked(&mut inner, options)
    }

    /// As [`Self::connect`], by whatever way a connection manager told. On iWARP
    /// ([`Route::Iwarp`]) the kernel moves the queue pair: one that accepts may
    /// send once [`crate::cm::ConnectionEvent::Established`] was told, and one
    /// that was connected is not connected again.
    ///
    /// # Errors
    /// As for [`Self::connect`], or the way is through another port than
    /// [`ConnectOptions::port`].
    pub fn connect_by(&self, route: &Route, options: &ConnectOptions) -> Result<(), ControlError> {
        if let Route::Address(peer) = route {
            return self.connect(peer, options);
        }
        let mut inner = self.lock_for("connect an endpoint")?;
        if inner.state == State::Reset {
            self.init_locked(&mut inner, options)?;
        }
        let route = match route {
            Route::Managed(route) => route,
            Route::Iwarp(route) => return self.follow_kernel(&mut inner, route),
            Route::Address(_) => return Ok(()),
        };
        self.0.verbs.to_rtr_by(route, options)?;
        inner.state = State::ReadyToReceive;
        self.0.verbs.to_rts_by(route, options)?;
        inner.state = State::ReadyToSend;
        Ok(())
    }

    /// INIT to RTR: messages of `peer` are taken. The half of
    /// [`Self::connect`] that a passive side does before it answers.
    ///
    /// # Errors
    /// As for [`Self::connect`], or the endpoint is not in INIT.
    pub fn ready_to_receive(
        &self,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        let mut inner = self.lock_for("let an endpoint receive")?;
        self.receive_locked(&mut inner, peer, options)
    }

    /// RTR to RTS: messages may be sent.
    ///
    /// # Errors
    /// As for [`Self::connect`], or the endpoint is not in RTR.
    pub fn ready_to_send(&self, options: &ConnectOptions) -> Result<(), ControlError> {
        let mut inner = self.lock_for("let an endpoint send")?;
        self.send_locked(&mut inner, options)
    }

    /// Ends the connection, or the attempt at one, from any state: everything
    /// posted completes, most of it as [`crate::Status::WrFlush`], and so does
    /// what is posted from now on.
    ///
    /// # Errors
    /// The device failed, or the endpoint is gone.
    pub fn to_error(&self) -> Result<(), ControlError> {
        let mut inner = self.lock_for("end the connection of an endpoint")?;
        if inner.state == State::Error {
            return Ok(());
        }
        if inner.state == State::Reset {
            // Linux knows no way from RESET to ERR but through INIT. Which
            // port and rights does not matter: nothing will come.
            self.0.verbs.to_init(1, Access::empty())?;
            inner.state = State::Init;
        }
        if let Some(watch) = &inner.watch {
            watch.will_fail();
        }
        self.0.verbs.to_error()?;
        inner.state = State::Error;
        if let Some(watch) = &inner.watch {
            watch.has_failed();
        }
        Ok(())
    }

    /// Whether every send that was posted has been retired by a completion that
    /// was polled. A send that is not signalled counts as outstanding until a
    /// later one is. True if the endpoint is gone.
    ///
    /// Exact when nobody posts or polls meanwhile. Looks at every block of the
    /// ring; the posting thread asks [`super::Endpoint::sends_idle`].
    #[must_use]
    pub fn sends_idle(&self) -> bool {
        self.lock().watch.as_ref().is_none_or(Watch::sends_idle)
    }

    /// Receives of its own queue that were posted and whose completions were
    /// not polled; 0 with a shared queue, and if the endpoint is gone.
    ///
    /// Exact when nobody posts or polls meanwhile.
    #[must_use]
    pub fn recvs_outstanding(&self) -> u32 {
        self.lock()
            .watch
            .as_ref()
            .map_or(0, Watch::recvs_outstanding)
    }

    /// On iWARP: the kernel has moved the queue pair, or does so as the request
    /// is accepted.
    fn follow_kernel(&self, inner: &mut Inner, route: &IwarpRoute) -> Result<(), ControlError> {
        if inner.state != State::Init {
            return Err(ControlError::new(
                ControlErrorKind::Invalid,
                "connect an endpoint",
                format!("QP {:#x} had a connection, or was ended", self.qpn()),
            )
            .with_remedy("on iWARP create another endpoint for the next connection"));
        }
        if let Some(place) = route.greet() {
            self.0.verbs.greet(place)?;
        }
        inner.state = State::ReadyToSend;
        inner.may_be_connecting = false;
        Ok(())
    }

    fn init_locked(&self, inner: &mut Inner, options: &ConnectOptions) -> Result<(), ControlError> {
        self.0.verbs.to_init(options.port, options.access)?;
        inner.state = State::Init;
        Ok(())
    }

    fn receive_locked(
        &self,
        inner: &mut Inner,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        self.0.verbs.to_rtr(peer, options)?;
        inner.state = State::ReadyToReceive;
        Ok(())
    }

    fn send_locked(&self, inner: &mut Inner, options: &ConnectOptions) -> Result<(), ControlError> {
        self.0.verbs.to_rts(options)?;
        inner.state = State::ReadyToSend;
        Ok(())
    }
}

impl fmt::Debug for EndpointHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointHandle")
            .field("qpn", &self.qpn())
            .field("state", &self.lock().state)
            .finish_non_exhaustive()
    }
}

const _: () = {
    const fn crosses_threads<T: Clone + Send + Sync>() {}
    crosses_threads::<EndpointHandle>();
};
