//! Waiting for another thread to finish something short.

use core::time::Duration;

/// The state of a loop that waits for another thread: the loop spins, then
/// yields the processor, then sleeps.
///
/// ```
/// use core::sync::atomic::{AtomicBool, Ordering};
/// use mlx5_rings::sync::Backoff;
///
/// fn wait_until(done: &AtomicBool) {
///     let mut backoff = Backoff::new();
///     while !done.load(Ordering::Acquire) {
///         backoff.wait();
///     }
/// }
/// # wait_until(&AtomicBool::new(true));
/// ```
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    const SPINS: u32 = 100;
    const YIELDS: u32 = 100;
    const SLEEP: Duration = Duration::from_micros(20);

    /// Returns the state for a loop that begins.
    pub const fn new() -> Self {
        Self { rounds: 0 }
    }

    /// Waits for a short time, which grows from call to call up to 20 µs.
    pub fn wait(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= Self::SPINS {
            core::hint::spin_loop();
        } else if self.rounds <= Self::SPINS + Self::YIELDS {
            // The other thread may need this processor.
            std::thread::yield_now();
        } else {
            // It may have a lower priority, for which a yield does not make room.
            std::thread::sleep(Self::SLEEP);
        }
    }
}
