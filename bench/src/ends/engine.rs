//! The engine as a measured API: an endpoint, its completion queues and registered memory.
//! The two ends exchange addresses, over the control connection if they are in two
//! processes; with `-R` and on iWARP they connect through rdma_cm ([`rdma_cm`]).

mod end;
pub(crate) mod rdma_cm;

use std::ops::Range;

use dat_engine::{
    Access, Completion, ConnectOptions, CqOptions, Device, Endpoint, EndpointAddress,
    EndpointOptions, Mtu, PortInfo, ProtectionDomain, Segment, SharedReceiveQueue, SrqOptions,
    ThreadMode, TransportOptions,
};

pub(crate) use self::end::{EngineEnd, Request};
use super::end::{BATCH, Fault};
use super::interface::{Connected, Interface, Pair, RemoteInterface, Role, Shape, SharedQueues};
use crate::exchange::Peer;
use crate::failure::Failure;

/// The engine on an open device.
pub(crate) struct Engine {
    domain: ProtectionDomain,
    port: PortInfo,
    gid_index: Option<u8>,
    transport: TransportOptions,
    /// Whether one thread posts to all endpoints of the device.
    single_threaded: bool,
}

impl Engine {
    pub(crate) fn open(
        device: &Device,
        port: PortInfo,
        single_threaded: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            domain: device.alloc_pd()?,
            port,
            gid_index: None,
            transport: TransportOptions::default(),
            single_threaded,
        })
    }

    /// Connects all ends from the GID at this index, with these options of the network.
    pub(crate) fn through(self, gid_index: Option<u8>, transport: TransportOptions) -> Self {
        Self {
            gid_index,
            transport,
            ..self
        }
    }

    /// Returns the address of an endpoint, with the GID of `-x` and the MTU of `-m`.
    fn address_of(&self, endpoint: &Endpoint) -> Result<EndpointAddress, Failure> {
        let mut address = endpoint.local_address(self.port.number)?;
        let most = self.transport.mtu.map_or(address.mtu, Mtu::code);
        address.mtu = address.mtu.min(most);
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
            send_segments: shape.segments.unsigned_abs(),
            recv_segments: shape.segments.unsigned_abs(),
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
                transport: self.transport,
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

impl SharedQueues for Engine {
    type Endpoint = Endpoint;
    type Receive = Segment;

    fn another(
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

    fn send_by(
        end: &EngineEnd<true>,
        endpoint: &mut Endpoint,
        request: &mut Request,
    ) -> Result<(), Fault> {
        end.send_by(endpoint, request)
    }

    fn receive(end: &EngineEnd<true>, into: Range<usize>) -> Segment {
        end.segment(into)
    }

    #[inline(always)]
    fn post_receive(
        end: &mut EngineEnd<true>,
        _: Range<usize>,
        receive: &mut Segment,
        cookie: u64,
    ) -> Result<(), Fault> {
        end.post_one(receive, cookie)
    }
}
