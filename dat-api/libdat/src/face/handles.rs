//! Handles as C passes them: any address at all.
//!
//! Nothing is read through a handle that is not the address of a slot of our
//! own. What is none is refused here; a call that other providers have too asks
//! for those before (`providers::dispatch`) or, where events are taken and
//! requests posted, after it has been refused (`providers::hot`).

use core::ptr;

use dat_api::handle::{self, Handle, Object, Pinned};
use dat_api::{DatError, DatReturn, Kind, Result, ReturnType, Subtype};

use super::provider::PROVIDER;
use crate::abi::{DAT_HANDLE, DAT_HANDLE_NULL};

/// The handle that C passes, unless it is null.
#[inline(always)]
pub(crate) fn ours(handle: DAT_HANDLE) -> Option<Handle> {
    Handle::from_bits(handle.addr())
}

/// How C knows an object. Its first word leads to our table from now on.
pub(crate) fn to_c(handle: Handle) -> DAT_HANDLE {
    // SAFETY: it is a static table of the layout that the headers tell.
    unsafe { handle.set_table(ptr::from_ref(&PROVIDER).cast()) };
    bare(handle)
}

/// The same for an object that C knows already.
#[inline(always)]
pub(crate) fn bare(handle: Handle) -> DAT_HANDLE {
    ptr::with_exposed_provenance_mut(handle.bits())
}

/// [`bare`], or null.
pub(crate) fn or_null(handle: Option<Handle>) -> DAT_HANDLE {
    handle.map_or(DAT_HANDLE_NULL, bare)
}

/// `DAT_INVALID_HANDLE`, and which.
pub(crate) const fn invalid(which: Subtype) -> DatReturn {
    DatReturn::error(ReturnType::InvalidHandle, which)
}

#[cold]
fn refused(handle: DAT_HANDLE, want: Kind, which: Subtype) -> DatError {
    let cause = match ours(handle) {
        None => format!("a handle of kind {want:?} is wanted, not null"),
        Some(handle) => match handle.kind() {
            Some(kind) => format!("a handle of kind {want:?} is wanted, not {kind:?}"),
            None if handle.is_ours() => {
                format!("the {want:?} of this handle does not exist any more")
            }
            None => format!("{:#x} is not a handle", handle.bits()),
        },
    };
    DatError::new(ReturnType::InvalidHandle, which, cause)
}

/// The object of a handle, kept while the call lasts.
pub(crate) fn pin<T: Object>(handle: DAT_HANDLE, which: Subtype) -> Result<Pinned<T>> {
    ours(handle)
        .and_then(handle::pin::<T>)
        .ok_or_else(|| refused(handle, T::KIND, which))
}

/// The same where null stands for none.
pub(crate) fn pin_or_null<T: Object>(
    handle: DAT_HANDLE,
    which: Subtype,
) -> Result<Option<Pinned<T>>> {
    if handle == DAT_HANDLE_NULL {
        return Ok(None);
    }
    pin(handle, which).map(Some)
}

/// The handle of a live object of a kind, which is not kept: for calls that
/// end it.
pub(crate) fn named(handle: DAT_HANDLE, kind: Kind, which: Subtype) -> Result<Handle> {
    ours(handle)
        .filter(|handle| handle.kind() == Some(kind))
        .ok_or_else(|| refused(handle, kind, which))
}

/// The same where null stands for none.
pub(crate) fn named_or_null(
    handle: DAT_HANDLE,
    kind: Kind,
    which: Subtype,
) -> Result<Option<Handle>> {
    if handle == DAT_HANDLE_NULL {
        return Ok(None);
    }
    named(handle, kind, which).map(Some)
}

/// The object that is posted to.
///
/// # Safety
/// Nobody frees it while the reference is used.
#[inline(always)]
pub(crate) unsafe fn peek<T: Object>(handle: DAT_HANDLE) -> Option<&'static T> {
    // SAFETY: the caller's promise.
    unsafe { handle::peek_at(handle) }
}
