//! The record of a queue pair between two resets: what polling needs of it, and what other
//! threads may read.

use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::Arc;

use super::cq::End;
use super::device::{Device, QueueCalls};
use super::quirks::Quirks;
use super::shadow::Shadow;
use super::shared::SharedState;
use super::table::{Name, Side};
use crate::control::QpGrant;

/// State that the poster shares with the pollers of the send and the receive queue.
pub(super) struct Record<D: Device> {
    pub(super) qpn: u32,
    pub(super) quirks: Quirks,
    /// The context of every completion of the queue pair.
    pub(super) context: u64,
    pub(super) sends: Shadow,
    /// The receives of its own queue; always empty without one.
    pub(super) receives: Shadow,
    /// The shared receive queue that its receives come from, if any.
    pub(super) shared: Option<Arc<SharedState<D>>>,
    /// The queue pair is in ERR, or is being moved there.
    failing: AtomicBool,
    pub(super) queue: D::Queue,
}

/// Late receives in ERR. Soft-RoCE finds receives by reading the queue's memory,
/// and reads it once in ERR. A receive that is posted later completes only if the
/// queue pair is moved to ERR again. The thread that moves the queue pair to ERR
/// announces it first ([`Record::fails`]), and a poster checks after its post
/// ([`Record::is_failing`]), so one of the two sees the other. siw does not read
/// its queues again even then (`quirks.rs`).
impl<D: Device> Record<D> {
    /// Creates the record of a queue pair to which nothing is posted.
    pub(super) fn new(
        queue: D::Queue,
        context: u64,
        grant: &QpGrant,
        shared: Option<Arc<SharedState<D>>>,
    ) -> Arc<Self> {
        let own = if shared.is_some() { 0 } else { grant.receives };
        Arc::new(Self {
            qpn: queue.qpn(),
            quirks: queue.quirks(),
            context,
            sends: Shadow::new(grant.sends),
            receives: Shadow::new(own),
            shared,
            failing: AtomicBool::new(false),
            queue,
        })
    }

    /// Returns the shadow of one of its queues.
    pub(super) fn shadow(&self, side: Side) -> &Shadow {
        match side {
            Side::Send => &self.sends,
            Side::Recv | Side::Shared => &self.receives,
        }
    }

    /// Returns whether its receives come from the shared receive queue of this name.
    pub(super) fn takes_from(&self, name: Name) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.name == name)
    }

    /// Announces that the caller is about to move the queue pair to ERR. Returns
    /// whether this was announced before.
    fn fails(&self) -> bool {
        let known = self.failing.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        known
    }

    /// Handles a completion that shows that the queue pair has gone to ERR by
    /// itself.
    #[cold]
    pub(super) fn has_failed(&self) {
        // After some failures siw stays in RTS.
        let flushes = self.receives.capacity() > 0 || self.quirks.any();
        if !self.fails() && flushes {
            self.queue.flush();
        }
    }

    /// Returns whether a request that was just posted may have come too late.
    pub(super) fn is_failing(&self) -> bool {
        fence(Ordering::SeqCst);
        self.failing.load(Ordering::Relaxed)
    }
}

/// Reads the shadows of a queue pair until it is reset, with loads of words that posting and
/// polling store anyway. Exact while neither happens.
#[derive(Clone)]
pub struct Watch<D: Device> {
    pub(super) record: Arc<Record<D>>,
    /// Where its queues report, if the device does not flush everything itself.
    pub(super) ends: Option<[End<D>; 2]>,
}

impl<D: Device> Watch<D> {
    /// Returns whether every posted send was retired.
    pub fn sends_idle(&self) -> bool {
        self.record.sends.outstanding() == 0
    }

    /// Returns a number that changes when sends are retired.
    pub fn sends_retired(&self) -> u32 {
        self.record.sends.retired()
    }

    /// Returns the number of receives in its own queue that were posted and not
    /// retired.
    pub fn recvs_outstanding(&self) -> u32 {
        self.record.receives.outstanding()
    }

    /// Announces that the queue pair is about to be moved to ERR: requests that are
    /// posted from now on are to be flushed.
    pub fn will_fail(&self) {
        self.record.fails();
    }

    /// Flushes what the device does not flush. The queue pair is in ERR.
    pub fn has_failed(&self) {
        for end in self.ends.iter().flatten() {
            end.flush(&self.record);
        }
    }
}
