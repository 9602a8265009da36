//! What polling must know of a queue pair, between two resets.

use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::Arc;

use super::device::{Device, QueueCalls};
use super::quirks::Quirks;
use super::receives::RecvShadow;
use super::sends::SendShadow;
use super::shared::SharedState;

/// Where the receives of a queue pair come from.
pub(super) enum Receives<D: Device> {
    /// It can only send.
    None,
    /// Its own queue: [`Record::own`].
    Own,
    /// A shared one.
    Shared(Arc<SharedState<D>>),
}

/// Shared by the poster and the pollers of the send and the receive queue.
pub(super) struct Record<D: Device> {
    pub(super) qpn: u32,
    pub(super) quirks: Quirks,
    /// What every completion of the queue pair carries.
    pub(super) context: u64,
    pub(super) sends: SendShadow,
    pub(super) receives: Receives<D>,
    /// The receives of its own queue. Without one there is never any.
    pub(super) own: RecvShadow,
    /// It is in ERR, or on its way there.
    failing: AtomicBool,
    pub(super) queue: D::Queue,
}

/// Soft-RoCE learns of receives by looking into memory, and in ERR it looks
/// once. So a receive that comes later waits for ever, unless the queue pair is
/// moved to ERR again. Who moves it first tells ([`Record::fails`]), and who
/// posts a receive looks afterwards ([`Record::is_failing`]): one of the two
/// sees the other. siw does not look again even so (`flush.rs`).
impl<D: Device> Record<D> {
    pub(super) fn new(
        queue: D::Queue,
        context: u64,
        sends: SendShadow,
        receives: Receives<D>,
        own: RecvShadow,
    ) -> Self {
        Self {
            qpn: queue.qpn(),
            quirks: queue.quirks(),
            context,
            sends,
            receives,
            own,
            failing: AtomicBool::new(false),
            queue,
        }
    }

    /// Who calls this moves the queue pair to ERR after it. Answers whether
    /// that was known before.
    pub(super) fn fails(&self) -> bool {
        let known = self.failing.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        known
    }

    /// A completion says that the queue pair has gone to ERR by itself.
    #[cold]
    #[inline(never)]
    pub(super) fn has_failed(&self) {
        // siw stays in RTS after some failures.
        let flushes = matches!(self.receives, Receives::Own) || self.quirks.any();
        if !self.fails() && flushes {
            self.queue.flush();
        }
    }

    /// Whether a request that was just posted may have come too late.
    #[inline(always)]
    pub(super) fn is_failing(&self) -> bool {
        fence(Ordering::SeqCst);
        self.failing.load(Ordering::Relaxed)
    }
}
