//! Two endpoints of one adapter, connected through its connection manager.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Dto, Fixture, cookie, device, expect, here, ok, take_dto};

/// The attributes that endpoints are created with.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub recvs: DAT_COUNT,
    pub requests: DAT_COUNT,
    pub iov: DAT_COUNT,
    pub evd_qlen: DAT_COUNT,
    pub recv_flags: DAT_COMPLETION_FLAGS,
    pub request_flags: DAT_COMPLETION_FLAGS,
    pub reads: DAT_COUNT,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            recvs: 16,
            requests: 16,
            iov: 4,
            evd_qlen: 32,
            recv_flags: DAT_COMPLETION_DEFAULT_FLAG,
            request_flags: DAT_COMPLETION_DEFAULT_FLAG,
            reads: 4,
        }
    }
}

impl Shape {
    /// Returns the endpoint attributes for this shape.
    pub fn attributes(&self) -> DAT_EP_ATTR {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut attr: DAT_EP_ATTR = unsafe { mem::zeroed() };
        attr.service_type = DAT_SERVICE_TYPE_RC;
        attr.max_message_size = 1 << 20;
        attr.max_rdma_size = 1 << 20;
        attr.qos = DAT_QOS_BEST_EFFORT;
        attr.recv_completion_flags = self.recv_flags;
        attr.request_completion_flags = self.request_flags;
        attr.max_recv_dtos = self.recvs;
        attr.max_request_dtos = self.requests;
        attr.max_recv_iov = self.iov;
        attr.max_request_iov = self.iov;
        attr.max_rdma_read_in = self.reads;
        attr.max_rdma_read_out = self.reads;
        attr.srq_soft_hw = DAT_HW_DEFAULT;
        attr.max_rdma_read_iov = if device::installed::is_iwarp() {
            1
        } else {
            self.iov
        };
        attr.max_rdma_write_iov = self.iov;
        attr
    }
}

/// An endpoint and its EVDs.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub ep: DAT_EP_HANDLE,
    pub recv: DAT_EVD_HANDLE,
    pub request: DAT_EVD_HANDLE,
    pub connect: DAT_EVD_HANDLE,
}

// SAFETY: handles are numbers.
unsafe impl Send for End {}
// SAFETY: as above.
unsafe impl Sync for End {}

impl End {
    /// Creates an endpoint and its EVDs.
    pub fn new(fixture: &Fixture, shape: &Shape) -> Self {
        Self::with_attributes(fixture, shape, &shape.attributes())
    }

