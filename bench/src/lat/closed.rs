//! The closed loop: one message in flight, and the responder that answers it.

use std::marker::PhantomData;

use super::messages::Messages;
use super::meter::Meter;
use super::side::Side;
use crate::ends::{End, Stop, Watchdog};

/// Measures until the goal is reached.
pub(super) fn measure<M: Messages, E: End>(
    side: &mut Side<E>,
    other_side: &mut impl OtherSide,
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    let mut number = 0;
    let checks = M::NUMBERED && side.link.checks();
    if checks {
        side.link.fill(1);
    }
    while meter.lap() {
        number += 1;
        M::post(side, number)?;
        meter.record();
        while !M::has_arrived(side, number)? {
            other_side.step()?;
            M::after_empty_poll(side, watchdog)?;
        }
        watchdog.reset();
        side.wait_for_credit(watchdog)?;
        if checks {
            meter.exclude(|| {
                side.link.check(number)?;
                side.link.fill(number + 1);
                other_side.settle()
            })?;
        }
    }
    meter.record();
    side.drain(watchdog)
}

/// Measures from answer to answer, where the other side begins: perftest's server does in a
/// ping-pong of writes.
pub(super) fn follow<M: Messages, E: End>(
    side: &mut Side<E>,
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    let mut number = 0;
    while meter.lap() {
        number += 1;
        while !M::has_arrived(side, number)? {
            M::after_empty_poll(side, watchdog)?;
        }
        watchdog.reset();
        side.wait_for_credit(watchdog)?;
        M::post(side, number)?;
        meter.record();
    }
    meter.record();
    side.drain(watchdog)
}

/// The responder, as the measuring loop sees it.
///
/// With `--loopback` the measuring loop calls it at every empty poll. A
/// responder in another process runs by itself: [`Remote`].
pub(super) trait OtherSide {
    /// Answers the next message, if it has arrived. Returns whether it had.
    fn step(&mut self) -> Result<bool, Stop>;

    /// Checks the message that was answered last, and prepares the next answer. So both are done
    /// after an answer was sent, and not before.
    fn settle(&mut self) -> Result<(), Stop>;
}

/// A responder in another process.
pub(super) struct Remote;

impl OtherSide for Remote {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        Ok(false)
    }

    #[inline(always)]
    fn settle(&mut self) -> Result<(), Stop> {
        Ok(())
    }
}

/// Answers each message with one of the same size and number.
pub(super) struct Responder<'a, 'p, M, E: End> {
    pub(super) side: &'a mut Side<E>,
    watchdog: Watchdog<'p>,
    /// Messages answered.
    pub(super) answered: u64,
    messages: PhantomData<M>,
}

impl<'a, 'p, M: Messages, E: End> Responder<'a, 'p, M, E> {
    pub(super) fn new(side: &'a mut Side<E>, watchdog: Watchdog<'p>) -> Self {
        if M::NUMBERED && M::ARE_ANSWERED && side.link.checks() {
            side.link.fill(1);
        }
        Self {
            side,
            watchdog,
            answered: 0,
            messages: PhantomData,
        }
    }

    /// Answers messages until the control connection has a message.
    pub(super) fn serve(&mut self) -> Result<(), Stop> {
        loop {
            match self.step() {
                Ok(true) => self.settle()?,
                Ok(false) => {}
                Err(Stop::ControlMessage) => return Ok(()),
                Err(stop) => return Err(stop),
            }
        }
    }
}

impl<M: Messages, E: End> OtherSide for Responder<'_, '_, M, E> {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        if !M::ARE_ANSWERED {
            return Ok(false);
        }
        let next = self.answered + 1;
        if !M::has_arrived(self.side, next)? {
            self.side.after_empty_poll(&mut self.watchdog)?;
            return Ok(false);
        }
        self.watchdog.reset();
        self.side.wait_for_credit(&mut self.watchdog)?;
        M::post(self.side, next)?;
        self.answered = next;
        Ok(true)
    }

    #[inline(always)]
    fn settle(&mut self) -> Result<(), Stop> {
        if M::NUMBERED && M::ARE_ANSWERED && self.side.link.checks() {
            self.side.link.check(self.answered)?;
            self.side.link.fill(self.answered + 1);
        }
        Ok(())
    }
}
