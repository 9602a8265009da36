//! Which waiter gets a trigger, and which is woken: the order of steps that loses none.
//!
//! A thread that posts an event, or that finds one in a poll, records the trigger under the lock,
//! and then wakes a waiter. A waiter takes a trigger under the lock, and only if the EVD still
//! holds events. A waiter that returns, with or without a trigger, wakes another: it alone may have
//! received the device event, or the request to poll, that was meant for all.
//!
//! A wait that begins may also record EVDs that were returned before and still hold events
//! ([`Poller::poll_first`]). What it has recorded and does not take itself is for a sleeping
//! waiter. An EVD that holds several events is for as many waiters ([`Queue::serve`]).
//!
//! A thread that posts an event appends the EVD to the pending triggers, so that their order is that
//! of the events. But a poll may have found the event before that, and another waiter may have got
//! the trigger. So an entry of a posted event counts only once a poll confirms it.
//!
//! The descriptor is one more sleeper, which the program polls. It is *armed* when its alarm has
//! announced a sleep, and then all EVDs were polled and armed ([`Poller::arm_descriptor`]). From
//! then on it becomes readable by a trigger that is new to its queue, by an event of the device, and
//! for a request to poll. Whoever arms it again takes these, and shows what is left
//! ([`Table::show`]).
//!
//! This file is also compiled into the model (`tests/interleavings`), which simulates the EVDs, the
//! device and the threads; there, the items of `super` are those of the model.

use std::collections::VecDeque;
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::wait::ChannelFds;

use super::{Agent, Blocker, Cno, CnoRefusal, Handle, Ordering, PollMode, PollResult, Runner};
use super::{Source, Waiter};

/// The queue of the threads that wait: each trigger is for one of them.
pub(super) const WAITERS: usize = 0;
/// The queue of the agent's thread: each trigger is for it too.
pub(super) const AGENT: usize = 1;
/// The queue of the descriptor: each trigger is for it too.
pub(super) const DESCRIPTOR: usize = 2;
pub(super) const ALL: [usize; 3] = [WAITERS, AGENT, DESCRIPTOR];

/// Pending triggers, and the threads that may take them.
#[derive(Default)]
pub(super) struct Queue {
    /// Each EVD appears once.
    pending: VecDeque<PendingEvd>,
    /// What the threads sleep on. A wait whose blocker was removed is released: it ends without an
    /// EVD. The agent's thread is here from the time that an agent is set until that is called, and
    /// the alarm of the descriptor all the time.
    pub(super) waiters: Vec<Arc<Blocker>>,
}

#[derive(Clone, Copy, Debug)]
struct PendingEvd {
    evd: Handle,
    /// How many waiters may get it: 0 until a poll has found an event that no waiter got a trigger
    /// for, then [`usize::MAX`] until a waiter gets it.
    waiters: usize,
}

impl Queue {
    /// Appends an EVD unless it is pending already, and confirms its entry if it was seen. Returns
    /// `false` if the EVD was pending already.
    pub(super) fn push(&mut self, evd: Handle, is_seen: bool) -> bool {
        let known = self.pending.iter().position(|entry| entry.evd == evd);
        let place = known.unwrap_or(self.pending.len());
        if known.is_none() {
            self.pending.push_back(PendingEvd { evd, waiters: 0 });
        }
        let waiters = &mut self.pending[place].waiters;
        if is_seen || *waiters > 0 {
            *waiters = usize::MAX;
        }
        known.is_none()
    }

    /// Returns the first EVD.
    pub(super) fn first(&self) -> Option<Handle> {
        self.pending.front().map(|entry| entry.evd)
    }

    /// Removes an EVD for a waiter; returns whether it was pending and confirmed. Appends it again
    /// while it holds an event for another waiter. `events` is how many events notify.
    pub(super) fn serve(&mut self, evd: Handle, events: usize) -> bool {
        let place = self.pending.iter().position(|entry| entry.evd == evd);
        let Some(entry) = place.and_then(|place| self.pending.remove(place)) else {
            return false;
        };
        let waiters = entry.waiters.min(events).saturating_sub(1);
        if waiters > 0 {
            self.pending.push_back(PendingEvd { evd, waiters });
        }
        entry.waiters > 0
    }
}

/// The state of a CNO under its lock.
#[derive(Default)]
pub(super) struct Table {
    /// The EVDs that are bound to the CNO.
    pub(super) evds: Vec<Handle>,
    pub(super) queues: [Queue; 3],
    /// There is a descriptor.
    pub(super) has_descriptor: bool,
    /// What is woken when the lock is released.
    woken: Vec<Arc<Blocker>>,
    /// Waiters that no thread uses. The protocol does not use this and the following.
    pub(super) idle: Vec<Waiter>,
    pub(super) agent: Option<Agent>,
    /// The thread that calls the agent; it exists from the first agent on.
    pub(super) runner: Option<Runner>,
    /// The CNO is being freed.
    pub(super) is_over: bool,
}

