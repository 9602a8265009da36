//! DAT's Rust types as a measured API.
//!
//! Each request creates its `Segment` again, as programs do, so its bounds check
//! is part of the measurement.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, ListError, Memory,
    Message, OpenOptions, ProtectionZone, RemoteSegment, Segment, ServicePoint, SharedReceiveQueue,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EpAttributes, EvdFlags, Event, EventData,
    MemPrivileges,
};
use dat_api::{DatError, ReturnType};
use dat_engine::DataInOrder;
use smallvec::SmallVec;

use super::dat::Dat;
use super::end::{BATCH, Done, End, Fault, Flags, LIST, Op, Polled, Queue};
use super::interface::Shape;
use crate::failure::Failure;

/// Length of the queues of connection events.
const CONNECTION_EVENTS: u32 = 8;

/// An open adapter.
pub(crate) struct Rust {
    pub(crate) adapter: Adapter,
    zone: ProtectionZone,
}

impl Rust {
    pub(crate) fn open(adapter: &str, thread_safe: bool) -> Result<Self, Failure> {
        let options = match thread_safe {
            true => OpenOptions::new().thread_safe(),
            false => OpenOptions::new(),
        };
        let adapter = Adapter::open_with(adapter, options)?;
        Ok(Self {
            zone: adapter.create_zone()?,
            adapter,
        })
    }
}

impl Dat for Rust {
    type End<const SHARED: bool> = RustEnd<SHARED>;
    type Acceptor = Acceptor;

    fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.adapter.address())
    }

    fn end<const SHARED: bool>(&self, shape: &Shape) -> Result<RustEnd<SHARED>, Failure> {
        let memory = self.zone.allocate(shape.bytes, MemPrivileges::all())?;
        let queue = |length, streams| self.adapter.create_dispatcher(length, streams);
        let (adapter, length) = (&self.adapter, shape.received_completions);
        let received = match shape.policy {
            Some(policy) => adapter.create_dispatcher_with_policy(length, EvdFlags::DTO, policy)?,
            None => queue(length, EvdFlags::DTO)?,
        };
        let sent = queue(shape.sent_completions, EvdFlags::DTO)?;
        let connections = queue(CONNECTION_EVENTS, EvdFlags::CONNECTION)?;
        let srq = SHARED
            .then(|| self.zone.create_shared_receive_queue(shape.receives, 1))
            .transpose()?;
        let mut options = EndpointOptions::new(&connections)
            .recv_events(&received)
            .request_events(&sent)
            .attributes(attributes(&self.adapter, shape));
        if let Some(srq) = &srq {
            options = options.shared(srq);
        }
        let endpoint = self.zone.create_endpoint(&options)?;
        Ok(RustEnd {
            has_atomics: self.adapter.query().ia.atomics,
            endpoint,
            srq,
            sent,
            received,
            connections,
            memory,
            events: [Event::default(); BATCH],
        })
    }

    fn listen(&self) -> Result<(Acceptor, u64), Failure> {
        let requests = self
            .adapter
            .create_dispatcher(CONNECTION_EVENTS, EvdFlags::CR)?;
        let point = self.adapter.listen_any(&requests)?;
        let qualifier = point.qualifier();
        let acceptor = Acceptor {
            _point: point,
            requests,
        };
        Ok((acceptor, qualifier))
    }

    fn accept<const SHARED: bool>(
        &self,
        acceptor: Acceptor,
        end: &mut RustEnd<SHARED>,
        within: Duration,
        private_data: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let event = await_event(&acceptor.requests, within, "a DAT connection request")?;
        let request = ConnectionRequest::from_event(&event).ok_or_else(|| {
            Failure::run(format!(
                "event {:?} instead of a connection request",
                event.data
            ))
        })?;
        let theirs = request.private_data().to_vec();
        let accepted = request.accept(&mut end.endpoint, private_data);
        accepted.map_err(DatError::from)?;
        Ok(theirs)
    }

    fn connect<const SHARED: bool>(
        &self,
        end: &mut RustEnd<SHARED>,
        (host, qualifier): (SocketAddr, u64),
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure> {
        let endpoint = &mut end.endpoint;
        Ok(endpoint.connect(host, qualifier, Some(within), private_data)?)
    }

    fn established<const SHARED: bool>(
        &self,
        end: &mut RustEnd<SHARED>,
        within: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let event = await_event(&end.connections, within, "a DAT connection")?;
        match event.data {
            EventData::Connection {
                kind: ConnectionKind::Established,
                private_data,
                ..
            } => {
                let start = core::ptr::with_exposed_provenance::<u8>(private_data.address);
                if start.is_null() {
                    return Ok(Vec::new());
                }
                // SAFETY: the event says that there are this many bytes. They
                // stay valid until the endpoint is reset or freed, which happens
                // after this function only.
                let bytes =
                    unsafe { core::slice::from_raw_parts(start, private_data.len as usize) };
                Ok(bytes.to_vec())
            }
            other => Err(Failure::run(format!(
                "the DAT connection was not established: {other:?}"
            ))),
        }
    }
}

