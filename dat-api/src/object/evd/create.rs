//! Creating, querying, changing and freeing EVDs.
//!
//! A resize leaves the completion queues: they hold what the streams attached to them can produce.
//! What changes is how many events may be posted, and the room for staged events.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use dat_engine::sync::{Backoff, Mutex};
use dat_engine::wait::{Blocker, WaitCounters, WaitPolicy};
use dat_engine::{AsyncEventKind, memory};

use super::attach::no_memory;
use super::owner::{CommandResult, poll_completions};
use super::pending::{EventCount, OwnerCommand, Posted, SeqCount};
use super::state::{
    CnoBinding, Consumer, DISABLED, Evd, EvdContext, EvdState, Exclusive, FAILED, UNWAITABLE,
};
use super::streams::{Attachments, Attribute};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::counters::{Counters, WaitCounts};
use crate::object::exhausted;
use crate::object::ia::{EMPTY, Ia};
use crate::object::stale;
use crate::object::usage::{Counted, Usage};
use crate::status::{ReturnType, Subtype};
use crate::types::EvdFlags;

/// Handles the failure of a completion queue: the queue and the completions in it are lost.
fn queue_failed(evd: Handle, _: AsyncEventKind) {
    if let Some(evd) = handle::pin::<Evd>(evd) {
        evd.fail();
    }
}

impl Evd {
    /// The functions that objects in lower modules call.
    pub(in crate::object) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |evd| Some(Counters::of_waits(handle::pin::<Self>(evd)?.counters())),
        device_event: queue_failed,
        poll_completions,
        take_event: |evd, data| handle::pin::<Self>(evd).is_some_and(|evd| evd.post(data).is_ok()),
        copy_payloads: |evd| {
            if let Some(evd) = handle::pin::<Self>(evd) {
                evd.copy_payloads();
            }
        },
        ..Upcalls::NONE
    };

    /// Creates an EVD that holds at least `min_qlen` events. Waits use `policy`, or the policy of
    /// the IA.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for a length of 0 or less (argument 2) or unknown flags (argument 4);
    /// `INSUFFICIENT_RESOURCES` for a length above the IA's limit, or if there is no memory or
    /// descriptor left.
    pub fn create(
        ia: &Arc<Ia>,
        min_qlen: i32,
        flags: EvdFlags,
        policy: Option<WaitPolicy>,
    ) -> Result<Arc<Self>> {
        Self::make(
            EvdContext::Ia(Arc::clone(ia)),
            min_qlen,
            flags,
            policy,
            false,
        )
    }

    /// As [`Self::create`], for the EVD that an IA creates for its asynchronous events: it does not
    /// keep the IA from being closed.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(crate) fn create_async(
        ia: &Arc<Ia>,
        min_qlen: i32,
        flags: EvdFlags,
        policy: Option<WaitPolicy>,
    ) -> Result<Arc<Self>> {
        Self::make(
            EvdContext::Ia(Arc::clone(ia)),
            min_qlen,
            flags,
            policy,
            true,
        )
    }

    pub(super) fn make(
        context: EvdContext,
        min_qlen: i32,
        flags: EvdFlags,
        policy: Option<WaitPolicy>,
        own: bool,
    ) -> Result<Arc<Self>> {
        let asked = check_length(min_qlen, context.max_queue_length())?;
        let rules = context.rules();
        if let unknown @ 1.. = flags.bits() & !EvdFlags::all().bits() {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg4,
                format!("unknown EVD flags {unknown:#x}: use the DAT_EVD_*_FLAG bits"),
            ));
        }
        let blocker = Blocker::new().map_err(|error| {
            DatError::new(
                ReturnType::InsufficientResources,
                Subtype::ResourceTevd,
                format!("the EVD's wake-up descriptor (eventfd) cannot be created: {error}"),
            )
        })?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let posted = Posted::new(asked).ok_or_else(no_memory)?;
        let consumer = Consumer::new(asked).ok_or_else(no_memory)?;
        let evd = Arc::new(Self {
            handle: place.handle(),
            flags,
            empty: match flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND) {
                true => rules.conformance.empty,
                false => EMPTY,
            },
            queue_length: AtomicU32::new(asked),
            policy: policy.unwrap_or(rules.wait),
            state: EvdState::default(),
            binding: CnoBinding::default(),
            posted,
            blocker,
            counts: WaitCounts::default(),
            attachments: Mutex::new(Attachments::new(asked)),
            usage: Usage::default(),
            moves: SeqCount::default(),
            // Published once, under its own handle: `Exclusive::open` relies on that.
            consumer: Exclusive::new(consumer),
            discarding: AtomicU32::new(0),
            context,
        });
        evd.context.publish(place, &evd, own)?;
        Ok(evd)
    }

    /// Frees an EVD. Events on it are lost; a thread that waits on it gets `DAT_ABORT`.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `INVALID_STATE` if an endpoint, a service point or its IA still reports to
    /// it.
    pub fn free(handle: Handle) -> Result<()> {
        let evd = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        if !evd.usage.close() {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStateEvdInUse,
                "endpoints, service points or the IA report to the EVD: free them first, or give \
                 them another",
            ));
        }
        drop(evd);
        Self::end(handle);
        Ok(())
    }

    /// Frees an EVD even if it is in use, because its IA is being closed. A thread that waits on it
    /// gets `DAT_ABORT`.
    pub(crate) fn abort(handle: Handle) {
        if let Some(evd) = handle::pin::<Self>(handle) {
            evd.usage().close_anyway();
        }
        Self::end(handle);
    }

    fn end(handle: Handle) {
        if let Some(evd) = handle::pin::<Self>(handle) {
            evd.context.unregister(handle);
        }
        let wake_owner = |evd: &Self| {
            evd.state.abort();
            evd.blocker.wake();
        };
        if let Some(evd) = handle::retire::<Self>(handle, wake_owner) {
            evd.stop_watching();
            let unbound = evd.bind_cno(None, true, |_| Ok(()));
            debug_assert!(unbound.is_ok(), "only attaching fails");
        }
    }

    /// Stops listening for device events about its queues.
    fn stop_watching(&self) {
        for queue in self.attachments().queues() {
            self.context.ia().unwatch(queue.verbs().id());
        }
    }
}

