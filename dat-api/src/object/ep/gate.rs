//! One call at a time on an endpoint, where the IA promises that: a spin lock,
//! since what it guards is short. Where the caller serialises, nothing.

use core::sync::atomic::{AtomicBool, Ordering};

/// Guards the posting half of an endpoint.
#[derive(Debug)]
pub(crate) struct Gate {
    threadsafe: bool,
    busy: AtomicBool,
}

/// The gate is ours until this is dropped.
pub(crate) struct Entered<'a>(&'a Gate);

impl Gate {
    pub(crate) const fn new(threadsafe: bool) -> Self {
        Self {
            threadsafe,
            busy: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    pub(crate) fn enter(&self) -> Entered<'_> {
        if self.threadsafe {
            self.spin();
        }
        Entered(self)
    }

    fn spin(&self) {
        let mut rounds = 0u32;
        while self.busy.swap(true, Ordering::Acquire) {
            rounds = rounds.saturating_add(1);
            if rounds < 100 {
                core::hint::spin_loop();
            } else {
                // The other may need this core.
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.threadsafe {
            self.0.busy.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn calls_on_a_threadsafe_endpoint_take_turns() {
        let (gate, count) = (Gate::new(true), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _entered = gate.enter();
                        // Two steps, which another thread would come between.
                        let before = count.load(Ordering::Relaxed);
                        core::hint::spin_loop();
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 40_000);
    }
}
