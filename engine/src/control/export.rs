//! The only crossing from verbs to rings: `mlx5dv_init_obj` reports where libmlx5
//! put the rings of an object, and [`mlx5_rings::layout`] values pass that on.
//!
//! What the rings rely on (powers of two, non-null pointers) is checked here once.
//! Querying a CQ also makes libmlx5 stop using it, so that destroying a QP does not
//! move CQEs (`MLX5_CQ_FLAGS_DV_OWNED`).

use super::context::Context;
use super::qp::QpGrant;
use crate::error::{ControlError, ControlErrorKind};
use core::ffi::c_void;
use core::ptr::NonNull;
use dv_sys::mlx5dv::{
    MLX5DV_OBJ_CQ, MLX5DV_OBJ_QP, MLX5DV_OBJ_SRQ, MLX5DV_SRQ_MASK_SRQN, mlx5dv_cq, mlx5dv_init_obj,
    mlx5dv_obj, mlx5dv_qp, mlx5dv_srq,
};
use dv_sys::verbs::{ibv_cq, ibv_qp, ibv_qp_cap, ibv_srq};
use mlx5_rings::layout::{
    CompletionLayout, RecvLayout, RegisterLayout, SendLayout, SharedRecvLayout,
};

/// The rings of a QP.
pub(super) struct QueueLayouts {
    pub(super) send: SendLayout,
    /// `None` if the QP takes its receives from an SRQ, or none at all.
    pub(super) recv: Option<RecvLayout>,
}

/// Returns the layout of a CQ.
///
/// # Safety
/// `cq` is alive and of a device that `mlx5dv_is_supported`.
pub(super) unsafe fn completion_layout(
    cq: NonNull<ibv_cq>,
) -> Result<CompletionLayout, ControlError> {
    const WHAT: &str = "completion queue";
    // SAFETY: integers and pointers, for which zero is valid.
    let (mut out, mut object): (mlx5dv_cq, mlx5dv_obj) = unsafe { core::mem::zeroed() };
    object.cq.in_ = cq.as_ptr();
    object.cq.out = &raw mut out;
    // SAFETY: the caller promises that the CQ is alive; `out` lives through the
    // call.
    unsafe { init(&mut object, MLX5DV_OBJ_CQ.into(), WHAT)? };
    let check = Check(WHAT);
    check.that(matches!(out.cqe_size, 64 | 128), "CQE size", out.cqe_size)?;
    Ok(CompletionLayout {
        buf: check.present(out.buf, "ring")?.cast(),
        cqe_count: check.power_of_two(out.cqe_cnt, "number of CQEs")?,
        cqe_size: out.cqe_size,
        dbrec: check.present(out.dbrec.cast(), "doorbell record")?.cast(),
        uar: check.present(out.cq_uar, "doorbell page")?.cast(),
        cqn: out.cqn,
    })
}

/// Returns the layout of an SRQ.
///
/// # Safety
/// `srq` is alive and of a device that `mlx5dv_is_supported`.
pub(super) unsafe fn shared_recv_layout(
    srq: NonNull<ibv_srq>,
) -> Result<SharedRecvLayout, ControlError> {
    const WHAT: &str = "shared receive queue";
    // SAFETY: integers and pointers, for which zero is valid.
    let (mut out, mut object): (mlx5dv_srq, mlx5dv_obj) = unsafe { core::mem::zeroed() };
    out.comp_mask = u64::from(MLX5DV_SRQ_MASK_SRQN);
    object.srq.in_ = srq.as_ptr();
    object.srq.out = &raw mut out;
    // SAFETY: the caller promises that the SRQ is alive; `out` lives through the
    // call.
    unsafe { init(&mut object, MLX5DV_OBJ_SRQ.into(), WHAT)? };
    let check = Check(WHAT);
    check.that(out.stride >= 32, "stride", out.stride)?;
    let has_number = out.comp_mask & u64::from(MLX5DV_SRQ_MASK_SRQN) != 0;
    check.that(has_number, "SRQ number", out.srqn)?;
    Ok(SharedRecvLayout {
        buf: check.present(out.buf, "ring")?.cast(),
        stride: check.power_of_two(out.stride, "stride")?,
        head: check.fits(out.head, "head")?,
        tail: check.fits(out.tail, "tail")?,
        dbrec: check.present(out.dbrec.cast(), "doorbell record")?.cast(),
        srqn: out.srqn,
    })
}

