//! An end driven by the engine.

use core::ptr::NonNull;

use dat_engine::{
    Access, Arm, BindRequest, Completion, CompletionFlags, CompletionQueue, ConnectOptions,
    CqOptions, CqeSize, Device, Endpoint, EndpointAddress, EndpointOptions, LinkLayer, ListError,
    MemoryWindow, ProtectionDomain, RegisteredBuffer, SharedReceiveQueue, SrqOptions, WindowTarget,
};

use super::iwarp::is_iwarp;
use super::libmlx5::{Answer, Link, Peer, Shape};
use super::operations;
use super::rings::{CompletionRing, Rings};
use super::side::{Memory, Refused, Side, options};
use super::traffic::most_inline;
use super::work::{BindWork, RecvWork, SendWork, WindowKeys};

/// An endpoint with its queues and memory.
pub struct EngineSide {
    pub endpoint: Endpoint,
    pub srq: Option<SharedReceiveQueue>,
    pub send_cq: CompletionQueue,
    pub recv_cq: CompletionQueue,
    pub window: Option<MemoryWindow>,
    pub buffer: RegisteredBuffer,
    pub domain: ProtectionDomain,
}

impl EngineSide {
    /// Creates an endpoint with two CQs. Its receives come from an SRQ if
    /// `shared`.
    pub fn new(device: &Device, shape: Shape, memory: usize) -> Self {
        let domain = device.alloc_pd().expect("a protection domain");
        let cqe_size = if shape.large_cqes {
            CqeSize::B128
        } else {
            CqeSize::B64
        };
        let channel = shape
            .events
            .then(|| device.create_channel().expect("a channel"));
        let create_cq = |depth, channel| {
            let options = CqOptions {
                depth,
                cqe_size,
                channel,
                ..CqOptions::default()
            };
            device.create_cq(&options).expect("a completion queue")
        };
        let send_cq = create_cq(shape.send_depth, None);
        let recv_cq = create_cq(shape.recv_depth, channel.as_ref());
        let srq_options = SrqOptions {
            depth: shape.recv_depth,
            max_segments: shape.recv_segments,
        };
        let srq = shape.shared.then(|| {
            domain
                .create_srq(&srq_options)
                .expect("a shared receive queue")
        });
        let options = EndpointOptions {
            srq: srq.as_deref(),
            send_depth: shape.send_depth,
            recv_depth: shape.recv_depth,
            send_segments: shape.send_segments,
            recv_segments: shape.recv_segments,
            inline_bytes: match is_iwarp() {
                true => shape.inline_bytes.min(most_inline()),
                false => shape.inline_bytes,
            },
            exclusive_register: shape.exclusive,
            windows: shape.windows,
            ..EndpointOptions::new(&send_cq, &recv_cq)
        };
        let endpoint = domain.create_endpoint(&options).expect("an endpoint");
        let window = shape
            .windows
            .then(|| domain.alloc_window().expect("a window"));
        let access = Access::default() | Access::WINDOW_BIND | atomics(&domain);
        let buffer = domain.allocate(memory, access).expect("registered memory");
        EngineSide {
            endpoint,
            srq,
            send_cq,
            recv_cq,
            window,
            buffer,
            domain,
        }
    }
}

impl Memory for RegisteredBuffer {
    fn addr(&self) -> u64 {
        self.as_ptr().as_ptr() as u64
    }

    fn len(&self) -> usize {
        RegisteredBuffer::len(self)
    }

    fn lkey(&self) -> u32 {
        self.region().lkey()
    }

    fn rkey(&self) -> u32 {
        self.region().rkey()
    }
}

impl Side for EngineSide {
    fn memory(&self) -> &dyn Memory {
        &self.buffer
    }

    fn read_only_memory(&self) -> Box<dyn Memory> {
        let access = Access::REMOTE_READ;
        Box::new(
            self.domain
                .allocate(4096, access)
                .expect("registered memory"),
        )
    }

    fn receives_are_shared(&self) -> bool {
        self.srq.is_some()
    }

    fn peer(&self) -> Peer {
        let address = self.endpoint.local_address(1).expect("an active port");
        let EndpointAddress { qpn, psn, lid, .. } = address;
        let EndpointAddress { gid, gid_index, .. } = address;
        Peer {
            qpn,
            psn,
            lid,
            gid,
            gid_index,
            ethernet: address.link == LinkLayer::Ethernet,
        }
    }

    fn rings(&self) -> Rings {
        const PATH: &str = "the direct path";
        let send = self.endpoint.send_layout().expect(PATH);
        let (recv, recv_record, shared_stride) = match &self.srq {
            None => {
                let ring = self.endpoint.recv_layout().expect("a receive queue");
                let len = ring.wqe_count as usize * ring.stride as usize;
                ((address(ring.buf), len), address(ring.dbrec), None)
            }
            Some(srq) => {
                let ring = srq.layout().expect(PATH);
                let stride = ring.stride as usize;
                // All WQEs are free.
                let len = (usize::from(ring.tail - ring.head) + 1) * stride;
                ((address(ring.buf), len), address(ring.dbrec), Some(stride))
            }
        };
        let cq = |cq: &CompletionQueue| {
            let ring = cq.layout().expect(PATH);
            CompletionRing {
                buf: address(ring.buf),
                cqe_count: ring.cqe_count,
                cqe_size: ring.cqe_size,
                arm_record: address(ring.dbrec) + 4,
                page: address(ring.uar),
                cqn: ring.cqn,
            }
        };
        Rings {
            qpn: self.endpoint.qpn(),
            send: (address(send.buf), send.wqebb_count as usize * 64),
            recv,
            shared_stride,
            send_record: address(send.dbrec),
            recv_record,
            register: address(send.register.reg),
            cqs: [cq(&self.send_cq), cq(&self.recv_cq)],
        }
    }

