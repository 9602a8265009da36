//! Waiting: thresholds, timeouts, and what ends a wait.

use core::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use dat_engine::wait::{WaitCounters, WaitPolicy};

use super::fixture::{FakeEp, Fixture, code, number};
use crate::object::evd::{DtoRole, Evd, PollMode, Timeout, begin, own, poll_for_cno, wait};
use crate::object::steps::{Begun, Next, Steps};
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EvdFlags};

const EXPIRED: (ReturnType, Subtype) = (ReturnType::TimeoutExpired, Subtype::NoSubtype);
const NOT_ONLY: (ReturnType, Subtype) = (ReturnType::InvalidState, Subtype::InvalidStateEvdWaiter);

/// All wait policies.
const POLICIES: [WaitPolicy; 3] = [
    WaitPolicy::Block,
    WaitPolicy::Poll,
    WaitPolicy::Adaptive {
        min: Duration::ZERO,
        max: Some(WaitPolicy::DEFAULT_MAX),
    },
];

fn millis(millis: u32) -> Timeout {
    Timeout::Micros(millis * 1000)
}

#[test]
fn evd_wait_w01_takes_the_first_event() {
    let fixture = Fixture::software(4);
    for pointer in 1..=3 {
        fixture.post(pointer);
    }
    let waited = fixture.wait(Timeout::Infinite, 1);
    let event = waited.result.expect("an event");
    assert_eq!((event.evd, number(event.data)), (fixture.handle(), 1));
    assert_eq!(waited.nmore, 2);
    assert_eq!(fixture.dequeue().map(number), Ok(2));
}

#[test]
fn evd_wait_w06_a_waiter_excludes_other_calls() {
    let fixture = Fixture::software(4);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 2));
        fixture.until_blocked();
        fixture.post(1);
        for _ in 0..100 {
            assert_eq!(code(fixture.dequeue()), NOT_ONLY);
            assert_eq!(code(fixture.poll(1).result), NOT_ONLY);
            assert_eq!(code(fixture.wait(Timeout::Infinite, 1).result), NOT_ONLY);
        }
        fixture.post(2);
        let waited = waiter.join().expect("no panic");
        assert_eq!(waited.result.map(|event| number(event.data)), Ok(1));
    });
    assert_eq!(fixture.dequeue().map(number), Ok(2), "free again");
}

#[test]
fn evd_wait_w08_the_timeout_is_in_microseconds() {
    for policy in POLICIES {
        let fixture = Fixture::with_policy(4, EvdFlags::SOFTWARE, policy);
        let start = Instant::now();
        assert_eq!(
            code(fixture.wait(Timeout::Micros(30_000), 1).result),
            EXPIRED
        );
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(30), "{policy}: {took:?}");
        assert!(took < Duration::from_secs(3), "{policy}: {took:?}");
    }
}

#[test]
fn evd_wait_w08_spurious_wake_ups_do_not_restart_the_timeout() {
    for policy in POLICIES {
        let fixture = Fixture::with_policy(4096, EvdFlags::SOFTWARE, policy);
        let start = Instant::now();
        let waited = thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(millis(60), 4096));
            while !waiter.is_finished() && start.elapsed() < Duration::from_secs(4) {
                fixture.post(1);
                thread::sleep(Duration::from_millis(2));
            }
            waiter.join().expect("no panic")
        });
        assert_eq!(code(waited.result), EXPIRED);
        assert!(waited.nmore > 2, "{policy}: {}", waited.nmore);
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(60), "{policy}: {took:?}");
        assert!(took < Duration::from_secs(3), "{policy}: {took:?}");
    }
}

#[test]
fn evd_wait_w08_the_longest_timeout_does_not_overflow() {
    let fixture = Fixture::software(1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(Timeout::Micros(u32::MAX - 1), 1));
        fixture.until_blocked();
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        fixture.post(1);
        assert!(waiter.join().expect("no panic").result.is_ok());
    });
}

#[test]
fn evd_wait_w09_below_the_threshold_nothing_is_taken() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::EVD_THRESHOLD);
    let ep = FakeEp::new();
    for timeout in [Timeout::Micros(0), Timeout::Micros(1), millis(5)] {
        let waited = fixture.wait(timeout, 8);
        let queued = ring.len() as u32;
        assert_eq!(code(waited.result), EXPIRED);
        assert_eq!(waited.nmore, queued);
        ring.complete(ep.received(u64::from(queued)));
    }
    for cookie in 0..3 {
        assert_eq!(fixture.dequeue().map(number), Ok(cookie));
    }
}

