//! Waiting on a CNO.

use core::ops::Deref;
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::sync::Mutex;
use dat_engine::wait::{
    Blocker, ChannelEvent, Deadline, NextStep, Source, SpinBudget, SteppedWait, WaitCounters,
    WaitOutcome, WaitPolicy, wait_on,
};

use super::protocol::{self, Finder, Looking, Told};
use super::{Cno, stale};
use crate::error::Result;
use crate::handle::{self, Handle};
use crate::object::counters::WaitCounts;
use crate::object::evd::{Seen, Task, Timeout, look};
use crate::object::steps::{Begun, Next, Slept, Steps};
use crate::object::usage::Use;
use crate::status::{DatReturn, ReturnType, Subtype};

const FAILED: DatReturn = DatReturn::error(ReturnType::InternalError, Subtype::NoSubtype);
const INTERRUPTED: DatReturn = DatReturn::error(ReturnType::InterruptedCall, Subtype::NoSubtype);
const EMPTY: DatReturn = DatReturn::error(ReturnType::QueueEmpty, Subtype::NoSubtype);

/// A waiter: what one thread sleeps on; reused by later waits.
pub(super) struct Seat {
    blocker: Blocker,
    /// The spin budget learned by the waits here, for the wait that uses it.
    budget: Mutex<SpinBudget>,
}

impl Seat {
    pub(super) fn at(blocker: Blocker) -> Self {
        Self {
            blocker,
            budget: Mutex::default(),
        }
    }

