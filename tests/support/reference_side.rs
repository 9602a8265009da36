//! An end driven by libmlx5.

use std::rc::Rc;

use dv_sys::verbs::{ibv_access_flags, ibv_mw_type};

use super::libmlx5::all_access;
use super::libmlx5::{
    Answer, Buffer, Channel, Context, Cq, Link, Pd, Peer, Qp, Shape, Srq, Window,
};
use super::rings::{CompletionRing, Rings};
use super::side::{Memory, Refused, Side};
use super::work::{BindWork, RecvWork, SendWork, WindowKeys};

/// A queue pair of libmlx5 with its queues and memory.
pub struct ReferenceSide {
    pub qp: Qp,
    pub srq: Option<Rc<Srq>>,
    pub window: Option<Window>,
    pub buffer: Buffer,
}

impl ReferenceSide {
    /// Creates a queue pair with two CQs. Its receives come from an SRQ if the
    /// shape says so.
    pub fn new(context: &Rc<Context>, shape: Shape, memory: usize) -> Self {
        let pd = if shape.exclusive {
            Pd::exclusive(context)
        } else {
            Pd::new(context)
        };
        let create_cq = if shape.large_cqes {
            Cq::with_large_cqes
        } else {
            Cq::new
        };
        let send_cq = create_cq(context, shape.send_depth);
        let recv_cq = if shape.events {
            Cq::with_channel(&Channel::new(context), shape.recv_depth)
        } else {
            create_cq(context, shape.recv_depth)
        };
        let srq = shape
            .shared
            .then(|| Srq::new(&pd, shape.recv_depth, shape.recv_segments));
        let qp = Qp::new(&pd, [&send_cq, &recv_cq], srq.as_ref(), shape);
        let window = (shape.windows).then(|| Window::new(&pd, ibv_mw_type::IBV_MW_TYPE_1));
        let access = all_access() | ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        let buffer = Buffer::with_access(&pd, memory, access);
        ReferenceSide {
            qp,
            srq,
            window,
            buffer,
        }
    }
}

impl Side for ReferenceSide {
    fn memory(&self) -> &dyn Memory {
        &self.buffer
    }

    fn read_only_memory(&self) -> Box<dyn Memory> {
        let access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
        Box::new(Buffer::with_access(&self.qp.pd, 4096, access))
    }

    fn receives_are_shared(&self) -> bool {
        self.srq.is_some()
    }

    fn peer(&self) -> Peer {
        self.qp.address()
    }

    fn rings(&self) -> Rings {
        let qp = self.qp.rings();
        let bytes = |count: u32, stride: u32| count as usize * stride as usize;
        let record = qp.dbrec as usize;
        let (recv, recv_record, shared_stride) = match &self.srq {
            None => {
                let len = bytes(qp.rq.wqe_cnt, qp.rq.stride);
                ((qp.rq.buf as usize, len), record, None)
            }
            Some(srq) => {
                let srq = srq.rings();
                // All WQEs are free.
                let len = bytes(srq.tail - srq.head + 1, srq.stride);
                let stride = Some(srq.stride as usize);
                ((srq.buf as usize, len), srq.dbrec as usize, stride)
            }
        };
        let cq = |cq: &Cq| {
            let cq = cq.rings();
            CompletionRing {
                buf: cq.buf as usize,
                cqe_count: cq.cqe_cnt,
                cqe_size: cq.cqe_size,
                arm_record: cq.dbrec as usize + 4,
                page: cq.cq_uar as usize,
                cqn: cq.cqn,
            }
        };
        Rings {
            qpn: self.qp.qpn(),
            send: (qp.sq.buf as usize, bytes(qp.sq.wqe_cnt, qp.sq.stride)),
            recv,
            shared_stride,
            send_record: record + 4,
            recv_record,
            register: qp.bf.reg as usize,
            cqs: [cq(&self.qp.send_cq), cq(&self.qp.recv_cq)],
        }
    }

    fn connect(&mut self, peer: &Peer, link: &Link) {
        self.qp.connect(peer, link);
    }

    fn to_error(&mut self) {
        self.qp.to_error();
    }

    fn window_keys(&self) -> WindowKeys {
        WindowKeys {
            rkey: self.window.as_ref().expect("a window").rkey,
            lkey: self.buffer.lkey(),
            addr: self.buffer.addr(),
        }
    }

    fn post_bind(&mut self, work: &BindWork) -> Result<u32, Refused> {
        let window = self.window.as_mut().expect("a window");
        window
            .bind_as(&self.qp, &self.buffer, work)
            .map_err(|_| Refused { posted: 0 })
    }

    fn post_sends(&mut self, works: &[SendWork]) -> Result<(), Refused> {
        let requests: Vec<_> = works.iter().map(SendWork::request).collect();
        // SAFETY: the tests keep the memory of an end until its requests have
        // completed.
        unsafe { self.qp.post_send(&requests) }.map_err(|(_, posted)| Refused { posted })
    }

    fn post_recvs(&mut self, works: &[RecvWork]) -> Result<(), Refused> {
        let requests: Vec<_> = works.iter().map(RecvWork::request).collect();
        let result = match &self.srq {
            Some(srq) => srq.post(&requests),
            // SAFETY: as in `post_sends`.
            None => unsafe { self.qp.post_recv(&requests) },
        };
        result.map_err(|(_, posted)| Refused { posted })
    }

    fn poll_send(&mut self) -> Option<Answer> {
        self.qp.send_cq.poll()
    }

    fn poll_recv(&mut self) -> Option<Answer> {
        self.qp.recv_cq.poll()
    }

    fn arm_recv(&mut self, solicited_only: bool) {
        self.qp.recv_cq.arm(solicited_only);
    }

    fn take_events(&mut self) -> u32 {
        self.qp.recv_cq.take_events()
    }
}
