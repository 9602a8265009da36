//! Events that wait in an EVD: posted by any thread, or staged by the owner.
//!
//! [`Posted`] is under one lock, which the fast path does not take. The fast path reads one word,
//! `attention`, which is 0 if nothing is posted or commanded and nothing elsewhere forbids the fast
//! path. The owner stages events to count them, and to keep posted events behind the completions
//! that were there before them; [`Notice`] and [`Stamps`] describe the staged events.
//!
//! Decisions:
//! - `docs/decisions/023-one-cq-per-evd.md`
//! - `docs/decisions/062-cno-wait-returns-leftovers.md`
//! - `docs/decisions/072-time-stamps.md`

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::collections::VecDeque;
use std::sync::Arc;

#[cfg(not(test))]
pub(super) use dat_engine::DeviceClock as Clock;
use dat_engine::memory;
use dat_engine::sync::Mutex;

use super::Queue;
use super::streams::Attribute;
#[cfg(test)]
pub(super) use super::tests::FakeClock as Clock;
use crate::handle::{Handle, SlotCounters};
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
pub(super) enum OwnerCommand {
    /// Polls this queue too; room for its completions is reserved.
    Attach(Queue),
    /// Replaces the queue of staged events by this larger one.
    Room(VecDeque<Item>),
    /// Takes what the completion queues hold, and releases endpoints that are gone.
    Sweep,
    /// Takes what the completion queues hold, and counts the events.
    Count(Arc<EventCount>),
    /// Removes the completions of this endpoint.
    Purge(Handle),
}

/// Posted events and commands.
pub(super) struct Posted {
    /// 0 if the next event, if there is one, is in the only completion queue.
    pub(super) attention: AtomicU32,
    /// The number of events posted and not yet handed out, here or staged.
    held: AtomicU32,
    /// The number of processed commands, of `Inside::sent`.
    done: AtomicU32,
    inside: Mutex<Inside>,
}

struct Inside {
    events: VecDeque<EventData>,
    commands: Vec<OwnerCommand>,
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

    /// Reserves room for one event; returns `false` if there is none.
    pub(super) fn claim(&self) -> bool {
        let inside = self.inside.lock();
        let is_room = self.held.load(Ordering::Acquire) < inside.limit;
        if is_room {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        is_room
    }

    /// Adds the event that [`Self::claim`] reserved room for.
    pub(super) fn fill(&self, data: EventData) {
        let mut inside = self.inside.lock();
        inside.events.push_back(data);
        self.attention.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets the limit to `limit` events. Returns `false`, and changes nothing, if there is no
    /// memory for them. Events that are there stay.
    pub(super) fn set_limit(&self, limit: u32) -> bool {
        let mut inside = self.inside.lock();
        let more = (limit as usize).saturating_sub(inside.events.len());
        let _fallible = memory::Call::fallible();
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
    pub(super) fn send(&self, commands: impl IntoIterator<Item = OwnerCommand>) -> u32 {
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
    pub(super) fn commands(&self) -> Vec<OwnerCommand> {
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

/// Returns an empty queue with room for `room` elements; `None` if there is no memory.
pub(super) fn with_room<T>(room: usize) -> Option<VecDeque<T>> {
    let mut queue = VecDeque::new();
    let _fallible = memory::Call::fallible();
    queue.try_reserve_exact(room).ok()?;
    Some(queue)
}

/// What [`OwnerCommand::Count`] counts.
#[derive(Default)]
pub(super) struct EventCount {
    pub(super) events: AtomicUsize,
    /// Those among them that were not posted.
    pub(super) completions: AtomicUsize,
    /// The threshold of the wait in progress.
    pub(super) awaited: AtomicUsize,
}

/// An event that was taken from a completion queue.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) event: Item,
    /// The request was not posted UNSIGNALLED, or it failed.
    pub(super) signalled: bool,
    /// The peer sent it solicited, or it failed.
    pub(super) solicited: bool,
}

/// An event to be handed to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) data: EventData,
    /// The endpoint, if the event is a receive: the endpoint counts them.
    pub(super) receiver: Option<Handle>,
}

impl Item {
    fn counters(&self) -> Option<&'static SlotCounters> {
        Some(self.receiver?.slot()?.counters())
    }

    /// Counts the event as staged.
    pub(super) fn stage(&self) {
        if let Some(counters) = self.counters() {
            add(&counters.recv_staged, 1);
        }
    }

    /// Counts the event as no longer staged.
    pub(super) fn unstage(&self) {
        if let Some(counters) = self.counters() {
            add(&counters.recv_staged, u32::MAX);
        }
    }
}

/// All receives of an endpoint are on one EVD, and only its owner counts them, so a load and a
/// store suffice.
#[inline(always)]
fn add(counter: &AtomicU32, what: u32) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(what),
        Ordering::Relaxed,
    );
}

/// Returns the room to reserve for staged events: as many as a threshold may count, what the
/// completion queues hold, and what may be posted.
pub(super) fn room(queue_length: u32, queues: usize) -> usize {
    2 * queue_length as usize + queues
}

/// What polling has staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// An event that notifies a waiter.
    pub(super) notifies: bool,
    /// A completion, whether it notifies or not.
    pub(super) completion: bool,
}

