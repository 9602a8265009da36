//! Checks the capabilities requested for a QP against the limits of the device
//! ([`Limits`]).

use libc::EINVAL;

use super::QpRequest;
use crate::limits::Limits;
use crate::refusal::refuse_if;
use crate::spec::Result;
use crate::uverbs::abi::QpCap;

/// Sizes in bytes of a data segment, and of the unit of a send queue.
const SEGMENT: i64 = 16;
const WQEBB: i64 = 64;
/// Size in bytes of the header of inline data.
const INLINE_HEADER: i64 = 4;

/// Returns the capabilities that the QP gets.
///
/// # Errors
/// `EINVAL` for more than the device supports, as in drivers
/// (`irdma_validate_qp_attrs`, `rxe_qp_chk_cap`, `siw_create_qp`).
pub(super) fn grant(request: &QpRequest, limits: &Limits) -> Result<QpCap> {
    let cap = &request.cap;
    // A QP with an SRQ has no receive queue of its own.
    let has_receives = request.srq.is_none();
    refuse_if(
        cap.max_send_wr > limits.max_qp_wr || has_receives && cap.max_recv_wr > limits.max_qp_wr,
        EINVAL,
        "max_send_wr or max_recv_wr is above the device's max_qp_wr",
    )?;
    // For mlx5, libmlx5 checks this by the size of a WQE, which can have more segments.
    let checks = limits.max_sge < Limits::DEVICE.max_sge;
    refuse_if(
        checks
            && (cap.max_send_sge > limits.max_sge
                || has_receives && cap.max_recv_sge > limits.max_sge),
        EINVAL,
        "max_send_sge or max_recv_sge is above the device's max_sge",
    )?;
    refuse_if(
        min_inline(request) > i64::from(limits.max_inline),
        EINVAL,
        "max_inline_data is above what the device can inline",
    )?;
    let mut granted = *cap;
    if limits.max_inline < Limits::DEVICE.max_inline {
        granted.max_inline_data = cap.max_inline_data.min(limits.max_inline);
    }
    Ok(granted)
}

/// Returns the minimum inline data, in bytes, that the application must have
/// requested.
///
/// libmlx5 does not pass on the requested size. It computes a WQE of whole WQEBBs
/// with room for the segments and the inline data, and reports the resulting room
/// for inline data (`mlx5_calc_sq_size`). Room that the segments alone result in
/// implies no request; more room implies that one WQEBB less was not enough.
fn min_inline(request: &QpRequest) -> i64 {
    let cap = &request.cap;
    if request.driver.sq_wqe_count == 0 {
        return cap.max_inline_data.into();
    }
    // libmlx5 reports -4 for a WQE without segments and inline data.
    let room = i64::from(cap.max_inline_data.cast_signed());
    // The size of what precedes the segments, modulo a WQEBB.
    let head = (-(room + INLINE_HEADER)).rem_euclid(WQEBB);
    let segments = head + SEGMENT * i64::from(cap.max_send_sge);
    let blocks = (segments + WQEBB - 1) / WQEBB;
    if room <= blocks * WQEBB - head - INLINE_HEADER {
        0
    } else {
        room - WQEBB + 1
    }
}
