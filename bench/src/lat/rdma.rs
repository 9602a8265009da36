//! The link over the engine: a connected endpoint, its completion queues, and
//! the memory both sides use.
//!
//! ```text
//! buffer   0            area             2 × area
//!          | outgoing   | incoming       |
//! ```
//!
//! What goes out is sent from, or read by the other side from, the first half;
//! what comes in is received, written or read into the second. The other side
//! has the same layout, as both know the largest size.

use dat_engine::{
    Access, Completion, CompletionQueue, ConnectOptions, CqOptions, Device, Endpoint,
    EndpointAddress, EndpointOptions, LinkLayer, PortInfo, PostError, ProtectionDomain,
    RecvRequest, RegisteredBuffer, Segment, SendFlags, SendOp, SendRequest,
};

use super::link::Link;
use super::plan::Plan;
use crate::cli::{LatArgs, Operation};
use crate::exchange::Address;
use crate::failure::Failure;
use crate::host;
use crate::report::DeviceFacts;
use crate::select::Selected;

/// Areas start on lines of their own.
const ALIGNMENT: usize = 64;
/// Comparing goes in pieces of this many bytes.
const PIECE: usize = 4096;

/// An open device and a port of it.
pub(super) struct Ground {
    domain: ProtectionDomain,
    port: PortInfo,
    gid_index: Option<u8>,
    fabric: Option<String>,
}

impl Ground {
    /// Opens the device, and refuses what the port cannot do.
    pub(super) fn open(selected: Selected, args: &LatArgs) -> Result<Self, Failure> {
        let device = Device::open(&selected.name)?;
        let port = device.port(args.ib_port)?;
        let largest = args.sizes().into_iter().max().unwrap_or(1);
        if largest > port.max_message {
            return Err(Failure::usage(format!(
                "{} port {} carries messages of up to {} bytes, not {largest}; give a smaller -s",
                selected.name, port.number, port.max_message
            )));
        }
        let sides = if args.loopback { 2 } else { 1 };
        let needed = sides * 2 * u64::from(largest);
        if let Some(available) = host::available_memory().filter(|&bytes| bytes < needed) {
            return Err(Failure::environment(format!(
                "messages of {largest} bytes need buffers of {needed} bytes in all, {available} are available here; give a smaller -s"
            )));
        }
        let most = device.limits().queue_depth;
        for (option, depth) in [("-t", args.tx_depth), ("-r", args.receive_depth())] {
            if depth > most {
                return Err(Failure::usage(format!(
                    "{} has queues of up to {most} requests; {option} {depth} is too deep",
                    selected.name
                )));
            }
        }
        let domain = device.alloc_pd()?;
        Ok(Self {
            domain,
            port,
            gid_index: args.gid_index,
            fabric: selected.fabric,
        })
    }

    /// The address of an endpoint, with the GID that was asked for.
    fn address_of(&self, endpoint: &Endpoint) -> Result<EndpointAddress, Failure> {
        let mut address = endpoint.local_address(self.port.number)?;
        if let Some(index) = self.gid_index {
            let Some(entry) = self.port.gids.iter().find(|entry| entry.index == index) else {
                return Err(Failure::usage(format!(
                    "the GID table of port {} has nothing at index {index}; leave -x out, or see 'ibv_devinfo -v'",
                    self.port.number
                )));
            };
            (address.gid, address.gid_index) = (entry.gid.0, index);
        }
        Ok(address)
    }

    fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            port: self.port.number,
            gid_index: self.gid_index,
            ..ConnectOptions::default()
        }
    }

    pub(super) fn facts(&self) -> DeviceFacts {
        let info = self.domain.device().info();
        DeviceFacts {
            name: info.name.clone(),
            port: self.port.number,
            firmware: info.firmware.clone(),
            link: self.port.link.to_string(),
            path: info.path.to_string(),
            emulated_fabric: self.fabric.clone(),
        }
    }
}

/// One side's endpoint and memory.
pub(super) struct Rdma {
    // Dropped in this order: the memory that requests name goes last, after the
    // endpoint they were posted to and the queues that may still copy to it.
    endpoint: Endpoint,
    sent: CompletionQueue,
    received: CompletionQueue,
    buffer: RegisteredBuffer,
    address: EndpointAddress,
    options: ConnectOptions,
    operation: Operation,
    rx_depth: u32,
    largest_inline: u32,
    largest: u32,
    /// Bytes of one half of the buffer.
    area: usize,
    /// Where the other side's buffer begins, and its key.
    remote: (u64, u32),
    remote_qpn: u32,
    /// The request of the present size, prepared.
    op: SendOp,
    segment: Segment,
    inline: SendFlags,
    receive: Segment,
    size: u32,
}

