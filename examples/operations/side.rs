//! One side: its endpoint, its memory, and its waits.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, Memory, RemoteSegment,
};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, Event, EventData, MemPrivileges,
};
use dat_api::{DatError, Refusal, ReturnType};

use super::rounds::Wrong;

/// The most bytes of a transfer.
pub(crate) const LARGEST: usize = 64 << 10;
/// Receives that are posted at a time. The peer has at most two messages in flight: its answer, and
/// the first message of the next round.
const RECEIVES: usize = 2;
/// The cookie of requests; those of receives are below.
const REQUEST: u64 = 1 << 32;
/// Identifies the protocol, in the private data of both sides.
const MAGIC: [u8; 8] = *b"datchk 2";
/// How long a side waits for the end of the connection.
const PARTING: Duration = Duration::from_secs(2);

/// Why a side has ended.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A control call was refused.
    Refused(DatError),
    /// A post or a wait failed.
    Call(&'static str, DatError),
    /// The time limit has passed.
    Late(Awaited),
    /// The connection was not made, or has ended.
    Connection(ConnectionKind),
    /// A transfer failed.
    Transfer(DtoStatus),
    /// Other bytes arrived than were sent.
    Wrong(Wrong),
    /// A message arrived that this program does not send.
    Unexpected,
}

/// What a side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A connection request of this program. `rejected` counts those of other programs.
    Request {
        rejected: usize,
    },
    Established,
    Completion,
    Message,
}

pub(crate) type Result<T> = core::result::Result<T, Failure>;

impl From<DatError> for Failure {
    fn from(error: DatError) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Call(what, error) => write!(f, "cannot {what}: {error}"),
            Self::Late(awaited) => write!(f, "the time limit has passed: {awaited:?}"),
            Self::Connection(kind) => write!(f, "the connection has ended: {kind:?}"),
            Self::Transfer(status) => write!(f, "a transfer failed: {status}"),
            Self::Wrong(wrong) => wrong.fmt(f),
            Self::Unexpected => f.write_str("the peer has sent a message of another program"),
        }
    }
}

impl std::error::Error for Failure {}

/// The areas of a side's memory, [`LARGEST`] bytes each, after those of the receives.
#[derive(Clone, Copy)]
pub(crate) enum Area {
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
    fn range(self, bytes: usize) -> Range<usize> {
        let start = self as usize * LARGEST;
        start..start + bytes
    }
}

fn receive_range(slot: u64) -> Range<usize> {
    let start = slot as usize * LARGEST;
    start..start + LARGEST
}

/// What a side tells its peer, in the private data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Peer {
    memory: RemoteSegment,
    /// It serves and issues RDMA reads.
    reads: bool,
}

impl Peer {
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
        Some(Self {
            memory: RemoteSegment {
                address: u64::from_le_bytes(*rest.first_chunk()?),
                context: u32::from_le_bytes(*rest.get(8..)?.first_chunk()?),
                length: (AREAS * LARGEST) as u64,
            },
            reads: *rest.get(12)? == 1,
        })
    }
}

/// A request of one segment: where it begins or ends here, and at the peer.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    Send,
    /// From [`Area::Out`] to [`Area::Written`].
    Write,
    /// From [`Area::Read`] to [`Area::Sink`].
    Read,
}

pub(crate) struct Side {
    // The endpoint is dropped before the memory that it may write.
    endpoint: Endpoint,
    memory: Memory,
    transfers: EventDispatcher,
    connections: EventDispatcher,
    deadline: Instant,
    own: Peer,
    peer: Peer,
    is_active: bool,
    /// The request that was posted last has completed.
    is_complete: bool,
    /// Receives whose messages were not taken yet, with their lengths.
    arrived: VecDeque<(u64, usize)>,
}

impl Side {
    /// Creates an unconnected side whose receives are posted.
    pub(crate) fn new(adapter: &Adapter, deadline: Instant) -> Result<Self> {
        let zone = adapter.create_zone()?;
        let memory = zone.allocate(AREAS * LARGEST, MemPrivileges::all())?;
        // Separate EVDs: events of different streams have no order.
        let transfers = adapter.create_dispatcher(32, EvdFlags::DTO)?;
        let connections = adapter.create_dispatcher(16, EvdFlags::CONNECTION | EvdFlags::CR)?;
        let attributes = adapter.endpoint_attributes(RECEIVES as u32, 4);
        let options = EndpointOptions::new(&transfers)
            .connect_events(&connections)
            .attributes(attributes);
        let endpoint = zone.create_endpoint(&options)?;
        let own = Peer {
            memory: memory.remote(0..AREAS * LARGEST),
            reads: attributes.max_rdma_read_in > 0 && attributes.max_rdma_read_out > 0,
        };
        let mut side = Self {
            endpoint,
            memory,
            transfers,
            connections,
            deadline,
            own,
            peer: Peer::default(),
            is_active: false,
            is_complete: false,
            arrived: VecDeque::new(),
        };
        // Posted before the peer can send.
        for slot in 0..RECEIVES {
            side.post_receive(slot as u64)?;
        }
        Ok(side)
    }

    /// Returns the dispatcher for the requests of a service point.
    pub(crate) fn connections(&self) -> &EventDispatcher {
        &self.connections
    }

    /// Returns whether this side has requested the connection.
    pub(crate) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns whether both sides serve and issue RDMA reads.
    pub(crate) fn both_read(&self) -> bool {
        self.own.reads && self.peer.reads
    }

    /// Requests a connection to a service point.
    pub(crate) fn request(&mut self, address: SocketAddr, qualifier: u64) -> Result<()> {
        self.is_active = true;
        let limit = self.deadline.saturating_duration_since(Instant::now());
        let own = self.own.to_bytes();
        Ok(self
            .endpoint
            .connect(address, qualifier, Some(limit), &own)?)
    }

