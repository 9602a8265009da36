//! Several connections of one endpoint, one after the other.

use std::ptr;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Call, DEFAULT, send};
use crate::support::{
    End, Fixture, Memory, Pair, ReservedPoint, ServicePoint, Shape, accept, arrival, dequeue,
    ep_info, expect, fails, fails_with, held, nothing_on, ok, post_srq, reaches, srq, srq_info,
    state_of,
};

/// Sends one message from an end to the endpoint on the queue.
#[track_caller]
fn one_message(
    fixture: &Fixture,
    from: &End,
    to: &End,
    queue: DAT_SRQ_HANDLE,
    memory: &mut Memory,
) {
    ok(post_srq(queue, &[memory.segment(1024, 8)], 42));
    send(fixture, from, memory, 43);
    assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
    let received = to.received();
    assert_eq!(
        (received.ep, received.cookie, received.status),
        (to.ep, 42, DAT_DTO_SUCCESS)
    );
}

/// Disconnects. Both ends get an event, and both are reset.
#[track_caller]
fn part(fixture: &Fixture, pair: &Pair, flags: DAT_CLOSE_FLAGS) {
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_disconnect(pair.active.ep, flags));
        for end in [pair.active, pair.passive] {
            fixture.run();
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        }
        for end in [pair.active, pair.passive] {
            ok(dat_ep_reset(end.ep));
            assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
        }
    }
}

#[test]
fn ep_create_with_srq_e05_a_reset_keeps_the_queue_and_only_a_free_releases_it() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let end = End::on_srq(&fixture, &shape, queue);
    let in_use = || {
        // SAFETY: a live handle.
        let answer = unsafe { dat_srq_free(queue) };
        fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
        assert_eq!(ep_info(end.ep).srq_handle, queue);
    };
    in_use();
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_reset(end.ep) });
    in_use();
    let pair = Pair::connect(&fixture, End::new(&fixture, &shape), end);
    one_message(&fixture, &pair.active, &end, queue, &mut memory);
    // A buffer that no message took stays on the queue.
    ok(post_srq(queue, &[memory.segment(2048, 8)], 7));
    part(&fixture, &pair, DAT_CLOSE_ABRUPT_FLAG);
    in_use();
    assert_eq!(srq_info(queue).available_dto_count, 1);
    let pair = Pair::connect(&fixture, pair.active, end);
    send(&fixture, &pair.active, &mut memory, 9);
    assert_eq!(end.received().cookie, 7);
    in_use();
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(end.ep));
        ok(dat_srq_free(queue));
        let answer = dat_srq_free(queue);
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ);
    }
}

/// An endpoint's queue can be neither removed nor replaced.
#[test]
fn ep_create_with_srq_e05_modify_cannot_change_the_queue() {
    let fixture = Fixture::new();
    let (queue, other) = (srq(&fixture, 8), srq(&fixture, 8));
    let end = Call::new(&fixture, queue).make();
    for handle in [other, DAT_HANDLE_NULL] {
        let mut change = ep_info(end.ep);
        change.srq_handle = handle;
        // SAFETY: a live handle; the values are readable.
        let answer = unsafe { dat_ep_modify(end.ep, DAT_EP_FIELD_SRQ_HANDLE, &raw const change) };
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    }
    assert_eq!(ep_info(end.ep).srq_handle, queue);
}

#[test]
fn ep_create_with_srq_e11_the_endpoint_connects_and_accepts() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    for (active, passive) in [
        (
            End::on_srq(&fixture, &shape, queue),
            End::new(&fixture, &shape),
        ),
        (
            End::new(&fixture, &shape),
            End::on_srq(&fixture, &shape, queue),
        ),
        (
            End::on_srq(&fixture, &shape, queue),
            End::on_srq(&fixture, &shape, queue),
        ),
    ] {
        let pair = Pair::connect(&fixture, active, passive);
        for (from, to) in [(active, passive), (passive, active)] {
            if ep_info(to.ep).srq_handle == queue {
                one_message(&fixture, &from, &to, queue, &mut memory);
            } else {
                ok(to.post_recv(&[memory.segment(1024, 8)], 1));
                send(&fixture, &from, &mut memory, 1);
                assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
                assert_eq!(to.received().status, DAT_DTO_SUCCESS);
            }
        }
        part(&fixture, &pair, DAT_CLOSE_GRACEFUL_FLAG);
    }
}

