//! A public service point, and requests to it.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Fixture, Pair, expect, ok};

/// A public service point and the EVD of its requests.
#[derive(Clone, Copy, Debug)]
pub struct ServicePoint {
    pub psp: DAT_PSP_HANDLE,
    pub qualifier: DAT_CONN_QUAL,
    pub requests: DAT_EVD_HANDLE,
}

// SAFETY: handles are numbers.
unsafe impl Sync for ServicePoint {}

impl ServicePoint {
    /// Creates a service point whose requests bring no endpoint.
    pub fn new(fixture: &Fixture) -> Self {
        Self::of_kind(fixture, DAT_PSP_CONSUMER_FLAG)
    }

    /// Creates a service point of this kind, on an unused qualifier.
    pub fn of_kind(fixture: &Fixture, flags: DAT_PSP_FLAGS) -> Self {
        let requests = fixture.evd(8, DAT_EVD_CR_FLAG);
        let (mut qualifier, mut psp) = (0, ptr::null_mut());
        // SAFETY: live handles; results are writable.
        ok(unsafe {
            dat_psp_create_any(
                fixture.ia,
                &raw mut qualifier,
                requests,
                flags,
                &raw mut psp,
            )
        });
        Self {
            psp,
            qualifier,
            requests,
        }
    }

    /// Calls `dat_ep_connect` with this service point, and a timeout of a
    /// minute.
    pub fn connect(&self, ep: DAT_EP_HANDLE, private_data: &[u8]) -> DAT_RETURN {
        self.connect_within(ep, 60_000_000, private_data)
    }

    /// Like [`Self::connect`], with a timeout in microseconds.
    pub fn connect_within(
        &self,
        ep: DAT_EP_HANDLE,
        timeout: DAT_TIMEOUT,
        private_data: &[u8],
    ) -> DAT_RETURN {
        let mut address = Pair::address();
        // SAFETY: address and data live until the call returns.
        unsafe {
            dat_ep_connect(
                ep,
                (&raw mut address).cast(),
                self.qualifier,
                timeout,
                private_data.len() as DAT_COUNT,
                private_data.as_ptr().cast_mut().cast(),
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_DEFAULT_FLAG,
            )
        }
    }

    /// Takes the request, which must come.
    #[track_caller]
    pub fn take_request(&self) -> DAT_CR_HANDLE {
        let event = expect(self.requests, DAT_CONNECTION_REQUEST_EVENT);
        // SAFETY: the event number selects this member.
        unsafe { event.event_data.cr_arrival_event_data.cr_handle }
    }

    /// Calls `dat_psp_free`.
    pub fn free(&self) -> DAT_RETURN {
        // SAFETY: the call validates its handles.
        unsafe { dat_psp_free(self.psp) }
    }

    /// Frees the service point and its EVD.
    pub fn close(self) {
        // SAFETY: live handles.
        unsafe {
            ok(dat_psp_free(self.psp));
            ok(dat_evd_free(self.requests));
        }
    }
}
