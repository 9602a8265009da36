//! The engine as a measured interface: an endpoint, its completion queues and
//! registered memory. The two ends exchange addresses over the control
//! connection; on iWARP they connect through rdma_cm ([`EngineRdmaCm`]).

mod rdma_cm;

use std::mem::MaybeUninit;

use dat_engine::{
    Access, CompletionQueue, ConnectOptions, CqOptions, DataInOrder, Endpoint, EndpointAddress,
    EndpointOptions, LinkLayer, PortInfo, ProtectionDomain, RecvRequest, RegisteredBuffer, Segment,
    SendFlags, SendOp, SendRequest, ThreadMode,
};

pub(crate) use self::rdma_cm::EngineRdmaCm;

use super::device_port::DevicePort;
use super::interface::{Interface, Role};
use super::link::{CompletionResult, End, Fault, LONGEST_LIST, Link};
use super::payload::{self, Payload};
use super::setup::Setup;
use crate::cli::{Operation, RunArgs};
use crate::exchange::{Address, Peer};
use crate::failure::Failure;

/// The engine on an open device.
pub(crate) struct Engine {
    domain: ProtectionDomain,
    port: PortInfo,
    gid_index: Option<u8>,
}

impl Engine {
    pub(crate) fn open(device_port: &DevicePort, args: &RunArgs) -> Result<Self, Failure> {
        Ok(Self {
            domain: device_port.device.alloc_pd()?,
            port: device_port.port.clone(),
            gid_index: args.gid_index,
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

    fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            port: self.port.number,
            gid_index: self.gid_index,
            ..ConnectOptions::default()
        }
    }
}

impl Interface for Engine {
    type End = EngineEnd;

    fn connect_pair(&self, setup: &Setup) -> Result<(EngineEnd, EngineEnd), Failure> {
        let (mut near, mut far) = (
            EngineEnd::create(self, setup)?,
            EngineEnd::create(self, setup)?,
        );
        let (here, there) = (near.address(), far.address());
        near.connect(&there)?;
        far.connect(&here)?;
        Ok((near, far))
    }

    fn connect_end(
        &self,
        setup: &Setup,
        peer: &mut Peer,
        _role: Role,
    ) -> Result<EngineEnd, Failure> {
        let mut end = EngineEnd::create(self, setup)?;
        let theirs = peer.exchange_addresses(end.address())?;
        end.connect(&theirs)?;
        Ok(end)
    }
}

/// One side's endpoint and memory.
pub(crate) struct EngineEnd {
    // Dropped in this order: the memory of posted requests last, after the
    // endpoint, and after the queues, which may copy payload to it.
    endpoint: Endpoint,
    sent: CompletionQueue,
    received: CompletionQueue,
    payload: Payload,
    buffer: RegisteredBuffer,
    address: EndpointAddress,
    options: ConnectOptions,
    /// Number of receives that are always posted.
    rx_depth: u32,
    largest_inline: u32,
    /// Address and remote key of the other side's buffer.
    remote: (u64, u32),
    /// The parts of the request of the current size.
    op: SendOp,
    segment: Segment,
    inline: SendFlags,
    receive: Segment,
    grant: Segment,
}

impl EngineEnd {
    /// Creates endpoint and memory, unconnected.
    fn create(engine: &Engine, setup: &Setup) -> Result<Self, Failure> {
        let largest = setup.largest;
        let bytes = payload::bytes(largest);
        let buffer = engine.domain.allocate(bytes, Access::default())?;
        // SAFETY: the buffer has that length and outlives the payload (order of
        // fields), and the engine forms no references to it.
        let payload = unsafe { Payload::new(buffer.as_ptr(), setup.operation, largest) };
        let device = engine.domain.device();
        let queue = |depth| {
            device.create_cq(&CqOptions {
                depth,
                ..CqOptions::default()
            })
        };
        let rx_depth = setup.receives;
        let (sent, received) = (queue(setup.tx_depth)?, queue(rx_depth.max(1))?);
        let endpoint = engine.domain.create_endpoint(&EndpointOptions {
            send_depth: setup.tx_depth,
            recv_depth: rx_depth.max(1),
            inline_bytes: setup.inline,
            exclusive_register: true,
            // SAFETY: one thread, the measuring one, posts to all endpoints of the device.
            thread_mode: unsafe { ThreadMode::serialized() },
            ..EndpointOptions::new(&sent, &received)
        })?;
        if endpoint.max_inline() < setup.inline {
            return Err(Failure::usage(format!(
                "this device supports {0} inline bytes: give -I {0} or less",
                endpoint.max_inline()
            )));
        }
        let address = engine.address_of(&endpoint)?;
        let segment = |offset, length| {
            buffer
                .segment(offset, length)
                .expect("both halves and the grant are within the buffer")
        };
        Ok(Self {
            op: SendOp::Send,
            segment: segment(0, largest),
            inline: SendFlags::empty(),
            receive: segment(payload.incoming_offset(), largest),
            grant: segment(payload.our_grant(), payload::GRANT as u32),
            endpoint,
            sent,
            received,
            payload,
            buffer,
            address,
            options: engine.connect_options(),
            rx_depth,
            largest_inline: setup.inline,
            remote: (0, 0),
        })
    }

