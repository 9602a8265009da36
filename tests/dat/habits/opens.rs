//! One EVD for the connections of several opens of an adapter, as dapltest's limit test has it.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, ServicePoint, Shape, accept, ep_info, established, expect, fails_with, ok,
};

/// Creates an endpoint with the EVDs of `end`.
fn create(fixture: &Fixture, end: &mut End) -> DAT_RETURN {
    let attributes = Shape::default().attributes();
    // SAFETY: live handles; attributes and result are local.
    unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            &raw const attributes,
            &raw mut end.ep,
        )
    }
}

fn listen(fixture: &Fixture, requests: DAT_EVD_HANDLE) -> Result<ServicePoint, DAT_RETURN> {
    let (mut psp, mut qualifier) = (ptr::null_mut(), 0);
    let flags = DAT_PSP_CONSUMER_FLAG;
    // SAFETY: live handles; results are writable.
    let answer = unsafe {
        dat_psp_create_any(
            fixture.ia,
            &raw mut qualifier,
            requests,
            flags,
            &raw mut psp,
        )
    };
    match answer {
        DAT_SUCCESS => Ok(ServicePoint {
            psp,
            qualifier,
            requests,
        }),
        refused => Err(refused),
    }
}

#[test]
fn connections_report_to_an_evd_of_another_open() {
    let own = Fixture::new();
    let mut other = own.beside(ptr::null_mut());
    let connect = other.evd(8, DAT_EVD_CONNECTION_FLAG);
    let point = listen(&own, other.evd(8, DAT_EVD_CR_FLAG)).expect("accepted");
    let mut ends = [(); 2].map(|()| End::without_ep(&own, &Shape::default()));
    for end in &mut ends {
        end.connect = connect;
        ok(create(&own, end));
    }
    ok(point.connect(ends[0].ep, &[]));
    ok(accept(point.take_request(), ends[1].ep));
    for _ in &ends {
        expect(connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    // The EVD is in use, and its IA can end before the endpoints.
    // SAFETY: the call validates its handle.
    let answer = unsafe { dat_evd_free(connect) };
    fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
    ok(other.close(DAT_CLOSE_ABRUPT_FLAG));
    // SAFETY: the calls validate their handles.
    unsafe {
        ok(dat_ep_disconnect(ends[0].ep, DAT_CLOSE_ABRUPT_FLAG));
        while ep_info(ends[1].ep).ep_state == DAT_EP_STATE_CONNECTED {
            std::thread::yield_now();
        }
        ok(dat_psp_free(point.psp));
        ends.iter().for_each(|end| ok(dat_ep_free(end.ep)));
    }
    drop(other);
    // The first open works as before.
    let ends = [(); 2].map(|()| End::new(&own, &Shape::default()));
    let point = ServicePoint::new(&own);
    ok(point.connect(ends[0].ep, &[]));
    ok(accept(point.take_request(), ends[1].ep));
    established([&ends[0], &ends[1]]);
}

#[test]
fn strict_connections_report_to_evds_of_their_own_open() {
    let own = Fixture::strict();
    let other = own.beside(ptr::null_mut());
    let mut end = End::without_ep(&own, &Shape::default());
    end.connect = other.evd(8, DAT_EVD_CONNECTION_FLAG);
    let answer = create(&own, &mut end);
    fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CONN);
    let answer = listen(&own, other.evd(8, DAT_EVD_CR_FLAG)).expect_err("refused");
    fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
}

/// Completion queues belong to one open of the device.
#[test]
fn completions_report_to_evds_of_their_own_open() {
    let own = Fixture::new();
    let other = own.beside(ptr::null_mut());
    for (at, subtype) in [DAT_INVALID_HANDLE_EVD_RECV, DAT_INVALID_HANDLE_EVD_REQUEST]
        .into_iter()
        .enumerate()
    {
        let mut end = End::without_ep(&own, &Shape::default());
        let foreign = other.evd(8, DAT_EVD_DTO_FLAG);
        *[&mut end.recv, &mut end.request][at] = foreign;
        fails_with(create(&own, &mut end), DAT_INVALID_HANDLE, subtype);
    }
}
