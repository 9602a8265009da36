//! Which waiter gets a trigger, and which is woken: the order of steps that loses none.
//!
//! A thread that posts an event, or that finds one in a poll, records the trigger under the lock,
//! and then wakes a waiter. A waiter takes a trigger under the lock, and only if the EVD still
//! holds events. A waiter that returns, with or without a trigger, wakes another: it alone may have
//! received the device event, or the request to poll, that was meant for all.
//!
//! This file is also compiled into the model (`tests/loom.rs`), which simulates the EVDs, the
//! device and the threads.

use std::ops::DerefMut;
use std::sync::Arc;

use super::line::Line;
use super::sync::{AtomicUsize, Ordering};

/// A waiter: the place where one thread sleeps.
pub(super) trait Bell {
    /// Wakes the thread that sleeps here, if there is one.
    fn ring(&self);
}

/// The state under the lock: the EVDs, by names, and the waiters.
#[derive(Debug)]
pub(super) struct Table<E, S> {
    /// The EVDs that are bound to the CNO.
    pub(super) evds: Vec<E>,
    /// The pending triggers for waiters.
    pub(super) for_waiters: Line<E>,
    /// The pending triggers for the agent.
    pub(super) for_agent: Line<E>,
    /// The threads that wait.
    pub(super) seats: Vec<Arc<S>>,
}

impl<E, S> Default for Table<E, S> {
    fn default() -> Self {
        Self {
            evds: Vec::new(),
            for_waiters: Line::default(),
            for_agent: Line::default(),
            seats: Vec::new(),
        }
    }
}

/// The state under the lock.
pub(super) trait State {
    /// The name of an EVD.
    type Evd: Copy + PartialEq;
    /// A waiter.
    type Seat: Bell;

    /// Returns the part that the protocol uses.
    fn table(&mut self) -> &mut Table<Self::Evd, Self::Seat>;

    /// Returns the waiter of the agent's thread, if there is an agent to call.
    fn caller(&self) -> Option<Arc<Self::Seat>>;

    /// Returns a waiter that polls, if there is one.
    fn looker(&mut self) -> Option<Arc<Self::Seat>> {
        let first = self.table().seats.first().cloned();
        first.or_else(|| self.caller())
    }
}

/// The state of a CNO, or a model of it.
pub(super) trait Hub {
    /// The state under its lock.
    type State: State;

    /// Locks it.
    fn lock(&self) -> impl DerefMut<Target = Self::State>;

    /// Returns the number of pending triggers for waiters, which is read without the lock.
    fn triggered(&self) -> &AtomicUsize;
}

/// The name of an EVD of a CNO.
pub(super) type Evd<H> = <<H as Hub>::State as State>::Evd;
type Seat<H> = <<H as Hub>::State as State>::Seat;

/// The thread that has found a trigger, which need not be woken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finder {
    /// A waiter.
    Waiter,
    /// The thread of the agent.
    Agent,
    /// Neither: the trigger is of a posted event, without a poll.
    Nobody,
}

/// Records the trigger of an EVD, and wakes waiters for it.
pub(super) fn notice<H: Hub>(hub: &H, evd: Evd<H>, finder: Finder) {
    let mut state = hub.lock();
    let table = state.table();
    // The EVD may be bound to another CNO by now.
    if !table.evds.contains(&evd) {
        return;
    }
    let is_seen = finder != Finder::Nobody;
    let is_new = table.for_waiters.push(evd, is_seen);
    let waiting = table.for_waiters.len();
    hub.triggered().store(waiting, Ordering::SeqCst);
    let waiter = match is_new && finder != Finder::Waiter {
        true => table.seats.first().cloned(),
        false => None,
    };
    let is_new = table.for_agent.push(evd, is_seen);
    let caller = match is_new && finder != Finder::Agent {
        true => state.caller(),
        false => None,
    };
    drop(state);
    for seat in waiter.iter().chain(&caller) {
        seat.ring();
    }
}

/// Makes a waiter poll the EVDs and arm them.
pub(super) fn call<H: Hub>(hub: &H) {
    let looker = hub.lock().looker();
    if let Some(seat) = looker {
        seat.ring();
    }
}

/// Removes a waiter that returns, and wakes another.
pub(super) fn leave<H: Hub>(hub: &H, seat: &Arc<Seat<H>>) {
    let mut state = hub.lock();
    state
        .table()
        .seats
        .retain(|other| !Arc::ptr_eq(other, seat));
    let next = state.looker();
    drop(state);
    if let Some(next) = next {
        next.ring();
    }
}

/// Takes the first pending trigger whose EVD still holds events. `holds` polls an EVD; if no waiter
/// was told of its events yet, `holds` records the trigger, which confirms the entry.
pub(super) fn take<H: Hub>(hub: &H, mut holds: impl FnMut(Evd<H>) -> bool) -> Option<Evd<H>> {
    while hub.triggered().load(Ordering::SeqCst) != 0 {
        let evd = hub.lock().table().for_waiters.first()?;
        let holds = holds(evd);
        let mut state = hub.lock();
        let line = &mut state.table().for_waiters;
        // Another waiter may have taken it meanwhile.
        let is_mine = line.remove(evd);
        hub.triggered().store(line.len(), Ordering::SeqCst);
        drop(state);
        if is_mine && holds {
            return Some(evd);
        }
    }
    None
}

/// How a waiter polls the EVDs.
pub(super) trait Looking<H: Hub> {
    /// Returns whether all waiters were released.
    fn is_released(&self) -> bool;
    /// Returns whether the device cannot be armed.
    fn has_failed(&self) -> bool;
    /// Returns whether an EVD still holds events: see [`take`].
    fn holds(&mut self, evd: Evd<H>) -> bool;
    /// Polls all EVDs, and records their triggers.
    fn glance_at_all(&mut self);
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told<E> {
    /// This EVD has triggered.
    Triggered(E),
    /// There are no EVDs left to wait for.
    Released,
    /// The device cannot be armed.
    Failed,
}

/// Polls once for a waiter. Returns its result if the wait is over.
pub(super) fn look<H: Hub>(hub: &H, looking: &mut impl Looking<H>) -> Option<Told<Evd<H>>> {
    if looking.is_released() {
        return Some(Told::Released);
    }
    if let Some(evd) = take(hub, |evd| looking.holds(evd)) {
        return Some(Told::Triggered(evd));
    }
    if looking.has_failed() {
        return Some(Told::Failed);
    }
    looking.glance_at_all();
    take(hub, |evd| looking.holds(evd)).map(Told::Triggered)
}
