//! DAT's Rust types as a measured interface.
//!
//! Each request creates its `Segment` again, as programs do, so its bounds check
//! is part of the measurement.

use std::net::SocketAddr;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, ProtectionZone,
    RemoteSegment, ServicePoint,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EpAttributes, EvdFlags, Event, EventData,
    MemPrivileges,
};
use dat_api::{DatError, DatReturn, ReturnType};
use dat_engine::DataInOrder;

use super::dat::{
    Acceptor, Answer, Dat, DatEnd, WAIT_SLICE, incoming, local, local_grant, remote, remote_grant,
};
use super::device_port::DevicePort;
use super::link::{CompletionResult, End, Fault, Link};
use super::payload::{self, Payload};
use super::setup::Setup;
use crate::cli::Operation;
use crate::failure::Failure;

/// An open adapter. `WAITS`: events are taken by `wait`, else by `next`.
pub(crate) struct RustInterface<const WAITS: bool> {
    adapter: Adapter,
    zone: ProtectionZone,
}

impl<const WAITS: bool> RustInterface<WAITS> {
    pub(crate) fn open(device_port: &DevicePort) -> Result<Self, Failure> {
        let adapter = Adapter::open(&device_port.adapter_name()).map_err(call_failed)?;
        Ok(Self {
            zone: adapter.zone().map_err(call_failed)?,
            adapter,
        })
    }
}

impl<const WAITS: bool> Dat for RustInterface<WAITS> {
    type End = RustEnd<WAITS>;
    type Acceptor = RustAcceptor;

    fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.adapter.address())
    }

    fn end(&self, setup: &Setup) -> Result<RustEnd<WAITS>, Failure> {
        let largest = setup.largest;
        let bytes = payload::bytes(largest);
        let memory = self
            .zone
            .memory(bytes, MemPrivileges::all())
            .map_err(call_failed)?;
        let base = NonNull::new(memory.as_ptr()).expect("mapped memory is not at address 0");
        // SAFETY: the memory has that length and outlives the payload (order of
        // fields), and `Memory` forms no references to it.
        let payload = unsafe { Payload::new(base, setup.operation, largest) };
        let queue = |length, streams| {
            self.adapter
                .dispatcher(length, streams)
                .map_err(call_failed)
        };
        let received = queue(setup.receives.max(1), EvdFlags::DTO)?;
        let sent = queue(setup.tx_depth, EvdFlags::DTO)?;
        let connections = queue(CONNECTION_EVENTS, EvdFlags::CONNECTION)?;
        let endpoint = self
            .zone
            .endpoint(&EndpointOptions {
                recv: Some(&received),
                request: Some(&sent),
                connect: Some(&connections),
                shared: None,
                attributes: Some(attributes(&self.adapter, setup)),
            })
            .map_err(call_failed)?;
        let mut end = RustEnd {
            operation: setup.operation,
            size: largest as usize,
            theirs: RemoteSegment::default(),
            target: RemoteSegment::default(),
            endpoint,
            sent,
            received,
            connections,
            payload,
            memory,
        };
        for _ in 0..setup.receives {
            end.post_receive()
                .map_err(|fault| Failure::run(fault.to_string()))?;
        }
        Ok(end)
    }

    fn listen(&self) -> Result<RustAcceptor, Failure> {
        let requests = self
            .adapter
            .dispatcher(CONNECTION_EVENTS, EvdFlags::CR)
            .map_err(call_failed)?;
        let point = self.adapter.listen_any(&requests).map_err(call_failed)?;
        Ok(RustAcceptor { point, requests })
    }
}

/// Length of the queues of connection events.
const CONNECTION_EVENTS: u32 = 8;

