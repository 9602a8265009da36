//! The models: which threads wait and post.

use std::sync::Arc;

use loom::thread;

use super::cno::{DESCRIPTOR, WAITERS};
use super::protocol::WaitOutcome;
use super::{Cno, EVDS};

/// Checks all interleavings in which a thread is preempted at most `preemptions` times, beside
/// where it has to wait. Two preemptions show nearly all mistakes.
fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(check);
}

fn in_thread<T: 'static>(
    simulated: &Arc<Cno>,
    act: impl FnOnce(&Arc<Cno>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let simulated = Arc::clone(simulated);
    thread::spawn(move || act(&simulated))
}

/// Adds an event to an EVD.
type Brings = fn(&Cno, usize);
const COMPLETE: Brings = Cno::complete;
const POST: Brings = Cno::post;

/// Starts one of two waiters.
fn waiter(simulated: &Arc<Cno>, number: usize) -> thread::JoinHandle<WaitOutcome> {
    in_thread(simulated, move |simulated| simulated.wait(number, false))
}

#[test]
fn one_waiter_misses_no_event() {
    for brings in [COMPLETE, POST] {
        model(3, move || {
            let simulated = Cno::new(true);
            let other = in_thread(&simulated, move |simulated| brings(simulated, 0));
            assert_eq!(simulated.wait(0, false), WaitOutcome::Ready);
            other.join().unwrap();
        });
    }
}

/// Both sleep, or are about to; one of them takes the device event that is meant for both.
#[test]
fn two_waiters_get_two_triggers_of_one_evd() {
    for [first, second] in [
        [COMPLETE, COMPLETE],
        [COMPLETE, POST],
        [POST, COMPLETE],
        [POST, POST],
    ] {
        model(2, move || {
            let simulated = Cno::new(true);
            let waiters = [0, 1].map(|number| waiter(&simulated, number));
            first(&simulated, 0);
            simulated.until_served(1);
            second(&simulated, 0);
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), WaitOutcome::Ready);
            }
        });
    }
}

/// Two EVDs trigger at once: each waiter gets one of them.
#[test]
fn two_waiters_get_the_triggers_of_two_evds() {
    for [first, second] in [[COMPLETE, COMPLETE], [COMPLETE, POST], [POST, POST]] {
        model(2, move || {
            let simulated = Cno::new(true);
            let waiters = [0, 1].map(|number| waiter(&simulated, number));
            first(&simulated, 0);
            second(&simulated, 1);
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), WaitOutcome::Ready);
            }
        });
    }
}

/// One waiter returns because of a signal, whatever it has taken of the device's events: the other
/// gets the trigger, unless the first did.
#[test]
fn an_interrupted_waiter_takes_no_trigger() {
    for brings in [COMPLETE, POST] {
        model(2, move || {
            let simulated = Cno::new(true);
            let stays = waiter(&simulated, 0);
            let leaves = in_thread(&simulated, |simulated| simulated.wait(1, true));
            brings(&simulated, 0);
            if leaves.join().unwrap() == WaitOutcome::Ready {
                // For the waiter that stays.
                brings(&simulated, 0);
            }
            assert_eq!(stays.join().unwrap(), WaitOutcome::Ready);
        });
    }
}

/// A wait that begins finds the events of two threads, and these record their triggers before it
/// takes one.
#[test]
fn a_wait_that_begins_leaves_a_trigger_to_a_sleeping_waiter() {
    model(3, || {
        let simulated = Cno::new(true);
        let waiters = [0, 1].map(|number| waiter(&simulated, number));
        for evd in &simulated.evds {
            evd.arrived.lock().unwrap().events += 1;
        }
        for evd in 0..EVDS {
            simulated.record_posted(evd);
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), WaitOutcome::Ready);
        }
    });
}

/// Each wait takes one event, whether the others arrive before, during or after it.
#[test]
fn events_that_a_thread_leaves_end_its_next_wait() {
    for [first, second, third] in [
        [COMPLETE, COMPLETE, POST],
        [POST, COMPLETE, COMPLETE],
        [POST, POST, POST],
    ] {
        model(2, move || {
            let simulated = Cno::new(false);
            let other = in_thread(&simulated, move |simulated| {
                first(simulated, 0);
                second(simulated, 0);
                third(simulated, 1);
            });
            for _ in 0..3 {
                simulated.wait_for_one();
            }
            other.join().unwrap();
        });
    }
}

/// The first wait takes no event.
#[test]
fn an_event_that_a_thread_leaves_ends_its_next_wait() {
    for brings in [COMPLETE, POST] {
        model(3, move || {
            let simulated = Cno::new(false);
            let other = in_thread(&simulated, move |simulated| brings(simulated, 0));
            simulated.evd_for_one(0);
            simulated.evd_for_one(0);
            other.join().unwrap();
        });
    }
}