#[test]
fn ep_create_with_srq_e11_the_endpoint_duplicates_a_connection() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let service_point = ServicePoint::new(&fixture);
    let (model, peer) = (End::new(&fixture, &shape), End::new(&fixture, &shape));
    ok(service_point.connect(model.ep, &[]));
    ok(accept(service_point.take_request(), peer.ep));
    expect(model.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let (active, passive) = (
        End::on_srq(&fixture, &shape, queue),
        End::on_srq(&fixture, &shape, queue),
    );
    // SAFETY: live handles, no private data.
    ok(unsafe {
        dat_ep_dup_connect(
            active.ep,
            model.ep,
            60_000_000,
            0,
            ptr::null_mut(),
            DAT_QOS_BEST_EFFORT,
        )
    });
    ok(accept(service_point.take_request(), passive.ep));
    for end in [active, passive] {
        expect(end.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    one_message(&fixture, &active, &passive, queue, &mut memory);
    one_message(&fixture, &passive, &active, queue, &mut memory);
}

#[test]
fn ep_create_with_srq_e11_a_service_point_can_reserve_the_endpoint() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let (active, passive) = (
        End::new(&fixture, &shape),
        End::on_srq(&fixture, &shape, queue),
    );
    let point = ReservedPoint::new(&fixture, passive.ep);
    ok(point.service_point().connect(active.ep, &[]));
    ok(accept(arrival(point.requests).cr_handle, DAT_HANDLE_NULL));
    for end in [active, passive] {
        expect(end.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    one_message(&fixture, &active, &passive, queue, &mut memory);
    part(&fixture, &Pair { active, passive }, DAT_CLOSE_GRACEFUL_FLAG);
    ok(point.free());
}

/// Reconnects at once and repeatedly, in both directions, with both kinds of
/// disconnect.
#[test]
fn ep_create_with_srq_e14_nothing_of_an_earlier_connection_remains() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let (mut one, mut two) = (
        End::on_srq(&fixture, &shape, queue),
        End::on_srq(&fixture, &shape, queue),
    );
    for round in 0..12 {
        let pair = Pair::connect(&fixture, one, two);
        one_message(&fixture, &one, &two, queue, &mut memory);
        one_message(&fixture, &two, &one, queue, &mut memory);
        let flags = if round % 2 == 0 {
            DAT_CLOSE_ABRUPT_FLAG
        } else {
            DAT_CLOSE_GRACEFUL_FLAG
        };
        part(&fixture, &pair, flags);
        for end in [one, two] {
            for evd in [end.recv, end.request, end.connect] {
                nothing_on(evd);
            }
            assert_eq!(held(end.ep), (0, 0));
        }
        (one, two) = (two, one);
    }
}

/// Failed attempts to connect leave nothing behind either.
#[test]
fn ep_create_with_srq_e14_nothing_of_a_failed_attempt_remains() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let end = End::on_srq(&fixture, &shape, queue);
    let peer = End::new(&fixture, &shape);
    let service_point = ServicePoint::new(&fixture);
    let again = || {
        reaches(end.ep, DAT_EP_STATE_DISCONNECTED);
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_reset(end.ep) });
    };
    // SAFETY: live handles, in all that follows.
    unsafe {
        // Rejected.
        ok(service_point.connect(end.ep, &[]));
        ok(dat_cr_reject(service_point.take_request()));
        expect(end.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
        again();
        // Nothing listens.
        let gone = ServicePoint::new(&fixture);
        gone.close();
        ok(gone.connect(end.ep, &[]));
        expect(end.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
        again();
        // Not answered in time; the request that is left is stale. On a slow
        // machine the time can pass before the request is sent.
        let late = (0..10)
            .find_map(|attempt| {
                ok(service_point.connect_within(end.ep, 30_000 << attempt, &[]));
                expect(end.connect, DAT_CONNECTION_EVENT_TIMED_OUT);
                again();
                dequeue(service_point.requests).ok()
            })
            .expect("no request came within 15 s")
            .event_data
            .cr_arrival_event_data
            .cr_handle;
        // Cancelled by the requester.
        ok(service_point.connect(end.ep, &[]));
        let given_up = service_point.take_request();
        ok(dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG));
        expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        again();
        // Accepting one of those requests reports a failed connection.
        for request in [late, given_up] {
            ok(dat_cr_accept(request, peer.ep, 0, ptr::null_mut()));
            expect(peer.connect, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
            ok(dat_ep_reset(peer.ep));
        }
        assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
        nothing_on(end.connect);
    }
    let pair = Pair::connect(&fixture, peer, end);
    one_message(&fixture, &peer, &end, queue, &mut memory);
    part(&fixture, &pair, DAT_CLOSE_ABRUPT_FLAG);
    let pair = Pair::connect(&fixture, end, peer);
    one_message(&fixture, &peer, &end, queue, &mut memory);
    part(&fixture, &pair, DAT_CLOSE_ABRUPT_FLAG);
    service_point.close();
}

/// Attributes stay as requested, whatever those of the peer are.
#[test]
fn ep_create_with_srq_e15_connecting_changes_no_attribute() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 8);
    for (reads_in, reads_out, peer) in [(0, 0, 4), (4, 4, 0), (1, 3, 2), (4, 1, 4)] {
        let peer = Shape {
            reads: peer,
            ..Shape::default()
        };
        let mut call = Call::new(&fixture, queue);
        call.attributes.max_rdma_read_in = reads_in;
        call.attributes.max_rdma_read_out = reads_out;
        for active in [true, false] {
            let end = call.make();
            let other = End::new(&fixture, &peer);
            let before = [end, other].map(|end| attributes(&end));
            let pair = if active {
                Pair::connect(&fixture, end, other)
            } else {
                Pair::connect(&fixture, other, end)
            };
            assert_eq!([end, other].map(|end| attributes(&end)), before);
            assert_eq!(
                (before[0][7], before[0][8]),
                (reads_in as u64, reads_out as u64)
            );
            part(&fixture, &pair, DAT_CLOSE_ABRUPT_FLAG);
            assert_eq!([end, other].map(|end| attributes(&end)), before);
            // SAFETY: live handles.
            unsafe {
                ok(dat_ep_free(end.ep));
                ok(dat_ep_free(other.ep));
            }
        }
    }
}

