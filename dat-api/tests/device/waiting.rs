//! Waiting for the device, on the completion channel, with threads that really sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat_api::EvdRefusal;
use dat_api::object::ep::Ep;
use dat_api::object::evd::{self, Evd, Timeout, Waited};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EpAttributes, EvdFlags, EventData,
};
use dat_engine::wait::WaitPolicy;

use crate::fixture::*;

/// Two connected endpoints; the second has an EVD for its receives alone, whose waits block at
/// once.
struct Receiver {
    fixture: Fixture,
    eps: [Arc<Ep>; 2],
    receives: Arc<Evd>,
    /// The EVDs of everything else.
    others: [Arc<Evd>; 2],
    /// The thread that waits on `receives`.
    waiter: AtomicI32,
}

impl Receiver {
    fn new(recv_completion_flags: CompletionFlags) -> Self {
        let fixture = Fixture::new();
        let block = Some(WaitPolicy::Block);
        let receives = Evd::create(&fixture.ia, 8, EvdFlags::DTO, block).expect("an EVD");
        let others = [fixture.evd(64), fixture.evd(64)];
        let attributes = EpAttributes {
            recv_completion_flags,
            ..plain()
        };
        let other = Some(&others[1]);
        let recv = Some(&receives);
        let pz = Some(&fixture.pz);
        let receiver = Ep::create(&fixture.ia, pz, recv, other, other, Some(&attributes));
        let eps = [
            fixture.ep(&others[0], &plain()),
            receiver.expect("an endpoint"),
        ];
        fixture.join(&eps, &others);
        Self {
            fixture,
            eps,
            receives,
            others,
            waiter: AtomicI32::new(0),
        }
    }

    fn recv(&self, cookie: u64, flags: CompletionFlags) {
        let segment = [self.fixture.memory.local(0, 64)];
        // SAFETY: one thread posts; the memory is never unmapped.
        unsafe { self.eps[1].post_recv(&segment, cookie, flags) }.expect("room");
    }

    /// Sends a message, which has arrived when this returns.
    fn send(&self, flags: CompletionFlags) {
        let segment = [self.fixture.memory.local(128, 8)];
        send_with(&self.eps[0], &segment, 0, flags).expect("room");
        success(&self.others[0]);
    }

    fn wait(&self, timeout: Timeout, threshold: i32) -> Waited {
        // SAFETY: the call has no preconditions.
        let thread = unsafe { libc::gettid() };
        self.waiter.store(thread, Ordering::Relaxed);
        wait(&self.receives, timeout, threshold)
    }

    /// Waits until the thread that waits on `receives` sleeps. It has armed the queue then; on
    /// the verbs path, completions that came before count as solicited.
    fn until_asleep(&self) {
        until_asleep(|| self.waiter.load(Ordering::Relaxed));
    }
}

/// Gives a thread time to wake without reason.
fn a_while() {
    thread::sleep(Duration::from_millis(20));
}

fn wait(evd: &Evd, timeout: Timeout, threshold: i32) -> Waited {
    let mut owned = evd::own(evd.handle()).expect("no other wait");
    evd::wait(&mut owned, timeout, threshold)
}

fn cookie(result: Result<dat_api::types::Event, EvdRefusal>) -> u64 {
    match result.expect("an event").data {
        EventData::Dto { cookie, .. } => cookie,
        other => panic!("not a completion: {other:?}"),
    }
}

const NONE: CompletionFlags = CompletionFlags::empty();

#[test]
fn evd_wait_w10_w13_sleeps_until_the_threshold_is_reached() {
    let end = Receiver::new(CompletionFlags::EVD_THRESHOLD);
    for cookie in 0..4 {
        end.recv(cookie, NONE);
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| end.wait(Timeout::Infinite, 3));
        end.until_asleep();
        for _ in 0..2 {
            end.send(NONE);
            a_while();
            assert!(!waiter.is_finished());
        }
        end.send(NONE);
        let waited = waiter.join().expect("no panic");
        assert_eq!((cookie(waited.result), waited.nmore), (0, 2));
    });
    assert!(end.receives.counters().blocks >= 1, "it slept");
    end.send(NONE);
    let waited = end.wait(Timeout::Micros(0), 3);
    assert_eq!((cookie(waited.result), waited.nmore), (1, 2));
}

/// On some devices the library flushes such a receive itself, and the device raises no event.
#[test]
fn evd_wait_wakes_for_a_receive_flushed_at_its_post() {
    let end = &Receiver::new(NONE);
    end.eps[1].disconnect_now(false).expect("connected");
    let (kind, _) = connection(&end.others[1]);
    assert_eq!(kind, ConnectionKind::Disconnected);
    for posted in 0..3 {
        thread::scope(|scope| {
            let timeout = u32::try_from(TIMEOUT.as_micros()).expect("some seconds");
            let begun = Instant::now();
            let waiter = scope.spawn(move || end.wait(Timeout::Micros(timeout), 1));
            end.until_asleep();
            end.recv(posted, NONE);
            let waited = waiter.join().expect("no panic");
            match waited.result.expect("woken").data {
                EventData::Dto { cookie, status, .. } => {
                    assert_eq!((cookie, status), (posted, DtoStatus::Flushed));
                }
                other => panic!("not a completion: {other:?}"),
            }
            // The event must not be found by the last poll of a wait whose timeout has expired.
            assert!(begun.elapsed() < TIMEOUT, "the wait slept on");
        });
    }
    assert!(end.receives.counters().blocks >= 3, "it slept");
}

