//! `dat_counters_query`: counters of waits, and of posts to full queues.

use std::time::Duration;

use dat::abi::*;
use dat::exports::*;
use dat_api::ReturnType;
use dat_api::safe::{Adapter, WaitCounters, WaitPolicy};
use dat_api::types::EvdFlags;

use crate::support::{Fixture, Pair, Shape, blank, device, fails, fails_with, ok, post_srq, srq};

/// Returns the counters of an object.
pub(crate) fn counters(handle: DAT_HANDLE) -> DAT_COUNTERS {
    let mut counters = DAT_COUNTERS {
        reserved: [7; 3],
        ..DAT_COUNTERS::default()
    };
    // SAFETY: the result is writable.
    ok(unsafe { dat_counters_query(handle, &raw mut counters) });
    assert_eq!(counters.reserved, [0; 3]);
    counters
}

/// Returns counters with this many refused posts and nothing else.
fn refused(count: u64) -> DAT_COUNTERS {
    DAT_COUNTERS {
        refused_posts: count,
        ..DAT_COUNTERS::default()
    }
}

/// Calls `dat_evd_wait` for one event.
fn wait(evd: DAT_EVD_HANDLE, timeout: DAT_TIMEOUT) -> DAT_RETURN {
    let (mut event, mut nmore) = (blank(), 0);
    // SAFETY: both results are writable.
    unsafe { dat_evd_wait(evd, timeout, 1, &raw mut event, &raw mut nmore) }
}

#[test]
fn a_full_queue_counts_each_post_that_it_refuses_and_no_other() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let shape = Shape {
        recvs: 2,
        requests: 2,
        ..Shape::default()
    };
    let pair = Pair::new(&fixture, &shape);
    let (ep, buffer) = (&pair.active, [memory.segment(0, 8)]);
    for tag in 0..2 {
        ok(ep.post_recv(&buffer, tag));
    }
    assert_eq!(counters(ep.ep), refused(0));
    for _ in 0..3 {
        fails(ep.post_recv(&buffer, 9), DAT_INSUFFICIENT_RESOURCES);
    }
    assert_eq!(counters(ep.ep), refused(3));
    // Refused, but not because the queue is full.
    assert_ne!(ep.post_recv(&[memory.segment(4096, 8)], 9), DAT_SUCCESS);
    assert_eq!(counters(ep.ep), refused(3));
    let default = DAT_COMPLETION_DEFAULT_FLAG;
    if fixture.is_stepped() {
        // No request completes before the test steps the device.
        for tag in 0..2 {
            ok(ep.post_send(&buffer, tag, default));
        }
        fails(
            ep.post_send(&buffer, 9, default),
            DAT_INSUFFICIENT_RESOURCES,
        );
        fails(
            ep.post_send(&buffer, 9, DAT_COMPLETION_SUPPRESS_FLAG),
            DAT_INSUFFICIENT_RESOURCES,
        );
        assert_eq!(counters(ep.ep), refused(5));
    }
    assert_eq!(counters(pair.passive.ep), refused(0));
}

#[test]
fn a_full_shared_queue_counts_refused_posts() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 4);
    let buffer = [memory.segment(0, 8)];
    let mut posted = 0;
    while post_srq(queue, &buffer, posted) == DAT_SUCCESS {
        posted += 1;
    }
    assert!(posted >= 4);
    assert_eq!(counters(queue), refused(1));
    fails(post_srq(queue, &buffer, 9), DAT_INSUFFICIENT_RESOURCES);
    assert_eq!(counters(queue), refused(2));
}

/// Calls `dat_evd_post_se`.
fn post(evd: DAT_EVD_HANDLE) {
    let mut event = blank();
    event.event_number = DAT_SOFTWARE_EVENT;
    // SAFETY: a live event.
    ok(unsafe { dat_evd_post_se(evd, &raw const event) });
}

