//! One event for each setting.

use std::thread;
use std::time::Duration;

use super::bench::{Bench, TAKERS, Taker};
use crate::support::{Bed, dequeue, srq_info};

#[test]
fn srq_set_lw_l03_nothing_more_until_it_is_set_again() {
    let bed = Bed::new();
    for taker in TAKERS {
        let bench = Bench::new(&bed, taker);
        bench.post(4);
        bench.set(3);
        bench.take(2);
        bench.told();
        // Lower still; above, and down again.
        bench.take(2);
        bench.silent();
        bench.post(6);
        bench.silent();
        bench.take(5);
        bench.silent();
        while dequeue(bench.pair.passive.recv).is_ok() {}
        bench.silent();
        srq_info(bench.srq);
        bench.silent();
    }
}

#[test]
fn srq_set_lw_l04_setting_it_after_the_event_arms_it_anew() {
    let bed = Bed::new();
    for taker in TAKERS {
        let bench = Bench::new(&bed, taker);
        for round in 0..4 {
            bench.post(4);
            bench.set(3 - round % 2);
            bench.silent();
            bench.take(2 + round as usize % 2);
            bench.told();
            bench.take(2 - round as usize % 2);
            bench.silent();
            while dequeue(bench.pair.passive.recv).is_ok() {}
        }
    }
}

#[test]
fn srq_set_lw_l04_each_setting_above_the_count_raises_one_event() {
    let bed = Bed::new();
    let bench = Bench::new(&bed, Taker::Consumer);
    bench.post(2);
    for mark in [3, 3, 16, 3] {
        bench.set(mark);
        bench.told_at_once();
    }
}

#[test]
fn srq_set_lw_l04_the_old_value_is_replaced_whether_or_not_it_fired() {
    let bed = Bed::new();
    for taker in TAKERS {
        // By a lower one.
        let bench = Bench::new(&bed, taker);
        bench.post(6);
        bench.set(5);
        bench.set(2);
        assert_eq!(srq_info(bench.srq).low_watermark, 2);
        bench.take(4);
        bench.silent();
        bench.take(1);
        bench.told();
        // By a higher one: one event, and none at the old value.
        let bench = Bench::new(&bed, taker);
        bench.post(6);
        bench.set(2);
        bench.set(5);
        assert_eq!(srq_info(bench.srq).low_watermark, 5);
        bench.take(1);
        bench.silent();
        bench.take(1);
        bench.told();
        bench.take(4);
        bench.silent();
        // By the same: still one event.
        let bench = Bench::new(&bed, taker);
        bench.post(3);
        for _ in 0..3 {
            bench.set(3);
        }
        bench.take(1);
        bench.told();
        // By none.
        let bench = Bench::new(&bed, taker);
        bench.post(3);
        bench.set(3);
        bench.set(0);
        bench.take(3);
        bench.silent();
    }
}

/// An event of the device that arrives while the watermark is set again must not
/// count for the new setting.
#[test]
fn srq_set_lw_l04_an_event_under_way_does_not_count_for_the_new_setting() {
    let bed = Bed::new();
    let bench = Bench::new(&bed, Taker::Nobody);
    for round in 0..40 {
        bench.post(6);
        bench.set(6);
        bench.take(1);
        // The event of this setting may have come, may come later, or may be
        // dropped.
        bench.set(2);
        if round % 4 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
        let mut events = 0;
        while dequeue(bed.async_evd).is_ok() {
            events += 1;
        }
        assert!(events <= 1, "{events} for one setting");
        bench.take(3);
        // Two are left, so the second setting has had no event. If the event of
        // the first setting came only now, it would be too late.
        bench.silent();
        bench.take(1);
        bench.told();
        bench.take(1);
        while dequeue(bench.pair.passive.recv).is_ok() {}
    }
}
