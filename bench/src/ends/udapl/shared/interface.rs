//! A version's C calls as a measured API, called as a C program does: opening and connecting.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Duration;

use super::abi::*;
use super::adapter::{CONNECTION_EVENTS, count};
use super::end::{CEnd, Endpoint};
use super::events::{Queue, micros};
use super::memory::Memory;
use super::{Adapter, Libdat, control, has_atomics};
use crate::ends::dat::Dat;
use crate::ends::interface::Shape;
use crate::ends::probe::Probe;
use crate::ends::udapl::address::read_address;
use crate::failure::Failure;

/// An open adapter with a protection zone.
pub(crate) struct C {
    adapter: Rc<Adapter>,
    probe: Option<Probe>,
}

impl C {
    pub(crate) fn open(
        libdat: &Libdat,
        adapter: &str,
        thread_safe: bool,
        probe: Option<Probe>,
    ) -> Result<Self, Failure> {
        let adapter = Adapter::open(libdat, adapter, thread_safe)?;
        Ok(Self { adapter, probe })
    }
}

impl Dat for C {
    type End<const SHARED: bool> = CEnd<SHARED>;
    type Acceptor = Acceptor;

    fn address(&self) -> Result<SocketAddr, Failure> {
        let address = self.adapter.query()?.ia_address_ptr;
        // SAFETY: null, or the library's `sockaddr`, which lives as long as the IA.
        unsafe { read_address(address) }
            .ok_or_else(|| Failure::environment("dat_ia_query returned no IP address for the adapter; give one to its network interface"))
    }

    fn end<const SHARED: bool>(&self, shape: &Shape) -> Result<CEnd<SHARED>, Failure> {
        let adapter = &self.adapter;
        let calls = adapter.calls;
        let memory = Memory::register(adapter, shape.bytes)?;
        let received = adapter.queue(shape.received_completions, DAT_EVD_DTO_FLAG)?;
        let sent = adapter.queue(shape.sent_completions, DAT_EVD_DTO_FLAG)?;
        let connections = adapter.queue(CONNECTION_EVENTS, DAT_EVD_CONNECTION_FLAG)?;
        let attributes = attributes(&adapter.query()?, shape);
        let mut endpoint = Endpoint {
            ep: DAT_HANDLE_NULL,
            srq: DAT_HANDLE_NULL,
            calls,
        };
        // SAFETY: handles of this adapter; local attributes, which are read, and
        // local handles, which are written.
        unsafe {
            if SHARED {
                let mut wanted = DAT_SRQ_ATTR {
                    max_recv_dtos: count(shape.receives),
                    max_recv_iov: 1,
                    low_watermark: 0,
                };
                let srq = &raw mut endpoint.srq;
                let code = (calls.srq_create)(adapter.ia, adapter.pz, &raw mut wanted, srq);
                control("dat_srq_create", code)?;
                let code = (calls.ep_create_with_srq)(
                    adapter.ia,
                    adapter.pz,
                    received.evd,
                    sent.evd,
                    connections.evd,
                    endpoint.srq,
                    &raw const attributes,
                    &raw mut endpoint.ep,
                );
                control("dat_ep_create_with_srq", code)?;
            } else {
                let code = (calls.ep_create)(
                    adapter.ia,
                    adapter.pz,
                    received.evd,
                    sent.evd,
                    connections.evd,
                    &raw const attributes,
                    &raw mut endpoint.ep,
                );
                control("dat_ep_create", code)?;
            }
        }
        Ok(CEnd {
            has_atomics: has_atomics(adapter)?,
            endpoint,
            sent,
            received,
            connections,
            memory,
            probe: self.probe.clone(),
        })
    }

