//! One connection: its memory, its messages, and the outcome of each posted
//! transfer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dat_api::handle::Handle;
use dat_api::safe::{
    Endpoint, EndpointOptions, EventDispatcher, Memory, ProtectionZone, RemoteSegment,
};
use dat_api::types::{CompletionFlags, DtoStatus, MemPrivileges};

use crate::Outcome;

/// Messages in flight.
pub(crate) const WINDOW: usize = 8;
/// How long a connection is silent before a side probes it.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Receives beyond the window: for probes, and for messages whose predecessor's
/// slot is not posted again yet.
const RECEIVES: usize = 2 * WINDOW;
/// Size in bytes of a buffer, and of the region that the peer writes and reads.
const ROOM: usize = 20_000;
/// Lengths of messages in bytes, used in turn as far as allowed: below and above
/// the path's MTU, and of several packets.
const LENGTHS: [usize; 4] = [64, 1_200, ROOM, 4_500];
/// The number of a probe: a message that needs no answer.
const PROBE: u64 = u64::MAX;
/// The number of the message before the last disconnect of a driver.
const LAST: u64 = u64::MAX - 1;

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
/// A message that consists of the number alone: see [`Flow::send_number`].
const NUMBER: u64 = 3 << 32;
const WRITE: u64 = 4 << 32;
const READ: u64 = 5 << 32;
const KIND: u64 = !0 << 32;

/// The kind of a completion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// A message with this number was received and checked.
    Message(u64),
    /// Another transfer succeeded.
    Other,
    /// The transfer failed.
    Failed(DtoStatus),
}

/// A connection.
pub(crate) struct Flow {
    pub(crate) endpoint: Endpoint,
    /// Receive buffers, send buffers, the region that is open to the peer, the
    /// target of reads.
    memory: Memory,
    /// Cookies of transfers without a completion.
    outstanding: BTreeSet<u64>,
    posted: u64,
    succeeded: u64,
    flushed: u64,
    failed: u64,
    /// The number of the next message to send, and of the next to receive.
    sent: u64,
    pub(crate) received: u64,
    /// When a message last arrived, or a probe completed. Over iWARP a send may
    /// complete before the peer has it.
    pub(crate) alive: Instant,
    /// The peer has sent its last message: it does not connect again.
    pub(crate) is_last: bool,
    /// Length of the longest message in bytes.
    longest: usize,
    text: Vec<u8>,
}

impl Flow {
    /// Creates an endpoint and posts its receives.
    pub(crate) fn new(
        zone: &ProtectionZone,
        events: &EventDispatcher,
        longest: usize,
    ) -> Outcome<Self> {
        let memory = zone.allocate(
            (RECEIVES + WINDOW + 2) * ROOM + 8,
            MemPrivileges::LOCAL_READ
                | MemPrivileges::LOCAL_WRITE
                | MemPrivileges::REMOTE_READ
                | MemPrivileges::REMOTE_WRITE,
        )?;
        let options = EndpointOptions::new(events);
        // The device's defaults, which have no RDMA reads, plus two reads in each
        // direction.
        let mut attributes = zone.create_endpoint(&options)?.query().attributes;
        (attributes.max_rdma_read_in, attributes.max_rdma_read_out) = (2, 2);
        let options = options.attributes(attributes);
        let mut flow = Self {
            endpoint: zone.create_endpoint(&options)?,
            memory,
            outstanding: BTreeSet::new(),
            posted: 0,
            succeeded: 0,
            flushed: 0,
            failed: 0,
            sent: 0,
            received: 0,
            alive: Instant::now(),
            is_last: false,
            longest,
            text: vec![0; ROOM],
        };
        for slot in 0..RECEIVES {
            flow.receive(slot)?;
        }
        Ok(flow)
    }

    /// Returns whether an event of that endpoint belongs to this connection.
    pub(crate) fn is(&self, ep: Handle) -> bool {
        self.endpoint.handle() == ep
    }

    /// Returns the region that the peer may write and read, for the private data.
    pub(crate) fn open_region(&self) -> Vec<u8> {
        let at = (RECEIVES + WINDOW) * ROOM;
        let remote = self.memory.remote(at..at + ROOM);
        [u64::from(remote.context), remote.address, remote.length]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect()
    }

