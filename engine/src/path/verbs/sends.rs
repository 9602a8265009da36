//! The shadow of a send queue.
//!
//! Requests complete in order, and the completion of a request also retires the
//! unsignalled requests before it, as on the direct path.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::places::Places;
use super::slots::Slots;
use crate::completion::CompletionOp;

/// What the completion of a request reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) wr_id: u64,
    pub(super) wr_data: u32,
    pub(super) op: CompletionOp,
    /// The length of a read or an atomic operation in bytes; unused for others.
    pub(super) length: u32,
    /// A successful completion is reported.
    pub(super) signalled: bool,
}

/// The flag stored in the byte of the operation.
const SIGNALLED: u8 = 1 << 7;

#[derive(Debug, Default)]
struct Entry {
    wr_id: AtomicU64,
    wr_data: AtomicU32,
    length: AtomicU32,
    op: AtomicU8,
}

/// The entries of a send queue: written by the poster, read by the poller.
#[derive(Debug)]
pub(super) struct SendShadow {
    pub(super) slots: Slots,
    capacity: u32,
    entries: Places<Entry>,
}

impl SendShadow {
    /// Creates a shadow for `capacity` requests.
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            slots: Slots::default(),
            capacity,
            entries: Places::new(capacity),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Records request `slot`. Called by the poster, before it counts the request.
    #[inline]
    pub(super) fn record(&self, slot: u32, sent: Sent) {
        let entry = self.entries.at(slot);
        entry.wr_id.store(sent.wr_id, Ordering::Relaxed);
        entry.wr_data.store(sent.wr_data, Ordering::Relaxed);
        entry.length.store(sent.length, Ordering::Relaxed);
        let signalled = u8::from(sent.signalled) * SIGNALLED;
        entry.op.store(sent.op as u8 | signalled, Ordering::Relaxed);
    }

    /// Retires request `slot` and those before it. Called by the poller. `None` if
    /// the request is not outstanding.
    #[inline]
    pub(super) fn retire(&self, slot: u32) -> Option<Sent> {
        if !self.slots.has(slot) {
            return None;
        }
        let entry = self.entries.at(slot);
        let op = entry.op.load(Ordering::Relaxed);
        let sent = Sent {
            wr_id: entry.wr_id.load(Ordering::Relaxed),
            wr_data: entry.wr_data.load(Ordering::Relaxed),
            length: entry.length.load(Ordering::Relaxed),
            op: op_of(op),
            signalled: op & SIGNALLED != 0,
        };
        self.slots.retire(slot);
        Some(sent)
    }

    /// Returns whether a read that was posted before request `slot` is outstanding.
    /// Called by the poller.
    pub(super) fn has_read_before(&self, slot: u32) -> bool {
        self.slots
            .waiting()
            .take_while(|&before| before != slot)
            .any(|before| self.op(before).0 == CompletionOp::Read)
    }

    /// Returns whether request `slot` is the oldest outstanding one, is signalled,
    /// and is not a read. Its completion then waits for no other, and no other
    /// waits for it. Called by the poller.
    #[inline]
    pub(super) fn is_next(&self, slot: u32) -> bool {
        if !self.slots.is_oldest(slot) {
            return false;
        }
        let (op, signalled) = self.op(slot);
        signalled && op != CompletionOp::Read
    }

    #[inline]
    fn op(&self, slot: u32) -> (CompletionOp, bool) {
        let byte = self.entries.at(slot).op.load(Ordering::Relaxed);
        (op_of(byte), byte & SIGNALLED != 0)
    }
}

/// Returns the operation that was stored as a byte.
#[inline]
fn op_of(byte: u8) -> CompletionOp {
    // A table instead of a `match`: this runs once per completion.
    const OPS: [CompletionOp; 16] = {
        let mut ops = [CompletionOp::Send; 16];
        ops[CompletionOp::Write as usize] = CompletionOp::Write;
        ops[CompletionOp::Read as usize] = CompletionOp::Read;
        ops[CompletionOp::Nop as usize] = CompletionOp::Nop;
        ops[CompletionOp::Bind as usize] = CompletionOp::Bind;
        ops[CompletionOp::WriteImm as usize] = CompletionOp::WriteImm;
        ops[CompletionOp::FetchAdd as usize] = CompletionOp::FetchAdd;
        ops[CompletionOp::CompareSwap as usize] = CompletionOp::CompareSwap;
        ops
    };
    OPS[usize::from(byte % 16)]
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const MOST_STEPS: usize = if cfg!(miri) { 30 } else { 200 };
    const OPS: [CompletionOp; 8] = [
        CompletionOp::Send,
        CompletionOp::Write,
        CompletionOp::Read,
        CompletionOp::Nop,
        CompletionOp::Bind,
        CompletionOp::WriteImm,
        CompletionOp::FetchAdd,
        CompletionOp::CompareSwap,
    ];

    fn sent(number: u64) -> Sent {
        Sent {
            wr_id: number,
            wr_data: (number >> 1) as u32,
            op: OPS[number as usize % OPS.len()],
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
            let mut shadow = SendShadow::new(capacity);
            shadow.slots = Slots::starting_at(start);
            let (mut model, mut next) = (VecDeque::new(), start);
            for (post, which, wr_id) in steps {
                if post && model.len() < capacity as usize {
                    shadow.record(next, sent(wr_id));
                    next = next.wrapping_add(1);
                    shadow.slots.set_posted(next);
                    model.push_back(sent(wr_id));
                } else if which < model.len() {
                    let slot = next.wrapping_sub((model.len() - which) as u32);
                    let done = model.drain(..=which).next_back();
                    prop_assert_eq!(shadow.retire(slot), done);
                    prop_assert_eq!(shadow.retire(slot), None, "twice");
                }
                prop_assert_eq!(shadow.slots.outstanding() as usize, model.len());
                prop_assert_eq!(shadow.retire(next), None, "not posted");
            }
        }
    }
}
