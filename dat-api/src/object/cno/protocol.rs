//! Who is told of a trigger, and who is woken: the order that loses none.
//!
//! Whoever brings an event, or finds one in a look, notes the trigger under the
//! lock, then wakes somebody who waits. A waiter takes a trigger under the lock,
//! and only if the EVD holds events still. One who leaves, told or not, wakes
//! another: the device's event that all were waiting for, or the call to look,
//! may have come to him alone.
//!
//! This file is also compiled into the model (`tests/loom.rs`), which plays the
//! EVDs, the device and the threads.

use std::ops::DerefMut;
use std::sync::Arc;

use super::line::Line;
use super::sync::{AtomicUsize, Ordering};

/// A place to wait.
pub(super) trait Bell {
    /// Wakes who waits here, if he sleeps.
    fn ring(&self);
}

/// What is kept under the lock: EVDs by their names, places to wait.
#[derive(Debug)]
pub(super) struct Table<E, S> {
    /// What feeds the CNO.
    pub(super) evds: Vec<E>,
    /// Triggers that no waiter was told of.
    pub(super) for_waiters: Line<E>,
    /// Triggers that no agent was told of.
    pub(super) for_agent: Line<E>,
    /// Who waits.
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

/// What is under the lock.
pub(super) trait State {
    /// The name of an EVD.
    type Evd: Copy + PartialEq;
    /// A place to wait.
    type Seat: Bell;

    /// The part that the protocol is about.
    fn table(&mut self) -> &mut Table<Self::Evd, Self::Seat>;

    /// The thread that is to call the agent, if there is one to be called.
    fn caller(&self) -> Option<Arc<Self::Seat>>;

    /// Somebody who looks, if there is anybody.
    fn looker(&mut self) -> Option<Arc<Self::Seat>> {
        let first = self.table().seats.first().cloned();
        first.or_else(|| self.caller())
    }
}

/// A CNO, or a model of one.
pub(super) trait Hub {
    /// What is under its lock.
    type State: State;

    /// Locks it.
    fn lock(&self) -> impl DerefMut<Target = Self::State>;

    /// How many triggers wait for a waiter: looked at without the lock.
    fn triggered(&self) -> &AtomicUsize;
}

/// The name of an EVD of a CNO.
pub(super) type Evd<H> = <<H as Hub>::State as State>::Evd;
type Seat<H> = <<H as Hub>::State as State>::Seat;

/// Who has noticed a trigger, and so need not be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finder {
    /// One of the waiters.
    Waiter,
    /// The thread of the agent.
    Agent,
    /// Neither, and nobody has looked yet.
    Nobody,
}

/// An EVD has triggered.
pub(super) fn notice<H: Hub>(hub: &H, evd: Evd<H>, finder: Finder) {
    let mut state = hub.lock();
    let table = state.table();
    // It may have gone to another CNO meanwhile.
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

/// Somebody who waits is to look, and to ask the device for events.
pub(super) fn call<H: Hub>(hub: &H) {
    let looker = hub.lock().looker();
    if let Some(seat) = looker {
        seat.ring();
    }
}

/// One who waited here leaves, and wakes another.
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

/// Takes the first trigger for a waiter that is still good. `holds` looks whether
/// an EVD holds events still; if nobody was told of them yet, it lets the EVD
/// trigger, which confirms the entry.
pub(super) fn take<H: Hub>(hub: &H, mut holds: impl FnMut(Evd<H>) -> bool) -> Option<Evd<H>> {
    while hub.triggered().load(Ordering::SeqCst) != 0 {
        let evd = hub.lock().table().for_waiters.first()?;
        let holds = holds(evd);
        let mut state = hub.lock();
        let line = &mut state.table().for_waiters;
        // Another waiter may have been told meanwhile.
        let is_mine = line.remove(evd);
        hub.triggered().store(line.len(), Ordering::SeqCst);
        drop(state);
        if is_mine && holds {
            return Some(evd);
        }
    }
    None
}

/// How a waiter looks at the EVDs.
pub(super) trait Looking<H: Hub> {
    /// Whether everybody was sent away.
    fn is_released(&self) -> bool;
    /// Whether the device cannot be asked for events.
    fn has_failed(&self) -> bool;
    /// Whether an EVD holds events still: see [`take`].
    fn holds(&mut self, evd: Evd<H>) -> bool;
    /// Looks at all EVDs, and lets them trigger.
    fn glance_at_all(&mut self);
}

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told<E> {
    /// This EVD has triggered.
    Triggered(E),
    /// There is nothing to wait for any more.
    Released,
    /// The device cannot be asked for events.
    Failed,
}

/// One look of a waiter: what he is told, if he may go.
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
