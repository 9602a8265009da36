//! Waits on a CNO: how they end, and their results.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use super::{Cno, LONG, SECOND, joined, stays};
use crate::support::{
    Fixture, MessagePair, Shape, attach_and_detach, fails, is_alone, nothing_on, stop_and_continue,
    take_dto,
};

#[test]
fn cno_n05_a_wait_ends_with_the_evd_that_triggers() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evds = [(); 3].map(|()| cno.software(&fixture, 4));
    for evd in [evds[1], evds[0], evds[2], evds[1]] {
        thread::scope(|scope| {
            let waiter = cno.asleep(scope);
            stays(&waiter);
            evd.post(7);
            assert_eq!(joined(waiter), Ok(evd));
        });
        assert_eq!(evd.drain(), [7], "a wait takes nothing");
        cno.finds_nothing();
    }
}

/// The EVD is a hint: triggers are returned in order, except for an EVD that was
/// emptied meanwhile.
#[test]
fn cno_n05_triggers_are_returned_in_order_and_only_while_there_are_events() {
    let fixture = Fixture::strict();
    let cno = Cno::new(&fixture);
    let evds = [(); 3].map(|()| cno.software(&fixture, 4));
    for at in [2, 0, 1] {
        evds[at].post(at);
    }
    assert_eq!(evds[0].drain(), [0]);
    assert_eq!(cno.wait(LONG), Ok(evds[2].0));
    assert_eq!(cno.wait(LONG), Ok(evds[1].0));
    cno.finds_nothing();
}

#[test]
fn cno_n06_a_trigger_without_a_waiter_is_kept_once() {
    let fixture = Fixture::strict();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    for number in 0..3 {
        evd.post(number);
    }
    assert_eq!(cno.wait(0), Ok(evd.0));
    // Both EVDs have triggered, whether their events were taken or not.
    cno.finds_nothing();
    evd.post(3);
    assert_eq!(cno.wait(LONG), Ok(evd.0));
    assert_eq!(evd.drain(), [0, 1, 2, 3]);
    cno.finds_nothing();
}

/// Events that were taken before any wait no longer trigger.
#[test]
fn cno_n06_a_trigger_whose_events_were_taken_is_dropped() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    evd.post(1);
    assert_eq!(evd.drain(), [1]);
    cno.finds_nothing();
    evd.post(2);
    assert_eq!(cno.wait(0), Ok(evd.0));
}

#[test]
fn cno_n07_a_wait_times_out() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 4);
    for micros in [0, 1, 20_000] {
        let begin = Instant::now();
        fails(cno.wait(micros).expect_err("nothing"), DAT_QUEUE_EMPTY);
        let took = begin.elapsed();
        assert!(took >= Duration::from_micros(micros.into()), "{took:?}");
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
    // The CNO can be waited on as before.
    evd.post(1);
    assert_eq!(cno.wait(SECOND), Ok(evd.0));
}

#[test]
fn cno_n07_an_infinite_wait_does_not_time_out() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 4);
    thread::scope(|scope| {
        let waiter = scope.spawn(move || cno.wait(DAT_TIMEOUT_INFINITE).map(super::Evd));
        thread::sleep(Duration::from_millis(30));
        assert!(!waiter.is_finished());
        evd.post(1);
        assert_eq!(waiter.join().expect("no panic"), Ok(evd));
    });
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn cno_n08_a_signal_ends_a_wait() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 4);
    // SAFETY: a handler that only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    for _ in 0..2 {
        let (sender, receiver) = mpsc::channel();
        let answer = thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                // SAFETY: always safe.
                sender
                    .send(unsafe { libc::pthread_self() })
                    .expect("the receiver is alive");
                cno.wait(LONG).map(super::Evd)
            });
            let thread = receiver.recv().expect("a thread");
            while !waiter.is_finished() {
                // SAFETY: the thread is not joined yet.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                thread::sleep(Duration::from_millis(2));
            }
            waiter.join().expect("no panic")
        });
        fails(answer.expect_err("a signal"), DAT_INTERRUPTED_CALL);
    }
    assert!(HANDLED.load(Ordering::SeqCst) > 0);
    nothing_on(evd.0);
    evd.post(1);
    assert_eq!(cno.wait(SECOND), Ok(evd.0));
    evd.calls(dat_evd_free);
}

/// Ctrl-Z and `fg`, and a debugger that attaches: no handler runs.
#[test]
fn cno_n08_a_stop_of_the_process_ends_no_wait() {
    if !is_alone() {
        return;
    }
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let (cno, recv) = (Cno::new(&fixture), messages.recv());
    cno.bind(recv.0);
    for (tag, timeout) in (1..).zip([DAT_TIMEOUT_INFINITE, 60 * SECOND]) {
        messages.post_recvs(tag..tag + 1);
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let waiter = scope.spawn(move || {
                // SAFETY: always safe.
                sender.send(unsafe { libc::gettid() }).expect("a receiver");
                cno.wait(timeout).map(super::Evd)
            });
            let thread = receiver.recv().expect("a thread");
            for _ in 0..3 {
                stays(&waiter);
                stop_and_continue();
                stays(&waiter);
                attach_and_detach(thread);
            }
            stays(&waiter);
            messages.deliver();
            assert_eq!(waiter.join().expect("no panic"), Ok(recv));
        });
        assert_eq!(take_dto(recv.0).cookie, tag);
    }
}