impl Table {
    /// Records the trigger of an EVD in `queues`, and wakes waiters for it. `finders` are the queues
    /// that the thread looks at that has found the event in a poll; none if the event was posted.
    pub(super) fn record(&mut self, evd: Handle, finders: &[usize], queues: &[usize]) {
        // The EVD may be bound to another CNO by now.
        if !self.evds.contains(&evd) {
            return;
        }
        let is_used = |at: &&usize| **at != DESCRIPTOR || self.has_descriptor;
        for &at in queues.iter().filter(is_used) {
            let queue = &mut self.queues[at];
            if queue.push(evd, !finders.is_empty()) && !finders.contains(&at) {
                self.woken.extend(queue.waiters.first().cloned());
            }
        }
    }

    /// Makes a waiter poll the EVDs and arm them.
    pub(super) fn wake_poller(&mut self) {
        let mut waiters = self.queues.iter().flat_map(|queue| &queue.waiters);
        self.woken.extend(waiters.next().cloned());
    }

    /// Removes a waiter that returns, and wakes another.
    pub(super) fn remove_waiter(&mut self, blocker: &Arc<Blocker>) {
        let waiters = &mut self.queues[WAITERS].waiters;
        waiters.retain(|other| !Arc::ptr_eq(other, blocker));
        self.wake_poller();
    }

    /// Adds the descriptor, which is readable if there are EVDs: a program that begins with a poll
    /// looks at them.
    pub(super) fn add_descriptor(&mut self, alarm: &Arc<Blocker>) {
        self.has_descriptor = true;
        alarm.announce();
        if !self.evds.is_empty() {
            self.woken.push(Arc::clone(alarm));
        }
        self.forget(alarm);
    }

    /// Makes the descriptor readable if a trigger is pending for it, or if it was released. A
    /// release `is_told` once.
    fn show(&mut self, alarm: &Arc<Blocker>, is_told: bool) {
        let queue = &mut self.queues[DESCRIPTOR];
        if is_told && queue.waiters.is_empty() {
            queue.waiters.push(Arc::clone(alarm));
        }
        if queue.waiters.is_empty() || queue.first().is_some() {
            self.woken.push(Arc::clone(alarm));
        }
    }

    /// Drops the triggers of the descriptor: the program takes all events.
    pub(super) fn forget(&mut self, alarm: &Arc<Blocker>) {
        self.queues[DESCRIPTOR].pending.clear();
        self.show(alarm, true);
    }

    /// Ends the waits in `queues` without an EVD.
    pub(super) fn release(&mut self, queues: &[usize]) {
        for &at in queues {
            self.woken.append(&mut self.queues[at].waiters);
        }
    }
}

impl Cno {
    /// Changes the table, and then wakes threads.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let result = change(&mut table);
        self.changes.fetch_add(1, Ordering::SeqCst);
        let woken = core::mem::take(&mut table.woken);
        drop(table);
        woken.iter().for_each(|blocker| blocker.wake());
        result
    }
}

/// The result of a wait: the EVD that has triggered, or `None` if the wait was released.
pub(super) type WaitEnd = Result<Option<Handle>, CnoRefusal>;

/// The polls of a wait, or of the agent's thread.
pub(super) struct Poller {
    pub(super) cno: Arc<Cno>,
    /// The queue that it takes triggers from.
    queue: usize,
    /// What the thread sleeps on; `None` while it is not among the waiters yet.
    pub(super) blocker: Option<Arc<Blocker>>,
    /// How often the table had been changed when this was read from it: the EVDs, the first pending
    /// trigger, and whether this wait was released.
    changes: Option<u32>,
    evds: Vec<Handle>,
    first: Option<Handle>,
    is_released: bool,
    /// For some EVD, only events of the device say which completions notify.
    needs_device_events: bool,
    /// What is found is shown on the descriptor.
    shows_descriptor: bool,
    /// The device cannot be armed.
    pub(super) has_failed: bool,
    /// The result of the wait, once it is over.
    pub(super) end: Option<WaitEnd>,
}

impl Poller {
    pub(super) fn new(cno: &Arc<Cno>, queue: usize, blocker: Option<&Arc<Blocker>>) -> Self {
        Self {
            cno: Arc::clone(cno),
            queue,
            blocker: blocker.cloned(),
            changes: None,
            evds: Vec::new(),
            first: None,
            is_released: false,
            needs_device_events: false,
            shows_descriptor: false,
            has_failed: false,
            end: None,
        }
    }

