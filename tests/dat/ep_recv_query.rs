//! `dat_ep_recv_query`: the statements Q01 to Q08 of its page.
//!
//! In this library a receive counts until its event is dequeued. An endpoint on a
//! shared queue has taken a buffer once a message has filled it, because the
//! device does not report it earlier.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, Pair, ServicePoint, Shape, abilities, dequeue, ep_info, expect, fails,
    fails_with, held, nothing_on, ok, post_srq, reaches, srq, srq_info, state_of,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// Sends this many messages, which all arrive.
#[track_caller]
fn send_messages(fixture: &Fixture, from: &End, memory: &Memory, count: u64) {
    for tag in 0..count {
        ok(from.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
        fixture.run();
        assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
    }
}

#[track_caller]
fn listen(at: &End, memory: &Memory, count: u64) {
    for tag in 0..count {
        ok(at.post_recv(&[memory.segment(1024, 64)], tag));
    }
}

/// Returns a pair whose passive end takes its receives from a queue of this many,
/// all posted.
fn shared(fixture: &Fixture, memory: &Memory, dtos: DAT_COUNT) -> (Pair, DAT_SRQ_HANDLE) {
    let queue = srq(fixture, dtos);
    let shape = Shape::default();
    let pair = Pair::connect(
        fixture,
        End::new(fixture, &shape),
        End::on_srq(fixture, &shape, queue),
    );
    for tag in 0..dtos {
        ok(post_srq(queue, &[memory.segment(1024, 64)], tag as u64));
    }
    (pair, queue)
}

#[test]
fn ep_recv_query_q01_counts_buffers_until_they_complete() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    assert_eq!(held(to.ep), (0, 0));
    listen(&to, &memory, 5);
    assert_eq!(held(to.ep), (5, 5));
    send_messages(&fixture, &from, &memory, 2);
    assert_eq!(held(to.ep).0, 5, "no event was dequeued yet");
    for left in [4, 3] {
        to.received();
        assert_eq!(held(to.ep), (left, left));
    }
    listen(&to, &memory, 1);
    assert_eq!(held(to.ep), (4, 4));
    assert_eq!(held(from.ep), (0, 0), "the peer's receives do not count");
}

#[test]
fn ep_recv_query_q01_requests_do_not_count() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    listen(&from, &memory, 2);
    ok(from.post_write(&[memory.segment(0, 8)], &memory.remote(64, 8), 1, DEFAULT));
    assert_eq!(held(from.ep), (2, 2));
    fixture.run();
    from.requested();
    assert_eq!(held(from.ep), (2, 2));
    assert_eq!(held(to.ep), (0, 0));
}

#[test]
fn ep_recv_query_q02_own_buffers_count_when_posted_in_any_state() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    assert_eq!(held(end.ep), (0, 0));
    listen(&end, &memory, 1);
    assert_eq!(held(end.ep), (1, 1), "not connected yet");
    let refused = end.post_recv(&[memory.segment(0, 8192)], 9);
    fails(refused, DAT_INVALID_PARAMETER);
    assert_eq!(held(end.ep), (1, 1), "refused receives do not count");
}

#[test]
fn ep_recv_query_q02_shared_buffers_count_when_the_endpoint_takes_them() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let (pair, queue) = shared(&fixture, &memory, 8);
    let (from, to) = (pair.active, pair.passive);
    // Another endpoint of the same queue, which gets no messages.
    let other = End::on_srq(&fixture, &Shape::default(), queue);
    assert_eq!(held(to.ep), (0, 0), "posted to the queue, not taken");
    send_messages(&fixture, &from, &memory, 3);
    assert_eq!(held(to.ep), (3, 3));
    assert_eq!(held(to.ep), (3, 3), "the query changes nothing");
    assert_eq!(held(other.ep), (0, 0));
    for (tag, left) in [(0, 2), (1, 1), (2, 0)] {
        assert_eq!(to.received().cookie, tag);
        assert_eq!(held(to.ep), (left, left));
    }
    send_messages(&fixture, &from, &memory, 1);
    assert_eq!(held(to.ep), (1, 1));
}

