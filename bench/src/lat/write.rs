//! The loop of `-o write`: a write is seen by the last byte of memory, which
//! carries a sequence number; the answer is a write.
//!
//! That the last byte arrives last is no promise of the InfiniBand
//! architecture, but of every device that perftest's `ib_write_lat` runs on.

use super::link::Link;
use super::meter::Meter;
use super::patience::{Patience, Stop};
use super::side::{Partner, Side};

/// Measures until the goal is reached. Both sides' memory must end in 0 before.
pub(super) fn measure<L: Link>(
    side: &mut Side<L>,
    partner: &mut impl Partner,
    meter: &mut Meter<'_>,
    patience: &mut Patience<'_>,
) -> Result<(), Stop> {
    let mut sequence = 0u8;
    while meter.lap() {
        sequence = sequence.wrapping_add(1);
        side.link.stamp(sequence);
        side.post()?;
        meter.note();
        while side.link.arrived() != sequence {
            partner.step()?;
            side.idle(patience)?;
        }
        patience.renew();
        side.make_room(patience)?;
    }
    meter.note();
    side.settle(patience)
}

/// Answers each write by one of the same size and sequence number.
pub(super) struct Responder<'a, 'p, L> {
    pub(super) side: &'a mut Side<L>,
    pub(super) patience: Patience<'p>,
    /// Messages answered; its low byte is the last sequence number seen.
    pub(super) answered: u64,
}

impl<L: Link> Partner for Responder<'_, '_, L> {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        // The low byte of the count is the sequence number, as at the other side.
        let next = (self.answered + 1) as u8;
        if self.side.link.arrived() != next {
            self.side.idle(&mut self.patience)?;
            return Ok(false);
        }
        self.patience.renew();
        self.side.make_room(&mut self.patience)?;
        self.side.link.stamp(next);
        self.side.post()?;
        self.answered += 1;
        Ok(true)
    }
}
