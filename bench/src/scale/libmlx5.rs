//! libmlx5's queue pairs, without locks (`MLX5_SINGLE_THREADED=1`).

use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};

use dat_engine::Device;
use dv_sys::inline::dv_reg_mr;
use dv_sys::verbs::{
    ibv_access_flags as Access, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_flags as Flags, ibv_send_wr,
    ibv_sge, ibv_srq, ibv_wc, ibv_wc_status, ibv_wr_opcode,
};

use super::messages::{
    COMPLETIONS, Endpoints, INTO, MEMORY, MESSAGE, RECEIVES, SENDS, receive_refused,
};
use crate::failure::Failure;
use crate::select::Selected;
use crate::verbs::{Post, Queues, Verbs, non_null};

/// Queue pairs and their queues.
pub(super) struct Libmlx5 {
    queue_pairs: Vec<NonNull<ibv_qp>>,
    queues: Queues,
    receive: ibv_recv_wr,
    send: ibv_send_wr,
    taken: ibv_wc,
    sum: u64,
}

impl Endpoints for Libmlx5 {
    fn create(selected: &Selected, count: u32, port: u8) -> Result<Self, Failure> {
        let port = Device::open(&selected.name)?.port(port)?;
        let verbs = Verbs::open(&selected.name, port, false)?;
        let queues = verbs.queues(COMPLETIONS, RECEIVES)?;
        let memory: &'static mut [u8] = Box::leak(vec![0; MEMORY].into_boxed_slice());
        let start = memory.as_mut_ptr();
        let access = Access::IBV_ACCESS_LOCAL_WRITE.0.cast_signed();
        // SAFETY: an open device, and memory that is never freed.
        let region = unsafe { dv_reg_mr(verbs.pd.as_ptr(), start.cast(), MEMORY, access) };
        // SAFETY: a live region, whose key does not change.
        let lkey = unsafe { non_null("ibv_reg_mr", region)?.as_ref().lkey };
        let segment = |at: usize| -> &'static mut ibv_sge {
            Box::leak(Box::new(ibv_sge {
                addr: start.addr() as u64 + at as u64,
                length: MESSAGE,
                lkey,
            }))
        };
        let mut queue_pairs = Vec::new();
        for _ in 0..count {
            let qp = queues.queue_pair(SENDS)?;
            // SAFETY: a live queue pair of this device, connected to itself.
            unsafe { verbs.connect(qp, qp.as_ref().qp_num)? };
            queue_pairs.push(qp);
        }
        // SAFETY: integers and pointers, for which zero is valid.
        let (mut receive, mut send, taken): (ibv_recv_wr, ibv_send_wr, ibv_wc) =
            unsafe { (zeroed(), zeroed(), zeroed()) };
        (receive.sg_list, receive.num_sge) = (segment(INTO), 1);
        (send.sg_list, send.num_sge) = (segment(0), 1);
        send.opcode = ibv_wr_opcode::IBV_WR_SEND;
        // Not inline: sends are not measured, and some devices take no inline messages.
        send.send_flags = Flags::IBV_SEND_SIGNALED.0;
        let mut set = Self {
            queue_pairs,
            queues,
            receive,
            send,
            taken,
            sum: 0,
        };
        for wr_id in 0..u64::from(RECEIVES) {
            if !set.post(wr_id) {
                return Err(receive_refused());
            }
        }
        Ok(set)
    }

    fn count(&self) -> usize {
        self.queue_pairs.len()
    }

    fn send(&mut self, endpoint: usize) -> bool {
        let (qp, mut bad) = (self.queue_pairs[endpoint].as_ptr(), null_mut());
        // SAFETY: a live queue pair, whose context has this function; the memory is never
        // freed.
        unsafe {
            let post: Option<Post<ibv_qp, ibv_send_wr>> = (*(*qp).context).ops.post_send;
            post.unwrap_unchecked()(qp, &raw mut self.send, &raw mut bad) == 0
        }
    }

    fn sent(&mut self) -> Result<u32, Failure> {
        let mut done = 0;
        loop {
            match self.poll(self.queues.sent) {
                0 => return Ok(done),
                1 if self.succeeded() => done += 1,
                1 => {
                    let status = self.taken.status;
                    return Err(Failure::run(format!("a send failed: {status:?}")));
                }
                errno => return Err(Failure::run(format!("ibv_poll_cq returned {errno}"))),
            }
        }
    }

    #[inline(always)]
    fn take(&mut self, count: u32) -> u32 {
        for taken in 0..count {
            if self.poll(self.queues.received) != 1 || !self.succeeded() {
                return taken;
            }
            if !self.post(self.taken.wr_id) {
                return taken;
            }
            let seen = u64::from(self.taken.qp_num) + u64::from(self.taken.byte_len);
            self.sum = self.sum.wrapping_add(seen);
        }
        core::hint::black_box(self.sum);
        count
    }
}

impl Libmlx5 {
    #[inline(always)]
    fn succeeded(&self) -> bool {
        self.taken.status == ibv_wc_status::IBV_WC_SUCCESS
    }

    /// Calls `ibv_poll_cq` for one completion.
    #[inline(always)]
    fn poll(&mut self, cq: NonNull<ibv_cq>) -> i32 {
        let cq = cq.as_ptr();
        // SAFETY: a live queue, whose context has this function.
        unsafe { (*(*cq).context).ops.poll_cq.unwrap_unchecked()(cq, 1, &raw mut self.taken) }
    }

    /// Calls `ibv_post_srq_recv`.
    #[inline(always)]
    fn post(&mut self, wr_id: u64) -> bool {
        self.receive.wr_id = wr_id;
        let (srq, mut bad) = (self.queues.srq.as_ptr(), null_mut());
        // SAFETY: as in `send`.
        unsafe {
            let post: Option<Post<ibv_srq, ibv_recv_wr>> = (*(*srq).context).ops.post_srq_recv;
            post.unwrap_unchecked()(srq, &raw mut self.receive, &raw mut bad) == 0
        }
    }
}
