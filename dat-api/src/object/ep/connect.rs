//! Connections: connecting, accepting, and the events of the connection manager.
//!
//! The events come on the manager's thread. Their functions do not touch the poster. They wait only
//! for a thread that owns an EVD at the moment; if that thread has found this endpoint's failure and
//! waits for this one in turn, it has changed the endpoint's state before.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use dat_engine::cm::{
    CmError, ConnectionEvent, ConnectionSink, ManagerKind, Parameters, Peer, Request, Target,
};
use dat_engine::{ControlError, EndpointAddress, EndpointHandle, Greeting};

use super::{Control, Ep, check};
use crate::error::{DatError, Result};
use crate::handle;
use crate::object::of_another_ia;
use crate::object::stale;
use crate::object::usage::Use;
use crate::state::{self, Call, Trigger};
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{EpState, PrivateData};

/// The peer and the parameters of a connection attempt.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address.
    pub address: SocketAddr,
    /// The qualifier that the peer listens on.
    pub qualifier: u64,
    /// How long to try; `None` means for ever.
    pub timeout: Option<Duration>,
    /// Private data for the peer.
    pub private_data: &'a [u8],
    /// `DAT_QOS`; only 0, best effort, is supported.
    pub qos: u32,
    /// `DAT_CONNECT_FLAGS`; 1, multipath, is not supported.
    pub flags: u32,
}

/// Translates an error of the connection manager.
pub(crate) fn manager_error(error: &CmError) -> DatError {
    let (kind, subtype) = match error {
        CmError::InUse => (ReturnType::ConnQualInUse, Subtype::NoSubtype),
        CmError::TooLong { .. } => (ReturnType::InvalidParameter, Subtype::InvalidArg5),
        CmError::Address(_) => (
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
        ),
        CmError::Forked => (ReturnType::InvalidHandle, Subtype::NoSubtype),
        CmError::Privileged { .. } => (ReturnType::PrivilegesViolation, Subtype::NoSubtype),
        CmError::NotServed(_) => (
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnreachable,
        ),
        CmError::OnlyRdma { .. } => (ReturnType::ModelNotSupported, Subtype::NoSubtype),
        CmError::NoMemory(_) => (ReturnType::InsufficientResources, Subtype::ResourceMemory),
        CmError::Unavailable | CmError::Missing(_) | CmError::Resources(_) => {
            (ReturnType::InsufficientResources, Subtype::ResourceDevice)
        }
    };
    DatError::new(kind, subtype, error.to_string())
}

