//! One side of a test: its endpoint, memory, and waits.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_api::object::ia::IaAttributes;
use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, RemoteSegment,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EpAttributes, EvdFlags, Event, EventData,
    MemPrivileges,
};
use dat_api::{DatReturn, ReturnType};

use super::Result;
use super::failure::{Attempt, Failure, Sides};

/// The most bytes of a transfer.
pub(super) const LARGEST: usize = 64 << 10;
/// Receives that are posted at a time; one message is in flight.
const RECEIVES: usize = 2;
/// The cookie of requests; those of receives are below.
const REQUEST: u64 = 1 << 32;
/// Identifies the protocol, in the private data of both sides.
const MAGIC: [u8; 8] = *b"datchk 1";
/// How long a wait may last before it looks whether the test has been stopped.
const SLICE: Duration = Duration::from_millis(50);
/// How long a side waits for the end of the connection.
const PARTING: Duration = Duration::from_secs(2);

/// The areas of a side's memory, [`LARGEST`] bytes each, after those of the receives.
#[derive(Clone, Copy)]
pub(super) enum Area {
    /// Messages are sent, and RDMA writes begin, here.
    Out = RECEIVES as isize,
    /// The peer writes here.
    Written,
    /// The peer reads here.
    Read,
    /// RDMA reads of the peer's memory end here.
    Sink,
}

const AREAS: usize = RECEIVES + 4;

impl Area {
    pub(super) fn range(self, bytes: usize) -> Range<usize> {
        let start = self as usize * LARGEST;
        start..start + bytes
    }
}

/// What a side knows of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// The peer's memory.
    memory: RemoteSegment,
    /// Whether the peer serves and issues RDMA reads.
    reads: bool,
}

impl Peer {
    /// Returns an area of the peer's memory.
    pub(super) fn area(&self, area: Area, bytes: usize) -> RemoteSegment {
        let range = area.range(bytes);
        RemoteSegment {
            address: self.memory.address + range.start as u64,
            length: bytes as u64,
            ..self.memory
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.memory.address.to_le_bytes());
        bytes.extend(self.memory.context.to_le_bytes());
        bytes.push(u8::from(self.reads));
        bytes
    }

    /// Parses the private data; `None` if they are those of another program.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let address = u64::from_le_bytes(*rest.first_chunk()?);
        let context = u32::from_le_bytes(*rest.get(8..)?.first_chunk()?);
        Some(Self {
            memory: RemoteSegment {
                context,
                address,
                length: (AREAS * LARGEST) as u64,
            },
            reads: *rest.get(12)? == 1,
        })
    }
}

pub(super) struct Side {
    // The endpoint is dropped before the memory that it may write.
    pub(super) endpoint: Endpoint,
    pub(super) memory: Memory,
    transfers: EventDispatcher,
    connections: EventDispatcher,
    deadline: Instant,
    pub(super) sides: Sides,
    manager: String,
    /// The fabric of emulated devices.
    fabric: Option<String>,
    reads: bool,
    /// Completed requests that were not waited for yet.
    completed: usize,
    /// Receives whose messages were not taken yet, with their lengths.
    arrived: VecDeque<(u64, usize)>,
}

impl Side {
    /// Creates an unconnected side whose receives are posted.
    pub(super) fn new(adapter: &Adapter, sides: Sides, deadline: Instant) -> Result<Self> {
        let zone = adapter.zone()?;
        let memory = zone.memory(AREAS * LARGEST, MemPrivileges::all())?;
        let transfers = adapter.dispatcher(32, EvdFlags::DTO)?;
        let connections = adapter.dispatcher(16, EvdFlags::CONNECTION | EvdFlags::CR)?;
        let info = adapter.query();
        let endpoint = zone.endpoint(&EndpointOptions {
            connect: Some(&connections),
            attributes: Some(attributes(&info.ia)),
            ..EndpointOptions::new(&transfers)
        })?;
        let provider = info.provider.provider_specific_attributes;
        let manager = provider.into_iter().find(|one| one.name == "cm");
        let mut side = Self {
            endpoint,
            memory,
            transfers,
            connections,
            deadline,
            sides,
            manager: manager.map_or_else(String::new, |one| one.value),
            fabric: crate::system::emulated_fabric(),
            reads: serves_reads(&info.ia),
            completed: 0,
            arrived: VecDeque::new(),
        };
        for slot in 0..RECEIVES {
            side.post_receive(slot as u64)?;
        }
        Ok(side)
    }

    pub(super) fn connections(&self) -> &EventDispatcher {
        &self.connections
    }

    /// Returns the time that is left.
    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns whether both sides serve and issue RDMA reads.
    pub(super) fn both_read(&self, peer: &Peer) -> bool {
        self.reads && peer.reads
    }

