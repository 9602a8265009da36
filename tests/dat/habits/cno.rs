//! A program takes one event for each return of `dat_cno_wait`, and waits again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use crate::cno::{Cno, SECOND};
use crate::support::{Evd, Fixture, MessagePair, Shape, Waiter, fails, joined, stays};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;

fn message_pair(fixture: &Fixture, recv_flags: DAT_COMPLETION_FLAGS) -> MessagePair<'_> {
    let shape = Shape {
        recv_flags,
        ..Shape::default()
    };
    MessagePair::new(fixture, &shape)
}

#[test]
fn cno_wait_returns_an_evd_until_it_is_drained() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, DEFAULT);
    let software = cno.software(&fixture, 8);
    cno.bind(messages.recv().0);
    messages.post_recvs(0..3);
    for _ in 0..3 {
        messages.deliver_suppressed(DEFAULT);
    }
    for tag in 0..3 {
        assert_eq!(cno.wait(SECOND), Ok(messages.recv().0), "message {tag}");
        assert_eq!(messages.received_tag(), tag);
    }
    cno.finds_nothing();
    for number in 0..3 {
        software.post(number);
    }
    for number in 0..3 {
        // Also if the program takes no event at first.
        for timeout in [0, SECOND] {
            assert_eq!(cno.wait(timeout), Ok(software.0), "event {number}");
        }
        assert_eq!(software.take_number(), number);
    }
    cno.finds_nothing();
}

#[test]
fn strict_cno_wait_returns_an_evd_for_new_events_only() {
    let fixture = Fixture::strict();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, DEFAULT);
    cno.bind(messages.recv().0);
    messages.post_recvs(0..4);
    for _ in 0..3 {
        messages.deliver_suppressed(DEFAULT);
    }
    assert_eq!(cno.wait(SECOND), Ok(messages.recv().0));
    assert_eq!(messages.received_tag(), 0);
    cno.finds_nothing();
    messages.deliver_suppressed(DEFAULT);
    assert_eq!(cno.wait(SECOND), Ok(messages.recv().0));
    assert_eq!([(); 3].map(|()| messages.received_tag()), [1, 2, 3]);
}

/// Neither old nor new events keep an EVD from its turn.
#[test]
fn cno_wait_returns_each_evd_that_was_not_drained_in_turn() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evds = [(); 3].map(|()| cno.software(&fixture, 64));
    for evd in evds {
        (0..8).for_each(|number| evd.post(number));
    }
    let mut returned = [0; 3];
    for round in 0..24 {
        let evd = Evd(cno.wait(0).expect("an EVD"));
        let at = evds.iter().position(|&other| other == evd);
        returned[at.expect("one of them")] += 1;
        evd.take_number();
        // The first one gets new events all the time.
        evds[0].post(8 + round);
    }
    assert!(returned.iter().all(|&count| count >= 7), "{returned:?}");
}

/// The events that are left notify no thread: they were posted so.
#[test]
fn cno_wait_does_not_return_for_unsignalled_events_that_are_left() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, UNSIGNALLED);
    cno.bind(messages.recv().0);
    messages.post_recv_with(0, DEFAULT);
    messages.post_recv_with(1, UNSIGNALLED);
    messages.post_recv_with(2, DEFAULT);
    messages.post_recv_with(3, UNSIGNALLED);
    for _ in 0..4 {
        messages.deliver_suppressed(DEFAULT);
    }
    for tag in 0..3 {
        assert_eq!(cno.wait(SECOND), Ok(messages.recv().0), "message {tag}");
        assert_eq!(messages.received_tag(), tag);
    }
    cno.finds_nothing();
    assert_eq!(messages.received_tag(), 3);
}

#[test]
fn cno_wait_does_not_return_a_disabled_evd_that_was_not_drained() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    evd.post(1);
    evd.post(2);
    assert_eq!(cno.wait(0), Ok(evd.0));
    evd.calls(dat_evd_disable);
    cno.finds_nothing();
    evd.calls(dat_evd_enable);
    assert_eq!(cno.wait(0), Ok(evd.0));
}

