//! The parts of an EVD: what any thread may touch, and what only its owner does.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use dat_engine::sync::{Mutex, MutexGuard};
use dat_engine::wait::{Blocker, SpinBudget, WaitCounters, WaitPolicy};
use dat_engine::{Arm, CompletionChannel, CompletionQueue, CqOptions};

use super::Queue;
use super::merge::Merge;
use super::pending::{Clock, Item, Notice, Posted, SeqCount, Stamps, room, with_room};
use super::streams::{Attachments, Attribute, FIRST_QUEUE, StreamKind};
use crate::error::Result;
use crate::handle::{Handle, Owned, Reservation};
use crate::object::counters::WaitCounts;
use crate::object::ia::{Ia, Rules};
use crate::object::usage::{Counted, Usage};
use crate::status::DatReturn;
use crate::types::{AsyncKind, AsyncReason, EvdFlags};

/// An event dispatcher.
pub struct Evd {
    pub(super) handle: Handle,
    pub(super) context: EvdContext,
    pub(super) flags: EvdFlags,
    /// What a dequeue returns if there is no event.
    pub(super) empty: DatReturn,
    /// The number of events that it holds, as queries report it.
    pub(super) queue_length: AtomicU32,
    pub(super) policy: WaitPolicy,
    pub(super) state: EvdState,
    /// The CNO that it triggers.
    pub(super) binding: CnoBinding,
    pub(super) posted: Posted,
    pub(super) blocker: Blocker,
    /// Published copy of the owner's counters.
    pub(super) counts: WaitCounts,
    /// What is attached, and the completion queues as attaching sees them.
    pub(super) attachments: Mutex<Attachments>,
    pub(super) usage: Usage,
    /// Changes while the owner moves completions from the queues to the staged events.
    pub(super) moves: SeqCount,
    pub(super) consumer: Exclusive,
    /// How many endpoints may have requests outstanding that complete without an event.
    pub(super) discarding: AtomicU32,
}

impl Counted for Evd {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

impl Evd {
    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the IA that it was created on.
    #[must_use]
    pub fn ia(&self) -> &Arc<Ia> {
        self.context.ia()
    }

    /// Returns the streams that it may carry.
    #[must_use]
    pub fn flags(&self) -> EvdFlags {
        self.flags
    }

    /// Returns whether it was created for events of this kind.
    pub(crate) fn carries(&self, kind: StreamKind) -> bool {
        self.flags.contains(kind.flag())
    }

    /// Returns the number of events that it holds: at least as many as requested, and at least as
    /// many as can be outstanding on the streams attached to it. Only [`Self::resize`] lowers it.
    #[inline]
    #[must_use]
    pub fn queue_length(&self) -> u32 {
        self.queue_length.load(Ordering::Acquire)
    }

    /// Returns what `read` returns, or `None` if receives may have moved between the counts of a
    /// receive queue and of staged events meanwhile. Wait a little before trying again, without a
    /// lock that an upcall takes.
    pub(crate) fn while_none_moves<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        self.moves.read(read)
    }

    /// Returns whether it can be waited on.
    #[inline(always)]
    #[must_use]
    pub fn is_waitable(&self) -> bool {
        self.state.states.load(Ordering::SeqCst) & UNWAITABLE == 0
    }

    /// An endpoint may have requests outstanding, from now on, that complete without an event.
    pub(crate) fn begin_discarding(&self) {
        self.discarding.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what [`Self::begin_discarding`] began.
    pub(crate) fn end_discarding(&self) {
        self.discarding.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn attachments(&self) -> MutexGuard<'_, Attachments> {
        self.attachments.lock()
    }
}

/// The context of an EVD: its IA.
pub(super) enum EvdContext {
    /// An open IA.
    Ia(Arc<Ia>),
    /// In tests without a device: asynchronous events are collected.
    #[cfg(test)]
    Test(super::tests::FakeIa),
}

impl EvdContext {
    pub(super) fn ia(&self) -> &Arc<Ia> {
        match self {
            Self::Ia(ia) => ia,
            #[cfg(test)]
            Self::Test(_) => panic!("no IA in this test"),
        }
    }

    pub(super) fn handle(&self) -> Handle {
        self.ia().handle()
    }

    pub(super) fn rules(&self) -> &Rules {
        match self {
            Self::Ia(ia) => ia.rules(),
            #[cfg(test)]
            Self::Test(ia) => ia.rules(),
        }
    }

    /// Returns the maximum length of an EVD.
    pub(super) fn max_queue_length(&self) -> u32 {
        self.rules().limits.max_evd_qlen.unsigned_abs()
    }

    /// Returns the least entries of the first completion queue of an EVD.
    pub(super) fn first_queue(&self) -> u32 {
        match self {
            Self::Ia(ia) if ia.device().resizes_cqs() => 1,
            Self::Ia(_) => FIRST_QUEUE,
            #[cfg(test)]
            Self::Test(ia) => ia.first_queue(),
        }
    }

