//! Calls between C and Rust with arguments that differ from uDAPL 1.2.

use crate::abi::compiler::{c, call_from_c};
use core::ffi::CStr;
use core::mem::MaybeUninit;
use dat2::abi::*;

const COOKIE: u64 = 0x0123_4567_89ab_cdef;

fn answer(right: bool) -> DAT_RETURN {
    DAT_RETURN::from(!right)
}

fn is_cookie(context: DAT_CONTEXT) -> bool {
    // SAFETY: any 64 bits are a number.
    unsafe { context.as_64 == COOKIE }
}

/// Returns whether the segments are those of `convention.c`.
unsafe fn are_segments(iov: *const DAT_LMR_TRIPLET) -> bool {
    // SAFETY: the caller passes what C passed, an array of two.
    let iov = unsafe { core::slice::from_raw_parts(iov, 2) };
    let values = |t: &DAT_LMR_TRIPLET| (t.lmr_context, t.virtual_address, t.segment_length);
    iov.iter()
        .map(values)
        .eq([(0x11, 0x2000, 0x30), (0x44, 0x5000, 0x60)])
}

unsafe extern "C" fn reject(_: DAT_CR_HANDLE, size: DAT_COUNT, data: DAT_PVOID) -> DAT_RETURN {
    // SAFETY: `convention.c` passes a text.
    answer(size == 7 && unsafe { CStr::from_ptr(data.cast()) } == c"shared")
}

unsafe extern "C" fn post_rdma_write(
    _: DAT_EP_HANDLE,
    count: DAT_COUNT,
    iov: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
    remote: *const DAT_RMR_TRIPLET,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments, and one remote.
    let (segments, remote) = unsafe { (are_segments(iov), *remote) };
    let remote = (
        remote.rmr_context,
        remote.virtual_address,
        remote.segment_length,
    );
    answer(
        segments
            && count == 2
            && is_cookie(cookie)
            && remote == (0x77, 0x8000, 0x90)
            && flags == DAT_COMPLETION_SUPPRESS_FLAG,
    )
}

unsafe extern "C" fn bind(
    rmr: DAT_RMR_HANDLE,
    lmr: DAT_LMR_HANDLE,
    local: *const DAT_LMR_TRIPLET,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    _: DAT_EP_HANDLE,
    cookie: DAT_RMR_COOKIE,
    flags: DAT_COMPLETION_FLAGS,
    context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments and a place.
    let segments = unsafe {
        *context = 0x1234;
        are_segments(local)
    };
    answer(
        segments
            && lmr == rmr
            && is_cookie(cookie)
            && privileges == DAT_MEM_PRIV_ALL_FLAG
            && va_type == DAT_VA_TYPE_ZB
            && flags == DAT_COMPLETION_BARRIER_FENCE_FLAG,
    )
}

unsafe extern "C" fn lmr_create(
    ia: DAT_IA_HANDLE,
    kind: DAT_MEM_TYPE,
    region: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
    pz: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    lmr: *mut DAT_LMR_HANDLE,
    lmr_context: *mut DAT_LMR_CONTEXT,
    rmr_context: *mut DAT_RMR_CONTEXT,
    registered_length: *mut DAT_VLEN,
    registered_address: *mut DAT_VADDR,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its segments as shared memory, a name of
    // 40 bytes, and places for the results.
    unsafe {
        let shared = region.for_shared_memory;
        *lmr = ia;
        *lmr_context = 0x21;
        *rmr_context = 0x22;
        *registered_length = 0x23;
        *registered_address = 0x24;
        answer(
            kind == DAT_MEM_TYPE_SHARED_VIRTUAL
                && are_segments(shared.virtual_address.cast())
                && CStr::from_ptr(shared.shared_memory_id.cast()) == c"shared"
                && length == 32
                && pz == ia
                && privileges == DAT_MEM_PRIV_READ_FLAG
                && va_type == DAT_VA_TYPE_ZB,
        )
    }
}

unsafe extern "C-unwind" fn evd_wait(
    evd: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
) -> DAT_RETURN {
    let data = DAT_DTO_COMPLETION_EVENT_DATA {
        ep_handle: evd,
        user_cookie: DAT_CONTEXT { as_64: COOKIE },
        status: DAT_DTO_ERR_FLUSHED,
        transfered_length: 1 << 31,
        operation: DAT_DTO_RDMA_READ,
        rmr_context: 0x55,
    };
    // SAFETY: `convention.c` passes places for both.
    unsafe {
        (*event).event_number = DAT_DTO_COMPLETION_EVENT;
        (*event).evd_handle = evd;
        (*event).event_data.dto_completion_event_data = data;
        nmore.write(threshold - 1);
    }
    answer(timeout == DAT_TIMEOUT_INFINITE && threshold == 3)
}

#[test]
fn structs_pass_unchanged_from_c_to_rust_and_back() {
    // SAFETY: null pointers, and no functions.
    let empty: DAT_PROVIDER = unsafe { MaybeUninit::zeroed().assume_init() };
    let table = DAT_PROVIDER {
        cr_reject_func: Some(reject),
        ep_post_rdma_write_func: Some(post_rdma_write),
        rmr_bind_func: Some(bind),
        lmr_create_func: Some(lmr_create),
        evd_wait_func: Some(evd_wait),
        ..empty
    };
    for compiler in c() {
        let failed = call_from_c(compiler, include_str!("convention.c"), &table);
        assert_eq!(failed, 0, "{compiler}: the number of the call");
    }
}
