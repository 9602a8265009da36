//! One side: its endpoints, and the turns in which they send and receive.

use super::flow::Flow;
use super::meter::Meter;
use super::pass::Pass;
use crate::ends::{End, Stop, Watchdog};
use crate::failure::Failure;

/// The endpoints of one side.
pub(super) struct Side<E: End> {
    pub(super) flows: Vec<Flow<E>>,
    /// Whether this side takes messages.
    pub(super) receives: bool,
}

/// The messages that one side sends in a phase.
pub(super) struct Sending {
    pub(super) meter: Meter,
    is_over: bool,
}

impl<E: End> Side<E> {
    /// Prepares the memory and the counters of all endpoints for a pass with post lists of this
    /// length.
    pub(super) fn prepare(&mut self, pass: Pass, list: u32) {
        for flow in &mut self.flows {
            flow.link.prepare(pass.size);
            flow.reset(pass.size, list, pass.moderation);
        }
    }

    /// Compares the bytes that have arrived at all endpoints with those sent.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        self.flows.iter().try_for_each(|flow| flow.link.verify())
    }

    /// Begins a phase, in which each endpoint posts this many messages, or as many as
    /// the meter's time allows.
    pub(super) fn begin(&mut self, messages: u64, mut meter: Meter) -> Sending {
        self.flows.iter_mut().for_each(|it| it.post_more(messages));
        meter.begin();
        Sending {
            meter,
            is_over: messages == 0,
        }
    }

    /// Makes one turn: completions, messages that have arrived, posts. Returns whether
    /// anything has happened.
    #[inline(always)]
    pub(super) fn turn<const NUMBERED: bool>(
        &mut self,
        sending: &mut Sending,
    ) -> Result<bool, Stop> {
        let mut has_moved = false;
        let begin = sending.meter.begin_turn();
        let ends = !sending.is_over && sending.meter.is_over();
        let mut has_sent_all = true;
        for flow in &mut self.flows {
            if ends {
                flow.stop();
            }
            has_moved |= flow.collect::<NUMBERED>(&mut sending.meter)?;
            if self.receives {
                has_moved |= flow.receive::<NUMBERED>()?;
            }
            if !sending.is_over {
                has_moved |= flow.transmit::<NUMBERED>(&mut sending.meter)?;
                has_sent_all &= flow.has_sent_all();
            }
        }
        if !sending.is_over {
            if !has_moved {
                sending.meter.end_idle_turn(begin);
            }
            if has_sent_all {
                sending.meter.end();
                sending.is_over = true;
            }
        }
        Ok(has_moved)
    }

    /// Returns the number of messages posted in this pass.
    pub(super) fn posted(&self) -> u64 {
        self.flows.iter().map(Flow::posted).sum()
    }

    /// Returns the number of messages taken in this pass.
    pub(super) fn taken(&self) -> u64 {
        self.flows.iter().map(Flow::taken).sum()
    }

    /// Returns whether no request is outstanding, grants included.
    pub(super) fn is_idle(&self) -> bool {
        self.flows.iter().all(Flow::is_idle)
    }
}

impl Sending {
    /// Returns whether all messages of the phase are complete.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Makes turns until `is_over` says so. Both return what they say of one or of two
/// sides.
#[inline(always)]
pub(super) fn drive<S>(
    state: &mut S,
    watchdog: &mut Watchdog<'_>,
    mut turn: impl FnMut(&mut S) -> Result<bool, Stop>,
    is_over: impl Fn(&S) -> bool,
) -> Result<(), Stop> {
    while !is_over(state) {
        if turn(state)? {
            watchdog.reset();
        } else if watchdog.tick() {
            watchdog.check()?;
        }
    }
    Ok(())
}
