//! Why a measuring loop stops early, and the timeout that ends a loop without
//! messages. The timeout is checked once in many empty polls.

use std::fmt;
use std::time::{Duration, Instant};

use super::link::Fault;
use crate::exchange::Peer;

/// Why a measuring loop stopped early. `Copy`, because it is created in
/// measured code, which must not allocate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stop {
    /// The control connection has a message, or was closed.
    News,
    /// Neither message nor completion for this long.
    Silence(Duration),
    /// A request was not posted, or failed.
    Fault(Fault),
    /// A received message has an unexpected length.
    Length {
        /// The message size of this run, bytes.
        expected: u32,
        /// The received length, bytes.
        came: u32,
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
            Self::News => write!(f, "the other side sent an unexpected control message"),
            Self::Silence(limit) => write!(
                f,
                "no message and no completion for {} s: is the other side still running, and the link up? (--timeout waits longer)",
                limit.as_secs_f64()
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::Length { expected, came } => {
                write!(
                    f,
                    "received {came} bytes, but {expected} were sent: the data path loses data"
                )
            }
        }
    }
}

/// Counts empty polls, and checks the timeout and the control connection once
/// in many of them.
pub(super) struct Patience<'a> {
    empty: u32,
    /// Number of polls between two checks, a power of two, minus 1.
    mask: u32,
    /// Time of the first check since the last message or completion.
    since: Option<Instant>,
    limit: Duration,
    peer: Option<&'a Peer>,
}

impl<'a> Patience<'a> {
    /// Polls between two checks: less than a millisecond.
    const LOOK_UP: u32 = 1 << 14;

    /// `peer` is `None` with `--loopback`.
    pub(super) fn new(limit: Duration, peer: Option<&'a Peer>) -> Self {
        Self::looking_up(Self::LOOK_UP, limit, peer)
    }

    /// For calls that wait up to a timeout themselves: checks after each.
    pub(super) fn of_waits(limit: Duration, peer: Option<&'a Peer>) -> Self {
        Self::looking_up(1, limit, peer)
    }

    fn looking_up(every: u32, limit: Duration, peer: Option<&'a Peer>) -> Self {
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
    pub(super) fn renew(&mut self) {
        self.empty = 0;
        self.since = None;
    }

    /// Counts an empty poll. Returns whether the caller must call [`Self::look_up`].
    #[inline(always)]
    pub(super) fn tick(&mut self) -> bool {
        self.empty += 1;
        self.empty & self.mask == 0
    }

    /// Checks the control connection and the timeout.
    #[cold]
    pub(super) fn look_up(&mut self) -> Result<(), Stop> {
        self.empty = 0;
        if self.peer.is_some_and(Peer::has_news) {
            return Err(Stop::News);
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= self.limit {
            return Err(Stop::Silence(self.limit));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_ends_the_loop_and_a_message_restarts_it() {
        let mut patience = Patience::new(Duration::ZERO, None);
        assert_eq!(patience.look_up(), Err(Stop::Silence(Duration::ZERO)));
        let mut patience = Patience::new(Duration::from_secs(1000), None);
        assert_eq!(patience.look_up(), Ok(()));
        assert!(patience.since.is_some());
        patience.renew();
        assert!(patience.since.is_none());
    }

    #[test]
    fn checks_are_due_once_in_many_polls_and_after_every_wait() {
        let mut patience = Patience::new(Duration::from_secs(1000), None);
        let times = (0..Patience::LOOK_UP * 3)
            .filter(|_| patience.tick())
            .count();
        assert_eq!(times, 3);
        let mut patience = Patience::of_waits(Duration::from_secs(1000), None);
        assert!((0..3).all(|_| patience.tick()));
    }
}
