//! Waiting for events: poll, spin, arm, poll, sleep, and take the event.
//!
//! Each poll counts the events where they are ([`Consumer::count_in_place`]), or stages them to
//! count them. The event that ends the wait is taken by [`Consumer::next_event`], as by a dequeue.

use core::sync::atomic::AtomicU8;
use std::borrow::BorrowMut;

use dat_engine::ControlError;
use dat_engine::wait::{
    ChannelFds, Deadline, NextStep, Source, SpinBudget, SteppedWait, WaitCounters, WaitOutcome,
};

use super::convert::{PeekedEvent, peek};
use super::state::{Consumer, Evd, halves};
use super::streams::Attribute;
use crate::error::Result;
use crate::handle::Owned;
use crate::object::steps::{Begun, Slept, Steps};
use crate::refusal::EvdRefusal;
use crate::types::Event;

/// The timeout of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// None.
    Infinite,
    /// In microseconds; 0 polls once.
    Micros(u32),
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The first event, or why there is none.
    pub result: Result<Event, EvdRefusal>,
    /// The number of events that are left. Meaningful with an event, `TIMEOUT_EXPIRED` and
    /// `INTERRUPTED_CALL`.
    pub nmore: u32,
}

impl From<EvdRefusal> for Waited {
    fn from(error: EvdRefusal) -> Self {
        Self {
            result: Err(error),
            nmore: 0,
        }
    }
}

/// Waits until `threshold` events are there, and takes the first.
///
/// On an EVD whose streams control notification ([`super::Notification::PerPost`] with unsignalled
/// posts, [`super::Notification::Solicited`]), any events that are there when the wait begins end
/// it; once the thread sleeps, only those that notify do. Other events are found when the timeout
/// expires.
///
/// On the verbs path, completions do not say whether they were solicited; only the device's event
/// does. Such a wait does not spin, and completions that come with an event, or before the queue
/// was armed, count as solicited.
pub fn wait(owned: &mut Owned<Evd>, timeout: Timeout, threshold: i32) -> Waited {
    begin(owned, timeout, threshold).finish()
}

impl PeekedEvent {
    /// Takes the event as [`Self::take`] does, for a wait. Returns what `with` returns, and how
    /// many events are left.
    ///
    /// # Errors
    /// As [`Self::take`].
    #[inline(always)]
    pub fn take_counted<const EXTENDED: bool, R>(
        mut self,
        with: impl FnOnce(Event) -> R,
    ) -> Result<(R, u32), Self> {
        let Some(result) = self.consume::<EXTENDED, R>(with) else {
            return Err(self);
        };
        match self.count() {
            Some(left) => Ok((result, left)),
            None => {
                let (evd, consumer) = halves(&mut self.owned);
                Ok((result, consumer.count(evd)))
            }
        }
    }

    /// Returns how many events are in the queue if a wait with this threshold can take one now: the
    /// threshold is valid and reached there.
    #[inline(always)]
    #[must_use]
    pub fn reached(&mut self, threshold: i32) -> Option<u32> {
        let threshold = self.owned.check_wait(threshold).ok()?;
        self.count().filter(|count| *count >= threshold)
    }
}

/// For a wait: takes the event on the fast path, as a dequeue does, if the threshold is reached
/// there. Returns it and the number of events that are left.
///
/// # Errors
/// The EVD, with nothing taken: the slow path has to decide. `None` if the EVD is empty, and the
/// threshold is 1.
#[inline(always)]
pub fn take_counted(owned: Owned<Evd>, threshold: i32) -> Result<(Event, u32), Option<Owned<Evd>>> {
    if !owned.is_waitable() {
        return Err(Some(owned));
    }
    match peek(owned) {
        Ok(Ok(mut found)) => {
            let taken = if threshold == 1 {
                found.take_counted::<false, _>(|event| event)
            } else if let Some(count) = found.reached(threshold) {
                // Counted before it is taken, and not twice.
                let taken = found.take::<false, _>(|event| event);
                taken.map(|event| (event, count - 1))
            } else {
                Err(found)
            };
            taken.map_err(|found| Some(found.into_owned()))
        }
        Ok(Err(_empty)) => Err(None),
        Err(owned) => Err(Some(owned)),
    }
}