fn check_length(asked: i32, most: u32) -> Result<u32> {
    let length = u32::try_from(asked).unwrap_or(0);
    if length == 0 {
        return Err(DatError::new(
            ReturnType::InvalidParameter,
            Subtype::InvalidArg2,
            format!("invalid EVD length {asked}: expected 1 or more"),
        ));
    }
    if length > most {
        return Err(DatError::new(
            ReturnType::InsufficientResources,
            Subtype::ResourceTevd,
            format!("EVD length {asked} is above the IA's max_evd_qlen, {most}"),
        ));
    }
    Ok(length)
}

impl Evd {
    /// Makes the EVD hold at least `min_qlen` events: more or fewer than before, but never fewer
    /// than the streams attached to it can have outstanding. No event is lost, including those that
    /// arrive meanwhile. A thread that waits on the EVD continues to wait.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` (argument 2) for a length of 0 or less, or above the IA's limit;
    /// `INVALID_STATE` if more events than that are queued, or if a thread waits with a higher
    /// threshold; `INSUFFICIENT_RESOURCES`. Nothing has changed then.
    pub fn resize(&self, min_qlen: i32) -> Result<()> {
        let most = self.context.max_queue_length();
        let asked = u32::try_from(min_qlen).unwrap_or(0);
        if asked == 0 || asked > most {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                format!("invalid EVD length {min_qlen}: expected 1 to {most}"),
            ));
        }
        let mut backoff = Backoff::new();
        loop {
            let completions = match asked < self.queue_length() {
                true => Some(self.check_shrinking(asked)?),
                false => None,
            };
            let mut attachments = self.attachments();
            attachments.release_detached(|command| self.posted.is_done(command));
            memory::commit()?;
            let length = asked.max(attachments.depth());
            match completions {
                Some(completions) if !self.lower_length(length, completions) => {
                    // Events have arrived since the count, or the length has changed: count again.
                    drop(attachments);
                    backoff.wait();
                    continue;
                }
                Some(_) => {}
                None => self.set_length(&mut attachments, length)?,
            }
            attachments.asked = asked;
            break;
        }
        self.process_commands();
        Ok(())
    }

    /// Checks that the events that are there fit. Returns how many of them were not posted.
    fn check_shrinking(&self, asked: u32) -> Result<u32> {
        let counted = Arc::new(EventCount::default());
        let command = OwnerCommand::Count(Arc::clone(&counted));
        if self.send_and_wait(command, |_| false) == CommandResult::Freed {
            return Err(stale::<Self>());
        }
        let refused = |subtype, cause| Err(DatError::new(ReturnType::InvalidState, subtype, cause));
        let (events, awaited) = (
            counted.events.load(Ordering::Relaxed),
            counted.awaited.load(Ordering::Relaxed),
        );
        if events > asked as usize {
            return refused(
                Subtype::NoSubtype,
                format!(
                    "{events} events are queued, more than the new length {asked}: dequeue some first"
                ),
            );
        }
        if awaited > asked as usize {
            return refused(
                Subtype::InvalidStateEvdWaiter,
                format!(
                    "a thread waits with threshold {awaited}, above the new length {asked}: end that \
                     wait first, or keep the length"
                ),
            );
        }
        // At most `asked`.
        Ok(counted.completions.load(Ordering::Relaxed) as u32)
    }
}