/// On a reliable connection messages arrive one at a time, so the held buffers
/// have consecutive numbers. The span equals the count, however large the numbers
/// are.
#[test]
fn ep_recv_query_q03_the_span_is_between_the_latest_numbers() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    // Several laps of the ring of 16.
    for round in 0..70 {
        listen(&to, &memory, 3);
        send_messages(&fixture, &from, &memory, 2);
        assert_eq!(held(to.ep), (3, 3), "round {round}");
        to.received();
        assert_eq!(held(to.ep), (2, 2), "round {round}");
        to.received();
        send_messages(&fixture, &from, &memory, 1);
        to.received();
        assert_eq!(held(to.ep), (0, 0), "round {round}");
    }
    let (pair, queue) = shared(&fixture, &memory, 4);
    for round in 0..20 {
        send_messages(&fixture, &pair.active, &memory, 2);
        assert_eq!(held(pair.passive.ep), (2, 2), "round {round}");
        for _ in 0..2 {
            pair.passive.received();
            ok(post_srq(queue, &[memory.segment(1024, 64)], 0));
        }
        assert_eq!(held(pair.passive.ep), (0, 0), "round {round}");
    }
}

#[test]
fn ep_recv_query_q04_either_pointer_may_be_null() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    listen(&end, &memory, 4);
    let (mut allocated, mut span) = (-77, -77);
    // SAFETY: null or writable.
    unsafe {
        ok(dat_ep_recv_query(
            end.ep,
            &raw mut allocated,
            ptr::null_mut(),
        ));
        ok(dat_ep_recv_query(end.ep, ptr::null_mut(), &raw mut span));
        assert_eq!((allocated, span), (4, 4));
        ok(dat_ep_recv_query(end.ep, ptr::null_mut(), ptr::null_mut()));
    }
}

/// While another thread dequeues events, count and span are consistent.
#[test]
fn ep_recv_query_q05_the_span_is_never_below_the_count() {
    const MESSAGES: u64 = 400;
    // Buffers whose events were not dequeued leave room on the shared queue.
    const MOST: DAT_COUNT = MESSAGES as DAT_COUNT;
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (on_srq, queue) = shared(&fixture, &memory, 8);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // The threads end even if the test fails.
        let stop = Stop(&done);
        for end in [pair.passive, on_srq.passive] {
            let done = &done;
            scope.spawn(move || {
                // Captures the whole structure: its pointer fields alone are not
                // `Send`.
                let end = end;
                while !done.load(Ordering::Acquire) {
                    let mut event = crate::support::blank();
                    // SAFETY: the result is writable.
                    let _ = unsafe { dat_evd_dequeue(end.recv, &raw mut event) };
                }
            });
        }
        let check = |end: &End, most: DAT_COUNT| {
            let (allocated, span) = held(end.ep);
            assert!(
                (0..=most).contains(&allocated) && (allocated..=most).contains(&span),
                "{allocated} in {span}"
            );
        };
        for tag in 0..MESSAGES {
            while pair.passive.post_recv(&[memory.segment(1024, 64)], tag) != DAT_SUCCESS {
                check(&pair.passive, 16);
            }
            while post_srq(queue, &[memory.segment(1024, 64)], tag) != DAT_SUCCESS {
                if srq_info(queue).available_dto_count > 1 {
                    break;
                }
                check(&on_srq.passive, MOST);
            }
            for (from, to, most) in [
                (pair.active, pair.passive, 16),
                (on_srq.active, on_srq.passive, MOST),
            ] {
                ok(from.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
                fixture.run();
                check(&to, most);
                // The shared queue was empty for a moment.
                while dequeue(from.request).is_err() {
                    let _ = post_srq(queue, &[memory.segment(1024, 64)], tag);
                    fixture.advance(Duration::from_millis(1));
                    fixture.run();
                    check(&to, most);
                }
                check(&to, most);
            }
        }
        drop(stop);
    });
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn ep_recv_query_q06_supported_counts_are_returned() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let (_, provider) = abilities(&fixture);
    assert_eq!(provider.ep_recv_info_supported, 0x11, "count and span");
    let pair = Pair::new(&fixture, &Shape::default());
    let (on_srq, _) = shared(&fixture, &memory, 4);
    for ep in [pair.active.ep, on_srq.active.ep, on_srq.passive.ep] {
        let (allocated, span) = held(ep);
        assert_ne!(allocated, DAT_VALUE_UNKNOWN);
        assert_ne!(span, DAT_VALUE_UNKNOWN);
    }
}

