//! Transitions that the application causes from each state in which an endpoint
//! can stay: the next state, the event, and the outcome of posted receives.

use dat::abi::*;
use dat::exports::*;

use super::staging::{EndpointInState, STATES};
use crate::support::{
    End, Fixture, Pair, ReservedPoint, ServicePoint, Shape, Window, accept, cr_info, dequeue,
    device, dto, expect, fails, fails_with, held, nothing_on, ok, reaches, state_of, take_bound,
};

const UNCONNECTED: DAT_EP_STATE = DAT_EP_STATE_UNCONNECTED;
const ACTIVE: DAT_EP_STATE = DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
const PASSIVE: DAT_EP_STATE = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING;
const TENTATIVE: DAT_EP_STATE = DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING;
const CONNECTED: DAT_EP_STATE = DAT_EP_STATE_CONNECTED;
const PENDING: DAT_EP_STATE = DAT_EP_STATE_DISCONNECT_PENDING;
const DISCONNECTED: DAT_EP_STATE = DAT_EP_STATE_DISCONNECTED;
const COMPLETION: DAT_EP_STATE = DAT_EP_STATE_COMPLETION_PENDING;

const ABRUPT: DAT_CLOSE_FLAGS = DAT_CLOSE_ABRUPT_FLAG;
const GRACEFUL: DAT_CLOSE_FLAGS = DAT_CLOSE_GRACEFUL_FLAG;

fn disconnect(end: &End, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
    // SAFETY: a live endpoint.
    unsafe { dat_ep_disconnect(end.ep, flags) }
}

/// Checks that the posted receive is flushed.
#[track_caller]
fn flushed(end: &End, tag: u64) {
    let event = device::comes(|| dequeue(end.recv).ok()).expect("a completion");
    let found = dto(&event);
    assert_eq!((found.cookie, found.status), (tag, DAT_DTO_ERR_FLUSHED));
}

