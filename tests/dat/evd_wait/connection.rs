//! Connection requests, and the private data of both sides.

use std::ptr;
use std::slice;

use dat::abi::*;
use dat::exports::*;

use super::LONG;
use crate::support::{
    End, Fixture, Memory, Pair, ServicePoint, Shape, abilities, expect, fails, fails_with,
    nothing_on, ok, reaches, state_of, take_dto,
};

/// Connects two endpoints. Returns the private data of the active side's event.
#[track_caller]
fn connect(
    service_point: &ServicePoint,
    [active, passive]: [End; 2],
    asked: &[u8],
    answered: &[u8],
) -> DAT_CONNECTION_EVENT_DATA {
    ok(service_point.connect(active.ep, asked));
    let cr = service_point.take_request();
    assert_eq!(asked_with(cr), asked);
    ok(accept(cr, passive.ep, answered));
    let of_passive = established(passive);
    assert_eq!(of_passive.private_data_size, 0);
    established(active)
}

fn accept(cr: DAT_CR_HANDLE, ep: DAT_EP_HANDLE, data: &[u8]) -> DAT_RETURN {
    // SAFETY: the data live until the call returns; the call validates its
    // handles.
    unsafe {
        dat_cr_accept(
            cr,
            ep,
            data.len() as DAT_COUNT,
            data.as_ptr().cast_mut().cast(),
        )
    }
}

#[track_caller]
fn established(end: End) -> DAT_CONNECTION_EVENT_DATA {
    let event = expect(end.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.connect_event_data };
    assert_eq!(data.ep_handle, end.ep);
    data
}

fn query(cr: DAT_CR_HANDLE, param: &mut DAT_CR_PARAM) -> DAT_RETURN {
    // SAFETY: the result is writable.
    unsafe { dat_cr_query(cr, DAT_CR_FIELD_ALL, ptr::from_mut(param)) }
}

fn no_param() -> DAT_CR_PARAM {
    // SAFETY: integers and pointers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Returns the private data that came with a request.
#[track_caller]
fn asked_with(cr: DAT_CR_HANDLE) -> Vec<u8> {
    let mut param = no_param();
    ok(query(cr, &mut param));
    bytes(param.private_data, param.private_data_size)
}

fn bytes(at: DAT_PVOID, size: DAT_COUNT) -> Vec<u8> {
    if size == 0 {
        return Vec::new();
    }
    // SAFETY: the library has reported this many bytes.
    unsafe { slice::from_raw_parts(at.cast::<u8>(), size as usize) }.to_vec()
}

fn data_of(data: &DAT_CONNECTION_EVENT_DATA) -> Vec<u8> {
    bytes(data.private_data, data.private_data_size)
}

/// Returns bytes that differ from each other as far as possible.
fn distinct_bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

fn max_private_data(fixture: &Fixture) -> usize {
    let (_, provider) = abilities(fixture);
    usize::try_from(provider.max_private_data_size).expect("a size")
}

/// Checks that every call refuses this request.
#[track_caller]
fn is_gone(cr: DAT_CR_HANDLE, ep: DAT_EP_HANDLE) {
    let mut param = no_param();
    fails(query(cr, &mut param), DAT_INVALID_HANDLE);
    assert!(param.private_data.is_null() && param.remote_ia_address_ptr.is_null());
    fails_with(
        accept(cr, ep, &[]),
        DAT_INVALID_HANDLE,
        DAT_INVALID_HANDLE_CR,
    );
    // SAFETY: the call validates its handles.
    unsafe {
        fails(dat_cr_reject(cr), DAT_INVALID_HANDLE);
        fails(dat_cr_handoff(cr, 1), DAT_INVALID_HANDLE);
    }
}

fn ends(fixture: &Fixture) -> [End; 2] {
    [(); 2].map(|()| End::new(fixture, &Shape::default()))
}

/// Returns both endpoints to Unconnected.
#[track_caller]
fn part(ends: [End; 2]) {
    // SAFETY: live endpoints.
    unsafe {
        ok(dat_ep_disconnect(ends[0].ep, DAT_CLOSE_ABRUPT_FLAG));
        for end in ends {
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            ok(dat_ep_reset(end.ep));
        }
    }
}

#[test]
fn evd_wait_w02_accepting_destroys_the_request() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [active, passive] = ends(&fixture);
    ok(service_point.connect(active.ep, b"please"));
    let cr = service_point.take_request();
    let spare = End::new(&fixture, &Shape::default());
    // A failed accept does not.
    fails(accept(cr, ptr::null_mut(), &[]), DAT_INVALID_HANDLE);
    fails(accept(cr, service_point.requests, &[]), DAT_INVALID_HANDLE);
    assert_eq!(asked_with(cr), b"please");
    ok(accept(cr, passive.ep, &[]));
    is_gone(cr, spare.ep);
    established(active);
    established(passive);
    is_gone(cr, spare.ep);
    assert_eq!(state_of(spare.ep), DAT_EP_STATE_UNCONNECTED);
    nothing_on(service_point.requests);
}