impl Ep {
    /// Begins to connect. An event reports the result.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_connect`.
    pub fn connect(&self, how: &Connect<'_>) -> Result<()> {
        let me = handle::pin::<Self>(self.handle)
            .ok_or_else(stale::<Self>)?
            .to_arc();
        let control = &mut *self.control();
        if control.connect.is_none() {
            return Err(DatError::new(
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleEvdConn,
                "the endpoint has no EVD for connection events: set one with dat_ep_modify",
            ));
        }
        check(Call::Connect, "connecting", self.state())?;
        let Some(qp) = &control.qp else {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStateEpNotready,
                "the endpoint has no protection zone: set one with dat_ep_modify",
            ));
        };
        if how.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg4,
                "the timeout is 0: expected 1 microsecond or more, or DAT_TIMEOUT_INFINITE",
            ));
        }
        self.check_private_data(how.private_data, Subtype::InvalidArg5)?;
        if how.qos != 0 || how.flags != 0 {
            return Err(DatError::new(
                ReturnType::ModelNotSupported,
                Subtype::NoSubtype,
                format!(
                    "quality of service {:#x}, connect flags {:#x}: expected \
                     DAT_QOS_BEST_EFFORT (0) and DAT_CONNECT_DEFAULT_FLAG (0)",
                    how.qos, how.flags
                ),
            ));
        }
        let local = self.parameters(qp, control)?;
        let sink = Sink::connecting(&me, qp);
        control.remote.set(how.address);
        control.remote_host = Some(how.address);
        control.remote_qualifier = how.qualifier;
        control.local_qualifier = 0;
        // Before connecting: events may come at any moment, and wait for the lock.
        self.step(control, Trigger::Connect);
        let target = Target {
            host: how.address,
            qualifier: how.qualifier,
            timeout: how.timeout,
        };
        let connection =
            self.ia
                .cm()
                .connect(self.ia.local(), target, local, how.private_data, sink);
        match connection {
            Ok(connection) => {
                control.connection = Some(connection);
                Ok(())
            }
            Err(error) => {
                // The state before; the sink gets no events.
                self.set_state(EpState::Unconnected);
                Err(manager_error(&error))
            }
        }
    }

    /// Begins to connect to the peer of a connected endpoint: to the address and the qualifier that
    /// `model` connected to. If `model` accepted its connection, the qualifier is the requester's
    /// port, on which nothing listens.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_dup_connect`.
    pub fn dup_connect(
        &self,
        model: &Self,
        timeout: Option<Duration>,
        private_data: &[u8],
        qos: u32,
    ) -> Result<()> {
        if !Arc::ptr_eq(&self.ia, &model.ia) {
            return Err(DatError::new(
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleEp,
                of_another_ia("endpoint to duplicate", &model.ia, &self.ia),
            ));
        }
        // Errors of this endpoint come first, as in a connect.
        check(Call::Connect, "connecting", self.state())?;
        let peer = {
            let control = model.control();
            check(Call::DupModel, "connecting to its peer", model.state())?;
            control.remote_host.zip(Some(control.remote_qualifier))
        };
        let Some((address, qualifier)) = peer else {
            return Err(state::refused("connecting to its peer", model.state()));
        };
        let how = Connect {
            address,
            qualifier,
            timeout,
            private_data,
            qos,
            // The flags of the model: there is only this value.
            flags: 0,
        };
        self.connect(&how).map_err(|error| {
            // The timeout and the private data are one argument further on in a connect.
            let subtype = match error.code().subtype() {
                Some(Subtype::InvalidArg4) => Subtype::InvalidArg3,
                Some(Subtype::InvalidArg5) => Subtype::InvalidArg4,
                _ => return error,
            };
            error.with_code(DatReturn::error(ReturnType::InvalidParameter, subtype))
        })
    }

    /// Checks the length of private data against the limit of the connection manager.
    fn check_private_data(&self, data: &[u8], argument: Subtype) -> Result<()> {
        let most = self.ia.rules().max_private_data;
        if data.len() <= most {
            return Ok(());
        }
        Err(DatError::new(
            ReturnType::InvalidParameter,
            argument,
            format!(
                "{} bytes of private data: expected at most {most}, the provider attribute \
                 max_private_data_size",
                data.len()
            ),
        ))
    }

    /// Returns the parameters that the peer needs.
    fn parameters(&self, qp: &EndpointHandle, control: &Control) -> Result<Parameters> {
        let options = self.options(&control.attributes);
        let address = match self.ia.cm().kind() {
            ManagerKind::Rdma => EndpointAddress::of_number(qp.qpn()),
            ManagerKind::Socket => qp.verbs().local_address_for(&options)?,
        };
        Ok(Parameters {
            address,
            reads_served: options.reads_served,
            reads_requested: options.reads_issued,
        })
    }
}

