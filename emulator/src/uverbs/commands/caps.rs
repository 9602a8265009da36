//! What a queue pair is to hold, compared with the limits of the device
//! ([`Limits`]).

use libc::EINVAL;

use super::QpRequest;
use crate::limits::Limits;
use crate::nic::spec::{Errno, Result};
use crate::uverbs::abi::QpCap;

/// Bytes of a data segment, and of a block of a send queue.
const SEGMENT: i64 = 16;
const WQEBB: i64 = 64;
/// Bytes before inline data that tell their length.
const INLINE_HEADER: i64 = 4;

/// The capabilities that the queue pair gets.
///
/// # Errors
/// `EINVAL` for more than the device has, as drivers answer
/// (`irdma_validate_qp_attrs`, `rxe_qp_chk_cap`, `siw_create_qp`).
pub(super) fn grant(request: &QpRequest, limits: &Limits) -> Result<QpCap> {
    let cap = &request.cap;
    // A queue pair with a shared queue has no receive queue of its own.
    let has_receives = request.srq.is_none();
    let exceeds = cap.max_send_wr > limits.max_qp_wr
        || cap.max_send_sge > limits.max_sge
        || has_receives && cap.max_recv_wr > limits.max_qp_wr
        || has_receives && cap.max_recv_sge > limits.max_sge
        || least_inline(request) > i64::from(limits.max_inline);
    if exceeds {
        return Err(Errno(EINVAL));
    }
    let mut granted = *cap;
    if limits.max_inline < Limits::DEVICE.max_inline {
        granted.max_inline_data = cap.max_inline_data.min(limits.max_inline);
    }
    Ok(granted)
}

/// The least inline data with which the application can have asked for the
/// queue pair, in bytes.
///
/// libmlx5 does not hand on the size that was asked for. It takes a WQE of
/// whole blocks with room for the segments and for the inline data, and says
/// how much inline data there is room for (`mlx5_calc_sq_size`). The room that
/// segments alone make is there without any inline data having been asked for;
/// more room is there because one block less was not enough.
fn least_inline(request: &QpRequest) -> i64 {
    let cap = &request.cap;
    if request.driver.sq_wqe_count == 0 {
        return cap.max_inline_data.into();
    }
    // libmlx5 answers -4 for a WQE without segments and inline data.
    let room = i64::from(cap.max_inline_data.cast_signed());
    // What stands before the segments, modulo a block.
    let head = (-(room + INLINE_HEADER)).rem_euclid(WQEBB);
    let segments = head + SEGMENT * i64::from(cap.max_send_sge);
    let blocks = (segments + WQEBB - 1) / WQEBB;
    if room <= blocks * WQEBB - head - INLINE_HEADER {
        0
    } else {
        room - WQEBB + 1
    }
}
