//! One end of a connection: an endpoint with its queues and memory.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::mpsc::Receiver;

use dat_api::safe::RemoteSegment;
use dat_engine::{
    Completion, CompletionQueue, ConnectOptions, DataInOrder, Endpoint, EndpointAddress, LinkLayer,
    RecvRequest, RegisteredBuffer, Segment, SendFlags, SendOp, SendRequest, SharedReceiveQueue,
};

use crate::ends::end::{BATCH, Done, End, Fault, Flags, LIST, LONGEST_LIST, Op, Polled, Queue};
use crate::ends::interface::{Connected, Shape};
use crate::exchange::Address;
use crate::failure::Failure;

/// One side's endpoint and memory.
pub(crate) struct EngineEnd<const SHARED: bool> {
    // Dropped in this order: the connection of rdma_cm uses the endpoint, and the memory of
    // posted requests comes last, after the endpoint, and after the queues, which may copy
    // payload to it.
    pub(super) connection: Option<Connection>,
    pub(super) endpoint: Endpoint,
    /// There if `SHARED`.
    pub(super) srq: Option<SharedReceiveQueue>,
    pub(super) sent: CompletionQueue,
    pub(super) received: CompletionQueue,
    pub(super) buffer: RegisteredBuffer,
    pub(super) address: EndpointAddress,
    pub(super) options: ConnectOptions,
    pub(super) has_atomics: bool,
    pub(super) receives: Vec<RecvRequest<'static>>,
    /// Not inline, and inline.
    pub(super) sends: [Vec<SendRequest<'static>>; 2],
    pub(super) taken: [Completion; BATCH],
}

impl<const SHARED: bool> EngineEnd<SHARED> {
    /// Returns the addresses that the other side needs.
    pub(super) fn address(&self) -> Address {
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
    pub(super) fn connect(
        mut self,
        theirs: &Address,
        shape: &Shape,
    ) -> Result<Connected<Self>, Failure> {
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

    #[inline(always)]
    fn post_segments(&mut self, segments: &[Segment], wr_id: u64) -> Result<(), Fault> {
        let request = RecvRequest { wr_id, segments };
        let posted = match SHARED {
            // SAFETY: the segments are in `buffer`, which outlives the queues (order of
            // fields) and so every request; there are no references to its bytes.
            true => unsafe { self.srq().post(&request) },
            // SAFETY: as above.
            false => unsafe { self.endpoint.post_recv(&request) },
        };
        Ok(posted?)
    }

    /// Posts a receive of one segment. The compiler knows their number here, as in most
    /// programs; in [`End::post_receive`] it does not.
    #[inline(always)]
    pub(super) fn post_one(&mut self, segment: &Segment, wr_id: u64) -> Result<(), Fault> {
        self.post_segments(core::slice::from_ref(segment), wr_id)
    }

    /// Returns a part of the memory.
    pub(super) fn segment(&self, range: Range<usize>) -> Segment {
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
    pub(super) fn send_by(&self, endpoint: &mut Endpoint, request: &Request) -> Result<(), Fault> {
        let inline = request.segments[0].length <= endpoint.max_inline();
        let flags = Flags {
            signaled: true,
            inline,
        };
        // SAFETY: as in `post`; the endpoint is dropped before this end.
        Ok(unsafe { endpoint.post_send(&request.send(Op::Send, 0, flags)) }?)
    }
}

/// A connection of rdma_cm, established or in progress.
pub(super) struct Connection {
    pub(super) _kept: dat_engine::cm::Connection,
    pub(super) outcome: Outcome,
}

/// Receives the result of connecting: the peer's private data, or the failure.
pub(super) type Outcome = Receiver<Result<Vec<u8>, Failure>>;

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
        SendRequest {
            wr_id,
            op: match op {
                Op::Send => SendOp::Send,
                Op::Write => SendOp::Write {
                    remote_addr: self.remote_addr,
                    rkey: self.rkey,
                },
                Op::WriteImmediate(imm) => SendOp::WriteImm {
                    remote_addr: self.remote_addr,
                    rkey: self.rkey,
                    imm,
                },
                Op::Read => SendOp::Read {
                    remote_addr: self.remote_addr,
                    rkey: self.rkey,
                },
                Op::Atomic(op) => SendOp::Atomic {
                    remote_addr: self.remote_addr,
                    rkey: self.rkey,
                    op,
                },
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

    fn request_of(&self, _: Op, local: &[Range<usize>], remote: RemoteSegment) -> Request {
        Request {
            segments: self.receive_of(local),
            remote_addr: remote.address,
            rkey: remote.context,
        }
    }

    fn receive_of(&self, into: &[Range<usize>]) -> Box<[Segment]> {
        into.iter().map(|it| self.segment(it.clone())).collect()
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
        self.post_segments(segments, wr_id)
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
        immediate: completion.imm,
        endpoint: completion.context,
        more: 0,
    })
}
