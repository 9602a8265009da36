//! Shared receive queues.

use super::context::Context;
use super::domain::{ProtectionDomain, RawDomain};
use super::export;
use super::id::ObjectId;
use super::limits::Bounded;
use super::memlock::LockedMemory;
use super::quirks::Quirks;
use crate::error::{ControlError, ControlErrorKind};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use dv_sys::verbs::{self, ibv_srq, ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_init_attr};
use mlx5_rings::layout::SharedRecvLayout;
use std::sync::Arc;

/// An `ibv_srq`. On the direct path the engine owns its ring. Clones are handles to
/// the same SRQ; it is destroyed with the last handle and the last QP that uses it.
#[derive(Clone)]
pub struct VerbsSrq(Arc<RawSrq>);

impl VerbsSrq {
    /// Creates an SRQ for at least `depth` outstanding receives of at most
    /// `max_segments` segments each.
    ///
    /// # Errors
    /// An argument exceeds its limit, the device has no SRQs left, or its ring does
    /// not match the library's description.
    pub fn create(
        domain: &ProtectionDomain,
        depth: u32,
        max_segments: u32,
    ) -> Result<Self, ControlError> {
        domain.raw.context.require_here(CREATE)?;
        check(domain, depth, max_segments)?;
        let id = ObjectId::next();
        let mut attr = MaybeUninit::<ibv_srq_init_attr>::zeroed();
        // Written field by field, so that the padding at the end stays zero:
        // libibverbs 44 copies it into the `comp_mask` of the extended struct
        // (`ibv_cmd_create_srq`).
        let fields = attr.as_mut_ptr();
        // SAFETY: inside `attr`; plain integers and a pointer.
        unsafe {
            (*fields).srq_context = id.to_context();
            (*fields).attr.max_wr = depth;
            (*fields).attr.max_sge = max_segments;
        }
        let _placed = domain.raw.context.prefer_node();
        // SAFETY: the domain is alive, and the attributes for the call.
        let raw = unsafe { verbs::ibv_create_srq(domain.raw.as_ptr(), fields) };
        let Some(raw) = NonNull::new(raw) else {
            let needed = u64::from(depth) * u64::from(max_segments + 1) * 16;
            return Err(LockedMemory::current().explain(ControlError::last(CREATE), needed));
        };
        // From here on, dropping `srq` destroys the SRQ.
        let mut srq = RawSrq {
            raw,
            id,
            layout: None,
            // SAFETY: as above; the call has stored the granted values.
            capacity: unsafe { (*fields).attr.max_wr },
            // SAFETY: as above.
            max_segments: unsafe { (*fields).attr.max_sge },
            quirks: Quirks::of(domain.device().info().vendor_id),
            domain: Arc::clone(&domain.raw),
        };
        if domain.device().is_direct() {
            // SAFETY: a live SRQ of an mlx5 device, since only mlx5 devices are on
            // the direct path.
            srq.layout = Some(unsafe { export::shared_recv_layout(raw)? });
        }
        let srq = Self(Arc::new(srq));
        tracing::debug!(
            srqn = srq.srqn(),
            granted = srq.capacity(),
            "created an SRQ"
        );
        Ok(srq)
    }

    /// Returns the quirks of the device.
    pub(crate) fn quirks(&self) -> Quirks {
        self.0.quirks
    }

    /// Returns the location of the ring as it was after creation; `None` on the
    /// verbs path.
    #[must_use]
    pub fn layout(&self) -> Option<SharedRecvLayout> {
        self.0.layout
    }

    /// Returns the SRQ number. On the verbs path the device's number is unknown;
    /// this is the kernel's handle, for messages.
    #[must_use]
    pub fn srqn(&self) -> u32 {
        match self.0.layout {
            Some(layout) => layout.srqn,
            // SAFETY: the SRQ is alive, and the field does not change.
            None => unsafe { (*self.as_ptr()).handle },
        }
    }

