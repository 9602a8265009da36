//! Queue pairs: creation and destruction. [`super::connect`] moves them through
//! their states.

use super::connect::random_psn;
use super::context::Context;
use super::cq::VerbsCq;
use super::domain::{ProtectionDomain, RawDomain};
use super::export::{self, QueueLayouts};
use super::id::ObjectId;
use super::inline::{self, InlineRequest, Shape};
use super::limits::{Bounded, Limits};
use super::memlock::LockedMemory;
use super::quirks::Quirks;
use super::register::ExclusiveRegister;
use super::srq::VerbsSrq;
use super::transport::Transport;
use crate::error::{ControlError, ControlErrorKind};
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU32;
use dv_sys::inline::ibv_create_qp_ex;
use dv_sys::mlx5dv::{
    MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
    mlx5dv_create_qp, mlx5dv_qp_init_attr,
};
use dv_sys::verbs::{
    self, ibv_qp, ibv_qp_cap, ibv_qp_create_send_ops_flags as SendOps, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_init_attr_mask as Mask, ibv_qp_type,
};
use mlx5_rings::layout::{LONGEST_INLINE, RecvLayout, SendLayout};
use std::sync::Arc;

/// The specification of a new QP.
#[derive(Clone, Copy)]
pub struct QpSpec<'a> {
    /// The completion queue of its sends.
    pub send_cq: &'a VerbsCq,
    /// The completion queue of its receives.
    pub recv_cq: &'a VerbsCq,
    /// The shared receive queue of its receives, instead of a receive queue of its
    /// own.
    pub srq: Option<&'a VerbsSrq>,
    /// The least number of sends that may be outstanding, at least 1.
    pub send_depth: u32,
    /// The least number of receives that may be outstanding; 0 for none, or with an
    /// SRQ.
    pub recv_depth: u32,
    /// The most segments of a send.
    pub send_segments: u32,
    /// The most segments of a receive.
    pub recv_segments: u32,
    /// The most bytes of an inline send.
    pub inline_bytes: u32,
    /// Accept fewer inline bytes: as many as the device grants.
    pub inline_or_fewer: bool,
    /// Allocate a doorbell register that no other QP uses. If the device has none
    /// left, the QP gets a shared one, which [`mlx5_rings::layout::RegisterLayout`]
    /// reports. Ignored on the verbs path.
    pub exclusive_register: bool,
    /// Let the device leave short messages in their CQEs. Ignored on the verbs
    /// path.
    pub payload_in_completion: bool,
    /// Make room for binding memory windows. Their WQEs are long: the ring is up to
    /// four times as large. Devices other than mlx5 need no additional room.
    pub windows: bool,
}

/// The granted properties of a QP, each at least as specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpGrant {
    /// The most sends outstanding.
    pub sends: u32,
    /// The most receives outstanding; 0 without a receive queue of its own.
    pub receives: u32,
    /// The most segments of a send.
    pub send_segments: u32,
    /// The most segments of an RDMA read, which some devices limit further.
    pub read_segments: u32,
    /// The most segments of a receive.
    pub recv_segments: u32,
    /// The most bytes of an inline send.
    pub inline_bytes: u32,
    /// Whether memory windows may be bound through it.
    pub windows: bool,
    /// Whether atomic operations may be posted: the device has them.
    pub atomics: bool,
}

/// An `ibv_qp` of type RC. On the direct path the engine owns its rings. Destroyed
/// when dropped.
pub struct VerbsQp {
    raw: NonNull<ibv_qp>,
    id: ObjectId,
    grant: QpGrant,
    /// Set when creation is complete, on the direct path.
    layouts: Option<QueueLayouts>,
    /// See [`Self::posts_by_write`].
    posts_by_write: bool,
    /// The first packet sequence number of its next connection.
    pub(super) psn: AtomicU32,
    pub(super) domain: ProtectionDomain,
    // Objects that the QP uses, so dropped after it.
    _register: Option<ExclusiveRegister>,
    _send_cq: VerbsCq,
    _recv_cq: VerbsCq,
    _srq: Option<VerbsSrq>,
}

// SAFETY: libibverbs allows any threads to use a QP. The layouts are plain values;
// `ring` decides which thread accesses the rings.
unsafe impl Send for VerbsQp {}
// SAFETY: as above; libibverbs and the kernel serialise modify and query.
unsafe impl Sync for VerbsQp {}

pub(super) const CREATE: &str = "create a queue pair";

