//! A peer that leaves, in every state of a connection, by freeing its endpoint or
//! by an abrupt disconnect. Every posted request is completed exactly once, and
//! the other side gets an event.

use std::collections::BTreeMap;
use std::ptr;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    Dto, End, Fixture, Memory, Pair, ServicePoint, Shape, dequeue, dto, expect, nothing_on, ok,
    post_srq, reaches, srq, srq_info, state_of,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// How the peer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Free,
    Disconnect,
}

const WAYS: [Leave; 2] = [Leave::Free, Leave::Disconnect];

impl Leave {
    #[track_caller]
    fn leave(self, ep: DAT_EP_HANDLE) {
        // SAFETY: a live handle.
        ok(unsafe {
            match self {
                Self::Free => dat_ep_free(ep),
                Self::Disconnect => dat_ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG),
            }
        });
    }
}

/// Takes this many completions, by cookie. No cookie may come twice, and no
/// further completion may follow.
#[track_caller]
fn account(fixture: &Fixture, evd: DAT_EVD_HANDLE, count: usize) -> BTreeMap<u64, Dto> {
    let mut found = BTreeMap::new();
    let begin = Instant::now();
    while found.len() < count {
        fixture.run();
        if let Ok(event) = dequeue(evd) {
            let dto = dto(&event);
            assert!(found.insert(dto.cookie, dto).is_none(), "{dto:?} twice");
        } else {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{} of {count}: {found:?}",
                found.len()
            );
            fixture.advance(Duration::from_millis(1));
        }
    }
    for _ in 0..5 {
        fixture.run();
        fixture.advance(Duration::from_millis(10));
    }
    nothing_on(evd);
    found
}

/// Posts receives 0, 1, 2 and sends 0, 1; the peer has a buffer for one of the
/// sends.
fn load(end: &End, memory: &Memory) {
    for tag in 0..3 {
        ok(end.post_recv(&[memory.segment(1024, 64)], tag));
    }
    for tag in 0..2 {
        ok(end.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
    }
}

#[test]
fn in_unconnected_an_endpoint_without_a_peer_leaves() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    for tag in 0..3 {
        ok(end.post_recv(&[memory.segment(0, 8)], tag));
    }
    Leave::Free.leave(end.ep);
    fixture.run();
    // Never connected: the buffers are freed with the endpoint, or flushed.
    let mut seen = 0;
    while let Ok(event) = dequeue(end.recv) {
        let dto = dto(&event);
        assert_eq!((dto.cookie, dto.status), (seen, DAT_DTO_ERR_FLUSHED));
        seen += 1;
    }
    assert!(seen <= 3);
    nothing_on(end.connect);
}

/// The requested peer leaves without an answer.
#[test]
fn in_active_connection_pending_the_service_point_leaves() {
    for reject in [true, false] {
        let fixture = Fixture::new();
        let memory = fixture.memory(4096);
        let service_point = ServicePoint::new(&fixture);
        let end = End::new(&fixture, &Shape::default());
        for tag in 0..3 {
            ok(end.post_recv(&[memory.segment(0, 8)], tag));
        }
        // Only a request without an answer runs into its timeout.
        let microseconds = if reject { 60_000_000 } else { 4_000_000 };
        ok(service_point.connect_within(end.ep, microseconds, &[]));
        let request = service_point.take_request();
        let number = if reject {
            // SAFETY: a live handle.
            ok(unsafe { dat_cr_reject(request) });
            DAT_CONNECTION_EVENT_PEER_REJECTED
        } else {
            // The request gets no answer, and the service point is freed.
            service_point.close();
            DAT_CONNECTION_EVENT_TIMED_OUT
        };
        expect(end.connect, number);
        assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECTED);
        let flushed = account(&fixture, end.recv, 3);
        assert!(
            flushed
                .values()
                .all(|dto| dto.status == DAT_DTO_ERR_FLUSHED)
        );
        nothing_on(end.connect);
    }
}

