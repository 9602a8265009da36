//! The closed loop: one message in flight, and the responder that answers it.

use std::marker::PhantomData;

use super::messages::Messages;
use super::meter::Meter;
use super::side::{Side, Turn, drain};
use crate::ends::{End, Stop, Watchdog};

/// Measures until the goal is reached. Returns the turn of the next message.
pub(super) fn measure<M: Messages, E: End>(
    sides: &mut [Side<E>],
    other_side: &mut impl OtherSide,
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<Turn, Stop> {
    let (mut turn, endpoints) = (Turn::FIRST, sides.len());
    let checks = fill_first::<M, E>(sides);
    while meter.lap() {
        let (side, number) = (&mut sides[turn.endpoint], turn.number);
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
        turn = M::next(turn, endpoints);
    }
    meter.record();
    drain(sides, watchdog)?;
    Ok(turn)
}

/// Prepares the first message of each endpoint, if messages are checked. Returns whether they are.
fn fill_first<M: Messages, E: End>(sides: &mut [Side<E>]) -> bool {
    let checks = M::NUMBERED && sides[0].link.checks();
    if checks {
        sides.iter_mut().for_each(|side| side.link.fill(1));
    }
    checks
}

/// Measures from answer to answer, where the other side begins: perftest's server does in a
/// ping-pong of writes.
pub(super) fn follow<M: Messages, E: End>(
    sides: &mut [Side<E>],
    meter: &mut Meter<'_>,
    watchdog: &mut Watchdog<'_>,
) -> Result<Turn, Stop> {
    let (mut turn, endpoints) = (Turn::FIRST, sides.len());
    while meter.lap() {
        let (side, number) = (&mut sides[turn.endpoint], turn.number);
        while !M::has_arrived(side, number)? {
            M::after_empty_poll(side, watchdog)?;
        }
        watchdog.reset();
        side.wait_for_credit(watchdog)?;
        M::post(side, number)?;
        turn = M::next(turn, endpoints);
        meter.record();
    }
    meter.record();
    drain(sides, watchdog)?;
    Ok(turn)
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
    pub(super) sides: &'a mut [Side<E>],
    watchdog: Watchdog<'p>,
    /// Messages answered.
    pub(super) answered: u64,
    /// The turns of the last message, which is not yet checked, and of the next one.
    last: Turn,
    pub(super) next: Turn,
    checks: bool,
    messages: PhantomData<M>,
}

impl<'a, 'p, M: Messages, E: End> Responder<'a, 'p, M, E> {
    pub(super) fn new(sides: &'a mut [Side<E>], watchdog: Watchdog<'p>) -> Self {
        Self {
            checks: M::ARE_ANSWERED && fill_first::<M, E>(sides),
            sides,
            watchdog,
            answered: 0,
            last: Turn::FIRST,
            next: Turn::FIRST,
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
        let turn = self.next;
        let side = &mut self.sides[turn.endpoint];
        if !M::has_arrived(side, turn.number)? {
            side.after_empty_poll(&mut self.watchdog)?;
            return Ok(false);
        }
        self.watchdog.reset();
        side.wait_for_credit(&mut self.watchdog)?;
        M::post(side, turn.number)?;
        self.answered += 1;
        (self.last, self.next) = (turn, M::next(turn, self.sides.len()));
        Ok(true)
    }

    #[inline(always)]
    fn settle(&mut self) -> Result<(), Stop> {
        if M::NUMBERED && self.checks {
            let Turn { endpoint, number } = self.last;
            let link = &mut self.sides[endpoint].link;
            link.check(number)?;
            link.fill(number + 1);
        }
        Ok(())
    }
}
