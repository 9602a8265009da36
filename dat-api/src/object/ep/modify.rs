//! Changing an endpoint before it is connected.
//!
//! Decision: `docs/decisions/031-ep-modify-is-atomic.md`

use std::sync::Arc;

use dat_engine::{CompletionQueue, memory};

use super::attributes::{self, Request};
use super::build::{Plan, check_connect_evd, check_dto_evd, check_zones};
use super::{Control, Ep, Streams};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle};
use crate::object::evd::{DtoStream, Evd, StreamGuard, StreamKind};
use crate::object::of_another_ia;
use crate::object::pz::Pz;
use crate::object::usage::Use;
use crate::state::{self, Call};
use crate::status::{ReturnType, Subtype};
use crate::types::{EpAttributes, EpState};
use dat_engine::sync::MutexGuard;

/// The mask of endpoint parameters.
#[expect(missing_docs, reason = "the names are DAT's")]
mod fields {
    bitflags::bitflags! {
        /// `DAT_EP_PARAM_MASK`, with its bits: the members of `DAT_EP_PARAM`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct EpFields: u64 {
            const IA = 1 << 0;
            const STATE = 1 << 1;
            const LOCAL_ADDRESS = 1 << 2;
            const LOCAL_PORT = 1 << 3;
            const REMOTE_ADDRESS = 1 << 4;
            const REMOTE_PORT = 1 << 5;
            const PZ = 1 << 6;
            const RECV_EVD = 1 << 7;
            const REQUEST_EVD = 1 << 8;
            const CONNECT_EVD = 1 << 9;
            const SRQ = 1 << 10;
            const SERVICE_TYPE = 1 << 12;
            const MAX_MESSAGE_SIZE = 1 << 13;
            const MAX_RDMA_SIZE = 1 << 14;
            const QOS = 1 << 15;
            const RECV_FLAGS = 1 << 16;
            const REQUEST_FLAGS = 1 << 17;
            const MAX_RECV_DTOS = 1 << 18;
            const MAX_REQUEST_DTOS = 1 << 19;
            const MAX_RECV_IOV = 1 << 20;
            const MAX_REQUEST_IOV = 1 << 21;
            const MAX_RDMA_READ_IN = 1 << 22;
            const MAX_RDMA_READ_OUT = 1 << 23;
            const SRQ_SOFT_HW = 1 << 24;
            const MAX_RDMA_READ_IOV = 1 << 25;
            const MAX_RDMA_WRITE_IOV = 1 << 26;
            const NUM_TRANSPORT_ATTRIBUTES = 1 << 27;
            const TRANSPORT_ATTRIBUTES = 1 << 28;
            const NUM_PROVIDER_ATTRIBUTES = 1 << 29;
            const PROVIDER_ATTRIBUTES = 1 << 30;
        }
    }
}

pub use fields::EpFields;

impl EpFields {
    /// All attributes that can be changed.
    pub(crate) const ATTRIBUTES: Self = Self::SERVICE_TYPE
        .union(Self::MAX_MESSAGE_SIZE)
        .union(Self::MAX_RDMA_SIZE)
        .union(Self::QOS)
        .union(Self::RECV_FLAGS)
        .union(Self::REQUEST_FLAGS)
        .union(Self::MAX_RECV_DTOS)
        .union(Self::MAX_REQUEST_DTOS)
        .union(Self::MAX_RECV_IOV)
        .union(Self::MAX_REQUEST_IOV)
        .union(Self::MAX_RDMA_READ_IN)
        .union(Self::MAX_RDMA_READ_OUT)
        .union(Self::MAX_RDMA_READ_IOV)
        .union(Self::MAX_RDMA_WRITE_IOV);
}

/// The new values for [`Ep::modify`], which uses only those named by the
/// [`EpFields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpChange {
    /// Protection zone.
    pub pz: Option<Handle>,
    /// The EVD for completions of receives.
    pub recv_evd: Option<Handle>,
    /// The EVD for completions of requests.
    pub request_evd: Option<Handle>,
    /// The EVD for connection events.
    pub connect_evd: Option<Handle>,
    /// New attributes.
    pub attributes: EpAttributes,
}

/// Parameters that cannot be changed.
const FIXED: EpFields = EpFields::IA
    .union(EpFields::STATE)
    .union(EpFields::LOCAL_ADDRESS)
    .union(EpFields::LOCAL_PORT)
    .union(EpFields::REMOTE_ADDRESS)
    .union(EpFields::REMOTE_PORT)
    .union(EpFields::SRQ)
    .union(EpFields::SRQ_SOFT_HW);

