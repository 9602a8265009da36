//! Refusals of calls that post, take events or wait. Those calls do not run in
//! `face::frame`: only once they have decided to refuse do they come here, for
//! the cause. The functions have the C ABI, which does not unwind, so that a call
//! can end in a jump to them.
//!
//! Decision: `docs/decisions/063-cause-with-the-refusal.md`

#![allow(improper_ctypes_definitions, reason = "only Rust calls them")]

use core::fmt::Display;

use dat_api::handle::Owned;
use dat_api::object::evd::Evd;
use dat_api::{
    DatError, DatReturn, EvdRefusal, Handle, Kind, Refusal, ReturnCodes, ReturnType, Subtype,
};

use super::debug;
use super::handles::{names, refused};
use super::subject::{Subject, on, on_object};
use crate::abi::{DAT_COUNT, DAT_EVD_HANDLE, DAT_HANDLE, DAT_RETURN};
use crate::version;

/// Prints the cause if `DAT_DBG_TYPE` asks for it; returns the code.
#[cold]
#[inline(never)]
pub(crate) fn refuse(call: &str, subject: Subject<'_>, error: &DatError) -> DAT_RETURN {
    debug::failed(call, subject, error.code(), &|| error.cause().into_owned())
}

/// What a post returns that the object refuses.
pub(crate) struct Codes;

impl ReturnCodes for Codes {
    #[cold]
    #[inline(never)]
    fn refuse(call: &'static str, on: Handle, refusal: Refusal) -> DatReturn {
        let code = refusal.code();
        // Programs post to a full queue in loops.
        if debug::prints_refusals() {
            let label = on.kind().map_or("ep", |kind| names(kind).label);
            let subject = on_object(label, on);
            debug::failed(call, subject, code, &|| refusal.to_string());
        }
        DatReturn::from_bits(version::code(code))
    }
}

/// Refuses a handle that belongs to no provider.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn bad_handle(
    call: &'static str,
    kind: Kind,
    handle: DAT_HANDLE,
) -> DAT_RETURN {
    let names = names(kind);
    let error = refused(handle, kind, names.which);
    refuse(call, on(names.label, handle), &error)
}

/// Refuses a null segment list with a count other than 0, before the queue is
/// touched.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn no_segments(
    on: Handle,
    count: DAT_COUNT,
    call: &'static str,
) -> DAT_RETURN {
    Codes::refuse(call, on, Refusal::NullSegments { count }).bits()
}

/// Refuses a null remote segment.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn no_remote_segment(ep: Handle, call: &'static str) -> DAT_RETURN {
    Codes::refuse(call, ep, Refusal::NullRemote).bits()
}

/// Refuses a call that takes events or waits, on an EVD or a CNO.
#[cold]
#[inline(never)]
pub(crate) fn wait_refused<R>(call: &str, on: Subject<'_>, refusal: R) -> DAT_RETURN
where
    R: Copy + Display + Into<DatReturn>,
{
    debug::failed(call, on, refusal.into(), &|| refusal.to_string())
}

/// Refuses a null event of a dequeue.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn no_event(owned: Owned<Evd>) -> DAT_RETURN {
    let handle = owned.handle();
    drop(owned);
    let refusal = null_result(Subtype::InvalidArg2, "event");
    wait_refused("dat_evd_dequeue", on_object("evd", handle), refusal)
}

/// Refuses a call that could not own the EVD: the handle belongs to no provider,
/// or another thread waits.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn not_owned(
    call: &'static str,
    handle: DAT_EVD_HANDLE,
    code: DAT_RETURN,
) -> DAT_RETURN {
    let code = version::from_code(code);
    let error = match (code.kind(), code.subtype()) {
        (Some(ReturnType::InvalidHandle), Some(which)) => refused(handle, Kind::Evd, which),
        _ => EvdRefusal::Waited.into(),
    };
    refuse(call, on("evd", handle), &error)
}

/// Returns `DAT_INVALID_PARAMETER` for a null result pointer.
pub(crate) const fn null_result(argument: Subtype, what: &'static str) -> EvdRefusal {
    EvdRefusal::NullResult { argument, what }
}