/// Returns endpoint attributes with the depths of the run, one segment, and as
/// many RDMA reads in flight as the run needs, if the device has reads.
fn attributes(adapter: &Adapter, setup: &Setup) -> EpAttributes {
    let limits = adapter.query().ia;
    let count = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    EpAttributes {
        service_type: 0,
        max_message_size: limits.max_message_size,
        max_rdma_size: limits.max_rdma_size,
        qos: 0,
        recv_completion_flags: CompletionFlags::empty(),
        request_completion_flags: CompletionFlags::empty(),
        max_recv_dtos: count(setup.receives.max(1)),
        max_request_dtos: count(setup.tx_depth),
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_in: limits.max_rdma_read_per_ep_in.min(setup.reads),
        max_rdma_read_out: limits.max_rdma_read_per_ep_out.min(setup.reads),
        srq_soft_hw: 0,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
    }
}

#[inline(always)]
fn flags(signaled: bool) -> CompletionFlags {
    if signaled {
        CompletionFlags::empty()
    } else {
        CompletionFlags::SUPPRESS
    }
}

/// One side's endpoint, event dispatchers and memory.
pub(crate) struct RustEnd<const WAITS: bool> {
    // Dropped in this order: the memory after all objects that write to it.
    endpoint: Endpoint,
    sent: EventDispatcher,
    received: EventDispatcher,
    connections: EventDispatcher,
    payload: Payload,
    memory: Memory,
    operation: Operation,
    size: usize,
    /// The whole buffer of the other side, and the part that requests use.
    theirs: RemoteSegment,
    target: RemoteSegment,
}

impl<const WAITS: bool> DatEnd for RustEnd<WAITS> {
    fn exposed_buffer(&self) -> RemoteSegment {
        self.memory.remote(0..self.memory.len())
    }

    fn set_remote_buffer(&mut self, theirs: RemoteSegment) {
        self.theirs = theirs;
    }

