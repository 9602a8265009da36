//! Runs of a list: consecutive sends of one segment, all inline or none, are written by
//! one short loop.
//!
//! A loop over [`SendProducer::try_write`] has branches for every operation, and an
//! outlined call for requests that need the slow path, so LLVM loads and stores the
//! fields of the ring for each request. The loop of a run has no call. It copies what it
//! needs of the ring to locals, and stores the counters once at its end.

use core::sync::atomic::Ordering;

use super::one::InlineLimits;
use super::{SendProducer, Written, one, wqebbs};
use crate::request::{SendFlags, SendOp, SendRequest};
use crate::units::write_unit;
use crate::wire::{CtrlFlags, CtrlSegment, UNIT, WQEBB, WqeOpcode, inline_units};

impl SendProducer {
    /// Writes a run from the front of `requests`, as far as there is room. Returns how many
    /// requests it wrote, and the last of them; `None` if the first needs another path.
    ///
    /// # Safety
    /// As for [`Self::post_with_data`], for every request.
    #[inline(always)]
    pub(super) unsafe fn try_write_run(
        &mut self,
        requests: &[SendRequest<'_>],
    ) -> Option<(usize, Written)> {
        let is_inline = requests.first()?.flags.contains(SendFlags::INLINE);
        // Compiled separately: without inline data every WQE has the same length.
        // SAFETY: required of the caller.
        unsafe {
            match is_inline {
                true => self.write_run::<true>(requests),
                false => self.write_run::<false>(requests),
            }
        }
    }

    /// # Safety
    /// As for [`Self::try_write_run`].
    #[inline(always)]
    unsafe fn write_run<const INLINE: bool>(
        &mut self,
        requests: &[SendRequest<'_>],
    ) -> Option<(usize, Written)> {
        let Self {
            buf,
            size,
            qpn_shifted,
            entries,
            ..
        } = *self;
        let limits = InlineLimits::of(self);
        let mut counter = self.producer;
        let start = self.credits.posted();
        let mut written = 0;
        for request in requests.iter().take(self.credits.room()) {
            let [segment] = request.segments else {
                break;
            };
            if !matches!(request.op, SendOp::Send)
                || request.flags.contains(SendFlags::INLINE) != INLINE
            {
                break;
            }
            let index = size.index(u32::from(counter));
            // SAFETY: `index` is below the WQEBB count.
            let wqe = unsafe { buf.add(index * WQEBB) };
            // SAFETY: the second unit of the WQE's first WQEBB.
            let body = unsafe { wqe.add(UNIT) };
            // SAFETY: the WQE is free, because there is room; the rest is required of the
            // caller.
            let data = unsafe {
                match INLINE {
                    true => limits.write(segment, body),
                    false => one::write_data(segment, body),
                }
            };
            let Some(data) = data else {
                break;
            };
            let units = 1 + data;
            let ctrl = control(counter, qpn_shifted, units, request.flags);
            // SAFETY: the first unit of this WQE.
            unsafe { write_unit(wqe, ctrl.to_words()) };
            written += 1;
            // SAFETY: the index is below the WQEBB count, which is the number of
            // entries, and the consumer that owns them outlives this half.
            let entry = unsafe { entries.add(index).as_ref() };
            entry.wr_id.store(request.wr_id, Ordering::Relaxed);
            let posted = start.wrapping_add(written);
            entry.posted.store(posted, Ordering::Relaxed);
            entry.wr_data.store(0, Ordering::Relaxed);
            counter = counter.wrapping_add(wqebbs(units) as u16);
        }
        let last = requests[..written as usize].last()?;
        self.producer = counter;
        self.credits.take(written);
        Some((written as usize, self.last_of_run(last)))
    }

    /// Returns the last WQE of a run, which was made for `request`.
    #[inline(always)]
    fn last_of_run(&self, request: &SendRequest<'_>) -> Written {
        let data = match request.segments {
            [segment] if request.flags.contains(SendFlags::INLINE) => inline_units(segment.length),
            _ => 1,
        };
        let units = 1 + data;
        let counter = self.producer.wrapping_sub(wqebbs(units) as u16);
        let index = self.size.index(u32::from(counter));
        Written {
            doorbell: control(counter, self.qpn_shifted, units, request.flags).doorbell(),
            // SAFETY: `index` is below the WQEBB count.
            wqe: unsafe { self.buf.add(index * WQEBB) },
            units,
        }
    }
}

/// Returns the control segment of a send, which carries no fence but its own.
#[inline(always)]
fn control(counter: u16, qpn_shifted: u32, units: u32, flags: SendFlags) -> CtrlSegment {
    let flags = CtrlFlags::from_bits_truncate(flags.bits());
    CtrlSegment::new(WqeOpcode::Send, counter, qpn_shifted, units, flags, 0)
}
