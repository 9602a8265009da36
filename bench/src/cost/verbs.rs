//! Raw verbs as a measured interface.

use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};

use dat_engine::AtomicOp;
use dv_sys::inline::dv_reg_mr;
use dv_sys::verbs::{
    atomic_t, ibv_access_flags as Access, ibv_ack_cq_events, ibv_comp_channel, ibv_cq,
    ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_get_cq_event,
    ibv_mr, ibv_qp, ibv_qp_init_attr, ibv_qp_type, ibv_recv_wr, ibv_send_flags as Flags,
    ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr, ibv_wc, ibv_wc_status, ibv_wr_opcode, rdma_t,
    wr_t,
};

use super::end::{
    ATOMIC, BUFFER, COMPLETIONS, DEPTH, End, IN, Interface, MESSAGE, OUT, POLL_FAILED, ROOM, TARGET,
};
use super::operation::{BATCH, LIST};
use crate::failure::Failure;
use crate::verbs::{Post, Verbs, non_null};

impl Verbs {
    fn pair<const SHARED: bool>(&self) -> Result<(VerbsEnd<SHARED>, VerbsEnd<SHARED>), Failure> {
        let (near, far) = (VerbsEnd::create(self)?, VerbsEnd::create(self)?);
        for (from, to) in [(&near, &far), (&far, &near)] {
            // SAFETY: live queue pairs, of this device.
            unsafe { self.connect(from.qp, to.qp.as_ref().qp_num)? };
        }
        Ok((near, far))
    }
}

impl Interface for Verbs {
    type Own = VerbsEnd<false>;
    type Shared = VerbsEnd<true>;

    fn own(&self) -> Result<(Self::Own, Self::Own), Failure> {
        self.pair()
    }

    fn shared(&self) -> Result<(Self::Shared, Self::Shared), Failure> {
        self.pair()
    }
}

/// A queue pair with its queues and prepared requests.
pub(super) struct VerbsEnd<const SHARED: bool> {
    qp: NonNull<ibv_qp>,
    srq: *mut ibv_srq,
    sent: NonNull<ibv_cq>,
    received: NonNull<ibv_cq>,
    /// Of the events of `received`.
    channel: NonNull<ibv_comp_channel>,
    receive: ibv_recv_wr,
    send: ibv_send_wr,
    short: ibv_send_wr,
    write: ibv_send_wr,
    read: ibv_send_wr,
    fetch_add: ibv_send_wr,
    compare_swap: ibv_send_wr,
    has_atomics: bool,
    receives: &'static mut [ibv_recv_wr; LIST],
    sends: &'static mut [ibv_send_wr; LIST],
    inline_sends: &'static mut [ibv_send_wr; LIST],
    taken: [ibv_wc; BATCH],
}

