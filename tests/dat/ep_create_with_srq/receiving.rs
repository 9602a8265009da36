//! Which buffers an endpoint fills, and which EVD reports them.

use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Call, DEFAULT, send};
use crate::connections::staging::{EndpointInState, STATES};
use crate::support::{
    End, Fixture, Pair, Shape, Waiter, dto, ep_info, expect, fails_with, joined, nothing_on, ok,
    post_srq, srq, srq_info, state_of, wait,
};

#[test]
fn ep_create_with_srq_e01_a_new_endpoint_is_unconnected_and_reports_its_queue() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 8);
    let call = Call::new(&fixture, queue);
    let end = call.make();
    assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
    let info = ep_info(end.ep);
    assert_eq!(info.ep_state, DAT_EP_STATE_UNCONNECTED);
    assert_eq!((info.ia_handle, info.srq_handle), (fixture.ia, queue));
    assert_eq!(info.pz_handle, fixture.pz);
    assert_eq!(
        (
            info.recv_evd_handle,
            info.request_evd_handle,
            info.connect_evd_handle
        ),
        (call.recv, call.request, call.connect)
    );
    // An endpoint with its own receive queue reports no SRQ.
    let own = End::new(&fixture, &Shape::default());
    assert_eq!(ep_info(own.ep).srq_handle, DAT_HANDLE_NULL);
}

#[test]
fn ep_create_with_srq_e01_endpoints_share_the_buffers_of_the_queue() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let pairs = [(); 3].map(|()| {
        Pair::connect(
            &fixture,
            End::new(&fixture, &shape),
            End::on_srq(&fixture, &shape, queue),
        )
    });
    // Each message takes the next buffer, whichever endpoint gets it.
    let mut taken = Vec::new();
    for round in 0..4 {
        for tag in 0..6 {
            ok(post_srq(
                queue,
                &[memory.segment(1024 + 8 * tag, 8)],
                tag as u64,
            ));
        }
        assert_eq!(srq_info(queue).available_dto_count, 6);
        for (at, tag) in [(2, 10), (0, 11), (0, 12), (1, 13), (2, 14), (1, 15)] {
            let pair = &pairs[at];
            send(&fixture, &pair.active, &mut memory, tag + round);
            assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
            let received = pair.passive.received();
            assert_eq!(
                (received.ep, received.status, received.length),
                (pair.passive.ep, DAT_DTO_SUCCESS, 8)
            );
            let place = 1024 + 8 * received.cookie as usize;
            assert_eq!(memory.read(place, 8), (tag + round).to_ne_bytes());
            taken.push(received.cookie);
        }
        assert_eq!(srq_info(queue).available_dto_count, 0);
        // Each buffer once.
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
        taken.clear();
        for pair in &pairs {
            nothing_on(pair.passive.recv);
        }
    }
}

/// Section 10, order: an endpoint gets its messages in the order of sending,
/// whichever buffers they use and other endpoints take.
#[test]
fn ep_create_with_srq_e01_each_endpoint_keeps_its_order() {
    const MESSAGES: u64 = 5;
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 16);
    let shape = Shape::default();
    let pairs = [(); 2].map(|()| {
        Pair::connect(
            &fixture,
            End::new(&fixture, &shape),
            End::on_srq(&fixture, &shape, queue),
        )
    });
    for tag in 0..2 * MESSAGES {
        let buffer = memory.segment(2048 + 8 * tag as usize, 8);
        ok(post_srq(queue, &[buffer], tag));
    }
    // All in flight at once, alternating.
    for number in 0..MESSAGES {
        for (at, pair) in pairs.iter().enumerate() {
            let place = 16 * number as usize + 8 * at;
            memory.write(place, &(100 * at as u64 + number).to_ne_bytes());
            let iov = [memory.segment(place, 8)];
            ok(pair.active.post_send(&iov, number, DEFAULT));
        }
    }
    fixture.run();
    let mut used = Vec::new();
    for (at, pair) in pairs.iter().enumerate() {
        for number in 0..MESSAGES {
            let received = pair.passive.received();
            assert_eq!((received.ep, received.length), (pair.passive.ep, 8));
            let bytes = memory.read(2048 + 8 * received.cookie as usize, 8);
            assert_eq!(bytes, (100 * at as u64 + number).to_ne_bytes());
            used.push(received.cookie);
        }
    }
    used.sort_unstable();
    assert!(used.into_iter().eq(0..2 * MESSAGES), "each buffer once");
}

