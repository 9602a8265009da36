//! The Rust side of `c/extension.c`: the extensions of `dat2/dat_ib_extensions.h`.
//!
//! The causes of refusals name the macros of the header, which programs use, and count
//! their arguments.

use core::ptr;

use dat_api::handle::unpinned_at;
use dat_api::object::ep::{Ep, kind};
use dat_api::object::ia::{IaAttributes, IaInfo, NamedAttribute};
use dat_api::types::{
    AtomicMacro, AtomicOp, CompletionFlags, DtoStatus, ExtendedOperation, RmrSegment,
};
use dat_api::{DatError, Kind, Refusal, ReturnCodes, ReturnType, Subtype};

use crate::abi::*;
use crate::exports::ia;
use crate::face::frame::{bad_argument, control};
use crate::face::refused::{Codes, bad_handle, no_remote_segment, no_segments};
use crate::face::segments::{local, remote};
use crate::face::subject::on;
use crate::providers::dispatch;

unsafe extern "C" {
    /// The extension call of this library, in `c/extension.c`, with the parameters of
    /// the table. Rust has no type for its `va_list`.
    fn libdat2_extension();
}

/// The extension call as the provider table has it.
pub(crate) const CALL: DAT_HANDLE_EXTENDEDOP_FUNC = {
    // SAFETY: functions have pointers of one size, and C defines this one with the
    // parameters of the table.
    unsafe {
        core::mem::transmute::<unsafe extern "C" fn(), DAT_HANDLE_EXTENDEDOP_FUNC>(
            libdat2_extension,
        )
    }
};

// Only C of this library calls the functions below.
core::arch::global_asm!(
    ".hidden libdat2_foreign_table",
    ".hidden libdat2_write_immed",
    ".hidden libdat2_fetch_and_add",
    ".hidden libdat2_cmp_and_swap",
    ".hidden libdat2_open_query",
    ".hidden libdat2_close_query",
    ".hidden libdat2_other_operation",
);

/// Returns the table of the other provider that a handle belongs to, or null.
#[unsafe(no_mangle)]
extern "C" fn libdat2_foreign_table(handle: DAT_HANDLE) -> *const DAT_PROVIDER {
    dispatch::of(handle).map_or(ptr::null(), |table| table.as_ptr().cast_const())
}

const WRITE_IMMED: &str = "dat_ib_post_rdma_write_immed";

#[cold]
fn no_ep(call: &'static str, handle: DAT_EP_HANDLE) -> DAT_RETURN {
    bad_handle(call, Kind::Ep, handle)
}

/// # Safety
/// The contract of `exports`.
#[unsafe(no_mangle)]
unsafe extern "C" fn libdat2_write_immed(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    immediate: DAT_UINT32,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: by the contract of `exports` no thread frees the endpoint during
    // the call.
    let Some(ep) = (unsafe { unpinned_at::<Ep>(ep_handle) }) else {
        return no_ep(WRITE_IMMED, ep_handle);
    };
    let flags = CompletionFlags::from_bits_retain(completion_flags);
    // SAFETY: by the contract of `exports` one thread at a time posts, and the
    // memory and the segments stay valid; any 64 bits are a cookie.
    let code = unsafe {
        let Some((count, segment)) = local(num_segments, local_iov) else {
            return no_segments(ep.handle(), num_segments, WRITE_IMMED);
        };
        let cookie = user_cookie.as_64;
        match remote(remote_iov) {
            Some(remote) => {
                let kind = kind::WriteImmed(remote, immediate);
                ep.post_with::<Codes>(kind, count, segment, cookie, flags)
            }
            // Other libraries accept this: nothing is written.
            None if count == 0 => {
                let kind = kind::WriteImmed(RmrSegment::default, immediate);
                ep.post_with::<Codes>(kind, count, segment, cookie, flags)
            }
            None => return no_remote_segment(ep.handle(), WRITE_IMMED),
        }
    };
    code.bits()
}

/// Refuses an atomic operation with a null segment.
#[cold]
fn null_segment(ep: &Ep, op: AtomicOp, local: *const DAT_LMR_TRIPLET) -> DAT_RETURN {
    let called = AtomicMacro::of(op);
    let (argument, what) = match local.is_null() {
        true => (called.local, "local"),
        false => (called.remote, "remote"),
    };
    Codes::refuse(
        called.name,
        ep.handle(),
        Refusal::NullAtomic { what, argument },
    )
    .bits()
}

