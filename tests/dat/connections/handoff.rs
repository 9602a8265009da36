//! `dat_cr_handoff`: a request moves to another service point of the adapter.

use dat::abi::*;
use dat::exports::*;

use super::{end, established, exchange, set_parts};
use crate::support::{
    Fixture, ReservedPoint, ServicePoint, accept, arrival, cr_info, ep_info, expect, fails,
    fails_with, nothing_on, ok, state_of,
};

fn hand_off(cr: DAT_CR_HANDLE, qualifier: DAT_CONN_QUAL) -> DAT_RETURN {
    // SAFETY: the call validates its handles.
    unsafe { dat_cr_handoff(cr, qualifier) }
}

/// The request gets a new handle there, with the same content.
#[test]
fn the_request_arrives_at_the_other_point_and_is_gone_at_the_first() {
    let fixture = Fixture::new();
    let (service_point, other) = (ServicePoint::new(&fixture), ServicePoint::new(&fixture));
    let (active, passive) = (end(&fixture), end(&fixture));
    ok(service_point.connect(active.ep, b"whom?"));
    let cr = service_point.take_request();
    let before = cr_info(cr);
    ok(hand_off(cr, other.qualifier));
    fails_with(
        accept(cr, passive.ep),
        DAT_INVALID_HANDLE,
        DAT_INVALID_HANDLE_CR,
    );
    nothing_on(service_point.requests);
    let event = arrival(other.requests);
    assert_ne!(event.cr_handle, cr);
    assert_eq!(event.conn_qual, other.qualifier);
    // SAFETY: a union of handles.
    assert_eq!(unsafe { event.sp_handle.psp_handle }, other.psp);
    let after = cr_info(event.cr_handle);
    assert_eq!(after.remote_port_qual, before.remote_port_qual);
    // SAFETY: the library has reported this many bytes.
    let private_data = unsafe {
        std::slice::from_raw_parts(
            after.private_data.cast::<u8>(),
            after.private_data_size as usize,
        )
    };
    assert_eq!(private_data, b"whom?");
    // The first service point may be freed: it no longer holds the request.
    service_point.close();
    ok(accept(event.cr_handle, passive.ep));
    established([&active, &passive]);
    exchange(&fixture, &active, &passive);
}