/// E13: the recv attribute of the endpoint that takes the buffer decides.
#[test]
fn ep_create_with_srq_e13_only_solicited_messages_end_a_wait_for_them() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    for tag in 0..3 {
        ok(post_srq(queue, &[memory.segment(2048, 8)], tag));
    }
    let asking = Shape {
        recv_flags: DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        ..Shape::default()
    };
    let pair = Pair::connect(
        &fixture,
        End::new(&fixture, &Shape::default()),
        End::on_srq(&fixture, &asking, queue),
    );
    let evd = pair.passive.recv as usize;
    thread::scope(|scope| {
        let waiter = Waiter::spawn(scope, move || {
            let (answer, event, more) = wait(evd as DAT_EVD_HANDLE, 60_000_000, 1);
            (answer, dto(&event).status, more)
        });
        waiter.until_asleep();
        let iov = [memory.segment(0, 8)];
        ok(pair.active.post_send(&iov, 1, DEFAULT));
        fixture.run();
        thread::sleep(Duration::from_millis(50));
        assert!(
            !waiter.is_finished(),
            "an unsolicited message woke the waiter"
        );
        let solicited = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
        ok(pair.active.post_send(&iov, 2, solicited));
        fixture.run();
        let (answer, status, more) = joined(waiter);
        ok(answer);
        assert_eq!((status, more), (DAT_DTO_SUCCESS, 1));
    });
}

/// A message that finds the queue empty waits for a buffer.
#[test]
fn ep_create_with_srq_e01_a_message_waits_for_a_buffer() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let pair = Pair::connect(
        &fixture,
        End::new(&fixture, &shape),
        End::on_srq(&fixture, &shape, queue),
    );
    send(&fixture, &pair.active, &mut memory, 5);
    nothing_on(pair.passive.recv);
    ok(post_srq(queue, &[memory.segment(1024, 8)], 1));
    for _ in 0..100 {
        fixture.advance(Duration::from_millis(1));
        fixture.run();
    }
    assert_eq!(pair.passive.received().status, DAT_DTO_SUCCESS);
    assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
    assert_eq!(state_of(pair.active.ep), DAT_EP_STATE_CONNECTED);
}

/// (Binds are reported on the request EVD too: `memory::rmr` tests them.)
#[test]
fn ep_create_with_srq_e03_each_kind_of_event_has_its_evd() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let pair = Pair::connect(
        &fixture,
        End::on_srq(&fixture, &shape, queue),
        End::on_srq(&fixture, &shape, queue),
    );
    for (from, to) in [(pair.active, pair.passive), (pair.passive, pair.active)] {
        ok(post_srq(queue, &[memory.segment(1024, 8)], 1));
        send(&fixture, &from, &mut memory, 2);
        ok(from.post_write(&[memory.segment(0, 8)], &memory.remote(64, 8), 3, DEFAULT));
        ok(from.post_read(&[memory.segment(128, 8)], &memory.remote(0, 8), 4, DEFAULT));
        fixture.run();
        for tag in [2, 3, 4] {
            let done = from.requested();
            assert_eq!(
                (done.ep, done.cookie, done.status),
                (from.ep, tag, DAT_DTO_SUCCESS)
            );
        }
        let received = to.received();
        assert_eq!((received.ep, received.cookie), (to.ep, 1));
        for end in [from, to] {
            for evd in [end.recv, end.request, end.connect] {
                nothing_on(evd);
            }
        }
    }
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    for end in [pair.active, pair.passive] {
        expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        fixture.run();
        for evd in [end.recv, end.request, end.connect] {
            nothing_on(evd);
        }
    }
}

