//! Shared receive queues.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Fixture, cookie, ok};

/// Creates a queue for this many receives of up to four segments, in the
/// fixture's zone.
pub fn srq(fixture: &Fixture, dtos: DAT_COUNT) -> DAT_SRQ_HANDLE {
    srq_in(fixture, fixture.pz, dtos)
}

/// Like [`srq`], in another zone.
pub fn srq_in(fixture: &Fixture, pz: DAT_PZ_HANDLE, dtos: DAT_COUNT) -> DAT_SRQ_HANDLE {
    let mut attr = DAT_SRQ_ATTR {
        max_recv_dtos: dtos,
        max_recv_iov: 4,
        low_watermark: DAT_SRQ_LW_DEFAULT,
    };
    let mut srq = ptr::null_mut();
    // SAFETY: live handles; attributes and result are local.
    ok(unsafe { dat_srq_create(fixture.ia, pz, &raw mut attr, &raw mut srq) });
    srq
}

/// Calls `dat_srq_post_recv`.
pub fn post_srq(srq: DAT_SRQ_HANDLE, iov: &[DAT_LMR_TRIPLET], tag: u64) -> DAT_RETURN {
    // SAFETY: the array has as many elements as given; the tests keep the memory.
    unsafe {
        dat_srq_post_recv(
            srq,
            iov.len() as DAT_COUNT,
            iov.as_ptr().cast_mut(),
            cookie(tag),
        )
    }
}

/// Returns all fields of a queue.
pub fn srq_info(srq: DAT_SRQ_HANDLE) -> DAT_SRQ_PARAM {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut info = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &raw mut info) });
    info
}
