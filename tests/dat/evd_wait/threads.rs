//! Many threads on one EVD, and many threads each on their own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, LONG, MESSAGE, MessagePair, SOON, joined};
use crate::support::{Fixture, Shape, c_name, dequeue, dto, fails, fails_with, nothing_on, ok};

/// How a thread gets events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Dequeue,
    Wait,
    /// Waiting and dequeuing threads.
    Both,
}

/// Takes the next completion, unless another thread owns the EVD or none is
/// queued.
#[track_caller]
fn take(evd: Evd, waits: bool, others_wait: bool) -> Option<u64> {
    let answer = if waits {
        let waited = evd.wait(300, 1);
        if waited.answer == DAT_SUCCESS {
            return Some(waited.tag().0);
        }
        waited.answer
    } else {
        match dequeue(evd.0) {
            Ok(event) => {
                let dto = dto(&event);
                assert_eq!((event.evd_handle, dto.status), (evd.0, DAT_DTO_SUCCESS));
                return Some(dto.cookie);
            }
            Err(answer) => answer,
        }
    };
    match answer & DAT_TYPE_MASK {
        DAT_QUEUE_EMPTY => assert!(!waits),
        DAT_TIMEOUT_EXPIRED => assert!(waits),
        _ => {
            assert!(others_wait, "refused although no thread waits");
            fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
        }
    }
    None
}

/// One thread sends and posts receives, the others take from one EVD. Every
/// message is taken exactly once, and each taker gets its messages in order.
fn take_from_one(takers: usize, how: How) {
    const MESSAGES: u64 = 600;
    const WINDOW: u64 = 16;
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let (recv, taken) = (messages.recv(), AtomicU64::new(0));
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for taker in 0..takers {
            let (all, taken) = (&all, &taken);
            scope.spawn(move || {
                let waits = how == How::Wait || how == How::Both && taker % 2 == 0;
                let mut mine = Vec::new();
                let mut begin = Instant::now();
                while taken.load(Ordering::Acquire) < MESSAGES {
                    match take(recv, waits, how != How::Dequeue) {
                        Some(tag) => {
                            taken.fetch_add(1, Ordering::AcqRel);
                            mine.push(tag);
                            begin = Instant::now();
                        }
                        None => thread::yield_now(),
                    }
                    assert!(begin.elapsed() < 3 * SOON, "{mine:?}");
                }
                assert!(mine.is_sorted(), "out of order: {mine:?}");
                all.lock().expect("no panic").extend(mine);
            });
        }
        let begin = Instant::now();
        for tag in 0..MESSAGES {
            while taken.load(Ordering::Acquire) + WINDOW <= tag {
                assert!(begin.elapsed() < 5 * SOON, "no thread takes events");
                thread::yield_now();
            }
            messages.post_recvs(tag..tag + 1);
            messages.deliver();
        }
    });
    let mut all = all.into_inner().expect("no panic");
    all.sort_unstable();
    assert!(all.into_iter().eq(0..MESSAGES), "exactly once each");
    nothing_on(recv.0);
}

#[test]
fn evd_wait_w22_two_threads_take_from_one_evd() {
    take_from_one(2, How::Dequeue);
    take_from_one(2, How::Wait);
    take_from_one(2, How::Both);
}

#[test]
fn evd_wait_w22_four_threads_take_from_one_evd() {
    take_from_one(4, How::Dequeue);
    take_from_one(4, How::Wait);
    take_from_one(4, How::Both);
}

/// Each thread has its own connection and plays ping-pong with itself: every wait
/// is for an event that its own call causes.
fn each_its_own(threads: usize) {
    const ROUNDS: u64 = 100;
    let fixture = Fixture::new();
    let message_pairs: Vec<_> = (0..threads)
        .map(|_| MessagePair::new(&fixture, &Shape::default()))
        .collect();
    thread::scope(|scope| {
        let run_in_background = fixture.run_in_background(scope);
        let players: Vec<_> = message_pairs
            .iter()
            .enumerate()
            .map(|(player, messages)| {
                scope.spawn(move || {
                    let mut ends = [messages.pair.active, messages.pair.passive];
                    for round in 0..ROUNDS {
                        let tag = round << 8 | player as u64;
                        let [from, to] = ends;
                        ok(to.post_recv(&[messages.memory.segment(1024, 64)], tag));
                        ok(from.post_send(
                            &[messages.memory.segment(0, MESSAGE)],
                            !tag,
                            DAT_COMPLETION_DEFAULT_FLAG,
                        ));
                        for (evd, ep, tag) in [(to.recv, to.ep, tag), (from.request, from.ep, !tag)]
                        {
                            let (dto, nmore) = Evd(evd).wait(LONG, 1).soon().dto();
                            assert_eq!(
                                (dto.ep, dto.cookie, dto.status, nmore),
                                (ep, tag, DAT_DTO_SUCCESS, 0)
                            );
                        }
                        ends.reverse();
                    }
                })
            })
            .collect();
        players.into_iter().for_each(joined);
        drop(run_in_background);
    });
    for messages in &message_pairs {
        nothing_on(messages.recv().0);
        nothing_on(messages.request().0);
    }
}

