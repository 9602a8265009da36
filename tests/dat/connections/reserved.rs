//! Reserved service points: `dat_rsp_create`, `dat_rsp_query`, `dat_rsp_free`.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{end, established, furnish, talk};
use crate::support::{
    Bed, Door, Point, accept, arrival, cr_info, ep_info, expect, fails, fails_with, here_ip, ip_at,
    nothing_on, ok, state_of,
};

const UNCONNECTED: DAT_EP_STATE = DAT_EP_STATE_UNCONNECTED;
const RESERVED: DAT_EP_STATE = DAT_EP_STATE_RESERVED;
const PASSIVE: DAT_EP_STATE = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING;

#[test]
fn a_request_comes_for_the_endpoint_that_is_reserved() {
    let bed = Bed::new();
    let (active, passive) = (end(&bed), end(&bed));
    let point = Point::new(&bed, passive.ep);
    assert_eq!(state_of(passive.ep), RESERVED);
    let info = point.info();
    assert_eq!(
        (
            info.ia_handle,
            info.conn_qual,
            info.evd_handle,
            info.ep_handle
        ),
        (bed.ia, point.qualifier, point.requests, passive.ep)
    );
    ok(point.door().knock(active.ep, b"for you"));
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
    let other = end(&bed);
    for ep in [other.ep, passive.ep] {
        fails_with(
            accept(event.cr_handle, ep),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        );
    }
    ok(accept(event.cr_handle, DAT_HANDLE_NULL));
    established([&active, &passive]);
    talk(&bed, &active, &passive);
    talk(&bed, &passive, &active);
    ok(point.free());
    fails_with(point.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
}

#[test]
fn a_request_uses_the_service_point_up() {
    let mut bed = Bed::new();
    let (active, passive, late) = (end(&bed), end(&bed), end(&bed));
    let point = Point::new(&bed, passive.ep);
    ok(point.door().knock(active.ep, &[]));
    let cr = arrival(point.requests).cr_handle;
    ok(point.door().knock(late.ep, &[]));
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
    let requests = bed.evd(4, DAT_EVD_CR_FLAG);
    let mut psp = ptr::null_mut();
    // SAFETY: live handles; the result is writable. Everything that was created
    // is freed.
    unsafe {
        ok(dat_psp_create(
            bed.ia,
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
        ok(dat_pz_free(bed.pz));
    }
    ok(bed.close(DAT_CLOSE_GRACEFUL_FLAG));
}

#[test]
fn rejected_the_endpoint_is_the_consumers_and_can_be_reserved_again() {
    let bed = Bed::new();
    let passive = end(&bed);
    for round in 0..3 {
        let active = end(&bed);
        let point = Point::new(&bed, passive.ep);
        ok(point.door().knock(active.ep, &[]));
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
    let bed = Bed::new();
    let (active, passive) = (end(&bed), end(&bed));
    let point = Point::new(&bed, passive.ep);
    ok(point.free());
    assert_eq!(state_of(passive.ep), UNCONNECTED);
    ok(point.door().knock(active.ep, &[]));
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
fn without_an_endpoint_the_request_brings_one() {
    let bed = Bed::new();
    let (active, late) = (end(&bed), end(&bed));
    let point = Point::new(&bed, DAT_HANDLE_NULL);
    assert!(point.info().ep_handle.is_null());
    ok(point.door().knock(active.ep, &[]));
    let cr = arrival(point.requests).cr_handle;
    let brought = cr_info(cr).local_ep_handle;
    assert_eq!(state_of(brought), DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
    ok(point.door().knock(late.ep, &[]));
    expect(late.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    let passive = furnish(&bed, brought);
    ok(accept(cr, DAT_HANDLE_NULL));
    established([&active, &passive]);
    talk(&bed, &active, &passive);
    ok(point.free());
}

/// If the EVD has no room, the request is refused, and the service point keeps
/// waiting.
#[test]
fn a_full_evd_refuses_and_the_point_stays() {
    let bed = Bed::new();
    let passive = end(&bed);
    let requests = bed.evd(1, DAT_EVD_CR_FLAG | DAT_EVD_SOFTWARE_FLAG);
    let mut rsp = ptr::null_mut();
    let qualifier = crate::support::on_free_qualifier(|qualifier| {
        // SAFETY: live handles; the result is writable.
        unsafe { dat_rsp_create(bed.ia, qualifier, passive.ep, requests, &raw mut rsp) }
    });
    let mut event = crate::support::blank();
    event.event_number = DAT_SOFTWARE_EVENT;
    let mut posted = 0;
    // SAFETY: a live handle, a local event.
    while unsafe { dat_evd_post_se(requests, &raw const event) } == DAT_SUCCESS {
        posted += 1;
    }
    let door = Door {
        psp: rsp,
        qualifier,
        requests,
    };
    let active = end(&bed);
    ok(door.knock(active.ep, &[]));
    expect(active.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    assert_eq!(state_of(passive.ep), RESERVED);
    for _ in 0..posted {
        expect(requests, DAT_SOFTWARE_EVENT);
    }
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_reset(active.ep) });
    ok(door.knock(active.ep, &[]));
    ok(accept(door.opens(), DAT_HANDLE_NULL));
    established([&active, &passive]);
}

/// The rows of `dat_rsp_create` in section 8 that need more than one handle.
/// libdat's `face` tests cover wrong handles and a null result.
#[test]
fn an_illegal_call_is_refused_and_leaves_the_endpoint_unchanged() {
    let bed = Bed::new();
    let passive = end(&bed);
    let door = Door::new(&bed);
    let deaf = bed.evd(4, DAT_EVD_DTO_FLAG);
    let mut rsp = ptr::without_provenance_mut(0x77);
    let mut create = |qualifier, ep, evd| {
        // SAFETY: live handles; the result is writable.
        unsafe { dat_rsp_create(bed.ia, qualifier, ep, evd, &raw mut rsp) }
    };
    let rows = [
        (
            "no qualifier",
            create(0, passive.ep, door.requests),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        ),
        (
            "a qualifier in use",
            create(door.qualifier, passive.ep, door.requests),
            DAT_CONN_QUAL_IN_USE,
            DAT_NO_SUBTYPE,
        ),
        (
            "an EVD without the flag",
            create(door.qualifier, passive.ep, deaf),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EVD_CR,
        ),
    ];
    for (row, answer, kind, subtype) in rows {
        println!("{row}");
        fails_with(answer, kind, subtype);
    }
    assert_eq!(state_of(passive.ep), UNCONNECTED);
    let point = Point::new(&bed, passive.ep);
    // SAFETY: live handles; the result is writable.
    let again = unsafe {
        dat_rsp_create(
            bed.ia,
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
        let mut bed = Bed::new();
        let (active, passive) = (end(&bed), end(&bed));
        let point = Point::new(&bed, passive.ep);
        if requested {
            ok(point.door().knock(active.ep, &[]));
            arrival(point.requests);
        }
        fails_with(
            bed.close(DAT_CLOSE_GRACEFUL_FLAG),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_IA_IN_USE,
        );
        ok(bed.close(DAT_CLOSE_ABRUPT_FLAG));
        fails_with(point.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
    }
}