    /// Like [`Self::new`], with these attributes.
    pub fn with_attributes(fixture: &Fixture, shape: &Shape, attributes: &DAT_EP_ATTR) -> Self {
        let mut end = Self::without_ep(fixture, shape);
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                ptr::from_ref(attributes),
                &raw mut end.ep,
            )
        });
        end
    }

    /// Creates an endpoint on a shared receive queue, and its EVDs.
    pub fn on_srq(fixture: &Fixture, shape: &Shape, srq: DAT_SRQ_HANDLE) -> Self {
        Self::without_ep(fixture, shape).and_ep_on_srq(fixture, shape, srq)
    }

    /// Creates an endpoint on a shared receive queue that reports to these EVDs.
    pub fn and_ep_on_srq(self, fixture: &Fixture, shape: &Shape, srq: DAT_SRQ_HANDLE) -> Self {
        let mut end = self;
        let mut attributes = shape.attributes();
        attributes.max_recv_dtos = DAT_HW_DEFAULT;
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create_with_srq(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                srq,
                &raw const attributes,
                &raw mut end.ep,
            )
        });
        end
    }

    /// Creates only the EVDs.
    pub fn without_ep(fixture: &Fixture, shape: &Shape) -> Self {
        Self {
            ep: ptr::null_mut(),
            recv: fixture.evd(shape.evd_qlen, DAT_EVD_DTO_FLAG),
            request: fixture.evd(shape.evd_qlen, DAT_EVD_DTO_FLAG),
            connect: fixture.evd(8, DAT_EVD_CONNECTION_FLAG),
        }
    }

    /// Calls `dat_ep_post_recv` with the default flag.
    pub fn post_recv(&self, iov: &[DAT_LMR_TRIPLET], tag: u64) -> DAT_RETURN {
        // SAFETY: the array has as many elements as given; the tests keep the
        // memory.
        unsafe {
            dat_ep_post_recv(
                self.ep,
                iov.len() as DAT_COUNT,
                iov.as_ptr().cast_mut(),
                cookie(tag),
                DAT_COMPLETION_DEFAULT_FLAG,
            )
        }
    }

    /// Calls `dat_ep_post_send`.
    pub fn post_send(
        &self,
        iov: &[DAT_LMR_TRIPLET],
        tag: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        // SAFETY: as above.
        unsafe {
            dat_ep_post_send(
                self.ep,
                iov.len() as DAT_COUNT,
                iov.as_ptr().cast_mut(),
                cookie(tag),
                flags,
            )
        }
    }

    /// Calls `dat_ep_post_rdma_write`.
    pub fn post_write(
        &self,
        iov: &[DAT_LMR_TRIPLET],
        remote: &DAT_RMR_TRIPLET,
        tag: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        // SAFETY: as above.
        unsafe {
            dat_ep_post_rdma_write(
                self.ep,
                iov.len() as DAT_COUNT,
                iov.as_ptr().cast_mut(),
                cookie(tag),
                ptr::from_ref(remote),
                flags,
            )
        }
    }

    /// Calls `dat_ep_post_rdma_read`.
    pub fn post_read(
        &self,
        iov: &[DAT_LMR_TRIPLET],
        remote: &DAT_RMR_TRIPLET,
        tag: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        // SAFETY: as above.
        unsafe {
            dat_ep_post_rdma_read(
                self.ep,
                iov.len() as DAT_COUNT,
                iov.as_ptr().cast_mut(),
                cookie(tag),
                ptr::from_ref(remote),
                flags,
            )
        }
    }

    /// Takes the receive that must have completed.
    #[track_caller]
    pub fn received(&self) -> Dto {
        take_dto(self.recv)
    }

    /// Takes the request that must have completed.
    #[track_caller]
    pub fn requested(&self) -> Dto {
        take_dto(self.request)
    }
}

/// Two connected endpoints: `active` connected, `passive` accepted.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub active: End,
    pub passive: End,
}

impl Pair {
    /// Connects two new endpoints with separate receive queues.
    pub fn new(fixture: &Fixture, shape: &Shape) -> Self {
        Self::connect(fixture, End::new(fixture, shape), End::new(fixture, shape))
    }

    /// Connects two endpoints.
    pub fn connect(fixture: &Fixture, active: End, passive: End) -> Self {
        let requests = fixture.evd(8, DAT_EVD_CR_FLAG);
        let (mut qualifier, mut psp) = (0, ptr::null_mut());
        // SAFETY: live handles; results are writable; no private data.
        unsafe {
            ok(dat_psp_create_any(
                fixture.ia,
                &raw mut qualifier,
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            ));
            let mut address = Self::address();
            ok(dat_ep_connect(
                active.ep,
                (&raw mut address).cast(),
                qualifier,
                60_000_000,
                0,
                ptr::null_mut(),
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_DEFAULT_FLAG,
            ));
            let arrival = expect(requests, DAT_CONNECTION_REQUEST_EVENT);
            let cr = arrival.event_data.cr_arrival_event_data.cr_handle;
            ok(dat_cr_accept(cr, passive.ep, 0, ptr::null_mut()));
            expect(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
            expect(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
            ok(dat_psp_free(psp));
            ok(dat_evd_free(requests));
        }
        Self { active, passive }
    }

    /// Returns the address that the endpoints of this adapter connect to.
    pub fn address() -> libc::sockaddr_storage {
        here()
    }
}
