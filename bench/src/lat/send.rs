//! The loop of `-o send`: a send into a posted receive, answered by a send.

use super::link::Link;
use super::meter::Meter;
use super::patience::{Patience, Stop};
use super::side::{Partner, Side};

/// Measures until the goal is reached.
pub(super) fn measure<L: Link>(
    side: &mut Side<L>,
    partner: &mut impl Partner,
    meter: &mut Meter<'_>,
    patience: &mut Patience<'_>,
) -> Result<(), Stop> {
    while meter.lap() {
        side.post()?;
        meter.note();
        while !side.receive()? {
            partner.step()?;
            side.idle(patience)?;
        }
        patience.renew();
        side.make_room(patience)?;
    }
    meter.note();
    side.settle(patience)
}

/// Answers each message with one of the same size.
pub(super) struct Responder<'a, 'p, L> {
    pub(super) side: &'a mut Side<L>,
    pub(super) patience: Patience<'p>,
    /// Messages answered.
    pub(super) answered: u64,
}

impl<L: Link> Partner for Responder<'_, '_, L> {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        if !self.side.receive()? {
            self.side.idle(&mut self.patience)?;
            return Ok(false);
        }
        self.patience.renew();
        self.side.make_room(&mut self.patience)?;
        self.side.post()?;
        self.answered += 1;
        Ok(true)
    }
}