    /// Wakes the thread that sleeps here, if there is one.
    pub(super) fn wake(&self) {
        self.blocker.wake();
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
/// # Errors
/// `QUEUE_EMPTY` when the timeout expires; `INTERRUPTED_CALL` after a signal; `INVALID_HANDLE`;
/// `INTERNAL_ERROR` if the device cannot be armed.
pub fn wait(cno: Handle, timeout: Timeout) -> Result<Option<Handle>, DatReturn> {
    begin(cno, timeout).finish()
}

/// The first poll of [`wait`], for callers that sleep by themselves.
pub fn begin(cno: Handle, timeout: Timeout) -> Begun<Waiting> {
    let cno = handle::pin::<Cno>(cno)
        .map(|cno| cno.to_arc())
        .and_then(|cno| Use::of(&cno));
    let Some(cno) = cno else {
        return Begun::Over(Err(stale().into()));
    };
    let mut looks = Looks {
        watch: Watch::new(Use::clone(&cno), Finder::Waiter),
        cno,
        told: None,
    };
    if looks.ready() {
        return Begun::Over(looks.told());
    }
    let deadline = match timeout {
        Timeout::Micros(0) => return Begun::Over(Err(EMPTY)),
        Timeout::Micros(micros) => Deadline::from_micros(u64::from(micros)),
        Timeout::Infinite => Deadline::NEVER,
    };
    match looks.cno.sit() {
        Ok(seat) => Begun::Waits(Waiting {
            under_way: None,
            counters: WaitCounters::default(),
            deadline,
            seat: Some(seat),
            looks,
        }),
        Err(error) => Begun::Over(Err(error.into())),
    }
}

/// A wait in progress.
pub struct Waiting {
    /// Dropped before the waiter, which is released last.
    under_way: Option<SteppedWait>,
    counters: WaitCounters,
    deadline: Deadline,
    /// `None` once the wait is over.
    seat: Option<Arc<Seat>>,
    looks: Looks,
}

impl Waiting {
    fn step(&mut self, slept: Option<&Slept>) -> Result<NextStep, ControlError> {
        let Some(seat) = &self.seat else {
            return Ok(NextStep::Over(WaitOutcome::TimedOut));
        };
        let (looks, blocker, counters) = (&mut self.looks, &seat.blocker, &mut self.counters);
        let policy = looks.cno.ia.wait_policy();
        let mut budget = seat.budget.lock();
        let wait = match &mut self.under_way {
            Some(wait) => wait,
            none => {
                let deadline = &mut self.deadline;
                match SteppedWait::begin(looks, blocker, &mut budget, policy, deadline, counters) {
                    Ok(wait) => none.insert(wait),
                    Err(outcome) => return Ok(NextStep::Over(outcome)),
                }
            }
        };
        wait.go_on(looks, blocker, &mut budget, counters, slept)
    }

    fn end(&mut self) {
        let Some(seat) = self.seat.take() else {
            return;
        };
        if let Some(mut wait) = self.under_way.take() {
            wait.abandon(&seat.blocker);
        }
        let cno = &self.looks.cno;
        cno.counts.add(&self.counters);
        cno.leave(seat);
    }
}

impl Steps for Waiting {
    type Answer = Result<Option<Handle>, DatReturn>;

    fn go_on(&mut self, slept: Option<&Slept>) -> Next<Self::Answer> {
        let outcome = match self.step(slept) {
            Ok(NextStep::Sleep(sleep)) => return Next::Sleep(sleep),
            Ok(NextStep::Pause) => return Next::Pause,
            Ok(NextStep::Over(outcome)) => Ok(outcome),
            Err(error) => Err(error),
        };
        self.end();
        Next::Over(match outcome {
            Ok(WaitOutcome::Ready) => self.looks.told(),
            Ok(WaitOutcome::TimedOut) => Err(EMPTY),
            Ok(WaitOutcome::Interrupted) => Err(INTERRUPTED),
            Err(error) => {
                let cno = self.looks.cno.handle;
                tracing::error!(?cno, "waiting failed: {error}");
                Err(FAILED)
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

    /// Adds a waiter for this thread.
    fn sit(&self) -> Result<Arc<Seat>> {
        let mut state = self.state.lock();
        let seat = match state.idle.pop() {
            Some(seat) => seat,
            None => Seat::new()?,
        };
        state.table.seats.push(Arc::clone(&seat));
        Ok(seat)
    }

    /// Removes the waiter, and wakes another.
    fn leave(&self, seat: Arc<Seat>) {
        protocol::leave(self, &seat);
        self.state.lock().idle.push(seat);
    }
}

/// Polling the EVDs of a CNO, for waiters and for the agent.
pub(super) struct Watch<C> {
    pub(super) cno: C,
    who: Finder,
    /// The EVDs at that edition of the list.
    evds: Vec<Handle>,
    edition: Option<u32>,
    events: Vec<ChannelEvent>,
    /// For some EVD, only events of the device say which completions notify.
    is_blind: bool,
    /// The device cannot be armed.
    has_failed: bool,
    /// [`Cno::releases`] at the beginning.
    releases: u32,
}

impl<C: Deref<Target = Cno>> Watch<C> {
    pub(super) fn new(cno: C, who: Finder) -> Self {
        Self {
            releases: cno.releases.load(Ordering::SeqCst),
            cno,
            who,
            evds: Vec::new(),
            edition: None,
            events: Vec::new(),
            is_blind: false,
            has_failed: false,
        }
    }

    fn refresh(&mut self) {
        let edition = self.cno.edition.load(Ordering::SeqCst);
        if self.edition == Some(edition) {
            return;
        }
        let state = self.cno.state.lock();
        self.edition = Some(self.cno.edition.load(Ordering::SeqCst));
        self.evds.clone_from(&state.table.evds);
        drop(state);
        self.events.resize(self.evds.len(), ChannelEvent::default());
    }

    /// Polls one EVD, and records its trigger.
    fn look(&mut self, evd: Handle, task: Task) {
        if let Some(seen) = look(self.cno.handle, evd, task) {
            self.is_blind |= seen.blind;
            self.has_failed |= seen.failed;
            if seen.fresh {
                protocol::notice(&*self.cno, evd, self.who);
            }
        }
    }

    /// Polls all EVDs.
    pub(super) fn look_at_all(&mut self, task: Task) {
        self.refresh();
        self.is_blind = false;
        for at in 0..self.evds.len() {
            self.look(self.evds[at], task);
        }
    }

    /// Takes the device's events of the EVDs that have some. Returns the number of such EVDs.
    pub(super) fn take_events(&mut self) -> u32 {
        self.refresh();
        let mut events = core::mem::take(&mut self.events);
        let mut count = 0;
        for name in self.cno.channels.readable(&mut events) {
            if let Some(evd) = usize::try_from(name).ok().and_then(Handle::from_bits) {
                count += 1;
                self.look(evd, Task::TakeEvents);
            }
        }
        self.events = events;
        count
    }

    /// Returns whether an EVD that has triggered still holds events; if no waiter was told of them
    /// yet, its pending entries are confirmed.
    pub(super) fn holds(&self, evd: Handle) -> bool {
        let Seen { fresh, holds, .. } = look(self.cno.handle, evd, Task::Look).unwrap_or_default();
        if fresh {
            protocol::notice(&*self.cno, evd, self.who);
        }
        holds
    }

    fn spin_counts(&self) -> bool {
        !self.is_blind
    }

    pub(super) fn channel(&self) -> Option<BorrowedFd<'_>> {
        Some(self.cno.channels.as_fd())
    }
}

impl<C: Deref<Target = Cno>> Looking<Cno> for Watch<C> {
    fn is_released(&self) -> bool {
        self.cno.is_over.load(Ordering::SeqCst)
            || self.cno.releases.load(Ordering::SeqCst) != self.releases
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn holds(&mut self, evd: Handle) -> bool {
        Self::holds(self, evd)
    }

    fn glance_at_all(&mut self) {
        self.look_at_all(Task::Glance);
    }
}

/// The polls of a waiter, and their result.
struct Looks {
    cno: Use<Cno>,
    watch: Watch<Use<Cno>>,
    told: Option<Told<Handle>>,
}

impl Looks {
    fn told(&self) -> Result<Option<Handle>, DatReturn> {
        match self.told {
            Some(Told::Triggered(evd)) => Ok(Some(evd)),
            Some(Told::Released) => Ok(None),
            Some(Told::Failed) | None => Err(FAILED),
        }
    }
}

impl Source for Looks {
    fn ready(&mut self) -> bool {
        self.told = protocol::look(&*self.cno, &mut self.watch);
        self.told.is_some()
    }

    fn arm(&mut self) {
        self.watch.look_at_all(Task::Arm);
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        Ok(self.watch.take_events())
    }

    fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.watch.channel()
    }

    fn spin_counts(&self) -> bool {
        self.watch.spin_counts()
    }
}
