//! uDAPL 1.2: what it has otherwise than 2.0, and the shared source with its types.

/// Calls `dat_lmr_create`, with the arguments of this version between the others.
macro_rules! lmr_create {
    ($call:expr, [$($before:expr),*], [$($behind:expr),*]) => {
        $call($($before,)* dat::abi::DAT_MEM_PRIV_ALL_FLAG, $($behind),*)
    };
}

super::shared!();

use dat::abi;
use dat_api::DatReturn;
use dat_api::safe::RemoteSegment;

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
