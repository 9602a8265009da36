//! `dat_evd_resize`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, joined, stays, waits};
use crate::support::{
    End, Fixture, Pair, Shape, abilities, dequeue, fails, fails_with, nothing_on, ok, take_dto,
};

fn resize(evd: Evd, qlen: DAT_COUNT) -> DAT_RETURN {
    // SAFETY: the call validates its handles.
    unsafe { dat_evd_resize(evd.0, qlen) }
}

/// Returns how many more software events an EVD takes. They are dequeued again.
fn room(evd: Evd) -> usize {
    let before = evd.drain();
    let mut count = 0;
    loop {
        match evd.try_post(1000 + count) {
            DAT_SUCCESS => count += 1,
            answer => {
                fails(answer, DAT_QUEUE_FULL);
                break;
            }
        }
    }
    assert_eq!(evd.drain().len(), count);
    for number in before {
        evd.post(number);
    }
    count
}

#[test]
fn evd_z01_it_holds_as_many_as_it_was_resized_to() {
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 4, DAT_EVD_SOFTWARE_FLAG);
    for qlen in [4, 9, 9, 200, 3, 1, 4, 5000, 2] {
        ok(resize(evd, qlen));
        assert_eq!(evd.query().evd_qlen, qlen);
        assert_eq!(room(evd), qlen as usize, "resized to {qlen}");
    }
}

#[test]
fn evd_z02_no_event_is_lost_or_moved() {
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 8, DAT_EVD_SOFTWARE_FLAG);
    let mut next = 0;
    let mut expected = std::collections::VecDeque::new();
    for qlen in [3, 40, 7, 7, 300, 12, 1] {
        // As many as fit both before and after.
        let fit = evd.query().evd_qlen.min(qlen) as usize;
        while expected.len() > fit {
            let event = dequeue(evd.0).expect("an event");
            assert_eq!(super::number(&event), expected.pop_front().expect("one"));
        }
        while expected.len() < fit {
            evd.post(next);
            expected.push_back(next);
            next += 1;
        }
        ok(resize(evd, qlen));
    }
    assert_eq!(evd.drain(), Vec::from(expected));
}

#[test]
fn evd_z03_more_events_than_the_new_size_are_a_wrong_state() {
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 8, DAT_EVD_SOFTWARE_FLAG);
    for number in 0..5 {
        evd.post(number);
    }
    for qlen in [1, 4] {
        fails(resize(evd, qlen), DAT_INVALID_STATE);
        assert_eq!(evd.query().evd_qlen, 8, "the length has not changed");
    }
    ok(resize(evd, 5));
    fails(evd.try_post(9), DAT_QUEUE_FULL);
    assert_eq!(evd.drain(), [0, 1, 2, 3, 4]);
    ok(resize(evd, 1));
}

/// Completions count wherever they are: polled or still in the device's queue.
#[test]
fn evd_z03_completions_count_as_events() {
    let fixture = Fixture::new();
    let shape = Shape {
        recvs: 4,
        evd_qlen: 32,
        ..Shape::default()
    };
    let pair = Pair::new(&fixture, &shape);
    let recv = Evd(pair.passive.recv);
    let memory = fixture.memory(64);
    for tag in 0..4 {
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], tag));
        ok(pair
            .active
            .post_send(&[memory.segment(8, 8)], 9, DAT_COMPLETION_SUPPRESS_FLAG));
    }
    fixture.run();
    let until = std::time::Instant::now() + Duration::from_secs(8);
    while resize(recv, 3) == DAT_SUCCESS {
        assert!(
            std::time::Instant::now() < until,
            "completions in the device's queue do not count"
        );
        thread::sleep(Duration::from_millis(1));
    }
    fails(resize(recv, 3), DAT_INVALID_STATE);
    ok(resize(recv, 4));
    assert_eq!([(); 4].map(|()| take_dto(recv.0).cookie), [0, 1, 2, 3]);
    // Not below the number that the endpoint can have outstanding.
    ok(resize(recv, 1));
    assert!(recv.query().evd_qlen >= 4);
    // The EVD still works.
    ok(pair.passive.post_recv(&[memory.segment(0, 8)], 7));
    ok(pair
        .active
        .post_send(&[memory.segment(8, 8)], 9, DAT_COMPLETION_SUPPRESS_FLAG));
    fixture.run();
    assert_eq!(take_dto(recv.0).cookie, 7);
}

#[test]
fn evd_z04_bad_sizes_are_bad_parameters() {
    let fixture = Fixture::new();
    let most = abilities(&fixture).0.max_evd_qlen;
    let evd = Evd::new(&fixture, 8, DAT_EVD_SOFTWARE_FLAG);
    evd.post(1);
    let above = (most < DAT_COUNT::MAX).then(|| most + 1);
    for qlen in [0, -1, DAT_COUNT::MIN].into_iter().chain(above) {
        fails_with(resize(evd, qlen), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    }
    assert_eq!((evd.query().evd_qlen, evd.drain()), (8, vec![1]));
    evd.calls(dat_evd_free);
    for bad in [evd.0, fixture.pz, DAT_HANDLE_NULL] {
        let answer = resize(Evd(bad), 8);
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_REQUEST);
    }
}

/// The waiter goes on waiting and gets its events: for a wait for one event, and
/// for several.
#[test]
fn evd_z05_an_evd_can_be_resized_during_a_wait() {
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 8, DAT_EVD_SOFTWARE_FLAG);
    for threshold in [1, 3] {
        thread::scope(|scope| {
            let waiter = waits(scope, evd, threshold);
            for qlen in [20, 4, 8] {
                ok(resize(evd, qlen));
                assert_eq!(evd.query().evd_qlen, qlen);
                stays(&waiter);
            }
            // The wait needs more events than that.
            if threshold > 1 {
                let answer = resize(evd, 2);
                fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
            }
            for number in 0..threshold as usize {
                evd.post(number);
            }
            assert_eq!(joined(waiter), DAT_SUCCESS);
        });
        assert_eq!(evd.drain().len(), threshold as usize - 1);
        ok(resize(evd, 8));
    }
}

