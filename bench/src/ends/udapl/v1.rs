//! uDAPL 1.2: what it has otherwise than 2.0, and the shared source with its types.

#[path = "shared/adapter.rs"]
mod adapter;
#[path = "shared/end.rs"]
mod end;
#[path = "shared/events.rs"]
mod events;
#[path = "shared/interface.rs"]
mod interface;
#[path = "shared/library.rs"]
mod library;
#[path = "shared/memory.rs"]
mod memory;

use std::ffi::c_void;
use std::ptr::NonNull;

use dat::abi;
use dat_api::DatReturn;
use dat_api::safe::RemoteSegment;

use self::abi::{
    DAT_CONTEXT, DAT_EP_HANDLE, DAT_EVENT_NUMBER, DAT_LMR_TRIPLET, DAT_MEM_PRIV_ALL_FLAG,
    DAT_MEM_TYPE_VIRTUAL, DAT_REGION_DESCRIPTION, DAT_RETURN, DAT_RMR_TRIPLET, DAT_VLEN,
};
use self::adapter::{Adapter, control};
use self::events::micros;
pub(crate) use self::interface::C;
pub(crate) use self::library::Libdat;
use self::library::{Calls, Names};
use self::memory::Registered;
use super::loader::Library;
use crate::ends::end::Op;
use crate::failure::Failure;

const NAMES: Names = Names {
    api: "c",
    package: "libdat",
    variable: "DAT_BENCH_LIBDAT",
    beside: "libdat.so",
    installed: "libdat.so.1",
};
/// The version that the adapter is opened for.
const VERSION: (u32, u32) = (1, 2);

/// The calls that only this version has.
#[derive(Clone, Copy)]
pub(crate) struct OwnCalls;

impl OwnCalls {
    fn find(_: &Library) -> Result<Self, String> {
        Ok(Self)
    }
}

/// Registers memory for every use.
///
/// # Safety
/// `start` points to `length` bytes that outlive the LMR.
unsafe fn lmr_create(
    adapter: &Adapter,
    start: NonNull<u8>,
    length: usize,
    made: &mut Registered,
) -> DAT_RETURN {
    let (mut registered, mut first) = (0, 0);
    let for_va = start.as_ptr().cast::<c_void>();
    // SAFETY: handles of this adapter; required of the caller; the other pointers are
    // to variables that are written.
    unsafe {
        (adapter.calls.lmr_create)(
            adapter.ia,
            DAT_MEM_TYPE_VIRTUAL,
            DAT_REGION_DESCRIPTION { for_va },
            length as u64,
            adapter.pz,
            DAT_MEM_PRIV_ALL_FLAG,
            &raw mut made.lmr,
            &raw mut made.context,
            &raw mut made.rmr_context,
            &raw mut registered,
            &raw mut first,
        )
    }
}

/// Converts the length of a message.
#[inline(always)]
fn bytes(length: DAT_VLEN) -> u64 {
    length
}

fn local_segment(context: u32, address: u64, length: usize) -> DAT_LMR_TRIPLET {
    DAT_LMR_TRIPLET {
        lmr_context: context,
        pad: 0,
        virtual_address: address,
        segment_length: length as u64,
    }
}

/// Converts a remote segment.
fn remote_segment(remote: RemoteSegment) -> DAT_RMR_TRIPLET {
    DAT_RMR_TRIPLET {
        rmr_context: remote.context,
        pad: 0,
        target_address: remote.address,
        segment_length: remote.length,
    }
}

/// The number of no event.
const EXTENDED: DAT_EVENT_NUMBER = 0;

/// Returns whether an adapter has atomic operations.
fn has_atomics(_: &Adapter) -> Result<bool, Failure> {
    Ok(false)
}

/// Is never called: [`has_atomics`] says so.
///
/// # Safety
/// None is needed.
unsafe fn post_extended(
    _: &Calls,
    _: DAT_EP_HANDLE,
    _: Op,
    _: *mut DAT_LMR_TRIPLET,
    _: DAT_CONTEXT,
    _: *mut DAT_RMR_TRIPLET,
) -> DAT_RETURN {
    unreachable!("uDAPL 1.2 has no extensions")
}

/// Returns the names of a return code.
fn described(code: DAT_RETURN) -> String {
    DatReturn::from_bits(code).to_string()
}
