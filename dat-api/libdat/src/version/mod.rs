//! What uDAPL 1.2 has otherwise than later versions: numbers, and members of
//! structures. [`calls`] has the calls with other parameters.
//!
//! `libdat2` has a module of the same items for uDAPL 2.0.

pub(crate) mod calls;
mod counters;

use core::ffi::CStr;

use dat_api::object::ep::EpFields;
use dat_api::object::ia::{IaAttributes, IaInfo, NamedAttribute, PzSupport};
use dat_api::object::srq::SrqState;
use dat_api::types::{
    DtoOperation, DtoStatus, ExtendedOperation, LmrSegment, MemPrivileges, RmrSegment,
};
use dat_api::{DatReturn, Result, Subtype};

use crate::abi::*;
use crate::exports::names::{Names, named};
use crate::face::frame::bad_argument;

/// The name of this library in messages.
pub(crate) const LIBRARY: &str = "libdat";
/// The DAT version of this library.
pub(crate) const VERSION: (u32, u32) = (DAT_VERSION_MAJOR, DAT_VERSION_MINOR);
/// The bits of a mask of CNO members.
pub(crate) const CNO_FIELDS: DAT_CNO_PARAM_MASK = DAT_CNO_FIELD_ALL;
/// The privileges that memory may have.
pub(crate) const PRIVILEGES: MemPrivileges =
    MemPrivileges::from_bits_truncate(DAT_MEM_PRIV_ALL_FLAG);

/// What later versions have beside the events, statuses and states of this one.
pub(crate) const MORE_EVENTS: Names = named! {};
pub(crate) const MORE_STATUSES: Names = named! {};
pub(crate) const MORE_STATES: Names = named! {};

/// Converts a return code to C. `dat_api` has the numbers of this version.
#[inline(always)]
pub(crate) const fn code(code: DatReturn) -> DAT_RETURN {
    code.bits()
}

/// Converts a return code from C.
#[inline(always)]
pub(crate) const fn from_code(code: DAT_RETURN) -> DatReturn {
    DatReturn::from_bits(code)
}

/// Returns the names of the type and the subtype of a return code.
pub(crate) fn names(code: DAT_RETURN) -> (Option<&'static CStr>, Option<&'static CStr>) {
    let code = from_code(code);
    (
        code.kind().map(|kind| kind.c_name()),
        code.subtype().map(|subtype| subtype.c_name()),
    )
}

/// Converts a length of C.
#[inline(always)]
pub(crate) fn bytes(length: DAT_VLEN) -> u64 {
    length
}

/// Converts a length to C.
#[inline(always)]
pub(crate) fn length(bytes: u64) -> DAT_VLEN {
    bytes
}

/// Returns a function that reads a local segment by its index.
///
/// # Safety
/// The segments that it reads are readable while it is used. They need not be aligned.
#[inline(always)]
pub(crate) unsafe fn local_segments(
    first: *const DAT_LMR_TRIPLET,
) -> impl Fn(usize) -> LmrSegment + Copy {
    move |index| {
        // SAFETY: the segments are readable while the result is used.
        let triplet = unsafe { first.add(index).read_unaligned() };
        LmrSegment {
            context: triplet.lmr_context,
            address: triplet.virtual_address,
            length: triplet.segment_length,
        }
    }
}

/// Converts a local segment to C.
pub(crate) fn triplet(segment: &LmrSegment) -> DAT_LMR_TRIPLET {
    DAT_LMR_TRIPLET {
        lmr_context: segment.context,
        pad: 0,
        virtual_address: segment.address,
        segment_length: segment.length,
    }
}

/// Converts a remote segment.
///
/// # Safety
/// It is readable. It need not be aligned.
#[inline(always)]
pub(crate) unsafe fn remote_segment(triplet: *const DAT_RMR_TRIPLET) -> RmrSegment {
    // SAFETY: the segments are readable while the result is used.
    let triplet = unsafe { triplet.read_unaligned() };
    RmrSegment {
        context: triplet.rmr_context,
        address: triplet.target_address,
        length: triplet.segment_length,
    }
}