impl Rdma {
    /// Creates endpoint and memory; not connected yet.
    pub(super) fn create(ground: &Ground, plan: &Plan) -> Result<Self, Failure> {
        let largest = plan.largest();
        let area = (largest as usize).next_multiple_of(ALIGNMENT);
        let buffer = ground.domain.allocate(2 * area, Access::default())?;
        let device = ground.domain.device();
        let queue = |depth| {
            device.create_cq(&CqOptions {
                depth,
                ..CqOptions::default()
            })
        };
        let rx_depth = if plan.operation == Operation::Send {
            plan.rx_depth
        } else {
            1
        };
        let (sent, received) = (queue(plan.tx_depth)?, queue(rx_depth)?);
        let endpoint = ground.domain.create_endpoint(&EndpointOptions {
            send_depth: plan.tx_depth,
            recv_depth: rx_depth,
            inline_bytes: plan.inline,
            exclusive_register: true,
            single_threaded: true,
            ..EndpointOptions::new(&sent, &received)
        })?;
        if endpoint.max_inline() < plan.inline {
            return Err(Failure::usage(format!(
                "this device grants {0} inline bytes; give -I {0} or less",
                endpoint.max_inline()
            )));
        }
        let address = ground.address_of(&endpoint)?;
        let segment = |offset, length| {
            buffer
                .segment(offset, length)
                .expect("both halves are inside the buffer")
        };
        let receive = segment(area, largest);
        Ok(Self {
            op: SendOp::Send,
            segment: segment(0, largest),
            inline: SendFlags::empty(),
            receive,
            size: largest,
            endpoint,
            sent,
            received,
            address,
            options: ground.connect_options(),
            operation: plan.operation,
            rx_depth,
            largest_inline: plan.inline,
            largest,
            area,
            remote: (0, 0),
            remote_qpn: 0,
            buffer,
        })
    }

    /// What the other side must know.
    pub(super) fn address(&self) -> Address {
        Address {
            qpn: self.address.qpn,
            psn: self.address.psn,
            lid: self.address.lid,
            gid_index: self.address.gid_index,
            mtu: self.address.mtu,
            ethernet: self.address.link == LinkLayer::Ethernet,
            gid: self.address.gid,
            buffer: self.buffer.as_ptr().addr().get() as u64,
            rkey: self.buffer.region().rkey(),
            length: self.buffer.len() as u64,
        }
    }

