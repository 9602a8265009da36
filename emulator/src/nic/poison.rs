//! New rings that are full of garbage: software must write what it wants the device to
//! read, and the device must have written what software reads.
//!
//! What libmlx5 writes before it creates a queue stays: the owner bytes of CQEs, the
//! links of an SRQ, and the doorbell records.

use super::core::Core;
use super::memory;
use crate::decode::wqe::{SEGMENT, WQEBB};
use crate::spec::{CqSpec, QpSpec, SrqSpec};

/// Fills memory of a ring. A ring that is not mapped fails later, when it is used.
fn fill(address: u64, length: usize, byte: u8) {
    let piece = [byte; 4096];
    for at in (0..length).step_by(piece.len()) {
        let length = piece.len().min(length - at);
        let _unmapped = memory::write(address + at as u64, &piece[..length]);
    }
}

impl Core {
    /// Fills the rings of a new QP.
    pub(super) fn poison_qp(&self, spec: &QpSpec) {
        let Some(byte) = self.nasty.garbage() else {
            return;
        };
        let receives = (spec.rq_wqe_count as usize) << spec.rq_stride_log2;
        if spec.rq_wqe_count > 0 {
            fill(spec.rq_buf, receives, byte);
        }
        fill(spec.sq_buf, spec.sq_wqebb_count as usize * WQEBB, byte);
    }

    /// Fills the ring of a new CQ, except the owner bytes.
    pub(super) fn poison_cq(&self, spec: &CqSpec) {
        let Some(byte) = self.nasty.garbage() else {
            return;
        };
        for cqe in 0..u64::from(spec.cqe_count) {
            let at = spec.buf + cqe * u64::from(spec.cqe_size);
            fill(at, spec.cqe_size as usize - 1, byte);
        }
    }

    /// Fills the ring of a new SRQ, except the links.
    pub(super) fn poison_srq(&self, spec: &SrqSpec) {
        let Some(byte) = self.nasty.garbage() else {
            return;
        };
        for wqe in 0..u64::from(spec.wqe_count) {
            let at = spec.buf + (wqe << spec.stride_log2) + SEGMENT as u64;
            fill(at, (1 << spec.stride_log2) - SEGMENT, byte);
        }
    }
}