#[test]
fn evd_wait_w02_rejecting_destroys_the_request() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [active, spare] = ends(&fixture);
    ok(service_point.connect(active.ep, &[]));
    let cr = service_point.take_request();
    // SAFETY: a live request.
    ok(unsafe { dat_cr_reject(cr) });
    is_gone(cr, spare.ep);
    expect(active.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
    is_gone(cr, spare.ep);
}

/// However many requests come later, an old handle never names a new one.
#[test]
fn evd_wait_w02_the_handle_of_a_request_is_not_reused() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [active, spare] = ends(&fixture);
    let mut old = Vec::new();
    for _ in 0..25 {
        ok(service_point.connect(active.ep, &[]));
        let cr = service_point.take_request();
        assert!(!old.contains(&cr));
        for &gone in &old {
            is_gone(gone, spare.ep);
        }
        // The request is still valid after all that.
        ok(query(cr, &mut no_param()));
        // SAFETY: live handles.
        unsafe {
            ok(dat_cr_reject(cr));
            expect(active.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
            ok(dat_ep_reset(active.ep));
        }
        old.push(cr);
    }
}

/// `connections/handoff.rs` has more tests of `dat_cr_handoff`.
#[test]
fn evd_wait_w02_handing_off_destroys_the_request() {
    let fixture = Fixture::new();
    let (service_point, other) = (ServicePoint::new(&fixture), ServicePoint::new(&fixture));
    let [active, passive] = ends(&fixture);
    ok(service_point.connect(active.ep, b"whom?"));
    let cr = service_point.take_request();
    // SAFETY: a live request.
    ok(unsafe { dat_cr_handoff(cr, other.qualifier) });
    is_gone(cr, passive.ep);
    let cr = other.take_request();
    assert_eq!(asked_with(cr), b"whom?");
    ok(accept(cr, passive.ep, &[]));
    established(active);
    established(passive);
}

#[test]
fn evd_wait_w02_a_request_outlives_its_service_point() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [active, passive] = ends(&fixture);
    ok(service_point.connect(active.ep, b"late"));
    let cr = service_point.take_request();
    // SAFETY: live handles that are not used afterwards.
    unsafe {
        ok(dat_psp_free(service_point.psp));
        ok(dat_evd_free(service_point.requests));
    }
    assert_eq!(asked_with(cr), b"late");
    ok(accept(cr, passive.ep, &[]));
    established(active);
    established(passive);
}

#[test]
fn evd_wait_w03_w05_private_data_come_whole_to_the_active_side_only() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let ends = ends(&fixture);
    let most = max_private_data(&fixture);
    // The length that rdma_cm carries.
    assert!(most >= 56, "{most}");
    // In a request over rdma_cm, 4 bytes hold the length, unless the data fill
    // it.
    let short = most - 4;
    for (seed, len) in [0, 1, 2, most / 2, short, most].into_iter().enumerate() {
        for (asked, answered) in [(len, len), (short - len.min(short), len), (len, 0)] {
            let (asked, answered) = (
                distinct_bytes(asked, seed),
                distinct_bytes(answered, seed + 100),
            );
            let data = connect(&service_point, ends, &asked, &answered);
            assert_eq!(data.private_data_size as usize, answered.len());
            assert_eq!(data_of(&data), answered);
            part(ends);
        }
    }
}

