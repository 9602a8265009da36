//! The engine as a measured API: an endpoint, its completion queues and registered memory.
//! The two ends exchange addresses, over the control connection if they are in two
//! processes; on iWARP they connect through rdma_cm ([`EngineRdmaCm`]).

mod rdma_cm;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

use dat_api::safe::RemoteSegment;
use dat_engine::{
    Access, Completion, CompletionQueue, ConnectOptions, CqOptions, DataInOrder, Device, Endpoint,
    EndpointAddress, EndpointOptions, LinkLayer, PortInfo, ProtectionDomain, RecvRequest,
    RegisteredBuffer, Segment, SendFlags, SendOp, SendRequest, SharedReceiveQueue, SrqOptions,
    ThreadMode,
};

pub(crate) use self::rdma_cm::EngineRdmaCm;

use self::rdma_cm::Connection;
use super::end::{BATCH, Done, End, Fault, Flags, LIST, LONGEST_LIST, Op, Polled, Queue};
use super::interface::{Connected, Interface, Pair, RemoteInterface, Role, Shape};
use crate::exchange::{Address, Peer};
use crate::failure::Failure;

/// The engine on an open device.
pub(crate) struct Engine {
    domain: ProtectionDomain,
    port: PortInfo,
    gid_index: Option<u8>,
    /// Whether one thread posts to all endpoints of the device.
    single_threaded: bool,
}

impl Engine {
    pub(crate) fn open(
        device: &Device,
        port: PortInfo,
        gid_index: Option<u8>,
        single_threaded: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            domain: device.alloc_pd()?,
            port,
            gid_index,
            single_threaded,
        })
    }

    /// Returns the address of an endpoint, with the GID of `-x`.
    fn address_of(&self, endpoint: &Endpoint) -> Result<EndpointAddress, Failure> {
        let mut address = endpoint.local_address(self.port.number)?;
        if let Some(index) = self.gid_index {
            let Some(entry) = self.port.gids.iter().find(|entry| entry.index == index) else {
                return Err(Failure::usage(format!(
                    "the GID table of port {} has no entry at index {index}; leave -x out, or take an index from 'ibv_devinfo -v'",
                    self.port.number
                )));
            };
            (address.gid, address.gid_index) = (entry.gid.0, index);
        }
        Ok(address)
    }

    /// Returns the access that the measured requests need.
    fn access(&self) -> Access {
        match self.domain.device().limits().atomics {
            true => Access::default() | Access::REMOTE_ATOMIC,
            false => Access::default(),
        }
    }

    /// Creates endpoint and memory, unconnected.
    fn end<const SHARED: bool>(&self, shape: &Shape) -> Result<EngineEnd<SHARED>, Failure> {
        let domain = &self.domain;
        let queue = |depth| {
            domain.device().create_cq(&CqOptions {
                depth,
                ..CqOptions::default()
            })
        };
        let sent = queue(shape.sent_completions)?;
        let received = queue(shape.received_completions)?;
        let srq = SHARED
            .then(|| {
                domain.create_srq(&SrqOptions {
                    depth: shape.receives,
                    max_segments: 1,
                })
            })
            .transpose()?;
        let endpoint = domain.create_endpoint(&EndpointOptions {
            srq: srq.as_ref().map(SharedReceiveQueue::handle),
            send_depth: shape.sends,
            recv_depth: shape.receives,
            inline_bytes: shape.inline,
            exclusive_register: self.single_threaded,
            thread_mode: match self.single_threaded {
                // SAFETY: one thread posts to all endpoints of the device.
                true => unsafe { ThreadMode::serialized() },
                false => ThreadMode::MULTI,
            },
            ..EndpointOptions::new(&sent, &received)
        })?;
        if endpoint.max_inline() < shape.inline {
            return Err(Failure::usage(format!(
                "this device supports {0} inline bytes: give -I {0} or less",
                endpoint.max_inline()
            )));
        }
        Ok(EngineEnd {
            address: self.address_of(&endpoint)?,
            options: ConnectOptions {
                port: self.port.number,
                gid_index: self.gid_index,
                access: self.access(),
                ..ConnectOptions::default()
            },
            has_atomics: domain.device().limits().atomics,
            connection: None,
            endpoint,
            srq,
            sent,
            received,
            buffer: domain.allocate(shape.bytes, self.access())?,
            receives: Vec::new(),
            sends: [Vec::new(), Vec::new()],
            taken: [Completion::default(); BATCH],
        })
    }

    /// Creates an endpoint on the queues of an end, connected to itself. Its completions have
    /// this context.
    pub(crate) fn another(
        &self,
        end: &EngineEnd<true>,
        sends: u32,
        inline: u32,
        context: u64,
    ) -> Result<Endpoint, Failure> {
        let mut endpoint = self.domain.create_endpoint(&EndpointOptions {
            srq: end.srq.as_ref().map(SharedReceiveQueue::handle),
            send_depth: sends,
            inline_bytes: inline,
            inline_or_fewer: true,
            context,
            ..EndpointOptions::new(&end.sent, &end.received)
        })?;
        let own = endpoint.local_address(self.port.number)?;
        endpoint.connect(&own, &end.options)?;
        Ok(endpoint)
    }
}

