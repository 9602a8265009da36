//! The duration of waits.

use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;

use super::{Evd, MessagePair, SOON, joined, stays};
use crate::support::{Fixture, Shape, nothing_on, state_of, take_dto};

#[test]
fn evd_wait_w08_the_timeout_is_in_microseconds() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    for (evd, millis) in [
        (messages.recv(), 40),
        (messages.request(), 1),
        (Evd::software(&fixture, 1), 40),
        (Evd(messages.pair.active.connect), 15),
        (Evd(fixture.async_evd), 15),
    ] {
        let waited = evd.wait(1000 * millis, 1);
        assert_eq!(waited.expired(), 0);
        let least = Duration::from_millis(millis.into());
        assert!(waited.took >= least, "{:?} of {least:?}", waited.took);
        // If the timeout were in milliseconds, all but the second would take at
        // least 15 s.
        assert!(waited.took < SOON, "{:?} of {least:?}", waited.took);
    }
}

/// The waiter is woken repeatedly without an event: each query of the endpoint's
/// state makes it process its queues.
#[test]
fn evd_wait_w08_a_wake_up_without_an_event_does_not_restart_the_timeout() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    messages.post_recvs(0..2);
    messages.deliver();
    thread::scope(|scope| {
        let waiter = recv.in_thread(scope, 300_000, 3);
        let begin = Instant::now();
        let mut looks = 0;
        while !waiter.is_finished() {
            assert!(
                begin.elapsed() < SOON,
                "a wake-up without an event restarted the timeout"
            );
            assert_eq!(state_of(messages.pair.passive.ep), DAT_EP_STATE_CONNECTED);
            looks += 1;
            thread::sleep(Duration::from_millis(10));
        }
        let waited = joined(waiter);
        assert_eq!(waited.expired(), 1);
        assert!(waited.took >= Duration::from_millis(300), "{looks} looks");
    });
    assert_eq!(take_dto(recv.0).cookie, 0);
}

/// Neither do too few events.
#[test]
fn evd_wait_w08_events_below_the_threshold_do_not_restart_the_timeout() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 2000);
    thread::scope(|scope| {
        let waiter = evd.in_thread(scope, 300_000, 2000);
        let begin = Instant::now();
        let mut posted = 0;
        while !waiter.is_finished() {
            assert!(
                begin.elapsed() < SOON,
                "an event below the threshold restarted the timeout"
            );
            evd.post(posted);
            posted += 1;
            thread::sleep(Duration::from_millis(10));
        }
        let waited = joined(waiter);
        // The last event may have come just after the timeout.
        let nmore = waited.expired() as usize;
        assert!(nmore == posted || nmore + 1 == posted);
        assert!(waited.took >= Duration::from_millis(300));
        for number in 0..posted {
            assert_eq!(evd.take_number(), number);
        }
    });
}

#[test]
fn evd_wait_w08_an_infinite_wait_does_not_time_out() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    // The second is the longest finite timeout: 71 minutes.
    for timeout in [DAT_TIMEOUT_INFINITE, DAT_TIMEOUT_INFINITE - 1] {
        messages.post_recvs(1..2);
        thread::scope(|scope| {
            let waiter = recv.in_thread(scope, timeout, 1);
            thread::sleep(Duration::from_millis(200));
            stays(&waiter, recv);
            messages.deliver();
            assert_eq!(joined(waiter).tag(), (1, 0));
        });
    }
}

#[test]
fn evd_wait_w09_w14_below_the_threshold_nothing_is_taken_and_nmore_is_set() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    messages.post_recvs(0..6);
    for queued in 0..6 {
        for timeout in [0, 1, 3_000] {
            for threshold in [queued + 1, queued + 2, 32] {
                let waited = recv.wait(timeout, threshold);
                assert_eq!(waited.expired(), queued, "{timeout} µs, {threshold}");
            }
        }
        messages.deliver();
    }
    assert_eq!(
        [(); 6].map(|()| take_dto(recv.0).cookie),
        [0, 1, 2, 3, 4, 5]
    );
    nothing_on(recv.0);
}

/// Events that arrive during the wait count too.
#[test]
fn evd_wait_w09_w14_nmore_is_the_number_at_the_end() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    messages.post_recvs(0..4);
    messages.deliver();
    thread::scope(|scope| {
        let waiter = recv.in_thread(scope, 400_000, 5);
        for _ in 0..3 {
            messages.deliver();
        }
        let waited = joined(waiter);
        assert_eq!(waited.expired(), 4);
        assert!(waited.took >= Duration::from_millis(400));
    });
    assert_eq!([(); 4].map(|()| take_dto(recv.0).cookie), [0, 1, 2, 3]);
}

/// With enough events queued there is no timeout, however short the time is.
#[test]
fn evd_wait_w09_with_enough_events_there_is_no_timeout() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    for timeout in [0, 1, DAT_TIMEOUT_INFINITE] {
        messages.post_recvs(0..3);
        for _ in 0..3 {
            messages.deliver();
        }
        for left in (0..3).rev() {
            let (tag, nmore) = messages.recv().wait(timeout, left + 1).tag();
            assert_eq!((tag, nmore), (2 - left as u64, left));
        }
    }
}
