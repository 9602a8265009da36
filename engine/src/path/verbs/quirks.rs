//! What a device does otherwise than verbs have it, and what is done about it.
//!
//! All that is known of is siw, Linux's iWARP device in software
//! (drivers/infiniband/sw/siw; in rdma-core providers/siw/siw.c):
//!
//! * In ERR it flushes what its queues hold at that moment, and never looks at
//!   them again (`siw_qp_modify`; `siw_post_send` with a queue that is mapped).
//!   The rest is flushed here (`flush.rs`), and the completion queue's event is
//!   raised here too (`control/bell.rs`). Every request is signalled, so that one
//!   without a completion is known not to have been carried out.
//! * A send or a write is done when TCP has it, a read when the answer has come:
//!   completions overtake those of reads (`siw_qp_sq_process`). They are put in
//!   order here (`order.rs`).
//! * A fence on a read is an error (`siw_activate_tx_from_sq`); reads are
//!   answered in order anyway.
//! * A read of no segments takes the segment that its place in the queue had
//!   before, and a receive of none is refused (`push_recv_wqe`). Each gets one of
//!   no bytes.

use dv_sys::verbs::{ibv_send_flags, ibv_send_wr, ibv_wr_opcode};

pub use crate::control::Quirks;
use crate::request::Segment;

/// A segment of no bytes.
static EMPTY: [Segment; 1] = [Segment {
    addr: 0,
    length: 0,
    lkey: 0,
}];

impl Quirks {
    /// Whether there are any.
    #[inline(always)]
    pub(super) fn any(self) -> bool {
        self != Self::None
    }

    /// The segments of a receive as the device takes them.
    #[inline(always)]
    pub(super) fn receive(self, segments: &[Segment]) -> &[Segment] {
        match self {
            Self::Siw if segments.is_empty() => &EMPTY,
            _ => segments,
        }
    }

    /// Makes a request of the send queue what the device takes.
    #[inline(always)]
    pub(super) fn send(self, work: &mut ibv_send_wr) {
        if self.any() {
            mend(work);
        }
    }
}

#[cold]
fn mend(work: &mut ibv_send_wr) {
    work.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
    if work.opcode != ibv_wr_opcode::IBV_WR_RDMA_READ {
        return;
    }
    work.send_flags &= !ibv_send_flags::IBV_SEND_FENCE.0;
    if work.num_sge == 0 {
        work.sg_list = EMPTY.as_ptr().cast_mut().cast();
        work.num_sge = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::verbs::chain::send_work;
    use crate::request::{SendFlags, SendOp, SendRequest};

    #[test]
    fn siw_gets_requests_that_it_takes_and_others_what_was_asked() {
        let read = SendRequest {
            cookie: 0,
            op: SendOp::Read {
                remote_addr: 1,
                rkey: 2,
            },
            flags: SendFlags::FENCE,
            segments: &[],
        };
        let made = |quirks: Quirks, request| {
            let mut work = send_work(request, 9);
            quirks.send(&mut work);
            (work.send_flags, work.num_sge)
        };
        assert_eq!(made(Quirks::None, &read), (1, 0));
        assert_eq!(made(Quirks::Siw, &read), (2, 1));
        let write = SendRequest {
            op: SendOp::Write {
                remote_addr: 1,
                rkey: 2,
            },
            ..read
        };
        assert_eq!(made(Quirks::None, &write), (1, 0));
        assert_eq!(made(Quirks::Siw, &write), (3, 0), "signalled, too");
        assert_eq!(Quirks::Siw.receive(&[]).len(), 1);
        assert!(Quirks::None.receive(&[]).is_empty());
    }
}