    fn announced(&self) -> Vec<u8> {
        let peer = Peer {
            memory: self.memory.remote(0..AREAS * LARGEST),
            reads: self.reads,
        };
        peer.to_bytes()
    }

    /// Connects to the service point of a host.
    pub(super) fn connect(&mut self, address: SocketAddr, qualifier: u64) -> Result<Peer> {
        let to = format!("{}, qualifier {qualifier},", address.ip());
        let announced = self.announced();
        let limit = Some(self.remaining());
        self.endpoint
            .connect(address, qualifier, limit, &announced)?;
        self.await_established(&to)?;
        Peer::of_bytes(&self.endpoint.private_data())
            .ok_or_else(|| Failure::of_event(ConnectionKind::PeerRejected, &self.attempt(&to)))
    }

    fn attempt<'a>(&'a self, to: &'a str) -> Attempt<'a> {
        Attempt {
            to,
            manager: &self.manager,
            fabric: self.fabric.as_deref(),
            sides: self.sides,
        }
    }

    /// Accepts the first request of a dat-check; rejects all others.
    pub(super) fn accept(&mut self, stop: &AtomicBool) -> Result<Peer> {
        let announced = self.announced();
        let mut rejected = 0;
        loop {
            let late = || Failure::no_request(&self.attempt(""), rejected);
            let event = self.await_connection(Some(stop), late)?;
            let Some(mut request) = ConnectionRequest::from_event(&event) else {
                continue;
            };
            let Some(peer) = Peer::of_bytes(&request.private_data()) else {
                request.reject();
                rejected += 1;
                continue;
            };
            request.accept(&mut self.endpoint, &announced)?;
            self.await_established("the peer")?;
            return Ok(peer);
        }
    }

    fn await_established(&self, to: &str) -> Result<()> {
        let late = || {
            let waiting_for = format!("the connection to {to} to be established");
            Failure::late(self.sides, &waiting_for)
        };
        loop {
            match self.await_connection(None, late)?.data {
                EventData::Connection {
                    kind: ConnectionKind::Established,
                    ..
                } => return Ok(()),
                EventData::Connection { kind, .. } => {
                    return Err(Failure::of_event(kind, &self.attempt(to)));
                }
                // A second client, which is rejected when its request is dropped.
                _ => {}
            }
        }
    }

    /// Waits for a connection event; `late` is the failure at the time limit.
    fn await_connection(
        &self,
        stop: Option<&AtomicBool>,
        late: impl FnOnce() -> Failure,
    ) -> Result<Event> {
        loop {
            let remaining = self.remaining();
            let slice = stop.map_or(remaining, |_| remaining.min(SLICE));
            match self.connections.wait(Some(slice)) {
                Ok(event) => return Ok(event),
                Err(code) if is_retried(code) && !remaining.is_zero() => {}
                Err(code) if is_retried(code) => return Err(late()),
                Err(code) => return Err(Failure::of_call("wait for a connection", code)),
            }
            if stop.is_some_and(|stop| stop.load(Ordering::Acquire)) {
                return Err(Failure::ended(self.sides));
            }
        }
    }

    /// Waits until a request has completed.
    pub(super) fn await_request(&mut self) -> Result<()> {
        while self.completed == 0 {
            self.take_completion("the completion of a request")?;
        }
        self.completed -= 1;
        Ok(())
    }

    /// Waits for a message, and returns its bytes. Its receive is posted again.
    pub(super) fn await_message(&mut self) -> Result<Vec<u8>> {
        let (slot, length) = loop {
            if let Some(first) = self.arrived.pop_front() {
                break first;
            }
            self.take_completion(match self.sides {
                Sides::OneProcess => "a message",
                Sides::TwoProcesses => "a message of the other side",
            })?;
        };
        let mut bytes = vec![0; length.min(LARGEST)];
        self.memory.read(receive_range(slot).start, &mut bytes);
        self.post_receive(slot)?;
        Ok(bytes)
    }

    fn post_receive(&mut self, slot: u64) -> Result<()> {
        let segment = self.memory.segment(receive_range(slot));
        let flags = CompletionFlags::empty();
        let posted = self.endpoint.post_recv(&[segment], slot, flags);
        posted.map_err(|refusal| Failure::of_call("post a receive", refusal))
    }