    /// Returns the addresses that the other side needs.
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
        self.payload.require_length(theirs.length)?;
        self.remote = (theirs.buffer, theirs.rkey);
        self.payload.set_side_numbers(self.address.qpn, theirs.qpn);
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
    fn set_request_size(&mut self, size: u32) {
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
            .expect("the plan has no larger size");
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

    fn data_in_order(&self) -> DataInOrder {
        self.endpoint.data_in_order()
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
        // SAFETY: as in `post_receive`. Inline bytes are read during the call, from
        // the outgoing half, which the device does not write; reads are never inline.
        unsafe { self.endpoint.post_send(&request) }?;
        Ok(())
    }

    #[inline(always)]
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags: if signaled {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            },
            segments: &[],
        };
        // SAFETY: the request has no memory.
        unsafe { self.endpoint.post_send(&request) }?;
        Ok(())
    }

    #[inline(always)]
    fn post_list(&mut self, signaled: &[bool]) -> Result<(), Fault> {
        let mut requests = [const { MaybeUninit::<SendRequest<'_>>::uninit() }; LONGEST_LIST];
        let list = &mut requests[..signaled.len()];
        for (request, &signaled) in list.iter_mut().zip(signaled) {
            let signal = if signaled {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            request.write(SendRequest {
                wr_id: 0,
                op: self.op,
                flags: self.inline | signal,
                segments: core::slice::from_ref(&self.segment),
            });
        }
        // SAFETY: the loop has written every element of the list.
        let list = unsafe { list.assume_init_ref() };
        // SAFETY: as in `post`, for every request.
        unsafe { self.endpoint.post_send_list(list) }.map_err(|error| Fault::Post(error.error))
    }

    #[inline(always)]
    fn post_grant(&mut self, received: u32) -> Result<(), Fault> {
        self.payload.write_grant(received);
        let (remote, rkey) = self.remote;
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Write {
                remote_addr: remote + self.payload.their_grant() as u64,
                rkey,
            },
            flags: SendFlags::SIGNALED,
            segments: core::slice::from_ref(&self.grant),
        };
        // SAFETY: as in `post_receive`; the grant is not stored again before the
        // request completes, as this function requires.
        unsafe { self.endpoint.post_send(&request) }?;
        Ok(())
    }

    #[inline(always)]
    fn granted(&self) -> Option<u32> {
        self.payload.read_grant()
    }

    #[inline(always)]
    fn poll_sent(&mut self) -> Option<CompletionResult> {
        taken(&mut self.sent)
    }

    #[inline(always)]
    fn poll_received(&mut self) -> Option<CompletionResult> {
        taken(&mut self.received)
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

/// Polls one completion.
#[inline(always)]
fn taken(queue: &mut CompletionQueue) -> Option<CompletionResult> {
    let completion = queue.poll()?;
    Some(if completion.status.is_success() {
        Ok(completion.byte_len)
    } else {
        Err(Fault::Completion(completion))
    })
}
