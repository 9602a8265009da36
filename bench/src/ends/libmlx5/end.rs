//! One end of a connection: a queue pair with its queues, memory and prepared requests.

use std::mem::zeroed;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_engine::AtomicOp;
use dv_sys::inline::dv_reg_mr;
use dv_sys::verbs::{
    atomic_t, ibv_access_flags as Access, ibv_ack_cq_events, ibv_get_cq_event, ibv_mr, ibv_qp,
    ibv_recv_wr, ibv_send_flags as SendFlags, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc, ibv_wc_status,
    ibv_wr_opcode, rdma_t, wr_t,
};

use super::device::{Post, Queues, Verbs, non_null};
use crate::ends::end::{BATCH, Done, End, Fault, Flags, LIST, Op, Polled, Queue};
use crate::ends::interface::Shape;
use crate::failure::Failure;

/// One side's queue pair, queues and memory.
pub(crate) struct VerbsEnd<const SHARED: bool> {
    pub(super) qp: NonNull<ibv_qp>,
    pub(super) queues: Queues,
    mr: NonNull<ibv_mr>,
    /// Never freed.
    memory: NonNull<u8>,
    bytes: usize,
    has_atomics: bool,
    receives: Vec<ibv_recv_wr>,
    /// Not inline, and inline.
    sends: [Vec<ibv_send_wr>; 2],
    taken: [ibv_wc; BATCH],
}

impl<const SHARED: bool> VerbsEnd<SHARED> {
    pub(super) fn create(verbs: &Verbs, shape: &Shape) -> Result<Self, Failure> {
        let memory = Box::leak(vec![0_u8; shape.bytes].into_boxed_slice());
        let memory = NonNull::from(memory).cast::<u8>();
        let access = (Access::IBV_ACCESS_LOCAL_WRITE.0 | verbs.access()).cast_signed();
        let start = memory.as_ptr().cast();
        // SAFETY: an open device, and memory that is never freed.
        let region = unsafe { dv_reg_mr(verbs.pd.as_ptr(), start, shape.bytes, access) };
        let depths = [shape.sent_completions, shape.received_completions];
        let queues = verbs.queues(depths, SHARED.then_some(shape.receives))?;
        Ok(Self {
            qp: queues.queue_pair(shape.sends, shape.receives, shape.inline)?,
            queues,
            mr: non_null("ibv_reg_mr", region)?,
            memory,
            bytes: shape.bytes,
            has_atomics: verbs.has_atomics,
            receives: Vec::new(),
            sends: [Vec::new(), Vec::new()],
            // SAFETY: integers, for which zero is valid.
            taken: unsafe { zeroed() },
        })
    }

    /// Returns the number of the queue pair.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose number does not change.
        unsafe { self.qp.as_ref().qp_num }
    }

    /// Returns segments that live until the process ends, and their number.
    fn segments(&self, pieces: &[Range<usize>]) -> (*mut ibv_sge, i32) {
        let segment = |piece: &Range<usize>| ibv_sge {
            addr: (self.memory.addr().get() + piece.start) as u64,
            length: piece.len() as u32,
            // SAFETY: a live region, whose key does not change.
            lkey: unsafe { self.mr.as_ref().lkey },
        };
        let segments = Vec::leak(pieces.iter().map(segment).collect());
        (segments.as_mut_ptr(), segments.len() as i32)
    }

    /// Calls `ibv_post_recv` or `ibv_post_srq_recv`.
    #[inline(always)]
    fn receive_by(&self, request: *mut ibv_recv_wr) -> Result<(), Fault> {
        let mut bad = null_mut();
        // SAFETY: live objects, whose context has these functions; the memory is
        // never freed.
        unsafe {
            if SHARED {
                let srq = self.queues.srq;
                let post: Option<Post<ibv_srq, ibv_recv_wr>> = (*(*srq).context).ops.post_srq_recv;
                let code = post.unwrap_unchecked()(srq, request, &raw mut bad);
                posted("ibv_post_srq_recv", code)
            } else {
                let qp = self.qp.as_ptr();
                let post: Option<Post<ibv_qp, ibv_recv_wr>> = (*(*qp).context).ops.post_recv;
                let code = post.unwrap_unchecked()(qp, request, &raw mut bad);
                posted("ibv_post_recv", code)
            }
        }
    }

    /// Calls `ibv_poll_cq` for up to `most` completions.
    #[inline(always)]
    fn poll_by(&mut self, queue: Queue, most: usize) -> i32 {
        let cq = match queue {
            Queue::Sent => self.queues.sent.as_ptr(),
            Queue::Received => self.queues.received.as_ptr(),
        };
        let taken = self.taken.as_mut_ptr();
        // SAFETY: as in `receive_by`; `taken` has room for `most`, at most `BATCH`.
        unsafe { (*(*cq).context).ops.poll_cq.unwrap_unchecked()(cq, most as i32, taken) }
    }
}