/// For a wait for one event, when the fast path did not apply ([`super::peek`]): if there are only
/// posted events, takes the first and passes it to `with`. Returns how many are left, or `None` if
/// there is none.
///
/// # Errors
/// The EVD, with nothing taken: the slow path has to decide.
#[inline(always)]
pub fn take_posted(
    mut owned: Owned<Evd>,
    with: impl FnOnce(&Event),
) -> Result<Option<u32>, Owned<Evd>> {
    let (evd, consumer) = halves(&mut owned);
    match consumer.posted_alone(evd) {
        _ if evd.state.has_failed() => {}
        Some(0) => return Ok(None),
        Some(_) => {
            if let Some(data) = consumer.take_posted(evd) {
                with(&Event {
                    evd: evd.handle,
                    data,
                });
                return Ok(Some(consumer.count(evd)));
            }
        }
        None => {}
    }
    Err(owned)
}

/// The first poll of [`wait`], for callers that sleep by themselves. Neither this poll nor dropping
/// the result reaches a cancellation point (pthreads(7)).
#[inline]
pub fn begin<O: BorrowMut<Owned<Evd>>>(
    mut owned: O,
    timeout: Timeout,
    threshold: i32,
) -> Begun<Waiting<O>> {
    let (evd, consumer) = halves(owned.borrow_mut());
    match first_poll(evd, consumer, timeout, threshold) {
        Ok(waited) => Begun::Over(waited),
        Err(Missed { state, deadline }) => Begun::Waits(Waiting {
            state,
            wait: SteppedWait::new(evd.policy, deadline),
            meters: None,
            owned,
        }),
    }
}

/// Polls once.
#[inline]
#[expect(
    clippy::result_large_err,
    reason = "a wait that misses has time, and must not allocate"
)]
fn first_poll(
    evd: &Evd,
    consumer: &mut Consumer,
    timeout: Timeout,
    threshold: i32,
) -> Result<Waited, Missed> {
    // Read before the state: if the check below misses a call of `set_unwaitable`, the wait sees
    // the changed count.
    let unwaitable_count = evd.state.unwaitable_count();
    let threshold = match evd.check_wait(threshold) {
        Ok(threshold) => threshold,
        Err(error) => return Ok(error.into()),
    };
    let deadline = match timeout {
        Timeout::Micros(micros) => Deadline::from_micros(u64::from(micros)),
        Timeout::Infinite => Deadline::NEVER,
    };
    let mut state = WaitState::new(threshold, unwaitable_count);
    let outcome = if state.view(evd, consumer).ready() {
        WaitOutcome::Ready
    } else if deadline.is_now() {
        WaitOutcome::TimedOut
    } else {
        state.notified = false;
        return Err(Missed { state, deadline });
    };
    match state.finish(evd, consumer, Some(outcome)) {
        Some(waited) => Ok(waited),
        None => Err(Missed { state, deadline }),
    }
}

/// A first poll that found too few events.
struct Missed {
    state: WaitState,
    deadline: Deadline,
}

/// A wait whose first poll found too few events. Dropping it before its end releases the EVD with
/// all its events.
pub struct Waiting<O: BorrowMut<Owned<Evd>>> {
    state: WaitState,
    /// Dropped before the EVD, which is released last.
    wait: SteppedWait,
    /// The consumer's, while the engine's wait is in progress.
    meters: Option<(SpinBudget, WaitCounters)>,
    owned: O,
}

impl<O: BorrowMut<Owned<Evd>>> Waiting<O> {
    /// Ends the engine's wait. Whatever its result, the last step polled for events.
    fn end(&mut self, error: Option<&ControlError>) {
        let (evd, consumer) = halves(self.owned.borrow_mut());
        consumer.awaited = 0;
        evd.state.set_waited(false);
        // Remaining and later events trigger the CNO from here on.
        evd.rearm_for_cno();
        if let Some(meters) = self.meters.take() {
            (consumer.budget, consumer.counters) = meters;
            evd.counts.publish(&consumer.counters);
        }
        if let Some(error) = error {
            tracing::error!(evd = ?evd.handle, "waiting failed: {error}");
        }
    }
}

impl<O: BorrowMut<Owned<Evd>>> Steps for Waiting<O> {
    type Answer = Waited;

    fn step(&mut self, slept: Option<&Slept>) -> Result<NextStep, ControlError> {
        let (evd, consumer) = halves(self.owned.borrow_mut());
        consumer.awaited = self.state.threshold as usize;
        let (budget, counters) = self.meters.get_or_insert_with(|| {
            // This wait takes the events of the device.
            consumer.is_covered = false;
            evd.state.set_waited(true);
            (consumer.budget, consumer.counters)
        });
        let mut view = self.state.view(evd, consumer);
        self.wait
            .go_on(&mut view, &evd.blocker, budget, counters, slept)
    }

