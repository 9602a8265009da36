//! Ringing the doorbell: the doorbell record, then the register.

use super::{SendProducer, Written, wqebbs};
use crate::mmio::{BlueFlame, barrier};

impl SendProducer {
    #[inline(always)]
    fn publish(&mut self) {
        barrier::before_record();
        self.record.set(u32::from(self.producer));
    }

    /// Rings the doorbell for one request, with the whole WQE if the register allows it.
    #[inline(always)]
    pub(super) fn ring_single(&mut self, written: Written) {
        self.publish();
        let doorbell = written.doorbell;
        // A register that other queue pairs ring too takes no BlueFlame copies:
        // `blue_flame_units` is 0.
        if written.units > 1 && written.units <= self.blue_flame_units {
            // SAFETY: a WQE of this ring, which has just been completed and
            // which is no longer than a half of the register.
            unsafe {
                self.register.blue_flame(BlueFlame {
                    wqe: written.wqe,
                    wqebbs: wqebbs(written.units),
                    ring: self.buf,
                    ring_end: self.end.as_ptr(),
                });
            }
        } else if self.register.is_serialised() {
            self.register.ring_locked(doorbell);
        } else {
            self.register.ring(doorbell);
        }
    }

    /// Rings the doorbell for this many requests, of which this is the last.
    #[inline(always)]
    pub(super) fn ring_all(&mut self, count: usize, last: Written) {
        match count {
            1 => self.ring_single(last),
            _ => self.ring(last),
        }
    }

    #[inline(always)]
    fn ring(&mut self, last: Written) {
        self.publish();
        let doorbell = last.doorbell;
        if self.register.is_serialised() {
            self.register.ring_locked(doorbell);
        } else {
            self.register.ring(doorbell);
        }
    }
}