/// Calls `ibv_post_send`.
///
/// # Safety
/// The queue pair is alive, as is the memory of the request.
#[inline(always)]
pub(super) unsafe fn send_by(qp: NonNull<ibv_qp>, request: *mut ibv_send_wr) -> Result<(), Fault> {
    let (qp, mut bad) = (qp.as_ptr(), null_mut());
    // SAFETY: required of the caller; the context of a live queue pair has this function.
    let code = unsafe {
        let post: Option<Post<ibv_qp, ibv_send_wr>> = (*(*qp).context).ops.post_send;
        post.unwrap_unchecked()(qp, request, &raw mut bad)
    };
    posted("ibv_post_send", code)
}

#[inline(always)]
fn posted(call: &'static str, code: i32) -> Result<(), Fault> {
    match code {
        0 => Ok(()),
        _ => Err(Fault::Verbs(call, code)),
    }
}

/// Makes a list of the requests.
fn chain<W>(mut requests: Vec<W>, next: impl Fn(&mut W, *mut W)) -> Vec<W> {
    for at in 1..requests.len() {
        let behind = &raw mut requests[at];
        next(&mut requests[at - 1], behind);
    }
    requests
}

impl<const SHARED: bool> End for VerbsEnd<SHARED> {
    const LISTS: bool = true;
    const BATCHES: bool = true;
    const SLEEPS: bool = true;
    const CHOOSES_INLINE: bool = true;

    type Request = ibv_send_wr;
    type Receive = ibv_recv_wr;

    fn memory(&self) -> NonNull<u8> {
        self.memory
    }

    fn exposed_buffer(&self) -> RemoteSegment {
        RemoteSegment {
            // SAFETY: a live region, whose key does not change.
            context: unsafe { self.mr.as_ref().rkey },
            address: self.memory.addr().get() as u64,
            length: self.bytes as u64,
        }
    }

