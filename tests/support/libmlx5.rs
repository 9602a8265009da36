//! The referee's side: libibverbs and libmlx5 as an application uses them.
//!
//! Thin owners of verbs objects. Each keeps alive what it was made from, and
//! every failure ends the test with the errno.

use core::cell::UnsafeCell;
use core::mem::zeroed;
use core::ptr;
use std::rc::Rc;

use dat_engine::{RecvRequest, SendFlags, SendOp, SendRequest};
use dv_sys::inline::{
    dv_query_port, dv_reg_mr, ibv_alloc_parent_domain, ibv_alloc_td, ibv_cq_ex_to_cq,
    ibv_dealloc_td, ibv_poll_cq, ibv_post_srq_recv, ibv_req_notify_cq,
};
use dv_sys::mlx5dv::*;
use dv_sys::verbs::*;

use super::side::Memory;

/// An open device.
pub struct Context {
    pub raw: *mut ibv_context,
    pub lid: u16,
    pub gid: [u8; 16],
}

impl Context {
    /// Opens the first device.
    pub fn open() -> Rc<Self> {
        // SAFETY: plain verbs calls; the list is freed after the device is open.
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&raw mut count);
            assert!(
                !list.is_null() && count > 0,
                "libibverbs sees no device: {}",
                errno()
            );
            let raw = ibv_open_device(*list);
            ibv_free_device_list(list);
            assert!(!raw.is_null(), "ibv_open_device: {}", errno());
            let mut port: ibv_port_attr = zeroed();
            checked("ibv_query_port", dv_query_port(raw, 1, &raw mut port));
            let mut gid: ibv_gid = zeroed();
            checked("ibv_query_gid", ibv_query_gid(raw, 1, 0, &raw mut gid));
            Rc::new(Context {
                raw,
                lid: port.lid,
                gid: gid.raw,
            })
        }
    }

    /// The page on which the context's CQs are armed.
    pub fn arm_page(self: &Rc<Self>) -> usize {
        // Asking a CQ for it takes that CQ out of libmlx5's hands, so a CQ of
        // its own is asked; the page is the context's.
        let probe = Cq::new(self, 1);
        probe.rings().cq_uar as usize
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by `open`; everything made from it holds an Rc.
        checked("ibv_close_device", unsafe { ibv_close_device(self.raw) });
    }
}

/// A protection domain; with a thread domain of its own if `exclusive`.
pub struct Pd {
    pub raw: *mut ibv_pd,
    plain: *mut ibv_pd,
    thread_domain: *mut ibv_td,
    pub context: Rc<Context>,
}

impl Pd {
    pub fn new(context: &Rc<Context>) -> Rc<Self> {
        // SAFETY: the context is open.
        let plain = unsafe { ibv_alloc_pd(context.raw) };
        assert!(!plain.is_null(), "ibv_alloc_pd: {}", errno());
        let context = Rc::clone(context);
        Rc::new(Pd {
            raw: plain,
            plain,
            thread_domain: ptr::null_mut(),
            context,
        })
    }

    /// QPs made from it have a doorbell register for themselves.
    pub fn exclusive(context: &Rc<Context>) -> Rc<Self> {
        // SAFETY: the context is open; zeroed attributes are the documented default.
        unsafe {
            let plain = ibv_alloc_pd(context.raw);
            assert!(!plain.is_null(), "ibv_alloc_pd: {}", errno());
            let thread_domain = ibv_alloc_td(context.raw, &mut zeroed());
            assert!(!thread_domain.is_null(), "ibv_alloc_td: {}", errno());
            let mut attr: ibv_parent_domain_init_attr = zeroed();
            (attr.pd, attr.td) = (plain, thread_domain);
            let raw = ibv_alloc_parent_domain(context.raw, &raw mut attr);
            assert!(!raw.is_null(), "ibv_alloc_parent_domain: {}", errno());
            Rc::new(Pd {
                raw,
                plain,
                thread_domain,
                context: Rc::clone(context),
            })
        }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: made by `new` or `exclusive`; what uses it holds an Rc.
        unsafe {
            if !self.thread_domain.is_null() {
                checked("ibv_dealloc_pd (parent)", ibv_dealloc_pd(self.raw));
                checked("ibv_dealloc_td", ibv_dealloc_td(self.thread_domain));
            }
            checked("ibv_dealloc_pd", ibv_dealloc_pd(self.plain));
        }
    }
}

/// Every right that a region can give to a peer.
pub fn all_access() -> u32 {
    ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
}

/// Registered memory.
pub struct Buffer {
    memory: Box<[UnsafeCell<u8>]>,
    mr: *mut ibv_mr,
    _pd: Rc<Pd>,
}

impl Buffer {
    pub fn new(pd: &Rc<Pd>, len: usize) -> Self {
        Self::with_access(pd, len, all_access())
    }