/// Leaves a state by a disconnect. Checks the immediate event, the event of the
/// peer, and the final event.
fn by_disconnect(from: DAT_EP_STATE, flags: DAT_CLOSE_FLAGS) {
    println!("state {from}, flags {flags}");
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, from);
    let memory = fixture.memory(64);
    let end = staged.end;
    let is_over = from == DISCONNECTED;
    ok(end.post_recv(&[memory.segment(0, 8)], 5));
    ok(disconnect(&end, flags));
    if (from, flags) == (PENDING, GRACEFUL) {
        // A second disconnect has no effect.
        fixture.run();
        assert_eq!(state_of(end.ep), PENDING);
        nothing_on(end.connect);
        ok(disconnect(&end, ABRUPT));
    }
    if is_over {
        nothing_on(end.connect);
    } else {
        expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
    assert_eq!(state_of(end.ep), DISCONNECTED);
    if [CONNECTED, PENDING].contains(&from) {
        // The peer is checked before this end is reset or freed.
        let peer = staged.peer.expect("connected");
        expect(peer.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        assert_eq!(state_of(peer.ep), DISCONNECTED);
        nothing_on(peer.connect);
    }
    fixture.run();
    flushed(&end, 5);
    nothing_on(end.recv);
    // No further event.
    for flags in [GRACEFUL, ABRUPT] {
        ok(disconnect(&end, flags));
    }
    nothing_on(end.connect);
    // Back to the initial state. SAFETY: a live endpoint.
    ok(unsafe { dat_ep_reset(end.ep) });
    assert_eq!(state_of(end.ep), UNCONNECTED);
}

#[test]
fn every_state_is_left_by_a_disconnect_where_that_is_legal() {
    for from in [ACTIVE, CONNECTED, PENDING, DISCONNECTED] {
        for flags in [ABRUPT, GRACEFUL] {
            by_disconnect(from, flags);
        }
    }
}

/// A separate test: the fixture for this state needs the socket connection
/// manager.
#[test]
fn completion_pending_is_left_by_a_disconnect() {
    for flags in [ABRUPT, GRACEFUL] {
        by_disconnect(COMPLETION, flags);
    }
}

/// The row "refused otherwise": no service point listens, or its EVD has no room.
#[test]
fn active_refused_otherwise_flushes_posted_receives() {
    for has_listener in [false, true] {
        println!("a service point listens: {has_listener}");
        let fixture = Fixture::new();
        let memory = fixture.memory(64);
        let end = super::end(&fixture);
        let service_point = match has_listener {
            true => full(&fixture),
            false => {
                let service_point = ServicePoint::new(&fixture);
                service_point.close();
                service_point
            }
        };
        for tag in 0..3 {
            ok(end.post_recv(&[memory.segment(0, 8)], tag));
        }
        ok(service_point.connect(end.ep, &[]));
        expect(end.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
        assert_eq!(state_of(end.ep), DISCONNECTED);
        fixture.run();
        for tag in 0..3 {
            flushed(&end, tag);
        }
        nothing_on(end.recv);
        nothing_on(end.connect);
    }
}

/// A service point whose EVD has no room for a request.
fn full(fixture: &Fixture) -> ServicePoint {
    let requests = fixture.evd(1, DAT_EVD_CR_FLAG | DAT_EVD_SOFTWARE_FLAG);
    let (mut qualifier, mut psp) = (0, std::ptr::null_mut());
    let mut event = crate::support::blank();
    event.event_number = DAT_SOFTWARE_EVENT;
    // SAFETY: live handles; results are writable; a local event.
    unsafe {
        ok(dat_psp_create_any(
            fixture.ia,
            &raw mut qualifier,
            requests,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        ));
        while dat_evd_post_se(requests, &raw const event) == DAT_SUCCESS {}
    }
    ServicePoint {
        psp,
        qualifier,
        requests,
    }
}

/// Loopback has no route to a link-local address.
#[test]
fn active_without_a_route_to_the_host_reports_unreachable() {
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, UNCONNECTED);
    let (end, memory) = (staged.end, fixture.memory(64));
    ok(end.post_recv(&[memory.segment(0, 8)], 9));
    // SAFETY: integers, for which zero is valid.
    let mut nowhere: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    nowhere.sin6_family = libc::AF_INET6 as libc::sa_family_t;
    nowhere.sin6_addr.s6_addr = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).octets();
    nowhere.sin6_scope_id = 1;
    // SAFETY: the address live until the call returns; no private data.
    let answer = unsafe {
        dat_ep_connect(
            end.ep,
            (&raw mut nowhere).cast(),
            2000,
            10_000_000,
            0,
            std::ptr::null_mut(),
            DAT_QOS_BEST_EFFORT,
            DAT_CONNECT_DEFAULT_FLAG,
        )
    };
    if answer != DAT_SUCCESS {
        eprintln!("SKIPPED: a host without IPv6 says so at once");
        fails(answer, DAT_INVALID_ADDRESS);
        assert_eq!(state_of(end.ep), UNCONNECTED);
        return;
    }
    expect(end.connect, DAT_CONNECTION_EVENT_UNREACHABLE);
    assert_eq!(state_of(end.ep), DISCONNECTED);
    fixture.run();
    flushed(&end, 9);
}

/// A graceful disconnect completes outstanding requests first, binds included.
#[test]
fn connected_a_graceful_disconnect_completes_a_bind() {
    let fixture = Fixture::new();
    if !fixture.is_stepped() {
        eprintln!("SKIPPED: a bind stays outstanding on a stepped device only");
        return;
    }
    let Pair { active: end, .. } = Pair::for_windows(&fixture, &Shape::default());
    let (memory, window) = (fixture.memory(64), Window::new(fixture.pz));
    window.bind(
        end.ep,
        &memory.segment(0, 64),
        DAT_MEM_PRIV_REMOTE_READ_FLAG,
        7,
    );
    ok(disconnect(&end, GRACEFUL));
    assert_eq!(state_of(end.ep), PENDING);
    nothing_on(end.request);
    nothing_on(end.connect);
    fixture.run();
    let bound = take_bound(end.request);
    assert_eq!((bound.cookie, bound.status), (7, DAT_DTO_SUCCESS));
    expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_eq!(state_of(end.ep), DISCONNECTED);
}

