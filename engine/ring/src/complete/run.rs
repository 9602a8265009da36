//! Consecutive entries of one opcode and format, for loops.

use super::{CompletionRing, Group, Position, Slot, Wrap};
use crate::mmio::barrier;
use crate::wire::OwnOp;

/// Goes over consecutive entries whose last bytes differ only in the owner bit. It
/// holds in a few registers what a loop over them needs; the ring stays as it is until
/// [`CompletionRing::end_run`].
#[derive(Clone, Copy, Debug)]
pub struct Run {
    next: Slot,
    /// The last byte that the next entry has if the device has written it and it
    /// belongs to the run, so that one comparison checks both.
    own_op: u8,
    stop: Slot,
    wrap: Wrap,
}

impl Run {
    /// Returns the next entry if the device has written it and it belongs to the
    /// run.
    #[inline(always)]
    pub fn peek(&self) -> Option<Slot> {
        if self.next.own_op().0 != self.own_op {
            return None;
        }
        barrier::after_ownership();
        Some(self.next)
    }

    /// Advances past the next entry. Calls `ahead` as
    /// [`CompletionRing::advance_ahead`] does.
    ///
    /// # Safety
    /// [`Self::peek`] has returned that entry.
    #[inline(always)]
    pub unsafe fn advance(&mut self, ahead: impl FnOnce(Group)) {
        let (stop, own_op) = (&mut self.stop, &mut self.own_op);
        // SAFETY: an entry of the ring that began the run.
        let (next, begins_group) = unsafe { self.wrap.after(self.next, stop, own_op) };
        self.next = next;
        if begins_group && self.wrap.looks_ahead {
            ahead(Group {
                next: Some(next),
                stop: self.stop,
                owner: self.own_op,
                stride: self.wrap.stride,
            });
        }
    }
}

impl CompletionRing {
    /// Begins a run, at the next entry, of entries with the last byte `own_op`, in
    /// which the owner bit is 0, as [`Self::peek`] returns it.
    #[inline(always)]
    pub fn run(&self, own_op: OwnOp) -> Run {
        let Position { slot, owner } = self.cursor.next;
        Run {
            next: slot,
            own_op: own_op.0 ^ owner,
            stop: self.cursor.stop,
            wrap: self.cursor.wrap,
        }
    }

    /// Consumes the `entries` entries that a run has passed. The next
    /// [`Self::publish`] returns them to the device.
    ///
    /// # Safety
    /// This ring began the run after it was last advanced, the run was advanced
    /// `entries` times, and nothing of these entries is needed any more.
    #[inline(always)]
    pub unsafe fn end_run(&mut self, run: Run, entries: usize) {
        self.cursor.consumer += entries as u64;
        self.cursor.next = Position {
            slot: run.next,
            owner: run.own_op & OwnOp::OWNER,
        };
        self.cursor.stop = run.stop;
    }
}