/// One thread never waits again: the other gets the event that is behind the first, whether it
/// sleeps when the events come or not.
#[test]
fn two_events_of_one_evd_are_for_two_waiters() {
    for [first, second] in [[COMPLETE, COMPLETE], [COMPLETE, POST], [POST, POST]] {
        model(2, move || {
            let simulated = Cno::new(false);
            let waiters = [0, 1].map(|number| {
                in_thread(&simulated, move |simulated| {
                    simulated.evd_for_one(number);
                })
            });
            first(&simulated, 0);
            second(&simulated, 0);
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
    }
}

/// Both sleep, or are about to; one of them takes the device event that is meant for both.
#[test]
fn an_event_is_for_a_waiter_and_for_the_agent() {
    for brings in [COMPLETE, POST] {
        model(2, move || {
            let simulated = Cno::new(false);
            let agent = in_thread(&simulated, |simulated| simulated.agent_waits(1));
            let other = in_thread(&simulated, move |simulated| brings(simulated, 0));
            simulated.evd_for_one(0);
            agent.join().unwrap();
            other.join().unwrap();
        });
    }
}

/// How a program serves a descriptor, after each poll that returns. Returns how many events it has
/// taken.
type Serves = fn(&Arc<Cno>) -> u32;

/// Arms, and takes all events of all EVDs.
fn arm_and_drain(simulated: &Arc<Cno>) -> u32 {
    simulated.arm_descriptor();
    let evds = simulated.evds.iter();
    evds.map(|evd| simulated.dequeue(evd, u32::MAX)).sum()
}

/// Takes one trigger, and the events of its EVD.
fn serve_trigger(simulated: &Arc<Cno>, queue: usize, most: u32) -> u32 {
    let evd = simulated.take_trigger(queue);
    evd.map_or(0, |evd| simulated.dequeue(evd, most))
}

const TRIGGER: Serves = |simulated| serve_trigger(simulated, DESCRIPTOR, u32::MAX);
const WAIT: Serves = |simulated| serve_trigger(simulated, WAITERS, u32::MAX);

/// Serves the descriptor until all events were taken.
fn poll_until(simulated: &Arc<Cno>, serves: Serves, events: u32) {
    let mut taken = 0;
    while taken < events {
        simulated.poll_descriptor();
        taken += serves(simulated);
    }
    assert_eq!(taken, events);
}

#[test]
fn a_descriptor_misses_no_event() {
    for serves in [arm_and_drain, TRIGGER, WAIT] {
        for [first, second] in [
            [COMPLETE, COMPLETE],
            [COMPLETE, POST],
            [POST, COMPLETE],
            [POST, POST],
        ] {
            for evd in 0..EVDS {
                model(2, move || {
                    let simulated = Cno::with_descriptor(true);
                    let other = in_thread(&simulated, move |simulated| {
                        first(simulated, 0);
                        second(simulated, evd);
                    });
                    poll_until(&simulated, serves, 2);
                    other.join().unwrap();
                });
            }
        }
    }
}

/// A program that takes one event for each trigger.
#[test]
fn a_descriptor_stays_readable_while_an_evd_holds_events() {
    const ONE: Serves = |simulated| serve_trigger(simulated, DESCRIPTOR, 1);
    const ONE_BY_WAIT: Serves = |simulated| serve_trigger(simulated, WAITERS, 1);
    for serves in [ONE, ONE_BY_WAIT] {
        for [first, second] in [[COMPLETE, COMPLETE], [COMPLETE, POST], [POST, POST]] {
            model(2, move || {
                let simulated = Cno::with_descriptor(false);
                let other = in_thread(&simulated, move |simulated| {
                    first(simulated, 0);
                    second(simulated, 0);
                });
                poll_until(&simulated, serves, 2);
                other.join().unwrap();
            });
        }
    }
}

/// A thread waits on the CNO besides: one of them takes the device event that is meant for both.
#[test]
fn a_descriptor_and_a_waiter_miss_no_event() {
    for serves in [arm_and_drain, TRIGGER] {
        for brings in [COMPLETE, POST] {
            model(2, move || {
                let simulated = Cno::with_descriptor(true);
                let waiter = in_thread(&simulated, |simulated| {
                    let evd = simulated.evd_for_one(0);
                    // It passes an event on to the program.
                    for _ in 0..simulated.dequeue(evd, u32::MAX) {
                        simulated.post(0);
                    }
                });
                let other = in_thread(&simulated, move |simulated| brings(simulated, 0));
                poll_until(&simulated, serves, 1);
                other.join().unwrap();
                // For the waiter, unless it has got the first.
                simulated.post(0);
                waiter.join().unwrap();
            });
        }
    }
}

/// The descriptor is created while another thread begins a wait. That passes the event on.
#[test]
fn a_descriptor_that_is_created_during_a_wait_misses_no_event() {
    for brings in [COMPLETE, POST] {
        model(2, move || {
            let simulated = Cno::new(true);
            let waiter = in_thread(&simulated, |simulated| {
                for _ in 0..serve_trigger(simulated, WAITERS, u32::MAX) {
                    simulated.post(0);
                }
            });
            let other = in_thread(&simulated, move |simulated| brings(simulated, 0));
            simulated.create_descriptor();
            let mut taken = arm_and_drain(&simulated);
            while taken == 0 {
                simulated.poll_descriptor();
                taken += arm_and_drain(&simulated);
            }
            waiter.join().unwrap();
            other.join().unwrap();
        });
    }
}

/// A completion queue is attached, which is not armed yet, while the descriptor is.
#[test]
fn a_descriptor_is_readable_for_a_request_to_poll() {
    for serves in [arm_and_drain, TRIGGER, WAIT] {
        model(2, move || {
            let simulated = Cno::with_descriptor(true);
            simulated.evds[0].arrived.lock().unwrap().is_detached = true;
            let other = in_thread(&simulated, |simulated| {
                simulated.attach(0);
                simulated.complete(0);
            });
            poll_until(&simulated, serves, 1);
            other.join().unwrap();
        });
    }
}
