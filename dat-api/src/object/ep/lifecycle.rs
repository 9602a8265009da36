//! Connecting, disconnecting, resetting and freeing endpoints.
//!
//! Decision: `docs/decisions/030-purge-on-reset.md`

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use dat_engine::cm::{CmError, ManagerKind, Parameters, Target};
use dat_engine::{EndpointAddress, EndpointHandle, SendFlags, SendOp, SendRequest};

use super::poster::Held;
use super::sink::Sink;
use super::{Connect, Ep, drain};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle};
use crate::object::of_another_ia;
use crate::object::usage::Counted;
use crate::state::{self, Call, Trigger};
use crate::status::{ReturnType, Subtype};
use crate::types::EpState;

pub(super) fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleEp,
        "the handle names no endpoint; it may have been freed",
    )
}

fn check(call: Call, what: &str, state: EpState) -> Result<()> {
    if call.legal().has(state) {
        Ok(())
    } else {
        Err(state::refused_in(call.legal(), what, state))
    }
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
        CmError::Unavailable | CmError::Missing(_) | CmError::Resources(_) => {
            (ReturnType::InsufficientResources, Subtype::ResourceDevice)
        }
    };
    DatError::new(kind, subtype, error.to_string())
}

/// The arguments that errors name.
struct Arguments {
    timeout: Subtype,
    private_data: Subtype,
}

impl Arguments {
    const CONNECT: Self = Self {
        timeout: Subtype::InvalidArg4,
        private_data: Subtype::InvalidArg5,
    };
    const DUP_CONNECT: Self = Self {
        timeout: Subtype::InvalidArg3,
        private_data: Subtype::InvalidArg4,
    };
}

impl Ep {
    /// Begins to connect. An event reports the result.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_connect`.
    pub fn connect(&self, how: &Connect<'_>) -> Result<()> {
        self.begin(how, &Arguments::CONNECT)
    }