/// Handed off twice, then rejected.
#[test]
fn a_request_can_be_handed_off_twice_and_rejected() {
    let fixture = Fixture::new();
    let service_points = [
        ServicePoint::new(&fixture),
        ServicePoint::new(&fixture),
        ServicePoint::new(&fixture),
    ];
    let active = end(&fixture);
    ok(service_points[0].connect(active.ep, &[]));
    let mut cr = service_points[0].take_request();
    for to in [1, 2, 0, 0] {
        ok(hand_off(cr, service_points[to].qualifier));
        cr = service_points[to].take_request();
    }
    // SAFETY: a live request.
    ok(unsafe { dat_cr_reject(cr) });
    expect(active.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
}

/// The endpoints that service points reserve or create, in both directions.
#[test]
fn each_point_has_endpoints_of_its_own() {
    let fixture = Fixture::new();
    let plain = ServicePoint::new(&fixture);
    // From a reserved point: its endpoint is unconnected again.
    let (active, passive) = (end(&fixture), end(&fixture));
    let point = ReservedPoint::new(&fixture, passive.ep);
    ok(point.service_point().connect(active.ep, &[]));
    let cr = arrival(point.requests).cr_handle;
    ok(hand_off(cr, plain.qualifier));
    assert_eq!(state_of(passive.ep), DAT_EP_STATE_UNCONNECTED);
    ok(point.free());
    // To a point that creates endpoints.
    let maker = ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG);
    let cr = plain.take_request();
    assert!(cr_info(cr).local_ep_handle.is_null());
    ok(hand_off(cr, maker.qualifier));
    let cr = maker.take_request();
    let made = cr_info(cr).local_ep_handle;
    assert_eq!(state_of(made), DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
    // From there to a reserved point: the created endpoint is freed.
    let point = ReservedPoint::new(&fixture, passive.ep);
    ok(hand_off(cr, point.qualifier));
    // SAFETY: the call validates its handles.
    fails(
        unsafe {
            dat_ep_get_status(
                made,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        },
        DAT_INVALID_HANDLE,
    );
    assert_eq!(
        state_of(passive.ep),
        DAT_EP_STATE_PASSIVE_CONNECTION_PENDING
    );
    let cr = arrival(point.requests).cr_handle;
    assert_eq!(cr_info(cr).local_ep_handle, passive.ep);
    // The reserved point is used up: nothing listens there any more.
    let (second, next) = (end(&fixture), end(&fixture));
    ok(plain.connect(second.ep, &[]));
    let other = plain.take_request();
    fails_with(
        hand_off(other, point.qualifier),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG2,
    );
    ok(accept(other, next.ep));
    established([&second, &next]);
    ok(accept(cr, DAT_HANDLE_NULL));
    established([&active, &passive]);
    exchange(&fixture, &passive, &active);
}

/// A request that is handed off to a point that creates endpoints gets one.
#[test]
fn an_endpoint_is_created_for_a_handed_off_request() {
    let fixture = Fixture::new();
    let (service_point, maker) = (
        ServicePoint::new(&fixture),
        ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG),
    );
    let active = end(&fixture);
    ok(service_point.connect(active.ep, &[]));
    ok(hand_off(service_point.take_request(), maker.qualifier));
    let cr = maker.take_request();
    let passive = set_parts(&fixture, cr_info(cr).local_ep_handle);
    ok(accept(cr, DAT_HANDLE_NULL));
    established([&active, &passive]);
    exchange(&fixture, &active, &passive);
}

/// The rows of `dat_cr_handoff` in section 8. A refused call leaves the request
/// unchanged.
#[test]
fn an_illegal_handoff_is_refused_and_leaves_the_request() {
    let fixture = Fixture::new();
    let (service_point, gone) = (ServicePoint::new(&fixture), ServicePoint::new(&fixture));
    gone.close();
    let full = fixture.evd(1, DAT_EVD_CR_FLAG | DAT_EVD_SOFTWARE_FLAG);
    let mut event = crate::support::blank();
    event.event_number = DAT_SOFTWARE_EVENT;
    // SAFETY: a live handle, a local event.
    while unsafe { dat_evd_post_se(full, &raw const event) } == DAT_SUCCESS {}
    let mut psp = std::ptr::null_mut();
    let crowded = crate::support::on_free_qualifier(|qualifier| {
        // SAFETY: live handles; the result is writable.
        unsafe {
            dat_psp_create(
                fixture.ia,
                qualifier,
                full,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        }
    });
    let (active, passive) = (end(&fixture), end(&fixture));
    ok(service_point.connect(active.ep, &[]));
    let cr = service_point.take_request();
    for (row, qualifier, kind, subtype) in [
        ("0", 0, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2),
        (
            "no service point listens",
            gone.qualifier,
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        ),
        (
            "no room in its EVD",
            crowded,
            DAT_INSUFFICIENT_RESOURCES,
            DAT_RESOURCE_MEMORY,
        ),
    ] {
        println!("{row}");
        fails_with(hand_off(cr, qualifier), kind, subtype);
    }
    for (row, handle) in [("null", DAT_HANDLE_NULL), ("an endpoint", active.ep)] {
        println!("{row}");
        fails_with(
            hand_off(handle, service_point.qualifier),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_CR,
        );
    }
    ok(accept(cr, passive.ep));
    established([&active, &passive]);
    // The request still names the first point's qualifier.
    assert_eq!(ep_info(passive.ep).local_port_qual, service_point.qualifier);
}

/// The requester leaves while its request is handed off.
#[test]
fn accepting_reports_that_the_requester_has_left() {
    let fixture = Fixture::new();
    let (service_point, other) = (ServicePoint::new(&fixture), ServicePoint::new(&fixture));
    let (active, passive) = (end(&fixture), end(&fixture));
    ok(service_point.connect(active.ep, &[]));
    let cr = service_point.take_request();
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_free(active.ep) });
    ok(hand_off(cr, other.qualifier));
    ok(accept(other.take_request(), passive.ep));
    expect(
        passive.connect,
        DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
    );
}
