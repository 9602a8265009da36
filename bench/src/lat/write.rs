//! The loop of `-o write`: the receiver polls the last byte of its memory, which
//! is a sequence number, and answers with an RDMA write.
//!
//! The InfiniBand architecture does not promise that the last byte arrives last.
//! Devices on which perftest's `ib_write_lat` works behave so.

use super::meter::Meter;
use super::side::{OtherSide, Side};
use crate::ends::{Link, Stop, Watchdog};

/// Measures until the goal is reached. The last byte of both sides' memory must
/// be 0 at first.
pub(super) fn measure<L: Link>(
    side: &mut Side<L>,
    other_side: &mut impl OtherSide,
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    let mut sequence = 0u8;
    while meter.lap() {
        sequence = sequence.wrapping_add(1);
        side.link.write_sequence(sequence);
        side.post()?;
        meter.record();
        while side.link.read_sequence() != sequence {
            other_side.step()?;
            side.after_empty_poll(watchdog)?;
        }
        watchdog.reset();
        side.wait_for_credit(watchdog)?;
    }
    meter.record();
    side.drain(watchdog)
}

/// Answers each write with one of the same size and sequence number.
pub(super) struct Responder<'a, 'p, L> {
    pub(super) side: &'a mut Side<L>,
    pub(super) watchdog: Watchdog<'p>,
    /// Messages answered; the low byte is the last sequence number received.
    pub(super) answered: u64,
}

impl<L: Link> OtherSide for Responder<'_, '_, L> {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        // Both sides use the low byte of the count as the sequence number.
        let next = (self.answered + 1) as u8;
        if self.side.link.read_sequence() != next {
            self.side.after_empty_poll(&mut self.watchdog)?;
            return Ok(false);
        }
        self.watchdog.reset();
        self.side.wait_for_credit(&mut self.watchdog)?;
        self.side.link.write_sequence(next);
        self.side.post()?;
        self.answered += 1;
        Ok(true)
    }
}
