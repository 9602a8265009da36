//! Waiting on a CNO.

use core::ops::Deref;
use core::sync::atomic::Ordering;
use std::os::fd::AsFd;
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::sync::Mutex;
use dat_engine::wait::{
    Blocker, ChannelEvent, ChannelFds, Deadline, NextStep, Source, SpinBudget, SteppedWait,
    WaitCounters, WaitOutcome, WaitPolicy, wait_on,
};

use super::Cno;
use super::protocol::{self, EvdPoller, Finder, Held, WaitEnd};
use crate::error::Result;
use crate::handle::{self, Handle};
use crate::object::counters::WaitCounts;
use crate::object::evd::{PollMode, Timeout, poll_for_cno};
use crate::object::steps::{Begun, Slept, Steps};
use crate::object::usage::Use;
use crate::refusal::CnoRefusal;

/// A waiter: what one thread sleeps on; reused by later waits.
pub(super) struct Waiter {
    pub(super) blocker: Blocker,
    /// The spin budget learned by the waits here, for the wait that uses it.
    budget: Mutex<SpinBudget>,
}

impl Waiter {
    pub(super) fn at(blocker: Blocker) -> Self {
        Self {
            blocker,
            budget: Mutex::default(),
        }
    }

    /// Waits here, after a first poll that found nothing.
    pub(super) fn wait(
        &self,
        source: &mut impl Source,
        policy: WaitPolicy,
        deadline: &mut Deadline,
        counts: &WaitCounts,
    ) -> Result<WaitOutcome, ControlError> {
        let mut budget = self.budget.lock();
        let mut counters = WaitCounters::default();
        let outcome = wait_on(
            source,
            &self.blocker,
            &mut budget,
            policy,
            deadline,
            &mut counters,
        );
        counts.add(&counters);
        outcome
    }
}

/// Waits until an EVD that is bound to the CNO triggers, and returns the EVD. It is a hint: other
/// EVDs may have events too, and another thread may have dequeued the events of this one. Returns
/// `None` if the IA is being closed, or the last of the EVDs was freed.
///
/// Any number of threads may wait; each trigger goes to one of them.
///
/// Unless the IA is strict ([`Conformance`]), a wait that begins also returns an EVD that was
/// returned before and still holds events that notify; and an EVD that holds several such events
/// goes to as many threads, also if these sleep already.
///
/// Decision: `docs/decisions/062-cno-wait-returns-leftovers.md`
///
/// [`Conformance`]: crate::object::ia::Conformance
///
/// # Errors
/// `QUEUE_EMPTY` when the timeout expires; `INTERRUPTED_CALL` after a signal; `INVALID_HANDLE`;
/// `INSUFFICIENT_RESOURCES`; `INTERNAL_ERROR` if the device cannot be armed.
pub fn wait(cno: Handle, timeout: Timeout) -> Result<Option<Handle>, CnoRefusal> {
    begin(cno, timeout).finish()
}

/// The first poll of [`wait`], for callers that sleep by themselves.
pub fn begin(cno: Handle, timeout: Timeout) -> Begun<Waiting> {
    let cno = handle::pin::<Cno>(cno)
        .map(|cno| cno.to_arc())
        .and_then(|cno| Use::of(&cno));
    let Some(cno) = cno else {
        return Begun::Over(Err(CnoRefusal::Freed));
    };
    let mut polls = WaitPolls::new(cno, Finder::Waiter);
    if polls.first_ready() {
        return Begun::Over(polls.wait_end());
    }
    let deadline = match timeout {
        Timeout::Micros(0) => return Begun::Over(Err(polls.poller.cno.empty())),
        Timeout::Micros(micros) => Deadline::from_micros(u64::from(micros)),
        Timeout::Infinite => Deadline::NEVER,
    };
    match polls.poller.cno.add_waiter() {
        Ok(waiter) => Begun::Waits(Waiting {
            wait: SteppedWait::new(polls.poller.cno.ia.rules().wait, deadline),
            counters: WaitCounters::default(),
            waiter: Some(waiter),
            polls,
        }),
        Err(error) => {
            tracing::error!(cno = ?polls.poller.cno.handle, "waiting failed: {error}");
            Begun::Over(Err(CnoRefusal::NoWaiter))
        }
    }
}

/// A wait in progress.
pub struct Waiting {
    wait: SteppedWait,
    counters: WaitCounters,
    /// `None` once the wait is over.
    waiter: Option<Arc<Waiter>>,
    polls: WaitPolls<Use<Cno>>,
}

