//! Which waiter gets a trigger, and which is woken: the order of steps that loses none.
//!
//! A thread that posts an event, or that finds one in a poll, records the trigger under the lock,
//! and then wakes a waiter. A waiter takes a trigger under the lock, and only if the EVD still
//! holds events. A waiter that returns, with or without a trigger, wakes another: it alone may have
//! received the device event, or the request to poll, that was meant for all.
//!
//! A wait that begins may also record EVDs that were returned before and still hold events
//! ([`record_leftover`]). What it has recorded and does not take itself is for a sleeping waiter
//! ([`poll_first`]). An EVD that holds several events is for as many waiters ([`Held`]).
//!
//! This file is also compiled into the model (`tests/interleavings`), which simulates the EVDs, the
//! device and the threads.

use std::ops::DerefMut;
use std::sync::Arc;

use super::pending::PendingTriggers;
use super::sync::{AtomicUsize, Ordering};

/// A waiter: the place where one thread sleeps.
pub(super) trait Wake {
    /// Wakes the thread that sleeps here, if there is one.
    fn wake_up(&self);
}

/// The state under the lock: the EVDs, by names, and the waiters.
#[derive(Debug)]
pub(super) struct Table<E, S> {
    /// The EVDs that are bound to the CNO.
    pub(super) evds: Vec<E>,
    /// The pending triggers for waiters.
    pub(super) for_waiters: PendingTriggers<E>,
    /// The pending triggers for the agent.
    pub(super) for_agent: PendingTriggers<E>,
    /// The threads that wait.
    pub(super) waiters: Vec<Arc<S>>,
}

impl<E, S> Default for Table<E, S> {
    fn default() -> Self {
        Self {
            evds: Vec::new(),
            for_waiters: PendingTriggers::default(),
            for_agent: PendingTriggers::default(),
            waiters: Vec::new(),
        }
    }
}

/// The state under the lock.
pub(super) trait State {
    /// The name of an EVD.
    type Evd: Copy + PartialEq;
    /// A waiter.
    type Waiter: Wake;

    /// Returns the part that the protocol uses.
    fn table(&mut self) -> &mut Table<Self::Evd, Self::Waiter>;

    /// Returns the waiter of the agent's thread, if there is an agent to call.
    fn agent_waiter(&self) -> Option<Arc<Self::Waiter>>;

    /// Returns a waiter that polls, if there is one.
    fn poller(&mut self) -> Option<Arc<Self::Waiter>> {
        let first = self.table().waiters.first().cloned();
        first.or_else(|| self.agent_waiter())
    }
}

/// The state of a CNO, or a model of it.
pub(super) trait CnoState {
    /// The state under its lock.
    type State: State;

    /// Locks it.
    fn lock(&self) -> impl DerefMut<Target = Self::State>;

    /// Returns the number of pending triggers for waiters, which is read without the lock.
    fn triggered(&self) -> &AtomicUsize;
}

/// The name of an EVD of a CNO.
pub(super) type Evd<H> = <<H as CnoState>::State as State>::Evd;
type Waiter<H> = <<H as CnoState>::State as State>::Waiter;

/// The thread that has found a trigger, which need not be woken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finder {
    /// A waiter.
    Waiter,
    /// The thread of the agent.
    Agent,
    /// Neither: the trigger is of a posted event, without a poll.
    NotPolled,
}

/// Records the trigger of an EVD, and wakes waiters for it.
pub(super) fn record_trigger<H: CnoState>(cno: &H, evd: Evd<H>, finder: Finder) {
    let mut state = cno.lock();
    let table = state.table();
    // The EVD may be bound to another CNO by now.
    if !table.evds.contains(&evd) {
        return;
    }
    let is_seen = finder != Finder::NotPolled;
    let is_new = table.for_waiters.push(evd, is_seen);
    let waiting = table.for_waiters.len();
    cno.triggered().store(waiting, Ordering::SeqCst);
    let waiter = match is_new && finder != Finder::Waiter {
        true => table.waiters.first().cloned(),
        false => None,
    };
    let is_new = table.for_agent.push(evd, is_seen);
    let caller = match is_new && finder != Finder::Agent {
        true => state.agent_waiter(),
        false => None,
    };
    drop(state);
    for waiter in waiter.iter().chain(&caller) {
        waiter.wake_up();
    }
}

/// Records an EVD that may have been returned before and still holds events that notify, for a wait
/// that begins ([`poll_first`]). Not for the agent: one that leaves events would be called without
/// end.
pub(super) fn record_leftover<H: CnoState>(cno: &H, evd: Evd<H>) {
    let mut state = cno.lock();
    let table = state.table();
    if table.evds.contains(&evd) {
        table.for_waiters.push(evd, true);
        let waiting = table.for_waiters.len();
        cno.triggered().store(waiting, Ordering::SeqCst);
    }
}

