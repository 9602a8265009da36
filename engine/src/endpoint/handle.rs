//! Moving an endpoint through its states while another thread posts.
//!
//! A connection manager runs on a thread of its own. It moves a queue pair to RTS
//! or to ERR while the application's thread posts receives. So changes of state
//! take `&self` here, under a lock that posts do not take. Allowing posts stays
//! with the posting thread ([`super::Endpoint::open_receives`],
//! [`super::Endpoint::open_sends`]).

use core::fmt;
use std::sync::Arc;

use crate::control::{
    Access, ConnectOptions, DataInOrder, EndpointAddress, Greeting, IwarpRoute, QpState, Route,
    VerbsQp,
};
use crate::error::{ControlError, ControlErrorKind};
use crate::path::Watch;
use crate::sync::{Mutex, MutexGuard};

/// The state that the engine has moved the queue pair to. The device may have moved
/// it to the error state since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QpStage {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    Error,
    /// The endpoint was dropped.
    Gone,
}

impl QpStage {
    /// Returns whether receives can be posted, if only to be flushed.
    pub(super) fn takes_receives(self) -> bool {
        !matches!(self, Self::Reset | Self::Gone)
    }

    /// Returns whether sends can be posted, if only to be flushed.
    pub(super) fn takes_sends(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::Error)
    }
}

/// An endpoint without the right to post to it. Clones are handles to the same
/// endpoint, for any thread.
///
/// The queue pair's number stays allocated until the handles are dropped too. After
/// the endpoint was dropped, operations on its handles fail.
#[derive(Clone)]
pub struct EndpointHandle(Arc<Shared>);

struct Shared {
    verbs: Arc<VerbsQp>,
    /// Held during a change of state, so that changes happen one after the other.
    inner: Mutex<Inner>,
}

/// The part that a change of state modifies.
pub(super) struct Inner {
    pub(super) state: QpStage,
    /// `None` after the endpoint was dropped: handles do not keep the rings.
    pub(super) watch: Option<Watch>,
    /// The kernel may be about to connect the queue pair: on iWARP, from
    /// [`EndpointHandle::prepare_request`] until it is connected.
    pub(super) may_be_connecting: bool,
}