/// Posts the atomic operation that `op` returns, always of the same kind.
///
/// # Safety
/// The contract of `exports`.
#[inline(always)]
unsafe fn post_atomic(
    ep: DAT_EP_HANDLE,
    op: impl Fn() -> AtomicOp + Copy,
    local: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: as in `libdat2_write_immed`.
    let Some(ep) = (unsafe { unpinned_at::<Ep>(ep) }) else {
        return no_ep(AtomicMacro::of(op()).name, ep);
    };
    let flags = CompletionFlags::from_bits_retain(flags);
    // SAFETY: not null, so readable by the contract of `exports`; the rest as in
    // `libdat2_write_immed`.
    unsafe {
        let (false, Some(remote)) = (local.is_null(), remote(remote_iov)) else {
            return null_segment(ep, op(), local);
        };
        let (kind, segment) = (kind::Atomic(remote, op), super::local_segments(local));
        ep.post_with::<Codes>(kind, 1, segment, cookie.as_64, flags)
            .bits()
    }
}

/// # Safety
/// The contract of `exports`.
#[unsafe(no_mangle)]
unsafe extern "C" fn libdat2_fetch_and_add(
    ep: DAT_EP_HANDLE,
    add: DAT_UINT64,
    local: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
    remote: *const DAT_RMR_TRIPLET,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    let op = move || AtomicOp::FetchAdd(add);
    // SAFETY: `place` is writable for one event.
    unsafe { post_atomic(ep, op, local, cookie, remote, flags) }
}

/// # Safety
/// The contract of `exports`.
#[unsafe(no_mangle)]
unsafe extern "C" fn libdat2_cmp_and_swap(
    ep: DAT_EP_HANDLE,
    compare: DAT_UINT64,
    swap: DAT_UINT64,
    local: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
    remote: *const DAT_RMR_TRIPLET,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    let op = move || AtomicOp::CompareSwap { compare, swap };
    // SAFETY: `place` is writable for one event.
    unsafe { post_atomic(ep, op, local, cookie, remote, flags) }
}

/// Opens an adapter and queries it. If the query is refused, the adapter is closed.
///
/// # Safety
/// The contract of `exports`.
#[unsafe(no_mangle)]
unsafe extern "C" fn libdat2_open_query(
    name: DAT_NAME_PTR,
    by_registry: DAT_BOOLEAN,
    ia_handle: *mut DAT_IA_HANDLE,
    ia_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    provider_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN {
    const EVENTS: DAT_COUNT = 8;
    let mut errors = DAT_HANDLE_NULL;
    let mut opened = DAT_HANDLE_NULL;
    if ia_handle.is_null() {
        return control("dat_ib_open_query", on("ia", DAT_HANDLE_NULL), || {
            Err(bad_argument(
                Subtype::InvalidArg2,
                "the pointer for the handle of the adapter is null",
            ))
        });
    }
    // SAFETY: the contract of `exports`; the places are variables of this function.
    unsafe {
        let code = if by_registry == DAT_FALSE {
            ia::dat_ia_open(name, EVENTS, &raw mut errors, &raw mut opened)
        } else {
            let (major, minor) = super::VERSION;
            ia::dat_ia_openv(
                name,
                EVENTS,
                &raw mut errors,
                &raw mut opened,
                major,
                minor,
                DAT_THREADSAFE,
            )
        };
        if code != DAT_SUCCESS {
            return code;
        }
        let code = ia::dat_ia_query(
            opened,
            ptr::null_mut(),
            ia_mask,
            ia_attr,
            provider_mask,
            provider_attr,
        );
        if code != DAT_SUCCESS {
            ia::dat_ia_close(opened, DAT_CLOSE_ABRUPT_FLAG);
            return code;
        }
        ia_handle.write_unaligned(opened);
    }
    DAT_SUCCESS
}

/// # Safety
/// The contract of `exports`.
#[unsafe(no_mangle)]
unsafe extern "C" fn libdat2_close_query(ia_handle: DAT_IA_HANDLE) -> DAT_RETURN {
    // SAFETY: the contract of `exports`.
    unsafe { ia::dat_ia_close(ia_handle, DAT_CLOSE_ABRUPT_FLAG) }
}

/// Refuses an operation.
#[unsafe(no_mangle)]
extern "C" fn libdat2_other_operation(
    handle: DAT_HANDLE,
    operation: DAT_EXTENDED_OP,
) -> DAT_RETURN {
    control("dat_extension_op", on("handle", handle), || {
        let group = u32::try_from(operation).ok().and_then(group_of);
        Err(match group {
            Some(cause) => DatError::new(ReturnType::ModelNotSupported, Subtype::NoSubtype, cause),
            None => bad_argument(
                Subtype::InvalidArg2,
                format!(
                    "{operation:#x} is no operation: expected one of DAT_IB_OP, such as \
                     DAT_IB_FETCH_AND_ADD_OP ({DAT_IB_FETCH_AND_ADD_OP})"
                ),
            ),
        })
    })
}

/// Returns why an operation of the header is not supported; `None` if there is no such.
fn group_of(operation: DAT_IB_OP) -> Option<&'static str> {
    Some(match operation {
        DAT_IB_UD_SEND_OP | DAT_IB_UD_CM_FREE_OP | DAT_IB_UD_AH_FREE_OP => {
            "datagrams are not supported (no adapter has the attribute DAT_IB_UD): use endpoints of \
             the service type DAT_SERVICE_TYPE_RC"
        }
        DAT_IB_QUERY_COUNTERS_OP
        | DAT_IB_PRINT_COUNTERS_OP
        | DAT_IB_START_COUNTERS_OP
        | DAT_IB_STOP_COUNTERS_OP => {
            "these counters are not supported (no adapter has the attribute DAT_COUNTERS): \
             DAT_DBG_TYPE=0x1000 prints those of the library when the adapter is closed"
        }
        DAT_IB_COLLECTIVE_CREATE_MEMBER_OP..=DAT_IB_COLLECTIVE_BARRIER_OP => {
            "collective operations are not supported (no adapter has one of the attributes \
             DAT_COLL_...): use those of a library for them"
        }
        _ => return None,
    })
}

