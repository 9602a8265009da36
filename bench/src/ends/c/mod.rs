//! DAT's C calls as a measured interface, called as a C program does, through
//! function pointers from dlsym.

mod acceptor;
mod events;

use std::net::SocketAddr;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Duration;

use dat::abi::{
    DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_FLAGS, DAT_COMPLETION_SUPPRESS_FLAG,
    DAT_CONNECT_DEFAULT_FLAG, DAT_CONNECTION_EVENT_ESTABLISHED, DAT_CONTEXT, DAT_COUNT,
    DAT_EP_ATTR, DAT_EP_HANDLE, DAT_EVD_CONNECTION_FLAG, DAT_EVD_DTO_FLAG, DAT_HANDLE_NULL,
    DAT_IA_ATTR, DAT_LMR_TRIPLET, DAT_QOS_BEST_EFFORT, DAT_RETURN, DAT_RMR_TRIPLET,
    DAT_SERVICE_TYPE_RC,
};
use dat_api::DatReturn;
use dat_api::safe::RemoteSegment;
use dat_engine::DataInOrder;

use self::acceptor::CAcceptor;
use super::dat::{Dat, DatEnd, incoming, local, local_grant, remote, remote_grant};
use super::device_port::DevicePort;
use super::link::{CompletionResult, End, Fault, Link};
use super::payload::{self, Payload};
use super::probe::Probe;
use super::setup::Setup;
use crate::cli::Operation;
use crate::failure::Failure;
use crate::udapl::address::{Address, read_address};
use crate::udapl::v1::adapter::{CONNECTION_EVENTS, count};
use crate::udapl::v1::events::{Queue, micros};
use crate::udapl::v1::library::Calls;
use crate::udapl::v1::memory::Memory;
use crate::udapl::v1::{Adapter, Libdat, control, remote_segment};

/// An open adapter with a protection zone. `WAITS`: events are taken by
/// `dat_evd_wait`, else by `dat_evd_dequeue`.
pub(crate) struct CInterface<const WAITS: bool> {
    adapter: Rc<Adapter>,
    probe: Probe,
}

impl<const WAITS: bool> CInterface<WAITS> {
    pub(crate) fn open(libdat: &Libdat, device_port: &DevicePort) -> Result<Self, Failure> {
        Ok(Self {
            adapter: Adapter::open(libdat, &device_port.adapter_name(), false)?,
            probe: device_port.probe(),
        })
    }
}

impl<const WAITS: bool> Dat for CInterface<WAITS> {
    type End = CEnd<WAITS>;
    type Acceptor = CAcceptor;

    fn address(&self) -> Result<SocketAddr, Failure> {
        let address = self.adapter.query()?.ia_address_ptr;
        // SAFETY: null, or the library's `sockaddr`, which lives as long as the IA.
        unsafe { read_address(address) }
            .ok_or_else(|| Failure::environment("dat_ia_query returned no IP address for the adapter; give one to its network interface"))
    }

    fn end(&self, setup: &Setup) -> Result<CEnd<WAITS>, Failure> {
        let adapter = &self.adapter;
        let calls = adapter.calls;
        let largest = setup.largest;
        let memory = Memory::register(adapter, payload::bytes(largest))?;
        // SAFETY: the memory has that length and outlives the payload (order of
        // fields), and no references to it are formed.
        let payload = unsafe { Payload::new(memory.start(), setup.operation, largest) };
        let received = adapter.queue(setup.receives.max(1), DAT_EVD_DTO_FLAG)?;
        let sent = adapter.queue(setup.tx_depth, DAT_EVD_DTO_FLAG)?;
        let connections = adapter.queue(CONNECTION_EVENTS, DAT_EVD_CONNECTION_FLAG)?;
        let attributes = attributes(&adapter.query()?, setup);
        let mut ep = DAT_HANDLE_NULL;
        // SAFETY: handles of this adapter; local attributes; a local handle that is written.
        let code = unsafe {
            (calls.ep_create)(
                adapter.ia,
                adapter.pz,
                received.evd,
                sent.evd,
                connections.evd,
                &raw const attributes,
                &raw mut ep,
            )
        };
        control("dat_ep_create", code)?;
        let range = incoming(&payload);
        let mut end = CEnd {
            endpoint: Endpoint {
                ep,
                calls,
                _adapter: Rc::clone(adapter),
            },
            receive: memory.segment(range.clone()),
            segment: memory.segment(range),
            target: remote_segment(RemoteSegment::default()),
            sent,
            received,
            connections,
            operation: setup.operation,
            theirs: RemoteSegment::default(),
            payload,
            memory,
            probe: self.probe.clone(),
        };
        for _ in 0..setup.receives {
            end.post_receive()
                .map_err(|fault| Failure::run(fault.to_string()))?;
        }
        Ok(end)
    }