#[test]
fn evd_wait_w03_either_endpoint_can_be_the_active_one() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let ends = ends(&fixture);
    for (active, passive) in [(0, 1), (1, 0), (0, 1)] {
        let data = connect(&service_point, [ends[active], ends[passive]], b"a", b"b");
        assert_eq!(data_of(&data), b"b");
        part(ends);
    }
}

/// The bytes are read at the address that the event reported, in every state in
/// which they must be valid, while other memory is allocated and freed.
#[test]
fn evd_wait_w04_private_data_stay_until_the_endpoint_is_unconnected() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let ends = ends(&fixture);
    let [active, passive] = ends;
    let memory = fixture.memory(4096);
    let most = max_private_data(&fixture);
    let answer = distinct_bytes(most, 3);
    let data = connect(&service_point, [active, passive], b"a", &answer);
    let stir = || {
        let others = self::ends(&fixture);
        for seed in 10..14 {
            let other = connect(
                &service_point,
                others,
                &distinct_bytes(most, seed),
                &[seed as u8],
            );
            assert_eq!(data_of(&other), [seed as u8]);
            part(others);
        }
        for end in others {
            // SAFETY: a live endpoint.
            ok(unsafe { dat_ep_free(end.ep) });
        }
        assert_eq!(data_of(&data), answer);
    };
    assert_eq!(state_of(active.ep), DAT_EP_STATE_CONNECTED);
    stir();
    transfer(&fixture, ends, &memory);
    assert_eq!(data_of(&data), answer);
    // A send for which the peer has no buffer delays the graceful disconnect.
    ok(active.post_send(&[memory.segment(0, 8)], 2, DAT_COMPLETION_DEFAULT_FLAG));
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_disconnect(active.ep, DAT_CLOSE_GRACEFUL_FLAG) });
    assert_eq!(state_of(active.ep), DAT_EP_STATE_DISCONNECT_PENDING);
    assert_eq!(data_of(&data), answer);
    ok(passive.post_recv(&[memory.segment(1024, 8)], 2));
    fixture.run();
    expect(active.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_eq!(state_of(active.ep), DAT_EP_STATE_DISCONNECTED);
    stir();
    // A reset ends their lifetime: the next connection has its own private data.
    expect(passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    for end in ends {
        // SAFETY: live endpoints.
        ok(unsafe { dat_ep_reset(end.ep) });
    }
    let data = connect(&service_point, [active, passive], b"a", b"another");
    assert_eq!(data_of(&data), b"another");
    // Freeing the endpoint ends it in any state, after which the data must not be
    // read. SAFETY: a live endpoint.
    ok(unsafe { dat_ep_free(active.ep) });
    reaches(passive.ep, DAT_EP_STATE_DISCONNECTED);
}

/// Transfers a message and takes its completions.
fn transfer(fixture: &Fixture, [from, to]: [End; 2], memory: &Memory) {
    ok(to.post_recv(&[memory.segment(1024, 8)], 1));
    ok(from.post_send(&[memory.segment(0, 8)], 1, DAT_COMPLETION_DEFAULT_FLAG));
    fixture.run();
    assert_eq!(take_dto(to.recv).status, DAT_DTO_SUCCESS);
    assert_eq!(take_dto(from.request).status, DAT_DTO_SUCCESS);
}

#[test]
fn evd_wait_w04_private_data_of_the_active_side_outlive_the_peer() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [active, passive] = ends(&fixture);
    let answer = distinct_bytes(max_private_data(&fixture), 9);
    let data = connect(&service_point, [active, passive], &[], &answer);
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_free(passive.ep) });
    expect(active.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_eq!(data_of(&data), answer);
}

#[test]
fn evd_wait_w05_too_much_private_data_is_refused_and_changes_nothing() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [active, passive] = ends(&fixture);
    let most = max_private_data(&fixture);
    let long = distinct_bytes(most + 1, 1);
    fails_with(
        service_point.connect(active.ep, &long),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG5,
    );
    assert_eq!(state_of(active.ep), DAT_EP_STATE_UNCONNECTED);
    nothing_on(active.connect);
    ok(service_point.connect(active.ep, &long[..most]));
    let cr = service_point.take_request();
    assert_eq!(asked_with(cr), long[..most]);
    fails_with(
        accept(cr, passive.ep, &long),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG3,
    );
    assert_eq!(state_of(passive.ep), DAT_EP_STATE_UNCONNECTED);
    assert_eq!(asked_with(cr), long[..most]);
    ok(accept(cr, passive.ep, &long[..most]));
    assert_eq!(data_of(&established(active)), long[..most]);
    established(passive);
    nothing_on(service_point.requests);
}

