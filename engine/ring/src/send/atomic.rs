//! Posting atomic operations: fetch-and-add, compare-and-swap.
//!
//! Their WQE has four units: control, the peer's address, the operands, and the
//! segment for the bits before the operation. That is one WQEBB, so it takes no more
//! room than any other request, and does not wrap around the end of the ring.

use super::{Control, SendProducer, Written, wqebbs};
use crate::request::{PostError, SendOp, SendRequest};
use crate::units::{data_words, write_unit};
use crate::wire::{AtomicSegment, CtrlFlags, RemoteSegment, UNIT, WqeOpcode};

use super::encode::{Remote, with_fence};

/// The length of the WQE in units.
const UNITS: u32 = 4;
const _: () = assert!(wqebbs(UNITS) == 1);

/// An atomic operation as its WQE has it.
#[derive(Clone, Copy)]
pub(super) struct Atomic {
    opcode: WqeOpcode,
    remote: Remote,
    operands: AtomicSegment,
}

impl Atomic {
    /// Returns `None` for any other operation.
    pub(super) fn of(op: SendOp) -> Option<Self> {
        let remote = op.atomic()?;
        let (opcode, operands) = match op {
            SendOp::FetchAdd { add, .. } => {
                (WqeOpcode::AtomicFetchAdd, AtomicSegment::fetch_add(add))
            }
            SendOp::CompareSwap { compare, swap, .. } => (
                WqeOpcode::AtomicCompareSwap,
                AtomicSegment::compare_swap(compare, swap),
            ),
            _ => return None,
        };
        Some(Self {
            opcode,
            remote,
            operands,
        })
    }
}

impl SendProducer {
    /// Writes the WQE of an atomic operation at the producer's position, for which the
    /// caller has checked the credits.
    ///
    /// # Errors
    /// `NoAtomics`, `BadAtomic`; nothing is posted then.
    pub(super) fn write_atomic(
        &mut self,
        request: &SendRequest<'_>,
        atomic: Atomic,
        wr_data: u32,
        fence: CtrlFlags,
    ) -> Result<Written, PostError> {
        if !self.atomics {
            return Err(PostError::NoAtomics);
        }
        let Atomic {
            opcode,
            remote: (addr, rkey),
            operands,
        } = atomic;
        request.check_atomic(addr)?;
        let place = self.place();
        // SAFETY: the second to fourth unit of the WQE's first WQEBB.
        let [remote, values, data] = [1, 2, 3].map(|unit| unsafe { place.wqe.add(unit * UNIT) });
        let words = operands.to_words();
        // SAFETY: as above.
        unsafe {
            write_unit(remote, RemoteSegment::new(addr, rkey).to_words());
            match opcode {
                // The second word keeps its old bytes, as in libmlx5.
                WqeOpcode::AtomicFetchAdd => values.cast::<u64>().write(words[0]),
                _ => write_unit(values, words),
            }
            // `check_atomic` has counted the segments.
            write_unit(data, data_words(&request.segments[0]));
        }
        let control = Control {
            opcode,
            units: UNITS,
            flags: with_fence(request.flags, fence),
            imm: 0,
        };
        Ok(self.finish(place, request.wr_id, wr_data, control))
    }
}