impl VerbsQp {
    /// Creates a QP in RESET.
    ///
    /// # Errors
    /// An argument exceeds its limit, an object belongs to another device, the
    /// device has no QPs left, or its rings do not match the library's description.
    pub fn create(domain: &ProtectionDomain, spec: &QpSpec<'_>) -> Result<Self, ControlError> {
        let direct = domain.device().is_direct();
        domain.raw.context.require_here(CREATE)?;
        require_reliable(domain.device().info().transport)?;
        check(domain.device().limits(), spec)?;
        same_device(domain, spec)?;
        let register =
            (direct && spec.exclusive_register).then(|| ExclusiveRegister::allocate(domain));
        let register = register.and_then(|allocated| {
            allocated
                .inspect_err(|error| tracing::warn!("{error}; using a shared doorbell register"))
                .ok()
        });
        let id = ObjectId::next();
        let attempt = |inline_bytes| {
            let spec = QpSpec {
                inline_bytes,
                ..*spec
            };
            // SAFETY: everything that the specification borrows is alive and, as
            // checked above, of the same device.
            let (raw, mut granted) = unsafe { create_any(domain, &spec, register.as_ref(), id)? };
            if direct {
                granted.max_inline_data = granted.max_inline_data.min(LONGEST_INLINE);
            }
            Ok(((raw, granted), granted.max_inline_data))
        };
        // SAFETY: created by `attempt`, and not used.
        let discard = |(raw, _)| unsafe { destroy(raw) };
        let wanted = InlineRequest {
            bytes: spec.inline_bytes,
            or_fewer: spec.inline_or_fewer,
        };
        let found = &domain.raw.context.inline_cache;
        let (raw, granted) = inline::create(wanted, shape(spec), found, attempt, discard)?;
        // From here on, dropping `qp` destroys the QP.
        let exclusive = register.is_some();
        let mut qp = Self {
            raw,
            id,
            grant: QpGrant {
                sends: granted.max_send_wr,
                receives: if spec.srq.is_none() {
                    granted.max_recv_wr
                } else {
                    0
                },
                send_segments: granted.max_send_sge,
                read_segments: granted
                    .max_send_sge
                    .min(domain.device().limits().read_segments),
                recv_segments: granted.max_recv_sge,
                inline_bytes: granted.max_inline_data,
                windows: spec.windows,
                atomics: domain.device().limits().atomics,
            },
            layouts: None,
            posts_by_write: !domain.device().is_mlx5(),
            psn: AtomicU32::new(random_psn()),
            domain: domain.clone(),
            _register: register,
            _send_cq: spec.send_cq.clone(),
            _recv_cq: spec.recv_cq.clone(),
            _srq: spec.srq.cloned(),
        };
        if direct {
            // SAFETY: a live QP of an mlx5 device, since only mlx5 devices are on
            // the direct path.
            let layouts = unsafe {
                export::queue_layouts(raw, &granted, exclusive, &qp.grant, qp.context())?
            };
            qp.layouts = Some(layouts);
        }
        tracing::debug!(qpn = qp.qpn(), grant = ?qp.grant, exclusive, "created a QP");
        Ok(qp)
    }

    /// Returns whether `ibv_post_send` may call `write`, which is a cancellation
    /// point (pthreads(7)). Soft-RoCE and siw do so to ring their doorbell.
    #[inline]
    pub(crate) fn posts_by_write(&self) -> bool {
        self.posts_by_write
    }

    /// Returns the quirks of the device.
    #[inline]
    pub(crate) fn quirks(&self) -> Quirks {
        Quirks::of(self.domain.device().info().vendor_id)
    }

    /// Returns the QP number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        // SAFETY: the QP is alive, and its number does not change.
        unsafe { (*self.as_ptr()).qp_num }
    }

    /// Returns its id in asynchronous events.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Returns the granted properties.
    #[must_use]
    pub fn grant(&self) -> QpGrant {
        self.grant
    }

    /// Returns the location of the send ring; `None` on the verbs path.
    #[must_use]
    pub fn send_layout(&self) -> Option<SendLayout> {
        Some(self.layouts.as_ref()?.send)
    }

    /// Returns the location of the receive ring; `None` without one, and on the
    /// verbs path.
    #[must_use]
    pub fn recv_layout(&self) -> Option<RecvLayout> {
        self.layouts.as_ref()?.recv
    }

    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    /// Fails in a forked child of the process that opened the device.
    pub(crate) fn require_here(&self) -> Result<(), ControlError> {
        self.context().require_here("destroy a queue pair")
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        let domain: &RawDomain = &self.domain.raw;
        &domain.context
    }
}

impl Drop for VerbsQp {
    fn drop(&mut self) {
        if !self.context().here() {
            return;
        }
        // SAFETY: created by `create`. The call waits for events that were read and
        // not acknowledged; every reader acknowledges at once.
        unsafe { destroy(self.raw) };
    }
}

