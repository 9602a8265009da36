//! Calls from an object to one in a module above it.
//!
//! A module of objects imports only those below it (the table in `object/mod.rs`). To call an
//! object above, it uses the object's handle without knowing its type: the slot behind the handle
//! keeps the function table of the object's kind. These calls are indirect, and none of them is on
//! a fast path.

use core::fmt;
use core::sync::atomic::Ordering;

use dat_engine::wait::ChannelFds;
use dat_engine::{AsyncEventKind, Completion};

use super::{Handle, Slot};
use crate::error::Result;
use crate::object::counters::Counters;
use crate::types::EventData;

/// The functions of one kind of objects that objects in lower modules call. Each gets a handle that
/// may be stale by then, and does nothing if it is.
#[derive(Clone, Copy)]
pub struct Upcalls {
    /// Frees the object although it is in use, because its IA is closed abruptly. Returns when the
    /// object is gone. The caller promises that no post runs on the object unless its IA is
    /// threadsafe.
    pub(crate) abort: unsafe fn(Handle),
    /// Returns the counters of the object, if its kind has any.
    pub(crate) counters: fn(Handle) -> Option<Counters>,
    /// Handles an asynchronous event of the device about the object's queue. Called on the IA's
    /// thread with no lock held.
    pub(crate) device_event: fn(Handle, AsyncEventKind),
    /// Returns how to deliver a completion of an endpoint that has [`super::CompletionHooks`].
    /// Called before the completion becomes an event.
    pub(crate) completed: fn(&Completion) -> Delivery,
    /// Returns whether the endpoint has a high watermark.
    pub(crate) has_high_watermark: fn(Handle) -> bool,
    /// Handles a failed completion of an endpoint. Called after the event was handed out or staged;
    /// may post connection events, so the caller holds no lock of an EVD.
    pub(crate) failed: fn(&Completion),
    /// Handles the failed completion of a bind of an RMR.
    pub(crate) bind_failed: fn(&Completion),
    /// Compares the number of receives left in an SRQ with its armed low watermark, after one was
    /// taken.
    pub(crate) taken: fn(Handle),
    /// Polls the completion queues that the object reports to, so that the entries in its rings
    /// become free. Neither allocates nor waits.
    pub(crate) poll_completions: fn(Handle),
    /// Warns if requests of an endpoint do not complete. Called from time to time on the IA's
    /// thread, with no lock held.
    pub(crate) check_progress: fn(Handle),
    /// Copies payload that the device has left in the CQEs of an EVD to its receive buffers.
    pub(crate) copy_payloads: fn(Handle),
    /// Puts an event on an EVD. Returns `false` if the EVD is full; the event is then lost.
    pub(crate) take_event: fn(Handle, EventData) -> bool,
    /// Handles a change of an EVD (the second handle) that triggers a CNO (the first handle). Fails
    /// only for [`EvdChange::Channel`].
    pub(crate) evd_changed: fn(Handle, Handle, EvdChange<'_>) -> Result<()>,
}

/// A change of an EVD that its CNO must handle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EvdChange<'a> {
    /// An event was posted.
    Triggered,
    /// The state of the EVD has changed without an event: a thread that waits on the CNO has to
    /// poll the EVD again and arm its completion queues.
    Look,
    /// The device's events of the EVD come on this completion channel from now on.
    Channel(ChannelFds<'a>),
    /// The EVD was bound to another CNO or to none, or was freed (`true`). It has this completion
    /// channel.
    Unbound(Option<ChannelFds<'a>>, bool),
}

/// How a completion is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// As an event that notifies.
    Notify,
    /// As an event that wakes no waiter: the request was posted UNSIGNALLED.
    Unsignalled,
    /// Not at all: it is a marker of the endpoint itself, or was posted SUPPRESS.
    Discard,
}

impl Upcalls {
    /// Functions that do nothing.
    pub const NONE: Self = Self {
        abort: |_| (),
        counters: |_| None,
        device_event: |_, _| (),
        completed: |_| Delivery::Notify,
        has_high_watermark: |_| false,
        failed: |_| (),
        bind_failed: |_| (),
        taken: |_| (),
        poll_completions: |_| (),
        check_progress: |_| (),
        copy_payloads: |_| (),
        take_event: |_, _| false,
        evd_changed: |_, _, _| Ok(()),
    };
}

impl fmt::Debug for Upcalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upcalls").finish_non_exhaustive()
    }
}

impl Handle {
    /// Returns the functions of the object that the handle names, or named last.
    pub(crate) fn upcalls(self) -> &'static Upcalls {
        self.slot().map_or(&Upcalls::NONE, Slot::upcalls)
    }
}

impl Slot {
    /// Returns the functions of the object that the slot holds, or held last.
    pub(crate) fn upcalls(&self) -> &'static Upcalls {
        let table = self.upcalls.load(Ordering::Acquire);
        // SAFETY: the pointer is null until `Reservation::publish` stores a reference with static
        // lifetime.
        unsafe { table.as_ref() }.unwrap_or(&Upcalls::NONE)
    }

    /// EP: a receive was handed out or staged. Calls the SRQ that the receive was taken from, if
    /// the SRQ's low watermark is armed.
    #[inline(always)]
    pub(crate) fn recv_taken(&self) {
        if let Some(srq) = self.armed_srq() {
            core::hint::cold_path();
            (srq.upcalls().taken)(Handle::of(srq));
        }
    }
}

impl Counters {
    /// Returns the counters of an object: of waits for an EVD or a CNO, of posts for an endpoint or
    /// an SRQ, and for an IA the sum over all objects that it has and had. `None` if the object is
    /// gone, or of another kind.
    #[must_use]
    pub fn of(handle: Handle) -> Option<Self> {
        (handle.upcalls().counters)(handle)
    }
}