/// Returns the data of a DTO completion.
#[inline(always)]
pub(crate) fn dto(
    ep_handle: DAT_EP_HANDLE,
    cookie: u64,
    status: DtoStatus,
    length: u64,
    _: DtoOperation,
) -> DAT_DTO_COMPLETION_EVENT_DATA {
    DAT_DTO_COMPLETION_EVENT_DATA {
        ep_handle,
        user_cookie: DAT_CONTEXT { as_64: cookie },
        // `DtoStatus` has the numbers of the header.
        status: status as u32,
        transfered_length: length,
    }
}

/// Returns the number and the data of an extended DTO's completion: in this version, those
/// of a plain receive.
///
/// A peer of uDAPL 2.0 can take a receive by an RDMA write with immediate data. It puts nothing
/// into the memory of that receive, so the length is 0 here, not that of the write.
#[inline(always)]
pub(crate) fn extended_dto(
    ep_handle: DAT_EP_HANDLE,
    cookie: u64,
    status: DtoStatus,
    length: u64,
    operation: ExtendedOperation,
) -> (DAT_EVENT_NUMBER, DAT_DTO_COMPLETION_EVENT_DATA) {
    let length = match operation {
        ExtendedOperation::RecvImmed => 0,
        _ => length,
    };
    let data = dto(ep_handle, cookie, status, length, DtoOperation::Receive);
    (DAT_DTO_COMPLETION_EVENT, data)
}

/// Writes the extension of an event, which this version does not have.
///
/// # Safety
/// None; that of a later version has.
#[inline(always)]
pub(crate) unsafe fn write_extension(
    _: *mut DAT_EVENT,
    _: DtoStatus,
    _: ExtendedOperation,
    _: DAT_UINT32,
) {
}

/// Converts a mask of endpoint members; `EpFields` has the bits of this version.
pub(crate) fn ep_fields(mask: DAT_EP_PARAM_MASK) -> Result<EpFields> {
    EpFields::from_bits(mask).ok_or_else(|| {
        bad_argument(
            Subtype::InvalidArg2,
            format!(
                "the mask {mask:#x} has bits that name no field: expected bits of \
                 {DAT_EP_FIELD_ALL:#x}, DAT_EP_FIELD_ALL"
            ),
        )
    })
}

/// `SrqState` has the numbers of this version.
pub(crate) fn srq_state(state: SrqState) -> DAT_SRQ_STATE {
    state as DAT_SRQ_STATE
}

/// `PzSupport` has the numbers of this version.
pub(crate) fn pz_support(support: PzSupport) -> DAT_PZ_SUPPORT {
    support as DAT_PZ_SUPPORT
}

/// Returns the result of a CNO query.
pub(crate) fn cno_param(
    ia_handle: DAT_IA_HANDLE,
    agent: DAT_OS_WAIT_PROXY_AGENT,
    _: Option<DAT_FD>,
) -> DAT_CNO_PARAM {
    DAT_CNO_PARAM { ia_handle, agent }
}

/// Defines functions that return a structure whose members, in this version, are all
/// set by the caller.
macro_rules! nothing_to_add {
    ($($name:ident: $type:ty;)*) => {
        $(
            /// Returns the members that only this version has; the caller sets the others.
            pub(crate) fn $name() -> $type {
                // SAFETY: numbers and pointers, for which 0 is valid.
                unsafe { core::mem::zeroed() }
            }
        )*
    };
}

nothing_to_add! {
    ep_param: DAT_EP_PARAM;
    lmr_param: DAT_LMR_PARAM;
    provider_attr: DAT_PROVIDER_ATTR;
    rmr_param: DAT_RMR_PARAM;
}

/// Returns the members that only this version has; the caller sets the others.
pub(crate) fn ia_attr(_: &IaAttributes) -> DAT_IA_ATTR {
    // SAFETY: numbers and pointers, for which 0 is valid.
    unsafe { core::mem::zeroed() }
}

/// Returns the provider-specific attributes that only this version has.
pub(crate) fn provider_specific(_: &IaInfo) -> Vec<NamedAttribute> {
    Vec::new()
}

/// The calls of the provider table that only this version has: none.
// SAFETY: null pointers, and no functions.
pub(crate) const PROVIDER: DAT_PROVIDER = unsafe { core::mem::zeroed() };