impl Ep {
    /// Reserves the endpoint for the request of a service point.
    ///
    /// # Errors
    /// `INVALID_STATE` unless it is unconnected; `INVALID_HANDLE` if it is being freed.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Use<Self>> {
        let mut control = self.control();
        let state = self.state();
        if !Call::Reserve.legal().has(state) {
            return Err(state::refused_in(
                Call::Reserve.legal(),
                "reserving it for a service point",
                state,
            ));
        }
        let used = Use::of(self).ok_or_else(stale::<Self>)?;
        self.step(&mut control, Trigger::Reserve);
        Ok(used)
    }

    /// Ends the reservation: the service point was freed before a request came.
    pub(crate) fn release(&self) {
        self.step(&mut self.control(), Trigger::Release);
    }

    /// Handles the arrival of the request that the endpoint was reserved for: `announce` posts the
    /// event, and the consumer then finds the endpoint in the next state. If `announce` fails, the
    /// endpoint stays reserved.
    pub(crate) fn request_arrived(
        &self,
        place: &mut Option<Request>,
        announce: impl FnOnce(&mut Option<Request>) -> Result<()>,
    ) -> Result<()> {
        let mut control = self.control();
        let state = self.state();
        if state != EpState::Reserved {
            // It was freed with its IA.
            return Err(state::refused(
                "receiving a connection request for it",
                state,
            ));
        }
        if let Some(request) = place {
            control.set_peer(request);
        }
        announce(place)?;
        self.step(&mut control, Trigger::RequestArrived);
        Ok(())
    }

    /// Handles the rejection or hand-off of the request that the endpoint was reserved for.
    pub(crate) fn request_rejected(&self) {
        self.step(&mut self.control(), Trigger::Reject);
    }

    /// Takes the endpoint that was created for a request, for a caller that will post to it; `None`
    /// if another caller has taken it.
    pub(crate) fn take_for_posting(&self) -> Option<Taken<'_>> {
        let was = self.taken.swap(true, Ordering::AcqRel);
        (!was).then_some(Taken(self))
    }

    /// Accepts a request and removes it from `place`, unless this fails. If the requester has given
    /// up meanwhile, an event says so later.
    pub(crate) fn accept(
        self: &Arc<Self>,
        place: &mut Option<Request>,
        call: Call,
        private_data: &[u8],
    ) -> Result<()> {
        let bad = |cause| DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandleEp, cause);
        self.check_private_data(private_data, Subtype::InvalidArg3)?;
        let control = &mut *self.control();
        if !call.legal().has(self.state()) {
            return Err(state::refused_in(
                call.legal(),
                "accepting a connection",
                self.state(),
            ));
        }
        if control.connect.is_none() {
            return Err(bad(
                "the endpoint has no EVD for connection events: set one with dat_ep_modify",
            ));
        }
        let Some(qp) = &control.qp else {
            return Err(bad(
                "the endpoint has no protection zone: set one with dat_ep_modify",
            ));
        };
        let Some(request) = place.as_ref() else {
            return Err(DatError::new(
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleCr,
                "the request has been answered: accept or reject each request once",
            ));
        };
        let local = self.parameters(qp, control)?;
        let sink = Sink::accepting(self, qp.greeting()?);
        let acceptance = request
            .acceptance(local, private_data, sink)
            .map_err(|error| manager_error(&error))?;
        let connected = self.bring_up(control, request.parameters());
        match connected {
            // The queue pair has not moved: the consumer may try again.
            Err(error) if qp.awaits_peer() => return Err(error.into()),
            _ => {}
        }
        let Some(request) = place.take() else {
            return Ok(());
        };
        control.set_peer(&request);
        self.step(control, Trigger::Accept);
        if let Err(error) = connected {
            // The queue pair has moved part of the way, and moving it back would lose its receives.
            // The endpoint gets an event, and the requester a rejection that does not come from the
            // peer's consumer.
            tracing::warn!("a connection could not be accepted: {error}");
            self.step(control, Trigger::AcceptFailed);
            return Ok(());
        }
        match request.accept_by(acceptance) {
            Ok(connection) => control.connection = Some(connection),
            // The request is gone: an event says that accepting has failed.
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                self.step(control, Trigger::AcceptFailed);
            }
        }
        Ok(())
    }
}

/// The right to post to an endpoint, from [`Ep::take_for_posting`]. Dropping it releases the
/// endpoint.
pub(crate) struct Taken<'a>(&'a Ep);

impl Taken<'_> {
    /// Keeps the endpoint taken for ever.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

impl Control {
    /// Stores the requester's address and qualifiers.
    pub(super) fn set_peer(&mut self, request: &Request) {
        self.remote_host = Some(request.peer());
        self.remote.set(request.peer());
        self.remote_qualifier = request.remote_port();
        self.local_qualifier = request.qualifier();
    }
}

/// Passes the events of one connection to its endpoint.
struct Sink {
    ep: Weak<Ep>,
    /// Whether the endpoint connects and therefore sends the first write (iWARP).
    greets: bool,
    /// If the endpoint accepts: waits for the requester's first write (iWARP).
    greeting: Option<Arc<Greeting>>,
}

impl Sink {
    fn connecting(ep: &Arc<Ep>, qp: &EndpointHandle) -> Arc<Self> {
        Arc::new(Self {
            ep: Arc::downgrade(ep),
            greets: qp.prepare_request(),
            greeting: None,
        })
    }