    fn listen(&self) -> Result<CAcceptor, Failure> {
        CAcceptor::open(&self.adapter)
    }
}

/// Returns endpoint attributes with the depths of the run, one segment, and as
/// many RDMA reads in flight as the run needs, if the device has reads.
fn attributes(limits: &DAT_IA_ATTR, setup: &Setup) -> DAT_EP_ATTR {
    DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        max_message_size: limits.max_message_size,
        max_rdma_size: limits.max_rdma_size,
        qos: DAT_QOS_BEST_EFFORT,
        recv_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
        request_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
        max_recv_dtos: count(setup.receives.max(1)),
        max_request_dtos: count(setup.tx_depth),
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_in: limits.max_rdma_read_per_ep_in.min(setup.reads),
        max_rdma_read_out: limits.max_rdma_read_per_ep_out.min(setup.reads),
        srq_soft_hw: 0,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
        ep_transport_specific_count: 0,
        ep_transport_specific: null_mut(),
        ep_provider_specific_count: 0,
        ep_provider_specific: null_mut(),
    }
}

/// An EP; freed when dropped.
struct Endpoint {
    ep: DAT_EP_HANDLE,
    calls: Calls,
    _adapter: Rc<Adapter>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: an EP that is freed once; the call disconnects it first.
        unsafe { (self.calls.ep_free)(self.ep) };
    }
}

/// One side's endpoint, EVDs and memory.
pub(crate) struct CEnd<const WAITS: bool> {
    // Dropped in this order: the memory after all objects that write to it.
    endpoint: Endpoint,
    sent: Queue,
    received: Queue,
    connections: Queue,
    payload: Payload,
    memory: Memory,
    operation: Operation,
    /// The whole buffer of the other side.
    theirs: RemoteSegment,
    /// The parts of the requests of the current size.
    receive: DAT_LMR_TRIPLET,
    segment: DAT_LMR_TRIPLET,
    target: DAT_RMR_TRIPLET,
    probe: Probe,
}

impl<const WAITS: bool> DatEnd for CEnd<WAITS> {
    fn exposed_buffer(&self) -> RemoteSegment {
        self.memory.exposed_buffer()
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
        let mut address = Address::new(to);
        // SAFETY: an EP; the address and the bytes are local, and only read.
        let code = unsafe {
            (self.endpoint.calls.ep_connect)(
                self.endpoint.ep,
                address.pointer(),
                qualifier,
                micros(within),
                private_data.len() as DAT_COUNT,
                private_data.as_ptr().cast_mut().cast(),
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_DEFAULT_FLAG,
            )
        };
        control("dat_ep_connect", code)
    }

    fn established(&mut self, within: Duration) -> Result<Vec<u8>, Failure> {
        let event = self.connections.await_event(within, "a DAT connection")?;
        if event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED {
            return Err(Failure::run(format!(
                "the DAT connection was not established: event 0x{:x}",
                event.event_number
            )));
        }
        // SAFETY: the event number says that this member is valid.
        let data = unsafe { event.event_data.connect_event_data };
        // SAFETY: the bytes stay valid until the endpoint is reset or freed, which
        // happens in `Drop` only.
        Ok(unsafe { bytes(data.private_data.cast(), data.private_data_size) })
    }
}

impl<const WAITS: bool> End for CEnd<WAITS> {
    fn set_request_size(&mut self, size: u32) {
        self.segment = self.memory.segment(local(&self.payload, size));
        self.target = remote_segment(remote(&self.payload, self.theirs, size));
    }

    fn payload(&mut self) -> &mut Payload {
        &mut self.payload
    }

    /// uDAPL has no such query, so another queue pair of the port is asked.
    fn data_in_order(&self) -> DataInOrder {
        self.probe.data_in_order()
    }
}

/// The cookie of all requests.
const COOKIE: DAT_CONTEXT = DAT_CONTEXT { as_64: 0 };

