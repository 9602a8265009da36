//! Event dispatchers: where events are collected, waited for and dequeued.
//!
//! # Where events are
//! | place | filled by | emptied by |
//! | --- | --- | --- |
//! | completion queues of the engine | the device | the owner |
//! | posted events (`posted.rs`) | any thread, under a lock | the owner |
//! | staged events (`consumer.rs`) | the owner, from the other two | the owner |
//!
//! The owner is the call that owns the EVD by [`crate::handle::own`]: one wait or one dequeue at a
//! time. On the fast path (`fast.rs`) one word says that nothing is staged or posted and that there
//! is one completion queue; the owner peeks at the next CQE of that queue and converts it to an
//! event. A dequeue takes that event. A wait peeks, arms the queue, peeks again, sleeps until an
//! event is there, and then takes it as a dequeue does. Events are staged when more than the first
//! must be known: to count them for a threshold or for `nmore`, and to keep posted events behind
//! the completions that were there before them.
//!
//! # What cannot be lost
//! Completions: the queues have room for all that can be outstanding on the streams attached to
//! them. A posted event can find the EVD full.
//!
//! Decision: `docs/decisions/022-evd-over-queues.md`

mod attachments;
mod capacity;
mod cno_binding;
mod consumer;
mod context;
mod control;
mod convert;
mod create;
mod dto;
#[allow(unsafe_code)]
mod exclusive;
mod explain;
#[allow(unsafe_code)]
mod fast;
mod merge;
mod notice;
mod posted;
mod query;
mod resize;
mod seq_count;
mod staging;
mod stamps;
mod streams;
mod take;
mod wait;

#[cfg(test)]
mod tests;

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use dat_engine::sync::{Mutex, MutexGuard};
use dat_engine::wait::{Blocker, WaitPolicy};
#[cfg(not(test))]
use dat_engine::{CompletionQueue as Queue, CqeRef as Cqe};

use self::attachments::Attachments;
use self::cno_binding::CnoBinding;
use self::context::EvdContext;
use self::exclusive::Exclusive;
use self::posted::Posted;
use self::query::EvdState;
use self::seq_count::SeqCount;
// Unit tests have no device, and fill the completion queues.
#[cfg(test)]
use self::tests::{FakeCqe as Cqe, FakeQueue as Queue};
use super::counters::WaitCounts;
use super::ia::Ia;
use super::usage::{Counted, Usage};
use crate::handle::Handle;
use crate::status::DatReturn;
use crate::types::{AsyncKind, AsyncReason, EvdFlags, EventData};

pub(crate) use self::attachments::DtoRole;
pub(crate) use self::cno_binding::{PollMode, poll_for_cno};
pub(crate) use self::dto::DtoStream;
pub use self::explain::why_refused;
pub use self::fast::{PeekedEvent, peek};
pub(crate) use self::posted::{Claim, Overflow};
pub use self::query::{EvdInfo, Notification};
pub use self::stamps::{Stamped, dequeue_stamped, wait_stamped};
pub use self::streams::StreamKind;
pub(crate) use self::streams::{DtoConfig, StreamGuard};
pub(crate) use self::take::poll_completions;
pub use self::take::{dequeue, dequeue_slow, dequeue_slow_with, drain, own, own_when_free};
pub(crate) use self::wait::TIMED_OUT;
pub use self::wait::{Timeout, Waited, Waiting, begin, take_counted, take_posted, wait};

/// An event dispatcher.
pub struct Evd {
    handle: Handle,
    context: EvdContext,
    flags: EvdFlags,
    /// What a dequeue returns if there is no event.
    empty: DatReturn,
    /// The number of events that it holds, as queries report it.
    queue_length: AtomicU32,
    policy: WaitPolicy,
    state: EvdState,
    /// The CNO that it triggers.
    binding: CnoBinding,
    posted: Posted,
    blocker: Blocker,
    /// Published copy of the owner's counters.
    counts: WaitCounts,
    /// What is attached, and the completion queues as attaching sees them.
    attachments: Mutex<Attachments>,
    usage: Usage,
    /// Changes while the owner moves completions from the queues to the staged events.
    moves: SeqCount,
    consumer: Exclusive,
    /// How many endpoints may have requests outstanding that complete without an event.
    discarding: AtomicU32,
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

    /// Adds an event, from any thread.
    ///
    /// # Errors
    /// [`Overflow`]: there is no room, and the event is lost.
    pub(crate) fn post(&self, data: EventData) -> Result<(), Overflow> {
        self.posted.post(data)?;
        self.arrived();
        Ok(())
    }

    /// Reserves room for one event, for a caller that must know before it creates the event that
    /// there is room. Returns `None` if there is none, which does not count as an overflow.
    pub(crate) fn claim(&self) -> Option<Claim<'_>> {
        Claim::of(self)
    }

    /// Adds an event, and reports the beginning of an overflow to the asynchronous EVD. Returns
    /// whether the event was taken.
    pub(crate) fn post_or_report(&self, data: EventData) -> bool {
        match self.post(data) {
            Ok(()) => true,
            Err(Overflow { first }) => {
                if first {
                    self.context
                        .report(AsyncKind::EvdOverflow, self.handle, AsyncReason::Failed);
                }
                false
            }
        }
    }

    /// An endpoint may have requests outstanding, from now on, that complete without an event.
    pub(crate) fn begin_discarding(&self) {
        self.discarding.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what [`Self::begin_discarding`] began.
    pub(crate) fn end_discarding(&self) {
        self.discarding.fetch_sub(1, Ordering::Release);
    }

    /// Wakes the waiter, or notifies the CNO: an event that notifies has arrived.
    fn arrived(&self) {
        self.blocker.wake();
        if !self.state.is_waited() {
            self.notify();
        }
    }

    fn attachments(&self) -> MutexGuard<'_, Attachments> {
        self.attachments.lock()
    }
}

impl fmt::Debug for Evd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evd")
            .field("handle", &self.handle)
            .field("flags", &self.flags)
            .field("queue_length", &self.queue_length())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