/// What decides when a waiter of an EVD wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Each completion, depending on how its request was posted (`CONFIG_NOTIFY`).
    PerPost,
    /// The peers, by solicited sends (`CONFIG_SOLICITED`).
    Solicited,
    /// The threshold of the wait (`CONFIG_THRESHOLD`).
    Threshold,
}

/// The result of `dat_evd_query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvdInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The number of events that it holds.
    pub queue_length: u32,
    /// Whether arriving events trigger a CNO.
    pub enabled: bool,
    /// Whether it can be waited on.
    pub waitable: bool,
    /// How its data transfer streams notify; `None` as long as there are none.
    pub notification: Option<Notification>,
    /// The CNO that it triggers.
    pub cno: Option<Handle>,
    /// The streams that it may carry.
    pub flags: EvdFlags,
}

impl Evd {
    /// Returns its parameters and state.
    #[must_use]
    pub fn query(&self) -> EvdInfo {
        EvdInfo {
            ia: self.context.handle(),
            queue_length: self.queue_length(),
            enabled: self.state.is_enabled(),
            waitable: self.is_waitable(),
            notification: self.notification(),
            cno: self.binding.cno(),
            flags: self.flags,
        }
    }

    /// Returns how its DTO streams notify, if there are any.
    pub(super) fn notification(&self) -> Option<Notification> {
        Some(match self.state.attribute()? {
            Attribute::Default | Attribute::Unsignalled => Notification::PerPost,
            Attribute::Solicited => Notification::Solicited,
            Attribute::Threshold => Notification::Threshold,
        })
    }

    /// Makes the EVD unwaitable: waits fail, and those in progress return at once.
    pub fn set_unwaitable(&self) {
        self.state.set(UNWAITABLE);
        self.state.unwaitable_count.fetch_add(1, Ordering::SeqCst);
        self.blocker.wake();
    }

    /// Makes the EVD waitable again.
    pub fn clear_unwaitable(&self) {
        self.state.clear(UNWAITABLE);
    }

    /// Makes arriving events trigger the CNO from now on, and those that arrived while the EVD was
    /// disabled.
    pub fn enable(&self) {
        if !self.state.is_enabled() {
            self.state.clear(DISABLED);
            self.rearm_for_cno();
        }
    }

    /// Stops arriving events from triggering the CNO.
    pub fn disable(&self) {
        self.state.set(DISABLED);
    }

    /// Marks the EVD as failed because a completion queue failed: dequeues fail, and waits return.
    pub(crate) fn fail(&self) {
        self.state.set(FAILED);
        self.posted.mark_failed();
        self.blocker.wake();
    }

    /// Returns the counters of waits.
    #[must_use]
    pub fn counters(&self) -> WaitCounters {
        self.counts.read()
    }
}
