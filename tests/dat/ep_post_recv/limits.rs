//! As many buffers and segments as requested.

use dat::abi::*;

use super::{DEFAULT, message};
use crate::support::{
    End, Fixture, Pair, Shape, abilities, expect, fails, fails_with, held, nothing_on, ok,
};

#[test]
fn ep_post_recv_r09_a_full_queue_refuses_and_keeps_what_it_has() {
    for recvs in [1, 2, 5, 8, 100] {
        let fixture = Fixture::new();
        let mut memory = fixture.memory(4096);
        let shape = Shape {
            recvs,
            evd_qlen: 128,
            ..Shape::default()
        };
        let pair = Pair::new(&fixture, &shape);
        let to = pair.passive;
        let buffer = |tag: u64| memory.segment(1024 + 8 * tag as usize, 8);
        for tag in 0..recvs as u64 {
            ok(to.post_recv(&[buffer(tag)], tag));
        }
        for iov in [&[buffer(0)][..], &[], &[buffer(0), buffer(1)]] {
            fails(to.post_recv(iov, 99), DAT_INSUFFICIENT_RESOURCES);
        }
        assert_eq!(held(to.ep), (recvs, recvs));
        for tag in 0..recvs as u64 {
            let word = [tag as u8 + 1; 8];
            memory.write(0, &word);
            let received = message(&fixture, &pair.active, &to, &[memory.segment(0, 8)]);
            assert_eq!(
                (received.cookie, received.status, received.length),
                (tag, DAT_DTO_SUCCESS, 8)
            );
            assert_eq!(memory.read(1024 + 8 * tag as usize, 8), word);
        }
        nothing_on(to.recv);
    }
}

/// Each dequeued event makes room for one.
#[test]
fn ep_post_recv_r09_each_taken_event_makes_room_for_one_receive() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let shape = Shape {
        recvs: 3,
        ..Shape::default()
    };
    let pair = Pair::new(&fixture, &shape);
    let (from, to) = (pair.active, pair.passive);
    let buffer = [memory.segment(1024, 8)];
    for tag in 0..3 {
        ok(to.post_recv(&buffer, tag));
    }
    for tag in 0..50 {
        fails(to.post_recv(&buffer, 99), DAT_INSUFFICIENT_RESOURCES);
        assert_eq!(message(&fixture, &from, &to, &[]).cookie, tag);
        ok(to.post_recv(&buffer, tag + 3));
    }
    fails(to.post_recv(&buffer, 99), DAT_INSUFFICIENT_RESOURCES);
}

#[test]
fn ep_post_recv_r09_all_that_the_adapter_allows_can_be_posted() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let most = abilities(&fixture).0.max_dto_per_ep;
    let shape = Shape {
        recvs: most,
        iov: 1,
        ..Shape::default()
    };
    let pair = Pair::new(&fixture, &shape);
    let to = pair.passive;
    for tag in 0..most as u64 {
        ok(to.post_recv(&[memory.segment(0, 8)], tag));
    }
    fails(
        to.post_recv(&[memory.segment(0, 8)], 1),
        DAT_INSUFFICIENT_RESOURCES,
    );
    // All receives are flushed to an EVD created for 32 events. SAFETY: a live
    // handle.
    ok(unsafe { dat::exports::dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    expect(to.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    fixture.run();
    for tag in 0..most as u64 {
        let received = to.received();
        assert_eq!(
            (received.cookie, received.status),
            (tag, DAT_DTO_ERR_FLUSHED)
        );
    }
    nothing_on(to.recv);
    nothing_on(fixture.async_evd);
}

#[test]
fn ep_post_recv_r09_segments_up_to_the_number_asked_for() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let most = abilities(&fixture).0.max_iov_segments_per_dto;
    for iov in [1, 2, 3, most] {
        let shape = Shape {
            iov,
            ..Shape::default()
        };
        let end = End::new(&fixture, &shape);
        let segments: Vec<_> = (0..=iov as usize)
            .map(|at| memory.segment(16 * at, 8))
            .collect();
        ok(end.post_recv(&segments[..iov as usize], 1));
        fails_with(
            end.post_recv(&segments, 2),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        );
        assert_eq!(held(end.ep), (1, 1));
    }
}

/// Impossible counts: the list is not read.
#[test]
fn ep_post_recv_r09_absurd_counts_are_refused_unread() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    let mut iov = [memory.segment(0, 8)];
    for count in [-1, DAT_COUNT::MIN, DAT_COUNT::MAX, 5, 1 << 16, -4] {
        for list in [iov.as_mut_ptr(), std::ptr::without_provenance_mut(8)] {
            let refused = super::post(end.ep, count, list, 1, DEFAULT);
            fails(refused, DAT_INVALID_PARAMETER);
        }
    }
    for count in [1, 4, -1] {
        let refused = super::post(end.ep, count, std::ptr::null_mut(), 1, DEFAULT);
        fails(refused, DAT_INVALID_PARAMETER);
    }
    assert_eq!(held(end.ep), (0, 0));
}