/// Destroys a QP.
///
/// # Safety
/// The queue pair is alive, and used no more.
unsafe fn destroy(raw: NonNull<ibv_qp>) {
    // SAFETY: the queue pair is alive, and used no more.
    let errno = unsafe { verbs::ibv_destroy_qp(raw.as_ptr()) };
    if errno != 0 {
        tracing::error!(errno, "ibv_destroy_qp failed");
    }
}

fn shape(spec: &QpSpec<'_>) -> Shape {
    let capacities = capacities(spec);
    Shape {
        send_depth: capacities.max_send_wr,
        send_segments: capacities.max_send_sge,
        recv_depth: capacities.max_recv_wr,
        recv_segments: capacities.max_recv_sge,
        shared: spec.srq.is_some(),
        windows: spec.windows,
    }
}

fn require_reliable(transport: Transport) -> Result<(), ControlError> {
    match transport {
        Transport::Other => Err(ControlError::new(
            ControlErrorKind::Unsupported,
            CREATE,
            "the device has no reliable connections: it is neither an InfiniBand, a RoCE nor an \
             iWARP device",
        )
        .with_remedy("use another device; 'dat-bench devices' lists them")),
        _ => Ok(()),
    }
}

fn check(limits: &Limits, spec: &QpSpec<'_>) -> Result<(), ControlError> {
    let Limits {
        queue_depth,
        segments,
        ..
    } = *limits;
    let depth = |what, value, least| {
        Bounded {
            what,
            value,
            least,
            most: queue_depth,
            limit: "max_qp_wr",
        }
        .check(CREATE)
    };
    let count = |what, value| {
        Bounded {
            what,
            value,
            least: 0,
            most: segments,
            limit: "max_sge",
        }
        .check(CREATE)
    };
    depth("the depth of its send queue", spec.send_depth, 1)?;
    count("the number of send segments", spec.send_segments)?;
    if spec.srq.is_none() {
        depth("the depth of its receive queue", spec.recv_depth, 0)?;
        count("the number of receive segments", spec.recv_segments)?;
    }
    Ok(())
}

fn same_device(domain: &ProtectionDomain, spec: &QpSpec<'_>) -> Result<(), ControlError> {
    let context = &domain.raw.context;
    let same = spec.send_cq.belongs_to(context)
        && spec.recv_cq.belongs_to(context)
        && spec
            .srq
            .is_none_or(|srq| Arc::ptr_eq(srq.context(), context));
    if same {
        return Ok(());
    }
    Err(ControlError::new(
        ControlErrorKind::Invalid,
        CREATE,
        "its completion queues, shared receive queue and domain belong to different devices",
    )
    .with_remedy("create them all from one Device or its clones"))
}

/// The operations that the engine posts, except binding windows. Without these
/// flags libmlx5 makes room for the largest WQE of any operation: four times the
/// ring.
const SEND_OPS: SendOps = SendOps(
    SendOps::IBV_QP_EX_WITH_SEND.0
        | SendOps::IBV_QP_EX_WITH_SEND_WITH_IMM.0
        | SendOps::IBV_QP_EX_WITH_RDMA_WRITE.0
        | SendOps::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0
        | SendOps::IBV_QP_EX_WITH_RDMA_READ.0,
);

/// Creates a queue pair for the device and its data path.
///
/// # Safety
/// All that the arguments name is alive and of the same device.
unsafe fn create_any(
    domain: &ProtectionDomain,
    spec: &QpSpec<'_>,
    register: Option<&ExclusiveRegister>,
    id: ObjectId,
) -> Result<(NonNull<ibv_qp>, ibv_qp_cap), ControlError> {
    let device = domain.device();
    let _placed = domain.raw.context.prefer_node();
    // On the verbs path, polling also takes completions of dropped endpoints. The
    // library must not copy their payload to memory that may have been freed.
    let spec = QpSpec {
        payload_in_completion: spec.payload_in_completion && device.is_direct(),
        ..*spec
    };
    // SAFETY: what the arguments name is alive, and of one device.
    unsafe {
        match device.is_mlx5() {
            true => create(domain, &spec, register, id),
            false => create_plain(domain, &spec, id),
        }
    }
}