/// Returns whether an adapter has extensions.
pub(super) fn has_any(from: &IaAttributes) -> bool {
    from.immediate_data || from.atomics
}

/// Returns provider-specific attributes with the names that other libraries of uDAPL 2.0
/// have, because programs look for them: `dtest` reads only where DAT_IB_RDMA_READ is TRUE.
pub(crate) fn provider_specific(info: &IaInfo) -> Vec<NamedAttribute> {
    let IaAttributes {
        immediate_data,
        atomics,
        transport_mtu,
        max_rdma_read_per_ep_out,
        ..
    } = info.ia;
    let mtu = NamedAttribute {
        name: "DAT_IB_TRANSPORT_MTU",
        value: transport_mtu.to_string(),
    };
    let abilities = [
        ("DAT_IB_RDMA_READ", max_rdma_read_per_ep_out > 0),
        ("DAT_EXTENSION_INTERFACE", has_any(&info.ia)),
        ("DAT_IB_FETCH_AND_ADD", atomics),
        ("DAT_IB_CMP_AND_SWAP", atomics),
        ("DAT_IB_IMMED_DATA", immediate_data),
    ]
    .into_iter()
    .filter(|&(_, has)| has)
    .map(|(name, _)| NamedAttribute {
        name,
        value: "TRUE".to_owned(),
    });
    core::iter::once(mtu).chain(abilities).collect()
}

/// Returns the number and the data of an extended DTO's completion.
#[inline(always)]
pub(crate) fn extended_dto(
    ep_handle: DAT_EP_HANDLE,
    cookie: u64,
    status: DtoStatus,
    bytes: u64,
    operation: ExtendedOperation,
) -> (DAT_EVENT_NUMBER, DAT_DTO_COMPLETION_EVENT_DATA) {
    let data = DAT_DTO_COMPLETION_EVENT_DATA {
        ep_handle,
        user_cookie: DAT_CONTEXT { as_64: cookie },
        status: status as u32,
        // A message has at most 32 bits of length.
        transfered_length: bytes as DAT_SEG_LENGTH,
        // `ExtendedOperation` has the numbers of the header.
        operation: operation as DAT_DTOS,
        rmr_context: 0,
    };
    (DAT_IB_DTO_EVENT, data)
}

/// Writes the extension of an extended DTO's completion: the type, the status, and immediate
/// data if they were received.
///
/// # Safety
/// `place` is writable for one event. It need not be aligned.
#[inline(always)]
pub(crate) unsafe fn write_extension(
    place: *mut DAT_EVENT,
    status: DtoStatus,
    operation: ExtendedOperation,
    immediate: DAT_UINT32,
) {
    let (kind, is_receive) = match operation {
        ExtendedOperation::RdmaWriteImmed => (DAT_IB_RDMA_WRITE_IMMED, false),
        ExtendedOperation::RecvImmed => (DAT_IB_RDMA_WRITE_IMMED_DATA, true),
        ExtendedOperation::FetchAdd => (DAT_IB_FETCH_AND_ADD, false),
        ExtendedOperation::CmpSwap => (DAT_IB_CMP_AND_SWAP, false),
        ExtendedOperation::RecvMsgImmed => (DAT_IB_RECV_IMMED_DATA, true),
    };
    let status = match status {
        DtoStatus::Success => DAT_OP_SUCCESS,
        _ => DAT_IB_OP_ERR,
    };
    // SAFETY: `place` is writable for one event; the extension has room for this structure
    // (`tests/abi/use.c`).
    unsafe {
        let extension =
            (&raw mut (*place).event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
        (&raw mut (*extension).type_).write_unaligned(kind);
        (&raw mut (*extension).status).write_unaligned(status);
        if is_receive {
            (&raw mut (*extension).val.immed.data).write_unaligned(immediate);
        }
    }
}
