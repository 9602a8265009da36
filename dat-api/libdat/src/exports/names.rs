//! Names of events, statuses and states.

use core::ffi::{CStr, c_char};

use dat_api::Subtype;

use crate::abi::*;
use crate::face::frame::bad_argument;
use crate::face::refused::{null_result, refuse};
use crate::face::subject::Subject;
use crate::version;

/// Makes a table of numbers and their names.
macro_rules! named {
    ($($name:ident)*) => {
        &[$(($name, {
            let name = concat!(stringify!($name), "\0");
            match core::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no NUL"),
            }
        })),*]
    };
}
pub(crate) use named;

/// Numbers and their names.
pub(crate) type Names = &'static [(u32, &'static CStr)];

const EVENTS: Names = named! {
    DAT_DTO_COMPLETION_EVENT
    DAT_RMR_BIND_COMPLETION_EVENT
    DAT_CONNECTION_REQUEST_EVENT
    DAT_CONNECTION_EVENT_ESTABLISHED
    DAT_CONNECTION_EVENT_PEER_REJECTED
    DAT_CONNECTION_EVENT_NON_PEER_REJECTED
    DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR
    DAT_CONNECTION_EVENT_DISCONNECTED
    DAT_CONNECTION_EVENT_BROKEN
    DAT_CONNECTION_EVENT_TIMED_OUT
    DAT_CONNECTION_EVENT_UNREACHABLE
    DAT_ASYNC_ERROR_EVD_OVERFLOW
    DAT_ASYNC_ERROR_IA_CATASTROPHIC
    DAT_ASYNC_ERROR_EP_BROKEN
    DAT_ASYNC_ERROR_TIMED_OUT
    DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR
    DAT_SOFTWARE_EVENT
};

const STATUSES: Names = named! {
    DAT_DTO_SUCCESS
    DAT_DTO_ERR_FLUSHED
    DAT_DTO_ERR_LOCAL_LENGTH
    DAT_DTO_ERR_LOCAL_EP
    DAT_DTO_ERR_LOCAL_PROTECTION
    DAT_DTO_ERR_BAD_RESPONSE
    DAT_DTO_ERR_REMOTE_ACCESS
    DAT_DTO_ERR_REMOTE_RESPONDER
    DAT_DTO_ERR_TRANSPORT
    DAT_DTO_ERR_RECEIVER_NOT_READY
    DAT_DTO_ERR_PARTIAL_PACKET
    DAT_RMR_OPERATION_FAILED
};

const STATES: Names = named! {
    DAT_EP_STATE_UNCONNECTED
    DAT_EP_STATE_UNCONFIGURED_UNCONNECTED
    DAT_EP_STATE_RESERVED
    DAT_EP_STATE_UNCONFIGURED_RESERVED
    DAT_EP_STATE_PASSIVE_CONNECTION_PENDING
    DAT_EP_STATE_UNCONFIGURED_PASSIVE
    DAT_EP_STATE_ACTIVE_CONNECTION_PENDING
    DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING
    DAT_EP_STATE_UNCONFIGURED_TENTATIVE
    DAT_EP_STATE_CONNECTED
    DAT_EP_STATE_DISCONNECT_PENDING
    DAT_EP_STATE_DISCONNECTED
    DAT_EP_STATE_COMPLETION_PENDING
};

/// Defines calls that return the name of a number: `NAME(TYPE, WHAT) = NAMES, MORE NAMES;`.
macro_rules! name_of {
    ($($call:ident($type:ty, $what:literal) = $names:expr, $more:expr;)*) => {$(
        #[unsafe(export_name = symbol!($call))]
        #[allow(
            missing_docs,
            clippy::missing_safety_doc,
            reason = "the headers and the documentation of `exports` explain each call"
        )]
        pub unsafe extern "C" fn $call(value: $type, name: *mut *const c_char) -> DAT_RETURN {
            // SAFETY: the contract of `exports`.
            unsafe { name_of(stringify!($call), $what, [$names, $more], value, name) }
        }
    )*};
}

name_of! {
    dat_strevent(DAT_EVENT_NUMBER, "event number") = EVENTS, version::MORE_EVENTS;
    dat_strdtostatus(DAT_DTO_COMPLETION_STATUS, "status") = STATUSES, version::MORE_STATUSES;
    dat_strepstate(DAT_EP_STATE, "state") = STATES, version::MORE_STATES;
}

/// Writes the name of a number.
///
/// # Safety
/// The place is null or writable.
unsafe fn name_of(
    call: &'static str,
    what: &'static str,
    names: [Names; 2],
    value: u32,
    place: *mut *const c_char,
) -> DAT_RETURN {
    let refused = |error| refuse(call, Subject::Nothing, &error);
    if place.is_null() {
        return refused(null_result(Subtype::InvalidArg2, "name").into());
    }
    let found = names
        .into_iter()
        .flatten()
        .find(|(known, _)| *known == value);
    let Some((_, name)) = found else {
        return refused(bad_argument(
            Subtype::InvalidArg1,
            format!("unknown {what} {value:#x}: expected one that a DAT call has returned"),
        ));
    };
    // SAFETY: not null, so writable.
    unsafe { place.write_unaligned(name.as_ptr()) };
    DAT_SUCCESS
}
