//! Posting changes of memory windows.
//!
//! The WQE names the window by its key, so nothing of the control path is
//! needed. Requests after it start only when the key is changed: the next WQE,
//! of whatever kind, carries the small fence (libmlx5's `next_fence`).
//!
//! Decision: `docs/decisions/032-rmr-is-a-type-1-window.md`

use core::ptr::NonNull;

use super::encode::{Head, with_fence};
use super::{SendProducer, Written};
use crate::request::{PostError, SendFlags};
use crate::units::write_unit;
use crate::wire::{CtrlFlags, UNIT, WindowChange, WqeOpcode};

impl SendProducer {
    /// Posts the change of a window and rings the doorbell. Flags other than
    /// `SIGNALED` and `FENCE` are ignored. The completion carries `wr_data`.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// `change` names a memory window of type 1 of the queue pair's protection
    /// domain, with the key that it has, and memory that peers may access as
    /// `change` says for as long as the window is open.
    #[inline(never)]
    pub unsafe fn post_change(
        &mut self,
        wr_id: u64,
        change: &WindowChange,
        flags: SendFlags,
        wr_data: u32,
    ) -> Result<(), PostError> {
        if !self.windows {
            return Err(PostError::NoWindows);
        }
        let fence = self.check_room()?;
        let flags = flags & (SendFlags::SIGNALED | SendFlags::FENCE);
        let written = self.write_change(wr_id, change, with_fence(flags, fence), wr_data);
        self.ring(1, written);
        Ok(())
    }

    /// Makes the next WQE carry a fence. The fast path posts nothing before
    /// that WQE is written.
    pub(super) fn fence_next(&mut self, fence: CtrlFlags) {
        self.next_fence = fence;
        self.credits.hold();
    }

    fn write_change(
        &mut self,
        wr_id: u64,
        change: &WindowChange,
        flags: CtrlFlags,
        wr_data: u32,
    ) -> Written {
        let place = self.place();
        let units = change.units();
        // SAFETY: the second unit of a WQEBB.
        let mut at = unsafe { place.wqe.add(UNIT) };
        for words in &change.body()[..units as usize - 1] {
            at = self.wrapped(at);
            // SAFETY: the WQE is no longer than the longest that the credits
            // provide for, since there are to be windows; so `at` is in a
            // WQEBB that the device has given back.
            unsafe { write_unit(at, *words) };
            // SAFETY: stays within, or one past, the ring.
            at = unsafe { at.add(UNIT) };
        }
        // The immediate data field names the key; the device uses its index.
        let head = Head::of_opcode(WqeOpcode::Umr, change.before);
        let written = self.finish(place, (wr_id, wr_data), head, units - 1, flags);
        self.fence_next(CtrlFlags::SMALL_FENCE);
        written
    }

    fn wrapped(&self, at: NonNull<u8>) -> NonNull<u8> {
        if at == self.end { self.buf } else { at }
    }
}