    pub fn with_access(pd: &Rc<Pd>, len: usize, access: u32) -> Self {
        let memory: Box<[UnsafeCell<u8>]> = (0..len).map(|_| UnsafeCell::new(0)).collect();
        let first = memory.as_ptr().cast_mut().cast();
        // SAFETY: the region is deregistered before the memory is freed.
        let mr = unsafe { dv_reg_mr(pd.raw, first, len, access as i32) };
        assert!(!mr.is_null(), "ibv_reg_mr of {len} bytes: {}", errno());
        Buffer {
            memory,
            mr,
            _pd: Rc::clone(pd),
        }
    }
}

impl Memory for Buffer {
    fn addr(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn lkey(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { (*self.mr).lkey }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: registered by `with_access`.
        checked("ibv_dereg_mr", unsafe { ibv_dereg_mr(self.mr) });
    }
}

/// A completion channel.
pub struct Channel {
    pub raw: *mut ibv_comp_channel,
    pub context: Rc<Context>,
}

impl Channel {
    /// A channel that answers at once when it has no event.
    pub fn new(context: &Rc<Context>) -> Rc<Self> {
        // SAFETY: the context is open; the descriptor is the channel's.
        unsafe {
            let raw = ibv_create_comp_channel(context.raw);
            assert!(!raw.is_null(), "ibv_create_comp_channel: {}", errno());
            checked(
                "fcntl",
                libc::fcntl((*raw).fd, libc::F_SETFL, libc::O_NONBLOCK),
            );
            Rc::new(Channel {
                raw,
                context: Rc::clone(context),
            })
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by `new`; its CQs hold an Rc.
        checked("ibv_destroy_comp_channel", unsafe {
            ibv_destroy_comp_channel(self.raw)
        });
    }
}

/// What `ibv_poll_cq` answers, by value; fields that it leaves unset are absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub wr_id: u64,
    pub status: u32,
    pub qp_num: u32,
    /// `enum ibv_wc_opcode`, of a success.
    pub opcode: Option<u32>,
    /// Of a receive or read that succeeded.
    pub byte_len: Option<u32>,
    /// In host byte order.
    pub imm: Option<u32>,
    /// Of an error.
    pub vendor_err: Option<u32>,
}

/// Bytes of an ordinary CQE.
const CQE: u16 = 64;

/// A completion queue polled by libmlx5.
pub struct Cq {
    pub raw: *mut ibv_cq,
    channel: Option<Rc<Channel>>,
    _context: Rc<Context>,
}

impl Cq {
    pub fn new(context: &Rc<Context>, depth: u32) -> Rc<Self> {
        Self::create(context, depth, None, CQE)
    }

    pub fn with_channel(channel: &Rc<Channel>, depth: u32) -> Rc<Self> {
        Self::create(&channel.context, depth, Some(Rc::clone(channel)), CQE)
    }

    pub fn with_large_cqes(context: &Rc<Context>, depth: u32) -> Rc<Self> {
        Self::create(context, depth, None, 2 * CQE)
    }

    fn create(
        context: &Rc<Context>,
        depth: u32,
        channel: Option<Rc<Channel>>,
        cqe_size: u16,
    ) -> Rc<Self> {
        // SAFETY: context and channel are open and outlive the CQ; zeroed
        // attributes are valid.
        unsafe {
            let mut attr: ibv_cq_init_attr_ex = zeroed();
            attr.cqe = depth;
            attr.channel = channel
                .as_ref()
                .map_or(ptr::null_mut(), |channel| channel.raw);
            let mut size: mlx5dv_cq_init_attr = zeroed();
            size.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE.into();
            size.cqe_size = cqe_size;
            let cq = mlx5dv_create_cq(context.raw, &raw mut attr, &raw mut size);
            assert!(!cq.is_null(), "mlx5dv_create_cq({depth}): {}", errno());
            let raw = ibv_cq_ex_to_cq(cq);
            Rc::new(Cq {
                raw,
                channel,
                _context: Rc::clone(context),
            })
        }
    }

    pub fn poll(&self) -> Option<Answer> {
        // SAFETY: ibv_wc is plain data and large enough for one entry.
        unsafe {
            let mut wc: ibv_wc = zeroed();
            match ibv_poll_cq(self.raw, 1, &raw mut wc) {
                0 => None,
                1 => Some(answer(&wc)),
                error => panic!("ibv_poll_cq: {error}"),
            }
        }
    }

    pub fn arm(&self, solicited_only: bool) {
        // SAFETY: the CQ is alive.
        let result = unsafe { ibv_req_notify_cq(self.raw, i32::from(solicited_only)) };
        checked("ibv_req_notify_cq", result);
    }

    /// Takes and acknowledges the events of its channel, which is its alone.
    pub fn take_events(&self) -> u32 {
        let Some(channel) = &self.channel else {
            return 0;
        };
        let mut events = 0;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive and both results are writable.
        while unsafe { ibv_get_cq_event(channel.raw, &raw mut cq, &raw mut context) } == 0 {
            assert_eq!(cq, self.raw, "an event of another queue");
            events += 1;
        }
        // SAFETY: so many events were read.
        unsafe { ibv_ack_cq_events(self.raw, events) };
        events
    }

