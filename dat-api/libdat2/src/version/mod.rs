//! What uDAPL 2.0 has otherwise than 1.2: numbers, and members of structures.
//! [`calls`] has the calls with other parameters, and those that only 2.0 has.

pub(crate) mod calls;
mod codes;
mod extension;
mod unsupported;

use dat_api::Result;
use dat_api::Subtype;
use dat_api::object::ep::EpFields;
use dat_api::object::ia::{IaAttributes, PzSupport};
use dat_api::object::srq::SrqState;
use dat_api::types::{DtoOperation, DtoStatus, LmrSegment, MemPrivileges, RmrSegment};

use crate::abi::*;
use crate::exports::names::{Names, named};
use crate::face::frame::{bad_argument, require};

pub(crate) use codes::{code, from_code, names};
pub(crate) use extension::{extended_dto, provider_specific, write_extension};

/// The name of this library in messages.
pub(crate) const LIBRARY: &str = "libdat2";
/// The DAT version of this library.
pub(crate) const VERSION: (u32, u32) = (DAT_VERSION_MAJOR, DAT_VERSION_MINOR);
/// The bits that a mask of CNO members may have: the header's values are no single bits.
pub(crate) const CNO_FIELDS: DAT_CNO_PARAM_MASK =
    DAT_CNO_FIELD_IA_HANDLE | DAT_CNO_FIELD_PROXY_TYPE | DAT_CNO_FIELD_PROXY | DAT_CNO_FIELD_ALL;
/// The events, statuses and states that uDAPL 1.2 does not have.
pub(crate) const MORE_EVENTS: Names = named! {
    DAT_HA_DOWN_TO_1
    DAT_HA_UP_TO_MULTI_PATH
    DAT_EXTENSION_EVENT
    DAT_IB_DTO_EVENT
    DAT_IB_UD_CONNECTION_REQUEST_EVENT
    DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED
    DAT_IB_UD_CONNECTION_REJECT_EVENT
    DAT_IB_UD_CONNECTION_ERROR_EVENT
    DAT_IB_COLLECTIVE_EVENT
    DAT_IW_EXTENSION_RANGE_BASE
};
pub(crate) const MORE_STATUSES: Names = named! {
    DAT_DTO_ERR_LOCAL_MM_ERROR
};
pub(crate) const MORE_STATES: Names = named! {
    DAT_EP_STATE_CONNECTED_SINGLE_PATH
    DAT_EP_STATE_CONNECTED_MULTI_PATH
};

/// The privileges that memory may have.
pub(crate) const PRIVILEGES: MemPrivileges =
    MemPrivileges::from_bits_truncate(DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC);

/// Converts a length of C.
#[inline(always)]
pub(crate) fn bytes(length: DAT_SEG_LENGTH) -> u64 {
    length.into()
}

/// Converts a length to C. What does not fit becomes the longest length.
#[inline(always)]
pub(crate) fn length(bytes: u64) -> DAT_SEG_LENGTH {
    DAT_SEG_LENGTH::try_from(bytes).unwrap_or(DAT_SEG_LENGTH::MAX)
}

/// Returns a function that reads a local segment by its index. It reads each member by itself, so
/// that two of them are not read as one number and taken apart.
///
/// # Safety
/// The segments that it reads are readable while it is used. They need not be aligned.
#[inline(always)]
pub(crate) unsafe fn local_segments(
    first: *const DAT_LMR_TRIPLET,
) -> impl Fn(usize) -> LmrSegment + Copy {
    move |index| {
        // SAFETY: the segments are readable while the result is used.
        unsafe {
            let triplet = first.add(index);
            LmrSegment {
                context: (&raw const (*triplet).lmr_context).read_unaligned(),
                address: (&raw const (*triplet).virtual_address).read_unaligned(),
                length: (&raw const (*triplet).segment_length)
                    .read_unaligned()
                    .into(),
            }
        }
    }
}

/// Converts a local segment to C.
pub(crate) fn triplet(segment: &LmrSegment) -> DAT_LMR_TRIPLET {
    DAT_LMR_TRIPLET {
        virtual_address: segment.address,
        segment_length: length(segment.length),
        lmr_context: segment.context,
    }
}

/// Converts a remote segment, as [`local_segments`].
///
/// # Safety
/// It is readable. It need not be aligned.
#[inline(always)]
pub(crate) unsafe fn remote_segment(triplet: *const DAT_RMR_TRIPLET) -> RmrSegment {
    // SAFETY: the segments are readable while the result is used.
    unsafe {
        RmrSegment {
            context: (&raw const (*triplet).rmr_context).read_unaligned(),
            address: (&raw const (*triplet).virtual_address).read_unaligned(),
            length: (&raw const (*triplet).segment_length)
                .read_unaligned()
                .into(),
        }
    }
}

