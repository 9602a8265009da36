//! Posting changes of memory windows.
//!
//! The WQE names the window by its key, so nothing of the control path is
//! needed. What comes behind it starts only when the key is changed: the next
//! WQE carries the small fence, whichever it is (libmlx5's `next_fence`).

use core::ptr::NonNull;

use super::{Head, SendProducer, Written};
use crate::request::{PostError, SendFlags};
use crate::ring::receive::write_unit;
use crate::wire::{CtrlFlags, UNIT, WQEBB, WindowChange, WqeOpcode};

impl SendProducer {
    /// Posts the change of a window and rings. Of the flags only `SIGNALED`
    /// and `FENCE` mean something. Its completion carries `note`.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    #[inline(never)]
    pub fn post_change(
        &mut self,
        cookie: u64,
        change: &WindowChange,
        flags: SendFlags,
        note: u32,
    ) -> Result<(), PostError> {
        if !self.windows {
            return Err(PostError::NoWindows);
        }
        if self.credits.exhausted() {
            self.refresh()?;
        }
        let written = self.write_change(cookie, change, flags, note);
        self.ring_single(written);
        Ok(())
    }

    /// The next WQE carries a fence: nothing is posted by the short ways
    /// before it was written.
    pub(super) fn fence_next(&mut self, fence: CtrlFlags) {
        self.next_fence = fence;
        self.credits.hold();
    }

    fn write_change(
        &mut self,
        cookie: u64,
        change: &WindowChange,
        flags: SendFlags,
        note: u32,
    ) -> Written {
        let index = self.size.index(self.producer);
        // SAFETY: `index` is below the WQEBB count.
        let wqe = unsafe { self.buf.add(index * WQEBB) };
        let units = change.units();
        // SAFETY: the second unit of a WQEBB.
        let mut at = unsafe { wqe.add(UNIT) };
        for words in &change.body()[..units as usize - 1] {
            at = self.wrapped(at);
            // SAFETY: the WQE is no longer than the longest that the credits
            // provide for, since there are to be windows; so `at` is in a
            // WQEBB that the device has given back.
            unsafe { write_unit(at, *words) };
            // SAFETY: stays within, or one past, the ring.
            at = unsafe { at.add(UNIT) };
        }
        let head = Head {
            index,
            wqe,
            opcode: WqeOpcode::Umr,
            // Which key: the device goes by its index.
            imm: change.before,
            body: wqe,
            units: 1,
        };
        let asked = flags & (SendFlags::SIGNALED | SendFlags::FENCE);
        let mut flags = CtrlFlags::from_bits_truncate(asked.bits());
        let fence = core::mem::take(&mut self.next_fence);
        if !flags.contains(CtrlFlags::FENCE) {
            flags |= fence;
        }
        let written = self.finish(cookie, note, &head, units, flags);
        self.fence_next(CtrlFlags::SMALL_FENCE);
        written
    }

    fn wrapped(&self, at: NonNull<u8>) -> NonNull<u8> {
        if at == self.end { self.buf } else { at }
    }
}