    /// Connects to the other side, and posts the receives.
    pub(super) fn connect(&mut self, theirs: &Address) -> Result<(), Failure> {
        if theirs.length < 2 * self.area as u64 {
            return Err(Failure::run(format!(
                "the other side's buffer has {} bytes where {} are needed",
                theirs.length,
                2 * self.area
            )));
        }
        self.remote = (theirs.buffer, theirs.rkey);
        self.remote_qpn = theirs.qpn;
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
        if self.operation == Operation::Send {
            for _ in 0..self.rx_depth {
                self.post_receive()
                    .map_err(|error| Failure::run(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Makes ready for messages of one size: memory filled with what only this
    /// side sends, and cleared where the other side's is to come.
    pub(super) fn prepare(&mut self, size: u32) {
        self.size = size;
        let (remote_addr, rkey) = self.remote;
        let incoming = remote_addr + self.area as u64;
        let half = match self.operation {
            Operation::Send | Operation::Write => 0,
            Operation::Read => self.area,
        };
        self.op = match self.operation {
            Operation::Send => SendOp::Send,
            Operation::Write => SendOp::Write {
                remote_addr: incoming,
                rkey,
            },
            Operation::Read => SendOp::Read { remote_addr, rkey },
        };
        self.segment = self
            .buffer
            .segment(half, size)
            .expect("no size is above the largest");
        let goes_inline = self.operation != Operation::Read && size <= self.largest_inline;
        self.inline = if goes_inline {
            SendFlags::INLINE
        } else {
            SendFlags::empty()
        };
        // All of the incoming half: a smaller message before must not pass for this one.
        for (start, length) in pieces(self.largest) {
            self.put(self.area + start, &[0; PIECE][..length]);
        }
        let from = self.address.qpn;
        for (start, length) in pieces(size) {
            self.put(start, &pattern(from, start)[..length]);
        }
    }

    /// Whether what came is what the other side sent, byte by byte. No message
    /// may be under way.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        // The last byte of a write is its sequence number.
        let fixed = match self.operation {
            Operation::Write => self.size - 1,
            Operation::Send | Operation::Read => self.size,
        };
        for (start, length) in pieces(fixed) {
            let mut came = [0; PIECE];
            // SAFETY: no message is under way, so nobody writes there now.
            let inside = unsafe { self.buffer.read(self.area + start, &mut came[..length]) };
            assert!(inside, "pieces of a message are inside the buffer");
            let expected = pattern(self.remote_qpn, start);
            let differs = came
                .iter()
                .zip(&expected)
                .take(length)
                .position(|(a, b)| a != b);
            if let Some(at) = differs {
                return Err(Failure::run(format!(
                    "byte {} of a message of {} bytes came as 0x{:02x}, 0x{:02x} was sent: the data path damages data",
                    start + at,
                    self.size,
                    came[at],
                    expected[at]
                )));
            }
        }
        Ok(())
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: between sizes no message is under way: the device neither
        // reads nor writes the buffer.
        let inside = unsafe { self.buffer.write(offset, bytes) };
        assert!(inside, "pieces of a message are inside the buffer");
    }

    /// The last byte of a half, for the present size.
    #[inline(always)]
    fn last_byte(&self, half: usize) -> *mut u8 {
        // In bounds: `prepare` took a segment of `size` bytes (at least 1) in each half.
        self.buffer
            .as_ptr()
            .as_ptr()
            .wrapping_add(half + self.size as usize - 1)
    }
}

impl Link for Rdma {
    #[inline(always)]
    fn post_receive(&mut self) -> Result<(), PostError> {
        let request = RecvRequest {
            cookie: 0,
            segments: core::slice::from_ref(&self.receive),
        };
        // SAFETY: the segment is in `buffer`, which outlives the endpoint (order
        // of fields) and so every request; no reference to its bytes is formed.
        unsafe { self.endpoint.post_recv(&request) }
    }

    #[inline(always)]
    fn post(&mut self, signaled: bool) -> Result<(), PostError> {
        let signal = if signaled {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        let request = SendRequest {
            cookie: 0,
            op: self.op,
            flags: self.inline | signal,
            segments: core::slice::from_ref(&self.segment),
        };
        // SAFETY: as in `post_receive`; inline bytes are read now, from memory
        // that the device does not write (the outgoing half; reads go not inline).
        unsafe { self.endpoint.post_send(&request) }
    }

    #[inline(always)]
    fn poll_sent(&mut self) -> Option<Completion> {
        self.sent.poll()
    }

    #[inline(always)]
    fn poll_received(&mut self) -> Option<Completion> {
        self.received.poll()
    }

    #[inline(always)]
    fn stamp(&mut self, sequence: u8) {
        // SAFETY: inside the buffer (see `last_byte`), in the outgoing half,
        // which the device only reads; volatile, as it reads when it likes.
        unsafe { self.last_byte(0).write_volatile(sequence) };
    }

    #[inline(always)]
    fn arrived(&self) -> u8 {
        // SAFETY: inside the buffer (see `last_byte`); volatile, as the device
        // writes it at any time.
        unsafe { self.last_byte(self.area).read_volatile() }
    }
}

/// (start, length) of the pieces of so many bytes.
fn pieces(length: u32) -> impl Iterator<Item = (usize, usize)> {
    let length = length as usize;
    (0..length)
        .step_by(PIECE)
        .map(move |start| (start, PIECE.min(length - start)))
}

/// What the side of this queue pair number sends from this offset on: bytes
/// that are neither zero nor the same at the two sides.
fn pattern(qpn: u32, start: usize) -> [u8; PIECE] {
    core::array::from_fn(|at| {
        // Any mixing will do that tells neighbours and sides apart.
        let mixed = (start + at) as u64 + u64::from(qpn) * 0x9E37_79B9;
        (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_everything_once() {
        for length in [1, 4095, 4096, 4097, 100_000] {
            let mut next = 0;
            for (start, piece) in pieces(length) {
                assert_eq!(start, next);
                assert!((1..=PIECE).contains(&piece));
                next += piece;
            }
            assert_eq!(next, length as usize);
        }
    }

    #[test]
    fn sides_and_places_have_different_patterns_without_zeros() {
        let (one, two) = (pattern(0x01_0001, 0), pattern(0x01_0002, 0));
        assert_ne!(one[..64], two[..64]);
        assert_ne!(one[..64], pattern(0x01_0001, PIECE)[..64]);
        assert!(!one.contains(&0));
    }
}