impl<const SHARED: bool> VerbsEnd<SHARED> {
    fn create(verbs: &Verbs) -> Result<Self, Failure> {
        let (context, pd) = (verbs.context.as_ptr(), verbs.pd.as_ptr());
        let buffer: &'static mut [u8] = Box::leak(vec![0; BUFFER].into_boxed_slice());
        let start = buffer.as_mut_ptr();
        let access = Access::IBV_ACCESS_LOCAL_WRITE.0 | verbs.access();
        // SAFETY: an open device, memory that is never freed, and local
        // attributes, for which zero is valid.
        unsafe {
            let mr: NonNull<ibv_mr> = non_null(
                "ibv_reg_mr",
                dv_reg_mr(pd, start.cast(), BUFFER, access as i32),
            )?;
            let queue = |channel| {
                non_null(
                    "ibv_create_cq",
                    ibv_create_cq(context, COMPLETIONS as i32, null_mut(), channel, 0),
                )
            };
            let channel = non_null("ibv_create_comp_channel", ibv_create_comp_channel(context))?;
            let (sent, received) = (queue(null_mut())?, queue(channel.as_ptr())?);
            let mut srq = null_mut();
            if SHARED {
                let mut wanted: ibv_srq_init_attr = zeroed();
                (wanted.attr.max_wr, wanted.attr.max_sge) = (DEPTH, 1);
                srq = non_null("ibv_create_srq", ibv_create_srq(pd, &raw mut wanted))?.as_ptr();
            }
            let mut wanted: ibv_qp_init_attr = zeroed();
            (wanted.send_cq, wanted.recv_cq) = (sent.as_ptr(), received.as_ptr());
            (wanted.srq, wanted.qp_type) = (srq, ibv_qp_type::IBV_QPT_RC);
            (wanted.cap.max_send_wr, wanted.cap.max_send_sge) = (DEPTH, 1);
            if !SHARED {
                (wanted.cap.max_recv_wr, wanted.cap.max_recv_sge) = (DEPTH, 1);
            }
            wanted.cap.max_inline_data = MESSAGE;
            let qp = non_null("ibv_create_qp", ibv_create_qp(pd, &raw mut wanted))?;
            let lkey = (*mr.as_ptr()).lkey;
            let segment = |at, length| {
                Box::leak(Box::new(ibv_sge {
                    addr: start.add(at).addr() as u64,
                    length,
                    lkey,
                }))
            };
            let mut receive: ibv_recv_wr = zeroed();
            (receive.sg_list, receive.num_sge) = (segment(IN, ROOM), 1);
            let out = &raw mut *segment(OUT, MESSAGE);
            let signaled = Flags::IBV_SEND_SIGNALED.0;
            let request = |flags: u32| {
                let mut request: ibv_send_wr = zeroed();
                (request.sg_list, request.num_sge) = (out, 1);
                request.opcode = ibv_wr_opcode::IBV_WR_SEND;
                request.send_flags = flags;
                request
            };
            let mut write = request(signaled);
            write.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            // Both ends are in one process and one PD, so an RDMA write through
            // the peer to this end's own memory costs the same.
            write.wr = wr_t {
                rdma: rdma_t {
                    remote_addr: start.add(TARGET).addr() as u64,
                    rkey: (*mr.as_ptr()).rkey,
                },
            };
            let read = ibv_send_wr {
                opcode: ibv_wr_opcode::IBV_WR_RDMA_READ,
                ..write
            };
            let mut fetch_add = request(signaled);
            fetch_add.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            fetch_add.sg_list = segment(IN, ATOMIC);
            fetch_add.wr = wr_t {
                atomic: atomic_t {
                    remote_addr: start.add(TARGET).addr() as u64,
                    compare_add: 1,
                    swap: 1,
                    rkey: (*mr.as_ptr()).rkey,
                },
            };
            let compare_swap = ibv_send_wr {
                opcode: ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
                ..fetch_add
            };
            let mut short = request(signaled);
            short.sg_list = segment(OUT, MESSAGE);
            let receives = Box::leak(Box::new([receive; LIST]));
            for at in 1..LIST {
                receives[at - 1].next = &raw mut receives[at];
            }
            let chain = |flags: u32| {
                let list: &'static mut [ibv_send_wr; LIST] =
                    Box::leak(Box::new(core::array::from_fn(|_| request(flags))));
                for at in 1..LIST {
                    list[at - 1].next = &raw mut list[at];
                }
                list
            };
            Ok(Self {
                qp,
                srq,
                sent,
                received,
                channel,
                receive,
                send: request(signaled),
                short,
                write,
                read,
                fetch_add,
                compare_swap,
                has_atomics: verbs.has_atomics,
                receives,
                sends: chain(signaled),
                inline_sends: chain(signaled | Flags::IBV_SEND_INLINE.0),
                taken: zeroed(),
            })
        }
    }

    /// Calls `ibv_post_recv` or `ibv_post_srq_recv`.
    #[inline(always)]
    fn post_receive(&self, request: *mut ibv_recv_wr) -> bool {
        let mut bad = null_mut();
        // SAFETY: live objects, whose context has these functions; the memory is
        // never freed.
        unsafe {
            if SHARED {
                let post: Option<Post<ibv_srq, ibv_recv_wr>> =
                    (*(*self.srq).context).ops.post_srq_recv;
                post.unwrap_unchecked()(self.srq, request, &raw mut bad) == 0
            } else {
                let qp = self.qp.as_ptr();
                let post: Option<Post<ibv_qp, ibv_recv_wr>> = (*(*qp).context).ops.post_recv;
                post.unwrap_unchecked()(qp, request, &raw mut bad) == 0
            }
        }
    }

    /// Calls `ibv_post_send`.
    #[inline(always)]
    fn post_send(&self, request: *mut ibv_send_wr) -> bool {
        let (qp, mut bad) = (self.qp.as_ptr(), null_mut());
        // SAFETY: as in `post_receive`.
        unsafe {
            let post: Option<Post<ibv_qp, ibv_send_wr>> = (*(*qp).context).ops.post_send;
            post.unwrap_unchecked()(qp, request, &raw mut bad) == 0
        }
    }

    /// Calls `ibv_poll_cq` for up to `most` completions.
    #[inline(always)]
    fn poll(&mut self, cq: NonNull<ibv_cq>, most: usize) -> i32 {
        let (cq, taken) = (cq.as_ptr(), self.taken.as_mut_ptr());
        // SAFETY: as in `post_receive`; `taken` has room for `most`, at most `BATCH`.
        unsafe { (*(*cq).context).ops.poll_cq.unwrap_unchecked()(cq, most as i32, taken) }
    }

