//! The record of a queue pair between two resets: what polling needs of it.

use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::Arc;

use super::device::{Device, QueueCalls};
use super::quirks::Quirks;
use super::receives::RecvShadow;
use super::sends::SendShadow;
use super::shared::SharedState;

/// The queue that the receives of a queue pair come from.
pub(super) enum Receives<D: Device> {
    /// None: the queue pair only sends.
    None,
    /// The queue pair's own receive queue: [`Record::own`].
    Own,
    /// A shared receive queue.
    Shared(Arc<SharedState<D>>),
}

/// State that the poster shares with the pollers of the send and the receive queue.
pub(super) struct Record<D: Device> {
    pub(super) qpn: u32,
    pub(super) quirks: Quirks,
    /// The context of every completion of the queue pair.
    pub(super) context: u64,
    pub(super) sends: SendShadow,
    pub(super) receives: Receives<D>,
    /// The receives of its own queue; always empty without one.
    pub(super) own: RecvShadow,
    /// The queue pair is in ERR, or is being moved there.
    failing: AtomicBool,
    pub(super) queue: D::Queue,
}

/// Late receives in ERR. Soft-RoCE finds receives by reading the queue's memory,
/// and reads it once in ERR. A receive that is posted later completes only if the
/// queue pair is moved to ERR again. The thread that moves the queue pair to ERR
/// announces it first ([`Record::fails`]), and a poster checks after its post
/// ([`Record::is_failing`]), so one of the two sees the other. siw does not read
/// its queues again even then (`flush.rs`).
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

    /// Announces that the caller is about to move the queue pair to ERR. Returns
    /// whether this was announced before.
    pub(super) fn fails(&self) -> bool {
        let known = self.failing.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        known
    }

    /// Handles a completion that shows that the queue pair has gone to ERR by
    /// itself.
    #[cold]
    #[inline(never)]
    pub(super) fn has_failed(&self) {
        // After some failures siw stays in RTS.
        let flushes = matches!(self.receives, Receives::Own) || self.quirks.any();
        if !self.fails() && flushes {
            self.queue.flush();
        }
    }

    /// Returns whether a request that was just posted may have come too late.
    #[inline(always)]
    pub(super) fn is_failing(&self) -> bool {
        fence(Ordering::SeqCst);
        self.failing.load(Ordering::Relaxed)
    }
}