#[test]
fn evd_z05_completions_reach_a_waiter_across_a_resize() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let recv = Evd(pair.passive.recv);
    let memory = fixture.memory(64);
    for (round, qlen) in [100, 16, 2000, 40].into_iter().enumerate() {
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], 5));
        thread::scope(|scope| {
            let waiter = waits(scope, recv, 1);
            ok(resize(recv, qlen));
            stays(&waiter);
            ok(pair
                .active
                .post_send(&[memory.segment(8, 8)], 9, DAT_COMPLETION_SUPPRESS_FLAG));
            fixture.run();
            assert_eq!(joined(waiter), DAT_SUCCESS, "round {round}");
        });
        nothing_on(recv.0);
    }
}

/// While events arrive and are dequeued, whatever the size is, each comes once
/// and in order. A size is refused only if more events were queued at some time
/// during the call, and never if it is not smaller than before. It is accepted
/// only if at some time no more were queued. A refused call changes nothing.
#[test]
fn evd_z06_events_that_arrive_meanwhile_are_kept() {
    const ROUNDS: DAT_COUNT = 40;
    /// The last event.
    const LAST: usize = usize::MAX;
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 8, DAT_EVD_SOFTWARE_FLAG);
    // Number of events posted and dequeued for certain; at most one more was.
    let (posted, taken) = (AtomicUsize::new(8), AtomicUsize::new(0));
    for number in 0..8 {
        evd.post(number);
    }
    let refused = |qlen| {
        let answer = resize(evd, qlen);
        fails_with(answer, DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    };
    (1..8).for_each(refused);
    assert_eq!(evd.query().evd_qlen, 8);
    let resize_once = |qlen: DAT_COUNT| {
        let before = evd.query().evd_qlen;
        let [posted_then, taken_then] = [&posted, &taken].map(|count| count.load(SeqCst));
        let answer = resize(evd, qlen);
        let [posted_now, taken_now] = [&posted, &taken].map(|count| count.load(SeqCst));
        let least = posted_then.saturating_sub(taken_now + 1);
        let most = posted_now + 1 - taken_then;
        let is_granted = answer == DAT_SUCCESS;
        if is_granted {
            assert!(least <= qlen as usize, "{least} events in {qlen}");
        } else {
            fails_with(answer, DAT_INVALID_STATE, DAT_NO_SUBTYPE);
            assert!(
                qlen < before,
                "a resize from {before} to a larger {qlen} was refused"
            );
            assert!(most > qlen as usize, "{most} events fit in {qlen}");
        }
        let expected = if is_granted { qlen } else { before };
        assert_eq!(evd.query().evd_qlen, expected);
        is_granted
    };
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let poster = scope.spawn(|| {
            let mut next = 8;
            let keep_posting = |number| {
                while evd.try_post(number) != DAT_SUCCESS {
                    thread::yield_now();
                }
                posted.fetch_add(1, SeqCst);
            };
            while !is_done.load(SeqCst) {
                keep_posting(next);
                next += 1;
            }
            keep_posting(LAST);
            next
        });
        let resizer = scope.spawn(|| {
            let sizes = (0..ROUNDS).flat_map(|_| 1..=23);
            let granted = sizes.filter(|&qlen| resize_once(qlen)).count();
            is_done.store(true, SeqCst);
            granted
        });
        let mut expected = 0;
        loop {
            let (answer, event, _) = crate::support::wait(evd.0, 8_000_000, 1);
            ok(answer);
            let number = super::number(&event);
            taken.fetch_add(1, SeqCst);
            if number == LAST {
                break;
            }
            assert_eq!(number, expected);
            expected += 1;
        }
        assert_eq!(poster.join().expect("no panic"), expected);
        // The largest size is always accepted.
        assert!(resizer.join().expect("no panic") >= ROUNDS as usize);
    });
    nothing_on(evd.0);
    (1..24).rev().for_each(|qlen| ok(resize(evd, qlen)));
}

/// The asynchronous EVD, and an EVD to which endpoints are added after its
/// resize.
#[test]
fn evd_z07_any_evd_can_be_resized() {
    let fixture = Fixture::new();
    let async_evd = Evd(fixture.async_evd);
    let before = async_evd.query().evd_qlen;
    ok(resize(async_evd, before + 100));
    assert_eq!(async_evd.query().evd_qlen, before + 100);
    let ends = [(); 2].map(|()| End::without_ep(&fixture, &Shape::default()));
    for end in ends {
        for evd in [end.recv, end.request, end.connect] {
            ok(resize(Evd(evd), 1));
            assert_eq!(Evd(evd).query().evd_qlen, 1);
        }
    }
    let [active, passive] = ends.map(|mut end| {
        let attributes = Shape::default().attributes();
        // SAFETY: live handles, and a place for the result.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                &raw const attributes,
                &raw mut end.ep,
            )
        });
        end
    });
    let pair = Pair::connect(&fixture, active, passive);
    let memory = fixture.memory(64);
    for tag in 0..16 {
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], tag));
    }
    for tag in 0..16 {
        let segment = [memory.segment(8, 8)];
        ok(pair
            .active
            .post_send(&segment, tag, DAT_COMPLETION_DEFAULT_FLAG));
    }
    fixture.run();
    for tag in 0..16 {
        assert_eq!(take_dto(pair.passive.recv).cookie, tag);
        assert_eq!(take_dto(pair.active.request).cookie, tag);
    }
}