/// A wait peeks at a completion and takes it later; meanwhile another thread may have reset the
/// endpoint.
#[test]
fn evd_wait_continues_if_its_completion_is_stale_when_taken() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    let ep = FakeEp::new();
    for behind in [false, true] {
        ring.complete(ep.received(1));
        ring.stale.store(1, Ordering::Relaxed);
        if behind {
            ring.complete(ep.received(2));
        }
        let waited = fixture.poll(1);
        assert_eq!((ring.len(), waited.nmore), (0, 0));
        match waited.result {
            Ok(event) if behind => assert_eq!(number(event.data), 2),
            result => assert_eq!(code(result), EXPIRED),
        }
    }
}

#[test]
fn evd_wait_w10_wakes_at_the_threshold_and_not_before() {
    for policy in POLICIES {
        let fixture = Fixture::with_policy(8, EvdFlags::SOFTWARE, policy);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 3));
            fixture.until_blocked();
            for pointer in 0..2 {
                fixture.post(pointer);
                thread::sleep(Duration::from_millis(10));
                assert!(!waiter.is_finished(), "{policy}: {pointer}");
            }
            fixture.post(2);
            let waited = waiter.join().expect("no panic");
            assert_eq!(waited.result.map(|event| number(event.data)), Ok(0));
            assert_eq!(waited.nmore, 2);
        });
    }
}

#[test]
fn evd_wait_w11_the_threshold_is_from_1_to_the_queue_length() {
    let (fixture, _stream, _ring) = Fixture::receiving(8, CompletionFlags::EVD_THRESHOLD);
    let bad = (ReturnType::InvalidParameter, Subtype::InvalidArg3);
    for threshold in [0, -1, i32::MIN, 9, i32::MAX] {
        for timeout in [Timeout::Micros(0), Timeout::Infinite] {
            assert_eq!(
                code(fixture.wait(timeout, threshold).result),
                bad,
                "{threshold}"
            );
        }
    }
    for threshold in [1, 8] {
        assert_eq!(code(fixture.poll(threshold).result), EXPIRED);
    }
    // The length is what queries report; it grows with the attached streams.
    let more = crate::object::evd::DtoRole::Request { depth: 5 };
    let more = fixture
        .evd
        .attach_dto(more, CompletionFlags::EVD_THRESHOLD, &[]);
    assert_eq!(fixture.evd.queue_length(), 13);
    assert_eq!(code(fixture.poll(13).result), EXPIRED);
    assert_eq!(code(fixture.poll(14).result), bad);
    drop(more);
}

#[test]
fn evd_wait_w12_controlled_notification_takes_threshold_1_only() {
    for (flags, subtype) in [
        (
            CompletionFlags::UNSIGNALLED,
            Subtype::InvalidStateEvdConfigNotify,
        ),
        (
            CompletionFlags::SOLICITED_WAIT,
            Subtype::InvalidStateEvdConfigSolicited,
        ),
    ] {
        let (fixture, stream, _ring) = Fixture::receiving(8, flags);
        for threshold in [2, 8] {
            assert_eq!(
                code(fixture.poll(threshold).result),
                (ReturnType::InvalidState, subtype)
            );
        }
        assert_eq!(code(fixture.poll(1).result), EXPIRED);
        assert_eq!(code(fixture.poll(9).result).0, ReturnType::InvalidParameter);
        drop(stream);
        assert_eq!(code(fixture.poll(2).result), EXPIRED);
    }
    for flags in [CompletionFlags::empty(), CompletionFlags::EVD_THRESHOLD] {
        let (fixture, _stream, _ring) = Fixture::receiving(8, flags);
        assert_eq!(code(fixture.poll(2).result), EXPIRED);
    }
}

