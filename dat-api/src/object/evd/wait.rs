//! Waiting for events.

mod usual;

use std::os::fd::BorrowedFd;

use dat_engine::ControlError;
use dat_engine::wait::{Deadline, Source, WaitOutcome};

use super::Evd;
use super::consumer::Consumer;
use super::exclusive::open;
use super::streams::Attribute;
use super::take::DEAD;
use crate::handle::Owned;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::Event;

const FAILED: DatReturn = DatReturn::error(ReturnType::InternalError, Subtype::NoSubtype);
const INTERRUPTED: DatReturn = DatReturn::error(ReturnType::InterruptedCall, Subtype::NoSubtype);
const TIMED_OUT: DatReturn = DatReturn::error(ReturnType::TimeoutExpired, Subtype::NoSubtype);

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// As long as it takes.
    Infinite,
    /// So many microseconds; 0 looks once.
    Micros(u32),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The first event, or why there is none.
    pub result: Result<Event, DatReturn>,
    /// Events that are left. Meaningful with an event, `TIMEOUT_EXPIRED` and
    /// `INTERRUPTED_CALL`.
    pub nmore: u32,
}

impl From<DatReturn> for Waited {
    fn from(error: DatReturn) -> Self {
        Self {
            result: Err(error),
            nmore: 0,
        }
    }
}

/// Waits until `threshold` events are there, and takes the first.
///
/// An EVD whose streams control notification ([`super::Notification::PerPost`]
/// with unsignalled posts, [`super::Notification::Solicited`]): events that are there when
/// the wait begins end it, whatever they are; once it sleeps, only those that
/// notify do. Quiet ones that have come by then are found when the time is up.
///
/// Completions may not tell whether they were solicited (the verbs path): then
/// only the device's event does. Such a wait does not spin, and what comes with
/// an event, or just before the wait could have had one, counts as solicited.
pub fn wait(owned: &mut Owned<Evd>, timeout: Timeout, threshold: i32) -> Waited {
    let handle = owned.handle();
    let (evd, consumer) = open(owned);
    // Read before the state is: a closing that the check below does not see is
    // seen by the wait.
    let closings = evd.switches.closings();
    let threshold = match evd.check_wait(threshold) {
        Ok(threshold) => threshold,
        Err(error) => return error.into(),
    };
    let mut deadline = match timeout {
        Timeout::Micros(micros) => Deadline::from_micros(u64::from(micros)),
        Timeout::Infinite => Deadline::NEVER,
    };
    if threshold == 1
        && let Some(waited) = usual::wait(evd, consumer, closings, &mut deadline)
    {
        return waited;
    }
    let mut waiting = Waiting {
        evd,
        consumer,
        threshold,
        closings,
        notified: true,
        asked: 0,
        listening: 0,
        evented: false,
        failure: None,
    };
    let outcome = waiting.run(&mut deadline);
    let refused = |kind, subtype| DatReturn::error(kind, subtype).into();
    if evd.switches.is_aborted() {
        return refused(ReturnType::Abort, Subtype::NoSubtype);
    }
    if evd.switches.closings() != closings {
        return refused(ReturnType::InvalidState, Subtype::InvalidStateEvdUnwaitable);
    }
    if evd.switches.is_dead() {
        return DEAD.into();
    }
    let known = consumer.known(evd);
    let end = match outcome {
        Err(_) => return FAILED.into(),
        Ok(WaitOutcome::Interrupted) => INTERRUPTED,
        Ok(WaitOutcome::Ready | WaitOutcome::TimedOut) if known >= threshold => {
            match consumer.next(evd) {
                Some(data) => {
                    return Waited {
                        result: Ok(Event { evd: handle, data }),
                        nmore: nmore(consumer.known(evd)),
                    };
                }
                None => FAILED,
            }
        }
        Ok(WaitOutcome::Ready | WaitOutcome::TimedOut) => TIMED_OUT,
    };
    Waited {
        result: Err(end),
        nmore: nmore(known),
    }
}

fn nmore(known: usize) -> u32 {
    u32::try_from(known).unwrap_or(u32::MAX)
}

impl Evd {
    fn check_wait(&self, threshold: i32) -> Result<usize, DatReturn> {
        let asked = u32::try_from(threshold).unwrap_or(0);
        if asked == 0 || asked > self.queue_length() {
            return Err(DatReturn::error(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg3,
            ));
        }
        if self.switches.is_dead() {
            return Err(DEAD);
        }
        let state = |subtype| Err(DatReturn::error(ReturnType::InvalidState, subtype));
        if !self.switches.is_waitable() {
            return state(Subtype::InvalidStateEvdUnwaitable);
        }
        match self.switches.attribute() {
            Some(Attribute::Unsignalled) if asked != 1 => {
                state(Subtype::InvalidStateEvdConfigNotify)
            }
            Some(Attribute::Solicited) if asked != 1 => {
                state(Subtype::InvalidStateEvdConfigSolicited)
            }
            _ => Ok(asked as usize),
        }
    }
}

