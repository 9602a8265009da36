//! Why a loop stops before its goal, and the check that keeps it from
//! spinning for ever: off the fast path, once in many empty polls.

use std::fmt;
use std::time::{Duration, Instant};

use super::link::Fault;
use crate::exchange::Peer;

/// Why a measuring loop stopped early. Copied, not allocated: it is made where
/// messages are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stop {
    /// The control connection has something to say: the end, a reason, or
    /// that the other side is gone.
    News,
    /// Nothing came for this long.
    Silence(Duration),
    /// A request was not posted, or failed.
    Fault(Fault),
    /// A message of another length than this came.
    Length {
        /// What the size of this run is, bytes.
        expected: u32,
        /// What came, bytes.
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
            Self::News => write!(f, "the other side spoke out of turn"),
            Self::Silence(limit) => write!(
                f,
                "no message and no completion for {} s; is the other side still running, and the link up? (--timeout waits longer)",
                limit.as_secs_f64()
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::Length { expected, came } => {
                write!(f, "{came} bytes came where {expected} were sent")
            }
        }
    }
}

/// Counts empty polls; looks up once in many of them.
pub(super) struct Patience<'a> {
    empty: u32,
    /// The polls between two looks, a power of two, less one.
    mask: u32,
    /// When the present silence was first looked at.
    since: Option<Instant>,
    limit: Duration,
    peer: Option<&'a Peer>,
}

impl<'a> Patience<'a> {
    /// A fraction of a millisecond of empty polls.
    const LOOK_UP: u32 = 1 << 14;

    /// `peer` is none where both sides are in this process.
    pub(super) fn new(limit: Duration, peer: Option<&'a Peer>) -> Self {
        Self::looking_up(Self::LOOK_UP, limit, peer)
    }

    /// For polls that wait for a while themselves: looks up after each.
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

    /// Something came.
    #[inline(always)]
    pub(super) fn renew(&mut self) {
        self.empty = 0;
        self.since = None;
    }

    /// Nothing came; whether it is time to look up.
    #[inline(always)]
    pub(super) fn tick(&mut self) -> bool {
        self.empty += 1;
        self.empty & self.mask == 0
    }

    /// Looks up from the rings.
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
    fn silence_ends_and_a_message_renews_patience() {
        let mut patience = Patience::new(Duration::ZERO, None);
        assert_eq!(patience.look_up(), Err(Stop::Silence(Duration::ZERO)));
        let mut patience = Patience::new(Duration::from_secs(1000), None);
        assert_eq!(patience.look_up(), Ok(()));
        assert!(patience.since.is_some());
        patience.renew();
        assert!(patience.since.is_none());
    }

    #[test]
    fn it_looks_up_once_in_many_empty_polls() {
        let mut patience = Patience::new(Duration::from_secs(1000), None);
        let times = (0..Patience::LOOK_UP * 3)
            .filter(|_| patience.tick())
            .count();
        assert_eq!(times, 3);
        let mut patience = Patience::of_waits(Duration::from_secs(1000), None);
        assert!((0..3).all(|_| patience.tick()));
    }
}