    #[inline(always)]
    fn one(&mut self, cq: NonNull<ibv_cq>, sum: &mut u64) -> usize {
        match self.poll(cq, 1) {
            0 => 0,
            1 if self.taken[0].status == ibv_wc_status::IBV_WC_SUCCESS => {
                let completion = &self.taken[0];
                *sum = sum.wrapping_add(completion.wr_id + u64::from(completion.byte_len));
                1
            }
            _ => POLL_FAILED,
        }
    }

    #[inline(always)]
    fn several(&mut self, cq: NonNull<ibv_cq>, sum: &mut u64) -> usize {
        let Ok(count) = usize::try_from(self.poll(cq, BATCH)) else {
            return POLL_FAILED;
        };
        for completion in &self.taken[..count] {
            if completion.status != ibv_wc_status::IBV_WC_SUCCESS {
                return POLL_FAILED;
            }
            *sum = sum.wrapping_add(completion.wr_id + u64::from(completion.byte_len));
        }
        count
    }
}

impl<const SHARED: bool> End for VerbsEnd<SHARED> {
    const LISTS: bool = true;
    const BATCHES: bool = true;
    const SLEEPS: bool = true;

    #[inline(always)]
    fn receive(&mut self, cookie: u64) -> bool {
        self.receive.wr_id = cookie;
        let request = &raw mut self.receive;
        self.post_receive(request)
    }

    #[inline(always)]
    fn receive_list(&mut self) -> bool {
        let request = self.receives.as_mut_ptr();
        self.post_receive(request)
    }

    #[inline(always)]
    fn send(&mut self, cookie: u64, inline: bool) -> bool {
        self.send.wr_id = cookie;
        self.send.send_flags =
            Flags::IBV_SEND_SIGNALED.0 | if inline { Flags::IBV_SEND_INLINE.0 } else { 0 };
        let request = &raw mut self.send;
        self.post_send(request)
    }

    #[inline(always)]
    fn send_list(&mut self, inline: bool) -> bool {
        let request = if inline {
            self.inline_sends.as_mut_ptr()
        } else {
            self.sends.as_mut_ptr()
        };
        self.post_send(request)
    }

    fn send_short(&mut self, cookie: u64, length: u32) -> bool {
        self.short.wr_id = cookie;
        // SAFETY: the segment of this request, which is never freed.
        unsafe { (*self.short.sg_list).length = length };
        let request = &raw mut self.short;
        self.post_send(request)
    }

    #[inline(always)]
    fn write(&mut self, cookie: u64) -> bool {
        self.write.wr_id = cookie;
        let request = &raw mut self.write;
        self.post_send(request)
    }

    #[inline(always)]
    fn read(&mut self, cookie: u64) -> bool {
        self.read.wr_id = cookie;
        let request = &raw mut self.read;
        self.post_send(request)
    }

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// The operands are those of the prepared request.
    #[inline(always)]
    fn atomic(&mut self, cookie: u64, op: AtomicOp) -> bool {
        let request = match op {
            AtomicOp::FetchAdd(_) => &mut self.fetch_add,
            AtomicOp::CompareSwap { .. } => &mut self.compare_swap,
        };
        request.wr_id = cookie;
        let request = &raw mut *request;
        self.post_send(request)
    }

    #[inline(always)]
    fn received(&mut self, sum: &mut u64) -> usize {
        self.one(self.received, sum)
    }

    /// Arms the queue, polls it once more, sleeps, takes the event and polls, as a program
    /// that waits for the channel and for other descriptors does.
    #[inline(always)]
    fn slept(&mut self, sum: &mut u64) -> usize {
        let mut found = self.one(self.received, sum);
        while found == 0 {
            let (cq, channel) = (self.received.as_ptr(), self.channel.as_ptr());
            // SAFETY: live objects, whose context has this function; local variables are
            // written.
            unsafe {
                if (*(*cq).context).ops.req_notify_cq.unwrap_unchecked()(cq, 0) != 0 {
                    return POLL_FAILED;
                }
                found = self.one(self.received, sum);
                if found != 0 {
                    break;
                }
                let mut watched = libc::pollfd {
                    fd: (*channel).fd,
                    events: libc::POLLIN,
                    revents: 0,
                };
                let (mut from, mut context) = (null_mut(), null_mut());
                if libc::poll(&raw mut watched, 1, -1) != 1
                    || ibv_get_cq_event(channel, &raw mut from, &raw mut context) != 0
                {
                    return POLL_FAILED;
                }
                ibv_ack_cq_events(from, 1);
            }
            found = self.one(self.received, sum);
        }
        found
    }

    #[inline(always)]
    fn received_batch(&mut self, sum: &mut u64) -> usize {
        self.several(self.received, sum)
    }

    #[inline(always)]
    fn sent(&mut self, sum: &mut u64) -> usize {
        self.one(self.sent, sum)
    }

    #[inline(always)]
    fn sent_batch(&mut self, sum: &mut u64) -> usize {
        self.several(self.sent, sum)
    }
}