#[test]
fn evd_wait_sleeps_and_wakes_repeatedly() {
    let end = Receiver::new(NONE);
    const ROUNDS: u64 = 300;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                end.recv(round, NONE);
                end.send(NONE);
                if round % 3 == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
                // No further ahead than there is room for.
                until("the waiter", || {
                    end.eps[1].recv_query().allocated == 0 || round % 5 != 0
                });
            }
        });
        for round in 0..ROUNDS {
            let waited = end.wait(Timeout::Micros(60_000_000), 1);
            assert_eq!(cookie(waited.result), round);
        }
    });
    assert!(end.receives.counters().blocks > 0);
}

#[test]
fn evd_wait_w21_solicited_receives_and_failures_wake_and_others_do_not() {
    let end = Receiver::new(CompletionFlags::SOLICITED_WAIT);
    for cookie in 0..6 {
        end.recv(cookie, NONE);
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| end.wait(Timeout::Infinite, 1));
        end.until_asleep();
        for _ in 0..2 {
            end.send(NONE);
            a_while();
            assert!(!waiter.is_finished());
        }
        end.send(CompletionFlags::SOLICITED_WAIT);
        let waited = waiter.join().expect("no panic");
        assert_eq!((cookie(waited.result), waited.nmore), (0, 2));
    });
    for expected in [1, 2] {
        assert_eq!(cookie(end.wait(Timeout::Micros(0), 1).result), expected);
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| end.wait(Timeout::Infinite, 1));
        end.until_asleep();
        end.eps[0].disconnect_now(false).expect("connected");
        assert_eq!(cookie(waiter.join().expect("no panic").result), 3);
    });
}

#[test]
fn evd_wait_wakes_for_every_queue_of_an_evd() {
    let end = Receiver::new(NONE);
    let others = [end.fixture.evd(64), end.fixture.evd(64)];
    // So deep that the first queue has no room for it.
    let deep = EpAttributes {
        max_recv_dtos: 100,
        ..plain()
    };
    let (receives, other) = (Some(&end.receives), Some(&others[1]));
    let pz = Some(&end.fixture.pz);
    let far =
        Ep::create(&end.fixture.ia, pz, receives, other, other, Some(&deep)).expect("an endpoint");
    let eps = [end.fixture.ep(&others[0], &plain()), far];
    end.fixture.join(&eps, &others);
    assert_eq!(end.receives.queue_length(), 108);
    let segment = [end.fixture.memory.local(0, 64)];
    thread::scope(|scope| {
        for round in 0..20 {
            let waiter = scope.spawn(|| end.wait(Timeout::Infinite, 1));
            if round % 4 == 0 {
                end.until_asleep();
            }
            if round % 2 == 0 {
                end.recv(round, NONE);
                end.send(NONE);
            } else {
                recv(&eps[1], &segment, round).expect("room");
                send(&eps[0], &segment, round).expect("room");
                success(&others[0]);
            }
            assert_eq!(cookie(waiter.join().expect("no panic").result), round);
        }
    });
}

#[test]
fn evd_completions_precede_a_later_disconnect() {
    let fixture = Fixture::new();
    for by_wait in [true, false] {
        let pair = fixture.pair();
        let segment = [fixture.memory.local(0, 8)];
        for cookie in 0..8 {
            recv(&pair.eps[1], &segment, cookie).expect("room");
        }
        for cookie in 0..6 {
            send(&pair.eps[0], &segment, cookie).expect("room");
        }
        for cookie in 0..6 {
            assert_eq!(success(&pair.evds[0]), (cookie, 8));
        }
        pair.eps[0].disconnect_now(false).expect("connected");
        // The connection event is there before the first completion is taken.
        reaches(&pair.eps[1], dat_api::types::EpState::Disconnected);
        a_while();
        let mut seen = 0;
        loop {
            let event = if by_wait {
                next(&pair.evds[1])
            } else {
                let owned = evd::own(pair.evds[1].handle()).expect("no other wait");
                evd::dequeue(owned).expect("an event").data
            };
            match event {
                EventData::Dto { cookie, .. } => {
                    assert_eq!(cookie, seen);
                    seen += 1;
                }
                EventData::Connection { kind, .. } => {
                    assert_eq!(kind, ConnectionKind::Disconnected);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(
            seen >= 6,
            "{seen} of 6 successful completions came before it"
        );
    }
}

#[test]
fn evd_wait_w18_closing_the_adapter_ends_the_wait() {
    let end = Receiver::new(NONE);
    end.recv(1, NONE);
    let start = Instant::now();
    let closed = thread::scope(|scope| {
        let waiter = scope.spawn(|| end.wait(Timeout::Infinite, 1));
        end.until_asleep();
        let closed = close_ia(end.fixture.ia.handle(), false);
        let result = waiter.join().expect("no panic").result;
        // The receive is flushed when its endpoint is freed first; a fast waiter gets that
        // completion.
        if let Err(code) = result {
            assert_eq!(code, EvdRefusal::Aborted);
        }
        closed
    });
    closed.expect("an abrupt close always completes");
    assert!(start.elapsed() < TIMEOUT);
    // The adapter is closed already.
    std::mem::forget(end);
}
