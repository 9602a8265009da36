//! Counters of waits, and of posts that were refused because a queue was full.
//!
//! A counter on every post and poll would cost every message. So calls that succeed at once count
//! nothing: counters are updated after the first poll of a wait has found nothing, and when a post
//! is refused for good. An adapter reports the sum of its objects and keeps the counts of freed ones.

use core::ops::AddAssign;
use core::sync::atomic::{AtomicU64, Ordering};

use dat_engine::PostError;
use dat_engine::wait::WaitCounters;

/// Counts since the object was created; they wrap around after centuries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counts of waits.
    pub waits: WaitCounters,
    /// Posts of receives, requests and binds that were refused because the queue was full.
    pub refused_posts: u64,
}

impl Counters {
    /// Returns the counters of an object that threads wait on.
    pub(super) fn of_waits(waits: WaitCounters) -> Self {
        Self {
            waits,
            ..Self::default()
        }
    }

    /// Returns the counters of an object that is posted to.
    pub(crate) fn of_posts(refused_posts: u64) -> Self {
        Self {
            refused_posts,
            ..Self::default()
        }
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, more: Self) {
        self.waits.spins += more.waits.spins;
        self.waits.hits += more.waits.hits;
        self.waits.blocks += more.waits.blocks;
        self.waits.spurious += more.waits.spurious;
        self.refused_posts += more.refused_posts;
    }
}

/// Counts of waits, for any thread to read.
#[derive(Debug, Default)]
pub(super) struct WaitCounts {
    spins: AtomicU64,
    hits: AtomicU64,
    blocks: AtomicU64,
    spurious: AtomicU64,
}

impl WaitCounts {
    /// Copies the counters of the only thread that counts.
    pub(super) fn publish(&self, counters: &WaitCounters) {
        self.spins.store(counters.spins, Ordering::Relaxed);
        self.hits.store(counters.hits, Ordering::Relaxed);
        self.blocks.store(counters.blocks, Ordering::Relaxed);
        self.spurious.store(counters.spurious, Ordering::Relaxed);
    }

    /// Adds the counters of one of several waits.
    pub(super) fn add(&self, counters: &WaitCounters) {
        self.spins.fetch_add(counters.spins, Ordering::Relaxed);
        self.hits.fetch_add(counters.hits, Ordering::Relaxed);
        self.blocks.fetch_add(counters.blocks, Ordering::Relaxed);
        self.spurious
            .fetch_add(counters.spurious, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> WaitCounters {
        WaitCounters {
            spins: self.spins.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
            spurious: self.spurious.load(Ordering::Relaxed),
        }
    }
}

/// Posts that found the queue full.
#[derive(Debug, Default)]
pub(crate) struct Refused(AtomicU64);

impl Refused {
    /// Counts a refused post if the reason is a full queue.
    #[cold]
    pub(super) fn note(&self, error: PostError) {
        if error == PostError::QueueFull {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