impl EndpointHandle {
    pub(super) fn new(verbs: Arc<VerbsQp>, watch: Watch) -> Self {
        Self(Arc::new(Shared {
            verbs,
            inner: Mutex::new(Inner {
                state: QpStage::Reset,
                watch: Some(watch),
                may_be_connecting: false,
            }),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock()
    }

    /// Returns whether there is no other handle to the endpoint.
    pub(super) fn is_last_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Takes the lock, or fails if the endpoint was dropped.
    fn lock_for(&self, operation: &'static str) -> Result<MutexGuard<'_, Inner>, ControlError> {
        let inner = self.lock();
        if inner.state == QpStage::Gone {
            return Err(ControlError::new(
                ControlErrorKind::Invalid,
                operation,
                format!("the endpoint of QP {:#x} was dropped", self.qpn()),
            ));
        }
        Ok(inner)
    }

    /// Returns the queue pair's number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.0.verbs.qpn()
    }

    /// Returns the libibverbs queue pair, for matching asynchronous events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsQp {
        &self.0.verbs
    }

    /// Returns the state that the device reports.
    ///
    /// # Errors
    /// The device failed.
    pub fn state(&self) -> Result<QpState, ControlError> {
        self.0.verbs.state()
    }

    /// Returns whether the endpoint has no peer yet. A failed attempt to connect
    /// left it unchanged, so it may be connected without a reset.
    #[must_use]
    pub fn awaits_peer(&self) -> bool {
        matches!(self.lock().state, QpStage::Reset | QpStage::Init)
    }

    /// Returns whether the endpoint can be reset and connected again:
    /// [`VerbsQp::may_be_reset`].
    #[must_use]
    pub fn may_be_reset(&self) -> bool {
        self.0.verbs.may_be_reset()
    }

    /// Records that a connection manager is about to request a connection for the
    /// endpoint. Returns whether the endpoint greets its peer: for
    /// [`crate::cm::ConnectionSink::greets`].
    #[must_use]
    pub fn prepare_request(&self) -> bool {
        self.lock().may_be_connecting = !self.may_be_reset();
        self.0.verbs.greets()
    }

    /// Returns where the requester's greeting arrives, if the endpoint expects one:
    /// for [`crate::cm::ConnectionSink::greeting`].
    ///
    /// # Errors
    /// The device cannot register more memory.
    pub fn greeting(&self) -> Result<Option<Arc<Greeting>>, ControlError> {
        Ok(self.0.verbs.greeting()?.map(Arc::new))
    }

    /// Returns the address that the peer needs to connect to this endpoint through
    /// a port.
    ///
    /// # Errors
    /// The port is missing or not active, or on RoCE has no usable GID.
    pub fn local_address(&self, port: u8) -> Result<EndpointAddress, ControlError> {
        self.0.verbs.local_address(port)
    }

    /// Moves the endpoint from RESET to INIT, before the peer is known. The posting
    /// thread may then call [`super::Endpoint::open_receives`].
    ///
    /// # Errors
    /// The endpoint is not in RESET or was dropped, or the port does not exist.
    pub fn init(&self, options: &ConnectOptions) -> Result<(), ControlError> {
        let mut inner = self.lock_for("initialise an endpoint")?;
        self.init_locked(&mut inner, options)
    }

    /// Connects to the endpoint at `peer`, which must connect to this one: calls
    /// [`Self::init`] if the endpoint is in RESET, then [`Self::ready_to_receive`]
    /// and [`Self::ready_to_send`]. The posting thread may then call
    /// [`super::Endpoint::open_sends`].
    ///
    /// # Errors
    /// The port is not active, the peer is unreachable, the endpoint was connected
    /// before and not reset since, or it was dropped.
    pub fn connect(
        &self,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        let mut inner = self.lock_for("connect an endpoint")?;
        if inner.state == QpStage::Reset {
            self.init_locked(&mut inner, options)?;
        }
        self.receive_locked(&mut inner, peer, options)?;
        self.send_locked(&mut inner, options)
    }

    /// Connects as [`Self::connect`] does, along a route from a connection manager.
    /// On iWARP ([`Route::Iwarp`]) the kernel moves the queue pair: the accepting
    /// side may send after [`crate::cm::ConnectionEvent::Established`], and an
    /// endpoint that was connected cannot be connected again.
    ///
    /// # Errors
    /// As for [`Self::connect`], or the route is through another port than
    /// [`ConnectOptions::port`].
    pub fn connect_by(&self, route: &Route, options: &ConnectOptions) -> Result<(), ControlError> {
        if let Route::Address(peer) = route {
            return self.connect(peer, options);
        }
        let mut inner = self.lock_for("connect an endpoint")?;
        if inner.state == QpStage::Reset {
            self.init_locked(&mut inner, options)?;
        }
        let route = match route {
            Route::Managed(route) => route,
            Route::Iwarp(route) => return self.follow_kernel(&mut inner, route),
            Route::Address(_) => return Ok(()),
        };
        self.0.verbs.to_rtr_by(route, options)?;
        inner.state = QpStage::ReadyToReceive;
        self.0.verbs.to_rts_by(route, options)?;
        inner.state = QpStage::ReadyToSend;
        Ok(())
    }

    /// Moves the endpoint from INIT to RTR, where it accepts messages of `peer`. A
    /// passive side calls this before it answers the request.
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

    /// Moves the endpoint from RTR to RTS, where messages may be sent.
    ///
    /// # Errors
    /// As for [`Self::connect`], or the endpoint is not in RTR.
    pub fn ready_to_send(&self, options: &ConnectOptions) -> Result<(), ControlError> {
        let mut inner = self.lock_for("let an endpoint send")?;
        self.send_locked(&mut inner, options)
    }

    /// Moves the endpoint from any state to the error state, which ends the
    /// connection. Everything posted completes, most of it as
    /// [`crate::Status::WrFlush`], and so does everything posted afterwards.
    ///
    /// # Errors
    /// The device failed, or the endpoint was dropped.
    pub fn to_error(&self) -> Result<(), ControlError> {
        let mut inner = self.lock_for("end the connection of an endpoint")?;
        if inner.state == QpStage::Error {
            return Ok(());
        }
        if inner.state == QpStage::Reset {
            // Linux reaches ERR from RESET only through INIT. Port and access
            // rights do not matter, since nothing arrives.
            self.0.verbs.to_init(&ConnectOptions {
                access: Access::empty(),
                ..ConnectOptions::default()
            })?;
            inner.state = QpStage::Init;
        }
        if let Some(watch) = &inner.watch {
            watch.will_fail();
        }
        self.0.verbs.to_error()?;
        inner.state = QpStage::Error;
        if let Some(watch) = &inner.watch {
            watch.has_failed();
        }
        Ok(())
    }

    /// Asks whether the bytes of one RDMA write of the peer arrive in ascending order, so
    /// that the last byte may be polled in memory: one command to the kernel on mlx5.
    #[must_use]
    pub fn data_in_order(&self) -> DataInOrder {
        match self.lock().state {
            QpStage::ReadyToSend => self.0.verbs.data_in_order(),
            _ => DataInOrder::Unknown,
        }
    }

    /// Returns whether every posted send was retired by a polled completion. An
    /// unsignalled send is outstanding until a later send completes with a CQE.
    /// `true` if the endpoint was dropped.
    ///
    /// Exact while no thread posts or polls. Looks at every WQEBB of the ring; the
    /// posting thread calls [`super::Endpoint::sends_idle`] instead.
    #[must_use]
    pub fn sends_idle(&self) -> bool {
        self.lock().watch.as_ref().is_none_or(Watch::sends_idle)
    }

    /// Returns the position of the oldest send that no polled completion has retired,
    /// which changes when that send is retired; `None` if there is none, or the
    /// endpoint was dropped. As exact, and as expensive, as [`Self::sends_idle`].
    #[must_use]
    pub fn oldest_send(&self) -> Option<u32> {
        let inner = self.lock();
        let watch = inner.watch.as_ref()?;
        (!watch.sends_idle()).then(|| watch.sends_retired())
    }

    /// Returns the number of receives in the endpoint's own queue that were posted
    /// and whose completions were not polled; 0 with a shared receive queue, and
    /// after the endpoint was dropped.
    ///
    /// Exact while no thread posts or polls.
    #[must_use]
    pub fn recvs_outstanding(&self) -> u32 {
        self.lock()
            .watch
            .as_ref()
            .map_or(0, Watch::recvs_outstanding)
    }

    /// Records, on iWARP, that the kernel has moved the queue pair, or moves it
    /// when the request is accepted.
    fn follow_kernel(&self, inner: &mut Inner, route: &IwarpRoute) -> Result<(), ControlError> {
        if inner.state != QpStage::Init {
            return Err(ControlError::new(
                ControlErrorKind::Invalid,
                "connect an endpoint",
                format!(
                    "QP {:#x} was connected before, or is in the error state",
                    self.qpn()
                ),
            )
            .with_remedy("on iWARP, create another endpoint for each connection"));
        }
        if let Some(place) = route.greet() {
            self.0.verbs.greet(place)?;
        }
        inner.state = QpStage::ReadyToSend;
        inner.may_be_connecting = false;
        Ok(())
    }

    fn init_locked(&self, inner: &mut Inner, options: &ConnectOptions) -> Result<(), ControlError> {
        self.0.verbs.to_init(options)?;
        inner.state = QpStage::Init;
        Ok(())
    }

    fn receive_locked(
        &self,
        inner: &mut Inner,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        self.0.verbs.to_rtr(peer, options)?;
        inner.state = QpStage::ReadyToReceive;
        Ok(())
    }

    fn send_locked(&self, inner: &mut Inner, options: &ConnectOptions) -> Result<(), ControlError> {
        self.0.verbs.to_rts(options)?;
        inner.state = QpStage::ReadyToSend;
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
