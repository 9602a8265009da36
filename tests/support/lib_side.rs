//! An end driven by libmlx5.

use std::rc::Rc;

use dv_sys::verbs::ibv_access_flags;

use super::libmlx5::{Answer, Buffer, Channel, Context, Cq, Link, Pd, Peer, Qp, Shape, Srq};
use super::side::{Memory, Refused, Side};
use super::work::{RecvWork, SendWork};

/// A QP of libmlx5's with its queues and memory.
pub struct LibSide {
    pub qp: Qp,
    pub srq: Option<Rc<Srq>>,
    pub buffer: Buffer,
}

impl LibSide {
    /// A QP with two CQs; its receives come from an SRQ if the shape says so.
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
        let buffer = Buffer::new(&pd, memory);
        LibSide { qp, srq, buffer }
    }
}

impl Side for LibSide {
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

    fn connect(&mut self, peer: &Peer, link: &Link) {
        self.qp.connect(peer, link);
    }

    fn to_error(&mut self) {
        self.qp.to_error();
    }

    fn post_sends(&mut self, works: &[SendWork]) -> Result<(), Refused> {
        let requests: Vec<_> = works.iter().map(SendWork::request).collect();
        // SAFETY: the tests keep an end's memory until its requests are done.
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
