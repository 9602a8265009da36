//! Creating endpoints.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::borrow::Cow;
use std::sync::Arc;

use dat_engine::cm;

use super::attributes::{self, Request};
use super::build::{Plan, check_zones};
use super::control::{Control, Streams};
use super::poster::Poster;
use super::unsignalled::UnsignalledReceives;
use super::watermark::HighMarks;
use super::{Ep, drain};
use crate::error::{DatError, Result};
use crate::handle::Reservation;
use crate::object::counters::Refused;
use crate::object::evd::{Evd, StreamKind};
use crate::object::ia::Ia;
use crate::object::post::{PostMode, Posting};
use crate::object::pz::Pz;
use crate::object::srq::Srq;
use crate::object::usage::{Usage, Use};
use crate::object::{exhausted, of_another_ia};
use crate::status::{ReturnType, Subtype};
use crate::types::{EpAttributes, EpState, EvdFlags};
use dat_engine::sync::Mutex;

/// The objects that an endpoint is created from.
#[derive(Clone, Copy)]
struct Parts<'a> {
    pz: Option<&'a Arc<Pz>>,
    recv: Option<&'a Arc<Evd>>,
    request: Option<&'a Arc<Evd>>,
    connect: Option<&'a Arc<Evd>>,
    srq: Option<&'a Arc<Srq>>,
}

/// The error for a handle of an object that does not fit the call.
pub(super) fn bad(subtype: Subtype, cause: impl Into<Cow<'static, str>>) -> DatError {
    DatError::new(ReturnType::InvalidHandle, subtype, cause)
}

/// Checks that an EVD carries the events and belongs to the same IA.
pub(super) fn check_evd(
    ia: &Arc<Ia>,
    evd: Option<&Arc<Evd>>,
    flag: EvdFlags,
    subtype: Subtype,
) -> Result<()> {
    let Some(evd) = evd else { return Ok(()) };
    if !Arc::ptr_eq(evd.ia(), ia) {
        return Err(bad(subtype, of_another_ia("EVD", evd.ia(), ia)));
    }
    if !evd.flags().contains(flag) {
        return Err(bad(
            subtype,
            format!(
                "EVD {:#x} has the flags {:#x}: expected {:#x}, the flag for these events; create \
                 it with that flag",
                evd.handle().bits(),
                evd.flags().bits(),
                flag.bits()
            ),
        ));
    }
    Ok(())
}

impl Ep {
    /// Creates an endpoint with a receive queue of its own. Without a protection zone it cannot
    /// post or connect until [`Ep::modify`] sets one. Events for which there is no EVD are not
    /// delivered.
    ///
    /// Without attributes it gets 127 requests and 128 receives of 4 segments, the IA's largest
    /// message size, and 4 RDMA reads at a time in each direction, or fewer if the device has
    /// fewer (none on a strict IA).
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_create`; attributes are argument 6.
    pub fn create(
        ia: &Arc<Ia>,
        pz: Option<&Arc<Pz>>,
        recv: Option<&Arc<Evd>>,
        request: Option<&Arc<Evd>>,
        connect: Option<&Arc<Evd>>,
        attributes: Option<&EpAttributes>,
    ) -> Result<Arc<Self>> {
        let parts = Parts {
            pz,
            recv,
            request,
            connect,
            srq: None,
        };
        parts.check(ia)?;
        let limits = ia.attributes();
        let asked = Request {
            shared: false,
            strict: ia.is_strict(),
            has_recv: recv.is_some(),
            has_request: request.is_some(),
            argument: Subtype::InvalidArg6,
        };
        let attributes = match attributes {
            Some(attributes) => attributes::resolve(attributes, limits, asked)?,
            None => attributes::defaults(limits, asked),
        };
        Self::make(ia, parts, attributes, EpState::Unconnected)
    }

    /// Creates an endpoint that takes its receives from an SRQ.
    ///
    /// `max_recv_dtos` and `srq_soft_hw` are the hard and the soft high watermark, -1 for none: how
    /// many receives the endpoint may hold that the consumer has not dequeued. `max_recv_iov` is
    /// ignored, and 0 in `max_request_dtos`, `max_request_iov`, `max_message_size` and
    /// `max_rdma_size` means the default.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_create_with_srq`; attributes are argument 7.
    pub fn create_with_srq(
        ia: &Arc<Ia>,
        pz: Option<&Arc<Pz>>,
        recv: Option<&Arc<Evd>>,
        request: Option<&Arc<Evd>>,
        connect: Option<&Arc<Evd>>,
        srq: &Arc<Srq>,
        attributes: &EpAttributes,
    ) -> Result<Arc<Self>> {
        let parts = Parts {
            pz,
            recv,
            request,
            connect,
            srq: Some(srq),
        };
        parts.check(ia)?;
        let asked = Request {
            shared: true,
            strict: ia.is_strict(),
            has_recv: recv.is_some(),
            has_request: request.is_some(),
            argument: Subtype::InvalidArg7,
        };
        let attributes = attributes::resolve(attributes, ia.attributes(), asked)?;
        Self::make(ia, parts, attributes, EpState::Unconnected)
    }