    fn connect(
        &mut self,
        to: SocketAddr,
        qualifier: u64,
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure> {
        self.endpoint
            .connect(to, qualifier, Some(within), private_data)
            .map_err(call_failed)
    }

    fn established(&mut self, within: Duration) -> Result<Vec<u8>, Failure> {
        let event = await_event(&self.connections, within, "a DAT connection")?;
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

impl<const WAITS: bool> End for RustEnd<WAITS> {
    fn set_request_size(&mut self, size: u32) {
        let range = local(&self.payload, size);
        self.size = range.len();
        self.target = remote(&self.payload, self.theirs, size);
    }

    fn payload(&mut self) -> &mut Payload {
        &mut self.payload
    }

    fn data_in_order(&self) -> DataInOrder {
        self.endpoint.data_in_order()
    }
}

impl<const WAITS: bool> Link for RustEnd<WAITS> {
    #[inline(always)]
    fn post_receive(&mut self) -> Result<(), Fault> {
        let segment = self.memory.segment(incoming(&self.payload));
        self.endpoint
            .post_recv(&[segment], 0, CompletionFlags::empty())
            .map_err(Fault::Refused)
    }

    #[inline(always)]
    fn post(&mut self, signaled: bool) -> Result<(), Fault> {
        let flags = flags(signaled);
        let start = self.payload.local_offset();
        let segments = [self.memory.segment(start..start + self.size)];
        let (endpoint, target) = (&mut self.endpoint, self.target);
        let posted = match self.operation {
            Operation::Send => endpoint.post_send(&segments, 0, flags),
            Operation::Write => endpoint.post_rdma_write(&segments, 0, target, flags),
            Operation::Read => endpoint.post_rdma_read(&segments, 0, target, flags),
        };
        posted.map_err(Fault::Refused)
    }

    #[inline(always)]
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        self.endpoint
            .post_send(&[], 0, flags(signaled))
            .map_err(Fault::Refused)
    }

    #[inline(always)]
    fn post_grant(&mut self, received: u32) -> Result<(), Fault> {
        self.payload.write_grant(received);
        let segments = [self.memory.segment(local_grant(&self.payload))];
        let target = remote_grant(&self.payload, self.theirs);
        self.endpoint
            .post_rdma_write(&segments, 0, target, CompletionFlags::empty())
            .map_err(Fault::Refused)
    }

    #[inline(always)]
    fn granted(&self) -> Option<u32> {
        self.payload.read_grant()
    }

    #[inline(always)]
    fn poll_sent(&mut self) -> Option<CompletionResult> {
        polled(&self.sent)
    }

    #[inline(always)]
    fn poll_received(&mut self) -> Option<CompletionResult> {
        polled(&self.received)
    }

    #[inline(always)]
    fn await_sent(&mut self) -> Option<CompletionResult> {
        if WAITS {
            waited(&self.sent)
        } else {
            polled(&self.sent)
        }
    }

    #[inline(always)]
    fn await_received(&mut self) -> Option<CompletionResult> {
        if WAITS {
            waited(&self.received)
        } else {
            polled(&self.received)
        }
    }

    #[inline(always)]
    fn write_sequence(&mut self, sequence: u8) {
        self.payload.write_sequence(sequence);
    }

    #[inline(always)]
    fn read_sequence(&self) -> u8 {
        self.payload.read_sequence()
    }
}

#[inline(always)]
fn polled(queue: &EventDispatcher) -> Option<CompletionResult> {
    match queue.next() {
        Ok(None) => None,
        Ok(Some(event)) => Some(done(&event)),
        Err(code) => Some(Err(Fault::Call("EventDispatcher::next", code))),
    }
}

#[inline(always)]
fn waited(queue: &EventDispatcher) -> Option<CompletionResult> {
    match queue.wait(Some(WAIT_SLICE)) {
        Ok(event) => Some(done(&event)),
        Err(code) if is_nothing(code) => None,
        Err(code) => Some(Err(Fault::Call("EventDispatcher::wait", code))),
    }
}

#[inline(always)]
fn done(event: &Event) -> CompletionResult {
    match event.data {
        EventData::Dto {
            status: DtoStatus::Success,
            length,
            ..
        } => Ok(length as u32),
        EventData::Dto { status, .. } => Err(Fault::Dto(status)),
        _ => Err(Fault::Event(0)),
    }
}

/// Returns whether a wait ended by its timeout or a signal.
fn is_nothing(code: DatReturn) -> bool {
    matches!(
        code.kind(),
        Some(ReturnType::TimeoutExpired | ReturnType::InterruptedCall)
    )
}

/// A service point and the queue of its connection requests.
pub(crate) struct RustAcceptor {
    point: ServicePoint,
    requests: EventDispatcher,
}

impl<const WAITS: bool> Acceptor<RustEnd<WAITS>> for RustAcceptor {
    fn qualifier(&self) -> u64 {
        self.point.qualifier()
    }

    fn accept(
        self,
        end: &mut RustEnd<WAITS>,
        within: Duration,
        answer: Answer<'_, RustEnd<WAITS>>,
    ) -> Result<(), Failure> {
        let event = await_event(&self.requests, within, "a DAT connection request")?;
        let mut request = ConnectionRequest::from_event(&event).ok_or_else(|| {
            Failure::run(format!(
                "event {:?} instead of a connection request",
                event.data
            ))
        })?;
        let ours = answer(end, &request.private_data())?;
        request
            .accept(&mut end.endpoint, &ours)
            .map_err(call_failed)
    }
}

/// Waits for a control event. `what` is its name in error messages.
fn await_event(queue: &EventDispatcher, within: Duration, what: &str) -> Result<Event, Failure> {
    let end = Instant::now() + within;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match queue.wait(Some(left)) {
            Ok(event) => return Ok(event),
            Err(code) if code.kind() == Some(ReturnType::InterruptedCall) => {}
            Err(code) if is_nothing(code) => return Err(Failure::timed_out(what, within)),
            Err(code) => return Err(Failure::run(format!("waiting for {what}: {code}"))),
        }
    }
}

/// Converts the failure of a control call.
fn call_failed(error: DatError) -> Failure {
    Failure::environment(format!("a DAT call failed: {error}"))
}
