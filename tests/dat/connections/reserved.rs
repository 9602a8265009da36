//! Reserved service points: `dat_rsp_create`, `dat_rsp_query`, `dat_rsp_free`.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{end, established, exchange, set_parts};
use crate::support::{
    Fixture, ReservedPoint, ServicePoint, accept, arrival, cr_info, ep_info, expect, fails,
    fails_with, here_ip, ip_at, nothing_on, ok, state_of,
};

const UNCONNECTED: DAT_EP_STATE = DAT_EP_STATE_UNCONNECTED;
const RESERVED: DAT_EP_STATE = DAT_EP_STATE_RESERVED;
const PASSIVE: DAT_EP_STATE = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING;

#[test]
fn a_request_names_the_reserved_endpoint() {
    let fixture = Fixture::new();
    let (active, passive) = (end(&fixture), end(&fixture));
    let point = ReservedPoint::new(&fixture, passive.ep);
    assert_eq!(state_of(passive.ep), RESERVED);
    let info = point.info();
    assert_eq!(
        (
            info.ia_handle,
            info.conn_qual,
            info.evd_handle,
            info.ep_handle
        ),
        (fixture.ia, point.qualifier, point.requests, passive.ep)
    );
    ok(point.service_point().connect(active.ep, b"for you"));
    let event = arrival(point.requests);
    assert_eq!(
        (event.conn_qual, ip_at(event.local_ia_address_ptr)),
        (point.qualifier, here_ip())
    );
    // SAFETY: a union of handles.
    assert_eq!(unsafe { event.sp_handle.rsp_handle }, point.rsp);
    assert_eq!(state_of(passive.ep), PASSIVE);
    let info = cr_info(event.cr_handle);
    assert_eq!(
        (info.local_ep_handle, info.private_data_size),
        (passive.ep, 7)
    );
    let here = ep_info(passive.ep);
    for remote in [info.remote_ia_address_ptr, here.remote_ia_address_ptr] {
        assert_eq!(ip_at(remote), here_ip());
    }
    assert_eq!(
        (here.remote_port_qual, here.local_port_qual),
        (info.remote_port_qual, point.qualifier)
    );
    // No other endpoint can accept the request, and this endpoint must not be
    // named explicitly.
    let other = end(&fixture);
    for ep in [other.ep, passive.ep] {
        fails_with(
            accept(event.cr_handle, ep),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        );
    }
    ok(accept(event.cr_handle, DAT_HANDLE_NULL));
    established([&active, &passive]);
    exchange(&fixture, &active, &passive);
    exchange(&fixture, &passive, &active);
    ok(point.free());
    fails_with(point.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
}

#[test]
fn a_request_uses_the_service_point_up() {
    let mut fixture = Fixture::new();
    let (active, passive, late) = (end(&fixture), end(&fixture), end(&fixture));
    let point = ReservedPoint::new(&fixture, passive.ep);
    ok(point.service_point().connect(active.ep, &[]));
    let cr = arrival(point.requests).cr_handle;
    ok(point.service_point().connect(late.ep, &[]));
    expect(late.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    nothing_on(point.requests);
    // The service point no longer uses EVD, qualifier or adapter. SAFETY: live
    // handles.
    unsafe {
        ok(dat_evd_free(point.requests));
        ok(dat_cr_reject(cr));
    }
    expect(active.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
    assert_eq!(state_of(passive.ep), UNCONNECTED);
    let requests = fixture.evd(4, DAT_EVD_CR_FLAG);
    let mut psp = ptr::null_mut();
    // SAFETY: live handles; the result is writable. Everything that was created
    // is freed.
    unsafe {
        ok(dat_psp_create(
            fixture.ia,
            point.qualifier,
            requests,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        ));
        ok(dat_psp_free(psp));
        ok(dat_evd_free(requests));
        for end in [active, passive, late] {
            ok(dat_ep_free(end.ep));
            for evd in [end.recv, end.request, end.connect] {
                ok(dat_evd_free(evd));
            }
        }
        ok(dat_pz_free(fixture.pz));
    }
    ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
}

#[test]
fn rejected_the_endpoint_is_the_consumers_and_can_be_reserved_again() {
    let fixture = Fixture::new();
    let passive = end(&fixture);
    for round in 0..3 {
        let active = end(&fixture);
        let point = ReservedPoint::new(&fixture, passive.ep);
        ok(point.service_point().connect(active.ep, &[]));
        let cr = arrival(point.requests).cr_handle;
        if round < 2 {
            // SAFETY: a live request.
            ok(unsafe { dat_cr_reject(cr) });
            expect(active.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
            assert_eq!(state_of(passive.ep), UNCONNECTED);
        } else {
            ok(accept(cr, DAT_HANDLE_NULL));
            established([&active, &passive]);
        }
        ok(point.free());
    }
}

#[test]
fn freed_before_a_request_it_releases_the_endpoint() {
    let fixture = Fixture::new();
    let (active, passive) = (end(&fixture), end(&fixture));
    let point = ReservedPoint::new(&fixture, passive.ep);
    ok(point.free());
    assert_eq!(state_of(passive.ep), UNCONNECTED);
    ok(point.service_point().connect(active.ep, &[]));
    expect(active.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    nothing_on(point.requests);
    fails_with(point.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
    // SAFETY: live handles.
    unsafe {
        ok(dat_evd_free(point.requests));
        ok(dat_ep_free(passive.ep));
    }
}

#[test]
fn a_request_without_an_endpoint_brings_one() {
    let fixture = Fixture::new();
    let (active, late) = (end(&fixture), end(&fixture));
    let point = ReservedPoint::new(&fixture, DAT_HANDLE_NULL);
    assert!(point.info().ep_handle.is_null());
    ok(point.service_point().connect(active.ep, &[]));
    let cr = arrival(point.requests).cr_handle;
    let brought = cr_info(cr).local_ep_handle;
    assert_eq!(state_of(brought), DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
    ok(point.service_point().connect(late.ep, &[]));
    expect(late.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    let passive = set_parts(&fixture, brought);
    ok(accept(cr, DAT_HANDLE_NULL));
    established([&active, &passive]);
    exchange(&fixture, &active, &passive);
    ok(point.free());
}

/// If the EVD has no room, the request is refused, and the service point keeps
/// waiting.
#[test]
fn a_full_evd_refuses_and_the_point_stays() {
    let fixture = Fixture::new();
    let passive = end(&fixture);
    let requests = fixture.evd(1, DAT_EVD_CR_FLAG | DAT_EVD_SOFTWARE_FLAG);
    let mut rsp = ptr::null_mut();
    let qualifier = crate::support::on_free_qualifier(|qualifier| {
        // SAFETY: live handles; the result is writable.
        unsafe { dat_rsp_create(fixture.ia, qualifier, passive.ep, requests, &raw mut rsp) }
    });
    let mut event = crate::support::blank();
    event.event_number = DAT_SOFTWARE_EVENT;
    let mut posted = 0;
    // SAFETY: a live handle, a local event.
    while unsafe { dat_evd_post_se(requests, &raw const event) } == DAT_SUCCESS {
        posted += 1;
    }
    let service_point = ServicePoint {
        psp: rsp,
        qualifier,
        requests,
    };
    let active = end(&fixture);
    ok(service_point.connect(active.ep, &[]));
    expect(active.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    assert_eq!(state_of(passive.ep), RESERVED);
    for _ in 0..posted {
        expect(requests, DAT_SOFTWARE_EVENT);
    }
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_reset(active.ep) });
    ok(service_point.connect(active.ep, &[]));
    ok(accept(service_point.take_request(), DAT_HANDLE_NULL));
    established([&active, &passive]);
}

/// The rows of `dat_rsp_create` in section 8 that need more than one handle.
/// libdat's `face` tests cover wrong handles and a null result.
#[test]
fn an_illegal_call_is_refused_and_leaves_the_endpoint_unchanged() {
    let fixture = Fixture::new();
    let passive = end(&fixture);
    let service_point = ServicePoint::new(&fixture);
    let deaf = fixture.evd(4, DAT_EVD_DTO_FLAG);
    let mut rsp = ptr::without_provenance_mut(0x77);
    let mut create = |qualifier, ep, evd| {
        // SAFETY: live handles; the result is writable.
        unsafe { dat_rsp_create(fixture.ia, qualifier, ep, evd, &raw mut rsp) }
    };
    let rows = [
        (
            "no qualifier",
            create(0, passive.ep, service_point.requests),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        ),
        (
            "a qualifier in use",
            create(service_point.qualifier, passive.ep, service_point.requests),
            DAT_CONN_QUAL_IN_USE,
            DAT_NO_SUBTYPE,
        ),
        (
            "an EVD without the flag",
            create(service_point.qualifier, passive.ep, deaf),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EVD_CR,
        ),
    ];
    for (row, answer, kind, subtype) in rows {
        println!("{row}");
        fails_with(answer, kind, subtype);
    }
    assert_eq!(state_of(passive.ep), UNCONNECTED);
    let point = ReservedPoint::new(&fixture, passive.ep);
    // SAFETY: live handles; the result is writable.
    let again = unsafe {
        dat_rsp_create(
            fixture.ia,
            point.qualifier,
            passive.ep,
            point.requests,
            &raw mut rsp,
        )
    };
    fails_with(again, DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED);
    assert_eq!(rsp.addr(), 0x77);
    // SAFETY: live handles.
    unsafe {
        fails_with(
            dat_evd_free(point.requests),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_EVD_IN_USE,
        );
        fails(dat_ep_free(passive.ep), DAT_INVALID_STATE);
    }
}

/// An abrupt close of the adapter frees everything, in every state.
#[test]
fn an_abrupt_close_ends_it_in_every_state() {
    for requested in [false, true] {
        let mut fixture = Fixture::new();
        let (active, passive) = (end(&fixture), end(&fixture));
        let point = ReservedPoint::new(&fixture, passive.ep);
        if requested {
            ok(point.service_point().connect(active.ep, &[]));
            arrival(point.requests);
        }
        fails_with(
            fixture.close(DAT_CLOSE_GRACEFUL_FLAG),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_IA_IN_USE,
        );
        ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
        fails_with(point.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
    }
}