fn attributes(end: &End) -> [u64; 14] {
    let attr = ep_info(end.ep).ep_attr;
    [
        attr.service_type.into(),
        attr.max_message_size,
        attr.max_rdma_size,
        attr.qos.into(),
        attr.recv_completion_flags.into(),
        attr.request_completion_flags.into(),
        attr.max_recv_dtos as u64,
        attr.max_rdma_read_in as u64,
        attr.max_rdma_read_out as u64,
        attr.max_request_dtos as u64,
        attr.max_request_iov as u64,
        attr.srq_soft_hw as u64,
        attr.max_rdma_read_iov as u64,
        attr.max_rdma_write_iov as u64,
    ]
}

/// If both depths are left at the default, connecting cannot fail because of
/// them; a read is refused then.
#[test]
fn ep_create_with_srq_e15_read_depths_left_open_are_none() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    for open in [0, DAT_HW_DEFAULT] {
        let mut call = Call::new(&fixture, queue);
        call.attributes.max_rdma_read_in = open;
        call.attributes.max_rdma_read_out = open;
        let end = call.make();
        let attr = ep_info(end.ep).ep_attr;
        assert_eq!((attr.max_rdma_read_in, attr.max_rdma_read_out), (0, 0));
        let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), end);
        for reader in [end, pair.active] {
            fails(
                reader.post_read(&[memory.segment(0, 8)], &memory.remote(64, 8), 1, DEFAULT),
                DAT_INSUFFICIENT_RESOURCES,
            );
            ok(reader.post_write(&[memory.segment(0, 8)], &memory.remote(64, 8), 2, DEFAULT));
            fixture.advance(Duration::from_millis(1));
            fixture.run();
            assert_eq!(reader.requested().status, DAT_DTO_SUCCESS);
            assert_eq!(state_of(reader.ep), DAT_EP_STATE_CONNECTED);
        }
    }
}
