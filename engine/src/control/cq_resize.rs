//! Resizing completion queues, which only some devices support.
//!
//! A queue on the direct path is never resized: libmlx5 copies the completions to
//! the new ring from its own consumer index, which the engine's polling does not
//! advance (`mlx5_cq_resize_copy_cqes` in rdma-core's providers/mlx5/cq.c).
//!
//! Decision: `docs/decisions/023-one-cq-per-evd.md`

use core::sync::atomic::Ordering;

use dv_sys::verbs;

use super::cq::{CqeSize, VerbsCq};
use super::device::Device;
use crate::error::{ControlError, ControlErrorKind};
use crate::sync::Mutex;

const OPERATION: &str = "resize a completion queue";

/// The depth of the completion queue that is created to find out whether the device
/// resizes CQs, and the depth it is then resized to. libmlx5 rounds both up, to
/// different sizes; with equal sizes it would not call the kernel.
const TRIAL: (u32, u32) = (1, 30);

/// Whether the device resizes completion queues, once known.
#[derive(Default)]
pub(super) struct Resizes(Mutex<Option<bool>>);

impl VerbsCq {
    /// Grows the CQ to at least `depth` entries. Its completions stay. No other
    /// thread may poll it meanwhile.
    ///
    /// # Errors
    /// `Unsupported` on the direct path, and if the device does not resize CQs;
    /// there is no memory; or the CQ holds more completions than `depth`. The CQ is
    /// then unchanged.
    pub(crate) fn resize(&self, depth: u32) -> Result<(), ControlError> {
        self.require_here()?;
        if self.layout().is_some() {
            return Err(ControlError::new(
                ControlErrorKind::Unsupported,
                OPERATION,
                "it is on the direct path, where libmlx5 would lose completions",
            )
            .with_remedy("create the queue with the largest depth that it will need"));
        }
        let entries = i32::try_from(depth).unwrap_or(i32::MAX);
        let _placed = self.0.context.prefer_node();
        // SAFETY: the CQ is alive.
        match unsafe { verbs::ibv_resize_cq(self.as_ptr(), entries) } {
            0 => {
                // SAFETY: the CQ is alive, and only resizing changes the field,
                // which one thread does at a time: see the caller.
                let granted = unsafe { (*self.as_ptr()).cqe };
                let granted = u32::try_from(granted).unwrap_or(depth);
                self.0.capacity.store(granted, Ordering::Release);
                tracing::debug!(cqn = self.cqn(), granted, "resized a CQ");
                Ok(())
            }
            // Some libraries return the number negated.
            errno => Err(ControlError::verbs(OPERATION, errno.abs())),
        }
    }
}

impl VerbsCq {
    /// Fails in a forked child of the process that opened the device.
    pub(crate) fn require_here(&self) -> Result<(), ControlError> {
        self.0.context.require_here(OPERATION)
    }
}

impl Device {
    /// Returns whether its completion queues can be resized
    /// ([`crate::CompletionQueueHandle::resize`]). No verb reports this, so the
    /// first call on the verbs path resizes a small completion queue.
    #[must_use]
    pub fn resizes_cqs(&self) -> bool {
        if self.is_direct() {
            return false;
        }
        let known = &self.context.resizes_cqs.0;
        let mut known = known.lock();
        *known.get_or_insert_with(|| {
            let (small, large) = TRIAL;
            let tried = VerbsCq::create(self, small, CqeSize::Default, None, 0)
                .and_then(|cq| cq.resize(large));
            if let Err(error) = &tried {
                tracing::debug!("the device does not resize completion queues: {error}");
            }
            tried.is_ok()
        })
    }
}