    fn listen(&self) -> Result<(Acceptor, u64), Failure> {
        let adapter = &self.adapter;
        let requests = adapter.queue(CONNECTION_EVENTS, DAT_EVD_CR_FLAG)?;
        let (mut qualifier, mut psp): (DAT_CONN_QUAL, DAT_PSP_HANDLE) = (0, DAT_HANDLE_NULL);
        // SAFETY: handles of this adapter; qualifier and handle are local variables that are written.
        let code = unsafe {
            (adapter.calls.psp_create_any)(
                adapter.ia,
                &raw mut qualifier,
                requests.evd,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        };
        control("dat_psp_create_any", code)?;
        Ok((Acceptor { psp, requests }, qualifier))
    }

    fn accept<const SHARED: bool>(
        &self,
        acceptor: Acceptor,
        end: &mut CEnd<SHARED>,
        within: Duration,
        private_data: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let calls = self.adapter.calls;
        let requests = &acceptor.requests;
        let event = requests.await_event(within, "a DAT connection request")?;
        if event.event_number != DAT_CONNECTION_REQUEST_EVENT {
            return Err(Failure::run(format!(
                "event 0x{:x} instead of a connection request",
                event.event_number
            )));
        }
        // SAFETY: the event number says that this member is valid.
        let request: DAT_CR_HANDLE = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
        let mut facts = MaybeUninit::<DAT_CR_PARAM>::zeroed();
        // SAFETY: a connection request; the parameters are a local variable that is written.
        let code = unsafe { (calls.cr_query)(request, DAT_CR_FIELD_ALL, facts.as_mut_ptr()) };
        control("dat_cr_query", code)?;
        // SAFETY: all zeros are a valid value, and the call has written it.
        let facts = unsafe { facts.assume_init() };
        // SAFETY: the bytes stay valid until the request is accepted or rejected.
        let theirs = unsafe { copied(facts.private_data.cast(), facts.private_data_size) };
        // SAFETY: a connection request, an EP, and bytes that are only read.
        let code = unsafe {
            (calls.cr_accept)(
                request,
                end.endpoint.ep,
                private_data.len() as DAT_COUNT,
                private_data.as_ptr().cast_mut().cast(),
            )
        };
        control("dat_cr_accept", code)?;
        Ok(theirs)
    }

    fn connect<const SHARED: bool>(
        &self,
        end: &mut CEnd<SHARED>,
        (host, qualifier): (SocketAddr, u64),
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure> {
        let address = socket2::SockAddr::from(host);
        // SAFETY: an EP; the address and the bytes are local, and only read.
        let code = unsafe {
            (self.adapter.calls.ep_connect)(
                end.endpoint.ep,
                address.as_ptr().cast_mut().cast(),
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

    fn established<const SHARED: bool>(
        &self,
        end: &mut CEnd<SHARED>,
        within: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let event = end.connections.await_event(within, "a DAT connection")?;
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
        Ok(unsafe { copied(data.private_data.cast(), data.private_data_size) })
    }
}

/// Returns endpoint attributes with the depths and segments of the run, and as
/// many RDMA reads in flight as the run needs, if the device has reads.
fn attributes(limits: &DAT_IA_ATTR, shape: &Shape) -> DAT_EP_ATTR {
    DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        max_message_size: limits.max_message_size,
        max_rdma_size: limits.max_rdma_size,
        qos: DAT_QOS_BEST_EFFORT,
        recv_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
        request_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
        max_recv_dtos: count(shape.receives),
        max_request_dtos: count(shape.sends),
        max_recv_iov: shape.segments,
        max_request_iov: shape.segments,
        max_rdma_read_in: limits.max_rdma_read_per_ep_in.min(shape.reads),
        max_rdma_read_out: limits.max_rdma_read_per_ep_out.min(shape.reads),
        srq_soft_hw: 0,
        max_rdma_read_iov: shape.segments,
        max_rdma_write_iov: shape.segments,
        ep_transport_specific_count: 0,
        ep_transport_specific: null_mut(),
        ep_provider_specific_count: 0,
        ep_provider_specific: null_mut(),
    }
}

/// Copies bytes of the library.
///
/// # Safety
/// `start` is null, or points to `length` readable bytes.
unsafe fn copied(start: *const u8, length: DAT_COUNT) -> Vec<u8> {
    match usize::try_from(length) {
        Ok(length) if !start.is_null() => {
            // SAFETY: not null, so `length` bytes are readable.
            let bytes = unsafe { core::slice::from_raw_parts(start, length) };
            bytes.to_vec()
        }
        _ => Vec::new(),
    }
}

/// A service point and the EVD of its connection requests.
pub(crate) struct Acceptor {
    psp: DAT_PSP_HANDLE,
    // Freed after the service point (see `Drop`).
    requests: Queue,
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // SAFETY: a PSP, freed once.
        unsafe { (self.requests.adapter.calls.psp_free)(self.psp) };
    }
}