#[test]
fn ep_recv_query_q07_bad_handles_are_refused_and_nothing_is_written() {
    let fixture = Fixture::new();
    let end = End::new(&fixture, &Shape::default());
    let freed = End::new(&fixture, &Shape::default());
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_free(freed.ep) });
    let mut not_a_handle = [0usize; 8];
    let bad = [
        ptr::null_mut(),
        ptr::without_provenance_mut(0xdead_beef),
        ptr::without_provenance_mut(usize::MAX),
        (&raw mut not_a_handle).cast(),
        end.ep.wrapping_byte_add(1),
        end.ep.wrapping_byte_add(8),
        end.recv,
        fixture.ia,
        fixture.pz,
        freed.ep,
    ];
    for ep in bad {
        let (mut allocated, mut span) = (-77, -78);
        // SAFETY: the results are writable; the call validates its handle.
        let answer = unsafe { dat_ep_recv_query(ep, &raw mut allocated, &raw mut span) };
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
        assert_eq!((allocated, span), (-77, -78), "{ep:?}");
    }
    assert_eq!(held(end.ep), (0, 0));
}

#[test]
fn ep_recv_query_q08_flushed_buffers_count_until_they_are_taken() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    listen(&pair.active, &memory, 3);
    listen(&pair.passive, &memory, 2);
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    for (end, count) in [(pair.active, 3), (pair.passive, 2)] {
        expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        fixture.run();
        assert_eq!(held(end.ep).0, count);
        for left in (0..count).rev() {
            assert_eq!(end.received().status, DAT_DTO_ERR_FLUSHED);
            assert_eq!(held(end.ep), (left, left));
        }
        // A receive that is posted now is flushed at once.
        listen(&end, &memory, 1);
        fixture.run();
        assert_eq!(end.received().status, DAT_DTO_ERR_FLUSHED);
        assert_eq!(held(end.ep), (0, 0));
        nothing_on(end.recv);
    }
}

#[test]
fn ep_recv_query_q08_reset_and_reconnection_begin_at_zero() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let mut pair = Pair::new(&fixture, &Shape::default());
    for round in 0..4 {
        let (from, to) = (pair.active, pair.passive);
        listen(&to, &memory, 6);
        send_messages(&fixture, &from, &memory, 2);
        // One event is dequeued, one is not; four receives are unused.
        to.received();
        assert_eq!(held(to.ep), (5, 5), "round {round}");
        // SAFETY: live handles.
        unsafe {
            ok(dat_ep_disconnect(from.ep, DAT_CLOSE_ABRUPT_FLAG));
            expect(from.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            expect(to.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            fixture.run();
            ok(dat_ep_reset(from.ep));
            ok(dat_ep_reset(to.ep));
        }
        assert_eq!(held(to.ep), (0, 0), "round {round}");
        nothing_on(to.recv);
        listen(&to, &memory, 1);
        assert_eq!(held(to.ep), (1, 1), "round {round}");
        pair = Pair::connect(&fixture, from, to);
        assert_eq!(held(to.ep), (1, 1), "round {round}");
        send_messages(&fixture, &pair.active, &memory, 1);
        to.received();
        assert_eq!(held(to.ep), (0, 0), "round {round}");
        // Alternates the direction.
        pair = Pair {
            active: pair.passive,
            passive: pair.active,
        };
    }
}

#[test]
fn ep_recv_query_q08_shared_counts_end_with_the_connection() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let (pair, queue) = shared(&fixture, &memory, 8);
    send_messages(&fixture, &pair.active, &memory, 3);
    assert_eq!(held(pair.passive.ep), (3, 3));
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG));
        reaches(pair.passive.ep, DAT_EP_STATE_DISCONNECTED);
        reaches(pair.active.ep, DAT_EP_STATE_DISCONNECTED);
        fixture.run();
        assert_eq!(held(pair.passive.ep), (3, 3), "they can still be dequeued");
        assert_eq!(pair.passive.received().status, DAT_DTO_SUCCESS);
        assert_eq!(held(pair.passive.ep), (2, 2));
        for end in [pair.active, pair.passive] {
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            ok(dat_ep_reset(end.ep));
        }
    }
    assert_eq!(held(pair.passive.ep), (0, 0));
    let pair = Pair::connect(&fixture, pair.active, pair.passive);
    assert_eq!(held(pair.passive.ep), (0, 0));
    send_messages(&fixture, &pair.active, &memory, 2);
    assert_eq!(held(pair.passive.ep), (2, 2));
    assert_eq!(ep_info(pair.passive.ep).srq_handle, queue);
}

