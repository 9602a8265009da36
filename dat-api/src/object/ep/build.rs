//! Creating the queue pair of an endpoint, and attaching it to its EVDs.

use core::sync::atomic::Ordering;
use std::borrow::Cow;
use std::sync::Arc;

use dat_engine::{CompletionQueue, ConnectOptions, Endpoint, EndpointOptions};

use super::completions::Unreported;
use super::poster::{Locked, unsigned};
use super::{Control, Ep, INLINE_BYTES, Streams};
use crate::error::{DatError, Result};
use crate::handle::{CompletionHooks, Handle};
use crate::object::evd::{DtoConfig, DtoRole, DtoStream, Evd, StreamKind};
use crate::object::ia::{Conformance, Ia};
use crate::object::of_another_ia;
use crate::object::pz::Pz;
use crate::object::srq::{Reporting, Srq};
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EpAttributes, EvdFlags};

/// What the queue pair is created from. If a change leaves all of it as it was, the queue pair is
/// kept.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) recv: Option<Arc<Evd>>,
    pub(super) request: Option<Arc<Evd>>,
    pub(super) attributes: EpAttributes,
}

impl Control {
    /// Returns the present plan.
    pub(super) fn plan(&self) -> Plan {
        let evd =
            |stream: &Option<DtoStream>| stream.as_ref().map(|stream| Arc::clone(stream.evd()));
        Plan {
            recv: evd(&self.streams.recv),
            request: evd(&self.streams.request),
            attributes: self.attributes,
        }
    }
}

impl Plan {
    /// Returns the maximum number of outstanding requests, including the marker of a disconnect.
    fn request_depth(&self) -> u32 {
        unsigned(self.attributes.max_request_dtos) + 1
    }

    /// Returns whether RMRs may be bound: whether an EVD takes the completions of binds.
    fn binds(&self) -> bool {
        self.request
            .as_ref()
            .is_some_and(|evd| evd.carries(StreamKind::RmrBind))
    }

    /// Returns the maximum number of outstanding receives of its own queue.
    fn recv_depth(&self) -> u32 {
        unsigned(self.attributes.max_recv_dtos)
    }

    /// Attaches an endpoint to its EVDs. When an endpoint is recreated, `before` are its previous
    /// streams, which are suspended. Attaches nothing if it fails.
    pub(super) fn attach(
        &self,
        ep: Handle,
        srq: Option<&Arc<Srq>>,
        before: &Streams,
    ) -> Result<Streams> {
        let before: Vec<_> = before.each().collect();
        let config = |evd: &Evd, flags| DtoConfig {
            flags,
            mixes: evd.ia().rules().of_endpoint(srq.is_some()).mixes_streams,
        };
        let recv = match &self.recv {
            Some(evd) => {
                let role = match srq {
                    Some(srq) => DtoRole::SharedRecv {
                        srq: srq.handle(),
                        depth: srq.capacity(),
                    },
                    None => DtoRole::Recv {
                        depth: self.recv_depth(),
                    },
                };
                let config = config(evd, self.attributes.recv_completion_flags);
                Some(evd.attach_dto(role, config, &before)?)
            }
            None => None,
        };
        let request = match &self.request {
            Some(evd) => {
                let role = DtoRole::Request {
                    depth: self.request_depth(),
                };
                let config = config(evd, self.attributes.request_completion_flags);
                Some(evd.attach_dto(role, config, &before)?)
            }
            None => None,
        };
        let source = self.recv.as_ref().map_or(ep, |evd| evd.handle());
        Ok(Streams {
            _shared: srq.map(|srq| Reporting::new(srq, source)),
            recv,
            request,
        })
    }

    /// Returns whether the other plan needs another queue pair.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let same = |a: &Option<Arc<Evd>>, b: &Option<Arc<Evd>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        let shape = |attributes: &EpAttributes| {
            // As an attribute, SUPPRESS has no effect.
            let request_flags = attributes.request_completion_flags - CompletionFlags::SUPPRESS;
            [
                attributes.max_recv_dtos,
                attributes.max_request_dtos,
                attributes.max_recv_iov,
                attributes.max_request_iov,
                attributes.max_rdma_read_iov,
                attributes.max_rdma_write_iov,
                attributes.recv_completion_flags.bits().cast_signed(),
                request_flags.bits().cast_signed(),
            ]
        };
        !same(&self.recv, &other.recv)
            || !same(&self.request, &other.request)
            || shape(&self.attributes) != shape(&other.attributes)
    }
}

