//! Posted events, and commands to the owner of the EVD.
//!
//! Everything here is under one lock, which the fast path does not take. The fast path reads one
//! word, `attention`, which is 0 if nothing is posted or commanded here and nothing elsewhere
//! forbids the fast path.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;

use dat_engine::sync::Mutex;

use super::convert::Item;
use super::resize::EventCount;
use super::{Evd, Queue};
use crate::handle::Handle;
use crate::types::EventData;

/// Bits of the attention word. There are commands.
const COMMANDS: u32 = 1 << 31;
/// The owner has staged events.
const STAGED: u32 = 1 << 30;
/// Completions come from several queues, or from one that cannot be peeked at.
const QUEUES: u32 = 1 << 29;
/// The device reported that a queue has failed.
const FAILED: u32 = 1 << 28;
/// The owner is requested to empty the completion queues.
const POLL_REQUESTED: u32 = 1 << 27;
/// The owner keeps the time stamps of events.
const STAMPED: u32 = 1 << 26;
/// The remaining bits count posted events.
const COUNT: u32 = STAMPED - 1;

/// There was no room for an event, which is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// Whether the event before it was still taken: only the first lost event is reported.
    pub(crate) first: bool,
}

/// A command to the owner of the EVD.
pub(super) enum Command {
    /// Polls this queue too; room for its completions is reserved.
    Attach(Queue),
    /// Replaces the queue of staged events by this larger one.
    Room(VecDeque<Item>),
    /// Takes what the completion queues hold, and releases endpoints that are gone.
    Sweep,
    /// Takes what the completion queues hold, and counts the events.
    Count(EventCount),
    /// Removes the completions of this endpoint.
    Purge(Handle),
}

/// Posted events and commands.
pub(super) struct Posted {
    attention: AtomicU32,
    /// The number of events posted and not yet handed out, here or staged.
    held: AtomicU32,
    /// The number of processed commands, of `Inside::sent`.
    done: AtomicU32,
    inside: Mutex<Inside>,
}

struct Inside {
    events: VecDeque<EventData>,
    commands: Vec<Command>,
    /// The maximum of `held`.
    limit: u32,
    /// The last event was refused.
    overflowing: bool,
    sent: u32,
}

impl Posted {
    /// Returns one with room for `limit` events; `None` if there is no memory for them.
    pub(super) fn new(limit: u32) -> Option<Self> {
        Some(Self {
            attention: AtomicU32::new(QUEUES),
            held: AtomicU32::new(0),
            done: AtomicU32::new(0),
            inside: Mutex::new(Inside {
                events: with_room(limit as usize)?,
                commands: Vec::new(),
                limit: limit.min(COUNT),
                overflowing: false,
                sent: 0,
            }),
        })
    }

    /// Returns whether the next event, if there is one, is in the only completion queue.
    #[inline(always)]
    pub(super) fn allows_fast_path(&self) -> bool {
        self.attention.load(Ordering::Relaxed) == 0
    }

