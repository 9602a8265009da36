//! The passive side of a connection.

use std::sync::Arc;

use dat_engine::cm::Request;

use super::Ep;
use super::sink::Sink;
use crate::error::{DatError, Result};
use crate::state::{self, Call, Trigger};
use crate::status::{ReturnType, Subtype};

impl Ep {
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
        let mut held = self.hold();
        let control = &mut *held.control;
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
        self.bring_up(control, request.parameters())?;
        let Some(request) = place.take() else {
            return Ok(());
        };
        control.remote.set(request.peer());
        control.remote_qualifier = request.remote_port();
        control.local_qualifier = request.qualifier();
        self.step(control, Trigger::Accept);
        match request.accept(local, private_data, Sink::of(self)) {
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
