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
    /// Reserves it for the request of a service point.
    ///
    /// # Errors
    /// `INVALID_STATE` unless it is unconnected; `INVALID_HANDLE` if it is being
    /// freed.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Use<Self>> {
        let mut control = self.control();
        let state = self.state();
        if !Call::Reserve.legal().has(state) {
            return Err(state::refused("reserving it", state));
        }
        let used = Use::of(self).ok_or_else(super::life::stale)?;
        self.step(&mut control, Trigger::Reserve);
        Ok(used)
    }

    /// Its service point is gone before a request came.
    pub(crate) fn release(&self) {
        self.step(&mut self.control(), Trigger::Release);
    }

    /// The request for which it was reserved has come: `announce` tells the
    /// consumer, who finds it in the state that follows. If that fails, it stays
    /// reserved.
    pub(crate) fn approached(
        &self,
        place: &mut Option<Request>,
        announce: impl FnOnce(&mut Option<Request>) -> Result<()>,
    ) -> Result<()> {
        let mut control = self.control();
        let state = self.state();
        if state != EpState::Reserved {
            // It went with its IA.
            return Err(state::refused("asking for it", state));
        }
        if let Some(request) = place {
            control.meets(request);
        }
        announce(place)?;
        self.step(&mut control, Trigger::RequestArrived);
        Ok(())
    }

    /// The request for which it was reserved was rejected or handed off.
    pub(crate) fn left_alone(&self) {
        self.step(&mut self.control(), Trigger::Reject);
    }

    /// Takes an endpoint that a request has brought for a caller that will post
    /// to it; `None` if another has it already.
    pub(crate) fn take_brought(&self) -> Option<Taken<'_>> {
        let was = self.taken.swap(true, Ordering::AcqRel);
        (!was).then_some(Taken(self))
    }

    /// Accepts a request, and takes it out of its place, unless this fails.
    /// Whether the requester still wants to connect shows later, as an event.
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
            return Err(state::refused("accepting a connection", self.state()));
        }
        if control.connect.is_none() {
            return Err(bad("the endpoint has no EVD for connection events"));
        }
        let Some(qp) = &control.qp else {
            return Err(bad("the endpoint has no protection zone"));
        };
        let Some(request) = place.as_ref() else {
            return Err(DatError::new(
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleCr,
                "the request has been answered",
            ));
        };
        let local = self.parameters(qp, control)?;
        let greeting = qp.greeting()?;
        let brought = self.bring_up(control, request.parameters());
        match brought {
            // As it was: the consumer may try again.
            Err(error) if qp.awaits_peer() => return Err(error.into()),
            _ => {}
        }
        let Some(request) = place.take() else {
            return Ok(());
        };
        control.meets(&request);
        self.step(control, Trigger::Accept);
        if let Err(error) = brought {
            // Half way, and there is no way back that keeps its receives: an
            // event says so, and the requester is refused as by nobody.
            tracing::warn!("a connection could not be accepted: {error}");
            self.step(control, Trigger::AcceptFailed);
            return Ok(());
        }
        match request.accept(local, private_data, Sink::accepting(self, greeting)) {
            Ok(connection) => control.connection = Some(connection),
            // The request is gone: an event says that nothing came of it.
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                self.step(control, Trigger::AcceptFailed);
            }
        }
        Ok(())
    }
}

/// An endpoint is this call's: see [`Ep::take_brought`]. Dropped, it can be
/// taken again.
pub(crate) struct Taken<'a>(&'a Ep);

impl Taken<'_> {
    /// Leaves the endpoint taken for good.
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
    /// Who the requester is, and what he has asked for.
    pub(super) fn meets(&mut self, request: &Request) {
        self.remote_host = Some(request.peer());
        self.remote.set(request.peer());
        self.remote_qualifier = request.remote_port();
        self.local_qualifier = request.qualifier();
    }
}
