//! Handles as C passes them: any 64 bits.
//!
//! Memory is read through a handle only if the handle is the address of one of
//! this library's slots. Other handles are refused here. Calls that other
//! providers also implement look for such a provider first
//! (`providers::dispatch`); posting and taking events do so only after this
//! module has refused the handle.

use core::ptr;

use dat_api::handle::{self, Handle, Object, Pinned};
use dat_api::{DatError, DatReturn, Kind, Result, ReturnType, Subtype};

use super::provider::PROVIDER;
use crate::abi::{DAT_HANDLE, DAT_HANDLE_NULL};

/// Returns the handle that C passes, or `None` if it is null.
#[inline(always)]
pub(crate) fn ours(handle: DAT_HANDLE) -> Option<Handle> {
    Handle::from_bits(handle.addr())
}

/// Returns the C handle of an object, and makes its first word point to the
/// provider table.
pub(crate) fn to_c(handle: Handle) -> DAT_HANDLE {
    // SAFETY: the table is static and has the layout of the headers.
    unsafe { handle.set_table(ptr::from_ref(&PROVIDER).cast()) };
    bare(handle)
}

/// Returns the C handle of an object whose handle C already has, so its table is
/// set.
#[inline(always)]
pub(crate) fn bare(handle: Handle) -> DAT_HANDLE {
    ptr::with_exposed_provenance_mut(handle.bits())
}

/// Like [`bare`]; `None` becomes null.
pub(crate) fn or_null(handle: Option<Handle>) -> DAT_HANDLE {
    handle.map_or(DAT_HANDLE_NULL, bare)
}

/// Returns `DAT_INVALID_HANDLE` with a subtype.
pub(crate) const fn invalid(which: Subtype) -> DatReturn {
    DatReturn::error(ReturnType::InvalidHandle, which)
}

/// Returns the error for a handle that names no object of a kind.
#[cold]
pub(super) fn refused(handle: DAT_HANDLE, want: Kind, which: Subtype) -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        which,
        cause(handle, names(want).article),
    )
}

/// As [`refused`], for calls that accept several kinds, which `want` names.
#[cold]
pub(crate) fn refused_any(handle: DAT_HANDLE, want: &str, which: Subtype) -> DatError {
    DatError::new(ReturnType::InvalidHandle, which, cause(handle, want))
}

fn cause(handle: DAT_HANDLE, want: &str) -> String {
    let Some(handle) = ours(handle) else {
        return format!("the handle is null: expected the handle of {want}");
    };
    let bits = handle.bits();
    match handle.kind() {
        Some(kind) => {
            format!(
                "handle {bits:#x} is not {want}: it is {}; pass the handle of {want}",
                names(kind).article
            )
        }
        None if handle.is_of_parent_process() => format!(
            "handle {bits:#x} is not {want} of this process: the process that this one was forked \
             from has it; open an adapter in this process"
        ),
        None if handle.is_ours() => format!(
            "handle {bits:#x} is not {want}: the object was freed, or never created; use no handle \
             after its object is freed"
        ),
        None => format!(
            "handle {bits:#x} is not {want}: no object has this handle; pass one that this library \
             has returned"
        ),
    }
}

/// The names of a kind of objects.
pub(crate) struct Names {
    /// What messages call a handle that a call is about.
    pub(crate) label: &'static str,
    article: &'static str,
    /// The subtype of the error for a bad handle. For an EVD it is this one, as Linux
    /// registries have it, where the call does not say what it uses the EVD for.
    pub(crate) which: Subtype,
}

pub(crate) const fn names(kind: Kind) -> Names {
    let (label, article, which) = match kind {
        Kind::Cr => ("cr", "a CR", Subtype::InvalidHandleCr),
        Kind::Ep => ("ep", "an EP", Subtype::InvalidHandleEp),
        Kind::Evd => ("evd", "an EVD", Subtype::InvalidHandleEvdRequest),
        Kind::Ia => ("ia", "an IA", Subtype::InvalidHandleIa),
        Kind::Lmr => ("lmr", "an LMR", Subtype::InvalidHandleLmr),
        Kind::Psp => ("psp", "a PSP", Subtype::InvalidHandlePsp),
        Kind::Pz => ("pz", "a PZ", Subtype::InvalidHandlePz),
        Kind::Rmr => ("rmr", "an RMR", Subtype::InvalidHandleRmr),
        Kind::Rsp => ("rsp", "an RSP", Subtype::InvalidHandleRsp),
        Kind::Cno => ("cno", "a CNO", Subtype::InvalidHandleCno),
        Kind::Srq => ("srq", "an SRQ", Subtype::InvalidHandleSrq),
    };
    Names {
        label,
        article,
        which,
    }
}

/// Looks up the object of a handle, and pins it for the duration of the call.
pub(crate) fn pin<T: Object>(handle: DAT_HANDLE) -> Result<Pinned<T>> {
    pin_as(handle, names(T::KIND).which)
}

/// As [`pin`], with the subtype of the error for a bad handle.
pub(crate) fn pin_as<T: Object>(handle: DAT_HANDLE, which: Subtype) -> Result<Pinned<T>> {
    ours(handle)
        .and_then(handle::pin::<T>)
        .ok_or_else(|| refused(handle, T::KIND, which))
}

/// As [`pin_as`]; null becomes `None`.
pub(crate) fn pin_or_null<T: Object>(
    handle: DAT_HANDLE,
    which: Subtype,
) -> Result<Option<Pinned<T>>> {
    if handle == DAT_HANDLE_NULL {
        return Ok(None);
    }
    pin_as(handle, which).map(Some)
}

/// Checks that a handle names a live object of a kind, without pinning the
/// object. For calls that free it.
pub(crate) fn named(handle: DAT_HANDLE, kind: Kind) -> Result<Handle> {
    named_as(handle, kind, names(kind).which)
}

/// As [`named`], with the subtype of the error for a bad handle.
pub(crate) fn named_as(handle: DAT_HANDLE, kind: Kind, which: Subtype) -> Result<Handle> {
    ours(handle)
        .filter(|handle| handle.kind() == Some(kind))
        .ok_or_else(|| refused(handle, kind, which))
}

/// As [`named`]; null becomes `None`.
pub(crate) fn named_or_null(handle: DAT_HANDLE, kind: Kind) -> Result<Option<Handle>> {
    if handle == DAT_HANDLE_NULL {
        return Ok(None);
    }
    named(handle, kind).map(Some)
}