/// Returns the layouts of a QP. `granted` is the result of its creation, and `grant`
/// says which operations it has; `exclusive` is true if no other QP uses its doorbell
/// register.
///
/// # Safety
/// `qp` is alive and of a device that `mlx5dv_is_supported`.
pub(super) unsafe fn queue_layouts(
    qp: NonNull<ibv_qp>,
    granted: &ibv_qp_cap,
    exclusive: bool,
    grant: &QpGrant,
    context: &Context,
) -> Result<QueueLayouts, ControlError> {
    const WHAT: &str = "queue pair";
    // SAFETY: integers and pointers, for which zero is valid.
    let (mut out, mut object): (mlx5dv_qp, mlx5dv_obj) = unsafe { core::mem::zeroed() };
    object.qp.in_ = qp.as_ptr();
    object.qp.out = &raw mut out;
    // SAFETY: the caller promises that the QP is alive; `out` lives through the
    // call.
    unsafe { init(&mut object, MLX5DV_OBJ_QP.into(), WHAT)? };
    let check = Check(WHAT);
    check.that(out.sq.stride == 64, "send queue stride", out.sq.stride)?;
    let dbrec: NonNull<u32> = check.present(out.dbrec.cast(), "doorbell record")?.cast();
    let recv = match out.rq.wqe_cnt {
        0 => None,
        count => {
            check.that(out.rq.stride >= 16, "receive queue stride", out.rq.stride)?;
            Some(RecvLayout {
                buf: check.present(out.rq.buf, "receive ring")?.cast(),
                wqe_count: check.power_of_two(count, "number of receive WQEs")?,
                stride: check.power_of_two(out.rq.stride, "receive queue stride")?,
                dbrec,
            })
        }
    };
    let ring = check.present(out.sq.buf, "send ring")?.cast();
    let wqebbs = check.power_of_two(out.sq.wqe_cnt, "number of send WQEBBs")?;
    // SAFETY: the doorbell record of a QP has two words, receive and send
    // (libmlx5: MLX5_RCV_DBR and MLX5_SND_DBR).
    let dbrec = unsafe { dbrec.add(1) };
    let reg = check.present(out.bf.reg, "doorbell register")?.cast();
    let mut register = RegisterLayout::new(reg);
    register.half_size = if context.blue_flame { out.bf.size } else { 0 };
    register.exclusive = exclusive;
    // SAFETY: the QP is alive, and its number does not change.
    let qpn = unsafe { (*qp.as_ptr()).qp_num };
    let mut send = SendLayout::new(ring, wqebbs, dbrec, register, qpn);
    send.max_requests = granted.max_send_wr;
    send.max_segments = granted.max_send_sge;
    send.max_inline = granted.max_inline_data;
    send.windows = grant.windows;
    send.atomics = grant.atomics;
    Ok(QueueLayouts { send, recv })
}

/// Calls `mlx5dv_init_obj`.
///
/// # Safety
/// The pointers in `object` that `kind` selects are valid.
unsafe fn init(object: &mut mlx5dv_obj, kind: u64, what: &str) -> Result<(), ControlError> {
    // SAFETY: the pointers that `kind` selects are valid.
    match unsafe { mlx5dv_init_obj(object, kind) } {
        0 => Ok(()),
        errno => Err(ControlError::verbs(
            format!("find the rings of a {what}"),
            errno.abs(),
        )),
    }
}

/// Refuses layouts that the rings cannot use. They can come only from a libmlx5
/// that does not match its header.
struct Check(&'static str);

impl Check {
    fn that(&self, good: bool, what: &str, value: u32) -> Result<(), ControlError> {
        if good {
            return Ok(());
        }
        Err(ControlError::new(
            ControlErrorKind::Unsupported,
            format!("use the rings of a {}", self.0),
            format!("libmlx5 reports an unexpected {what}: {value}"),
        ))
    }

    fn present(&self, pointer: *mut c_void, what: &str) -> Result<NonNull<c_void>, ControlError> {
        self.that(!pointer.is_null(), what, 0)?;
        Ok(NonNull::new(pointer).expect("just checked"))
    }

    fn power_of_two(&self, value: u32, what: &str) -> Result<u32, ControlError> {
        self.that(value.is_power_of_two(), what, value)
            .map(|()| value)
    }

    fn fits(&self, value: u32, what: &str) -> Result<u16, ControlError> {
        let fits = u16::try_from(value);
        self.that(fits.is_ok(), what, value)?;
        Ok(fits.unwrap_or(u16::MAX))
    }
}