    /// Returns the region that the peer's private data describe.
    pub(crate) fn region_of(private_data: &[u8]) -> Option<RemoteSegment> {
        let word = |at: usize| {
            let bytes = private_data.get(at * 8..at * 8 + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        Some(RemoteSegment {
            context: word(0)?.try_into().ok()?,
            address: word(1)?,
            length: word(2)?,
        })
    }

    fn posted(&mut self, cookie: u64) {
        assert!(
            self.outstanding.insert(cookie),
            "{cookie:#x} is posted twice"
        );
        self.posted += 1;
    }

    fn receive(&mut self, slot: usize) -> Outcome<()> {
        let buffer = self.memory.segment(slot * ROOM..(slot + 1) * ROOM);
        let cookie = RECEIVE | slot as u64;
        self.endpoint
            .post_recv(&[buffer], cookie, CompletionFlags::empty())?;
        self.posted(cookie);
        Ok(())
    }

    /// Returns the length of message `number` in bytes.
    fn length(&self, number: u64) -> usize {
        LENGTHS[number as usize % LENGTHS.len()].min(self.longest)
    }

    /// Returns whether the buffer of the next message is free.
    pub(crate) fn can_send(&self) -> bool {
        !self
            .outstanding
            .contains(&(SEND | (self.sent % WINDOW as u64)))
    }

    /// Sends the next message.
    pub(crate) fn send(&mut self) -> Outcome<()> {
        let (number, slot) = (self.sent, self.sent as usize % WINDOW);
        let length = self.length(number);
        fill(&mut self.text[..length], number);
        let at = (RECEIVES + slot) * ROOM;
        self.memory.write(at, &self.text[..length]);
        let cookie = SEND | slot as u64;
        let message = self.memory.segment(at..at + length);
        self.endpoint
            .post_send(&[message], cookie, CompletionFlags::empty())?;
        self.posted(cookie);
        self.sent += 1;
        Ok(())
    }

    /// Sends a message that needs no answer, so that the transport detects
    /// whether the peer still exists. Does nothing if one is in flight.
    pub(crate) fn probe(&mut self) -> Outcome<()> {
        self.send_number(PROBE).map(drop)
    }

    /// Tells the server that this client does not connect again. Returns false if
    /// a probe is still in flight: then nothing was sent.
    pub(crate) fn send_last(&mut self) -> Outcome<bool> {
        self.send_number(LAST)
    }

    /// Sends a number alone. Returns false if one is in flight.
    fn send_number(&mut self, number: u64) -> Outcome<bool> {
        if self.outstanding.contains(&NUMBER) {
            return Ok(false);
        }
        let at = (RECEIVES + WINDOW + 2) * ROOM;
        self.memory.write(at, &number.to_be_bytes());
        let message = self.memory.segment(at..at + 8);
        self.endpoint
            .post_send(&[message], NUMBER, CompletionFlags::empty())?;
        self.posted(NUMBER);
        Ok(true)
    }

    /// Writes to the peer's region and reads it back, if the previous pair has
    /// completed.
    pub(crate) fn write_and_read(&mut self, region: RemoteSegment) -> Outcome<()> {
        if self.outstanding.contains(&READ) {
            return Ok(());
        }
        let sink = (RECEIVES + WINDOW + 1) * ROOM;
        let length = self.longest;
        let region = RemoteSegment {
            length: length as u64,
            ..region
        };
        fill(&mut self.text[..length], self.sent);
        // The source is the open region of this side, which the peer does not touch.
        let source = (RECEIVES + WINDOW) * ROOM;
        self.memory.write(source, &self.text[..length]);
        let out = self.memory.segment(source..source + length);
        self.endpoint
            .post_rdma_write(&[out], WRITE, region, CompletionFlags::empty())?;
        self.posted(WRITE);
        let into = self.memory.segment(sink..sink + length);
        self.endpoint
            .post_rdma_read(&[into], READ, region, CompletionFlags::empty())?;
        self.posted(READ);
        Ok(())
    }

    /// Handles a completion.
    pub(crate) fn complete(
        &mut self,
        cookie: u64,
        status: DtoStatus,
        length: u64,
    ) -> Outcome<Done> {
        if !self.outstanding.remove(&cookie) {
            return Err(format!("a completion for cookie {cookie:#x}, which is not posted").into());
        }
        match status {
            DtoStatus::Success => self.succeeded += 1,
            DtoStatus::Flushed => {
                self.flushed += 1;
                return Ok(Done::Failed(status));
            }
            other => {
                self.failed += 1;
                println!("a transfer failed: {other:?}");
                return Ok(Done::Failed(other));
            }
        }
        match cookie & KIND {
            RECEIVE => {
                self.alive = Instant::now();
                self.received((cookie & !KIND) as usize, length as usize)
            }
            READ => {
                let at = (RECEIVES + WINDOW) * ROOM;
                let (mut wrote, mut read) = (vec![0; self.longest], vec![0; self.longest]);
                self.memory.read(at, &mut wrote);
                self.memory.read(at + ROOM, &mut read);
                if wrote != read {
                    return Err("an RDMA read returned other bytes than the write before it".into());
                }
                Ok(Done::Other)
            }
            NUMBER => {
                self.alive = Instant::now();
                Ok(Done::Other)
            }
            _ => Ok(Done::Other),
        }
    }

    fn received(&mut self, slot: usize, length: usize) -> Outcome<Done> {
        let at = slot * ROOM;
        let mut number = [0; 8];
        self.memory.read(at, &mut number);
        let number = u64::from_be_bytes(number);
        if number == PROBE || number == LAST {
            self.is_last |= number == LAST;
            self.receive(slot)?;
            return Ok(Done::Other);
        }
        if number != self.received {
            return Err(format!("received message {number}, expected {}", self.received).into());
        }
        let mut wanted = vec![0; self.length(number)];
        fill(&mut wanted, number);
        self.memory.read(at, &mut self.text[..length.min(ROOM)]);
        if self.text[..length.min(ROOM)] != wanted {
            return Err(format!("message {number} of {length} bytes has wrong content").into());
        }
        self.received += 1;
        self.receive(slot)?;
        Ok(Done::Message(number))
    }

    /// Returns whether each posted transfer has its completion.
    pub(crate) fn is_accounted(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Describes the outcome of the transfers.
    pub(crate) fn account(&self) -> String {
        format!(
            "{} posted, {} succeeded, {} flushed, {} failed, {} missing",
            self.posted,
            self.succeeded,
            self.flushed,
            self.failed,
            self.outstanding.len()
        )
    }
}

/// Fills in the bytes of message `number`, which begin with the number.
fn fill(bytes: &mut [u8], number: u64) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (number as usize).wrapping_mul(31).wrapping_add(at) as u8;
    }
    bytes[..8].copy_from_slice(&number.to_be_bytes());
}