    /// Creates the endpoint of a connection request on a service point that creates endpoints. It
    /// has no protection zone and no EVDs yet, and belongs to the consumer only after accepting.
    pub(crate) fn create_tentative(ia: &Arc<Ia>, request: &cm::Request) -> Result<Arc<Self>> {
        let limits = ia.attributes();
        let asked = Request {
            shared: false,
            strict: ia.is_strict(),
            has_recv: false,
            has_request: false,
            argument: Subtype::NoSubtype,
        };
        // The requester's numbers of reads, within the limits of the IA.
        let theirs = request.parameters();
        let attributes = EpAttributes {
            max_rdma_read_in: i32::from(theirs.reads_requested).min(limits.max_rdma_read_per_ep_in),
            max_rdma_read_out: i32::from(theirs.reads_served).min(limits.max_rdma_read_per_ep_out),
            ..attributes::defaults(limits, asked)
        };
        let parts = Parts {
            pz: None,
            recv: None,
            request: None,
            connect: None,
            srq: None,
        };
        let ep = Self::make(ia, parts, attributes, EpState::TentativeConnectionPending)?;
        ep.control().set_peer(request);
        Ok(ep)
    }

    fn make(
        ia: &Arc<Ia>,
        parts: Parts<'_>,
        attributes: EpAttributes,
        state: EpState,
    ) -> Result<Arc<Self>> {
        let place = Reservation::new().ok_or_else(exhausted)?;
        let ep = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            state: AtomicU32::new(state as u32),
            posting: Posting::new(PostMode::of(ia), Poster::default()),
            taken: AtomicBool::new(false),
            refused: Refused::default(),
            reads_issued: AtomicU32::new(0),
            unsignalled: UnsignalledReceives::default(),
            marks: HighMarks::of(&attributes, parts.srq.is_some()),
            unreported: drain::Unreported::default(),
            requests: AtomicUsize::new(0),
            discarded_of: AtomicUsize::new(0),
            control: Mutex::new(Control::new(attributes)),
            changing: Mutex::new(()),
            usage: Usage::default(),
        });
        ep.assemble(parts, attributes)?;
        let published = match state {
            EpState::TentativeConnectionPending => ia.publish_own(place, &ep),
            _ => ia.publish(place, &ep),
        };
        if let Err(error) = published {
            // SAFETY: no other call has the endpoint.
            unsafe { ep.dismantle() };
            return Err(error);
        }
        ep.attach_new();
        Ok(ep)
    }

    fn assemble(&self, parts: Parts<'_>, attributes: EpAttributes) -> Result<()> {
        let in_use = |subtype| move || bad(subtype, "the object is being freed");
        let plan = Plan {
            recv: parts.recv.cloned(),
            request: parts.request.cloned(),
            attributes,
        };
        let connect = match parts.connect {
            Some(evd) => Some(evd.attach(StreamKind::Connection)?),
            None => None,
        };
        let streams = plan.attach(self.handle, parts.srq, &Streams::default())?;
        let pz = match parts.pz {
            Some(pz) => Some(Use::of(pz).ok_or_else(in_use(Subtype::InvalidHandlePz))?),
            None => None,
        };
        let srq = match parts.srq {
            Some(srq) => Some(Use::of(srq).ok_or_else(in_use(Subtype::InvalidHandleSrq))?),
            None => None,
        };
        // SAFETY: no other call has the endpoint yet.
        let mut held = unsafe { self.hold() };
        held.control.connect = connect;
        held.control.pz = pz;
        held.control.srq = srq;
        let made = self.make_queue_pair(&held.control, &streams, &plan);
        held.control.streams = streams;
        let made = made.map(|(qp, unreported)| {
            self.unreported.replace(unreported);
            self.install(&mut held, qp, &plan)
        });
        drop(held);
        // There was no queue pair before that would have to be dropped.
        match made {
            Ok(_none) => Ok(()),
            Err(error) => {
                // SAFETY: no other call has the endpoint yet.
                unsafe { self.dismantle() };
                Err(error)
            }
        }
    }
}

impl Parts<'_> {
    fn check(&self, ia: &Arc<Ia>) -> Result<()> {
        if let Some(pz) = self.pz
            && !Arc::ptr_eq(pz.ia(), ia)
        {
            return Err(bad(
                Subtype::InvalidHandlePz,
                of_another_ia("protection zone", pz.ia(), ia),
            ));
        }
        check_evd(
            ia,
            self.connect,
            EvdFlags::CONNECTION,
            Subtype::InvalidHandleEvdConn,
        )?;
        check_evd(ia, self.recv, EvdFlags::DTO, Subtype::InvalidHandleEvdRecv)?;
        check_evd(
            ia,
            self.request,
            EvdFlags::DTO,
            Subtype::InvalidHandleEvdRequest,
        )?;
        if let Some(srq) = self.srq
            && !Arc::ptr_eq(srq.ia(), ia)
        {
            return Err(bad(
                Subtype::InvalidHandleSrq,
                of_another_ia("SRQ", srq.ia(), ia),
            ));
        }
        if let Some(srq) = self.srq {
            let pz = self.pz.map(|pz| &**pz);
            check_zones(ia, pz, srq, Subtype::InvalidArg2)?;
        }
        Ok(())
    }
}