    /// Reads the table if it has changed.
    fn refresh(&mut self) {
        let cno = &self.cno;
        if self.changes == Some(cno.changes.load(Ordering::SeqCst)) {
            return;
        }
        let table = cno.table.lock();
        self.changes = Some(cno.changes.load(Ordering::SeqCst));
        self.evds.clone_from(&table.evds);
        let queue = &table.queues[self.queue];
        self.first = queue.first();
        let is_there = |own| queue.waiters.iter().any(|other| Arc::ptr_eq(other, own));
        self.is_released = !self.blocker.as_ref().is_none_or(is_there);
    }

    /// Returns the queues that this thread looks at after a poll. A wait that begins also shows
    /// what is pending for the descriptor, if it has armed that.
    fn finders(&self) -> &'static [usize] {
        match self.shows_descriptor {
            true if self.queue == WAITERS => &[WAITERS, DESCRIPTOR],
            _ => &ALL[self.queue..=self.queue],
        }
    }

    /// Polls an EVD, and records its trigger.
    fn poll(&mut self, evd: Handle, mode: PollMode) -> PollResult {
        let seen = self.cno.poll_evd(evd, mode).unwrap_or_default();
        self.needs_device_events |= seen.needs_device_events;
        self.has_failed |= seen.failed && self.queue != AGENT;
        if seen.fresh {
            let finders = self.finders();
            self.cno.update(|table| table.record(evd, finders, &ALL));
        }
        seen
    }

    /// Polls all EVDs. [`PollMode::Wait`] is for a wait that begins and takes leftovers: a thread
    /// that dequeues owns the EVD for a moment, and may leave events.
    fn poll_all(&mut self, mode: PollMode) {
        self.refresh();
        self.needs_device_events = false;
        for at in 0..self.evds.len() {
            let evd = self.evds[at];
            let seen = self.poll(evd, mode);
            if mode == PollMode::Wait && !seen.fresh && seen.notifying > 0 {
                let own = &ALL[self.queue..=self.queue];
                self.cno.update(|table| table.record(evd, own, own));
            }
        }
    }

    /// Takes the first pending trigger whose EVD still holds events. If no waiter has got a trigger
    /// for its events yet, the poll records one, which confirms the entry.
    ///
    /// If the events are for several waiters, the trigger stays pending for the others. The waiter
    /// that returns wakes the next one in any case.
    fn take_trigger(&mut self) -> Option<WaitEnd> {
        loop {
            self.refresh();
            if self.is_released {
                return Some(Ok(None));
            }
            let Some(evd) = self.first else {
                return self.has_failed.then_some(Err(CnoRefusal::DeviceFailed));
            };
            let seen = self.poll(evd, PollMode::Wait);
            let events = match self.queue != AGENT && self.cno.returns_leftovers {
                true => seen.notifying,
                false => 1,
            };
            let is_mine = self.cno.update(|table| {
                // An event that was posted after the poll has woken no thread: its EVD was pending.
                if !seen.holds && self.changes != Some(self.cno.changes.load(Ordering::SeqCst)) {
                    return false;
                }
                let queue = &mut table.queues[self.queue];
                // Another waiter may have taken it meanwhile.
                let is_mine = queue.serve(evd, events);
                if self.blocker.is_none() && queue.first().is_some() {
                    table.wake_poller();
                }
                is_mine
            });
            if is_mine && seen.holds {
                return Some(Ok(Some(evd)));
            }
        }
    }

    /// Arms the descriptor, and takes what has made it readable. An event that is not there yet
    /// makes it readable again.
    ///
    /// The announcement comes before the polls, so that a request to poll is either done by them or
    /// makes the descriptor readable.
    pub(super) fn arm_descriptor(&mut self, alarm: &Blocker) {
        alarm.abandon();
        alarm.announce();
        // Does not fail.
        let _ = self.take_events();
        self.arm();
    }

    /// Polls once for a wait that begins, on a thread that is not among the waiters yet, or for the
    /// descriptor. Returns its result if the wait is over. Arms the descriptor, if there is one.
    ///
    /// Unless the IA is strict, the poll also records EVDs that may have been returned before and
    /// still hold events that notify. It does so before a pending trigger is taken: an EVD with new
    /// events all the time keeps no other from its turn. This is not for the agent: one that leaves
    /// events would be called without end.
    ///
    /// The poll may record a trigger before the thread that posted the event does. That thread then
    /// wakes no waiter, because the trigger is not new; so [`Self::take_trigger`] wakes one for the
    /// triggers that this wait leaves.
    pub(super) fn poll_first(&mut self) -> Option<WaitEnd> {
        // Another thread may create the descriptor from here on.
        let alarm = self.cno.alarm().cloned();
        self.shows_descriptor = alarm.is_some();
        if let Some(alarm) = &alarm {
            self.arm_descriptor(alarm);
        }
        self.poll_all(match self.cno.returns_leftovers {
            true => PollMode::Wait,
            false => PollMode::IfFree,
        });
        let end = self.take_trigger();
        if let Some(alarm) = &alarm {
            self.show_rest(alarm, end);
            self.shows_descriptor = false;
        }
        end
    }

    /// Makes the descriptor readable again, if this poll leaves triggers.
    fn show_rest(&mut self, alarm: &Arc<Blocker>, end: Option<WaitEnd>) {
        let own = &ALL[self.queue..=self.queue];
        if let Some(Ok(Some(evd))) = end {
            // Events that came since its poll belong to no later trigger.
            let seen = self.poll(evd, PollMode::Wait);
            if self.cno.returns_leftovers && seen.notifying > 1 {
                self.cno.update(|table| table.record(evd, own, own));
            }
        }
        self.cno.update(|table| {
            if self.queue == WAITERS {
                // This wait stands for the descriptor, too.
                table.queues[DESCRIPTOR].pending = table.queues[WAITERS].pending.clone();
            }
            let is_told = self.queue == DESCRIPTOR && matches!(end, Some(Ok(None)));
            table.show(alarm, is_told);
        });
    }
}