    /// Publishes the EVD under its handle. `own`: the EVD does not keep the IA from being closed.
    pub(super) fn publish(&self, place: Reservation, evd: &Arc<Evd>, own: bool) -> Result<()> {
        match self {
            Self::Ia(ia) if own => ia.publish_own(place, evd)?,
            Self::Ia(ia) => ia.publish(place, evd)?,
            #[cfg(test)]
            Self::Test(_) => place.publish(Arc::clone(evd)),
        };
        Ok(())
    }

    pub(super) fn unregister(&self, handle: Handle) {
        match self {
            Self::Ia(ia) => ia.unregister(handle),
            #[cfg(test)]
            Self::Test(_) => {}
        }
    }

    pub(super) fn report(&self, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
        match self {
            Self::Ia(ia) => ia.report(kind, handle, reason),
            #[cfg(test)]
            Self::Test(ia) => ia.report(kind, handle, reason),
        }
    }

    /// Returns the clock that converts time stamps.
    #[cfg_attr(
        not(test),
        expect(clippy::useless_conversion, reason = "unit tests have a fake clock")
    )]
    pub(super) fn clock(&self) -> Result<Clock> {
        match self {
            Self::Ia(ia) => Ok(ia.device().clock()?.into()),
            #[cfg(test)]
            Self::Test(ia) => ia.clock(),
        }
    }

    pub(super) fn create_channel(&self) -> Result<CompletionChannel> {
        Ok(self.ia().device().create_channel()?)
    }

    pub(super) fn create_cq(
        &self,
        depth: u32,
        channel: &CompletionChannel,
        evd: Handle,
    ) -> Result<CompletionQueue> {
        let ia = self.ia();
        let cq = ia.device().create_cq(&CqOptions {
            depth,
            channel: Some(channel),
            ..CqOptions::default()
        })?;
        ia.watch(cq.verbs().id(), evd);
        Ok(cq)
    }
}

pub(super) const DISABLED: u32 = 1 << 0;
pub(super) const UNWAITABLE: u32 = 1 << 1;
const WAITED: u32 = 1 << 2;
const ABORTED: u32 = 1 << 3;
pub(super) const FAILED: u32 = 1 << 4;
/// The bits from here on hold the attribute of the DTO streams, as a number.
const ATTRIBUTE_SHIFT: u32 = 8;

/// The state flags, which any thread may read.
#[derive(Debug, Default)]
pub(super) struct EvdState {
    states: AtomicU32,
    /// How often the EVD was made unwaitable: a waiter returns even if the EVD was made waitable
    /// again before the waiter ran.
    pub(super) unwaitable_count: AtomicU32,
}

impl EvdState {
    #[inline(always)]
    fn is(&self, bit: u32) -> bool {
        self.states.load(Ordering::SeqCst) & bit != 0
    }

    pub(super) fn set(&self, bit: u32) {
        self.states.fetch_or(bit, Ordering::SeqCst);
    }

    pub(super) fn clear(&self, bit: u32) {
        self.states.fetch_and(!bit, Ordering::SeqCst);
    }

    /// Returns whether arriving events trigger the CNO.
    pub(super) fn is_enabled(&self) -> bool {
        !self.is(DISABLED)
    }

    /// Returns how often the EVD was made unwaitable, modulo 2^32.
    pub(super) fn unwaitable_count(&self) -> u32 {
        self.unwaitable_count.load(Ordering::SeqCst)
    }

    /// Returns whether a thread blocks in a wait.
    #[inline(always)]
    pub(super) fn is_waited(&self) -> bool {
        self.is(WAITED)
    }

    pub(super) fn set_waited(&self, waited: bool) {
        if waited {
            self.set(WAITED);
        } else {
            self.clear(WAITED);
        }
    }

    /// Returns whether the EVD is being freed during a wait.
    pub(super) fn is_aborted(&self) -> bool {
        self.is(ABORTED)
    }

    pub(super) fn abort(&self) {
        self.set(ABORTED);
    }

    /// Returns whether one of its completion queues has failed.
    #[inline(always)]
    pub(super) fn has_failed(&self) -> bool {
        self.is(FAILED)
    }

    /// Returns whether a wait has to end for a reason other than being unwaitable.
    pub(super) fn has_ended(&self) -> bool {
        self.is(ABORTED | FAILED)
    }

    /// Returns the attribute of the DTO streams, if there are any.
    #[inline]
    pub(super) fn attribute(&self) -> Option<Attribute> {
        Attribute::from_number(self.states.load(Ordering::Acquire) >> ATTRIBUTE_SHIFT)
    }