/// Threads take one event each: the EVD is returned to as many of them as it holds
/// events, also if all slept when the events came.
#[test]
fn cno_wait_that_sleeps_returns_for_the_events_behind_the_first() {
    for is_strict in [false, true] {
        let fixture = Fixture::with_strict(is_strict);
        let cno = Cno::new(&fixture);
        let evd = cno.software(&fixture, 8);
        thread::scope(|scope| {
            let mut waiters: Vec<_> = (0..3).map(|_| cno.asleep(scope)).collect();
            // One trigger for two events.
            evd.calls(dat_evd_disable);
            evd.post(1);
            evd.post(2);
            evd.calls(dat_evd_enable);
            let returned = if is_strict { 1 } else { 2 };
            for _ in 0..returned {
                assert_eq!(joined(ended(&mut waiters)), Ok(evd));
            }
            // No event has been taken, but the others have got the EVD for them.
            waiters.iter().for_each(|waiter| stays(waiter));
            assert_eq!(evd.drain(), [1, 2]);
            waiters.iter().for_each(|waiter| stays(waiter));
            while !waiters.is_empty() {
                evd.post(3);
                assert_eq!(joined(ended(&mut waiters)), Ok(evd));
                assert_eq!(evd.drain(), [3]);
            }
        });
    }
}

/// Waits until one of the threads has ended, and takes it out.
#[track_caller]
fn ended<'s, T>(waiters: &mut Vec<Waiter<'s, T>>) -> Waiter<'s, T> {
    let begin = std::time::Instant::now();
    loop {
        if let Some(at) = waiters.iter().position(|waiter| waiter.is_finished()) {
            return waiters.swap_remove(at);
        }
        assert!(begin.elapsed() < crate::support::SOON, "no thread returned");
        thread::yield_now();
    }
}

/// A thread that sleeps is not woken for one event that another thread leaves: that
/// event is for the other thread's next wait.
#[test]
fn cno_wait_that_sleeps_is_not_ended_by_one_event_that_another_thread_leaves() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    thread::scope(|scope| {
        let mut waiters = vec![cno.asleep(scope), cno.asleep(scope)];
        evd.post(1);
        assert_eq!(joined(ended(&mut waiters)), Ok(evd));
        let [second] = <[_; 1]>::try_from(waiters).expect("one is left");
        // The event is still there.
        stays(&second);
        assert_eq!(cno.wait(SECOND), Ok(evd.0));
        stays(&second);
        evd.post(2);
        assert_eq!(joined(second), Ok(evd));
        assert_eq!(evd.drain(), [1, 2]);
    });
}

/// An agent that leaves events is not called for them again, or it would be called
/// without end.
#[test]
fn cno_agent_is_not_called_again_for_events_that_it_leaves() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C-unwind" fn agent(cno: DAT_PVOID, _: DAT_EVD_HANDLE) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        // Sets itself again. SAFETY: the call validates its handle.
        let _ = unsafe { dat_cno_modify_agent(cno, agent_of(cno)) };
    }
    fn agent_of(cno: DAT_CNO_HANDLE) -> DAT_OS_WAIT_PROXY_AGENT {
        DAT_OS_WAIT_PROXY_AGENT {
            instance_data: cno,
            proxy_agent_func: Some(agent),
        }
    }
    let calls = |count: u32| {
        let begin = std::time::Instant::now();
        while CALLS.load(Ordering::SeqCst) < count {
            assert!(begin.elapsed() < crate::support::SOON, "{CALLS:?}");
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(10));
        assert_eq!(CALLS.load(Ordering::SeqCst), count);
    };
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    crate::support::ok(cno.set_agent(agent_of(cno.handle())));
    evd.post(1);
    calls(1);
    // A wait returns the EVD meanwhile; that calls no agent.
    assert_eq!(cno.wait(0), Ok(evd.0));
    calls(1);
    evd.post(2);
    calls(2);
    assert_eq!(evd.drain(), [1, 2]);
    fails(cno.wait(0).expect_err("drained"), DAT_QUEUE_EMPTY);
}
