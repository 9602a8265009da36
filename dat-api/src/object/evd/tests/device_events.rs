//! Waiting for solicited messages where completions do not say which were solicited, only the
//! device's events do; and where queues cannot be armed at all.

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dat_engine::wait::WaitPolicy;

use super::fake::Ring;
use super::fixture::{FakeEp, Fixture, code, number};
use crate::object::evd::{DtoRole, DtoStream, Timeout};
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EvdFlags};

/// All wait policies. None of them may spin here.
const POLICIES: [WaitPolicy; 3] = [
    WaitPolicy::Block,
    WaitPolicy::Poll,
    WaitPolicy::Adaptive {
        min: Duration::from_millis(1),
        max: None,
    },
];

/// Long enough for a thread to wake.
const MOMENT: Duration = Duration::from_millis(15);

fn without_solicited_flag(policy: WaitPolicy) -> (Fixture, DtoStream, Arc<Ring>) {
    let fixture = Fixture::with_policy(64, EvdFlags::DTO | EvdFlags::CONNECTION, policy);
    let stream = fixture
        .evd
        .attach_dto(
            DtoRole::Recv { depth: 64 },
            CompletionFlags::SOLICITED_WAIT,
            &[],
        )
        .expect("attached");
    let ring = fixture.ia.rings().pop().expect("a queue");
    ring.reports_solicited.store(false, Ordering::Relaxed);
    (fixture, stream, ring)
}

#[test]
fn only_solicited_messages_wake() {
    for policy in POLICIES {
        let (fixture, _stream, ring) = without_solicited_flag(policy);
        let ep = FakeEp::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 1));
            fixture.until_blocked();
            for cookie in 0..2 {
                ring.complete(ep.received(cookie));
                thread::sleep(MOMENT);
                assert!(!waiter.is_finished(), "{policy}: {cookie}");
            }
            ring.complete(ep.solicited(2));
            let waited = waiter.join().expect("no panic");
            assert_eq!(waited.result.map(|event| number(event.data)), Ok(0));
            assert_eq!(waited.nmore, 2);
        });
    }
}

#[test]
fn events_end_a_wait_at_its_beginning_and_at_its_timeout() {
    let (fixture, _stream, ring) = without_solicited_flag(WaitPolicy::Block);
    let ep = FakeEp::new();
    ring.complete(ep.received(1));
    let waited = fixture.wait(Timeout::Infinite, 1);
    assert_eq!(waited.result.map(|event| number(event.data)), Ok(1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(Timeout::Micros(100_000), 1));
        fixture.until_blocked();
        let start = Instant::now();
        ring.complete(ep.received(2));
        let waited = waiter.join().expect("no panic");
        assert_eq!(waited.result.map(|event| number(event.data)), Ok(2));
        assert!(
            start.elapsed() > MOMENT,
            "only the timeout may end the wait"
        );
    });
}

#[test]
fn a_failed_completion_wakes() {
    let (fixture, _stream, ring) = without_solicited_flag(WaitPolicy::Block);
    let ep = FakeEp::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 1));
        fixture.until_blocked();
        ring.complete(dat_engine::Completion {
            status: dat_engine::Status::WrFlush,
            ..ep.received(1)
        });
        assert!(waiter.join().expect("no panic").result.is_ok());
    });
}

#[test]
fn an_old_event_makes_no_message_solicited() {
    let (fixture, _stream, ring) = without_solicited_flag(WaitPolicy::Block);
    let ep = FakeEp::new();
    // Armed by this wait; the event is raised after the wait.
    assert!(fixture.wait(Timeout::Micros(1000), 1).result.is_err());
    ring.complete(ep.solicited(1));
    assert_eq!(fixture.dequeue().map(number), Ok(1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 1));
        fixture.until_blocked();
        ring.complete(ep.received(2));
        thread::sleep(MOMENT);
        assert!(!waiter.is_finished());
        ring.complete(ep.solicited(3));
        assert_eq!(waiter.join().expect("no panic").nmore, 1);
    });
}

#[test]
fn completions_staged_for_another_thread_wake_by_a_later_event() {
    let (fixture, _stream, ring) = without_solicited_flag(WaitPolicy::Block);
    let ep = FakeEp::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 1));
        fixture.until_blocked();
        ring.complete(ep.received(1));
        // Makes the waiter poll.
        fixture.evd.drain();
        let begin = std::time::Instant::now();
        while ring.len() > 0 && begin.elapsed() < Duration::from_secs(8) {
            thread::yield_now();
        }
        if ring.len() > 0 {
            // Otherwise the waiter would wait for ever.
            ring.complete(ep.solicited(3));
            panic!("the waiter has not polled");
        }
        thread::sleep(MOMENT);
        assert!(!waiter.is_finished());
        ring.complete(ep.solicited(2));
        let waited = waiter.join().expect("no panic");
        assert_eq!(waited.result.map(|event| number(event.data)), Ok(1));
        assert_eq!(waited.nmore, 1);
    });
}

#[test]
fn no_solicited_message_is_lost_between_polling_and_arming() {
    for policy in POLICIES {
        let (fixture, _stream, ring) = without_solicited_flag(policy);
        let ep = FakeEp::new();
        for round in 0..500u64 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..(round * 37) % 4000 {
                        core::hint::spin_loop();
                    }
                    ring.complete(ep.solicited(round));
                });
                let waited = fixture.wait(Timeout::Micros(20_000_000), 1);
                assert_eq!(waited.result.map(|event| number(event.data)), Ok(round));
            });
        }
    }
}

#[test]
fn a_queue_that_cannot_be_armed_fails_waits_but_not_events() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    let ep = FakeEp::new();
    ring.is_broken.store(true, Ordering::Relaxed);
    assert_eq!(
        code(fixture.wait(Timeout::Infinite, 1).result),
        (ReturnType::InternalError, Subtype::NoSubtype)
    );
    ring.complete(ep.received(1));
    assert!(fixture.wait(Timeout::Infinite, 1).result.is_ok());
    assert!(fixture.wait(Timeout::Infinite, 1).result.is_err());
}