impl<const WAITS: bool> Link for CEnd<WAITS> {
    #[inline(always)]
    fn post_receive(&mut self) -> Result<(), Fault> {
        let Endpoint { ep, calls, .. } = &self.endpoint;
        // SAFETY: an EP that no other thread uses; the segment's memory outlives
        // the EP (order of fields), and there are no references to it.
        let code = unsafe {
            (calls.ep_post_recv)(
                *ep,
                1,
                &raw mut self.receive,
                COOKIE,
                DAT_COMPLETION_DEFAULT_FLAG,
            )
        };
        posted("dat_ep_post_recv", code)
    }

    #[inline(always)]
    fn post(&mut self, signaled: bool) -> Result<(), Fault> {
        let flags = flags(signaled);
        let Endpoint { ep, calls, .. } = &self.endpoint;
        let (segment, target) = (&raw mut self.segment, &raw const self.target);
        match self.operation {
            Operation::Send => {
                // SAFETY: as in `post_receive`.
                let code = unsafe { (calls.ep_post_send)(*ep, 1, segment, COOKIE, flags) };
                posted("dat_ep_post_send", code)
            }
            Operation::Write => {
                // SAFETY: as in `post_receive`; the target is only read.
                let code =
                    unsafe { (calls.ep_post_rdma_write)(*ep, 1, segment, COOKIE, target, flags) };
                posted("dat_ep_post_rdma_write", code)
            }
            Operation::Read => {
                // SAFETY: as in `post_receive`; the target is only read.
                let code =
                    unsafe { (calls.ep_post_rdma_read)(*ep, 1, segment, COOKIE, target, flags) };
                posted("dat_ep_post_rdma_read", code)
            }
        }
    }

    #[inline(always)]
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        let Endpoint { ep, calls, .. } = &self.endpoint;
        // SAFETY: an EP that no other thread uses; the request has no segments.
        let code = unsafe { (calls.ep_post_send)(*ep, 0, null_mut(), COOKIE, flags(signaled)) };
        posted("dat_ep_post_send", code)
    }

    #[inline(always)]
    fn post_grant(&mut self, received: u32) -> Result<(), Fault> {
        self.payload.write_grant(received);
        let mut segment = self.memory.segment(local_grant(&self.payload));
        let target = remote_segment(remote_grant(&self.payload, self.theirs));
        let Endpoint { ep, calls, .. } = &self.endpoint;
        // SAFETY: as in `post_receive`; segment and target are only read.
        let code = unsafe {
            (calls.ep_post_rdma_write)(
                *ep,
                1,
                &raw mut segment,
                COOKIE,
                &raw const target,
                DAT_COMPLETION_DEFAULT_FLAG,
            )
        };
        posted("dat_ep_post_rdma_write", code)
    }

    #[inline(always)]
    fn granted(&self) -> Option<u32> {
        self.payload.read_grant()
    }

    #[inline(always)]
    fn poll_sent(&mut self) -> Option<CompletionResult> {
        self.sent.poll()
    }

    #[inline(always)]
    fn poll_received(&mut self) -> Option<CompletionResult> {
        self.received.poll()
    }

    #[inline(always)]
    fn await_sent(&mut self) -> Option<CompletionResult> {
        if WAITS {
            self.sent.wait()
        } else {
            self.sent.poll()
        }
    }

    #[inline(always)]
    fn await_received(&mut self) -> Option<CompletionResult> {
        if WAITS {
            self.received.wait()
        } else {
            self.received.poll()
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
fn flags(signaled: bool) -> DAT_COMPLETION_FLAGS {
    if signaled {
        DAT_COMPLETION_DEFAULT_FLAG
    } else {
        DAT_COMPLETION_SUPPRESS_FLAG
    }
}

/// Converts the result of a post.
#[inline(always)]
fn posted(call: &'static str, code: DAT_RETURN) -> Result<(), Fault> {
    if code == 0 {
        Ok(())
    } else {
        Err(Fault::Call(call, DatReturn::from_bits(code)))
    }
}

/// Copies bytes of the library.
///
/// # Safety
/// `start` is null, or points to `length` readable bytes.
unsafe fn bytes(start: *const u8, length: DAT_COUNT) -> Vec<u8> {
    match usize::try_from(length) {
        Ok(length) if !start.is_null() => {
            // SAFETY: not null, so `length` bytes are readable.
            let bytes = unsafe { core::slice::from_raw_parts(start, length) };
            bytes.to_vec()
        }
        _ => Vec::new(),
    }
}