    /// The operands of atomic operations are prepared too.
    fn request_of(&self, op: Op, local: &[Range<usize>], remote: RemoteSegment) -> ibv_send_wr {
        let (remote_addr, rkey) = (remote.address, remote.context);
        // SAFETY: integers and pointers, for which zero is valid.
        let mut request: ibv_send_wr = unsafe { zeroed() };
        (request.sg_list, request.num_sge) = self.segments(local);
        request.send_flags = SendFlags::IBV_SEND_SIGNALED.0;
        let rdma = wr_t {
            rdma: rdma_t { remote_addr, rkey },
        };
        let atomic = |compare_add, swap| wr_t {
            atomic: atomic_t {
                remote_addr,
                compare_add,
                swap,
                rkey,
            },
        };
        (request.opcode, request.wr) = match op {
            Op::Send => (ibv_wr_opcode::IBV_WR_SEND, rdma),
            Op::Write => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, rdma),
            Op::WriteImmediate(_) => (ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, rdma),
            Op::Read => (ibv_wr_opcode::IBV_WR_RDMA_READ, rdma),
            Op::Atomic(AtomicOp::FetchAdd(add)) => {
                (ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(add, 0))
            }
            Op::Atomic(AtomicOp::CompareSwap { compare, swap }) => (
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
                atomic(compare, swap),
            ),
        };
        request
    }

    fn receive_of(&self, into: &[Range<usize>]) -> ibv_recv_wr {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut receive: ibv_recv_wr = unsafe { zeroed() };
        (receive.sg_list, receive.num_sge) = self.segments(into);
        receive
    }

    #[inline(always)]
    fn post(
        &mut self,
        op: Op,
        _: Range<usize>,
        request: &mut ibv_send_wr,
        cookie: u64,
        flags: Flags,
    ) -> Result<(), Fault> {
        request.wr_id = cookie;
        // The flags of other requests are always those that they are prepared with.
        if op == Op::Send {
            let when = |condition, flag: SendFlags| if condition { flag.0 } else { 0 };
            request.send_flags = when(flags.signaled, SendFlags::IBV_SEND_SIGNALED)
                | when(flags.inline, SendFlags::IBV_SEND_INLINE);
        }
        // SAFETY: a live queue pair; the memory is never freed.
        unsafe { send_by(self.qp, request) }
    }

    #[inline(always)]
    fn post_receive(
        &mut self,
        _: Range<usize>,
        receive: &mut ibv_recv_wr,
        cookie: u64,
    ) -> Result<(), Fault> {
        receive.wr_id = cookie;
        self.receive_by(receive)
    }

    fn prepare_lists(&mut self, into: Range<usize>, from: Range<usize>) {
        let receive = self.receive(into);
        self.receives = chain(vec![receive; LIST], |at, next| at.next = next);
        let mut send = self.request(Op::Send, from, self.exposed_buffer());
        self.sends = [SendFlags(0), SendFlags::IBV_SEND_INLINE].map(|inline| {
            send.send_flags = SendFlags::IBV_SEND_SIGNALED.0 | inline.0;
            chain(vec![send; LIST], |at, next| at.next = next)
        });
    }

    #[inline(always)]
    fn receive_list(&mut self, _: Range<usize>) -> Result<(), Fault> {
        let first = self.receives.as_mut_ptr();
        self.receive_by(first)
    }

    #[inline(always)]
    fn send_list(&mut self, _: Range<usize>, inline: bool) -> Result<(), Fault> {
        let first = self.sends[usize::from(inline)].as_mut_ptr();
        // SAFETY: as in `post`.
        unsafe { send_by(self.qp, first) }
    }

    #[inline(always)]
    fn poll(&mut self, queue: Queue) -> Polled {
        match self.poll_by(queue, 1) {
            0 => None,
            1 => Some(done(&self.taken[0])),
            code => Some(Err(Fault::Verbs("ibv_poll_cq", code))),
        }
    }

    #[inline(always)]
    fn poll_batch(&mut self, queue: Queue, mut each: impl FnMut(Done)) -> Result<usize, Fault> {
        let code = self.poll_by(queue, BATCH);
        let count = usize::try_from(code).map_err(|_| Fault::Verbs("ibv_poll_cq", code))?;
        for completion in &self.taken[..count] {
            each(done(completion)?);
        }
        Ok(count)
    }

    /// Sleeps until there is a completion of a receive: arms the queue, polls it once more,
    /// sleeps, takes the event and polls, as a program that waits for the channel and for
    /// other descriptors does.
    #[inline(always)]
    fn wait(&mut self, queue: Queue, _: u8, _: Option<Duration>) -> Polled {
        let mut found = self.poll(queue);
        while found.is_none() {
            let (cq, channel) = (self.queues.received.as_ptr(), self.queues.channel.as_ptr());
            // SAFETY: live objects, whose context has this function; local variables are
            // written.
            unsafe {
                let code = (*(*cq).context).ops.req_notify_cq.unwrap_unchecked()(cq, 0);
                if code != 0 {
                    return Some(Err(Fault::Verbs("ibv_req_notify_cq", code)));
                }
                found = self.poll(queue);
                if found.is_some() {
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
                    return Some(Err(Fault::Verbs("ibv_get_cq_event", -1)));
                }
                ibv_ack_cq_events(from, 1);
            }
            found = self.poll(queue);
        }
        found
    }

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }
}

#[inline(always)]
fn done(completion: &ibv_wc) -> Result<Done, Fault> {
    if completion.status != ibv_wc_status::IBV_WC_SUCCESS {
        return Err(Fault::Verbs(
            "ibv_poll_cq: the status",
            completion.status as i32,
        ));
    }
    Ok(Done {
        cookie: completion.wr_id,
        length: completion.byte_len.into(),
        immediate: 0,
        endpoint: completion.qp_num.into(),
        more: 0,
    })
}
