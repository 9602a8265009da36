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
    fn wake(&self);
}

/// The state under the lock: the EVDs, by names, the waiters, and what the protocol does not use.
#[derive(Debug)]
pub(super) struct Table<E, S, A> {
    /// The EVDs that are bound to the CNO.
    pub(super) evds: Vec<E>,
    /// The pending triggers for waiters.
    pub(super) for_waiters: PendingTriggers<E>,
    /// The pending triggers for the agent.
    pub(super) for_agent: PendingTriggers<E>,
    /// The threads that wait.
    pub(super) waiters: Vec<Arc<S>>,
    /// The agent and the rest.
    pub(super) rest: A,
}

/// The agent of a CNO.
pub(super) trait HasAgent<S> {
    /// Returns the waiter of the agent's thread, if there is an agent to call.
    fn agent_waiter(&self) -> Option<Arc<S>>;
}

impl<E, S, A: HasAgent<S>> Table<E, S, A> {
    pub(super) fn new(rest: A) -> Self {
        Self {
            evds: Vec::new(),
            for_waiters: PendingTriggers::default(),
            for_agent: PendingTriggers::default(),
            waiters: Vec::new(),
            rest,
        }
    }

    /// Returns a waiter that polls, if there is one.
    pub(super) fn poller(&self) -> Option<Arc<S>> {
        let first = self.waiters.first().cloned();
        first.or_else(|| self.rest.agent_waiter())
    }
}

/// The state of a CNO, or a model of it.
pub(super) trait CnoState {
    /// The name of an EVD.
    type Evd: Copy + PartialEq;
    /// A waiter.
    type Waiter: Wake;
    /// The agent.
    type Rest: HasAgent<Self::Waiter>;

    /// Locks it.
    fn lock(&self) -> impl DerefMut<Target = Table<Self::Evd, Self::Waiter, Self::Rest>>;

    /// Returns the number of pending triggers for waiters, which is read without the lock.
    fn triggered(&self) -> &AtomicUsize;
}

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
pub(super) fn record_trigger<H: CnoState>(cno: &H, evd: H::Evd, finder: Finder) {
    let mut table = cno.lock();
    // The EVD may be bound to another CNO by now.
    if !table.evds.contains(&evd) {
        return;
    }
    let is_seen = finder != Finder::NotPolled;
    let is_new = table.for_waiters.push(evd, is_seen);
    let waiting = table.for_waiters.len();
    cno.triggered().store(waiting, Ordering::SeqCst);
    let wakes_waiter = is_new && finder != Finder::Waiter;
    let waiter = table.waiters.first().filter(|_| wakes_waiter).cloned();
    let is_new = table.for_agent.push(evd, is_seen);
    let caller = match is_new && finder != Finder::Agent {
        true => table.rest.agent_waiter(),
        false => None,
    };
    drop(table);
    waiter.iter().chain(&caller).for_each(|it| it.wake());
}

/// Records an EVD that may have been returned before and still holds events that notify, for a wait
/// that begins ([`poll_first`]). Not for the agent: one that leaves events would be called without
/// end.
pub(super) fn record_leftover<H: CnoState>(cno: &H, evd: H::Evd) {
    let mut table = cno.lock();
    if table.evds.contains(&evd) {
        table.for_waiters.push(evd, true);
        let waiting = table.for_waiters.len();
        cno.triggered().store(waiting, Ordering::SeqCst);
    }
}

/// Makes a waiter poll the EVDs and arm them.
pub(super) fn wake_poller<H: CnoState>(cno: &H) {
    let poller = cno.lock().poller();
    poller.iter().for_each(|it| it.wake());
}

/// Removes a waiter that returns, and wakes another.
pub(super) fn remove_waiter<H: CnoState>(cno: &H, waiter: &Arc<H::Waiter>) {
    let mut table = cno.lock();
    table.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
    let next = table.poller();
    drop(table);
    next.iter().for_each(|it| it.wake());
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
/// returns wakes the next one in any case. A trigger for the agent stays if there is none now.
fn take_trigger<P: EvdPoller>(poller: &P) -> Option<EvdOf<P>> {
    let (cno, is_agent) = (poller.cno(), poller.finder() == Finder::Agent);
    while is_agent || cno.triggered().load(Ordering::SeqCst) != 0 {
        let table = cno.lock();
        let pending = match is_agent {
            true => &table.for_agent,
            false => &table.for_waiters,
        };
        let evd = pending.first()?;
        drop(table);
        let held = poller.holds(evd);
        let mut table = cno.lock();
        // Another waiter may have taken it meanwhile.
        let is_mine = if is_agent {
            if held.any && table.rest.agent_waiter().is_none() {
                return None;
            }
            table.for_agent.remove(evd)
        } else {
            // The EVD may be bound to another CNO by now.
            let waiters = match table.evds.contains(&evd) {
                true => held.waiters,
                false => 0,
            };
            let is_mine = table.for_waiters.serve(evd, waiters);
            cno.triggered()
                .store(table.for_waiters.len(), Ordering::SeqCst);
            is_mine
        };
        drop(table);
        if is_mine && held.any {
            return Some(evd);
        }
    }
    None
}

/// How a waiter polls the EVDs.
pub(super) trait EvdPoller {
    /// The CNO, or a model of it.
    type Cno: CnoState;

    /// Returns the CNO.
    fn cno(&self) -> &Self::Cno;
    /// Returns what polls: a waiter, or the thread of the agent.
    fn finder(&self) -> Finder;
    /// Returns whether all waiters were released.
    fn is_released(&self) -> bool;
    /// Returns whether the device cannot be armed.
    fn has_failed(&self) -> bool;
    /// Returns what an EVD still holds: see [`take_trigger`].
    fn holds(&self, evd: EvdOf<Self>) -> Held;
    /// Polls all EVDs, and records their triggers.
    fn poll_all(&mut self);
}

/// The name of an EVD that is polled so.
type EvdOf<P> = <<P as EvdPoller>::Cno as CnoState>::Evd;

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
pub(super) fn poll_once<P: EvdPoller>(poller: &mut P) -> Option<WaitEnd<EvdOf<P>>> {
    if poller.is_released() {
        return Some(WaitEnd::Released);
    }
    if let Some(evd) = take_trigger(poller) {
        return Some(WaitEnd::Triggered(evd));
    }
    if poller.has_failed() {
        return Some(WaitEnd::Failed);
    }
    poller.poll_all();
    take_trigger(poller).map(WaitEnd::Triggered)
}

/// Polls once for a wait that begins, on a thread that is not among the waiters yet. Returns its
/// result if the wait is over. `poller` records leftovers if `with_leftovers`.
///
/// This poll may record a trigger before the thread that posted the event does. That thread then
/// wakes no waiter, because the trigger is not new; so this call wakes one for the triggers that it
/// leaves.
pub(super) fn poll_first<P: EvdPoller>(
    poller: &mut P,
    with_leftovers: bool,
) -> Option<WaitEnd<EvdOf<P>>> {
    if with_leftovers {
        // Before a pending trigger is taken: an EVD with new events all the time keeps no other from
        // its turn.
        poller.poll_all();
    }
    let end = poll_once(poller);
    let cno = poller.cno();
    if end.is_some() && cno.triggered().load(Ordering::SeqCst) != 0 {
        let sleeper = cno.lock().waiters.first().cloned();
        sleeper.iter().for_each(|it| it.wake());
    }
    end
}