    /// Accepts the first request of this program; rejects all others.
    pub(crate) fn accept(&mut self) -> Result<()> {
        let mut rejected = 0;
        loop {
            let awaited = Awaited::Request { rejected };
            let event = self.wait(&self.connections, awaited)?;
            let Some(request) = ConnectionRequest::from_event(&event) else {
                continue;
            };
            if let Some(peer) = Peer::of_bytes(&request.private_data()) {
                self.peer = peer;
                let accepted = request.accept(&mut self.endpoint, &self.own.to_bytes());
                return Ok(accepted.map_err(DatError::from)?);
            }
            request.reject();
            rejected += 1;
        }
    }

    /// Waits until the connection is established.
    pub(crate) fn establish(&mut self) -> Result<()> {
        loop {
            let event = self.wait(&self.connections, Awaited::Established)?;
            match event.data {
                EventData::Connection {
                    kind: ConnectionKind::Established,
                    ..
                } => break,
                EventData::Connection { kind, .. } => return Err(Failure::Connection(kind)),
                // Rejects the request of a second client.
                _ => drop(ConnectionRequest::from_event(&event)),
            }
        }
        if self.is_active {
            let peer = Peer::of_bytes(&self.endpoint.private_data());
            self.peer = peer.ok_or(Failure::Connection(ConnectionKind::PeerRejected))?;
        }
        Ok(())
    }

    /// Writes to this side's memory. No request may use the area.
    pub(crate) fn fill(&self, area: Area, bytes: &[u8]) {
        self.memory.write(area.range(bytes.len()).start, bytes);
    }

    pub(crate) fn content(&self, area: Area, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.memory.read(area.range(bytes).start, &mut content);
        content
    }

    /// Posts a request for this many bytes, and waits for its completion: until then, its memory
    /// belongs to the device.
    pub(crate) fn complete(&mut self, request: Request, bytes: usize) -> Result<()> {
        let flags = CompletionFlags::empty();
        let out = self.memory.segment(Area::Out.range(bytes));
        let remote = |area: Area| RemoteSegment {
            address: self.peer.memory.address + area.range(bytes).start as u64,
            length: bytes as u64,
            ..self.peer.memory
        };
        self.is_complete = false;
        let (what, posted) = match request {
            Request::Send => (
                "post a send",
                self.endpoint.post_send(&[out], REQUEST, flags),
            ),
            Request::Write => {
                let to = remote(Area::Written);
                let posted = self.endpoint.post_rdma_write(&[out], REQUEST, to, flags);
                ("post an RDMA write", posted)
            }
            Request::Read => {
                let (sink, from) = (
                    self.memory.segment(Area::Sink.range(bytes)),
                    remote(Area::Read),
                );
                let posted = self.endpoint.post_rdma_read(&[sink], REQUEST, from, flags);
                ("post an RDMA read", posted)
            }
        };
        posted.map_err(|refusal| not_posted(what, refusal))?;
        while !self.is_complete {
            self.take_completion(Awaited::Completion)?;
        }
        Ok(())
    }

    /// Waits for a message, and returns its bytes. Its receive is posted again.
    pub(crate) fn message(&mut self) -> Result<Vec<u8>> {
        let (slot, length) = loop {
            if let Some(first) = self.arrived.pop_front() {
                break first;
            }
            self.take_completion(Awaited::Message)?;
        };
        let mut bytes = vec![0; length.min(LARGEST)];
        self.memory.read(receive_range(slot).start, &mut bytes);
        self.post_receive(slot)?;
        Ok(bytes)
    }

    /// Ends the connection, and waits a moment for the peer.
    pub(crate) fn disconnect(&mut self) {
        // All is done; only the peer's waiting depends on this.
        if self.endpoint.disconnect().is_ok() {
            self.await_disconnect();
        }
    }

    /// Waits a moment for the end of the connection.
    pub(crate) fn await_disconnect(&self) {
        let _ = self.connections.wait(Some(PARTING));
    }

    fn post_receive(&mut self, slot: u64) -> Result<()> {
        let segment = self.memory.segment(receive_range(slot));
        let flags = CompletionFlags::empty();
        let posted = self.endpoint.post_recv(&[segment], slot, flags);
        posted.map_err(|refusal| not_posted("post a receive", refusal))
    }

    fn take_completion(&mut self, awaited: Awaited) -> Result<()> {
        match self.wait(&self.transfers, awaited)?.data {
            EventData::Dto {
                status: DtoStatus::Success,
                cookie: REQUEST,
                ..
            } => self.is_complete = true,
            EventData::Dto {
                status: DtoStatus::Success,
                cookie,
                length,
                ..
            } => self.arrived.push_back((cookie, length as usize)),
            EventData::Dto { status, .. } => return Err(Failure::Transfer(status)),
            _ => {}
        }
        Ok(())
    }

    /// Waits for an event up to the time limit; again after a signal.
    fn wait(&self, events: &EventDispatcher, awaited: Awaited) -> Result<Event> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match events.wait(Some(left)) {
                Ok(event) => return Ok(event),
                Err(code) if code.is(ReturnType::InterruptedCall) => {}
                Err(code) if code.is(ReturnType::TimeoutExpired) => {
                    return Err(Failure::Late(awaited));
                }
                Err(code) => return Err(Failure::Call(awaited.wait(), code.into())),
            }
        }
    }
}

impl Awaited {
    fn wait(self) -> &'static str {
        match self {
            Self::Request { .. } | Self::Established => "wait for a connection",
            Self::Completion | Self::Message => "wait for a completion",
        }
    }
}

fn not_posted(what: &'static str, refusal: Refusal) -> Failure {
    Failure::Call(what, refusal.into())
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