impl Source for Poller {
    fn ready(&mut self) -> bool {
        self.end = self.take_trigger().or_else(|| {
            self.poll_all(PollMode::IfFree);
            self.take_trigger()
        });
        self.end.is_some()
    }

    fn arm(&mut self) {
        self.poll_all(PollMode::Arm);
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        let evds = self.cno.readable();
        for &evd in &evds {
            self.poll(evd, PollMode::TakeEvents);
        }
        Ok(evds.len() as u32)
    }

    fn channel(&self) -> Option<ChannelFds<'_>> {
        self.cno.channel()
    }

    fn spin_counts(&self) -> bool {
        !self.needs_device_events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evd(bits: usize) -> Handle {
        Handle::from_bits(bits).expect("not 0")
    }

    #[test]
    fn evds_are_served_in_order_and_each_once() {
        let [a, b, c] = [64, 128, 192].map(evd);
        let mut queue = Queue::default();
        assert!(queue.push(b, true) && queue.push(a, true));
        assert!(!queue.push(b, true) && queue.push(c, true));
        assert_eq!((queue.pending.len(), queue.first()), (3, Some(b)));
        assert!(queue.serve(a, 1) && !queue.serve(a, 1));
        assert!(queue.serve(b, 1) && queue.push(b, true));
        assert_eq!(queue.first(), Some(c));
        assert!(queue.serve(c, 1) && queue.serve(b, 1) && queue.first().is_none());
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn an_evd_is_served_once_for_each_event_that_notifies() {
        let [a, b] = [64, 128].map(evd);
        let mut queue = Queue::default();
        assert!(queue.push(a, true) && queue.push(b, true));
        assert!(queue.serve(a, 3));
        assert_eq!(queue.first(), Some(b), "others keep their turn");
        assert!(queue.serve(b, 1) && !queue.serve(b, 1));
        // Although no event has been taken yet.
        assert!(queue.serve(a, 3) && queue.serve(a, 3) && !queue.serve(a, 3));
        // Events that were taken meanwhile are for no waiter.
        assert!(queue.push(a, true) && queue.serve(a, 4) && queue.serve(a, 1));
        assert!(!queue.serve(a, 1));
        // New events count from the beginning.
        assert!(queue.push(a, true) && queue.serve(a, 2));
        assert!(!queue.push(a, true) && queue.serve(a, 2) && queue.serve(a, 2));
        // An entry that is not confirmed is served to no waiter.
        assert!(queue.push(b, false) && !queue.serve(b, 2));
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn an_entry_keeps_its_place_when_it_is_confirmed() {
        let [a, b] = [64, 128].map(evd);
        let mut queue = Queue::default();
        assert!(queue.push(a, false) && queue.push(b, true));
        assert!(!queue.push(a, true) && !queue.push(a, false));
        assert_eq!(queue.first(), Some(a));
        assert!(queue.serve(a, 1), "confirmed");
        assert!(queue.push(a, false) && !queue.serve(a, 1), "not confirmed");
        assert_eq!((queue.pending.len(), queue.first()), (1, Some(b)));
    }
}