    fn over(&mut self, outcome: Result<WaitOutcome, ControlError>) -> Option<Waited> {
        self.end(outcome.as_ref().err());
        let (evd, consumer) = halves(self.owned.borrow_mut());
        let state = &mut self.state;
        let outcome = match (outcome, state.failure.take()) {
            (Ok(WaitOutcome::Ready), Some(error)) if consumer.count(evd) < state.threshold => {
                tracing::error!(evd = ?evd.handle, "waiting failed: {error}");
                None
            }
            (outcome, _) => outcome.ok(),
        };
        state.finish(evd, consumer, outcome)
    }
}

impl<O: BorrowMut<Owned<Evd>>> Drop for Waiting<O> {
    fn drop(&mut self) {
        if self.meters.is_some() {
            let blocker = &halves(self.owned.borrow_mut()).0.blocker;
            self.wait.abandon(blocker);
            self.end(None);
        }
    }
}

impl Evd {
    #[inline]
    fn check_wait(&self, threshold: i32) -> Result<u32, EvdRefusal> {
        let (asked, most) = (threshold.cast_unsigned(), self.queue_length());
        if threshold <= 0 || asked > most {
            let asked = threshold;
            return Err(EvdRefusal::Threshold { asked, most });
        }
        if self.state.has_failed() {
            return Err(EvdRefusal::QueueFailed);
        }
        if !self.is_waitable() {
            return Err(EvdRefusal::Unwaitable);
        }
        match self.state.attribute() {
            Some(Attribute::Unsignalled) if asked != 1 => Err(EvdRefusal::Unsignalled { asked }),
            Some(Attribute::Solicited) if asked != 1 => Err(EvdRefusal::Solicited { asked }),
            _ => Ok(asked),
        }
    }
}

/// The parameters of a wait, and what it has seen.
struct WaitState {
    threshold: u32,
    /// How often the EVD had been made unwaitable when the wait began.
    unwaitable_count: u32,
    /// An event that notifies has arrived. At the first poll, every event counts.
    notified: bool,
    /// The number of queues armed since the last poll.
    asked: usize,
    /// The number of queues that were armed before the last poll and have raised no event since: a
    /// solicited completion that they bring at the next poll raises an event. Completions of other
    /// queues may have come too early for that.
    listening: usize,
    /// The device has raised an event since the last poll.
    evented: bool,
    /// The queues cannot be armed.
    failure: Option<ControlError>,
}

impl WaitState {
    const fn new(threshold: u32, unwaitable_count: u32) -> Self {
        Self {
            threshold,
            unwaitable_count,
            notified: true,
            asked: 0,
            listening: 0,
            evented: false,
            failure: None,
        }
    }

    fn view<'a>(&'a mut self, evd: &'a Evd, consumer: &'a mut Consumer) -> View<'a> {
        View {
            evd,
            consumer,
            state: self,
        }
    }

    /// Returns the result of a wait, from how it ended; `None` if it must continue. An `outcome` of
    /// `None` means that it failed.
    #[inline]
    fn finish(
        &self,
        evd: &Evd,
        consumer: &mut Consumer,
        outcome: Option<WaitOutcome>,
    ) -> Option<Waited> {
        if evd.state.is_aborted() {
            return Some(EvdRefusal::Aborted.into());
        }
        if evd.state.unwaitable_count() != self.unwaitable_count {
            return Some(EvdRefusal::Unwaitable.into());
        }
        if evd.state.has_failed() {
            return Some(EvdRefusal::QueueFailed.into());
        }
        let result = match outcome {
            None => return Some(EvdRefusal::DeviceFailed.into()),
            Some(WaitOutcome::Interrupted) => Err(EvdRefusal::Interrupted),
            Some(WaitOutcome::TimedOut) if consumer.count(evd) < self.threshold => {
                Err(EvdRefusal::TimedOut)
            }
            Some(outcome) => match consumer.next_event(evd) {
                Some(data) => Ok(Event {
                    evd: evd.handle,
                    data,
                }),
                // The endpoint of the completions was reset after the poll.
                None if outcome == WaitOutcome::Ready => return None,
                None => Err(EvdRefusal::TimedOut),
            },
        };
        Some(Waited {
            result,
            nmore: consumer.count(evd),
        })
    }
}

/// One poll of a wait.
struct View<'a> {
    evd: &'a Evd,
    consumer: &'a mut Consumer,
    state: &'a mut WaitState,
}