/// The requester leaves before the answer.
#[test]
fn in_completion_pending_the_requester_has_left() {
    for way in WAYS {
        let fixture = Fixture::new();
        let memory = fixture.memory(4096);
        let service_point = ServicePoint::new(&fixture);
        let shape = Shape::default();
        let (active, passive) = (End::new(&fixture, &shape), End::new(&fixture, &shape));
        for tag in 0..3 {
            ok(active.post_recv(&[memory.segment(0, 8)], tag));
            ok(passive.post_recv(&[memory.segment(0, 8)], tag));
        }
        ok(service_point.connect(active.ep, &[]));
        let request = service_point.take_request();
        way.leave(active.ep);
        // SAFETY: live handles.
        ok(unsafe { dat_cr_accept(request, passive.ep, 0, ptr::null_mut()) });
        expect(
            passive.connect,
            DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
        );
        let flushed = account(&fixture, passive.recv, 3);
        assert!(
            flushed
                .values()
                .all(|dto| dto.status == DAT_DTO_ERR_FLUSHED)
        );
        nothing_on(passive.connect);
        if way == Leave::Disconnect {
            expect(active.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            account(&fixture, active.recv, 3);
            nothing_on(active.connect);
        }
    }
}

/// The accepting side leaves while the requester may not yet know that it was
/// accepted.
#[test]
fn in_completion_pending_the_accepting_side_leaves() {
    for way in WAYS {
        let fixture = Fixture::new();
        let memory = fixture.memory(4096);
        let service_point = ServicePoint::new(&fixture);
        let shape = Shape::default();
        let (active, passive) = (End::new(&fixture, &shape), End::new(&fixture, &shape));
        for tag in 0..3 {
            ok(active.post_recv(&[memory.segment(0, 8)], tag));
            ok(passive.post_recv(&[memory.segment(0, 8)], tag));
        }
        ok(service_point.connect(active.ep, &[]));
        let request = service_point.take_request();
        // SAFETY: live handles.
        ok(unsafe { dat_cr_accept(request, passive.ep, 0, ptr::null_mut()) });
        way.leave(passive.ep);
        // Connected for a moment, or never.
        reaches(active.ep, DAT_EP_STATE_DISCONNECTED);
        let flushed = account(&fixture, active.recv, 3);
        assert!(
            flushed
                .values()
                .all(|dto| dto.status == DAT_DTO_ERR_FLUSHED)
        );
        if way == Leave::Disconnect {
            reaches(passive.ep, DAT_EP_STATE_DISCONNECTED);
            account(&fixture, passive.recv, 3);
        }
    }
}

/// Both directions have requests outstanding. The device has done nothing, some
/// steps, or all it can.
#[test]
fn in_connected_every_request_completes_once() {
    for way in WAYS {
        // Rounds in which some requests failed and others did not.
        let (mut receives, mut sends) = (0, 0);
        let mut stepped = false;
        for steps in [0, 1, 2, 3, 5, 8, 13, 1000] {
            let fixture = Fixture::new();
            let memory = fixture.memory(4096);
            let pair = Pair::new(&fixture, &Shape::default());
            let (stays, goes) = (pair.active, pair.passive);
            load(&stays, &memory);
            load(&goes, &memory);
            fixture.steps(steps);
            way.leave(goes.ep);
            expect(stays.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            assert_eq!(state_of(stays.ep), DAT_EP_STATE_DISCONNECTED);
            let received = account(&fixture, stays.recv, 3);
            let sent = account(&fixture, stays.request, 2);
            receives += u32::from(in_order(&received));
            sends += u32::from(in_order(&sent));
            stepped = fixture.is_stepped();
            nothing_on(stays.connect);
            if way == Leave::Disconnect {
                expect(goes.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
                in_order(&account(&fixture, goes.recv, 3));
                in_order(&account(&fixture, goes.request, 2));
                nothing_on(goes.connect);
            }
            nothing_on(fixture.async_evd);
        }
        // On a device that works on its own this depends on timing.
        if stepped {
            assert!(receives > 0 && sends > 0, "{way:?}: {receives}, {sends}");
        }
    }
}

/// Checks that all requests after the first failure failed. Returns whether some
/// succeeded and some failed.
#[track_caller]
fn in_order(found: &BTreeMap<u64, Dto>) -> bool {
    let mut failed = false;
    for dto in found.values() {
        assert!(!failed || dto.status != DAT_DTO_SUCCESS, "{found:?}");
        failed = dto.status != DAT_DTO_SUCCESS;
    }
    failed && found.values().any(|dto| dto.status == DAT_DTO_SUCCESS)
}

/// One side waits for its last sends to complete; the other leaves.
#[test]
fn in_disconnect_pending_the_peer_leaves() {
    for way in WAYS {
        let fixture = Fixture::new();
        let memory = fixture.memory(4096);
        let pair = Pair::new(&fixture, &Shape::default());
        let (stays, goes) = (pair.active, pair.passive);
        for tag in 0..3 {
            ok(stays.post_recv(&[memory.segment(1024, 64)], tag));
        }
        // The peer has posted no receive.
        for tag in 0..2 {
            ok(stays.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
        }
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_disconnect(stays.ep, DAT_CLOSE_GRACEFUL_FLAG) });
        fixture.run();
        assert_eq!(state_of(stays.ep), DAT_EP_STATE_DISCONNECT_PENDING);
        way.leave(goes.ep);
        expect(stays.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        let received = account(&fixture, stays.recv, 3);
        assert!(
            received
                .values()
                .all(|dto| dto.status == DAT_DTO_ERR_FLUSHED)
        );
        let sent = account(&fixture, stays.request, 2);
        assert!(sent.values().all(|dto| dto.status != DAT_DTO_SUCCESS));
        nothing_on(stays.connect);
    }
}

#[test]
fn in_disconnected_no_event_reports_that_the_peer_leaves() {
    for way in WAYS {
        let fixture = Fixture::new();
        let memory = fixture.memory(4096);
        let pair = Pair::new(&fixture, &Shape::default());
        let (stays, goes) = (pair.active, pair.passive);
        load(&stays, &memory);
        Leave::Disconnect.leave(goes.ep);
        expect(stays.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        expect(goes.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        way.leave(goes.ep);
        account(&fixture, stays.recv, 3);
        account(&fixture, stays.request, 2);
        nothing_on(stays.connect);
        nothing_on(goes.connect);
    }
}

/// An endpoint on a shared queue takes no buffer of the queue with it.
#[test]
fn on_a_shared_queue_no_buffer_is_lost_to_the_other_endpoints() {
    for way in WAYS {
        let fixture = Fixture::new();
        let memory = fixture.memory(4096);
        let queue = srq(&fixture, 8);
        let shape = Shape::default();
        let [first, second] = [(); 2].map(|()| {
            Pair::connect(
                &fixture,
                End::new(&fixture, &shape),
                End::on_srq(&fixture, &shape, queue),
            )
        });
        for tag in 0..6 {
            ok(post_srq(queue, &[memory.segment(1024, 64)], tag));
        }
        for _ in 0..2 {
            ok(first.active.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
            fixture.run();
            assert_eq!(first.active.requested().status, DAT_DTO_SUCCESS);
        }
        way.leave(first.active.ep);
        expect(first.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        let received = account(&fixture, first.passive.recv, 2);
        assert!(received.values().all(|dto| dto.status == DAT_DTO_SUCCESS));
        assert_eq!(srq_info(queue).available_dto_count, 4);
        way.leave(first.passive.ep);
        for _ in 0..4 {
            ok(second.active.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
        }
        let rest = account(&fixture, second.passive.recv, 4);
        // All six buffers, each once.
        let mut all: Vec<_> = received.keys().chain(rest.keys()).copied().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
        assert_eq!(srq_info(queue).outstanding_dto_count, 0);
    }
}