    fn begin(&self, how: &Connect<'_>, arguments: &Arguments) -> Result<()> {
        let me = handle::pin::<Self>(self.handle).ok_or_else(stale)?.to_arc();
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
                arguments.timeout,
                "the timeout is 0: expected 1 microsecond or more, or DAT_TIMEOUT_INFINITE",
            ));
        }
        self.check_private_data(how.private_data, arguments.private_data)?;
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
        self.begin(
            &Connect {
                address,
                qualifier,
                timeout,
                private_data,
                qos,
                // The flags of the model: there is only this value.
                flags: 0,
            },
            &Arguments::DUP_CONNECT,
        )
    }

    /// Checks the length of private data against the limit of the connection manager.
    pub(super) fn check_private_data(&self, data: &[u8], argument: Subtype) -> Result<()> {
        let most = self.ia.max_private_data();
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
    pub(super) fn parameters(
        &self,
        qp: &dat_engine::EndpointHandle,
        control: &super::control::Control,
    ) -> Result<Parameters> {
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

    /// Disconnects, or gives up an attempt to connect. A graceful disconnect first completes the
    /// requests that were posted.
    ///
    /// # Errors
    /// `INVALID_STATE` if there is nothing to disconnect.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub unsafe fn disconnect(&self, graceful: bool) -> Result<()> {
        // SAFETY: the caller's promise.
        let mut held = unsafe { self.hold() };
        let state = self.state();
        check(Call::Disconnect, "disconnecting", state)?;
        let trigger = if graceful {
            Trigger::DisconnectGraceful
        } else {
            Trigger::DisconnectAbrupt
        };
        let mut waits = false;
        let mut given_up = None;
        match state {
            EpState::Connected => {
                self.step(&mut held.control, trigger);
                waits = graceful && !self.requests_are_done(&mut held);
                if !graceful {
                    held.control.flush();
                }
                if waits {
                    held.control.draining = true;
                } else if let Some(connection) = &held.control.connection {
                    connection.disconnect();
                }
            }
            EpState::DisconnectPending if !graceful => {
                // Kept so that it sends the disconnect; its later events are ignored.
                if let Some(connection) = &held.control.connection {
                    connection.disconnect();
                }
                self.step(&mut held.control, trigger);
            }
            EpState::ActiveConnectionPending | EpState::CompletionPending => {
                given_up = held.control.connection.take();
                self.step(&mut held.control, trigger);
            }
            _ => {
                self.step(&mut held.control, trigger);
            }
        }
        drop(held);
        drop(given_up);
        if waits {
            self.poll_everything();
            if self.control().draining {
                drain::watch(self.handle);
            }
        }
        Ok(())
    }

    /// Returns whether no request is outstanding; posts a marker if some are.
    fn requests_are_done(&self, held: &mut Held<'_>) -> bool {
        let Some(qp) = &mut held.poster.qp else {
            return true;
        };
        qp.open_sends();
        if qp.sends_idle() {
            return true;
        }
        // The ring has one entry for the marker beyond those of the consumer.
        let most = |count: i32| u32::try_from(count).unwrap_or(0);
        let attributes = &held.control.attributes;
        qp.limit(
            most(attributes.max_request_dtos) + 1,
            most(attributes.max_recv_dtos),
        );
        self.inspect_completions();
        let marker = SendRequest {
            wr_id: 0,
            op: SendOp::Nop,
            // The fence makes the marker wait for reads: an iWARP device completes a write as soon
            // as TCP has the bytes.
            flags: SendFlags::SIGNALED | SendFlags::FENCE,
            segments: &[],
        };
        post_marker(qp, &marker)
    }

    /// Returns the endpoint to the unconnected state, ready to connect again. Completions that were
    /// not dequeued are dropped.
    ///
    /// # Errors
    /// `INVALID_STATE`; a failure of the device.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub unsafe fn reset(&self) -> Result<()> {
        let (connection, evds, in_place) = {
            let mut control = self.control();
            let state = self.state();
            check(Call::Reset, "resetting", state)?;
            if state == EpState::Unconnected {
                return Ok(());
            }
            let in_place = control.qp.as_ref().is_none_or(EndpointHandle::may_be_reset);
            (control.connection.take(), control.streams.evds(), in_place)
        };
        // After this the manager sends no more events.
        drop(connection);
        match in_place {
            // SAFETY: the caller's promise.
            true => unsafe { self.reset_queue_pair() }?,
            // SAFETY: the caller's promise.
            false => unsafe { self.replace_queue_pair() }?,
        }
        for evd in evds {
            evd.purge(self.handle);
        }
        self.poll_unreported();
        // SAFETY: the caller's promise.
        let mut held = unsafe { self.hold() };
        let Held {
            poster, control, ..
        } = &mut held;
        self.reset_counters(control);
        poster.unsignalled = 0;
        if let Some(qp) = &mut poster.qp
            && in_place
        {
            qp.init(&self.options(&control.attributes))?;
            let most = |count: i32| u32::try_from(count).unwrap_or(0);
            qp.limit(
                most(control.attributes.max_request_dtos),
                most(control.attributes.max_recv_dtos),
            );
        }
        control.private_data = Box::default();
        self.reads_issued.store(0, Ordering::Relaxed);
        self.step(control, Trigger::Reset);
        drop(held);
        self.attach_new();
        Ok(())
    }

    /// Resets the queue pair to the state after creation.
    ///
    /// # Safety
    /// As for [`Self::reset`].
    unsafe fn reset_queue_pair(&self) -> Result<()> {
        // SAFETY: the caller's promise.
        let held = unsafe { self.hold() };
        if self.state() != EpState::Disconnected {
            return Err(state::refused("resetting", self.state()));
        }
        if let Some(qp) = &mut held.poster.qp {
            qp.reset()?;
        }
        Ok(())
    }

    /// Frees an endpoint in any state, except while a service point holds it. A connection, or an
    /// attempt to connect, ends.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `INVALID_STATE`.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub unsafe fn free(handle: Handle) -> Result<()> {
        let ep = handle::pin::<Self>(handle).ok_or_else(stale)?;
        check(Call::Free, "freeing", ep.state())?;
        if !ep.usage().close() {
            return Err(stale());
        }
        // SAFETY: the caller's promise.
        unsafe { ep.dismantle() };
        drop(ep);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale)?;
        Ok(())
    }

    /// Frees the endpoint in any state, because the IA is closed abruptly, or the request that it
    /// was created for was rejected.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub(crate) unsafe fn abort(handle: Handle) {
        if let Some(ep) = handle::pin::<Self>(handle) {
            ep.usage().close_anyway();
            // SAFETY: the caller's promise.
            unsafe { ep.dismantle() };
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    /// Releases the parts of the endpoint: ends the connection, destroys the queue pair, and
    /// detaches from the EVDs.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub(super) unsafe fn dismantle(&self) {
        let connection = self.control().connection.take();
        drop(connection);
        let (qp, evds, parts) = {
            // SAFETY: the caller's promise.
            let mut held = unsafe { self.hold() };
            let Held {
                poster, control, ..
            } = &mut held;
            // Later device events and completions find the endpoint unconnected.
            self.set_state(EpState::Unconnected);
            control.draining = false;
            control.qp = None;
            let qp = poster.serve(None);
            let evds = control.streams.evds();
            let parts = (
                core::mem::take(&mut control.streams),
                control.connect.take(),
                control.pz.take(),
                control.srq.take(),
            );
            (qp, evds, parts)
        };
        if let Some(qp) = &qp {
            self.ia.unwatch(qp.verbs().id());
        }
        // Before the streams, which release the room of its completions.
        drop(qp);
        for evd in evds {
            evd.purge(self.handle);
        }
        self.end_inspection();
        self.unreported.replace(None);
        drop(parts);
        self.ia.unregister(self.handle);
    }
}

fn post_marker(qp: &mut dat_engine::Endpoint, marker: &SendRequest<'_>) -> bool {
    // SAFETY: a marker has no segments.
    match unsafe { qp.post_send(marker) } {
        Ok(()) => false,
        Err(error) => {
            // The queue pair is in the error state, so its requests are flushed anyway.
            tracing::warn!(
                "a graceful disconnect cannot wait for its requests, no marker can be posted: {error}"
            );
            true
        }
    }
}

/// Returns the endpoint that a handle names.
pub(crate) fn find(handle: Handle) -> Result<Arc<Ep>> {
    Ok(handle::pin::<Ep>(handle).ok_or_else(stale)?.to_arc())
}