impl View<'_> {
    /// Returns whether only events of the device say which completions notify.
    fn needs_device_events(&self) -> bool {
        self.evd.state.attribute() == Some(Attribute::Solicited)
            && !self.consumer.reports_solicited()
    }

    /// Returns whether the streams control which completions notify.
    fn is_controlled(&self) -> bool {
        let attribute = self.evd.state.attribute();
        matches!(
            attribute,
            Some(Attribute::Solicited | Attribute::Unsignalled)
        )
    }

    /// Returns whether the EVD was made unwaitable, failed, or is being freed.
    fn is_stopped(&self) -> bool {
        let state = &self.evd.state;
        state.has_ended() || state.unwaitable_count() != self.state.unwaitable_count
    }
}

impl Source for View<'_> {
    #[inline]
    fn ready(&mut self) -> bool {
        if self.is_stopped() || self.state.failure.is_some() {
            return true;
        }
        // Posted events are staged if the wait may go on: then they stay before later completions.
        let stays_in_order = self.state.threshold == 1 || self.evd.posted.len() == 0;
        if stays_in_order
            && (self.state.notified || !self.is_controlled())
            && let Some(count) = self.consumer.count_in_place(self.evd)
        {
            return count >= self.state.threshold;
        }
        let found = self.consumer.gather(self.evd);
        let known = self.consumer.known(self.evd) as u32;
        self.state.notified |= found.notifies;
        if !self.state.notified && self.needs_device_events() {
            let is_covered = self.state.listening == self.consumer.queues().len();
            self.state.notified =
                found.completion && !is_covered || known > 0 && self.state.evented;
        }
        if self.state.asked > 0 {
            self.state.listening = self.state.asked;
        }
        (self.state.asked, self.state.evented) = (0, false);
        self.state.notified && known >= self.state.threshold
    }

    fn arm(&mut self) {
        // A queue that another thread has attached is armed too. Completions that came before count
        // as solicited.
        let found = self.consumer.process_commands(self.evd);
        self.state.notified |= found.notifies || found.completion && self.needs_device_events();
        let arm = self.evd.state.arm();
        let queues = self.consumer.queues();
        self.state.asked = queues.len();
        for queue in queues {
            if let Err(error) = queue.arm(arm) {
                self.state.failure = Some(error);
            }
        }
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        let events = self.consumer.take_events()?;
        if events > 0 {
            (self.state.evented, self.state.listening) = (true, 0);
        }
        Ok(events)
    }

    fn spin_counts(&self) -> bool {
        !self.needs_device_events()
    }

    fn channel(&self) -> Option<ChannelFds<'_>> {
        self.consumer.channel()
    }

    fn watched(&self) -> Option<&AtomicU8> {
        match self.state.threshold == 1 && !self.is_controlled() {
            true => self.consumer.watched(self.evd),
            false => None,
        }
    }
}

/// An event and when it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped<T = Event> {
    /// The event, or what a wait has returned.
    pub event: T,
    /// When the device wrote the completion, in nanoseconds since 1970 by the device's clock.
    /// `None` if it is not known: the event is no completion, or its request or receive failed, or
    /// the EVD had staged it before it was asked for stamps.
    pub nanoseconds: Option<u64>,
}

/// Asks the EVD for stamps, and takes its first event. Never blocks.
///
/// # Errors
/// As [`super::dequeue`]; `MODEL_NOT_SUPPORTED` if the device's completions have no stamps.
pub fn dequeue_stamped(mut owned: Owned<Evd>) -> Result<Stamped> {
    let handle = owned.handle();
    let (evd, consumer) = halves(&mut owned);
    consumer.ask_for_stamps(evd)?;
    match consumer.next(evd) {
        Some(data) => Ok(Stamped {
            event: Event { evd: handle, data },
            nanoseconds: consumer.last_stamp(),
        }),
        None if evd.state.has_failed() => Err(EvdRefusal::QueueFailed.into()),
        None => Err(EvdRefusal::Empty { code: evd.empty }.into()),
    }
}

/// Asks the EVD for stamps, and waits as [`wait`] does.
///
/// # Errors
/// `MODEL_NOT_SUPPORTED` if the device's completions have no stamps, or there is no memory for
/// them. Errors of the wait are in the result.
pub fn wait_stamped(
    owned: &mut Owned<Evd>,
    timeout: Timeout,
    threshold: i32,
) -> Result<Stamped<Waited>> {
    let (evd, consumer) = halves(owned);
    consumer.ask_for_stamps(evd)?;
    let waited = wait(owned, timeout, threshold);
    let (_, consumer) = halves(owned);
    Ok(Stamped {
        event: waited,
        nanoseconds: waited.result.ok().and_then(|_| consumer.last_stamp()),
    })
}