/// Receives of any kind are refused in this state and leave nothing behind.
fn receives_are_refused_in(state: DAT_EP_STATE) {
    println!("state {state}");
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let staged = EndpointInState::made_by(&fixture, state, || {
        End::on_srq(&fixture, &Shape::default(), queue)
    });
    let end = staged.end;
    assert_eq!(ep_info(end.ep).srq_handle, queue);
    for iov in [
        &[][..],
        &[memory.segment(0, 8)],
        &[memory.segment(0, 8), memory.segment(8, 8)],
    ] {
        fails_with(
            end.post_recv(iov, 1),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_SRQ_IN_USE,
        );
    }
    fixture.run();
    nothing_on(end.recv);
    assert_eq!(srq_info(queue).outstanding_dto_count, 0);
    assert_eq!(state_of(end.ep), state);
}

/// Without Tentative: an endpoint that a request brings has its own receive
/// queue.
#[test]
fn ep_create_with_srq_e06_receives_cannot_be_posted_to_it_in_any_state() {
    for state in STATES {
        if state != DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING {
            receives_are_refused_in(state);
        }
    }
}

/// A separate test: the fixture for this state needs the socket connection
/// manager.
#[test]
fn ep_create_with_srq_e06_receives_cannot_be_posted_in_completion_pending() {
    receives_are_refused_in(DAT_EP_STATE_COMPLETION_PENDING);
}

/// In this state outstanding requests still run; the peer does not know of it
/// yet.
#[test]
fn ep_create_with_srq_e01_in_disconnect_pending_it_takes_buffers_of_the_queue() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let staged = EndpointInState::made_by(&fixture, DAT_EP_STATE_DISCONNECT_PENDING, || {
        End::on_srq(&fixture, &Shape::default(), queue)
    });
    let (end, peer) = (staged.end, staged.peer.expect("connected"));
    for tag in 0..3 {
        ok(post_srq(queue, &[memory.segment(1024, 8)], tag));
        send(&fixture, &peer, &mut memory, 30 + tag);
        assert_eq!(peer.requested().status, DAT_DTO_SUCCESS);
        let received = end.received();
        assert_eq!(
            (received.ep, received.cookie, received.status),
            (end.ep, tag, DAT_DTO_SUCCESS)
        );
        assert_eq!(memory.read(1024, 8), (30 + tag).to_ne_bytes());
        assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECT_PENDING);
    }
    assert_eq!(srq_info(queue).outstanding_dto_count, 0);
}

/// Each message wakes the waiter although the endpoint is configured for
/// unsignalled receives: receives on a shared queue have no such flag.
#[test]
fn ep_create_with_srq_e13_buffers_of_the_queue_complete_with_signal() {
    for flags in [DAT_COMPLETION_UNSIGNALLED_FLAG, DEFAULT] {
        let fixture = Fixture::new();
        let mut memory = fixture.memory(4096);
        let queue = srq(&fixture, 8);
        let shape = Shape {
            recv_flags: flags,
            ..Shape::default()
        };
        let pair = Pair::connect(
            &fixture,
            End::new(&fixture, &Shape::default()),
            End::on_srq(&fixture, &shape, queue),
        );
        for tag in 0..3 {
            ok(post_srq(queue, &[memory.segment(1024, 8)], tag));
        }
        let to = pair.passive;
        for tag in 0..3 {
            thread::scope(|scope| {
                let waiter = scope.spawn(move || {
                    let to = to;
                    let (answer, event, nmore) = wait(to.recv, 60_000_000, 1);
                    ok(answer);
                    (dto(&event).cookie, nmore)
                });
                thread::sleep(Duration::from_millis(40));
                assert!(!waiter.is_finished());
                send(&fixture, &pair.active, &mut memory, 1);
                assert_eq!(waiter.join().expect("no panic"), (tag, 0));
            });
            pair.active.requested();
        }
    }
}