    fn connect(&mut self, peer: &Peer, link: &Link) {
        let address = EndpointAddress {
            qpn: peer.qpn,
            psn: peer.psn,
            lid: peer.lid,
            gid: peer.gid,
            gid_index: peer.gid_index,
            mtu: link.mtu as u8,
            link: match peer.ethernet {
                true => LinkLayer::Ethernet,
                false => LinkLayer::InfiniBand,
            },
        };
        let options = options(link);
        let with_atomics = ConnectOptions {
            access: options.access | atomics(&self.domain),
            ..options
        };
        self.endpoint
            .connect(&address, &with_atomics)
            .expect("connected");
    }

    fn endpoint(&mut self) -> Option<&mut Endpoint> {
        Some(&mut self.endpoint)
    }

    fn to_error(&mut self) {
        self.endpoint.to_error().expect("the error state");
    }

    fn window_keys(&self) -> WindowKeys {
        WindowKeys {
            rkey: self.window.as_ref().expect("a window").rkey(),
            lkey: self.buffer.lkey(),
            addr: self.buffer.addr(),
        }
    }

    fn post_bind(&mut self, work: &BindWork) -> Result<u32, Refused> {
        let target = |(offset, length, access)| WindowTarget {
            region: self.buffer.region(),
            addr: self.buffer.addr() + offset,
            length,
            access,
        };
        let request = BindRequest {
            wr_id: work.wr_id,
            flags: work.flags,
            target: work.to.map(target),
        };
        let window = self.window.as_mut().expect("a window");
        // SAFETY: the tests keep the memory of an end until its requests have
        // completed.
        unsafe { self.endpoint.post_bind(window, &request, 0) }.map_err(|_| Refused { posted: 0 })
    }

    fn post_sends(&mut self, works: &[SendWork]) -> Result<(), Refused> {
        let requests: Vec<_> = works.iter().map(SendWork::request).collect();
        // SAFETY: the tests keep the memory of an end until its requests have
        // completed.
        refused(unsafe {
            match requests.as_slice() {
                // Uses both functions that post a single request.
                [one] if one.wr_id % 2 == 0 => self
                    .endpoint
                    .post_send(one)
                    .map_err(|error| ListError { posted: 0, error }),
                list => self.endpoint.post_send_list(list),
            }
        })
    }

    fn post_recvs(&mut self, works: &[RecvWork]) -> Result<(), Refused> {
        let requests: Vec<_> = works.iter().map(RecvWork::request).collect();
        let alone = |error| ListError { posted: 0, error };
        // SAFETY: as in `post_sends`.
        refused(unsafe {
            match (&mut self.srq, requests.as_slice()) {
                (Some(srq), [one]) if one.wr_id % 2 == 0 => srq.post(one).map_err(alone),
                (Some(srq), list) => srq.post_list(list),
                (None, [one]) if one.wr_id % 2 == 0 => self.endpoint.post_recv(one).map_err(alone),
                (None, list) => self.endpoint.post_recv_list(list),
            }
        })
    }

    fn poll_send(&mut self) -> Option<Answer> {
        self.send_cq.poll().map(|completion| answer(&completion))
    }

    fn poll_recv(&mut self) -> Option<Answer> {
        self.recv_cq.poll().map(|completion| answer(&completion))
    }

    fn arm_recv(&mut self, solicited_only: bool) {
        let arm = match solicited_only {
            true => Arm::Solicited,
            false => Arm::Any,
        };
        self.recv_cq.arm(arm).expect("armed");
    }

    fn take_events(&mut self) -> u32 {
        self.recv_cq.take_events().expect("the device is alive")
    }
}

fn address<T>(place: NonNull<T>) -> usize {
    place.as_ptr() as usize
}

/// Returns the right to use atomic operations, if the device has them.
fn atomics(domain: &ProtectionDomain) -> Access {
    match domain.device().limits().atomics {
        true => Access::REMOTE_ATOMIC,
        false => Access::empty(),
    }
}

fn refused(result: Result<(), ListError>) -> Result<(), Refused> {
    result.map_err(|error| Refused {
        posted: error.posted,
    })
}

/// Converts the engine's completion to verbs' terms, without the fields that
/// verbs leaves undefined.
pub fn answer(completion: &Completion) -> Answer {
    let good = completion.status.is_success();
    let opcode = operations::wc_opcode(completion.op);
    let has_length = operations::has_length(opcode);
    let with_imm = completion.flags.contains(CompletionFlags::WITH_IMM);
    Answer {
        wr_id: completion.wr_id,
        status: completion.status.ibv_wc_status(),
        qp_num: completion.qpn,
        opcode: good.then_some(opcode),
        byte_len: (good && has_length).then_some(completion.byte_len),
        imm: (good && with_imm).then_some(completion.imm),
        invalidated: None,
        vendor_err: (!good).then_some(completion.vendor_syndrome.into()),
    }
}