    /// Returns how many receives may be outstanding, as granted by the device.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.0.capacity
    }

    /// Returns its id in asynchronous events.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// Returns the most segments of one receive, as granted by the device.
    #[must_use]
    pub fn max_segments(&self) -> u32 {
        self.0.max_segments
    }

    /// Arms the limit: one [`super::AsyncEventKind::SrqLimit`] is raised when fewer
    /// than `limit` receives are left. 0 disarms.
    ///
    /// # Errors
    /// The limit exceeds the depth.
    pub fn set_limit(&self, limit: u32) -> Result<(), ControlError> {
        self.modify(
            "set the limit of a shared receive queue",
            ibv_srq_attr {
                max_wr: 0,
                max_sge: 0,
                srq_limit: limit,
            },
            ibv_srq_attr_mask::IBV_SRQ_LIMIT,
        )
        .map_err(|error| match error.errno() {
            Some(libc::EINVAL) => error
                .with_cause(format!("{limit} receives"))
                .with_remedy("the limit must be below the queue's depth"),
            _ => error,
        })
    }

    /// Returns the armed limit; 0 if none is armed, or if its event was raised.
    ///
    /// # Errors
    /// The device failed.
    pub fn limit(&self) -> Result<u32, ControlError> {
        const OPERATION: &str = "query a shared receive queue";
        self.context().require_here(OPERATION)?;
        let mut attr = ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: 0,
        };
        // SAFETY: the SRQ is alive, and `attr` is writable.
        let errno = unsafe { verbs::ibv_query_srq(self.as_ptr(), &raw mut attr) };
        if errno == 0 {
            Ok(attr.srq_limit)
        } else {
            Err(ControlError::verbs(OPERATION, errno))
        }
    }

    /// Grows the queue to `depth` receives.
    ///
    /// # Errors
    /// Always on mlx5, which cannot resize: the message names the remedy.
    pub fn resize(&self, depth: u32) -> Result<(), ControlError> {
        self.modify(
            "resize a shared receive queue",
            ibv_srq_attr {
                max_wr: depth,
                max_sge: 0,
                srq_limit: 0,
            },
            ibv_srq_attr_mask::IBV_SRQ_MAX_WR,
        )
        .map_err(|error| match error.errno() {
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) => error
                .with_kind(ControlErrorKind::Unsupported)
                .with_cause("this device cannot resize shared receive queues")
                .with_remedy("create the queue with the largest depth that it will need"),
            _ => error,
        })
    }

    fn modify(
        &self,
        operation: &'static str,
        mut attr: ibv_srq_attr,
        mask: ibv_srq_attr_mask,
    ) -> Result<(), ControlError> {
        self.context().require_here(operation)?;
        // SAFETY: the SRQ is alive, and the attributes for the call.
        let errno =
            unsafe { verbs::ibv_modify_srq(self.as_ptr(), &raw mut attr, mask.0.cast_signed()) };
        if errno == 0 {
            Ok(())
        } else {
            Err(ControlError::verbs(operation, errno))
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.0.raw.as_ptr()
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.0.domain.context
    }
}

const CREATE: &str = "create a shared receive queue";

fn check(domain: &ProtectionDomain, depth: u32, max_segments: u32) -> Result<(), ControlError> {
    let limits = domain.device().limits();
    if limits.srqs == 0 {
        return Err(ControlError::new(
            ControlErrorKind::Unsupported,
            CREATE,
            "the device has no shared receive queues (max_srq = 0)",
        )
        .with_remedy("create endpoints with receive queues of their own"));
    }
    Bounded {
        what: "its depth",
        value: depth,
        least: 1,
        most: limits.srq_depth,
        limit: "max_srq_wr",
    }
    .check(CREATE)?;
    Bounded {
        what: "the number of segments",
        value: max_segments,
        least: 1,
        most: limits.srq_segments,
        limit: "max_srq_sge",
    }
    .check(CREATE)
}

struct RawSrq {
    raw: NonNull<ibv_srq>,
    id: ObjectId,
    /// Set when creation is complete, on the direct path.
    layout: Option<SharedRecvLayout>,
    capacity: u32,
    max_segments: u32,
    quirks: Quirks,
    domain: Arc<RawDomain>,
}

// SAFETY: libibverbs allows any threads to use an SRQ at the same time. The layout
// is plain values; `ring` decides which thread accesses the ring.
unsafe impl Send for RawSrq {}
// SAFETY: as above.
unsafe impl Sync for RawSrq {}

impl Drop for RawSrq {
    fn drop(&mut self) {
        if !self.domain.context.here() {
            return;
        }
        // SAFETY: created by `create`; QPs on it held an `Arc` of this and were
        // destroyed. The call waits for events that were read and not acknowledged;
        // every reader acknowledges at once.
        let errno = unsafe { verbs::ibv_destroy_srq(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_destroy_srq failed");
        }
    }
}
