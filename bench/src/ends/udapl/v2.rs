//! uDAPL 2.0: what it has otherwise than 1.2, and the shared source with its types.
#![allow(dead_code, reason = "`lat` uses more of uDAPL 1.2 than `cost` of 2.0")]

/// Calls `dat_lmr_create`, with the arguments of this version between the others. The memory is
/// for atomic operations, too.
macro_rules! lmr_create {
    ($call:expr, [$($before:expr),*], [$($behind:expr),*]) => {{
        use dat2::abi::{DAT_IB_MEM_PRIV_REMOTE_ATOMIC, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA};
        let privileges = DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
        $call($($before,)* privileges, DAT_VA_TYPE_VA, $($behind),*)
    }};
}

super::shared!();

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use dat_api::safe::RemoteSegment;
use dat_engine::AtomicOp;
use dat2::abi;

use self::abi::*;
use self::adapter::{Adapter, control};
use self::events::micros;
pub(crate) use self::interface::C;
pub(crate) use self::library::Libdat;
use self::library::{Calls, Names};
use super::loader::Library;
use crate::ends::end::Op;
use crate::failure::Failure;

const NAMES: Names = Names {
    api: "c2",
    package: "libdat2",
    variable: "DAT_BENCH_LIBDAT2",
    beside: "libdat2.so",
    installed: "libdat2.so.2",
};
/// The version that the adapter is opened for.
const VERSION: (u32, u32) = (2, 0);
/// The attribute of an adapter that has atomic operations.
const ATOMICS: &CStr = c"DAT_IB_FETCH_AND_ADD";

pub(crate) type ExtensionOp = unsafe extern "C" fn(DAT_HANDLE, DAT_EXTENDED_OP, ...) -> DAT_RETURN;

/// The calls that only this version has.
#[derive(Clone, Copy)]
pub(crate) struct OwnCalls {
    extension_op: ExtensionOp,
}

impl OwnCalls {
    fn find(library: &Library) -> Result<Self, String> {
        // SAFETY: the loaded library's function of this name has this type in uDAPL 2.0.
        let extension_op = unsafe { library.function(c"dat_extension_op") }?;
        Ok(Self { extension_op })
    }
}

/// Converts a remote segment.
fn remote_segment(remote: RemoteSegment) -> DAT_RMR_TRIPLET {
    DAT_RMR_TRIPLET {
        virtual_address: remote.address,
        segment_length: remote.length.try_into().expect("buffers are below 4 GiB"),
        rmr_context: remote.context,
    }
}

/// Returns whether an adapter has atomic operations.
fn has_atomics(adapter: &Adapter) -> Result<bool, Failure> {
    let mut attributes = MaybeUninit::<DAT_PROVIDER_ATTR>::zeroed();
    // SAFETY: the IA is open; the attributes are a local variable that is written; no
    // other attributes are requested.
    let code = unsafe {
        (adapter.calls.ia_query)(
            adapter.ia,
            null_mut(),
            0,
            null_mut(),
            DAT_PROVIDER_FIELD_ALL,
            attributes.as_mut_ptr(),
        )
    };
    control("dat_ia_query", code)?;
    // SAFETY: all zeros are a valid value, and the call has written it.
    let attributes = unsafe { attributes.assume_init() };
    let count = usize::try_from(attributes.num_provider_specific_attr).unwrap_or(0);
    if count == 0 {
        return Ok(false);
    }
    // SAFETY: the library has set pointer and number; the attributes and their names
    // live as long as the IA.
    Ok(unsafe {
        core::slice::from_raw_parts(attributes.provider_specific_attr, count)
            .iter()
            .any(|attribute| CStr::from_ptr(attribute.name) == ATOMICS)
    })
}

/// The number of the event of an extended operation.
const EXTENDED: DAT_EVENT_NUMBER = DAT_IB_DTO_EVENT;

/// Posts an extended operation, as the macros of the header do.
///
/// # Safety
/// No other thread uses the EP. The segments are readable, and the memory of the
/// local one outlives the EP.
#[inline(always)]
unsafe fn post_extended(
    calls: &Calls,
    ep: DAT_EP_HANDLE,
    op: Op,
    local: *mut DAT_LMR_TRIPLET,
    cookie: DAT_CONTEXT,
    remote: *mut DAT_RMR_TRIPLET,
) -> DAT_RETURN {
    let (call, flags) = (calls.own.extension_op, DAT_COMPLETION_DEFAULT_FLAG);
    // SAFETY: the segments are readable, and the local memory outlives the EP; the arguments
    // are those of the operation.
    unsafe {
        match op {
            Op::Atomic(AtomicOp::FetchAdd(add)) => {
                let code = DAT_IB_FETCH_AND_ADD_OP as DAT_EXTENDED_OP;
                call(ep, code, add, local, cookie, remote, flags)
            }
            Op::Atomic(AtomicOp::CompareSwap { compare, swap }) => {
                let code = DAT_IB_CMP_AND_SWAP_OP as DAT_EXTENDED_OP;
                call(ep, code, compare, swap, local, cookie, remote, flags)
            }
            Op::WriteImmediate(immediate) => {
                let code = DAT_IB_RDMA_WRITE_IMMED_OP as DAT_EXTENDED_OP;
                call(ep, code, 1_i32, local, cookie, remote, immediate, flags)
            }
            Op::Send | Op::Write | Op::Read => unreachable!("no extension"),
        }
    }
}

/// Returns the number of a return code. `dat_api` knows the names of uDAPL 1.2 only.
fn described(code: DAT_RETURN) -> String {
    format!("{code:#010x}")
}
