//! The engine as an interface: a connected endpoint, its completion queues,
//! and registered memory. The two ends find each other by bench's own
//! exchange of addresses, on iWARP by rdma_cm ([`Managed`]).

mod managed;

use dat_engine::{
    Access, CompletionQueue, ConnectOptions, CqOptions, Endpoint, EndpointAddress, EndpointOptions,
    LinkLayer, PortInfo, ProtectionDomain, RecvRequest, RegisteredBuffer, Segment, SendFlags,
    SendOp, SendRequest, ThreadMode,
};

pub(super) use self::managed::Managed;

use super::ground::Ground;
use super::link::{Done, End, Fault, Link};
use super::payload::{self, Payload};
use super::plan::Plan;
use super::way::{Role, Way};
use crate::cli::{LatArgs, Operation};
use crate::exchange::{Address, Peer};
use crate::failure::Failure;

/// What its ends are made of.
pub(super) struct Engine {
    domain: ProtectionDomain,
    port: PortInfo,
    gid_index: Option<u8>,
}

impl Engine {
    pub(super) fn open(ground: &Ground, args: &LatArgs) -> Result<Self, Failure> {
        Ok(Self {
            domain: ground.device.alloc_pd()?,
            port: ground.port.clone(),
            gid_index: args.gid_index,
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
}

impl Way for Engine {
    type End = EngineEnd;

    fn both(&self, plan: &Plan) -> Result<(EngineEnd, EngineEnd), Failure> {
        let (mut near, mut far) = (
            EngineEnd::create(self, plan)?,
            EngineEnd::create(self, plan)?,
        );
        let (here, there) = (near.address(), far.address());
        near.connect(&there)?;
        far.connect(&here)?;
        Ok((near, far))
    }

    fn one(&self, plan: &Plan, peer: &mut Peer, _role: Role) -> Result<EngineEnd, Failure> {
        let mut end = EngineEnd::create(self, plan)?;
        let theirs = peer.exchange(end.address())?;
        end.connect(&theirs)?;
        Ok(end)
    }
}

/// One side's endpoint and memory.
pub(super) struct EngineEnd {
    // Dropped in this order: the memory that requests name goes last, after the
    // endpoint they were posted to and the queues that may still copy to it.
    endpoint: Endpoint,
    sent: CompletionQueue,
    received: CompletionQueue,
    payload: Payload,
    buffer: RegisteredBuffer,
    address: EndpointAddress,
    options: ConnectOptions,
    /// Receives to be posted.
    rx_depth: u32,
    largest_inline: u32,
    /// Where the other side's buffer begins, and its key.
    remote: (u64, u32),
    /// The request of the present size, prepared.
    op: SendOp,
    segment: Segment,
    inline: SendFlags,
    receive: Segment,
}

impl EngineEnd {
    /// Creates endpoint and memory; not connected yet.
    fn create(engine: &Engine, plan: &Plan) -> Result<Self, Failure> {
        let largest = plan.largest();
        let area = payload::area(largest);
        let buffer = engine.domain.allocate(2 * area, Access::default())?;
        // SAFETY: of that length; it outlives the payload (order of fields),
        // and the engine forms no references to it.
        let payload = unsafe { Payload::new(buffer.as_ptr(), plan.operation, largest) };
        let device = engine.domain.device();
        let queue = |depth| {
            device.create_cq(&CqOptions {
                depth,
                ..CqOptions::default()
            })
        };
        let rx_depth = plan.receives();
        let (sent, received) = (queue(plan.tx_depth)?, queue(rx_depth.max(1))?);
        let endpoint = engine.domain.create_endpoint(&EndpointOptions {
            send_depth: plan.tx_depth,
            recv_depth: rx_depth.max(1),
            inline_bytes: plan.inline,
            exclusive_register: true,
            // SAFETY: this endpoint is the only one of the device here.
            thread_mode: unsafe { ThreadMode::serialized() },
            ..EndpointOptions::new(&sent, &received)
        })?;
        if endpoint.max_inline() < plan.inline {
            return Err(Failure::usage(format!(
                "this device grants {0} inline bytes; give -I {0} or less",
                endpoint.max_inline()
            )));
        }
        let address = engine.address_of(&endpoint)?;
        let segment = |offset, length| {
            buffer
                .segment(offset, length)
                .expect("both halves are inside the buffer")
        };
        Ok(Self {
            op: SendOp::Send,
            segment: segment(0, largest),
            inline: SendFlags::empty(),
            receive: segment(payload.incoming_offset(), largest),
            endpoint,
            sent,
            received,
            payload,
            buffer,
            address,
            options: engine.connect_options(),
            rx_depth,
            largest_inline: plan.inline,
            remote: (0, 0),
        })
    }

    /// What the other side must know.
    fn address(&self) -> Address {
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
    fn connect(&mut self, theirs: &Address) -> Result<(), Failure> {
        self.payload.require(theirs.length)?;
        self.remote = (theirs.buffer, theirs.rkey);
        self.payload.name_sides(self.address.qpn, theirs.qpn);
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
        self.post_receives()
    }

    fn post_receives(&mut self) -> Result<(), Failure> {
        for _ in 0..self.rx_depth {
            self.post_receive()
                .map_err(|fault| Failure::run(fault.to_string()))?;
        }
        Ok(())
    }
}

impl End for EngineEnd {
    fn aim(&mut self, size: u32) {
        let (remote, rkey) = self.remote;
        let remote_addr = remote + self.payload.remote_offset() as u64;
        let operation = self.payload.operation();
        self.op = match operation {
            Operation::Send => SendOp::Send,
            Operation::Write => SendOp::Write { remote_addr, rkey },
            Operation::Read => SendOp::Read { remote_addr, rkey },
        };
        self.segment = self
            .buffer
            .segment(self.payload.local_offset(), size)
            .expect("no size is above the largest");
        let goes_inline = operation != Operation::Read && size <= self.largest_inline;
        self.inline = if goes_inline {
            SendFlags::INLINE
        } else {
            SendFlags::empty()
        };
    }

    fn payload(&mut self) -> &mut Payload {
        &mut self.payload
    }
}

impl Link for EngineEnd {
    #[inline(always)]
    fn post_receive(&mut self) -> Result<(), Fault> {
        let request = RecvRequest {
            wr_id: 0,
            segments: core::slice::from_ref(&self.receive),
        };
        // SAFETY: the segment is in `buffer`, which outlives the endpoint (order
        // of fields) and so every request; no reference to its bytes is formed.
        unsafe { self.endpoint.post_recv(&request) }?;
        Ok(())
    }

    #[inline(always)]
    fn post(&mut self, signaled: bool) -> Result<(), Fault> {
        let signal = if signaled {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        let request = SendRequest {
            wr_id: 0,
            op: self.op,
            flags: self.inline | signal,
            segments: core::slice::from_ref(&self.segment),
        };
        // SAFETY: as in `post_receive`; inline bytes are read now, from memory
        // that the device does not write (the outgoing half; reads go not inline).
        unsafe { self.endpoint.post_send(&request) }?;
        Ok(())
    }

    #[inline(always)]
    fn poll_sent(&mut self) -> Option<Done> {
        taken(&mut self.sent)
    }

    #[inline(always)]
    fn poll_received(&mut self) -> Option<Done> {
        taken(&mut self.received)
    }

    #[inline(always)]
    fn stamp(&mut self, sequence: u8) {
        self.payload.stamp(sequence);
    }

    #[inline(always)]
    fn arrived(&self) -> u8 {
        self.payload.arrived()
    }
}

#[inline(always)]
fn taken(queue: &mut CompletionQueue) -> Option<Done> {
    let completion = queue.poll()?;
    Some(if completion.status.is_success() {
        Ok(completion.byte_len)
    } else {
        Err(Fault::Completion(completion))
    })
}