    /// Returns which completions the queues are armed for.
    pub(super) fn arm(&self) -> Arm {
        match self.attribute() {
            Some(Attribute::Solicited) => Arm::Solicited,
            _ => Arm::Any,
        }
    }

    pub(super) fn set_attribute(&self, attribute: Option<Attribute>) {
        let number = attribute.map_or(0, Attribute::number) << ATTRIBUTE_SHIFT;
        let others = (1 << ATTRIBUTE_SHIFT) - 1;
        // The only writer of these bits holds the lock of the attachments.
        let before = self.states.load(Ordering::Relaxed) & !others;
        self.states.fetch_xor(before ^ number, Ordering::AcqRel);
    }
}

/// Stored beside the handle, whose lowest bits are 0: rearmed, so that all events on the EVD
/// trigger at the next poll, however old they are.
const REARM: usize = 1;

/// Which CNO an EVD triggers: its handle, or 0; and [`REARM`]. One word, so that a poll for one
/// CNO does not clear the flag of another.
#[derive(Debug, Default)]
pub(super) struct CnoBinding(AtomicUsize);

impl CnoBinding {
    /// Returns whether there is a CNO.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    pub(super) fn cno(&self) -> Option<Handle> {
        Handle::from_bits(self.0.load(Ordering::SeqCst) & !REARM)
    }

    pub(super) fn set(&self, cno: Option<Handle>) {
        let word = cno.map_or(0, |cno| cno.bits() | REARM);
        self.0.store(word, Ordering::SeqCst);
    }

    /// Rearms: all events that are there trigger at the next poll.
    pub(super) fn rearm(&self) {
        let change = |word| (word != 0).then_some(word | REARM);
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }

    /// Begins a poll for this CNO. Returns whether the EVD was rearmed; `None` if the EVD is bound
    /// to another CNO.
    pub(super) fn begin_poll(&self, cno: Handle) -> Option<bool> {
        let mut word = self.0.load(Ordering::SeqCst);
        loop {
            if word & !REARM != cno.bits() {
                return None;
            }
            if word & REARM == 0 {
                return Some(false);
            }
            let order = Ordering::SeqCst;
            match self.0.compare_exchange(word, word & !REARM, order, order) {
                Ok(_) => return Some(true),
                Err(now) => word = now,
            }
        }
    }
}

/// The consuming half of an EVD, used only by the EVD's owner.
pub(super) struct Consumer {
    pub(super) staged: VecDeque<Item>,
    pub(super) queues: Vec<Queue>,
    /// The order of polling when there is more than one queue.
    pub(super) merge: Merge,
    /// The stamps of the staged events, if the EVD was asked for them.
    pub(super) stamps: Option<Box<Stamps>>,
    /// Which of the staged events notify.
    pub(super) notice: Notice,
    /// For the CNO: every queue is armed, and none has raised an event since.
    pub(super) is_covered: bool,
    /// The device has failed and raises no more events.
    pub(super) is_cut_off: bool,
    /// The threshold of the wait in progress, otherwise 0.
    pub(super) awaited: usize,
    pub(super) budget: SpinBudget,
    pub(super) counters: WaitCounters,
}

impl Consumer {
    /// Returns `None` if there is no memory.
    pub(super) fn new(queue_length: u32) -> Option<Self> {
        Some(Self {
            staged: with_room(room(queue_length, 0))?,
            queues: Vec::new(),
            merge: Merge::default(),
            stamps: None,
            notice: Notice::new(),
            is_covered: false,
            is_cut_off: false,
            awaited: 0,
            budget: SpinBudget::new(),
            counters: WaitCounters::default(),
        })
    }

    /// Returns whether completions come from one queue that can be peeked at.
    pub(super) fn has_only_queue(&self) -> bool {
        matches!(self.queues.as_slice(), [queue] if queue.can_peek())
    }
}

/// The consuming half of an EVD, for the call that owns the EVD by [`crate::handle::own`].
pub(super) struct Exclusive(UnsafeCell<Consumer>);

// SAFETY: the content is reached only through `open`, by one thread at a time, and `Consumer` is
// `Send`.
unsafe impl Sync for Exclusive {}

const _: () = {
    const fn crosses_threads<T: Send>() {}
    crosses_threads::<Consumer>();
};

impl Exclusive {
    pub(super) fn new(consumer: Consumer) -> Self {
        Self(UnsafeCell::new(consumer))
    }
}

/// Returns the two halves of an owned EVD: the shared one, and the owner's.
#[inline(always)]
pub(super) fn halves(owned: &mut Owned<Evd>) -> (&Evd, &mut Consumer) {
    let evd: &Evd = owned;
    // SAFETY: an EVD is published under one handle only (`create.rs`), a handle has one `Owned` at
    // a time, and that one is borrowed mutably here. No other function opens the cell.
    (evd, unsafe { &mut *evd.consumer.0.get() })
}