#[test]
fn evd_wait_w13_nmore_is_what_is_left() {
    let fixture = Fixture::new(64, EvdFlags::DTO | EvdFlags::SOFTWARE);
    let role = crate::object::evd::DtoRole::Recv { depth: 64 };
    let _stream = fixture.evd.attach_dto(role, CompletionFlags::empty(), &[]);
    let ring = fixture.ia.rings().remove(0);
    let ep = FakeEp::new();
    let mut left = 0;
    for round in 0..200u64 {
        for _ in 0..round % 4 {
            ring.complete(ep.received(round));
            left += 1;
        }
        if round % 5 == 0 {
            fixture.post(1);
            left += 1;
        }
        let threshold = 1 + (round % 3) as i32;
        let before = left;
        let waited = fixture.poll(threshold);
        if waited.result.is_ok() {
            left -= 1;
            assert!(waited.nmore >= threshold as u32 - 1);
        } else {
            assert!(before < threshold as u32, "{before} {threshold}");
        }
        assert_eq!(waited.nmore, left, "round {round}");
        if round % 7 == 0 && fixture.dequeue().is_ok() {
            left -= 1;
        }
        while left > 50 {
            fixture.dequeue().expect("there");
            left -= 1;
        }
    }
}

#[test]
fn evd_wait_w16_unwaitable_refuses_at_once_even_with_events() {
    let fixture = Fixture::software(2);
    let refused = (ReturnType::InvalidState, Subtype::InvalidStateEvdUnwaitable);
    fixture.post(1);
    fixture.evd.set_unwaitable();
    assert_eq!(code(fixture.poll(1).result), refused);
    assert_eq!(code(fixture.wait(Timeout::Infinite, 1).result), refused);
    fixture.evd.clear_unwaitable();
    assert!(fixture.poll(1).result.is_ok());
}

#[test]
fn evd_wait_w16_unwaitable_wakes_the_waiter() {
    for policy in POLICIES {
        let fixture = Fixture::with_policy(2, EvdFlags::SOFTWARE, policy);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 2));
            fixture.until_blocked();
            fixture.post(1);
            fixture.evd.set_unwaitable();
            assert_eq!(
                code(waiter.join().expect("no panic").result),
                (ReturnType::InvalidState, Subtype::InvalidStateEvdUnwaitable)
            );
        });
        assert_eq!(fixture.dequeue().map(number), Ok(1), "nothing was lost");
    }
}

#[test]
fn evd_wait_w18_freeing_wakes_the_waiter() {
    let abort = (ReturnType::Abort, Subtype::NoSubtype);
    for policy in POLICIES {
        for by_abort in [true, false] {
            let fixture = Fixture::with_policy(2, EvdFlags::SOFTWARE, policy);
            fixture.post(1);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 2));
                fixture.until_blocked();
                if by_abort {
                    Evd::abort(fixture.handle());
                } else {
                    Evd::free(fixture.handle()).expect("a waiter does not keep it");
                }
                assert_eq!(code(waiter.join().expect("no panic").result), abort);
            });
            assert_eq!(code(fixture.dequeue()).0, ReturnType::InvalidHandle);
        }
    }
}

#[test]
fn evd_wait_w18_a_wait_on_an_aborted_evd_returns_at_once() {
    for flags in [EvdFlags::SOFTWARE, EvdFlags::DTO] {
        let fixture = Fixture::with_policy(2, flags, WaitPolicy::Block);
        let role = crate::object::evd::DtoRole::Recv { depth: 2 };
        let _stream = fixture.evd.attach_dto(role, CompletionFlags::empty(), &[]);
        // Makes the owner process the command that attaches the queue.
        assert!(fixture.dequeue().is_err());
        let mut owned = own(fixture.handle()).expect("not owned yet");
        fixture.evd.state.abort();
        let waited = wait(&mut owned, Timeout::Infinite, 1);
        assert_eq!(code(waited.result), (ReturnType::Abort, Subtype::NoSubtype));
    }
}

#[test]
fn evd_wait_w20_timeout_0_polls_once() {
    for policy in POLICIES {
        let fixture = Fixture::with_policy(2, EvdFlags::DTO | EvdFlags::SOFTWARE, policy);
        let role = crate::object::evd::DtoRole::Recv { depth: 2 };
        let _stream = fixture.evd.attach_dto(role, CompletionFlags::empty(), &[]);
        for _ in 0..10 {
            assert_eq!(code(fixture.poll(1).result), EXPIRED);
        }
        fixture.post(4);
        assert!(fixture.poll(1).result.is_ok());
        assert_eq!(fixture.evd.counters(), WaitCounters::default());
        let ring = fixture.ia.rings().remove(0);
        assert_eq!(ring.arms.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn evd_wait_w21_every_completion_notifies_by_default() {
    for flags in [CompletionFlags::empty(), CompletionFlags::EVD_THRESHOLD] {
        let (fixture, _stream, ring) = Fixture::receiving(8, flags);
        let ep = FakeEp::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 1));
            fixture.until_blocked();
            ring.complete(ep.received(3));
            let waited = waiter.join().expect("no panic");
            assert_eq!(waited.result.map(|event| number(event.data)), Ok(3));
        });
    }
}