impl Waiting {
    fn end(&mut self) {
        let Some(waiter) = self.waiter.take() else {
            return;
        };
        self.wait.abandon(&waiter.blocker);
        let cno = &self.polls.poller.cno;
        cno.counts.add(&self.counters);
        cno.leave(waiter);
    }
}

impl Steps for Waiting {
    type Answer = Result<Option<Handle>, CnoRefusal>;

    fn step(&mut self, slept: Option<&Slept>) -> Result<NextStep, ControlError> {
        let Some(waiter) = &self.waiter else {
            return Ok(NextStep::Over(WaitOutcome::TimedOut));
        };
        let (polls, budget) = (&mut self.polls, &mut waiter.budget.lock());
        self.wait
            .go_on(polls, &waiter.blocker, budget, &mut self.counters, slept)
    }

    fn over(&mut self, outcome: Result<WaitOutcome, ControlError>) -> Option<Self::Answer> {
        self.end();
        Some(match outcome {
            Ok(WaitOutcome::Ready) => self.polls.wait_end(),
            Ok(WaitOutcome::TimedOut) => Err(self.polls.poller.cno.empty()),
            Ok(WaitOutcome::Interrupted) => Err(CnoRefusal::Interrupted),
            Err(error) => {
                let cno = self.polls.poller.cno.handle;
                tracing::error!(?cno, "waiting failed: {error}");
                Err(CnoRefusal::DeviceFailed)
            }
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.end();
    }
}

impl Cno {
    /// Returns the counters of waits on it, including those for its agent.
    #[must_use]
    pub fn counters(&self) -> WaitCounters {
        self.counts.read()
    }

    /// Returns the refusal of a timeout.
    fn empty(&self) -> CnoRefusal {
        let code = self.ia.rules().conformance.empty;
        CnoRefusal::Empty { code }
    }

    /// Adds a waiter for this thread.
    fn add_waiter(&self) -> Result<Arc<Waiter>> {
        let mut state = self.state.lock();
        let idle = state.rest.idle.pop();
        let waiter = idle.map_or_else(Waiter::new, Ok)?;
        state.waiters.push(Arc::clone(&waiter));
        Ok(waiter)
    }

    /// Removes the waiter, and wakes another.
    fn leave(&self, waiter: Arc<Waiter>) {
        protocol::remove_waiter(self, &waiter);
        self.state.lock().rest.idle.push(waiter);
    }
}

/// Polling the EVDs of a CNO, for waiters and for the agent's thread.
struct Poller<C> {
    cno: C,
    finder: Finder,
    /// The EVDs at that edition of the list.
    evds: Vec<Handle>,
    edition: Option<u32>,
    events: Vec<ChannelEvent>,
    /// For some EVD, only events of the device say which completions notify.
    needs_device_events: bool,
    /// The device cannot be armed.
    has_failed: bool,
    /// [`Cno::releases`] at the beginning.
    releases: u32,
    /// The wait begins, and also returns EVDs that were returned before.
    takes_leftovers: bool,
}

impl<C: Deref<Target = Cno>> Poller<C> {
    fn new(cno: C, finder: Finder) -> Self {
        Self {
            releases: cno.releases.load(Ordering::SeqCst),
            cno,
            finder,
            evds: Vec::new(),
            edition: None,
            events: Vec::new(),
            needs_device_events: false,
            has_failed: false,
            takes_leftovers: false,
        }
    }

    fn refresh(&mut self) {
        let edition = self.cno.edition.load(Ordering::SeqCst);
        if self.edition == Some(edition) {
            return;
        }
        let state = self.cno.state.lock();
        self.edition = Some(self.cno.edition.load(Ordering::SeqCst));
        self.evds.clone_from(&state.evds);
        drop(state);
        // A channel may be readable by two descriptors.
        self.events
            .resize(2 * self.evds.len(), ChannelEvent::default());
    }

    /// Returns whether there is nothing to poll for: this is the agent's thread, and there is no
    /// agent. The device's events are then not for this thread.
    fn is_idle(&self) -> bool {
        self.finder == Finder::Agent && self.cno.state.lock().rest.agent.is_none()
    }

    /// Polls one EVD, and records its trigger.
    fn poll(&mut self, evd: Handle, mode: PollMode) {
        if let Some(seen) = poll_for_cno(self.cno.handle, evd, mode) {
            self.needs_device_events |= seen.needs_device_events;
            self.has_failed |= seen.failed && self.finder == Finder::Waiter;
            if seen.fresh {
                protocol::record_trigger(&*self.cno, evd, self.finder);
            } else if self.takes_leftovers && seen.notifying > 0 {
                protocol::record_leftover(&*self.cno, evd);
            }
        }
    }

    /// Polls all EVDs.
    fn poll_each(&mut self, mode: PollMode) {
        if self.is_idle() {
            return;
        }
        self.refresh();
        self.needs_device_events = false;
        for at in 0..self.evds.len() {
            self.poll(self.evds[at], mode);
        }
    }

    /// Takes the device's events of the EVDs that have some. Returns 0 if none has.
    fn take_events(&mut self) -> u32 {
        if self.is_idle() {
            return 0;
        }
        self.refresh();
        let mut events = core::mem::take(&mut self.events);
        let mut count = 0;
        for name in self.cno.channels.readable(&mut events) {
            if let Some(evd) = usize::try_from(name).ok().and_then(Handle::from_bits) {
                count += 1;
                self.poll(evd, PollMode::TakeEvents);
            }
        }
        self.events = events;
        count
    }
}

impl<C: Deref<Target = Cno>> EvdPoller for Poller<C> {
    type Cno = Cno;

    fn cno(&self) -> &Cno {
        &self.cno
    }

    fn finder(&self) -> Finder {
        self.finder
    }

    fn is_released(&self) -> bool {
        let cno = &self.cno;
        cno.is_over.load(Ordering::SeqCst)
            || match self.finder {
                Finder::Agent => cno.state.lock().rest.agent_is_released,
                _ => cno.releases.load(Ordering::SeqCst) != self.releases,
            }
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn holds(&self, evd: Handle) -> Held {
        let seen = poll_for_cno(self.cno.handle, evd, PollMode::Wait).unwrap_or_default();
        if seen.fresh {
            protocol::record_trigger(&*self.cno, evd, self.finder);
        }
        Held {
            any: seen.holds,
            waiters: match self.cno.ia.rules().conformance.returns_leftovers {
                true => seen.notifying,
                false => 1,
            },
        }
    }

    fn poll_all(&mut self) {
        self.poll_each(match self.takes_leftovers {
            // A thread that dequeues owns the EVD for a moment, and may leave events.
            true => PollMode::Wait,
            false => PollMode::IfFree,
        });
    }
}

/// The polls of a waiter, or of the agent's thread, and their result.
pub(super) struct WaitPolls<C> {
    poller: Poller<C>,
    pub(super) wait_end: Option<WaitEnd<Handle>>,
}

impl<C: Deref<Target = Cno>> WaitPolls<C> {
    pub(super) fn new(cno: C, finder: Finder) -> Self {
        Self {
            poller: Poller::new(cno, finder),
            wait_end: None,
        }
    }

    /// Polls for the first time.
    fn first_ready(&mut self) -> bool {
        let with_leftovers = self.poller.cno.ia.rules().conformance.returns_leftovers;
        self.poller.takes_leftovers = with_leftovers;
        self.wait_end = protocol::poll_first(&mut self.poller, with_leftovers);
        self.poller.takes_leftovers = false;
        self.wait_end.is_some()
    }

    fn wait_end(&self) -> Result<Option<Handle>, CnoRefusal> {
        match self.wait_end {
            Some(WaitEnd::Triggered(evd)) => Ok(Some(evd)),
            Some(WaitEnd::Released) => Ok(None),
            Some(WaitEnd::Failed) | None => Err(CnoRefusal::DeviceFailed),
        }
    }
}

impl<C: Deref<Target = Cno>> Source for WaitPolls<C> {
    fn ready(&mut self) -> bool {
        self.wait_end = match self.poller.is_idle() && !self.poller.is_released() {
            true => None,
            false => protocol::poll_once(&mut self.poller),
        };
        self.wait_end.is_some()
    }

    fn arm(&mut self) {
        self.poller.poll_each(PollMode::Arm);
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        Ok(self.poller.take_events())
    }

    fn channel(&self) -> Option<ChannelFds<'_>> {
        let fds = || self.poller.cno.channels.as_fd().into();
        (!self.poller.is_idle()).then(fds)
    }

    fn spin_counts(&self) -> bool {
        !self.poller.needs_device_events
    }
}
