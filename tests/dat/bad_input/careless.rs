//! Programs that declare less than they use, or use a number again at once. The
//! call that goes too far is refused; connection and peer go on.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, Pair, ServicePoint, Shape, accept, established, expect, fails,
    fails_with, nothing_on, ok,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// Sends a message, whose receive is posted already, and takes both completions.
#[track_caller]
fn passes(fixture: &Fixture, pair: &Pair, memory: &Memory, tags: (u64, u64)) {
    let (sent, received) = tags;
    ok(pair
        .active
        .post_send(&[memory.segment(0, 8)], sent, DEFAULT));
    fixture.run();
    let dtos = [pair.active.requested(), pair.passive.received()];
    assert_eq!(dtos.map(|dto| dto.cookie), [sent, received]);
    assert_eq!(dtos.map(|dto| dto.status), [DAT_DTO_SUCCESS; 2]);
}

#[test]
fn posts_beyond_the_declared_depth_are_refused_and_messages_pass() {
    let fixture = Fixture::new();
    let memory = fixture.memory(64);
    let shape = Shape {
        recvs: 2,
        requests: 2,
        evd_qlen: 1,
        ..Shape::default()
    };
    let pair = Pair::new(&fixture, &shape);
    let segment = [memory.segment(8, 8)];
    for round in 0..4 {
        for tag in 0..2 {
            ok(pair.passive.post_recv(&segment, tag));
        }
        let refused = pair.passive.post_recv(&segment, 2);
        fails(refused, DAT_INSUFFICIENT_RESOURCES);
        // The EVD, which was to hold one event, holds those of both receives.
        for tag in 0..2 {
            passes(&fixture, &pair, &memory, (10 + tag, tag));
        }
        nothing_on(pair.passive.recv);
        nothing_on(fixture.async_evd);
        println!("round {round}");
    }
}

#[test]
fn more_segments_than_declared_are_refused_and_messages_pass() {
    let fixture = Fixture::new();
    let memory = fixture.memory(64);
    let shape = Shape {
        iov: 1,
        ..Shape::default()
    };
    let pair = Pair::new(&fixture, &shape);
    let most = crate::support::ep_info(pair.active.ep).ep_attr;
    let too_many = |declared: DAT_COUNT| -> Vec<_> {
        // At least as many as declared may be allowed.
        assert!(declared >= 1);
        let first = declared as usize + 1;
        (0..first).map(|_| memory.segment(0, 1)).collect()
    };
    let refused = pair.passive.post_recv(&too_many(most.max_recv_iov), 1);
    fails_with(refused, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    let refused = pair
        .active
        .post_send(&too_many(most.max_request_iov), 1, DEFAULT);
    fails_with(refused, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    ok(pair.passive.post_recv(&[memory.segment(8, 8)], 2));
    passes(&fixture, &pair, &memory, (3, 2));
}

/// The connections of the first service point are open, were closed just now, or
/// were rejected.
#[test]
fn the_number_of_a_service_point_can_be_used_again_at_once() {
    let fixture = Fixture::new();
    let first = ServicePoint::new(&fixture);
    let qualifier = first.qualifier;
    first.close();
    let requests = fixture.evd(8, DAT_EVD_CR_FLAG);
    let mut open = Vec::new();
    for round in 0..9 {
        let mut psp = ptr::null_mut();
        let flags = DAT_PSP_CONSUMER_FLAG;
        // SAFETY: live handles; the result is writable.
        ok(unsafe { dat_psp_create(fixture.ia, qualifier, requests, flags, &raw mut psp) });
        let point = ServicePoint {
            psp,
            qualifier,
            requests,
        };
        let [active, passive] = [(); 2].map(|()| End::new(&fixture, &Shape::default()));
        ok(point.connect(active.ep, &[]));
        let request = point.take_request();
        if round % 3 == 0 {
            // SAFETY: a live handle.
            ok(unsafe { dat_cr_reject(request) });
            ok(point.free());
            expect(active.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
            continue;
        }
        ok(accept(request, passive.ep));
        established([&active, &passive]);
        if round % 3 == 1 {
            // SAFETY: a live handle.
            ok(unsafe { dat_ep_disconnect(active.ep, DAT_CLOSE_ABRUPT_FLAG) });
        } else {
            open.push(Pair { active, passive });
        }
        ok(point.free());
    }
    // Connections that were made through a freed service point live on.
    let memory = fixture.memory(64);
    for pair in &open {
        ok(pair.passive.post_recv(&[memory.segment(8, 8)], 1));
        passes(&fixture, pair, &memory, (2, 1));
    }
    assert_eq!(open.len(), 3);
}