/// The error for a handle of an object that does not fit the call.
pub(super) fn bad(subtype: Subtype, cause: impl Into<Cow<'static, str>>) -> DatError {
    DatError::new(ReturnType::InvalidHandle, subtype, cause)
}

/// Checks that the EVD of the connection carries its events, and belongs to the same IA or, if the
/// rules allow that, to another open of the adapter.
pub(super) fn check_connect_evd(
    ia: &Arc<Ia>,
    evd: Option<&Arc<Evd>>,
    rules: &Conformance,
) -> Result<()> {
    let Some(evd) = evd else { return Ok(()) };
    let subtype = Subtype::InvalidHandleEvdConn;
    ia.check_connection_evd(evd.ia(), rules)
        .map_err(|cause| bad(subtype, cause))?;
    check_flag(evd, EvdFlags::CONNECTION, subtype)
}

/// Checks that an EVD carries completions and belongs to the same IA: a queue pair reports to
/// completion queues of its own open of the device only.
pub(super) fn check_dto_evd(ia: &Arc<Ia>, evd: Option<&Arc<Evd>>, subtype: Subtype) -> Result<()> {
    let Some(evd) = evd else { return Ok(()) };
    if !Arc::ptr_eq(evd.ia(), ia) {
        return Err(bad(subtype, of_another_ia("EVD", evd.ia(), ia)));
    }
    check_flag(evd, EvdFlags::DTO, subtype)
}