    fn take_completion(&mut self, waiting_for: &str) -> Result<()> {
        let remaining = self.remaining();
        let event = match self.transfers.wait(Some(remaining)) {
            Ok(event) => event,
            Err(code) if is_retried(code) && !remaining.is_zero() => return Ok(()),
            Err(code) if is_retried(code) => return Err(Failure::late(self.sides, waiting_for)),
            Err(code) => return Err(Failure::of_call("wait for a completion", code)),
        };
        match event.data {
            EventData::Dto {
                status: DtoStatus::Success,
                cookie: REQUEST,
                ..
            } => self.completed += 1,
            EventData::Dto {
                status: DtoStatus::Success,
                cookie,
                length,
                ..
            } => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                self.arrived.push_back((cookie, length));
            }
            EventData::Dto { status, .. } => {
                return Err(Failure::of_completion(self.sides, status));
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the connection, and waits a moment for the peer.
    pub(super) fn disconnect(&mut self) {
        // The test is complete; only the peer's waiting depends on this.
        if self.endpoint.disconnect(true).is_ok() {
            self.await_disconnect();
        }
    }

    /// Waits a moment for the end of the connection.
    pub(super) fn await_disconnect(&self) {
        let _ = self.connections.wait(Some(PARTING));
    }

    /// Posts a request of one segment, and waits for its completion.
    pub(super) fn complete(&mut self, doing: &str, request: Request) -> Result<()> {
        let flags = CompletionFlags::empty();
        let segment = self.memory.segment(request.local());
        let posted = match request {
            Request::Send { .. } => self.endpoint.post_send(&[segment], REQUEST, flags),
            Request::Write { remote, .. } => {
                self.endpoint
                    .post_rdma_write(&[segment], REQUEST, remote, flags)
            }
            Request::Read { remote, .. } => {
                self.endpoint
                    .post_rdma_read(&[segment], REQUEST, remote, flags)
            }
        };
        posted.map_err(|refusal| Failure::of_call(doing, refusal))?;
        self.await_request()
    }
}

/// A request of one segment.
#[derive(Clone, Copy)]
pub(super) enum Request {
    Send { bytes: usize },
    Write { bytes: usize, remote: RemoteSegment },
    Read { bytes: usize, remote: RemoteSegment },
}

impl Request {
    fn local(self) -> Range<usize> {
        match self {
            Self::Send { bytes } | Self::Write { bytes, .. } => Area::Out.range(bytes),
            Self::Read { bytes, .. } => Area::Sink.range(bytes),
        }
    }
}

fn receive_range(slot: u64) -> Range<usize> {
    let start = usize::try_from(slot).unwrap_or(0) * LARGEST;
    start..start + LARGEST
}

/// Returns whether a wait ended without an event and without an error.
fn is_retried(code: DatReturn) -> bool {
    code.is(ReturnType::TimeoutExpired) || code.is(ReturnType::InterruptedCall)
}

fn serves_reads(limits: &IaAttributes) -> bool {
    limits.max_rdma_read_per_ep_in > 0 && limits.max_rdma_read_per_ep_out > 0
}

/// Returns the attributes of an endpoint that has one request of each kind outstanding.
fn attributes(limits: &IaAttributes) -> EpAttributes {
    const UNLIMITED: i32 = -1;
    EpAttributes {
        service_type: 0,
        max_message_size: limits.max_message_size,
        max_rdma_size: limits.max_rdma_size,
        qos: 0,
        recv_completion_flags: CompletionFlags::empty(),
        request_completion_flags: CompletionFlags::empty(),
        max_recv_dtos: RECEIVES as i32,
        max_request_dtos: 4,
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_in: limits.max_rdma_read_per_ep_in.min(1),
        max_rdma_read_out: limits.max_rdma_read_per_ep_out.min(1),
        srq_soft_hw: UNLIMITED,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_of_another_program_are_not_accepted() {
        let peer = Peer {
            memory: RemoteSegment {
                context: 7,
                address: 0x7000_0000_1000,
                length: (AREAS * LARGEST) as u64,
            },
            reads: true,
        };
        let bytes = peer.to_bytes();
        assert_eq!(Peer::of_bytes(&bytes), Some(peer));
        // rdma_cm adds zeroes up to its own length.
        let padded = [&bytes[..], &[0; 30]].concat();
        assert_eq!(Peer::of_bytes(&padded), Some(peer));
        assert!(bytes.len() <= 56, "the room that rdma_cm has");
        for wrong in [&bytes[1..], &bytes[..20], b"", b"GET / HTTP/1.1"] {
            assert_eq!(Peer::of_bytes(wrong), None);
        }
    }

    #[test]
    fn areas_do_not_overlap() {
        let mut ends = vec![receive_range(RECEIVES as u64 - 1).end];
        for area in [Area::Out, Area::Written, Area::Read, Area::Sink] {
            let range = area.range(LARGEST);
            assert_eq!(Some(&range.start), ends.last());
            ends.push(range.end);
        }
        assert_eq!(ends.last(), Some(&(AREAS * LARGEST)));
    }
}