#[test]
fn evd_wait_w21_with_solicited_wait_only_solicited_receives_wake() {
    for policy in POLICIES {
        let fixture = Fixture::with_policy(8, EvdFlags::DTO, policy);
        let role = crate::object::evd::DtoRole::Recv { depth: 8 };
        let _stream = fixture
            .evd
            .attach_dto(role, CompletionFlags::SOLICITED_WAIT, &[]);
        let ring = fixture.ia.rings().remove(0);
        let ep = FakeEp::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 1));
            fixture.until_blocked();
            for cookie in 0..3 {
                ring.complete(ep.received(cookie));
                thread::sleep(Duration::from_millis(5));
                assert!(!waiter.is_finished(), "{policy}");
            }
            ring.complete(ep.solicited(3));
            let waited = waiter.join().expect("no panic");
            assert_eq!(waited.result.map(|event| number(event.data)), Ok(0));
            assert_eq!(waited.nmore, 3);
        });
    }
}

#[test]
fn evd_wait_w21_events_that_do_not_notify_are_found_at_the_beginning_and_at_the_end() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::SOLICITED_WAIT);
    let ep = FakeEp::new();
    ring.complete(ep.received(1));
    let waited = fixture.wait(Timeout::Infinite, 1);
    assert_eq!(waited.result.map(|event| number(event.data)), Ok(1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let start = Instant::now();
            (fixture.wait(millis(50), 1), start.elapsed())
        });
        fixture.until_blocked();
        ring.complete(ep.received(2));
        let (waited, took) = waiter.join().expect("no panic");
        assert_eq!(waited.result.map(|event| number(event.data)), Ok(2));
        assert!(took >= Duration::from_millis(50), "{took:?}");
    });
}

#[test]
fn evd_wait_sees_events_that_a_drain_has_staged() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    let ep = FakeEp::new();
    for round in 0..200 {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| fixture.wait(Timeout::Infinite, 1));
            while !fixture.evd.state.is_waited() {
                thread::yield_now();
            }
            ring.complete(ep.received(round));
            fixture.evd.drain();
            let waited = waiter.join().expect("no panic");
            assert_eq!(waited.result.map(|event| number(event.data)), Ok(round));
        });
    }
}

#[test]
fn evd_wait_updates_its_counters() {
    let fixture = Fixture::software(1);
    assert_eq!(code(fixture.wait(millis(2), 1).result), EXPIRED);
    let counters = fixture.evd.counters();
    assert_eq!((counters.spins, counters.hits), (0, 0), "it blocks at once");
    assert!(counters.blocks >= 1);
}

/// A queue that is attached between the poll of a wait and its arm raises events, too.
#[test]
fn evd_wait_arms_a_queue_that_was_attached_meanwhile() {
    let fixture = Fixture::with_policy(8, EvdFlags::DTO, WaitPolicy::Block);
    let owned = own(fixture.handle()).expect("free");
    let Begun::Waits(mut waiting) = begin(owned, Timeout::Infinite, 1) else {
        panic!("there are no events");
    };
    let role = DtoRole::Recv { depth: 8 };
    let stream = fixture.evd.attach_dto(role, CompletionFlags::empty(), &[]);
    let ring = fixture.ia.rings().pop().expect("a queue");
    assert!(matches!(waiting.go_on(None), Next::Sleep(_)), "no events");
    assert_eq!(ring.arms.load(Ordering::Relaxed), 1);
    drop((waiting, stream));
}

/// The same for a thread that waits on the CNO.
#[test]
fn a_cno_arms_a_queue_that_was_attached_meanwhile() {
    let fixture = Fixture::new(8, EvdFlags::DTO);
    let cno = FakeEp::new();
    let bound = fixture.evd.bind_cno(Some(cno.handle()), false, |_| Ok(()));
    bound.expect("bound");
    let role = DtoRole::Recv { depth: 8 };
    let _stream = fixture.evd.attach_dto(role, CompletionFlags::empty(), &[]);
    let ring = fixture.ia.rings().pop().expect("a queue");
    poll_for_cno(cno.handle(), fixture.handle(), PollMode::Arm).expect("polled");
    assert_eq!(ring.arms.load(Ordering::Relaxed), 1);
}
