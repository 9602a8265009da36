//! Calls from an object to one that lies above it.
//!
//! A module of objects imports only those below it (the table in `object/mod.rs`).
//! Where it has to call an object above, it has the object's handle and does not know
//! its type: the slot behind the handle keeps the table of functions of the object's
//! kind. These calls are indirect, and none of them is on a fast path.

use core::fmt;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

use dat_engine::{AsyncEventKind, Completion};

use super::{Handle, Slot};
use crate::error::Result;
use crate::object::counters::Counters;
use crate::types::EventData;

/// The functions of one kind of objects that objects below call. Each gets a
/// handle that may be stale by then, and does nothing if it is.
#[derive(Clone, Copy)]
pub struct Upcalls {
    /// Ends the object although it is in use: its IA is closed abruptly. Returns
    /// when the object is gone. The caller promises that no post runs on the object
    /// unless its IA is threadsafe.
    pub(crate) abort: unsafe fn(Handle),
    /// Returns what the object has counted, if its kind counts anything.
    pub(crate) counters: fn(Handle) -> Option<Counters>,
    /// Acts on an asynchronous event of the device about the object's queue. Called
    /// on the IA's thread with no lock held.
    pub(crate) device_event: fn(Handle, AsyncEventKind),
    /// Returns what to do with a completion of an endpoint that has
    /// [`super::Needs`]. Called before the completion becomes an event.
    pub(crate) completed: fn(&Completion) -> Verdict,
    /// Returns whether the endpoint has a high watermark.
    pub(crate) has_high_watermark: fn(Handle) -> bool,
    /// Acts on a failed completion of an endpoint. Called after the event was handed
    /// out or staged; may post connection events, so the caller holds no lock of an EVD.
    pub(crate) failed: fn(&Completion),
    /// Acts on the failed completion of a bind of an RMR.
    pub(crate) bind_failed: fn(&Completion),
    /// Compares the receives that an SRQ has left with its low watermark, which is
    /// armed: one was taken.
    pub(crate) taken: fn(Handle),
    /// Takes completions that the object's queues hold, so that their places are free.
    /// Neither allocates nor waits.
    pub(crate) relieve: fn(Handle),
    /// Copies payload that the device has left in the completions of an EVD to where
    /// it belongs.
    pub(crate) bring_payloads: fn(Handle),
    /// Puts an event on an EVD. Returns `false` if the EVD is full, and the event lost.
    pub(crate) take_event: fn(Handle, EventData) -> bool,
    /// Acts on a change of an EVD, the second handle, that feeds the CNO, the first.
    /// Fails only for [`EvdChange::Channel`].
    pub(crate) evd_changed: fn(Handle, Handle, EvdChange<'_>) -> Result<()>,
}

/// What a CNO has to know of an EVD that feeds it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EvdChange<'a> {
    /// An event has come.
    Triggered,
    /// Something has changed that no event tells of: a waiter has to look at the EVD,
    /// and to ask the device for its events.
    Look,
    /// The EVD has this channel for the device's events now.
    Channel(BorrowedFd<'a>),
    /// The EVD was freed. It had this channel.
    Freed(Option<BorrowedFd<'a>>),
}

/// What to do with a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An event, which notifies.
    Deliver,
    /// An event that wakes nobody: posted UNSIGNALLED.
    DeliverQuietly,
    /// No event: a marker of the endpoint itself, or posted SUPPRESS.
    Swallow,
}

impl Upcalls {
    /// Functions that do nothing.
    pub const NONE: Self = Self {
        abort: |_| (),
        counters: |_| None,
        device_event: |_, _| (),
        completed: |_| Verdict::Deliver,
        has_high_watermark: |_| false,
        failed: |_| (),
        bind_failed: |_| (),
        taken: |_| (),
        relieve: |_| (),
        bring_payloads: |_| (),
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
    /// Returns the functions of the object that the handle names, or has named last.
    pub(crate) fn upcalls(self) -> &'static Upcalls {
        self.slot().map_or(&Upcalls::NONE, Slot::upcalls)
    }
}

impl Slot {
    /// Returns the functions of the object that the slot holds, or has held last.
    pub(crate) fn upcalls(&self) -> &'static Upcalls {
        let table = self.upcalls.load(Ordering::Acquire);
        // SAFETY: it is null until `Reservation::publish` stores a reference that
        // lives for ever.
        unsafe { table.as_ref() }.unwrap_or(&Upcalls::NONE)
    }

    /// EP: a receive was handed out or staged. Tells the SRQ that it was taken from, if
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
    /// Returns the counters of an object: an EVD's and a CNO's are of waits, an
    /// endpoint's and an SRQ's of posts, an IA's the sum over all objects that it has
    /// and had. `None` if the object is gone, or of another kind.
    #[must_use]
    pub fn of(handle: Handle) -> Option<Self> {
        (handle.upcalls().counters)(handle)
    }
}
