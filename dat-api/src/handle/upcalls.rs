//! Calls from an object to one that lies above it.
//!
//! An object uses others, and their modules do not import its own. Where they have
//! to call it, they know its handle and not its type: the slot behind the handle
//! keeps the table of functions of the object's kind. These calls are indirect, and
//! none of them is on a fast path.

use core::fmt;
use core::sync::atomic::Ordering;

use dat_engine::AsyncEventKind;

use super::Handle;
use crate::object::counters::Counters;

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
}

impl Upcalls {
    /// Functions that do nothing.
    pub const NONE: Self = Self {
        abort: |_| (),
        counters: |_| None,
        device_event: |_, _| (),
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
        let table = self.slot().map_or(core::ptr::null_mut(), |slot| {
            slot.upcalls.load(Ordering::Acquire)
        });
        // SAFETY: it is null until `Reservation::publish` stores a reference that
        // lives for ever.
        unsafe { table.as_ref() }.unwrap_or(&Upcalls::NONE)
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
