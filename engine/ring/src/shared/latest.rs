//! The run of WQEs that the pollers extend, as one word.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{RingSize, cold_path};

/// The latest run of released WQEs: 32 bits with the number of the run, and 32
/// bits with its last WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latest(u64);

impl Latest {
    #[inline(always)]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(super) fn new(run: u32, last: u32) -> Self {
        Self(u64::from(run) << 32 | u64::from(last))
    }

    #[inline(always)]
    pub(super) fn run(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn last(self) -> u32 {
        self.0 as u32
    }

    /// Returns the state after releasing the WQE at `index`, if it follows the
    /// last one in the ring.
    #[inline(always)]
    pub(super) fn followed_by(self, size: RingSize, index: u32) -> Option<Self> {
        const RUN: u64 = (u32::MAX as u64) << 32;
        let longer = Self((self.0 + 1) & (RUN | u64::from(size.count() - 1)));
        (longer.last() == index).then_some(longer)
    }

    /// Returns the state with the WQE at `index` in a run of its own. Stores
    /// the end of the previous run and the start of the new one in `run_bounds`,
    /// which has an entry for each WQE of the ring.
    #[inline(always)]
    fn new_run(self, size: RingSize, run_bounds: &[AtomicU32], index: u32) -> Self {
        let run = self.run().wrapping_add(1);
        // SAFETY: masked to the ring.
        let bounds = unsafe { run_bounds.get_unchecked(size.index(run)) };
        // Indices have 16 bits.
        bounds.store(self.last() << 16 | index, Ordering::Relaxed);
        Self::new(run, index)
    }

    /// Returns the state after releasing the WQE at `index`.
    #[inline(always)]
    pub(super) fn after(self, size: RingSize, run_bounds: &[AtomicU32], index: u32) -> Self {
        match self.followed_by(size, index) {
            Some(longer) => longer,
            None => {
                cold_path();
                self.new_run(size, run_bounds, index)
            }
        }
    }
}