    /// Where its ring lies. libmlx5 takes no more care of a CQ after this.
    pub fn rings(&self) -> mlx5dv_cq {
        // SAFETY: the CQ is alive and `out` writable.
        unsafe {
            let mut out: mlx5dv_cq = zeroed();
            let mut object: mlx5dv_obj = zeroed();
            object.cq.in_ = self.raw;
            object.cq.out = &raw mut out;
            checked(
                "mlx5dv_init_obj",
                mlx5dv_init_obj(&raw mut object, MLX5DV_OBJ_CQ.into()),
            );
            out
        }
    }
}

/// The fields of a completion that its status and opcode define (`ibv_poll_cq(3)`).
fn answer(wc: &ibv_wc) -> Answer {
    let good = wc.status == ibv_wc_status::IBV_WC_SUCCESS;
    let with_length = matches!(
        wc.opcode,
        ibv_wc_opcode::IBV_WC_RECV
            | ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM
            | ibv_wc_opcode::IBV_WC_RDMA_READ
    );
    let received = wc.opcode & ibv_wc_opcode::IBV_WC_RECV != 0;
    let with_imm = received && wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
    // SAFETY: both members of the union are plain 32-bit numbers.
    let imm = u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data });
    Answer {
        wr_id: wc.wr_id,
        status: wc.status,
        qp_num: wc.qp_num,
        opcode: good.then_some(wc.opcode),
        byte_len: (good && with_length).then_some(wc.byte_len),
        imm: (good && with_imm).then_some(imm),
        vendor_err: (!good).then_some(wc.vendor_err),
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made by `create`; its QPs hold an Rc.
        checked("ibv_destroy_cq", unsafe { ibv_destroy_cq(self.raw) });
    }
}

/// A shared receive queue.
pub struct Srq {
    pub raw: *mut ibv_srq,
    _pd: Rc<Pd>,
}

impl Srq {
    pub fn new(pd: &Rc<Pd>, depth: u32, max_segments: u32) -> Rc<Self> {
        // SAFETY: the domain is alive.
        unsafe {
            let mut attr: ibv_srq_init_attr = zeroed();
            (attr.attr.max_wr, attr.attr.max_sge) = (depth, max_segments);
            let raw = ibv_create_srq(pd.raw, &raw mut attr);
            assert!(!raw.is_null(), "ibv_create_srq: {}", errno());
            Rc::new(Srq {
                raw,
                _pd: Rc::clone(pd),
            })
        }
    }

    pub fn rings(&self) -> mlx5dv_srq {
        // SAFETY: the SRQ is alive and `out` writable.
        unsafe {
            let mut out: mlx5dv_srq = zeroed();
            out.comp_mask = MLX5DV_SRQ_MASK_SRQN.into();
            let mut object: mlx5dv_obj = zeroed();
            object.srq.in_ = self.raw;
            object.srq.out = &raw mut out;
            checked(
                "mlx5dv_init_obj",
                mlx5dv_init_obj(&raw mut object, MLX5DV_OBJ_SRQ.into()),
            );
            out
        }
    }

    /// The errno of `ibv_post_srq_recv`, and how many were posted.
    pub fn post(&self, requests: &[RecvRequest<'_>]) -> Result<(), (i32, usize)> {
        // SAFETY: the list is built over `requests`, which outlives the call.
        post_recvs(requests, |first, bad| unsafe {
            ibv_post_srq_recv(self.raw, first, bad)
        })
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: made by `new`; its QPs hold an Rc.
        checked("ibv_destroy_srq", unsafe { ibv_destroy_srq(self.raw) });
    }
}

pub(super) fn errno() -> std::io::Error {
    std::io::Error::last_os_error()
}

pub(super) fn checked(call: &str, result: i32) {
    assert_eq!(result, 0, "{call} returned {result} ({})", errno());
}

/// Chains the requests as libibverbs wants them and posts the chain.
pub(super) fn post_recvs(
    requests: &[RecvRequest<'_>],
    post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
) -> Result<(), (i32, usize)> {
    let mut list: Vec<ibv_recv_wr> = requests
        .iter()
        .map(|request| ibv_recv_wr {
            wr_id: request.cookie,
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

/// The same for send requests.
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
    wr.wr_id = request.cookie;
    wr.sg_list = request.segments.as_ptr().cast::<ibv_sge>().cast_mut();
    wr.num_sge = request.segments.len() as i32;
    let (opcode, remote, imm) = match request.op {
        SendOp::Send => (ibv_wr_opcode::IBV_WR_SEND, None, 0),
        SendOp::SendImm(imm) => (ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, None, imm),
        SendOp::Write { remote_addr, rkey } => (
            ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            Some((remote_addr, rkey)),
            0,
        ),
        SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        } => (
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            Some((remote_addr, rkey)),
            imm,
        ),
        SendOp::Read { remote_addr, rkey } => (
            ibv_wr_opcode::IBV_WR_RDMA_READ,
            Some((remote_addr, rkey)),
            0,
        ),
    };
    wr.opcode = opcode;
    wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
    if let Some((remote_addr, rkey)) = remote {
        wr.wr.rdma = rdma_t { remote_addr, rkey };
    }
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