/// Returns endpoint attributes with the depths of the run, and as many RDMA reads in flight as
/// the run needs, if the device has reads.
fn attributes(adapter: &Adapter, shape: &Shape) -> EpAttributes {
    let limits = adapter.query().ia;
    EpAttributes {
        max_rdma_read_in: limits.max_rdma_read_per_ep_in.min(shape.reads),
        max_rdma_read_out: limits.max_rdma_read_per_ep_out.min(shape.reads),
        max_recv_iov: shape.segments,
        max_request_iov: shape.segments,
        max_rdma_read_iov: shape.segments,
        max_rdma_write_iov: shape.segments,
        ..adapter.endpoint_attributes(shape.receives, shape.sends)
    }
}

/// A service point and the queue of its connection requests.
pub(crate) struct Acceptor {
    _point: ServicePoint,
    requests: EventDispatcher,
}

/// One side's endpoint, event dispatchers and memory.
pub(crate) struct RustEnd<const SHARED: bool> {
    // Dropped in this order: the memory after all objects that write to it.
    endpoint: Endpoint,
    /// There if `SHARED`.
    srq: Option<SharedReceiveQueue>,
    sent: EventDispatcher,
    received: EventDispatcher,
    connections: EventDispatcher,
    memory: Memory,
    has_atomics: bool,
    events: [Event; BATCH],
}

impl<const SHARED: bool> RustEnd<SHARED> {
    /// Returns the dispatcher of receives.
    pub(crate) fn received(&self) -> &EventDispatcher {
        &self.received
    }

    #[inline(always)]
    fn queue(&self, queue: Queue) -> &EventDispatcher {
        match queue {
            Queue::Sent => &self.sent,
            Queue::Received => &self.received,
        }
    }
}

/// Returns a list of messages in these bytes. Making it is a part of what is measured.
#[inline(always)]
fn list(memory: &Memory, range: Range<usize>) -> [Message<'_>; LIST] {
    core::array::from_fn(|cookie| Message {
        segment: memory.segment(range.clone()),
        cookie: cookie as u64,
    })
}

/// Returns segments of these pieces. Making them is a part of what is measured.
#[inline(always)]
fn segments<'m>(memory: &'m Memory, pieces: &[Range<usize>]) -> SmallVec<[Segment<'m>; 32]> {
    let segment = |piece: &Range<usize>| memory.segment(piece.clone());
    pieces.iter().map(segment).collect()
}

