//! A reserved service point, and the request to it.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use dat::abi::*;
use dat::exports::*;

use super::{Fixture, ServicePoint, expect, ok};

/// A reserved service point and the EVD of its request.
#[derive(Clone, Copy, Debug)]
pub struct ReservedPoint {
    pub rsp: DAT_RSP_HANDLE,
    pub qualifier: DAT_CONN_QUAL,
    pub requests: DAT_EVD_HANDLE,
}

// SAFETY: handles are numbers.
unsafe impl Sync for ReservedPoint {}

/// Repeats a call with different qualifiers until it succeeds with an unused one.
#[track_caller]
pub fn on_free_qualifier(mut call: impl FnMut(DAT_CONN_QUAL) -> DAT_RETURN) -> DAT_CONN_QUAL {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..100 {
        // Other processes usually begin elsewhere.
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let qualifier = 20_011 + (u64::from(std::process::id()) * 37 + step) % 12_000;
        match call(qualifier) {
            answer if answer & 0x3fff_0000 == DAT_CONN_QUAL_IN_USE => {}
            answer => {
                ok(answer);
                return qualifier;
            }
        }
    }
    panic!("no qualifier is free");
}

impl ReservedPoint {
    /// Creates a service point for an endpoint, or, with a null one, for the
    /// endpoint of the request.
    #[track_caller]
    pub fn new(fixture: &Fixture, ep: DAT_EP_HANDLE) -> Self {
        let requests = fixture.evd(8, DAT_EVD_CR_FLAG);
        let mut rsp = ptr::null_mut();
        let qualifier = on_free_qualifier(|qualifier| {
            // SAFETY: live handles, or null; the result is writable.
            unsafe { dat_rsp_create(fixture.ia, qualifier, ep, requests, &raw mut rsp) }
        });
        Self {
            rsp,
            qualifier,
            requests,
        }
    }

    /// Returns the service point in the form that requests are made to.
    pub fn service_point(&self) -> ServicePoint {
        ServicePoint {
            psp: self.rsp,
            qualifier: self.qualifier,
            requests: self.requests,
        }
    }

    /// Calls `dat_rsp_query`.
    pub fn info(&self) -> DAT_RSP_PARAM {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut info = unsafe { mem::zeroed() };
        // SAFETY: the result is writable.
        ok(unsafe { dat_rsp_query(self.rsp, DAT_RSP_FIELD_ALL, &raw mut info) });
        info
    }

    /// Calls `dat_rsp_free`.
    pub fn free(&self) -> DAT_RETURN {
        // SAFETY: the call validates its handles.
        unsafe { dat_rsp_free(self.rsp) }
    }
}

/// Takes the request event, which must come.
#[track_caller]
pub fn arrival(requests: DAT_EVD_HANDLE) -> DAT_CR_ARRIVAL_EVENT_DATA {
    let event = expect(requests, DAT_CONNECTION_REQUEST_EVENT);
    // SAFETY: the event number selects this member.
    unsafe { event.event_data.cr_arrival_event_data }
}

/// Returns the results of `dat_cr_query`.
#[track_caller]
pub fn cr_info(cr: DAT_CR_HANDLE) -> DAT_CR_PARAM {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut info = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_cr_query(cr, DAT_CR_FIELD_ALL, &raw mut info) });
    info
}

/// Calls `dat_cr_accept` without private data.
pub fn accept(cr: DAT_CR_HANDLE, ep: DAT_EP_HANDLE) -> DAT_RETURN {
    // SAFETY: the call validates its handles; no data.
    unsafe { dat_cr_accept(cr, ep, 0, ptr::null_mut()) }
}