#[test]
fn ep_recv_query_q08_a_refused_attempt_flushes_and_is_counted() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let service_point = ServicePoint::new(&fixture);
    let end = End::new(&fixture, &Shape::default());
    listen(&end, &memory, 2);
    ok(service_point.connect(end.ep, &[]));
    let request = service_point.take_request();
    assert_eq!(held(end.ep), (2, 2));
    // SAFETY: a live handle.
    ok(unsafe { dat_cr_reject(request) });
    expect(end.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
    fixture.run();
    assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECTED);
    assert_eq!(held(end.ep), (2, 2));
    for _ in 0..2 {
        assert_eq!(end.received().status, DAT_DTO_ERR_FLUSHED);
    }
    assert_eq!(held(end.ep), (0, 0));
    service_point.close();
}

/// Without an EVD, a receive counts until the device has completed it.
#[test]
fn ep_recv_query_q08_without_an_evd_receives_count_until_the_device_completes_them() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 4);
    let shape = Shape::default();
    let mut without_evd = End::without_ep(&fixture, &shape);
    let mut attributes = shape.attributes();
    attributes.max_recv_dtos = DAT_HW_DEFAULT;
    // SAFETY: live handles; the result is writable.
    ok(unsafe {
        dat_ep_create_with_srq(
            fixture.ia,
            fixture.pz,
            DAT_HANDLE_NULL,
            without_evd.request,
            without_evd.connect,
            queue,
            &raw mut attributes,
            &raw mut without_evd.ep,
        )
    });
    let pair = Pair::connect(&fixture, End::new(&fixture, &shape), without_evd);
    for tag in 0..4 {
        ok(post_srq(queue, &[memory.segment(1024, 64)], tag));
    }
    send_messages(&fixture, &pair.active, &memory, 3);
    assert_eq!(held(without_evd.ep), (0, 0));
    nothing_on(without_evd.recv);
}

/// The duration of the query does not grow with the number of held receives.
#[test]
fn ep_recv_query_q08_nothing_is_scanned() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let most = abilities(&fixture).0.max_dto_per_ep;
    let shape = Shape {
        recvs: most,
        iov: 1,
        evd_qlen: 8,
        ..Shape::default()
    };
    let end = End::new(&fixture, &shape);
    let fastest = |count: DAT_COUNT| {
        (0..3000)
            .map(|_| {
                let begin = Instant::now();
                assert_eq!(held(end.ep), (count, count));
                begin.elapsed()
            })
            .min()
            .expect("thousands")
    };
    listen(&end, &memory, 1);
    let few = fastest(1);
    listen(&end, &memory, most as u64 - 1);
    let many = fastest(most);
    assert!(most > 8000, "{most} receives are too few to detect a scan");
    assert!(
        many < 3 * few + Duration::from_nanos(500),
        "{few:?} with 1, {many:?} with {most}"
    );
}