#[test]
fn evd_wait_w22_two_threads_wait_on_their_own_evds() {
    each_its_own(2);
}

#[test]
fn evd_wait_w22_four_threads_wait_on_their_own_evds() {
    each_its_own(4);
}

/// Waits, refused calls, and EVDs that are created and freed do not affect each
/// other.
#[test]
fn evd_wait_w22_evds_may_be_freed_during_waits_on_others() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    let (stop, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = AtEnd(&stop);
        for flags in [DAT_EVD_SOFTWARE_FLAG, DAT_EVD_DEFAULT_FLAG] {
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let evd = Evd(fixture.evd(4, flags));
                    assert_eq!(evd.wait(100, 1).expired(), 0);
                    evd.free();
                    // SAFETY: the call validates its handles.
                    fails(unsafe { dat_evd_free(evd.0) }, DAT_INVALID_HANDLE);
                    fails(evd.wait(LONG, 1).answer, DAT_INVALID_HANDLE);
                }
            });
        }
        let waiter = scope.spawn(|| {
            for tag in 0..200 {
                assert_eq!(recv.wait(LONG, 1).soon().tag(), (tag, 0));
                taken.store(tag + 1, Ordering::Release);
            }
        });
        for tag in 0..200 {
            messages.post_recvs(tag..tag + 1);
            if tag % 4 == 0 {
                recv.until_waited();
            }
            messages.deliver();
            while !waiter.is_finished() && taken.load(Ordering::Acquire) <= tag {
                thread::yield_now();
            }
        }
        joined(waiter);
    });
}

/// Sets a flag when dropped, so that threads end even if the test fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits that are ended, dequeues, and events: no event is lost.
#[test]
fn evd_wait_w22_w16_ending_waits_loses_no_event() {
    const EVENTS: usize = 500;
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 8);
    let taken = AtomicU64::new(0);
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            let (taken, all) = (&taken, &all);
            scope.spawn(move || {
                let begin = Instant::now();
                while taken.load(Ordering::Acquire) < EVENTS as u64 {
                    let waited = evd.wait(2_000, 1);
                    match waited.answer & DAT_TYPE_MASK {
                        DAT_SUCCESS => {
                            taken.fetch_add(1, Ordering::AcqRel);
                            all.lock().expect("no panic").push(waited.number().0);
                        }
                        DAT_TIMEOUT_EXPIRED => {}
                        _ => fails(waited.answer, DAT_INVALID_STATE),
                    }
                    assert!(begin.elapsed() < 5 * SOON);
                }
            });
        }
        let switch = scope.spawn(|| {
            while taken.load(Ordering::Acquire) < EVENTS as u64 {
                evd.set_unwaitable();
                thread::yield_now();
                evd.clear_unwaitable();
                thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        for number in 0..EVENTS {
            while evd.try_post(number) != DAT_SUCCESS {
                thread::yield_now();
            }
        }
        joined(switch);
    });
    let mut all = all.into_inner().expect("no panic");
    all.sort_unstable();
    assert!(all.into_iter().eq(0..EVENTS));
}

/// A wait of one thread ends with its IA while other threads use another IA.
#[test]
fn evd_wait_w22_w18_one_ia_may_be_closed_during_waits_on_another() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    messages.post_recvs(1..2);
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        for _ in 0..3 {
            let (mut ia, mut async_evd) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: every pointer leads to what the call expects.
            ok(unsafe {
                dat_ia_openv(
                    c_name().as_ptr().cast_mut(),
                    8,
                    &raw mut async_evd,
                    &raw mut ia,
                    1,
                    2,
                    DAT_FALSE,
                )
            });
            let other = Evd(async_evd).in_thread(scope, DAT_TIMEOUT_INFINITE, 1);
            // SAFETY: a live adapter.
            ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
            fails(joined(other).answer, DAT_ABORT);
        }
        super::stays(&waiter, recv);
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 0));
    });
}