    /// Returns the sink of an endpoint that accepts.
    fn accepting(ep: &Arc<Ep>, greeting: Option<Arc<Greeting>>) -> Arc<Self> {
        Arc::new(Self {
            ep: Arc::downgrade(ep),
            greets: false,
            greeting,
        })
    }
}

impl ConnectionSink for Sink {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        // An endpoint drops its connection before it is freed.
        let ep = self.ep.upgrade().ok_or(())?;
        if event.is_terminal() && ep.state() == EpState::Connected {
            // A failed request may be the reason why the peer disconnected, and is reported with
            // more detail.
            ep.poll_for_failures();
        }
        let mut control = ep.control();
        match event {
            ConnectionEvent::Accepted { peer, private_data } => {
                return ep.accepted(&mut control, &peer, private_data);
            }
            other => {
                if let Some(trigger) = trigger(&other, ep.state()) {
                    let data = match other {
                        ConnectionEvent::PeerRejected { private_data } => private_data,
                        _ => Vec::new(),
                    };
                    let with = store(&mut control, data);
                    ep.step_with(&mut control, trigger, with);
                }
            }
        }
        Ok(())
    }

    fn greets(&self) -> bool {
        self.greets
    }

    fn greeting(&self) -> Option<Arc<Greeting>> {
        self.greeting.clone()
    }
}

/// Stores the private data of an event, which the application reads later.
fn store(control: &mut Control, private_data: Vec<u8>) -> PrivateData {
    if private_data.is_empty() {
        return PrivateData::default();
    }
    control.private_data = private_data.into_boxed_slice();
    PrivateData {
        address: control.private_data.as_ptr().expose_provenance(),
        len: u32::try_from(control.private_data.len()).unwrap_or(u32::MAX),
    }
}

/// Returns what an event means in a state; `None` if it comes too late.
fn trigger(event: &ConnectionEvent, state: EpState) -> Option<Trigger> {
    use EpState::{ActiveConnectionPending, CompletionPending, Connected, DisconnectPending};
    Some(match (state, event) {
        (ActiveConnectionPending, ConnectionEvent::PeerRejected { .. }) => Trigger::PeerRejected,
        (ActiveConnectionPending, ConnectionEvent::Unreachable) => Trigger::Unreachable,
        (ActiveConnectionPending, ConnectionEvent::TimedOut) => Trigger::TimedOut,
        (ActiveConnectionPending, _) => Trigger::NonPeerRejected,
        (CompletionPending, ConnectionEvent::Established) => Trigger::TransportReady,
        (CompletionPending, _) => Trigger::AcceptFailed,
        // The state is already `Connected`.
        (Connected, ConnectionEvent::Established) => return None,
        (Connected, ConnectionEvent::Disconnected) => Trigger::PeerDisconnected,
        (Connected, _) => Trigger::Failed,
        (DisconnectPending, ConnectionEvent::Established) => return None,
        // Any end of the connection completes the disconnect.
        (DisconnectPending, _) => Trigger::TornDown,
        _ => return None,
    })
}

impl Ep {
    /// Handles the peer's accept: connects the queue pair, and notifies the peer.
    fn accepted(
        &self,
        control: &mut Control,
        peer: &Peer,
        private_data: Vec<u8>,
    ) -> Result<(), ()> {
        if self.state() != EpState::ActiveConnectionPending {
            return Err(());
        }
        let moved = self.bring_up(control, peer);
        if let Err(error) = moved {
            tracing::error!(
                "the queue pair of an accepted connection cannot be connected: {error}"
            );
            self.step(control, Trigger::NonPeerRejected);
            return Err(());
        }
        let with = store(control, private_data);
        self.step_with(control, Trigger::PeerAccepted, with);
        Ok(())
    }

    /// Brings the queue pair to RTS.
    fn bring_up(&self, control: &Control, peer: &Peer) -> Result<(), ControlError> {
        let mut options = self.options(&control.attributes);
        // More reads than the peer serves would break the connection.
        options.reads_issued = options.reads_issued.min(peer.reads_served);
        if let Some(qp) = &control.qp {
            qp.connect_by(&peer.route, &options)?;
        }
        self.reads_issued
            .store(options.reads_issued.into(), Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