impl Arrivals {
    /// A posted event, which always notifies.
    pub(super) const POSTED: Self = Self {
        notifies: true,
        completion: false,
    };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            notifies: self.notifies | other.notifies,
            completion: self.completion | other.completion,
        }
    }
}

/// Returns whether a completion wakes a waiter of an EVD with this attribute.
pub(super) fn does_notify(taken: &Taken, attribute: Option<Attribute>) -> bool {
    match attribute {
        Some(Attribute::Solicited) => taken.solicited,
        Some(Attribute::Unsignalled) => taken.signalled,
        Some(Attribute::Default | Attribute::Threshold) | None => true,
    }
}

/// What an EVD's owner keeps about the staged events that notify.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    /// An event that notifies was staged or posted since [`Self::take_fresh`].
    is_fresh: bool,
    /// The number of events that were staged after the last one that notifies, whether they have
    /// been taken since or not. Events are taken in order, so an event that notifies is left if
    /// more than this many are.
    after: usize,
}

impl Notice {
    /// No event was staged yet.
    pub(super) const fn new() -> Self {
        Self {
            is_fresh: false,
            after: usize::MAX,
        }
    }

    /// An event is staged.
    #[inline(always)]
    pub(super) fn staged(&mut self, notifies: bool) {
        self.is_fresh |= notifies;
        self.after = match notifies {
            true => 0,
            false => self.after.saturating_add(1),
        };
    }

    /// Events were posted, which notify, and are staged later.
    pub(super) fn posted(&mut self) {
        self.is_fresh = true;
    }

    /// All staged events count as events that notify.
    pub(super) fn count_all(&mut self) {
        self.after = 0;
    }

    /// Returns the place of the first event behind the last one that notifies, of this many staged
    /// events.
    pub(super) fn end(&self, staged: usize) -> usize {
        staged.saturating_sub(self.after)
    }

    /// So many events behind [`Self::end`] were removed. If the last event that notifies was removed
    /// itself, the one before it counts as notifying instead.
    pub(super) fn removed(&mut self, behind: usize) {
        self.after = self.after.saturating_sub(behind);
    }

    /// Returns whether an event that notifies was staged or posted since the last call.
    pub(super) fn take_fresh(&mut self) -> bool {
        core::mem::take(&mut self.is_fresh)
    }
}

/// The stamps of an EVD.
pub(super) struct Stamps {
    pub(super) clock: Clock,
    /// Those of the staged events, in their order, behind those of events that were taken since
    /// [`Self::follow`].
    pub(super) staged: VecDeque<Option<u64>>,
    /// That of the event that was taken last.
    pub(super) last: Option<u64>,
}

impl Stamps {
    /// Removes the stamps of events that were taken: `staged` are left.
    pub(super) fn follow(&mut self, staged: usize) {
        while self.staged.len() > staged {
            self.last = self.staged.pop_front().flatten();
        }
    }

    /// Gives this stamp to the events that were staged last: there are `staged` now.
    pub(super) fn stage(&mut self, staged: usize, stamp: Option<u64>) {
        while self.staged.len() < staged {
            self.staged.push_back(stamp);
        }
    }

    /// Passes the first stamp of a queue that is being filtered: moves it to the end if its event
    /// `stays`, otherwise removes it.
    pub(super) fn filter(&mut self, stays: bool) {
        let stamp = self.staged.pop_front().flatten();
        if stays {
            self.staged.push_back(stamp);
        }
    }

    /// Reserves room for the stamps of `room` events. Allocates: at most once for each endpoint
    /// that is attached or resize of the EVD.
    pub(super) fn reserve(&mut self, room: usize) {
        self.staged.reserve(room.saturating_sub(self.staged.len()));
    }
}

/// A number that is odd while the owner moves completions, and differs after it has moved some.
#[derive(Debug, Default)]
pub(super) struct SeqCount(pub(super) AtomicU32);

/// The owner may move completions until this is dropped.
pub(super) struct Moving<'a> {
    count: &'a AtomicU32,
    /// The number before; odd if another `Moving` of the same owner lives.
    before: u32,
}

impl SeqCount {
    /// Called by the owner before it takes completions from the queues.
    #[inline(always)]
    pub(super) fn begin(&self) -> Moving<'_> {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before | 1, Ordering::Relaxed);
        // The counts change after the number.
        fence(Ordering::Release);
        Moving {
            count: &self.0,
            before,
        }
    }

    /// Returns what `read` returns, or `None` if completions may have moved meanwhile.
    pub(super) fn read<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let before = self.0.load(Ordering::Acquire);
        let result = read();
        // The counts are read before the number.
        fence(Ordering::Acquire);
        let is_same = self.0.load(Ordering::Relaxed) == before;
        (is_same && before & 1 == 0).then_some(result)
    }
}

impl Moving<'_> {
    /// Records that a completion was taken. Without this the number is at the end what it was
    /// before, so an owner that polls empty queues does not disturb queries for long.
    #[inline(always)]
    pub(super) fn has_moved(&self) {
        let now = self.count.load(Ordering::Relaxed);
        self.count.store(now.wrapping_add(2), Ordering::Relaxed);
    }
}

impl Drop for Moving<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.before & 1 != 0 {
            return;
        }
        let now = self.count.load(Ordering::Relaxed);
        let after = match now == self.before | 1 {
            true => self.before,
            false => now.wrapping_add(1),
        };
        // Release: the counts change before the number.
        self.count.store(after, Ordering::Release);
    }
}
