//! Messages that differ from each other: each has a number, from 1 in each pass, and with it a
//! slot in the memory, values (immediate data, operands of atomic operations), or several pieces.
//!
//! With `--check`, the sender fills the slot of each message with a pattern of its number, and the
//! receiver compares all bytes when it has arrived. A slot is used again only when its message has
//! been compared, so as many slots are needed as messages can be in flight.

use std::ops::Range;

use dat_api::safe::RemoteSegment;
use dat_engine::AtomicOp;

use super::end::{Done, End, Fault, Flags, Op};
use super::payload::Payload;
use super::watchdog::Stop;
use crate::options::Operation;

/// Returns this many pieces of nearly equal length.
pub(super) fn pieces(of: Range<usize>, count: u32) -> Vec<Range<usize>> {
    let (length, count) = (of.len() as u64, u64::from(count));
    let at = |piece: u64| of.start + (length * piece / count) as usize;
    (0..count).map(|piece| at(piece)..at(piece + 1)).collect()
}

/// The requests of one slot.
struct Slot<E: End> {
    local: Vec<Range<usize>>,
    request: E::Request,
    into: Vec<Range<usize>>,
    receive: E::Receive,
}

/// The requests of all slots.
pub(super) struct Numbered<E: End> {
    slots: Vec<Slot<E>>,
    operation: Operation,
    checks: bool,
    /// Receives posted, in all passes.
    receives: u64,
    /// Messages taken, in all passes.
    taken: u64,
}

impl<E: End> Numbered<E> {
    /// Without slots; `receives` are posted.
    pub(super) fn new(operation: Operation, checks: bool, receives: u32) -> Self {
        Self {
            slots: Vec::new(),
            operation,
            checks,
            receives: receives.into(),
            taken: 0,
        }
    }

    /// Prepares the requests of all slots. `remote` returns the other side's bytes at an offset.
    pub(super) fn prepare(
        &mut self,
        end: &E,
        payload: &Payload,
        segments: u32,
        remote: impl Fn(usize) -> RemoteSegment,
    ) {
        let op = op(self.operation, 1);
        let slot = |number: u32| {
            let number = u64::from(number);
            let local = pieces(payload.local(number), segments);
            let into = pieces(payload.layout().incoming(number), segments);
            Slot {
                request: end.request_of(op, &local, remote(payload.remote_offset(number))),
                receive: end.receive_of(&into),
                local,
                into,
            }
        };
        self.slots = (0..payload.layout().slots).map(slot).collect();
    }

    /// Returns whether messages are compared when they have arrived.
    #[inline(always)]
    pub(super) fn checks(&self) -> bool {
        self.checks || self.operation.is_atomic()
    }

    #[inline(always)]
    pub(super) fn post(&mut self, end: &mut E, number: u64, flags: Flags) -> Result<(), Fault> {
        let (op, at) = (op(self.operation, number), self.at(number));
        let slot = &mut self.slots[at];
        end.post_of(op, &slot.local, &mut slot.request, flags)
    }

    #[inline(always)]
    pub(super) fn post_receive(&mut self, end: &mut E) -> Result<(), Fault> {
        let at = self.at(self.receives);
        self.receives += 1;
        let slot = &mut self.slots[at];
        end.post_receive_of(&slot.into, &mut slot.receive)
    }

    /// Prepares the memory for a message that is checked. The message before it in its slot has been compared.
    #[inline(always)]
    pub(super) fn fill(&self, payload: &mut Payload, number: u64) {
        match self.operation.fetches() {
            true => payload.clear_for(number),
            false => payload.fill(number),
        }
    }

    /// Compares the bytes of a message that has arrived: the last one, if it took a receive.
    #[inline(always)]
    pub(super) fn check(&mut self, payload: &Payload, number: u64) -> Result<(), Stop> {
        if self.operation.is_atomic() {
            let found = payload.fetched(number);
            return expect("the fetched value", number, number - 1, found);
        }
        if !self.checks {
            return Ok(());
        }
        let slot = match self.operation {
            Operation::Send => self.taken,
            _ => number,
        };
        self.taken += 1;
        payload
            .compare(slot, number)
            .map_err(|mismatch| Stop::Corrupted { number, mismatch })
    }

    /// Compares what the completion of a receive says.
    #[inline(always)]
    pub(super) fn check_received(&self, number: u64, done: &Done) -> Result<(), Stop> {
        match self.operation {
            Operation::WriteImm => {
                let (expected, found) = (number as u32, done.immediate);
                expect("the immediate data", number, expected.into(), found.into())
            }
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn at(&self, number: u64) -> usize {
        number as usize & (self.slots.len() - 1)
    }
}

#[inline(always)]
fn expect(what: &'static str, number: u64, expected: u64, found: u64) -> Result<(), Stop> {
    match found == expected {
        true => Ok(()),
        false => Err(Stop::Value {
            what,
            number,
            expected,
            found,
        }),
    }
}

/// Returns the operation of a request. Each atomic operation adds 1 to the number of those before
/// it, so that it fetches its own number minus 1.
#[inline(always)]
pub(super) fn op(operation: Operation, number: u64) -> Op {
    match operation {
        Operation::Send => Op::Send,
        Operation::Write => Op::Write,
        Operation::WriteImm => Op::WriteImmediate(number as u32),
        Operation::Read => Op::Read,
        Operation::FetchAdd => Op::Atomic(AtomicOp::FetchAdd(1)),
        Operation::CompareSwap => Op::Atomic(AtomicOp::CompareSwap {
            compare: number.wrapping_sub(1),
            swap: number,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_byte_once_and_have_nearly_the_same_length() {
        for (length, count) in [(1, 1), (16, 3), (17, 16), (4096, 5), (1 << 30, 16)] {
            let pieces = pieces(100..100 + length, count);
            assert_eq!((pieces.len(), pieces[0].start), (count as usize, 100));
            assert_eq!(pieces.last().unwrap().end, 100 + length);
            assert!(pieces.windows(2).all(|two| two[0].end == two[1].start));
            let least = length / count as usize;
            assert!(
                pieces
                    .iter()
                    .all(|it| (least..=least + 1).contains(&it.len()))
            );
        }
    }
}
