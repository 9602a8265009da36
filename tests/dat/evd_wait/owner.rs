//! A waiting thread has exclusive use of the EVD.

use std::sync::{Barrier, mpsc};
use std::thread;

use dat::abi::*;
use dat::exports::*;

use crate::cno::{Cno, SECOND};

use super::{Evd, LONG, MessagePair, SOON, joined, stays};
use crate::support::{Fixture, Shape, dequeue, fails, fails_with, nothing_on, ok, take_dto};

/// Checks that no other call can take events.
#[track_caller]
fn is_taken(evd: Evd) {
    for (timeout, threshold) in [(0, 1), (1, 1), (LONG, 1), (DAT_TIMEOUT_INFINITE, 2)] {
        let second = evd.wait(timeout, threshold).soon();
        second.refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
    }
    match dequeue(evd.0) {
        Ok(event) => panic!("took {:#x} from under a waiter", event.event_number),
        Err(answer) => {
            fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
        }
    }
}

#[test]
fn evd_wait_w06_a_waiter_has_exclusive_use_of_the_evd() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(1..4);
    let recv = messages.recv();
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        is_taken(recv);
        stays(&waiter, recv);
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 0));
    });
    // Only as long as it waits.
    messages.deliver();
    assert_eq!(take_dto(recv.0).cookie, 2);
    messages.deliver();
    assert_eq!(recv.wait(0, 1).tag(), (3, 0));
}

/// Too few events are queued for the waiter, and other calls cannot take them
/// either.
#[test]
fn evd_wait_w06_queued_events_belong_to_the_waiter() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(1..4);
    let recv = messages.recv();
    messages.deliver();
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 3);
        is_taken(recv);
        messages.deliver();
        stays(&waiter, recv);
        is_taken(recv);
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 2));
    });
    assert_eq!([(); 2].map(|()| take_dto(recv.0).cookie), [2, 3]);
}

#[test]
fn evd_wait_w06_the_evd_is_free_after_each_way_to_end() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    thread::scope(|scope| {
        let waiter = evd.in_thread(scope, 50_000, 1);
        assert_eq!(joined(waiter).expired(), 0);
    });
    nothing_on(evd.0);
    thread::scope(|scope| {
        let waiter = evd.asleep(scope, 1);
        evd.set_unwaitable();
        fails(joined(waiter).answer, DAT_INVALID_STATE);
        evd.clear_unwaitable();
    });
    nothing_on(evd.0);
    evd.post(7);
    assert_eq!(evd.wait(0, 1).number(), (7, 0));
}

/// Calls that take no events work during a wait.
#[test]
fn evd_wait_w06_a_waiter_does_not_hinder_other_calls() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    thread::scope(|scope| {
        let waiter = evd.asleep(scope, 2);
        let before = evd.query();
        assert_eq!(
            (before.ia_handle, before.evd_flags),
            (fixture.ia, DAT_EVD_SOFTWARE_FLAG)
        );
        // SAFETY: a live EVD.
        unsafe {
            ok(dat_evd_disable(evd.0));
            ok(dat_evd_enable(evd.0));
            ok(dat_evd_modify_cno(evd.0, DAT_HANDLE_NULL));
        }
        stays(&waiter, evd);
        evd.post(1);
        evd.post(2);
        assert_eq!(joined(waiter).soon().number(), (1, 1));
    });
    assert_eq!(evd.take_number(), 2);
}

#[test]
fn evd_wait_w06_a_waiter_owns_only_its_evd() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(1..3);
    thread::scope(|scope| {
        let waiter = messages.recv().asleep(scope, 2);
        messages.send(5, DAT_COMPLETION_DEFAULT_FLAG);
        assert_eq!(messages.request().wait(LONG, 1).tag(), (5, 0));
        nothing_on(messages.request().0);
        stays(&waiter, messages.recv());
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 1));
    });
}

/// If several threads begin to wait at the same time, one waits; the others fail
/// at once.
fn one_of(threads: usize) {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    for round in 0..60 {
        let barrier = Barrier::new(threads);
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..threads {
                let (sender, barrier) = (sender.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    sender
                        .send(evd.wait(LONG, 1))
                        .expect("the receiver is alive");
                });
            }
            for _ in 1..threads {
                let loser = receiver.recv_timeout(SOON).expect("a refused thread");
                loser.refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
            }
            // All others have returned, so this one is the waiter.
            assert!(evd.is_waited() && receiver.try_recv().is_err());
            evd.post(round);
            let winner = receiver.recv_timeout(SOON).expect("the waiting thread");
            assert_eq!(winner.number(), (round, 0));
        });
    }
}

#[test]
fn evd_wait_w06_one_of_two_waits() {
    one_of(2);
}

#[test]
fn evd_wait_w06_one_of_four_waits() {
    one_of(4);
}

/// A wait on the EVD itself keeps it from triggering its CNO until the wait ends.
#[test]
fn evd_wait_w07_a_waiter_takes_the_evd_from_its_cno() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    cno.bind(recv.0);
    messages.post_recvs(1..4);
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 0));
        cno.finds_nothing();
        let waiter = recv.asleep(scope, 2);
        messages.deliver();
        stays(&waiter, recv);
        cno.finds_nothing();
        // With too few events for the waiter, whose wait ends.
        recv.set_unwaitable();
        fails(joined(waiter).answer, DAT_INVALID_STATE);
    });
    assert_eq!(cno.wait(0), Ok(recv.0));
    assert_eq!(take_dto(recv.0).cookie, 2);
    cno.finds_nothing();
    messages.deliver();
    assert_eq!(cno.wait(SECOND), Ok(recv.0));
}

/// Enabling and disabling concern the EVD and its CNO: a wait on the EVD itself
/// gets its events in both states.
#[test]
fn evd_wait_w07_disabling_does_not_affect_a_waiter() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    let calls: [unsafe extern "C" fn(DAT_EVD_HANDLE) -> DAT_RETURN; 2] =
        [dat_evd_disable, dat_evd_enable];
    for (call, state) in calls
        .into_iter()
        .zip([DAT_EVD_STATE_DISABLED, DAT_EVD_STATE_ENABLED])
    {
        messages.post_recvs(1..3);
        // SAFETY: a live EVD.
        ok(unsafe { call(recv.0) });
        thread::scope(|scope| {
            let waiter = recv.asleep(scope, 1);
            messages.deliver();
            assert_eq!(joined(waiter).soon().tag(), (1, 0));
            // Switched during a wait.
            let waiter = recv.asleep(scope, 1);
            // SAFETY: a live EVD.
            ok(unsafe { call(recv.0) });
            stays(&waiter, recv);
            messages.deliver();
            assert_eq!(joined(waiter).soon().tag(), (2, 0));
        });
        let axis = DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_DISABLED;
        assert_eq!(recv.query().evd_state & axis, state);
    }
}