/// One wait under way.
struct Waiting<'a> {
    evd: &'a Evd,
    consumer: &'a mut Consumer,
    threshold: usize,
    /// How often the EVD had been made unwaitable when the wait began.
    closings: u32,
    /// Something that notifies has come. At the first look, everything does.
    notified: bool,
    /// Queues that the device was asked for events of, since the last look.
    asked: usize,
    /// Queues that the device was asked for events of before the last look, and
    /// has sent none of: what they bring at the next look and was solicited,
    /// raises an event. What other queues bring may have come too early.
    listening: usize,
    /// The device has sent an event since the last look.
    evented: bool,
    /// The device cannot be asked for an event.
    failure: Option<ControlError>,
}

impl Waiting<'_> {
    /// Whether only events of the device tell what notifies.
    fn is_blind(&self) -> bool {
        self.evd.switches.attribute() == Some(Attribute::Solicited)
            && !self.consumer.tells_solicited()
    }

    /// Whether the EVD was closed to waiters, or is going.
    fn is_stopped(&self) -> bool {
        let switches = &self.evd.switches;
        switches.is_over() || switches.closings() != self.closings
    }

    fn run(&mut self, deadline: &mut Deadline) -> Result<WaitOutcome, ControlError> {
        // Another call that finds the EVD owned may as well try again, unless
        // this one blocks.
        if self.ready() {
            return Ok(WaitOutcome::Ready);
        }
        if deadline.is_now() {
            return Ok(WaitOutcome::TimedOut);
        }
        self.notified = false;
        self.consumer.awaited = self.threshold;
        // However it ends, there was a look for events just before.
        let outcome = self.evd.wait_for(self, deadline);
        self.consumer.awaited = 0;
        match (outcome, self.failure.take()) {
            (Ok(WaitOutcome::Ready), Some(error))
                if self.consumer.known(self.evd) < self.threshold =>
            {
                tracing::error!(evd = ?self.evd.handle, "waiting failed: {error}");
                Err(error)
            }
            (outcome, _) => outcome,
        }
    }
}

/// What waits for events of an EVD.
trait Waiter: Source {
    fn consumer(&mut self) -> &mut Consumer;
}

impl Evd {
    /// Waits, after a first look that found too little.
    #[inline]
    fn wait_for<W: Waiter>(
        &self,
        waiter: &mut W,
        deadline: &mut Deadline,
    ) -> Result<WaitOutcome, ControlError> {
        let consumer = waiter.consumer();
        let (mut budget, mut counters) = (consumer.budget, consumer.counters);
        // The events of the device are this wait's.
        consumer.is_covered = false;
        self.switches.set_waited(true);
        let outcome = dat_engine::wait::wait_on(
            waiter,
            &self.blocker,
            &mut budget,
            self.policy,
            deadline,
            &mut counters,
        );
        self.switches.set_waited(false);
        // Whatever is left, and whatever comes: from here on it is for the CNO.
        self.return_to_cno();
        let consumer = waiter.consumer();
        (consumer.budget, consumer.counters) = (budget, counters);
        self.counts.publish(&counters);
        if let Err(error) = &outcome {
            tracing::error!(evd = ?self.handle, "waiting failed: {error}");
            self.blocker.watch_anew();
        }
        outcome
    }
}

impl Waiter for Waiting<'_> {
    fn consumer(&mut self) -> &mut Consumer {
        self.consumer
    }
}

impl Source for Waiting<'_> {
    fn ready(&mut self) -> bool {
        if self.is_stopped() || self.failure.is_some() {
            return true;
        }
        let found = self.consumer.gather(self.evd);
        let known = self.consumer.known(self.evd);
        self.notified |= found.notifies;
        if !self.notified && self.is_blind() {
            let is_covered = self.listening == self.consumer.queues().len();
            self.notified = found.completion && !is_covered || known > 0 && self.evented;
        }
        if self.asked > 0 {
            self.listening = self.asked;
        }
        (self.asked, self.evented) = (0, false);
        self.notified && known >= self.threshold
    }

    fn arm(&mut self) {
        let solicited = self.evd.switches.attribute() == Some(Attribute::Solicited);
        let queues = self.consumer.queues();
        self.asked = queues.len();
        for queue in queues {
            if let Err(error) = queue.arm(solicited) {
                self.failure = Some(error);
            }
        }
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        let events = self.consumer.take_events()?;
        if events > 0 {
            (self.evented, self.listening) = (true, 0);
        }
        Ok(events)
    }

    fn spin_counts(&self) -> bool {
        !self.is_blind()
    }

    fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.consumer.channel()
    }
}
