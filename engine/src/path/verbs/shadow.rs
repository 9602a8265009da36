//! The shadow of a queue whose requests complete in order: what their completions report.
//!
//! The requests `retired..posted` are outstanding. The poster counts a request before it is
//! passed to the device, so every completion is of a counted request. The completion of a send
//! also retires the unsignalled requests before it, as on the direct path.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use mlx5_rings::RingSize;

use crate::completion::CompletionOp;

/// What the completion of a request reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    pub(super) wr_data: u32,
    pub(super) op: CompletionOp,
    /// The length of a read or an atomic operation in bytes; unused for others.
    pub(super) length: u32,
    /// A successful completion is reported.
    pub(super) signalled: bool,
}

impl Request {
    pub(super) fn receive(wr_id: u64) -> Self {
        Self {
            wr_id,
            wr_data: 0,
            op: CompletionOp::Recv,
            length: 0,
            signalled: true,
        }
    }
}

#[derive(Debug, Default)]
struct ShadowEntry {
    wr_id: AtomicU64,
    wr_data: AtomicU32,
    length: AtomicU32,
    op: AtomicU8,
}

/// The flag stored in the byte of the operation.
const SIGNALLED: u8 = 1 << 7;

/// The entries of a queue: written by the poster, read by the poller.
#[derive(Debug)]
pub(super) struct Shadow {
    posted: AtomicU32,
    retired: AtomicU32,
    capacity: u32,
    size: RingSize,
    entries: Box<[ShadowEntry]>,
}

impl Shadow {
    /// Creates a shadow for `capacity` requests, which may be 0.
    pub(super) fn new(capacity: u32) -> Self {
        // Depths are far below 2^31, so the result does not overflow.
        let count = capacity.max(1).next_power_of_two();
        Self {
            posted: AtomicU32::new(0),
            retired: AtomicU32::new(0),
            capacity,
            size: RingSize::new(count).unwrap_or(RingSize::ONE),
            entries: (0..count).map(|_| ShadowEntry::default()).collect(),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Records request `slot`. Called by the poster, before it counts the request.
    #[inline(always)]
    pub(super) fn record(&self, slot: u32, request: Request) {
        let entry = &self.entries[self.size.index(slot)];
        entry.wr_id.store(request.wr_id, Ordering::Relaxed);
        entry.wr_data.store(request.wr_data, Ordering::Relaxed);
        entry.length.store(request.length, Ordering::Relaxed);
        let signalled = u8::from(request.signalled) * SIGNALLED;
        let op = request.op as u8 | signalled;
        entry.op.store(op, Ordering::Relaxed);
    }

    /// Stores the posted counter: the requests before `end` are posted, or are being posted.
    /// Called by the poster.
    #[inline(always)]
    pub(super) fn set_posted(&self, end: u32) {
        // Release: publishes what was recorded of the requests.
        self.posted.store(end, Ordering::Release);
    }

    /// Returns the retired counter.
    pub(super) fn retired(&self) -> u32 {
        // Acquire: the poller has read what was recorded of the retired requests.
        self.retired.load(Ordering::Acquire)
    }

    /// Returns the number of requests that are posted and not retired. Exact while no thread
    /// posts or polls.
    pub(super) fn outstanding(&self) -> u32 {
        let retired = self.retired.load(Ordering::Relaxed);
        // Acquire: what was recorded of the requests can be read.
        self.posted.load(Ordering::Acquire).wrapping_sub(retired)
    }

    /// Returns the numbers of the requests that are posted and not retired. Exact while no
    /// thread posts or polls.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> + use<> {
        let retired = self.retired.load(Ordering::Relaxed);
        (0..self.outstanding()).map(move |at| retired.wrapping_add(at))
    }

    /// Returns request `slot`; `None` if it is not outstanding. Called by the poller.
    pub(super) fn get(&self, slot: u32) -> Option<Request> {
        let before = slot.wrapping_sub(self.retired.load(Ordering::Relaxed));
        if before >= self.outstanding() {
            return None;
        }
        let entry = &self.entries[self.size.index(slot)];
        let op = entry.op.load(Ordering::Relaxed);
        Some(Request {
            wr_id: entry.wr_id.load(Ordering::Relaxed),
            wr_data: entry.wr_data.load(Ordering::Relaxed),
            length: entry.length.load(Ordering::Relaxed),
            op: CompletionOp::ALL[usize::from(op & !SIGNALLED)],
            signalled: op & SIGNALLED != 0,
        })
    }

    /// Retires request `slot` and those before it. Called by the poller. `None` if the request
    /// is not outstanding.
    pub(super) fn retire(&self, slot: u32) -> Option<Request> {
        let request = self.get(slot)?;
        // Release: what was recorded of them has been read.
        self.retired.store(slot.wrapping_add(1), Ordering::Release);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const MOST_STEPS: usize = if cfg!(miri) { 30 } else { 200 };

    fn request(number: u64) -> Request {
        Request {
            wr_id: number,
            wr_data: (number >> 1) as u32,
            op: CompletionOp::ALL[number as usize % CompletionOp::ALL.len()],
            length: (number >> 2) as u32,
            signalled: number & 1 != 0,
        }
    }

    proptest! {
        #[test]
        fn requests_are_retired_as_recorded_together_with_those_before_them(
            capacity in 1..40u32, start in prop_oneof![Just(0), Just(u32::MAX - 5), any::<u32>()],
            steps in prop::collection::vec((any::<bool>(), 0..8usize, any::<u64>()), 0..MOST_STEPS),
        ) {
            let shadow = Shadow::new(capacity);
            shadow.posted.store(start, Ordering::Relaxed);
            shadow.retired.store(start, Ordering::Relaxed);
            let (mut model, mut next) = (VecDeque::new(), start);
            for (post, which, wr_id) in steps {
                if post && model.len() < capacity as usize {
                    shadow.record(next, request(wr_id));
                    next = next.wrapping_add(1);
                    shadow.set_posted(next);
                    model.push_back(request(wr_id));
                } else if which < model.len() {
                    let slot = next.wrapping_sub((model.len() - which) as u32);
                    let done = model.drain(..=which).next_back();
                    prop_assert_eq!(shadow.retire(slot), done);
                    prop_assert_eq!(shadow.retire(slot), None, "twice");
                }
                prop_assert_eq!(shadow.outstanding() as usize, model.len());
                prop_assert_eq!(shadow.waiting().count(), model.len());
                prop_assert_eq!(shadow.retire(next), None, "not posted");
            }
        }
    }

    #[test]
    fn a_shadow_of_no_requests_has_none() {
        let shadow = Shadow::new(0);
        assert_eq!((shadow.outstanding(), shadow.get(u32::MAX)), (0, None));
    }
}
