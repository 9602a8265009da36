//! Result pointers that C passes.

use core::ptr::NonNull;

use dat_api::{Handle, Result, Subtype, memory};

use super::frame::require_with;
use super::handles::to_c;
use super::refused::null_result;
use crate::abi::DAT_HANDLE;

/// A result pointer of a call.
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Stores the pointer.
    ///
    /// # Safety
    /// It is null or leads to memory for a `T` that is writable for the duration of the
    /// call. It need not be aligned or initialised.
    pub(crate) const unsafe fn new(place: *mut T) -> Self {
        Self(place)
    }

    /// Requires that the pointer is not null.
    pub(crate) fn required(self, argument: Subtype) -> Result<Output<T>> {
        match NonNull::new(self.0) {
            Some(place) => Ok(Output(place)),
            None => Err(null_result(argument, "result").into()),
        }
    }

    /// Returns the place of the result; `None` if the pointer is null.
    pub(crate) fn optional(self) -> Option<Output<T>> {
        NonNull::new(self.0).map(Output)
    }

    /// Writes the result unless the pointer is null.
    pub(crate) fn set(self, value: T) {
        if let Some(place) = self.optional() {
            place.set(value);
        }
    }

    /// Answers a query.
    ///
    /// # Errors
    /// The mask has a bit outside `known` (argument 2), or the pointer is null (argument 3).
    pub(crate) fn answer<M: Into<u64>>(
        self,
        mask: M,
        known: M,
        value: impl FnOnce() -> T,
    ) -> Result<()> {
        require_known(mask, known, Subtype::InvalidArg2)?;
        let place = self.required(Subtype::InvalidArg3)?;
        place.set(value());
        Ok(())
    }
}

/// A checked result pointer, written once after the call has succeeded.
pub(crate) struct Output<T>(NonNull<T>);

impl<T> Output<T> {
    /// Writes the result.
    pub(crate) fn set(self, value: T) {
        // SAFETY: `Out::new` was given writable memory.
        unsafe { self.0.write_unaligned(value) }
    }
}

impl Output<DAT_HANDLE> {
    /// Writes the handle of a new object, as the last step of the call that creates it.
    ///
    /// # Errors
    /// Memory is missing. The object is freed.
    pub(crate) fn set_new(
        self,
        handle: Handle,
        free: impl FnOnce(Handle) -> Result<()>,
    ) -> Result<()> {
        commit_new(handle, free)?;
        self.set(to_c(handle));
        Ok(())
    }

    /// Writes a handle.
    pub(crate) fn set_handle(self, handle: Handle) {
        self.set(to_c(handle));
    }
}

/// Commits the call that creates an object, or frees it.
///
/// # Errors
/// Memory is missing.
pub(crate) fn commit_new(handle: Handle, free: impl FnOnce(Handle) -> Result<()>) -> Result<()> {
    memory::commit().map_err(|error| {
        // Nothing uses the object yet.
        let _ = free(handle);
        error.into()
    })
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
