//! Why a measuring loop stops early, and the timeout that ends a loop without
//! messages. The timeout is checked once in many empty polls.

use std::fmt;
use std::time::{Duration, Instant};

use super::end::Fault;
use super::pattern::Mismatch;
use crate::exchange::Peer;

/// Why a measuring loop stopped early. `Copy`, because it is created in
/// measured code, which must not allocate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stop {
    /// The control connection has a message, or was closed.
    ControlMessage,
    /// Neither message nor completion for this long.
    Timeout(Duration),
    /// A request was not posted, or failed.
    Fault(Fault),
    /// The send behind a write was received, but the write was not.
    Overtaken,
    /// A byte of a checked message differs.
    Corrupted { number: u64, mismatch: Mismatch },
    /// A message brought an unexpected value.
    Value {
        /// What it brings.
        what: &'static str,
        number: u64,
        expected: u64,
        found: u64,
    },
    /// A received message has an unexpected length.
    Length {
        /// The message size of this run, bytes.
        expected: u32,
        /// The received length, bytes.
        received: u32,
    },
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlMessage => write!(f, "the other side sent an unexpected control message"),
            Self::Timeout(limit) => write!(
                f,
                "no message and no completion for {} s: is the other side still running, and the link up? (--timeout waits longer)",
                limit.as_secs_f64()
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::Overtaken => write!(
                f,
                "the message behind an RDMA write was received before the write was in memory: the data path breaks their order"
            ),
            Self::Corrupted { number, mismatch } => write!(
                f,
                "message {number}: {mismatch}: the data path corrupts, loses or repeats data"
            ),
            Self::Value {
                what,
                number,
                expected,
                found,
            } => write!(
                f,
                "message {number}: {what} is {found} instead of {expected}: the data path changes, loses or repeats messages"
            ),
            Self::Length { expected, received } => {
                write!(
                    f,
                    "received {received} bytes, but {expected} were sent: the data path loses data"
                )
            }
        }
    }
}

/// Counts empty polls, and checks the timeout and the control connection once
/// in many of them.
pub(crate) struct Watchdog<'a> {
    empty: u32,
    /// Number of polls between two checks, a power of two, minus 1.
    mask: u32,
    /// Time of the first check since the last message or completion.
    since: Option<Instant>,
    limit: Duration,
    peer: Option<&'a Peer>,
}

impl<'a> Watchdog<'a> {
    /// Polls between two checks: less than a millisecond.
    const POLLS_PER_CHECK: u32 = 1 << 14;

    /// `peer` is `None` with `--loopback`.
    pub(crate) fn new(limit: Duration, peer: Option<&'a Peer>) -> Self {
        Self::checking(Self::POLLS_PER_CHECK, limit, peer)
    }

    /// For calls that wait up to a timeout themselves: checks after each.
    pub(crate) fn for_waits(limit: Duration, peer: Option<&'a Peer>) -> Self {
        Self::checking(1, limit, peer)
    }

    fn checking(every: u32, limit: Duration, peer: Option<&'a Peer>) -> Self {
        debug_assert!(every.is_power_of_two());
        Self {
            empty: 0,
            mask: every - 1,
            since: None,
            limit,
            peer,
        }
    }

    /// Restarts the timeout, after a message or completion.
    #[inline(always)]
    pub(crate) fn reset(&mut self) {
        self.empty = 0;
        self.since = None;
    }

    /// Counts an empty poll. Returns whether the caller must call [`Self::check`].
    #[inline(always)]
    pub(crate) fn tick(&mut self) -> bool {
        self.empty += 1;
        self.empty & self.mask == 0
    }

    /// Checks the control connection and the timeout.
    #[cold]
    pub(crate) fn check(&mut self) -> Result<(), Stop> {
        self.empty = 0;
        if self.peer.is_some_and(Peer::has_message) {
            return Err(Stop::ControlMessage);
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= self.limit {
            return Err(Stop::Timeout(self.limit));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_ends_the_loop_and_a_message_restarts_it() {
        let mut watchdog = Watchdog::new(Duration::ZERO, None);
        assert_eq!(watchdog.check(), Err(Stop::Timeout(Duration::ZERO)));
        let mut watchdog = Watchdog::new(Duration::from_secs(1000), None);
        assert_eq!(watchdog.check(), Ok(()));
        assert!(watchdog.since.is_some());
        watchdog.reset();
        assert!(watchdog.since.is_none());
    }

    #[test]
    fn checks_are_due_once_in_many_polls_and_after_every_wait() {
        let mut watchdog = Watchdog::new(Duration::from_secs(1000), None);
        let times = (0..Watchdog::POLLS_PER_CHECK * 3)
            .filter(|_| watchdog.tick())
            .count();
        assert_eq!(times, 3);
        let mut watchdog = Watchdog::for_waits(Duration::from_secs(1000), None);
        assert!((0..3).all(|_| watchdog.tick()));
    }
}