    /// Returns whether there is nothing here for the owner, and it keeps no time stamps.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & (COMMANDS | POLL_REQUESTED | STAMPED | COUNT) == 0
    }

    /// Returns how many events are posted here; `None` if others are staged, or there is something
    /// else for the owner to do.
    #[inline]
    pub(super) fn alone(&self) -> Option<u32> {
        let others = COMMANDS | POLL_REQUESTED | STAMPED | STAGED;
        let attention = self.attention.load(Ordering::Acquire);
        (attention & others == 0).then_some(attention & COUNT)
    }

    /// Returns how many events are posted here; `None` if the owner has something to do before
    /// events are counted.
    #[inline(always)]
    pub(super) fn count(&self) -> Option<u32> {
        let attention = self.attention.load(Ordering::Acquire);
        (attention & (COMMANDS | POLL_REQUESTED) == 0).then_some(attention & COUNT)
    }

    /// Returns how many events are posted here.
    pub(super) fn len(&self) -> u32 {
        self.attention.load(Ordering::Acquire) & COUNT
    }

    /// Called by the owner: sets whether it has staged events.
    pub(super) fn note_staged(&self, staged: bool) {
        self.note(STAGED, staged);
    }

    /// Called by the owner: sets whether completions come from one queue that can be peeked at.
    pub(super) fn note_queue(&self, fast: bool) {
        self.note(QUEUES, !fast);
    }

    /// Called by the owner: it keeps the time stamps of events from now on.
    pub(super) fn note_stamped(&self) {
        self.note(STAMPED, true);
    }

    /// Sets a bit that only the owner changes.
    fn note(&self, bit: u32, is: bool) {
        let was = self.attention.load(Ordering::Relaxed) & bit != 0;
        if was != is {
            self.attention.fetch_xor(bit, Ordering::Relaxed);
        }
    }

    /// Records that a queue has failed.
    pub(super) fn mark_failed(&self) {
        self.attention.fetch_or(FAILED, Ordering::SeqCst);
    }

    /// Adds an event, unless the limit is reached.
    pub(super) fn post(&self, data: EventData) -> Result<(), Overflow> {
        let mut inside = self.inside.lock();
        if self.held.load(Ordering::Acquire) >= inside.limit {
            let first = !inside.overflowing;
            inside.overflowing = true;
            return Err(Overflow { first });
        }
        inside.overflowing = false;
        inside.events.push_back(data);
        self.held.fetch_add(1, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// As [`Self::post`], for an event of the consumer. Returns `false` if there is no room;
    /// the consumer's call then fails, which does not count as an overflow.
    pub(super) fn offer(&self, data: EventData) -> bool {
        let mut inside = self.inside.lock();
        if self.held.load(Ordering::Acquire) >= inside.limit {
            return false;
        }
        inside.events.push_back(data);
        self.held.fetch_add(1, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Reserves room for one event; returns `false` if there is none.
    fn claim(&self) -> bool {
        let inside = self.inside.lock();
        let is_room = self.held.load(Ordering::Acquire) < inside.limit;
        if is_room {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        is_room
    }

    /// Adds the event that [`Self::claim`] reserved room for.
    fn fill(&self, data: EventData) {
        let mut inside = self.inside.lock();
        inside.events.push_back(data);
        self.attention.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets the limit to `limit` events. Returns `false`, and changes nothing, if there is no
    /// memory for them. Events that are there stay.
    pub(super) fn set_limit(&self, limit: u32) -> bool {
        let mut inside = self.inside.lock();
        let more = (limit as usize).saturating_sub(inside.events.len());
        if limit > inside.limit && inside.events.try_reserve_exact(more).is_err() {
            return false;
        }
        inside.limit = limit.min(COUNT);
        true
    }

    /// Lowers the limit to `limit` events. Returns `false`, and changes nothing, if the held events
    /// and `others` together exceed it, or if the limit is already lower.
    pub(super) fn lower_limit(&self, limit: u32, others: u32) -> bool {
        let mut inside = self.inside.lock();
        let held = self.held.load(Ordering::Acquire).saturating_add(others);
        let fits = held <= limit && limit <= inside.limit;
        if fits {
            inside.limit = limit;
        }
        fits
    }

    /// Sends commands; returns the number for [`Self::is_done`].
    pub(super) fn send(&self, commands: impl IntoIterator<Item = Command>) -> u32 {
        let mut inside = self.inside.lock();
        for command in commands {
            inside.commands.push(command);
            inside.sent = inside.sent.wrapping_add(1);
        }
        self.attention.fetch_or(COMMANDS, Ordering::SeqCst);
        inside.sent
    }

    /// Requests that the owner empty the completion queues. Takes no lock.
    pub(super) fn request_poll(&self) {
        self.attention.fetch_or(POLL_REQUESTED, Ordering::SeqCst);
    }

    /// Called by the owner: returns whether [`Self::request_poll`] was called since the last call.
    pub(super) fn take_poll_request(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & POLL_REQUESTED != 0
            && self.attention.fetch_and(!POLL_REQUESTED, Ordering::Relaxed) & POLL_REQUESTED != 0
    }

    /// Returns whether there are commands.
    pub(super) fn has_commands(&self) -> bool {
        self.attention.load(Ordering::Acquire) & COMMANDS != 0
    }

    /// Returns whether the owner has processed the command with this number.
    pub(super) fn is_done(&self, command: u32) -> bool {
        self.done.load(Ordering::Acquire).wrapping_sub(command) as i32 >= 0
    }

    /// Called by the owner: takes all commands, in order. The owner calls [`Self::command_done`]
    /// for each.
    pub(super) fn commands(&self) -> Vec<Command> {
        if !self.has_commands() {
            return Vec::new();
        }
        let mut inside = self.inside.lock();
        self.attention.fetch_and(!COMMANDS, Ordering::Relaxed);
        core::mem::take(&mut inside.commands)
    }

    /// Called by the owner: the oldest command was processed.
    pub(super) fn command_done(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Called by the owner: passes the `count` oldest events to `take`. They stay held until
    /// [`Self::handed_out`].
    pub(super) fn take(&self, count: u32, take: impl FnMut(EventData)) {
        if count == 0 {
            return;
        }
        let mut inside = self.inside.lock();
        inside.events.drain(..count as usize).for_each(take);
        self.attention.fetch_sub(count, Ordering::Relaxed);
    }

    /// Called by the owner: takes the oldest event, which it hands out.
    pub(super) fn take_first(&self) -> Option<EventData> {
        let mut inside = self.inside.lock();
        let first = inside.events.pop_front()?;
        self.attention.fetch_sub(1, Ordering::Relaxed);
        self.held.fetch_sub(1, Ordering::Release);
        Some(first)
    }

    /// Called by the owner: events were handed out or discarded, so there is room again.
    #[inline]
    pub(super) fn handed_out(&self, count: u32) {
        self.held.fetch_sub(count, Ordering::Release);
    }
}

/// Room for one event in an EVD, released unless it is filled.
pub(crate) struct Claim<'a>(&'a Evd);

impl<'a> Claim<'a> {
    pub(super) fn of(evd: &'a Evd) -> Option<Self> {
        evd.posted.claim().then(|| Self(evd))
    }

    /// Adds the event.
    pub(crate) fn fill(self, data: EventData) {
        let evd = self.0;
        core::mem::forget(self);
        evd.posted.fill(data);
        evd.arrived();
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.posted.handed_out(1);
    }
}

/// Returns an empty queue with room for `room` elements; `None` if there is no memory.
pub(super) fn with_room<T>(room: usize) -> Option<VecDeque<T>> {
    let mut queue = VecDeque::new();
    queue.try_reserve_exact(room).ok()?;
    Some(queue)
}
