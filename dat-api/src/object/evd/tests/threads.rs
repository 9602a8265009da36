//! Many threads on one EVD, and on several.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::wait::WaitPolicy;

use super::fixture::{FakeEp, Fixture, code, number};
use crate::object::evd::{DtoRole, DtoStream, Evd, Timeout};
use crate::status::ReturnType;
use crate::types::{CompletionFlags, EvdFlags};

const ADAPTIVE: WaitPolicy = WaitPolicy::Adaptive {
    min: Duration::ZERO,
    max: Some(Duration::from_micros(20)),
};

/// How a thread takes events.
#[derive(Clone, Copy, Debug)]
enum How {
    Dequeue,
    Wait,
    Both,
}

/// Several threads post to and take from one EVD: every event comes exactly once, and each taker
/// gets the events of one poster in order.
fn everything_comes_once(takers: usize, how: How, policy: WaitPolicy) {
    const POSTERS: usize = 2;
    const EACH: usize = 4000;
    let fixture = Fixture::with_policy(16, EvdFlags::SOFTWARE, policy);
    let taken = AtomicUsize::new(0);
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for poster in 0..POSTERS {
            let fixture = &fixture;
            scope.spawn(move || {
                for index in 0..EACH {
                    while fixture.evd.post_software(index * POSTERS + poster).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        for taker in 0..takers {
            let (fixture, taken, all) = (&fixture, &taken, &all);
            scope.spawn(move || {
                let mut mine = Vec::new();
                while taken.load(Ordering::Relaxed) < POSTERS * EACH {
                    let waits = match how {
                        How::Dequeue => false,
                        How::Wait => true,
                        How::Both => taker % 2 == 0,
                    };
                    let result = if waits {
                        let waited = fixture.wait(Timeout::Micros(500), 1);
                        waited.result.map(|event| event.data)
                    } else {
                        fixture.dequeue()
                    };
                    match result {
                        Ok(data) => {
                            taken.fetch_add(1, Ordering::Relaxed);
                            mine.push(number(data) as usize);
                        }
                        Err(error) => {
                            let (kind, _) = code::<()>(Err(error));
                            let by_waiter = kind == ReturnType::InvalidState;
                            assert!(
                                kind == ReturnType::QueueEmpty
                                    || kind == ReturnType::TimeoutExpired
                                    || by_waiter && !matches!(how, How::Dequeue),
                                "{how:?}: {error}"
                            );
                            thread::yield_now();
                        }
                    }
                }
                for poster in 0..POSTERS {
                    let theirs = mine.iter().filter(|&&number| number % POSTERS == poster);
                    assert!(theirs.is_sorted(), "the order of one stream");
                }
                all.lock().extend(mine);
            });
        }
    });
    let mut all = all.into_inner();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..POSTERS * EACH), "exactly once each");
}

#[test]
fn evd_w22_two_threads_take_from_one_evd() {
    everything_comes_once(2, How::Dequeue, WaitPolicy::Block);
    everything_comes_once(2, How::Both, WaitPolicy::Block);
    everything_comes_once(2, How::Wait, ADAPTIVE);
}

#[test]
fn evd_w22_four_threads_take_from_one_evd() {
    everything_comes_once(4, How::Dequeue, WaitPolicy::Block);
    everything_comes_once(4, How::Both, ADAPTIVE);
    everything_comes_once(4, How::Wait, WaitPolicy::Block);
}

