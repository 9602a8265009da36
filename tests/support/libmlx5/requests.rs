//! Converts the engine's requests to lists of libibverbs.

use core::mem::zeroed;
use core::ptr;

use dat_engine::{RecvRequest, SendFlags, SendRequest};
use dv_sys::verbs::*;

use crate::support::operations;

/// Builds the chain of receives that libibverbs expects, and posts it.
pub(super) fn post_recvs(
    requests: &[RecvRequest<'_>],
    post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
) -> Result<(), (i32, usize)> {
    let mut list: Vec<ibv_recv_wr> = requests
        .iter()
        .map(|request| ibv_recv_wr {
            wr_id: request.wr_id,
            next: ptr::null_mut(),
            sg_list: request.segments.as_ptr().cast::<ibv_sge>().cast_mut(),
            num_sge: request.segments.len() as i32,
        })
        .collect();
    let first = list.as_mut_ptr();
    for i in 1..list.len() {
        list[i - 1].next = first.wrapping_add(i);
    }
    let mut bad = ptr::null_mut();
    match post(first, &raw mut bad) {
        0 => Ok(()),
        error => Err((
            error,
            (bad as usize - first as usize) / size_of::<ibv_recv_wr>(),
        )),
    }
}

/// Like [`post_recvs`], for send requests.
pub(super) fn post_sends(
    requests: &[SendRequest<'_>],
    post: impl FnOnce(*mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
) -> Result<(), (i32, usize)> {
    let mut list: Vec<ibv_send_wr> = requests.iter().map(send_wr).collect();
    let first = list.as_mut_ptr();
    for i in 1..list.len() {
        list[i - 1].next = first.wrapping_add(i);
    }
    let mut bad = ptr::null_mut();
    match post(first, &raw mut bad) {
        0 => Ok(()),
        error => Err((
            error,
            (bad as usize - first as usize) / size_of::<ibv_send_wr>(),
        )),
    }
}

fn send_wr(request: &SendRequest<'_>) -> ibv_send_wr {
    // SAFETY: all zeroes is a valid ibv_send_wr: null pointers and numbers.
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    wr.wr_id = request.wr_id;
    wr.sg_list = request.segments.as_ptr().cast::<ibv_sge>().cast_mut();
    wr.num_sge = request.segments.len() as i32;
    operations::fill(&mut wr, request.op);
    for (ours, theirs) in [
        (SendFlags::SIGNALED, ibv_send_flags::IBV_SEND_SIGNALED),
        (SendFlags::SOLICITED, ibv_send_flags::IBV_SEND_SOLICITED),
        (SendFlags::FENCE, ibv_send_flags::IBV_SEND_FENCE),
        (SendFlags::INLINE, ibv_send_flags::IBV_SEND_INLINE),
    ] {
        if request.flags.contains(ours) {
            wr.send_flags |= theirs.0;
        }
    }
    wr
}