impl Interface for Engine {
    type End<const SHARED: bool> = EngineEnd<SHARED>;

    fn connect_pair<const SHARED: bool>(
        &self,
        shape: &Shape,
    ) -> Result<Pair<Self, SHARED>, Failure> {
        let (near, far) = (self.end::<SHARED>(shape)?, self.end(shape)?);
        let (here, there) = (near.address(), far.address());
        Ok([near.connect(&there, shape)?, far.connect(&here, shape)?])
    }
}

impl RemoteInterface for Engine {
    fn connect_end(
        &self,
        shape: &Shape,
        peer: &mut Peer,
        _role: Role,
    ) -> Result<Connected<EngineEnd<false>>, Failure> {
        let end = self.end(shape)?;
        let theirs = peer.exchange_addresses(end.address())?;
        end.connect(&theirs, shape)
    }
}

/// One side's endpoint and memory.
pub(crate) struct EngineEnd<const SHARED: bool> {
    // Dropped in this order: the connection of rdma_cm uses the endpoint, and the memory of
    // posted requests comes last, after the endpoint, and after the queues, which may copy
    // payload to it.
    connection: Option<Connection>,
    endpoint: Endpoint,
    /// There if `SHARED`.
    srq: Option<SharedReceiveQueue>,
    sent: CompletionQueue,
    received: CompletionQueue,
    buffer: RegisteredBuffer,
    address: EndpointAddress,
    options: ConnectOptions,
    has_atomics: bool,
    receives: Vec<RecvRequest<'static>>,
    /// Not inline, and inline.
    sends: [Vec<SendRequest<'static>>; 2],
    taken: [Completion; BATCH],
}

impl<const SHARED: bool> EngineEnd<SHARED> {
    /// Returns the addresses that the other side needs.
    fn address(&self) -> Address {
        let buffer = self.exposed_buffer();
        Address {
            qpn: self.address.qpn,
            psn: self.address.psn,
            lid: self.address.lid,
            gid_index: self.address.gid_index,
            mtu: self.address.mtu,
            ethernet: self.address.link == LinkLayer::Ethernet,
            gid: self.address.gid,
            buffer: buffer.address,
            rkey: buffer.context,
            length: buffer.length,
        }
    }

    /// Connects to the other side, and posts the receives.
    fn connect(mut self, theirs: &Address, shape: &Shape) -> Result<Connected<Self>, Failure> {
        let address = EndpointAddress {
            qpn: theirs.qpn,
            psn: theirs.psn,
            lid: theirs.lid,
            gid: theirs.gid,
            gid_index: theirs.gid_index,
            mtu: theirs.mtu,
            link: if theirs.ethernet {
                LinkLayer::Ethernet
            } else {
                LinkLayer::InfiniBand
            },
        };
        self.endpoint.connect(&address, &self.options)?;
        shape.post_receives(&mut self)?;
        Ok(Connected {
            numbers: [self.address.qpn, theirs.qpn],
            theirs: RemoteSegment {
                context: theirs.rkey,
                address: theirs.buffer,
                length: theirs.length,
            },
            end: self,
        })
    }