/// Both ends report an abrupt disconnect, whichever of them calls it.
#[test]
fn connected_the_peer_gets_the_event_of_a_disconnect() {
    for flags in [ABRUPT, GRACEFUL] {
        let fixture = Fixture::new();
        let staged = EndpointInState::new(&fixture, CONNECTED);
        let peer = staged.peer.expect("connected");
        ok(disconnect(&peer, flags));
        for end in [staged.end, peer] {
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            assert_eq!(state_of(end.ep), DISCONNECTED);
        }
    }
}

/// A reset in Unconnected keeps posted receives.
#[test]
fn unconnected_a_reset_changes_nothing() {
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, UNCONNECTED);
    let memory = fixture.memory(64);
    ok(staged.end.post_recv(&[memory.segment(0, 8)], 1));
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_reset(staged.end.ep) });
    assert_eq!(held(staged.end.ep), (1, 1));
    nothing_on(staged.end.recv);
}

/// Frees the endpoint in a state where that is legal. The handle becomes invalid,
/// and a peer gets its event.
fn freed_in(state: DAT_EP_STATE) {
    println!("state {state}");
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, state);
    // SAFETY: live at the first call; the call validates the handle at the
    // second.
    unsafe {
        ok(dat_ep_free(staged.end.ep));
        fails_with(
            dat_ep_free(staged.end.ep),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        );
        fails(dat_ep_reset(staged.end.ep), DAT_INVALID_HANDLE);
    }
    if state == CONNECTED || state == PENDING {
        let peer = staged.peer.expect("connected");
        expect(peer.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
    // Its EVDs are no longer in use.
    for evd in [staged.end.recv, staged.end.request, staged.end.connect] {
        // SAFETY: a live EVD.
        ok(unsafe { dat_evd_free(evd) });
    }
}

#[test]
fn it_is_freed_in_every_state_where_that_is_legal() {
    for state in [UNCONNECTED, ACTIVE, CONNECTED, PENDING, DISCONNECTED] {
        assert!(STATES.contains(&state));
        freed_in(state);
    }
}

/// A separate test, as above.
#[test]
fn it_is_freed_in_completion_pending() {
    freed_in(COMPLETION);
}

/// A request on a reserved endpoint is accepted with a null endpoint handle, and
/// is pending until the requester is ready.
#[test]
fn passive_it_is_accepted_and_then_pending_or_connected() {
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, PASSIVE);
    let cr = staged.cr.expect("a request");
    ok(accept(cr, DAT_HANDLE_NULL));
    // SAFETY: the call validates its handles.
    let again = unsafe { dat_cr_reject(cr) };
    fails_with(again, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
    let state = state_of(staged.end.ep);
    assert!([COMPLETION, CONNECTED].contains(&state), "state {state}");
    reaches(staged.end.ep, CONNECTED);
    let peer = staged.peer.expect("a requester");
    super::established([&peer, &staged.end]);
}

/// After an accept with a null endpoint handle, the request's endpoint is in
/// Completion Pending until the requester reports that it is ready. The request's
/// handle is invalid at once.
#[test]
fn completion_pending_follows_an_acceptance_without_a_name() {
    for from in [PASSIVE, TENTATIVE] {
        println!("state {from}");
        let fixture = Fixture::new();
        let reserved = super::end(&fixture);
        let service_point = match from {
            PASSIVE => ReservedPoint::new(&fixture, reserved.ep).service_point(),
            _ => ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG),
        };
        let (_peer, _proxy) = EndpointInState::connect_without_answer(&fixture, &service_point);
        let cr = service_point.take_request();
        let ep = cr_info(cr).local_ep_handle;
        assert_eq!(state_of(ep), from);
        let end = match from {
            PASSIVE => reserved,
            _ => super::set_parts(&fixture, ep),
        };
        ok(accept(cr, DAT_HANDLE_NULL));
        assert_eq!((end.ep, state_of(end.ep)), (ep, COMPLETION));
        nothing_on(end.connect);
        let gone = |answer| fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
        gone(accept(cr, DAT_HANDLE_NULL));
        // SAFETY: the call validates its handles.
        gone(unsafe { dat_cr_reject(cr) });
    }
}
