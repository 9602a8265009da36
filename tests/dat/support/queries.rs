//! Queries of objects.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Fixture, ok};

/// Returns all fields of an endpoint.
pub fn ep_info(ep: DAT_EP_HANDLE) -> DAT_EP_PARAM {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut info = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_ep_query(ep, DAT_EP_FIELD_ALL, &raw mut info) });
    info
}

/// Returns all fields of an EVD.
pub fn evd_info(evd: DAT_EVD_HANDLE) -> DAT_EVD_PARAM {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut info = unsafe { mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_evd_query(evd, DAT_EVD_FIELD_ALL, &raw mut info) });
    info
}

/// Calls `dat_ep_recv_query`. Returns the number of buffers and their span.
#[track_caller]
pub fn held(ep: DAT_EP_HANDLE) -> (DAT_COUNT, DAT_COUNT) {
    let (mut allocated, mut span) = (-77, -77);
    // SAFETY: both results are writable.
    ok(unsafe { dat_ep_recv_query(ep, &raw mut allocated, &raw mut span) });
    (allocated, span)
}

/// Returns the attributes of the adapter and of the provider.
pub fn abilities(fixture: &Fixture) -> (DAT_IA_ATTR, DAT_PROVIDER_ATTR) {
    // SAFETY: integers and pointers, for which zero is valid.
    let (mut adapter, mut provider) = unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: the results are writable; the EVD is not asked for.
    ok(unsafe {
        dat_ia_query(
            fixture.ia,
            ptr::null_mut(),
            DAT_IA_FIELD_ALL,
            &raw mut adapter,
            DAT_PROVIDER_FIELD_ALL,
            &raw mut provider,
        )
    });
    (adapter, provider)
}