#[test]
fn an_evd_counts_the_waits_that_missed_their_first_look_and_no_others() {
    let fixture = Fixture::new();
    let evd = fixture.evd(8, DAT_EVD_SOFTWARE_FLAG);
    assert_eq!(counters(evd), refused(0));
    post(evd);
    ok(wait(evd, DAT_TIMEOUT_INFINITE));
    fails(wait(evd, 0), DAT_TIMEOUT_EXPIRED);
    assert_eq!(
        counters(evd),
        refused(0),
        "the event was queued, or no call waited"
    );
    fails(wait(evd, 2000), DAT_TIMEOUT_EXPIRED);
    let after = counters(evd);
    assert!(after.spins + after.blocks >= 1, "{after:?}");
    assert_eq!((after.hits, after.refused_posts), (0, 0), "{after:?}");
}

#[test]
fn each_policy_counts_what_it_does() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let none = WaitCounters::default();
    for (policy, spins, blocks) in [(WaitPolicy::Poll, 1, 0), (WaitPolicy::Block, 0, 1)] {
        let evd = adapter
            .create_dispatcher_with_policy(8, EvdFlags::SOFTWARE, policy)
            .expect("a dispatcher");
        let end = evd.wait(Some(Duration::from_millis(2)));
        assert!(
            end.expect_err("nothing came")
                .is(ReturnType::TimeoutExpired)
        );
        let counted = evd.wait_counters().expect("open");
        let expected = WaitCounters {
            spins,
            blocks: counted.blocks.max(blocks),
            spurious: counted.spurious,
            ..none
        };
        assert_eq!(counted, expected, "{policy}");
        assert_eq!(counted.blocks > 0, blocks > 0, "{policy}");
        // An event that arrives during a spin or a sleep.
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| evd.wait(None));
            while evd.dequeue().is_ok() {
                std::thread::yield_now();
            }
            evd.post(7).expect("room");
            waiter.join().expect("no panic").expect("an event");
        });
        let after = evd.wait_counters().expect("open");
        assert!(after.hits <= 1 && after.hits >= counted.hits, "{after:?}");
        assert_eq!(after.blocks == 0, blocks == 0, "{policy}: {after:?}");
    }
    drop(adapter);
    drop(fixture);
}

#[test]
fn an_adapter_sums_the_counters_of_live_and_freed_objects() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let (queue, buffer) = (srq(&fixture, 4), [memory.segment(0, 8)]);
    while post_srq(queue, &buffer, 0) == DAT_SUCCESS {}
    let evd = fixture.evd(8, DAT_EVD_SOFTWARE_FLAG);
    fails(wait(evd, 2000), DAT_TIMEOUT_EXPIRED);
    let of_evd = counters(evd);
    let before = counters(fixture.ia);
    assert_eq!(before.refused_posts, 1);
    assert!(before.blocks >= of_evd.blocks && before.spins >= of_evd.spins);
    // SAFETY: live handles.
    unsafe {
        ok(dat_srq_free(queue));
        ok(dat_evd_free(evd));
    }
    assert_eq!(counters(fixture.ia), before);
}

#[test]
fn objects_without_counters_are_refused() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let freed = fixture.evd(8, DAT_EVD_SOFTWARE_FLAG);
    // SAFETY: a live handle.
    ok(unsafe { dat_evd_free(freed) });
    let mut room = DAT_COUNTERS::default();
    for (what, handle) in [
        ("null", DAT_HANDLE_NULL),
        ("freed", freed),
        ("a zone", fixture.pz),
        ("an LMR", memory.lmr),
        ("a number", std::ptr::without_provenance_mut(1)),
    ] {
        println!("{what}");
        // SAFETY: the result is writable.
        let answer = unsafe { dat_counters_query(handle, &raw mut room) };
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
    }
    // SAFETY: null is allowed.
    let answer = unsafe { dat_counters_query(fixture.ia, std::ptr::null_mut()) };
    fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
}
