//! Events that threads of the library and the consumer's own calls put in, and
//! letters to the owner of the EVD.
//!
//! Everything here is under one lock that the fast path does not take: it
//! looks at one word, the attention, which is 0 as long as there is nothing
//! here, and nothing elsewhere that keeps it from the completion queue.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Evd;
use super::convert::Item;
use super::queue::Queue;
use super::resize::Census;
use crate::handle::Handle;
use crate::types::EventData;

/// In the attention word: there are letters.
const LETTERS: u32 = 1 << 31;
/// The owner has staged events.
const STAGED: u32 = 1 << 30;
/// Completions come elsewhere than in one queue that can be looked into.
const QUEUES: u32 = 1 << 29;
/// The device gave a queue up.
const DEAD: u32 = 1 << 28;
/// The owner is asked to relieve the completion queues.
const RELIEF: u32 = 1 << 27;
/// The other bits count events that wait here.
const COUNT: u32 = RELIEF - 1;

/// There was no room for an event, which is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// Whether the event before it was still taken: what is to be reported.
    pub(crate) first: bool,
}

/// What the owner of the EVD is asked to do.
pub(super) enum Letter {
    /// Poll this queue too; there is room for what it can hold.
    Attach(Queue),
    /// Here is room for more staged events.
    Room(VecDeque<Item>),
    /// Take what the completion queues hold, and let go of endpoints that are
    /// no more.
    Sweep,
    /// Take what the completion queues hold, and say how many events there are.
    Count(Census),
    /// Forget the completions of this endpoint.
    Purge(Handle),
}

/// See the head of the file.
pub(super) struct Posted {
    attention: AtomicU32,
    /// Events posted and not yet handed out, here or with the owner.
    held: AtomicU32,
    /// Letters that the owner has done with, of `Inside::sent`.
    done: AtomicU32,
    inside: Mutex<Inside>,
}

struct Inside {
    events: VecDeque<EventData>,
    letters: Vec<Letter>,
    /// The most that `held` may be.
    limit: u32,
    /// The last event was refused.
    overflowing: bool,
    sent: u32,
}