/// Makes a waiter poll the EVDs and arm them.
pub(super) fn wake_poller<H: CnoState>(cno: &H) {
    let poller = cno.lock().poller();
    if let Some(waiter) = poller {
        waiter.wake_up();
    }
}

/// Removes a waiter that returns, and wakes another.
pub(super) fn remove_waiter<H: CnoState>(cno: &H, waiter: &Arc<Waiter<H>>) {
    let mut state = cno.lock();
    state
        .table()
        .waiters
        .retain(|other| !Arc::ptr_eq(other, waiter));
    let next = state.poller();
    drop(state);
    if let Some(next) = next {
        next.wake_up();
    }
}

/// What an EVD holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// There are events.
    pub(super) any: bool,
    /// How many waiters these events are for. The trigger goes to one at least.
    pub(super) waiters: usize,
}

/// Takes the first pending trigger whose EVD still holds events. `holds` polls an EVD. If no waiter
/// has got a trigger for its events yet, `holds` records one, which confirms the entry.
///
/// If the events are for several waiters, the trigger stays pending for the others. The waiter that
/// returns wakes the next one in any case.
pub(super) fn take_trigger<H: CnoState>(
    cno: &H,
    mut holds: impl FnMut(Evd<H>) -> Held,
) -> Option<Evd<H>> {
    while cno.triggered().load(Ordering::SeqCst) != 0 {
        let evd = cno.lock().table().for_waiters.first()?;
        let held = holds(evd);
        let mut state = cno.lock();
        let Table {
            for_waiters, evds, ..
        } = state.table();
        // The EVD may be bound to another CNO by now.
        let waiters = match evds.contains(&evd) {
            true => held.waiters,
            false => 0,
        };
        // Another waiter may have taken it meanwhile.
        let is_mine = for_waiters.serve(evd, waiters);
        cno.triggered().store(for_waiters.len(), Ordering::SeqCst);
        drop(state);
        if is_mine && held.any {
            return Some(evd);
        }
    }
    None
}

/// How a waiter polls the EVDs.
pub(super) trait EvdPoller<H: CnoState> {
    /// Returns whether all waiters were released.
    fn is_released(&self) -> bool;
    /// Returns whether the device cannot be armed.
    fn has_failed(&self) -> bool;
    /// Returns what an EVD still holds: see [`take_trigger`].
    fn holds(&mut self, evd: Evd<H>) -> Held;
    /// Polls all EVDs, and records their triggers.
    fn poll_all(&mut self);
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd<E> {
    /// This EVD has triggered.
    Triggered(E),
    /// There are no EVDs left to wait for.
    Released,
    /// The device cannot be armed.
    Failed,
}

/// Polls once for a waiter. Returns its result if the wait is over.
pub(super) fn poll_once<H: CnoState>(
    cno: &H,
    poller: &mut impl EvdPoller<H>,
) -> Option<WaitEnd<Evd<H>>> {
    if poller.is_released() {
        return Some(WaitEnd::Released);
    }
    if let Some(evd) = take_trigger(cno, |evd| poller.holds(evd)) {
        return Some(WaitEnd::Triggered(evd));
    }
    if poller.has_failed() {
        return Some(WaitEnd::Failed);
    }
    poller.poll_all();
    take_trigger(cno, |evd| poller.holds(evd)).map(WaitEnd::Triggered)
}

/// Polls once for a wait that begins, on a thread that is not among the waiters yet. Returns its
/// result if the wait is over. `poller` records leftovers if `with_leftovers`.
///
/// This poll may record a trigger before the thread that posted the event does. That thread then
/// wakes no waiter, because the trigger is not new; so this call wakes one for the triggers that it
/// leaves.
pub(super) fn poll_first<H: CnoState>(
    cno: &H,
    poller: &mut impl EvdPoller<H>,
    with_leftovers: bool,
) -> Option<WaitEnd<Evd<H>>> {
    if with_leftovers {
        // Before a pending trigger is taken: an EVD with new events all the time keeps no other from
        // its turn.
        poller.poll_all();
    }
    let end = poll_once(cno, poller);
    if end.is_some() && cno.triggered().load(Ordering::SeqCst) != 0 {
        let sleeper = cno.lock().table().waiters.first().cloned();
        if let Some(waiter) = sleeper {
            waiter.wake_up();
        }
    }
    end
}
