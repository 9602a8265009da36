//! Every state of the endpoint.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{DEFAULT, message};
use crate::support::{
    End, Fixture, Memory, Pair, ReservedPoint, ServicePoint, Shape, accept, ep_info, expect,
    fails_with, held, nothing_on, ok, reaches, state_of,
};

/// Posts a buffer, which must be accepted and must not complete.
#[track_caller]
fn stays(fixture: &Fixture, end: &End, memory: &Memory, tag: u64, state: DAT_EP_STATE) {
    assert_eq!(state_of(end.ep), state);
    ok(end.post_recv(&[memory.segment(1024, 64)], tag));
    fixture.run();
    nothing_on(end.recv);
}

#[test]
fn ep_post_recv_r08_buffers_wait_from_unconnected_on() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let shape = Shape::default();
    let (active, passive) = (End::new(&fixture, &shape), End::new(&fixture, &shape));
    let service_point = ServicePoint::new(&fixture);
    for end in [active, passive] {
        stays(&fixture, &end, &memory, 1, DAT_EP_STATE_UNCONNECTED);
    }
    ok(service_point.connect(active.ep, &[]));
    stays(
        &fixture,
        &active,
        &memory,
        2,
        DAT_EP_STATE_ACTIVE_CONNECTION_PENDING,
    );
    let request = service_point.take_request();
    // SAFETY: live handles.
    ok(unsafe { dat_cr_accept(request, passive.ep, 0, ptr::null_mut()) });
    // Completion Pending, or already Connected.
    ok(passive.post_recv(&[memory.segment(1024, 64)], 2));
    expect(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    for end in [active, passive] {
        stays(&fixture, &end, &memory, 3, DAT_EP_STATE_CONNECTED);
    }
    for (from, to) in [(active, passive), (passive, active)] {
        for tag in 1..=3 {
            let received = message(&fixture, &from, &to, &[memory.segment(0, 8)]);
            assert_eq!((received.cookie, received.status), (tag, DAT_DTO_SUCCESS));
        }
        nothing_on(to.recv);
    }
    service_point.close();
}

/// The requester has left, so the endpoint stays pending until that is detected.
#[test]
fn ep_post_recv_r08_in_completion_pending() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let shape = Shape::default();
    let (active, passive) = (End::new(&fixture, &shape), End::new(&fixture, &shape));
    let service_point = ServicePoint::new(&fixture);
    ok(service_point.connect(active.ep, &[]));
    let request = service_point.take_request();
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(active.ep));
        ok(dat_cr_accept(request, passive.ep, 0, ptr::null_mut()));
    }
    // Still pending, or disconnected: the receive is accepted in both, and
    // flushed in the end.
    ok(passive.post_recv(&[memory.segment(1024, 64)], 1));
    expect(
        passive.connect,
        DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
    );
    fixture.run();
    let received = passive.received();
    assert_eq!((received.cookie, received.status), (1, DAT_DTO_ERR_FLUSHED));
    nothing_on(passive.recv);
    service_point.close();
}

#[test]
fn ep_post_recv_r08_in_reserved_and_passive_connection_pending() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let shape = Shape::default();
    let (active, passive) = (End::new(&fixture, &shape), End::new(&fixture, &shape));
    let point = ReservedPoint::new(&fixture, passive.ep);
    stays(&fixture, &passive, &memory, 1, DAT_EP_STATE_RESERVED);
    ok(point.service_point().connect(active.ep, &[]));
    let request = point.service_point().take_request();
    let state = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING;
    stays(&fixture, &passive, &memory, 2, state);
    ok(accept(request, DAT_HANDLE_NULL));
    expect(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    for tag in 1..=2 {
        let received = message(&fixture, &active, &passive, &[memory.segment(0, 8)]);
        assert_eq!((received.cookie, received.status), (tag, DAT_DTO_SUCCESS));
    }
    ok(point.free());
}

/// The endpoint that a request brings has no zone until one is set.
#[test]
fn ep_post_recv_r08_in_tentative_connection_pending() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let shape = Shape::default();
    let active = End::new(&fixture, &shape);
    let service_point = ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG);
    ok(service_point.connect(active.ep, &[]));
    let request = service_point.take_request();
    let mut passive = End::without_ep(&fixture, &shape);
    // SAFETY: live handles; results and values are ours.
    unsafe {
        let mut info: DAT_CR_PARAM = std::mem::zeroed();
        ok(dat_cr_query(request, DAT_CR_FIELD_ALL, &raw mut info));
        passive.ep = info.local_ep_handle;
        assert_eq!(
            state_of(passive.ep),
            DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING
        );
        fails_with(
            passive.post_recv(&[memory.segment(1024, 64)], 1),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_EP_PZ,
        );
        let mut change = ep_info(passive.ep);
        change.pz_handle = fixture.pz;
        change.recv_evd_handle = passive.recv;
        change.request_evd_handle = passive.request;
        change.connect_evd_handle = passive.connect;
        ok(dat_ep_modify(
            passive.ep,
            DAT_EP_FIELD_PZ_HANDLE
                | DAT_EP_FIELD_RECV_EVD_HANDLE
                | DAT_EP_FIELD_REQUEST_EVD_HANDLE
                | DAT_EP_FIELD_CONNECT_EVD_HANDLE,
            &raw const change,
        ));
        stays(
            &fixture,
            &passive,
            &memory,
            1,
            DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING,
        );
        ok(dat_cr_accept(request, DAT_HANDLE_NULL, 0, ptr::null_mut()));
    }
    expect(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let received = message(&fixture, &active, &passive, &[memory.segment(0, 8)]);
    assert_eq!((received.cookie, received.status), (1, DAT_DTO_SUCCESS));
    service_point.close();
}

