//! Result pointers that C passes.

use core::ptr::NonNull;

use dat_api::{Handle, Result, Subtype};

use super::frame::require_with;
use super::handles::to_c;
use super::refused::null_result;
use crate::abi::DAT_HANDLE;

/// A checked result pointer, written once after the call has succeeded.
pub(crate) struct Output<T>(NonNull<T>);

impl<T> Output<T> {
    /// Checks the result pointer of an argument.
    ///
    /// # Safety
    /// The pointer is null or leads to memory for a `T` that is writable for the
    /// duration of the call. It need not be aligned or initialised.
    pub(crate) unsafe fn new(place: *mut T, argument: Subtype) -> Result<Self> {
        match NonNull::new(place) {
            Some(place) => Ok(Self(place)),
            None => Err(null_result(argument, "result").into()),
        }
    }

    /// Checks a result pointer that may be null.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(crate) unsafe fn optional(place: *mut T) -> Option<Self> {
        NonNull::new(place).map(Self)
    }

    /// Writes the result.
    pub(crate) fn set(self, value: T) {
        // SAFETY: the callers of `new` and `optional` have guaranteed writable
        // memory.
        unsafe { self.0.write_unaligned(value) }
    }
}

impl Output<DAT_HANDLE> {
    /// Writes the handle of a new object.
    pub(crate) fn set_handle(self, handle: Handle) {
        self.set(to_c(handle));
    }
}

/// Checks the mask of a query: every bit must be in `known`.
pub(crate) fn require_known(
    mask: impl Into<u64>,
    known: impl Into<u64>,
    argument: Subtype,
) -> Result<()> {
    let (mask, known) = (mask.into(), known.into());
    require_with(mask & !known == 0, argument, || {
        format!(
            "the mask {mask:#x} has bits that name no field: expected bits of {known:#x}, the \
             mask of all fields"
        )
    })
}

/// Checks the result pointer and the mask of a query.
///
/// # Errors
/// The mask has a bit outside `known` (argument 2), or the pointer is null
/// (argument 3).
///
/// # Safety
/// As for [`Output::new`].
pub(crate) unsafe fn query_output<T, M: Into<u64>>(
    mask: M,
    known: M,
    place: *mut T,
) -> Result<Output<T>> {
    require_known(mask, known, Subtype::InvalidArg2)?;
    // SAFETY: required of the caller.
    unsafe { Output::new(place, Subtype::InvalidArg3) }
}
