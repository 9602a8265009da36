//! The loop of `-o write`. The last byte of each write is a sequence number. The receiver
//! answers with an RDMA write when it has noticed the write: it polls that byte in its
//! memory, or (`SENDS`) polls for the receive of an empty send that follows each write.
//!
//! Only some devices promise that the last byte arrives last (see `crate::report`'s
//! `Arrival`). The send behind a write is received after it on every device, and through
//! every interface: uDAPL 1.2 and iWARP have no writes with immediate data.

use super::meter::Meter;
use super::side::{OtherSide, Side};
use crate::ends::{End, Stop, Watchdog};

/// Posts a write with this sequence number.
#[inline(always)]
pub(super) fn post<E: End, const SENDS: bool>(
    side: &mut Side<E>,
    sequence: u8,
) -> Result<(), Stop> {
    side.link.write_sequence(sequence);
    match SENDS {
        true => side.post_with_send(),
        false => side.post(),
    }
}

/// Returns whether the write with this sequence number has arrived.
#[inline(always)]
pub(super) fn has_arrived<E: End, const SENDS: bool>(
    side: &mut Side<E>,
    sequence: u8,
) -> Result<bool, Stop> {
    if !SENDS {
        return Ok(side.link.read_sequence() == sequence);
    }
    if !side.receive_empty()? {
        return Ok(false);
    }
    match side.link.read_sequence() == sequence {
        true => Ok(true),
        false => Err(Stop::Overtaken),
    }
}

/// Measures until the goal is reached. The last byte of both sides' memory must
/// be 0 at first.
pub(super) fn measure<E: End, const SENDS: bool>(
    side: &mut Side<E>,
    other_side: &mut impl OtherSide,
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    let mut sequence = 0u8;
    while meter.lap() {
        sequence = sequence.wrapping_add(1);
        post::<E, SENDS>(side, sequence)?;
        meter.record();
        while !has_arrived::<E, SENDS>(side, sequence)? {
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
pub(super) struct Responder<'a, 'p, E: End, const SENDS: bool> {
    pub(super) side: &'a mut Side<E>,
    pub(super) watchdog: Watchdog<'p>,
    /// Messages answered; the low byte is the last sequence number received.
    pub(super) answered: u64,
}

impl<'a, 'p, E: End, const SENDS: bool> Responder<'a, 'p, E, SENDS> {
    pub(super) fn new(side: &'a mut Side<E>, watchdog: Watchdog<'p>) -> Self {
        Self {
            side,
            watchdog,
            answered: 0,
        }
    }
}

impl<E: End, const SENDS: bool> OtherSide for Responder<'_, '_, E, SENDS> {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        // Both sides use the low byte of the count as the sequence number.
        let next = (self.answered + 1) as u8;
        if !has_arrived::<E, SENDS>(self.side, next)? {
            self.side.after_empty_poll(&mut self.watchdog)?;
            return Ok(false);
        }
        self.watchdog.reset();
        self.side.wait_for_credit(&mut self.watchdog)?;
        post::<E, SENDS>(self.side, next)?;
        self.answered += 1;
        Ok(true)
    }
}