#[test]
fn ep_post_recv_r08_in_disconnect_pending() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    ok(from.post_recv(&[memory.segment(1024, 64)], 1));
    // The peer has no buffer yet, so the send stays outstanding.
    ok(from.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(from.ep, DAT_CLOSE_GRACEFUL_FLAG) });
    assert_eq!(state_of(from.ep), DAT_EP_STATE_DISCONNECT_PENDING);
    ok(from.post_recv(&[memory.segment(1024, 64)], 2));
    assert_eq!(held(from.ep), (2, 2));
    nothing_on(from.recv);
    ok(to.post_recv(&[memory.segment(1024, 64)], 9));
    fixture.run();
    assert_eq!(to.received().status, DAT_DTO_SUCCESS);
    expect(from.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    fixture.run();
    for tag in [1, 2] {
        let received = from.received();
        assert_eq!(
            (received.cookie, received.status),
            (tag, DAT_DTO_ERR_FLUSHED)
        );
    }
    let sent = from.requested();
    assert_eq!((sent.cookie, sent.status), (1, DAT_DTO_SUCCESS));
}

#[test]
fn ep_post_recv_r08_in_disconnected_buffers_are_flushed_at_once_and_last() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    for tag in [1, 2] {
        ok(to.post_recv(&[memory.segment(1024, 64)], tag));
    }
    ok(from.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
    fixture.run();
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(to.ep, DAT_CLOSE_ABRUPT_FLAG) });
    reaches(to.ep, DAT_EP_STATE_DISCONNECTED);
    // A marker: its completion is the last.
    ok(to.post_recv(&[], 3));
    ok(to.post_recv(&[memory.segment(1024, 64)], 4));
    fixture.run();
    for (tag, status) in [
        (1, DAT_DTO_SUCCESS),
        (2, DAT_DTO_ERR_FLUSHED),
        (3, DAT_DTO_ERR_FLUSHED),
        (4, DAT_DTO_ERR_FLUSHED),
    ] {
        let received = to.received();
        assert_eq!((received.cookie, received.status), (tag, status));
    }
    // Any number of times: each completion makes room for the next.
    for tag in 10..60 {
        ok(to.post_recv(&[memory.segment(1024, 64)], tag));
        fixture.run();
        let received = to.received();
        assert_eq!(
            (received.cookie, received.status),
            (tag, DAT_DTO_ERR_FLUSHED)
        );
    }
    nothing_on(to.recv);
}

#[test]
fn ep_post_recv_r08_after_a_refused_attempt() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let service_point = ServicePoint::new(&fixture);
    let end = End::new(&fixture, &Shape::default());
    ok(end.post_recv(&[memory.segment(1024, 64)], 1));
    ok(service_point.connect(end.ep, &[]));
    let request = service_point.take_request();
    // SAFETY: a live handle.
    ok(unsafe { dat_cr_reject(request) });
    expect(end.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
    ok(end.post_recv(&[memory.segment(1024, 64)], 2));
    fixture.run();
    for tag in [1, 2] {
        let received = end.received();
        assert_eq!(
            (received.cookie, received.status),
            (tag, DAT_DTO_ERR_FLUSHED)
        );
    }
    service_point.close();
}

/// Without a reset in between, a second cycle of posts works like the first.
#[test]
fn ep_post_recv_r08_after_a_reset_buffers_wait_again() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    ok(pair.passive.post_recv(&[memory.segment(1024, 64)], 1));
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG));
        for end in [pair.active, pair.passive] {
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            fixture.run();
            ok(dat_ep_reset(end.ep));
        }
    }
    stays(
        &fixture,
        &pair.passive,
        &memory,
        2,
        DAT_EP_STATE_UNCONNECTED,
    );
    let pair = Pair::connect(&fixture, pair.active, pair.passive);
    let received = message(
        &fixture,
        &pair.active,
        &pair.passive,
        &[memory.segment(0, 8)],
    );
    assert_eq!((received.cookie, received.status), (2, DAT_DTO_SUCCESS));
    nothing_on(pair.passive.recv);
}