/// Attributes of the transport or the provider: there are none.
const SPECIFIC: EpFields = EpFields::NUM_TRANSPORT_ATTRIBUTES
    .union(EpFields::TRANSPORT_ATTRIBUTES)
    .union(EpFields::NUM_PROVIDER_ATTRIBUTES)
    .union(EpFields::PROVIDER_ATTRIBUTES);

fn bad_value(cause: impl Into<std::borrow::Cow<'static, str>>) -> DatError {
    DatError::new(ReturnType::InvalidParameter, Subtype::InvalidArg3, cause)
}

/// Translates an error about a new value to the code for the argument, whichever function has found
/// it.
fn of_a_value(error: DatError) -> DatError {
    match error.code().kind() {
        Some(ReturnType::InvalidHandle | ReturnType::InvalidParameter) => {
            bad_value(error.cause().into_owned())
        }
        _ => error,
    }
}

fn bad_mask(cause: String) -> DatError {
    DatError::new(ReturnType::InvalidParameter, Subtype::InvalidArg2, cause)
}

fn find_evd(handle: Option<Handle>) -> Result<Option<Arc<Evd>>> {
    let Some(handle) = handle else {
        return Ok(None);
    };
    match handle::pin::<Evd>(handle) {
        Some(evd) => Ok(Some(evd.to_arc())),
        None => Err(bad_value(format!(
            "EVD {:#x} in the new values was freed: expected a live EVD, or DAT_HANDLE_NULL",
            handle.bits()
        ))),
    }
}

impl Ep {
    /// Changes the parameters that `fields` names. If it fails nothing has changed.
    ///
    /// Parameters that the queue pair is created from (protection zone, EVDs, depths, segments,
    /// completion flags) cannot change while receives are posted, because the receives would be
    /// lost with the queue pair.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_modify`.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs at the same time, unless its IA is threadsafe.
    pub unsafe fn modify(&self, fields: EpFields, change: &EpChange) -> Result<()> {
        if fields.bits() & !EpFields::all().bits() != 0 {
            return Err(bad_mask(format!(
                "the mask {:#x} has unknown bits: expected DAT_EP_FIELD_* bits",
                fields.bits()
            )));
        }
        if fields.intersects(FIXED) {
            return Err(bad_mask(format!(
                "the mask {:#x} names fields that cannot be changed, {:#x}: expected none of IA, \
                 state, addresses, qualifiers and SRQ",
                fields.bits(),
                fields.intersection(FIXED).bits()
            )));
        }
        // A second change waits while the first recreates the endpoint.
        let _one_at_a_time = self.changing.lock();
        self.check_state(fields)?;
        let zone = if fields.contains(EpFields::PZ) {
            Some(self.find_zone(change.pz)?)
        } else {
            None
        };

        let control = self.control();
        if let (Some(Some(pz)), Some(srq)) = (&zone, &control.srq) {
            check_zones(&self.ia, Some(pz.arc()), srq, Subtype::InvalidArg3)?;
        }
        let old = control.plan();
        let mut new = old.clone();
        if fields.contains(EpFields::RECV_EVD) {
            new.recv = find_evd(change.recv_evd)?;
        }
        if fields.contains(EpFields::REQUEST_EVD) {
            new.request = find_evd(change.request_evd)?;
        }
        let shared = control.srq.is_some();
        let asked = merge(&old.attributes, &change.attributes, fields);
        let touched = fields
            .difference(EpFields::PZ | EpFields::CONNECT_EVD)
            .difference(SPECIFIC);
        if shared && fields.intersects(EpFields::MAX_RECV_DTOS | EpFields::MAX_RECV_IOV) {
            return Err(bad_value(
                "the mask names max_recv_dtos or max_recv_iov, which an endpoint on an SRQ does \
                 not have: change the SRQ (dat_srq_resize), or the watermarks \
                 (dat_ep_set_watermark)",
            ));
        }
        if !touched.is_empty() {
            let request = Request {
                shared,
                has_recv: new.recv.is_some(),
                has_request: new.request.is_some(),
                argument: Subtype::InvalidArg3,
            };
            // An endpoint created without attributes has requests and receives even without EVDs; a
            // change may leave that so.
            let loses_evd = old.recv.is_some() && new.recv.is_none()
                || old.request.is_some() && new.request.is_none();
            new.attributes = if asked == old.attributes && !loses_evd {
                asked
            } else {
                attributes::resolve(&asked, self.ia.rules(), request)?
            };
        }
        for (evd, subtype) in [
            (&new.recv, Subtype::InvalidHandleEvdRecv),
            (&new.request, Subtype::InvalidHandleEvdRequest),
        ] {
            check_dto_evd(&self.ia, evd.as_ref(), subtype).map_err(of_a_value)?;
        }
        let same_zone = match (&zone, &control.pz) {
            (Some(zone), current) => {
                zone.as_ref().map(|zone| zone.handle()) == current.as_ref().map(|pz| pz.handle())
            }
            (None, _) => true,
        };
        let rebuild = old.differs(&new) || !same_zone;
        if rebuild
            && control
                .qp
                .as_ref()
                .is_some_and(|qp| qp.recvs_outstanding() != 0)
        {
            return Err(DatError::new(
                ReturnType::InvalidState,
                self.state().subtype(),
                "receives are posted, so the zone, EVDs, depths, segments and completion flags \
                 cannot change: reset the endpoint first",
            ));
        }
        let connect = fields
            .contains(EpFields::CONNECT_EVD)
            .then_some(change.connect_evd);
        if rebuild {
            // SAFETY: no post runs at the same time, unless posts take the lock.
            return unsafe { self.recreate(control, (&old, &new), zone, connect) };
        }
        drop(control);
        let connect = match connect {
            Some(evd) => Some(self.find_connect(evd)?),
            None => None,
        };
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let mut locked = unsafe { self.lock() };
        memory::commit()?;
        locked.control.attributes = new.attributes;
        locked.poster.configure(&new.attributes, &self.ia);
        let before = connect.map(|new| core::mem::replace(&mut locked.control.connect, new));
        drop(locked);
        drop(before);
        Ok(())
    }

