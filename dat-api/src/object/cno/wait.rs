//! Waiting on a CNO.

use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use dat_engine::ControlError;
use dat_engine::wait::{
    Blocker, ChannelEvent, Deadline, Source, SpinBudget, WaitCounters, WaitOutcome, WaitPolicy,
    wait_on,
};

use super::protocol::{self, Finder, Looking, Told};
use super::{Cno, stale};
use crate::error::Result;
use crate::handle::{self, Handle};
use crate::object::counters::WaitCounts;
use crate::object::evd::{Seen, Task, Timeout, look};
use crate::object::usage::Use;
use crate::status::{DatReturn, ReturnType, Subtype};

const FAILED: DatReturn = DatReturn::error(ReturnType::InternalError, Subtype::NoSubtype);
const INTERRUPTED: DatReturn = DatReturn::error(ReturnType::InterruptedCall, Subtype::NoSubtype);
const EMPTY: DatReturn = DatReturn::error(ReturnType::QueueEmpty, Subtype::NoSubtype);

/// A place for one thread to wait, used again and again.
pub(super) struct Seat {
    blocker: Blocker,
    /// What waits here have learned; its user's.
    budget: Mutex<SpinBudget>,
}

impl Seat {
    pub(super) fn at(blocker: Blocker) -> Self {
        Self {
            blocker,
            budget: Mutex::default(),
        }
    }

    /// Wakes who waits here, if he sleeps.
    pub(super) fn wake(&self) {
        self.blocker.wake();
    }

    /// Waits here, after a first look that found nothing.
    pub(super) fn wait(
        &self,
        source: &mut impl Source,
        policy: WaitPolicy,
        deadline: &mut Deadline,
        counts: &WaitCounts,
    ) -> Result<WaitOutcome, ControlError> {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Waits until an EVD that feeds the CNO triggers, and names it: a hint, since
/// others may have events too, and its own may be taken by the time that somebody
/// looks. Nothing: the IA is being closed, or the last of the EVDs was freed.
///
/// Any number of threads may wait; each trigger is for one of them.
///
/// # Errors
/// `QUEUE_EMPTY` when the time is up; `INTERRUPTED_CALL` after a signal;
/// `INVALID_HANDLE`; `INTERNAL_ERROR` if the device cannot be asked for events.
pub fn wait(cno: Handle, timeout: Timeout) -> Result<Option<Handle>, DatReturn> {
    let cno = handle::pin::<Cno>(cno)
        .map(|cno| cno.to_arc())
        .and_then(|cno| Use::of(&cno))
        .ok_or_else(stale)?;
    let mut waiting = Waiting {
        watch: Watch::new(&cno, Finder::Waiter),
        told: None,
    };
    if waiting.ready() {
        return waiting.told();
    }
    let mut deadline = match timeout {
        Timeout::Micros(0) => return Err(EMPTY),
        Timeout::Micros(micros) => Deadline::from_micros(u64::from(micros)),
        Timeout::Infinite => Deadline::NEVER,
    };
    let seat = cno.sit()?;
    let policy = cno.ia.wait_policy();
    let outcome = seat.wait(&mut waiting, policy, &mut deadline, &cno.counts);
    cno.leave(seat);
    match outcome {
        Ok(WaitOutcome::Ready) => waiting.told(),
        Ok(WaitOutcome::TimedOut) => Err(EMPTY),
        Ok(WaitOutcome::Interrupted) => Err(INTERRUPTED),
        Err(error) => {
            tracing::error!(cno = ?cno.handle, "waiting failed: {error}");
            Err(FAILED)
        }
    }
}

impl Cno {
    /// How waits on it went, those for its agent among them.
    #[must_use]
    pub fn counters(&self) -> WaitCounters {
        self.counts.read()
    }

    /// Takes a place among those who wait.
    fn sit(&self) -> Result<Arc<Seat>> {
        let mut state = self.lock();
        let seat = match state.idle.pop() {
            Some(seat) => seat,
            None => Seat::new()?,
        };
        state.table.seats.push(Arc::clone(&seat));
        Ok(seat)
    }

    /// Gives it up, and wakes another.
    fn leave(&self, seat: Arc<Seat>) {
        protocol::leave(self, &seat);
        self.lock().idle.push(seat);
    }
}

/// Looking at the EVDs of a CNO: the part that waiters and the agent share.
pub(super) struct Watch<'a> {
    pub(super) cno: &'a Cno,
    who: Finder,
    /// The EVDs, as of that edition of the list.
    evds: Vec<Handle>,
    edition: Option<u32>,
    events: Vec<ChannelEvent>,
    /// There is an EVD that only events of the device tell of.
    is_blind: bool,
    /// The device cannot be asked for events.
    has_failed: bool,
    /// [`Cno::releases`] when this began.
    releases: u32,
}

impl<'a> Watch<'a> {
    pub(super) fn new(cno: &'a Cno, who: Finder) -> Self {
        Self {
            cno,
            who,
            evds: Vec::new(),
            edition: None,
            events: Vec::new(),
            is_blind: false,
            has_failed: false,
            releases: cno.releases.load(Ordering::SeqCst),
        }
    }

    fn refresh(&mut self) {
        let edition = self.cno.edition.load(Ordering::SeqCst);
        if self.edition == Some(edition) {
            return;
        }
        let state = self.cno.lock();
        self.edition = Some(self.cno.edition.load(Ordering::SeqCst));
        self.evds.clone_from(&state.table.evds);
        drop(state);
        self.events.resize(self.evds.len(), ChannelEvent::default());
    }

    /// Looks at one EVD, and lets it trigger.
    fn look(&mut self, evd: Handle, task: Task) {
        if let Some(seen) = look(self.cno.handle, evd, task) {
            self.is_blind |= seen.blind;
            self.has_failed |= seen.failed;
            if seen.fresh {
                protocol::notice(self.cno, evd, self.who);
            }
        }
    }

    /// Looks at all of them.
    pub(super) fn look_at_all(&mut self, task: Task) {
        self.refresh();
        self.is_blind = false;
        for at in 0..self.evds.len() {
            self.look(self.evds[at], task);
        }
    }

    /// Takes the events of those that have some. Answers how many EVDs.
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

    /// Whether an EVD that has triggered holds events still; if nobody was told of
    /// them yet, its entries are confirmed.
    pub(super) fn holds(&self, evd: Handle) -> bool {
        let Seen { fresh, holds, .. } = look(self.cno.handle, evd, Task::Look).unwrap_or_default();
        if fresh {
            protocol::notice(self.cno, evd, self.who);
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

impl Looking<Cno> for Watch<'_> {
    fn is_released(&self) -> bool {
        self.cno.is_over.load(Ordering::SeqCst)
            || self.cno.releases.load(Ordering::SeqCst) != self.releases
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn holds(&mut self, evd: Handle) -> bool {
        Watch::holds(self, evd)
    }

    fn glance_at_all(&mut self) {
        self.look_at_all(Task::Glance);
    }
}

/// One wait under way.
struct Waiting<'a> {
    watch: Watch<'a>,
    told: Option<Told<Handle>>,
}

impl Waiting<'_> {
    fn told(&self) -> Result<Option<Handle>, DatReturn> {
        match self.told {
            Some(Told::Triggered(evd)) => Ok(Some(evd)),
            Some(Told::Released) => Ok(None),
            Some(Told::Failed) | None => Err(FAILED),
        }
    }
}

impl Source for Waiting<'_> {
    fn ready(&mut self) -> bool {
        self.told = protocol::look(self.watch.cno, &mut self.watch);
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