#[test]
fn evd_no_wake_up_is_lost_in_a_ping_pong() {
    for policy in [WaitPolicy::Block, ADAPTIVE] {
        let ends = [(); 2].map(|()| Fixture::with_policy(1, EvdFlags::SOFTWARE, policy));
        const ROUNDS: usize = 3000;
        thread::scope(|scope| {
            for me in 0..2 {
                let ends = &ends;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if me == 0 {
                            ends[1].post(round);
                        }
                        let waited = ends[me].wait(Timeout::Infinite, 1);
                        let event = waited.result.expect("an event");
                        assert_eq!(number(event.data), round as u64);
                        if me == 1 {
                            ends[0].post(round);
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn evd_no_completion_is_missed_by_a_sleeping_wait() {
    const ROUNDS: u64 = 6000;
    for (policy, threshold) in [(WaitPolicy::Block, 1), (ADAPTIVE, 1), (ADAPTIVE, 3)] {
        let fixture = Fixture::with_policy(16, EvdFlags::DTO | EvdFlags::CONNECTION, policy);
        let role = DtoRole::Recv { depth: 16 };
        let flags = CompletionFlags::EVD_THRESHOLD;
        let _streams =
            [(); 2].map(|()| fixture.evd.attach_dto(role, flags, &[]).expect("a stream"));
        let rings = fixture.ia.rings();
        let ep = FakeEp::new();
        let taken = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for cookie in 0..ROUNDS {
                    while cookie >= u64::from(taken.load(Ordering::Acquire)) + 8 {
                        core::hint::spin_loop();
                    }
                    rings[cookie as usize % 2].complete(ep.received(cookie));
                    if cookie % 64 == 0 {
                        thread::sleep(Duration::from_micros(30));
                    }
                }
            });
            let mut seen = Vec::new();
            while seen.len() < ROUNDS as usize {
                let left = ROUNDS as i32 - seen.len() as i32;
                let waited = fixture.wait(Timeout::Infinite, threshold.min(left));
                seen.push(number(waited.result.expect("an event").data));
                taken.fetch_add(1, Ordering::Release);
            }
            for half in 0..2 {
                let theirs = seen.iter().filter(|&&cookie| cookie % 2 == half);
                assert!(theirs.is_sorted(), "the order of one queue");
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..ROUNDS));
        });
        assert_eq!(ep.counters().recv_staged.load(Ordering::Relaxed), 0);
        assert!(rings.iter().all(|ring| ring.len() == 0));
    }
}

#[test]
fn evd_w18_abort_under_waiters_at_any_moment() {
    for round in 0..800u64 {
        let policy = if round % 2 == 0 {
            WaitPolicy::Block
        } else {
            ADAPTIVE
        };
        let fixture = Fixture::with_policy(4, EvdFlags::SOFTWARE | EvdFlags::DTO, policy);
        // An EVD with a completion queue waits for one event on the fast path.
        let _stream = (round % 4 < 2).then(|| receives(&fixture));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let waited = fixture.wait(Timeout::Infinite, 1);
                        match code(waited.result).0 {
                            ReturnType::InvalidState => thread::yield_now(),
                            ReturnType::Abort | ReturnType::InvalidHandle => break,
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_micros(round / 2) {
                core::hint::spin_loop();
            }
            Evd::abort(fixture.handle());
        });
    }
}

#[test]
fn evd_w16_unwaitable_under_a_waiter_at_any_moment() {
    let fixture = Fixture::with_policy(4, EvdFlags::SOFTWARE, ADAPTIVE);
    unwaitable_at_any_moment(&fixture);
    let fixture = Fixture::with_policy(4, EvdFlags::DTO, ADAPTIVE);
    let _stream = receives(&fixture);
    unwaitable_at_any_moment(&fixture);
}

fn receives(fixture: &Fixture) -> DtoStream {
    let role = DtoRole::Recv { depth: 2 };
    let stream = fixture.evd.attach_dto(role, CompletionFlags::empty(), &[]);
    // Makes the owner process the command that attaches the queue.
    assert!(fixture.dequeue().is_err());
    stream.expect("attached")
}

fn unwaitable_at_any_moment(fixture: &Fixture) {
    let (stop, refusals) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let waited = fixture.wait(Timeout::Infinite, 1);
                assert_eq!(code(waited.result).0, ReturnType::InvalidState);
                refusals.fetch_add(1, Ordering::Release);
            }
        });
        for round in 0..2000 {
            fixture.evd.clear_unwaitable();
            if round % 2 == 0 {
                while !fixture.evd.state.is_waited() {
                    core::hint::spin_loop();
                }
            }
            let before = refusals.load(Ordering::Acquire);
            fixture.evd.set_unwaitable();
            // The wait fails each time; otherwise the test would hang here.
            while refusals.load(Ordering::Acquire) == before {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Release);
    });
}

#[test]
fn evd_several_evds_work_while_streams_attach_and_detach() {
    const EVDS: usize = 4;
    let rigs: Vec<_> = (0..EVDS)
        .map(|_| Fixture::with_policy(8, EvdFlags::all(), ADAPTIVE))
        .collect();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for fixture in &rigs {
            let done = &done;
            scope.spawn(move || {
                for round in 0..300u64 {
                    let role = DtoRole::Recv {
                        depth: 1 + (round % 8) as u32,
                    };
                    let stream = fixture
                        .evd
                        .attach_dto(role, CompletionFlags::EVD_THRESHOLD, &[]);
                    let stream = stream.expect("room");
                    let ep = FakeEp::new();
                    for _ in 0..stream.depth() {
                        fixture.ia.rings()[stream.queue()].complete(ep.received(round));
                    }
                    fixture.evd.drain();
                    fixture.evd.purge(ep.handle());
                    drop(stream);
                    while fixture.evd.post_software(1).is_err() {
                        thread::yield_now();
                    }
                }
                done.fetch_add(1, Ordering::Release);
            });
            scope.spawn(move || {
                let mut posted = 0;
                while posted < 300 {
                    let waited = fixture.wait(Timeout::Infinite, 1);
                    let event = waited.result.expect("an event");
                    posted += u32::from(matches!(
                        event.data,
                        crate::types::EventData::Software { .. }
                    ));
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Acquire), EVDS);
    for fixture in &rigs {
        let rings = fixture.ia.rings().len();
        assert!(rings <= 4, "{rings} queues, although room was released");
    }
}
