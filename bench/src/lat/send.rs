//! The loop of `-o send`: a send into a posted receive, answered by a send.

use super::meter::Meter;
use super::side::{OtherSide, Side};
use crate::ends::{End, Stop, Watchdog};

/// Measures until the goal is reached.
pub(super) fn measure<E: End>(
    side: &mut Side<E>,
    other_side: &mut impl OtherSide,
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    while meter.lap() {
        side.post()?;
        meter.record();
        while !side.receive()? {
            other_side.step()?;
            side.after_empty_poll(watchdog)?;
        }
        watchdog.reset();
        side.wait_for_credit(watchdog)?;
    }
    meter.record();
    side.drain(watchdog)
}

/// Answers each message with one of the same size.
pub(super) struct Responder<'a, 'p, E: End> {
    pub(super) side: &'a mut Side<E>,
    pub(super) watchdog: Watchdog<'p>,
    /// Messages answered.
    pub(super) answered: u64,
}

impl<E: End> OtherSide for Responder<'_, '_, E> {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        if !self.side.receive()? {
            self.side.after_empty_poll(&mut self.watchdog)?;
            return Ok(false);
        }
        self.watchdog.reset();
        self.side.wait_for_credit(&mut self.watchdog)?;
        self.side.post()?;
        self.answered += 1;
        Ok(true)
    }
}