    fn segment(&self, range: Range<usize>) -> Segment {
        self.buffer
            .segment(range.start, range.len() as u32)
            .expect("the parts of messages are within the buffer")
    }

    /// Returns the shared receive queue of an end that has one.
    #[inline(always)]
    fn srq(&mut self) -> &mut SharedReceiveQueue {
        assert!(SHARED, "the end has a receive queue of its own");
        // SAFETY: `Engine::end` creates one if `SHARED`.
        unsafe { self.srq.as_mut().unwrap_unchecked() }
    }

    #[inline(always)]
    fn queue(&mut self, queue: Queue) -> &mut CompletionQueue {
        match queue {
            Queue::Sent => &mut self.sent,
            Queue::Received => &mut self.received,
        }
    }

    /// Posts a send by another endpoint of this end's queues.
    pub(crate) fn send_by(&self, endpoint: &mut Endpoint, request: &Request) -> Result<(), Fault> {
        let inline = request.segments[0].length <= endpoint.max_inline();
        let flags = Flags {
            signaled: true,
            inline,
        };
        // SAFETY: as in `post`; the endpoint is dropped before this end.
        Ok(unsafe { endpoint.post_send(&request.send(Op::Send, 0, flags)) }?)
    }
}

/// A prepared request.
pub(crate) struct Request {
    // Not an array: a program's lists have any length.
    segments: Box<[Segment]>,
    /// Address and key of the other side's memory.
    remote_addr: u64,
    rkey: u32,
}

impl Request {
    #[inline(always)]
    fn send(&self, op: Op, wr_id: u64, flags: Flags) -> SendRequest<'_> {
        let &Self {
            remote_addr, rkey, ..
        } = self;
        SendRequest {
            wr_id,
            op: match op {
                Op::Send => SendOp::Send,
                Op::Write | Op::WriteImmediate => SendOp::Write { remote_addr, rkey },
                Op::Read => SendOp::Read { remote_addr, rkey },
                #[rustfmt::skip]
                Op::Atomic(op) => SendOp::Atomic { remote_addr, rkey, op },
            },
            flags: send_flags(flags),
            segments: &self.segments,
        }
    }
}

#[inline(always)]
fn send_flags(flags: Flags) -> SendFlags {
    let when = |condition, flag| if condition { flag } else { SendFlags::empty() };
    when(flags.signaled, SendFlags::SIGNALED) | when(flags.inline, SendFlags::INLINE)
}

impl<const SHARED: bool> End for EngineEnd<SHARED> {
    const LISTS: bool = true;
    const BATCHES: bool = true;
    const CHOOSES_INLINE: bool = true;

    type Request = Request;
    type Receive = Box<[Segment]>;

    fn memory(&self) -> NonNull<u8> {
        self.buffer.as_ptr()
    }

    fn exposed_buffer(&self) -> RemoteSegment {
        RemoteSegment {
            context: self.buffer.region().rkey(),
            address: self.buffer.as_ptr().addr().get() as u64,
            length: self.buffer.len() as u64,
        }
    }

    fn request(&self, _: Op, local: Range<usize>, remote: RemoteSegment) -> Request {
        Request {
            segments: Box::new([self.segment(local)]),
            remote_addr: remote.address,
            rkey: remote.context,
        }
    }

    fn receive(&self, into: Range<usize>) -> Box<[Segment]> {
        Box::new([self.segment(into)])
    }

    #[inline(always)]
    fn post(
        &mut self,
        op: Op,
        _: Range<usize>,
        request: &mut Request,
        cookie: u64,
        flags: Flags,
    ) -> Result<(), Fault> {
        // SAFETY: the segment is in `buffer`, which outlives the endpoint (order of fields) and
        // so every request; there are no references to its bytes. Inline bytes are read during
        // the call.
        Ok(unsafe { self.endpoint.post_send(&request.send(op, cookie, flags)) }?)
    }