/// Posts a request of these segments.
#[inline(always)]
fn post(
    endpoint: &mut Endpoint,
    op: Op,
    segments: &[Segment<'_>],
    remote: RemoteSegment,
    cookie: u64,
    flags: Flags,
) -> Result<(), Fault> {
    let flags = completion(flags.signaled);
    let posted = match op {
        Op::Send => endpoint.post_send(segments, cookie, flags),
        Op::Write => endpoint.post_rdma_write(segments, cookie, remote, flags),
        Op::Read => endpoint.post_rdma_read(segments, cookie, remote, flags),
        Op::Atomic(op) => endpoint.post_atomic(op, segments[0], cookie, remote, flags),
        Op::WriteImmediate(data) => {
            endpoint.post_rdma_write_immed(segments, cookie, remote, data, flags)
        }
    };
    posted.map_err(Fault::Refused)
}

#[inline(always)]
fn completion(signaled: bool) -> CompletionFlags {
    if signaled {
        CompletionFlags::empty()
    } else {
        CompletionFlags::SUPPRESS
    }
}

impl<const SHARED: bool> End for RustEnd<SHARED> {
    const LISTS: bool = true;
    const BATCHES: bool = true;
    const WAITS: bool = true;
    const DESCRIPTORS: bool = true;

    type Request = RemoteSegment;
    type Receive = ();

    fn memory(&self) -> NonNull<u8> {
        NonNull::new(self.memory.as_ptr()).expect("mapped memory is not at address 0")
    }

    fn exposed_buffer(&self) -> RemoteSegment {
        self.memory.remote(0..self.memory.len())
    }

    fn request_of(&self, _: Op, _: &[Range<usize>], remote: RemoteSegment) -> RemoteSegment {
        remote
    }

    fn receive_of(&self, _: &[Range<usize>]) {}

    #[inline(always)]
    fn post(
        &mut self,
        op: Op,
        local: Range<usize>,
        remote: &mut RemoteSegment,
        cookie: u64,
        flags: Flags,
    ) -> Result<(), Fault> {
        let segments = [self.memory.segment(local)];
        post(&mut self.endpoint, op, &segments, *remote, cookie, flags)
    }

    #[inline(always)]
    fn post_of(
        &mut self,
        op: Op,
        local: &[Range<usize>],
        remote: &mut RemoteSegment,
        flags: Flags,
    ) -> Result<(), Fault> {
        let segments = segments(&self.memory, local);
        post(&mut self.endpoint, op, &segments, *remote, 0, flags)
    }

    #[inline(always)]
    fn post_receive(&mut self, into: Range<usize>, (): &mut (), cookie: u64) -> Result<(), Fault> {
        let segment = [self.memory.segment(into)];
        let posted = match &self.srq {
            Some(srq) if SHARED => srq.post_recv(&segment, cookie),
            _ => self
                .endpoint
                .post_recv(&segment, cookie, CompletionFlags::empty()),
        };
        posted.map_err(Fault::Refused)
    }

    #[inline(always)]
    fn post_receive_of(&mut self, into: &[Range<usize>], (): &mut ()) -> Result<(), Fault> {
        let segments = segments(&self.memory, into);
        let posted = match &self.srq {
            Some(srq) if SHARED => srq.post_recv(&segments, 0),
            _ => self
                .endpoint
                .post_recv(&segments, 0, CompletionFlags::empty()),
        };
        posted.map_err(Fault::Refused)
    }

    #[inline(always)]
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let posted = self.endpoint.post_send(&[], 0, completion(signaled));
        posted.map_err(Fault::Refused)
    }

    #[inline(always)]
    fn receive_list(&mut self, into: Range<usize>) -> Result<(), Fault> {
        let receives = list(&self.memory, into);
        match &self.srq {
            Some(srq) if SHARED => listed(srq.post_recv_list(&receives)),
            _ => listed(self.endpoint.post_recv_list(&receives)),
        }
    }

    #[inline(always)]
    fn send_list(&mut self, from: Range<usize>, _: bool) -> Result<(), Fault> {
        listed(self.endpoint.post_send_list(&list(&self.memory, from)))
    }

    #[inline(always)]
    fn poll(&mut self, queue: Queue) -> Polled {
        match self.queue(queue).dequeue() {
            Ok(None) => None,
            Ok(Some(event)) => Some(done(&event, 0)),
            Err(code) => Some(Err(Fault::Call("EventDispatcher::dequeue", code))),
        }
    }

    #[inline(always)]
    fn poll_batch(&mut self, queue: Queue, mut each: impl FnMut(Done)) -> Result<usize, Fault> {
        let queue = match queue {
            Queue::Sent => &self.sent,
            Queue::Received => &self.received,
        };
        let taken = queue
            .drain(&mut self.events)
            .map_err(|code| Fault::Call("EventDispatcher::drain", code))?;
        for event in &self.events[..taken] {
            each(done(event, 0)?);
        }
        Ok(taken)
    }

    #[inline(always)]
    fn poll_extended(&mut self, queue: Queue) -> Polled {
        match self.queue(queue).dequeue() {
            Ok(Some(event)) => Some(match event.data {
                EventData::ExtendedDto {
                    status: DtoStatus::Success,
                    length,
                    cookie,
                    immediate,
                    ..
                } => Ok(Done {
                    cookie,
                    length,
                    immediate,
                    endpoint: 0,
                    more: 0,
                }),
                EventData::ExtendedDto { status, .. } => Err(Fault::Dto(status)),
                _ => done(&event, 0),
            }),
            Ok(None) => None,
            Err(code) => Some(Err(Fault::Call("EventDispatcher::dequeue", code))),
        }
    }

    #[inline(always)]
    fn wait(&mut self, queue: Queue, threshold: u8, timeout: Option<Duration>) -> Polled {
        match self.queue(queue).wait_for(threshold.into(), timeout) {
            Ok(waited) => Some(done(&waited.event, waited.more)),
            Err(code) if code.is(ReturnType::TimeoutExpired) => None,
            Err(code) if code.is(ReturnType::InterruptedCall) => None,
            Err(code) => Some(Err(Fault::Call("EventDispatcher::wait_for", code))),
        }
    }

    #[inline(always)]
    fn wait_readable(&mut self, queue: Queue) -> Polled {
        let queue = self.queue(queue);
        loop {
            if queue.arm().is_err() {
                return Some(Err(Fault::NoSuchCall));
            }
            match queue.dequeue() {
                Ok(None) => {}
                Ok(Some(event)) => return Some(done(&event, 0)),
                Err(code) => return Some(Err(Fault::Call("EventDispatcher::dequeue", code))),
            }
            let mut entry = libc::pollfd {
                fd: queue.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry, of a descriptor that lives as long as the dispatcher.
            unsafe { libc::poll(&raw mut entry, 1, -1) };
        }
    }

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    fn data_in_order(&self) -> DataInOrder {
        self.endpoint.data_in_order()
    }
}

#[inline(always)]
fn done(event: &Event, more: u32) -> Result<Done, Fault> {
    match event.data {
        EventData::Dto {
            status: DtoStatus::Success,
            length,
            cookie,
            ..
        } => Ok(Done {
            cookie,
            length,
            immediate: 0,
            endpoint: 0,
            more,
        }),
        EventData::Dto { status, .. } => Err(Fault::Dto(status)),
        _ => Err(Fault::Event(0)),
    }
}

/// Waits for a control event. `what` is its name in error messages.
fn await_event(queue: &EventDispatcher, within: Duration, what: &str) -> Result<Event, Failure> {
    let end = Instant::now() + within;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match queue.wait(Some(left)) {
            Ok(event) => return Ok(event),
            Err(code) if code.is(ReturnType::InterruptedCall) => {}
            Err(code) if code.is(ReturnType::TimeoutExpired) => {
                return Err(Failure::timed_out(what, within));
            }
            Err(code) => return Err(Failure::run(format!("waiting for {what}: {code}"))),
        }
    }
}

/// Converts the result of a post of a list.
#[inline(always)]
fn listed(posted: Result<(), ListError>) -> Result<(), Fault> {
    posted.map_err(|error| Fault::Refused(error.refusal))
}