#[test]
fn evd_wait_w05_invalid_private_data_are_refused() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [active, passive] = ends(&fixture);
    let mut address = Pair::address();
    let mut ask = |size, data| {
        // SAFETY: the address is live; the call must not read the data.
        unsafe {
            dat_ep_connect(
                active.ep,
                (&raw mut address).cast(),
                service_point.qualifier,
                LONG,
                size,
                data,
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_DEFAULT_FLAG,
            )
        }
    };
    let mut byte = 1_u8;
    let at = (&raw mut byte).cast();
    fails(ask(-1, at), DAT_INVALID_PARAMETER);
    fails(ask(1, ptr::null_mut()), DAT_INVALID_PARAMETER);
    assert_eq!(state_of(active.ep), DAT_EP_STATE_UNCONNECTED);
    ok(ask(0, ptr::null_mut()));
    let cr = service_point.take_request();
    // SAFETY: the call must not read the data.
    unsafe {
        fails(dat_cr_accept(cr, passive.ep, -1, at), DAT_INVALID_PARAMETER);
        fails(
            dat_cr_accept(cr, passive.ep, 1, ptr::null_mut()),
            DAT_INVALID_PARAMETER,
        );
    }
    ok(accept(cr, passive.ep, &[]));
    established(active);
    established(passive);
}

/// `connections/dup_connect.rs` has more tests of `dat_ep_dup_connect`.
#[test]
fn evd_wait_w05_private_data_of_a_dup_connect_are_refused_or_come_whole() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [model, peer] = ends(&fixture);
    connect(&service_point, [model, peer], &[], &[]);
    let like = End::new(&fixture, &Shape::default());
    let dup_connect = |data: &[u8]| {
        // SAFETY: live handles and data.
        unsafe {
            dat_ep_dup_connect(
                like.ep,
                model.ep,
                LONG,
                data.len() as DAT_COUNT,
                data.as_ptr().cast_mut().cast(),
                DAT_QOS_BEST_EFFORT,
            )
        }
    };
    let most = max_private_data(&fixture);
    fails_with(
        dup_connect(&distinct_bytes(most + 1, 3)),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG4,
    );
    assert_eq!(state_of(like.ep), DAT_EP_STATE_UNCONNECTED);
    nothing_on(service_point.requests);
    ok(dup_connect(&distinct_bytes(most, 3)));
    assert_eq!(
        asked_with(service_point.take_request()),
        distinct_bytes(most, 3)
    );
}

/// Overwrites what was passed to a call.
fn overwrite(data: &mut [u8]) {
    data.fill(0xff);
    std::hint::black_box(data);
}

/// Section 4.3: each call has copied the private data when it returns.
#[test]
fn evd_wait_w05_the_bytes_may_be_overwritten_on_return() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let mut model = ptr::null_mut();
    for is_dup in [false, true] {
        println!("by dat_ep_dup_connect: {is_dup}");
        let [active, passive] = ends(&fixture);
        let (whole, answer) = (
            distinct_bytes(max_private_data(&fixture), 3),
            distinct_bytes(40, 5),
        );
        let mut data = whole.clone();
        ok(match is_dup {
            false => service_point.connect(active.ep, &data),
            // SAFETY: live handles, and data of this size.
            true => unsafe {
                dat_ep_dup_connect(
                    active.ep,
                    model,
                    LONG,
                    data.len() as DAT_COUNT,
                    data.as_mut_ptr().cast(),
                    DAT_QOS_BEST_EFFORT,
                )
            },
        });
        overwrite(&mut data);
        let cr = service_point.take_request();
        assert_eq!(asked_with(cr), whole);
        let mut data = answer.clone();
        ok(accept(cr, passive.ep, &data));
        overwrite(&mut data);
        assert_eq!(data_of(&established(active)), answer);
        established(passive);
        model = active.ep;
    }
}