    #[inline(always)]
    fn post_receive(
        &mut self,
        _: Range<usize>,
        segments: &mut Box<[Segment]>,
        wr_id: u64,
    ) -> Result<(), Fault> {
        let request = RecvRequest { wr_id, segments };
        let posted = match SHARED {
            // SAFETY: as in `post`.
            true => unsafe { self.srq().post(&request) },
            // SAFETY: as in `post`.
            false => unsafe { self.endpoint.post_recv(&request) },
        };
        Ok(posted?)
    }

    #[inline(always)]
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags: send_flags(Flags {
                signaled,
                inline: false,
            }),
            segments: &[],
        };
        // SAFETY: the request has no memory.
        Ok(unsafe { self.endpoint.post_send(&request) }?)
    }

    #[inline(always)]
    fn post_list(
        &mut self,
        op: Op,
        _: Range<usize>,
        request: &mut Request,
        signaled: &[bool],
        inline: bool,
    ) -> Result<(), Fault> {
        let mut requests = [const { MaybeUninit::<SendRequest<'_>>::uninit() }; LONGEST_LIST];
        let list = &mut requests[..signaled.len()];
        for (element, &signaled) in list.iter_mut().zip(signaled) {
            element.write(request.send(op, 0, Flags { signaled, inline }));
        }
        // SAFETY: the loop has written every element of the list.
        let list = unsafe { list.assume_init_ref() };
        // SAFETY: as in `post`, for every request.
        unsafe { self.endpoint.post_send_list(list) }.map_err(|error| Fault::Post(error.error))
    }

    fn prepare_lists(&mut self, into: Range<usize>, from: Range<usize>) {
        // Leaked, because requests refer to them and the process ends after the measurement.
        let segments = |range| -> &'static [Segment] { Box::leak(Box::new([self.segment(range)])) };
        let receive = RecvRequest {
            wr_id: 0,
            segments: segments(into),
        };
        let from = segments(from);
        self.receives = vec![receive; LIST];
        self.sends = [Flags::SIGNALED, Flags::INLINE].map(|flags| {
            let send = SendRequest {
                wr_id: 0,
                op: SendOp::Send,
                flags: send_flags(flags),
                segments: from,
            };
            vec![send; LIST]
        });
    }

    #[inline(always)]
    fn receive_list(&mut self, _: Range<usize>) -> Result<(), Fault> {
        let posted = match &mut self.srq {
            // SAFETY: as in `post`.
            Some(srq) if SHARED => unsafe { srq.post_list(&self.receives) },
            // SAFETY: as in `post`.
            _ => unsafe { self.endpoint.post_recv_list(&self.receives) },
        };
        posted.map_err(|error| Fault::Post(error.error))
    }

    #[inline(always)]
    fn send_list(&mut self, _: Range<usize>, inline: bool) -> Result<(), Fault> {
        let list = &self.sends[usize::from(inline)];
        // SAFETY: as in `post`.
        unsafe { self.endpoint.post_send_list(list) }.map_err(|error| Fault::Post(error.error))
    }

    #[inline(always)]
    fn poll(&mut self, queue: Queue) -> Polled {
        self.queue(queue).poll().map(done)
    }

    #[inline(always)]
    fn poll_batch(&mut self, queue: Queue, mut each: impl FnMut(Done)) -> Result<usize, Fault> {
        let queue = match queue {
            Queue::Sent => &mut self.sent,
            Queue::Received => &mut self.received,
        };
        let count = queue.poll_batch(&mut self.taken);
        for &completion in &self.taken[..count] {
            each(done(completion)?);
        }
        Ok(count)
    }

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    fn data_in_order(&self) -> DataInOrder {
        self.endpoint.data_in_order()
    }
}

#[inline(always)]
fn done(completion: Completion) -> Result<Done, Fault> {
    if !completion.status.is_success() {
        return Err(Fault::Completion(completion));
    }
    Ok(Done {
        cookie: completion.wr_id,
        length: completion.byte_len.into(),
        endpoint: completion.context,
        more: 0,
    })
}
