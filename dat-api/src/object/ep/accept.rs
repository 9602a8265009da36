//! The passive side of a connection.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use dat_engine::cm::Request;

use super::Ep;
use super::control::Control;
use super::sink::Sink;
use crate::error::{DatError, Result};
use crate::object::usage::Use;
use crate::state::{self, Call, Trigger};
use crate::status::{ReturnType, Subtype};
use crate::types::EpState;

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
        let used = Use::of(self).ok_or_else(super::lifecycle::stale)?;
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
        let greeting = qp.greeting()?;
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
        match request.accept(local, private_data, Sink::accepting(self, greeting)) {
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
