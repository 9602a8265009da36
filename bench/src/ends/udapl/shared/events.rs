//! EVDs.

use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::abi::*;
use super::{Adapter, described};
use crate::failure::Failure;

/// An EVD; freed when dropped.
pub(crate) struct Queue {
    pub(crate) evd: DAT_EVD_HANDLE,
    pub(crate) adapter: Rc<Adapter>,
}

impl Queue {
    /// Waits for a control event. `what` is its name in error messages.
    pub(crate) fn await_event(&self, within: Duration, what: &str) -> Result<DAT_EVENT, Failure> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut event = MaybeUninit::<DAT_EVENT>::zeroed();
            let mut more = 0;
            // SAFETY: an EVD; event and count are local variables that are written.
            let answer = unsafe {
                (self.adapter.calls.evd_wait)(
                    self.evd,
                    micros(left),
                    1,
                    event.as_mut_ptr(),
                    &raw mut more,
                )
            };
            match answer & DAT_TYPE_MASK {
                // SAFETY: the call succeeded, so it has written the event.
                DAT_SUCCESS => return Ok(unsafe { event.assume_init() }),
                DAT_INTERRUPTED_CALL => {}
                DAT_TIMEOUT_EXPIRED => return Err(Failure::timed_out(what, within)),
                _ => {
                    return Err(Failure::run(format!(
                        "waiting for {what}: dat_evd_wait returned {}",
                        described(answer)
                    )));
                }
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: an EVD that no object reports to any more (order of fields), freed once.
        unsafe { (self.adapter.calls.evd_free)(self.evd) };
    }
}

/// Converts to DAT's microseconds. The largest value would mean "no timeout".
#[inline(always)]
pub(crate) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).map_or(u32::MAX - 1, |micros| micros.min(u32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_never_converted_to_infinity() {
        assert_eq!(micros(Duration::from_millis(50)), 50_000);
        assert_eq!(micros(Duration::MAX), u32::MAX - 1);
    }
}
