//! Creating and freeing EVDs.

use core::sync::atomic::AtomicU32;
use std::sync::Arc;

use dat_engine::AsyncEventKind;
use dat_engine::sync::Mutex;
use dat_engine::wait::{Blocker, WaitPolicy};

use super::attachments::Attachments;
use super::cno_binding::CnoBinding;
use super::consumer::Consumer;
use super::context::EvdContext;
use super::exclusive::Exclusive;
use super::posted::Posted;
use super::query::EvdState;
use super::seq_count::SeqCount;
use super::take::{empty, poll_completions};
use super::{Counted, Evd, Ia};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::counters::{Counters, WaitCounts};
use crate::object::exhausted;
use crate::object::usage::Usage;
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
            empty: empty(flags, context.is_strict()),
            queue_length: AtomicU32::new(asked),
            policy: policy.unwrap_or_else(|| context.wait_policy()),
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
        let evd = handle::pin::<Self>(handle).ok_or_else(stale)?;
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
            evd.leave_cno();
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

/// The error if there is no memory for the events.
pub(super) fn no_memory() -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        "not enough memory for this many events: create the EVD shorter",
    )
}

/// The error if the handle names no EVD.
pub(super) fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandle1,
        "the handle names no EVD; it may have been freed",
    )
}
