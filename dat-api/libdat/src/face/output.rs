//! Where results go: pointers that C passes.

use core::ptr::NonNull;

use dat_api::{Handle, Result, Subtype};

use super::answer::bad_argument;
use super::handles::to_c;
use crate::abi::DAT_HANDLE;

/// A place for a result, to be written once the call has succeeded.
pub(crate) struct Output<T>(NonNull<T>);

impl<T> Output<T> {
    /// The place that an argument names.
    ///
    /// # Safety
    /// The pointer is null or leads to memory for a `T` that is writable while
    /// the call lasts; it need not be aligned, nor hold a value.
    pub(crate) unsafe fn new(place: *mut T, argument: Subtype) -> Result<Self> {
        match NonNull::new(place) {
            Some(place) => Ok(Self(place)),
            None => Err(bad_argument(argument, "the pointer for a result is null")),
        }
    }

    /// The place of a result that the caller may not want.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(crate) unsafe fn wanted(place: *mut T) -> Option<Self> {
        NonNull::new(place).map(Self)
    }

    /// Writes the result.
    pub(crate) fn set(self, value: T) {
        // SAFETY: `new` and `wanted` were promised memory for it.
        unsafe { self.0.write_unaligned(value) }
    }
}

impl Output<DAT_HANDLE> {
    /// Writes the handle of a new object.
    pub(crate) fn made(self, handle: Handle) {
        self.set(to_c(handle));
    }
}

/// The result structure of a query, and its mask.
///
/// # Errors
/// A bit of the mask that `known` has not (argument 2), or no place (argument 3).
///
/// # Safety
/// As for [`Output::new`].
pub(crate) unsafe fn queried<T, M: Into<u64>>(
    mask: M,
    known: M,
    place: *mut T,
) -> Result<Output<T>> {
    if mask.into() & !known.into() != 0 {
        return Err(bad_argument(
            Subtype::InvalidArg2,
            "the mask has bits that name no field",
        ));
    }
    // SAFETY: the caller's promise.
    unsafe { Output::new(place, Subtype::InvalidArg3) }
}