fn check_flag(evd: &Evd, flag: EvdFlags, subtype: Subtype) -> Result<()> {
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

/// Checks the zones of an endpoint and its SRQ against the device, which may require one zone for
/// both. `argument` is the argument that the error names.
pub(super) fn check_zones(ia: &Ia, pz: Option<&Pz>, srq: &Srq, argument: Subtype) -> Result<()> {
    let differ = pz.is_some_and(|pz| pz.handle() != srq.pz());
    if differ && !ia.rules().srq_zone_may_differ {
        return Err(DatError::new(
            ReturnType::InvalidParameter,
            argument,
            "the endpoint and its SRQ are in two protection zones: expected one, because with this \
             device srq_ep_pz_difference_supported is false",
        ));
    }
    Ok(())
}

impl Ep {
    /// Refuses SOLICITED_WAIT on devices that do not report which receives were solicited.
    fn check_solicited(&self, plan: &Plan) -> Result<()> {
        let flags = plan.attributes.recv_completion_flags;
        let asked = flags.contains(CompletionFlags::SOLICITED_WAIT);
        match asked && !self.ia.rules().reports_solicited {
            false => Ok(()),
            true => Err(DatError::new(
                ReturnType::ModelNotSupported,
                Subtype::NoSubtype,
                "recv_completion_flags has SOLICITED_WAIT: expected flags in \
                 completion_flags_supported; the device cannot wake for solicited receives alone",
            )),
        }
    }

    /// Creates the queue pair, if there is a protection zone; receives may be posted from then on.
    /// If a kind of completions has no EVD, creates a completion queue for them too, which must be
    /// dropped after the queue pair.
    pub(super) fn make_queue_pair(
        &self,
        control: &Control,
        streams: &Streams,
        plan: &Plan,
    ) -> Result<(Option<Endpoint>, Option<CompletionQueue>)> {
        self.check_solicited(plan)?;
        let Some(pz) = &control.pz else {
            return Ok((None, None));
        };
        let srq = control.srq.as_deref();
        let unreported = if streams.recv.is_none() || streams.request.is_none() {
            let receives = match srq {
                Some(srq) => srq.capacity(),
                None => plan.recv_depth(),
            };
            Some(Unreported::queue(
                self.ia.device(),
                plan.request_depth() + receives,
            )?)
        } else {
            None
        };
        let (attributes, rules) = (&plan.attributes, self.ia.rules());
        let send_cq = match (&streams.request, &unreported) {
            (Some(stream), _) => stream.cq(),
            (None, Some(queue)) => queue.handle(),
            (None, None) => unreachable!("created above"),
        };
        let recv_cq = match (&streams.recv, &unreported) {
            (Some(stream), _) => stream.cq(),
            (None, Some(queue)) => queue.handle(),
            (None, None) => unreachable!("created above"),
        };
        let segments = [
            attributes.max_request_iov,
            attributes.max_rdma_read_iov,
            attributes.max_rdma_write_iov,
        ];
        let options = EndpointOptions {
            srq: srq.map(Srq::queue),
            send_depth: plan.request_depth(),
            recv_depth: plan.recv_depth().max(1),
            send_segments: segments.into_iter().map(unsigned).fold(1, u32::max),
            recv_segments: unsigned(attributes.max_recv_iov).max(1),
            // Inline data makes WQEs larger. It is left out where a ring of this depth would not
            // fit with it (`max_dto_per_ep`).
            inline_bytes: if plan.request_depth() > rules.inline_depth {
                0
            } else {
                INLINE_BYTES
            },
            // The device may support less inline data, or none.
            inline_or_fewer: true,
            context: self.handle.bits() as u64,
            exclusive_register: true,
            // A program without receive events looks at the memory itself, and may reuse it before
            // the CQE is polled.
            payload_in_completion: streams.recv.is_some() && rules.scatters_to_completions,
            ..EndpointOptions::new(send_cq, recv_cq)
        };
        // Room for binds makes the ring larger. If the device cannot create a ring of this depth
        // with binds, the endpoint refuses binds.
        let windows = plan.binds() && rules.limits.max_rmrs > 0;
        let mut qp = match windows {
            true => pz
                .domain()
                .create_endpoint(&EndpointOptions {
                    windows: true,
                    ..options
                })
                .or_else(|error| {
                    tracing::warn!("an endpoint is created without binding of RMRs: {error}");
                    pz.domain().create_endpoint(&options)
                })?,
            false => pz.domain().create_endpoint(&options)?,
        };
        qp.limit(plan.request_depth() - 1, plan.recv_depth());
        qp.init(&self.options(attributes))?;
        Ok((Some(qp), unreported))
    }

    /// Attaches a new queue pair to the consuming halves of its EVDs now. That may allocate, which
    /// posting and dequeuing must not do.
    pub(super) fn attach_new(&self) {
        let evds = self.control().streams.evds();
        for evd in evds {
            evd.attach_new();
        }
        self.unreported.attach_new();
    }

    /// Puts a queue pair into service; returns the previous one, to be dropped without the lock.
    pub(super) fn install(
        &self,
        locked: &mut Locked<'_>,
        qp: Option<Endpoint>,
        plan: &Plan,
    ) -> Option<Endpoint> {
        let Locked {
            poster, control, ..
        } = locked;
        let old = poster.serve(qp);
        let qp = &poster.qp;
        control.qp = qp.as_ref().map(Endpoint::handle);
        poster.inline = qp
            .as_ref()
            .map_or(0, |qp| qp.max_inline().min(INLINE_BYTES).into());
        if let Some(old) = &old {
            self.ia.unwatch(old.verbs().id());
        }
        if let Some(qp) = &poster.qp {
            self.ia.watch(qp.verbs().id(), self.handle);
        }
        poster.srq = control.srq.as_ref().map(|srq| srq.handle());
        poster.configure(&plan.attributes, &self.ia);
        poster.zone = control.pz.as_ref().map_or(0, |pz| pz.handle().bits());
        poster.binds = plan.binds();
        let requests = plan.request.as_ref().map_or(0, |evd| evd.handle().bits());
        self.requests.store(requests, Ordering::Relaxed);
        control.attributes = plan.attributes;
        let unsignalled = CompletionFlags::UNSIGNALLED;
        if plan.attributes.recv_completion_flags.contains(unsignalled) {
            let most = self.ia.rules().limits.max_dto_per_ep;
            self.unsignalled.make_room(unsigned(most));
        }
        self.reset_counters(control);
        old
    }

    /// Resets the counters in the slot: nothing is outstanding.
    pub(super) fn reset_counters(&self, control: &Control) {
        let Some(slot) = self.handle.slot() else {
            return;
        };
        let counters = slot.counters();
        self.unsignalled.reset();
        self.end_inspection();
        let attributes = &control.attributes;
        let unsignalled = attributes
            .recv_completion_flags
            .contains(CompletionFlags::UNSIGNALLED);
        counters.recv_staged.store(0, Ordering::Relaxed);
        slot.set_srq(control.srq.as_ref().map(|srq| srq.handle()));
        counters.cqe_flags.store(
            CompletionHooks::new(unsignalled, self.marks.lowest()).0,
            Ordering::Release,
        );
    }

    /// Returns the parameters of its connections.
    pub(super) fn options(&self, attributes: &EpAttributes) -> ConnectOptions {
        let depth = |reads: i32| u8::try_from(reads.clamp(0, 255)).unwrap_or(u8::MAX);
        ConnectOptions {
            reads_issued: depth(attributes.max_rdma_read_out),
            reads_served: depth(attributes.max_rdma_read_in),
            ..self.ia.rules().connect
        }
    }
}