/// Returns the data of a DTO completion.
#[inline(always)]
pub(crate) fn dto(
    ep_handle: DAT_EP_HANDLE,
    cookie: u64,
    status: DtoStatus,
    bytes: u64,
    operation: DtoOperation,
) -> DAT_DTO_COMPLETION_EVENT_DATA {
    DAT_DTO_COMPLETION_EVENT_DATA {
        ep_handle,
        user_cookie: DAT_CONTEXT { as_64: cookie },
        // `DtoStatus` and `DtoOperation` have the numbers of the header.
        status: status as u32,
        // A message has at most 32 bits of length.
        transfered_length: bytes as DAT_SEG_LENGTH,
        operation: operation as DAT_DTOS,
        rmr_context: 0,
    }
}

/// Converts a mask of endpoint members. `EpFields` has the bits of uDAPL 1.2, where
/// `DAT_EP_FIELD_COMM` is missing and the nine bits after it are one place lower.
pub(crate) fn ep_fields(mask: DAT_EP_PARAM_MASK) -> Result<EpFields> {
    const BEFORE: u64 = DAT_EP_FIELD_IA_HANDLE | DAT_EP_FIELD_EP_STATE;
    const MOVED: u64 = (DAT_EP_FIELD_SRQ_HANDLE << 1) - DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR;
    require(
        mask & DAT_EP_FIELD_COMM == 0,
        Subtype::InvalidArg2,
        "the mask has DAT_EP_FIELD_COMM, but no endpoint has a DAT_COMM: leave that bit out",
    )?;
    let fields = (mask & BEFORE) | ((mask & MOVED) >> 1) | (mask & DAT_EP_FIELD_EP_ATTR_ALL);
    let unknown = mask & !DAT_EP_FIELD_ALL;
    EpFields::from_bits(fields)
        .filter(|_| unknown == 0)
        .ok_or_else(|| {
            bad_argument(
                Subtype::InvalidArg2,
                format!(
                    "the mask {mask:#x} has bits that name no field: expected bits of \
                     {DAT_EP_FIELD_ALL:#x}, DAT_EP_FIELD_ALL"
                ),
            )
        })
}

/// Converts the state of an SRQ.
pub(crate) fn srq_state(state: SrqState) -> DAT_SRQ_STATE {
    match state {
        SrqState::Operational => DAT_SRQ_STATE_OPERATIONAL,
        SrqState::Error => DAT_SRQ_STATE_ERROR,
    }
}

/// Converts how zones may relate.
pub(crate) fn pz_support(support: PzSupport) -> DAT_PZ_SUPPORT {
    match support {
        PzSupport::Unique => DAT_PZ_UNIQUE,
        PzSupport::Shareable => DAT_PZ_SHAREABLE,
    }
}

/// Returns the result of a CNO query.
pub(crate) fn cno_param(
    ia_handle: DAT_IA_HANDLE,
    agent: DAT_OS_WAIT_PROXY_AGENT,
    fd: Option<DAT_FD>,
) -> DAT_CNO_PARAM {
    // SAFETY: numbers and pointers, for which 0 is valid.
    let mut param: DAT_CNO_PARAM = unsafe { core::mem::zeroed() };
    param.ia_handle = ia_handle;
    if let Some(fd) = fd {
        param.proxy_type = DAT_PROXY_TYPE_FD;
        param.proxy.fd = fd;
    } else if agent.proxy_agent_func.is_some() {
        param.proxy_type = DAT_PROXY_TYPE_AGENT;
        param.proxy.agent = agent;
    }
    param
}

/// Defines functions that return a structure in which only the members that uDAPL 1.2
/// does not have are set.
macro_rules! members {
    ($($name:ident: $type:ty { $($member:ident: $value:expr,)* })*) => {
        $(
            /// Returns the members that only this version has; the caller sets the others.
            pub(crate) fn $name() -> $type {
                // SAFETY: numbers and pointers, for which 0 is valid.
                #[allow(unused_mut, reason = "the members may all be 0")]
                let mut all: $type = unsafe { core::mem::zeroed() };
                $(all.$member = $value;)*
                all
            }
        )*
    };
}

// What is not here is 0: virtual addresses, no zero-based addressing, no high availability,
// no `DAT_COMM`.
members! {
    ep_param: DAT_EP_PARAM {}
    lmr_param: DAT_LMR_PARAM {}
    provider_attr: DAT_PROVIDER_ATTR { rmr_scope_supported: DAT_RMR_SCOPE_PZ, }
    rmr_param: DAT_RMR_PARAM { rmr_scope: DAT_RMR_SCOPE_PZ, }
}

/// Returns the members that only this version has; the caller sets the others.
pub(crate) fn ia_attr(from: &IaAttributes) -> DAT_IA_ATTR {
    // SAFETY: numbers and pointers, for which 0 is valid.
    let mut all: DAT_IA_ATTR = unsafe { core::mem::zeroed() };
    if extension::has_any(from) {
        all.extension_supported = DAT_EXTENSION_IB;
        all.extension_version = DAT_IB_EXTENSION_VERSION;
    }
    all
}

/// The slot of the provider table whose call only C can define.
pub(crate) const PROVIDER: DAT_PROVIDER = DAT_PROVIDER {
    handle_extendedop_func: extension::CALL,
    // SAFETY: null pointers, and no functions.
    ..unsafe { core::mem::zeroed() }
};

#[cfg(test)]
mod tests;