    /// Replaces the queue pair of an endpoint whose connection has ended by another of the same
    /// kind. What is outstanding is dropped. If it fails nothing has changed.
    ///
    /// # Safety
    /// As for [`Self::modify`].
    pub(super) unsafe fn replace_queue_pair(&self) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        let control = self.control();
        if self.state() != EpState::Disconnected {
            return Err(state::refused("resetting", self.state()));
        }
        let plan = control.plan();
        // SAFETY: no post runs at the same time, unless posts take the lock.
        unsafe { self.recreate(control, (&plan, &plan), None, None) }
    }

    /// Replaces the queue pair of an endpoint with nothing outstanding: from one plan to another,
    /// with another zone and connection EVD if given. On an error the endpoint stays as it was: the
    /// previous parts are kept until the new ones are there.
    ///
    /// # Safety
    /// As for [`Self::modify`].
    unsafe fn recreate(
        &self,
        mut control: MutexGuard<'_, Control>,
        (old, new): (&Plan, &Plan),
        zone: Option<Option<Use<Pz>>>,
        connect: Option<Option<Handle>>,
    ) -> Result<()> {
        let mut streams = core::mem::take(&mut control.streams);
        let mut connect_before = match connect {
            Some(_) => control.connect.take(),
            None => None,
        };
        let zone_before = match zone {
            Some(zone) => core::mem::replace(&mut control.pz, zone),
            None => control.pz.clone(),
        };
        drop(control);
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let mut locked = unsafe { self.lock() };
        let qp = self.install(&mut locked, None, old);
        drop(locked);
        streams.each_mut().for_each(DtoStream::suspend);
        if let Some(connect) = &mut connect_before {
            connect.suspend();
        }
        // SAFETY: no post runs at the same time, unless posts take the lock.
        match unsafe { self.attach_and_create(new, &streams, connect) } {
            Ok(unreported) => {
                drop(qp);
                self.unreported.replace(unreported);
                // The streams release their room after the queue pair is gone.
                drop((streams, connect_before, zone_before));
                self.attach_new();
                Ok(())
            }
            Err(error) => {
                let back = streams.each_mut().try_for_each(DtoStream::resume);
                let back = back.and(connect_before.as_mut().map_or(Ok(()), StreamGuard::resume));
                if let Err(worse) = back {
                    // Other streams that were attached meanwhile exclude the previous ones.
                    tracing::error!(
                        "dat_ep_modify failed and could not restore the EVDs of the endpoint: {worse}"
                    );
                    drop(qp);
                    return Err(error);
                }
                // SAFETY: no post runs at the same time, unless posts take the lock.
                let mut locked = unsafe { self.lock() };
                locked.control.pz = zone_before;
                locked.control.streams = streams;
                if connect.is_some() {
                    locked.control.connect = connect_before;
                }
                let none = self.install(&mut locked, qp, old);
                drop(locked);
                drop(none);
                Err(of_a_value(error))
            }
        }
    }

    /// Attaches to EVDs and creates a queue pair by a plan, in place of the streams `before`.
    /// Returns the queue for completions without an EVD.
    ///
    /// # Safety
    /// As for [`Self::modify`].
    unsafe fn attach_and_create(
        &self,
        plan: &Plan,
        before: &Streams,
        connect: Option<Option<Handle>>,
    ) -> Result<Option<CompletionQueue>> {
        let srq = self.control().srq.clone();
        let streams = plan.attach(self.handle, srq.as_ref().map(Use::arc), before)?;
        let connect = match connect {
            Some(evd) => Some(self.find_connect(evd)?),
            None => None,
        };
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let mut locked = unsafe { self.lock() };
        // Everything is dropped without the lock.
        let (qp, unreported) = match self.make_queue_pair(&locked.control, &streams, plan) {
            Ok(made) => made,
            Err(error) => {
                drop(locked);
                return Err(error);
            }
        };
        if let Err(error) = memory::commit() {
            drop(locked);
            return Err(error.into());
        }
        locked.control.streams = streams;
        if let Some(connect) = connect {
            locked.control.connect = connect;
        }
        let none = self.install(&mut locked, qp, plan);
        drop(locked);
        drop(none);
        Ok(unreported)
    }

    fn check_state(&self, fields: EpFields) -> Result<()> {
        let state = self.state();
        let groups = [
            (EpFields::PZ, Call::ModifyZone),
            (SPECIFIC, Call::ModifySpecific),
            (
                EpFields::all() - FIXED - SPECIFIC - EpFields::PZ,
                Call::Modify,
            ),
        ];
        for (group, call) in groups {
            if fields.intersects(group) && !call.legal().has(state) {
                return Err(state::refused_in(call.legal(), "this change", state));
            }
        }
        Ok(())
    }

    fn find_zone(&self, zone: Option<Handle>) -> Result<Option<Use<Pz>>> {
        let Some(zone) = zone else { return Ok(None) };
        let pinned = handle::pin::<Pz>(zone).ok_or_else(|| {
            bad_value(format!(
                "PZ {:#x} in the new values was freed: expected a live PZ, or DAT_HANDLE_NULL",
                zone.bits()
            ))
        })?;
        let pz = pinned.to_arc();
        if !Arc::ptr_eq(pz.ia(), &self.ia) {
            return Err(bad_value(of_another_ia(
                "protection zone",
                pz.ia(),
                &self.ia,
            )));
        }
        Use::of(&pz)
            .map(Some)
            .ok_or_else(|| bad_value("the protection zone is being freed: use another"))
    }

    fn find_connect(&self, evd: Option<Handle>) -> Result<Option<StreamGuard>> {
        let evd = find_evd(evd)?;
        let rules = self.ia.rules().of_endpoint(self.control().srq.is_some());
        check_connect_evd(&self.ia, evd.as_ref(), rules).map_err(of_a_value)?;
        match evd {
            Some(evd) => evd
                .attach(StreamKind::Connection)
                .map(Some)
                .map_err(of_a_value),
            None => Ok(None),
        }
    }
}

/// Returns the old attributes with the named new ones.
fn merge(old: &EpAttributes, new: &EpAttributes, fields: EpFields) -> EpAttributes {
    let mut merged = *old;
    macro_rules! take {
        ($($flag:ident $field:ident),* $(,)?) => {
            $(if fields.contains(EpFields::$flag) {
                merged.$field = new.$field;
            })*
        };
    }
    take!(
        SERVICE_TYPE service_type,
        MAX_MESSAGE_SIZE max_message_size,
        MAX_RDMA_SIZE max_rdma_size,
        QOS qos,
        RECV_FLAGS recv_completion_flags,
        REQUEST_FLAGS request_completion_flags,
        MAX_RECV_DTOS max_recv_dtos,
        MAX_REQUEST_DTOS max_request_dtos,
        MAX_RECV_IOV max_recv_iov,
        MAX_REQUEST_IOV max_request_iov,
        MAX_RDMA_READ_IN max_rdma_read_in,
        MAX_RDMA_READ_OUT max_rdma_read_out,
        MAX_RDMA_READ_IOV max_rdma_read_iov,
        MAX_RDMA_WRITE_IOV max_rdma_write_iov,
    );
    merged
}