impl Posted {
    /// Room for `limit` events; nothing if there is no memory for them.
    pub(super) fn new(limit: u32) -> Option<Self> {
        Some(Self {
            attention: AtomicU32::new(QUEUES),
            held: AtomicU32::new(0),
            done: AtomicU32::new(0),
            inside: Mutex::new(Inside {
                events: with_room(limit as usize)?,
                letters: Vec::new(),
                limit: limit.min(COUNT),
                overflowing: false,
                sent: 0,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next event, if there is one, is in the only queue.
    #[inline(always)]
    pub(super) fn allows_fast_path(&self) -> bool {
        self.attention.load(Ordering::Relaxed) == 0
    }

    /// Whether the owner has anything to fetch here.
    #[inline(always)]
    pub(super) fn is_quiet(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & (LETTERS | RELIEF | COUNT) == 0
    }

    /// How many events wait here.
    pub(super) fn len(&self) -> u32 {
        self.attention.load(Ordering::Acquire) & COUNT
    }

    /// Owner: whether it has staged events.
    pub(super) fn note_staged(&self, staged: bool) {
        self.note(STAGED, staged);
    }

    /// Owner: whether completions come in one queue that can be looked into.
    pub(super) fn note_queue(&self, fast: bool) {
        self.note(QUEUES, !fast);
    }

    /// A bit that the owner alone changes.
    fn note(&self, bit: u32, is: bool) {
        let was = self.attention.load(Ordering::Relaxed) & bit != 0;
        if was != is {
            self.attention.fetch_xor(bit, Ordering::Relaxed);
        }
    }

    /// The device gave a queue up.
    pub(super) fn note_dead(&self) {
        self.attention.fetch_or(DEAD, Ordering::SeqCst);
    }

    /// Adds an event, unless as many are held as there is room for.
    pub(super) fn post(&self, data: EventData) -> Result<(), Overflow> {
        let mut inside = self.lock();
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

    /// As [`Self::post`], for the consumer, who is told by the call: a refusal
    /// is no overflow.
    pub(super) fn offer(&self, data: EventData) -> bool {
        let mut inside = self.lock();
        if self.held.load(Ordering::Acquire) >= inside.limit {
            return false;
        }
        inside.events.push_back(data);
        self.held.fetch_add(1, Ordering::Relaxed);
        self.attention.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Keeps room for one event that may come; `false` if there is none.
    fn claim(&self) -> bool {
        let inside = self.lock();
        let is_room = self.held.load(Ordering::Acquire) < inside.limit;
        if is_room {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        is_room
    }

    /// Adds the event that [`Self::claim`] has kept room for.
    fn fill(&self, data: EventData) {
        let mut inside = self.lock();
        inside.events.push_back(data);
        self.attention.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes room for `limit` events, and for no more; `false`, and nothing has
    /// changed, if there is no memory for them. Events that are there stay.
    pub(super) fn set_limit(&self, limit: u32) -> bool {
        let mut inside = self.lock();
        let more = (limit as usize).saturating_sub(inside.events.len());
        if limit > inside.limit && inside.events.try_reserve_exact(more).is_err() {
            return false;
        }
        inside.limit = limit.min(COUNT);
        true
    }

    /// Makes room for no more than `limit` events; `false`, and nothing has
    /// changed, if these are too many with `others` besides, or if there was no
    /// more room before.
    pub(super) fn lower_limit(&self, limit: u32, others: u32) -> bool {
        let mut inside = self.lock();
        let held = self.held.load(Ordering::Acquire).saturating_add(others);
        let fits = held <= limit && limit <= inside.limit;
        if fits {
            inside.limit = limit;
        }
        fits
    }

    /// Sends letters; answers what [`Self::is_done`] is to be asked for.
    pub(super) fn send(&self, letters: impl IntoIterator<Item = Letter>) -> u32 {
        let mut inside = self.lock();
        for letter in letters {
            inside.letters.push(letter);
            inside.sent = inside.sent.wrapping_add(1);
        }
        self.attention.fetch_or(LETTERS, Ordering::SeqCst);
        inside.sent
    }

    /// Asks the owner to relieve the completion queues. Takes no lock.
    pub(super) fn ask_relief(&self) {
        self.attention.fetch_or(RELIEF, Ordering::SeqCst);
    }

    /// Owner: whether it was asked to, since this was called last.
    pub(super) fn take_relief(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & RELIEF != 0
            && self.attention.fetch_and(!RELIEF, Ordering::Relaxed) & RELIEF != 0
    }

    /// Whether there are letters.
    pub(super) fn has_letters(&self) -> bool {
        self.attention.load(Ordering::Acquire) & LETTERS != 0
    }

    /// Whether the owner has acted on the letter of this number.
    pub(super) fn is_done(&self, letter: u32) -> bool {
        self.done.load(Ordering::Acquire).wrapping_sub(letter) as i32 >= 0
    }

    /// Owner: all letters, in order. [`Self::letter_done`] is due for each.
    pub(super) fn letters(&self) -> Vec<Letter> {
        if !self.has_letters() {
            return Vec::new();
        }
        let mut inside = self.lock();
        self.attention.fetch_and(!LETTERS, Ordering::Relaxed);
        core::mem::take(&mut inside.letters)
    }

    /// Owner: the oldest letter was acted on.
    pub(super) fn letter_done(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Owner: hands the `count` oldest events to `take`. They stay held until
    /// [`Self::handed_out`].
    pub(super) fn take(&self, count: u32, take: impl FnMut(EventData)) {
        if count == 0 {
            return;
        }
        let mut inside = self.lock();
        inside.events.drain(..count as usize).for_each(take);
        self.attention.fetch_sub(count, Ordering::Relaxed);
    }

    /// Owner: events are with the consumer, or forgotten; there is room again.
    #[inline]
    pub(super) fn handed_out(&self, count: u32) {
        self.held.fetch_sub(count, Ordering::Release);
    }
}

/// Room for one event in an EVD, given back unless it is filled.
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

/// An empty queue with room for so many; nothing if there is no memory.
pub(super) fn with_room<T>(room: usize) -> Option<VecDeque<T>> {
    let mut queue = VecDeque::new();
    queue.try_reserve_exact(room).ok()?;
    Some(queue)
}
