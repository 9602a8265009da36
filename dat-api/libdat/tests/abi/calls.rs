//! Calls between C and Rust with arguments that are passed by value.

use crate::abi::compiler::{c, call_from_c};
use core::ffi::CStr;
use core::mem::MaybeUninit;
use dat::abi::*;

const COOKIE: u64 = 0x0123_4567_89ab_cdef;

fn answer(right: bool) -> DAT_RETURN {
    DAT_RETURN::from(!right)
}

fn is_cookie(context: DAT_CONTEXT) -> bool {
    // SAFETY: any 64 bits are a number.
    unsafe { context.as_64 == COOKIE }
}

/// Returns whether the segments are those of `convention.c`.
unsafe fn are_segments(count: DAT_COUNT, iov: *const DAT_LMR_TRIPLET) -> bool {
    // SAFETY: the caller passes what C passed, an array of two.
    let iov = unsafe { core::slice::from_raw_parts(iov, 2) };
    let values = |t: &DAT_LMR_TRIPLET| (t.lmr_context, t.virtual_address, t.segment_length);
    count == 2
        && iov
            .iter()
            .map(values)
            .eq([(0x11, 0x2000, 0x30), (0x44, 0x5000, 0x60)])
}

unsafe extern "C" fn set_context(_: DAT_HANDLE, context: DAT_CONTEXT) -> DAT_RETURN {
    answer(is_cookie(context))
}

unsafe extern "C" fn post_send(
    _: DAT_EP_HANDLE,
    count: DAT_COUNT,
    iov: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments.
    let segments = unsafe { are_segments(count, iov) };
    answer(segments && is_cookie(cookie) && flags == DAT_COMPLETION_UNSIGNALLED_FLAG)
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
    let (segments, remote) = unsafe { (are_segments(count, iov), *remote) };
    let remote = (
        remote.rmr_context,
        remote.target_address,
        remote.segment_length,
    );
    answer(
        segments
            && is_cookie(cookie)
            && remote == (0x77, 0x8000, 0x90)
            && flags == DAT_COMPLETION_SUPPRESS_FLAG,
    )
}

unsafe extern "C" fn srq_post_recv(
    _: DAT_SRQ_HANDLE,
    count: DAT_COUNT,
    iov: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments.
    answer(unsafe { are_segments(count, iov) } && is_cookie(cookie))
}

unsafe extern "C" fn bind(
    _: DAT_RMR_HANDLE,
    local: *const DAT_LMR_TRIPLET,
    privileges: DAT_MEM_PRIV_FLAGS,
    _: DAT_EP_HANDLE,
    cookie: DAT_RMR_COOKIE,
    flags: DAT_COMPLETION_FLAGS,
    context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments and a place.
    let segments = unsafe {
        *context = 0x1234;
        are_segments(2, local)
    };
    answer(
        segments
            && is_cookie(cookie)
            && privileges == DAT_MEM_PRIV_ALL_FLAG
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
        let name = CStr::from_ptr(shared.shared_memory_id.cast());
        answer(
            kind == DAT_MEM_TYPE_SHARED_VIRTUAL
                && are_segments(2, shared.virtual_address.cast())
                && name == c"shared"
                && length == 48
                && pz == ia
                && privileges == DAT_MEM_PRIV_READ_FLAG,
        )
    }
}

unsafe extern "C" fn cno_create(
    ia: DAT_IA_HANDLE,
    agent: DAT_OS_WAIT_PROXY_AGENT,
    _: *mut DAT_CNO_HANDLE,
) -> DAT_RETURN {
    let Some(function) = agent.proxy_agent_func else {
        return answer(false);
    };
    // SAFETY: a function of `convention.c` that stores its argument.
    unsafe { function(agent.instance_data, ia) };
    answer(true)
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
        transfered_length: 1 << 40,
    };
    // SAFETY: `convention.c` passes places for both.
    unsafe {
        event.write(DAT_EVENT {
            event_number: DAT_DTO_COMPLETION_EVENT,
            evd_handle: evd,
            event_data: DAT_EVENT_DATA {
                dto_completion_event_data: data,
            },
        });
        nmore.write(threshold - 1);
    }
    answer(timeout == DAT_TIMEOUT_INFINITE && threshold == 3)
}

fn table() -> DAT_PROVIDER {
    // SAFETY: null pointers, and no functions.
    let empty: DAT_PROVIDER = unsafe { MaybeUninit::zeroed().assume_init() };
    DAT_PROVIDER {
        set_consumer_context_func: Some(set_context),
        ep_post_send_func: Some(post_send),
        ep_post_rdma_write_func: Some(post_rdma_write),
        srq_post_recv_func: Some(srq_post_recv),
        rmr_bind_func: Some(bind),
        lmr_create_func: Some(lmr_create),
        cno_create_func: Some(cno_create),
        evd_wait_func: Some(evd_wait),
        ..empty
    }
}

#[test]
fn structs_pass_unchanged_from_c_to_rust_and_back() {
    for compiler in c() {
        assert_eq!(
            call_from_c(compiler, include_str!("convention.c"), &table()),
            0,
            "{compiler}: the number of the call"
        );
    }
}