/// Creates an extended QP.
///
/// # Safety
/// All that the arguments name is alive and of the same device.
unsafe fn create(
    domain: &ProtectionDomain,
    spec: &QpSpec<'_>,
    register: Option<&ExclusiveRegister>,
    id: ObjectId,
) -> Result<(NonNull<ibv_qp>, ibv_qp_cap), ControlError> {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut attr: ibv_qp_init_attr_ex = unsafe { core::mem::zeroed() };
    attr.qp_context = id.to_context();
    attr.send_cq = spec.send_cq.as_ptr();
    attr.recv_cq = spec.recv_cq.as_ptr();
    attr.srq = spec.srq.map_or(ptr::null_mut(), VerbsSrq::as_ptr);
    attr.cap = capacities(spec);
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    attr.comp_mask = Mask::IBV_QP_INIT_ATTR_PD.0 | Mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    attr.pd = register.map_or(domain.raw.as_ptr(), ExclusiveRegister::parent);
    attr.send_ops_flags = u64::from(SEND_OPS.0);
    if spec.windows {
        attr.send_ops_flags |= u64::from(SendOps::IBV_QP_EX_WITH_BIND_MW.0);
    }
    let context = domain.raw.context.as_ptr();
    let qp = if spec.payload_in_completion {
        // SAFETY: what the arguments name is alive, and of one device.
        unsafe { ibv_create_qp_ex(context, &raw mut attr) }
    } else {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut mlx5: mlx5dv_qp_init_attr = unsafe { core::mem::zeroed() };
        mlx5.comp_mask = u64::from(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS);
        mlx5.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
        // SAFETY: what the arguments name is alive, and of one device.
        unsafe { mlx5dv_create_qp(context, &raw mut attr, &raw mut mlx5) }
    };
    match NonNull::new(qp) {
        Some(qp) => Ok((qp, attr.cap)),
        None => Err(explain(ControlError::last(CREATE), spec)),
    }
}

/// Creates a QP on the verbs path, without attributes that only some devices
/// support.
/// # Safety
/// As for [`create`].
unsafe fn create_plain(
    domain: &ProtectionDomain,
    spec: &QpSpec<'_>,
    id: ObjectId,
) -> Result<(NonNull<ibv_qp>, ibv_qp_cap), ControlError> {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut attr: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
    attr.qp_context = id.to_context();
    attr.send_cq = spec.send_cq.as_ptr();
    attr.recv_cq = spec.recv_cq.as_ptr();
    attr.srq = spec.srq.map_or(ptr::null_mut(), VerbsSrq::as_ptr);
    attr.cap = capacities(spec);
    // One more entry for the greeting, beyond the granted depth.
    let (requested, most) = (attr.cap.max_send_wr, domain.device().limits().queue_depth);
    let greets = Quirks::of(domain.device().info().vendor_id) == Quirks::Siw;
    let spare = u32::from(greets && requested < most);
    attr.cap.max_send_wr += spare;
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    // SAFETY: what the arguments name is alive, and of one device.
    let qp = unsafe { verbs::ibv_create_qp(domain.raw.as_ptr(), &raw mut attr) };
    attr.cap.max_send_wr -= spare;
    match NonNull::new(qp) {
        Some(qp) => Ok((qp, attr.cap)),
        None => Err(explain(ControlError::last(CREATE), spec)),
    }
}

fn capacities(spec: &QpSpec<'_>) -> ibv_qp_cap {
    let own_recv = spec.srq.is_none();
    ibv_qp_cap {
        max_send_wr: spec.send_depth,
        max_recv_wr: if own_recv { spec.recv_depth } else { 0 },
        // WQEs of the rings have room for one in any case.
        max_send_sge: spec.send_segments.max(1),
        max_recv_sge: if own_recv {
            spec.recv_segments.max(1)
        } else {
            0
        },
        max_inline_data: spec.inline_bytes,
    }
}

fn explain(error: ControlError, spec: &QpSpec<'_>) -> ControlError {
    match error.errno() {
        // Each number is within its own limit, but a WQE or the ring that all of
        // them need is not (libmlx5: max_sq_desc_sz, max_send_wqebb).
        Some(libc::EINVAL) => error
            .with_cause(format!(
                "{} sends of {} segments and {} inline bytes, {} receives of {} segments",
                spec.send_depth,
                spec.send_segments,
                spec.inline_bytes,
                spec.recv_depth,
                spec.recv_segments,
            ))
            .with_remedy("together these exceed what the device supports: reduce one of them"),
        _ => {
            let sends = u64::from(spec.send_depth) * 64;
            let receives = u64::from(spec.recv_depth) * 16;
            LockedMemory::current().explain(error, sends + receives)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_reliable_connections_is_refused() {
        let error = require_reliable(Transport::Other).unwrap_err();
        assert_eq!(error.kind(), ControlErrorKind::Unsupported);
        assert!(error.to_string().contains("reliable"), "{error}");
        assert!(require_reliable(Transport::Iwarp).is_ok());
    }
}
