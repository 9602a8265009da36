//! The loop of `-o write`: the receiver polls the last byte of its memory, which
//! is a sequence number, and answers with an RDMA write.
//!
//! The InfiniBand architecture does not promise that the last byte arrives last.
//! Devices on which perftest's `ib_write_lat` works behave so.

use super::link::Link;
use super::meter::Meter;
use super::patience::{Patience, Stop};
use super::side::{Partner, Side};

/// Measures until the goal is reached. The last byte of both sides' memory must
/// be 0 at first.
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

/// Answers each write with one of the same size and sequence number.
pub(super) struct Responder<'a, 'p, L> {
    pub(super) side: &'a mut Side<L>,
    pub(super) patience: Patience<'p>,
    /// Messages answered; the low byte is the last sequence number received.
    pub(super) answered: u64,
}

impl<L: Link> Partner for Responder<'_, '_, L> {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        // Both sides use the low byte of the count as the sequence number.
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
