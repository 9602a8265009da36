//! One event for each setting.

use std::thread;
use std::time::Duration;

use super::setup::{LowWatermark, POLLERS, Poller};
use crate::support::{Fixture, dequeue, srq_info};

#[test]
fn srq_set_lw_l03_nothing_more_until_it_is_set_again() {
    let fixture = Fixture::new();
    for poller in POLLERS {
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(4);
        setup.set(3);
        setup.take(2);
        setup.expect_event();
        // Lower still; above, and down again.
        setup.take(2);
        setup.silent();
        setup.post(6);
        setup.silent();
        setup.take(5);
        setup.silent();
        while dequeue(setup.pair.passive.recv).is_ok() {}
        setup.silent();
        srq_info(setup.srq);
        setup.silent();
    }
}

#[test]
fn srq_set_lw_l04_setting_it_after_the_event_arms_it_again() {
    let fixture = Fixture::new();
    for poller in POLLERS {
        let setup = LowWatermark::new(&fixture, poller);
        for round in 0..4 {
            setup.post(4);
            setup.set(3 - round % 2);
            setup.silent();
            setup.take(2 + round as usize % 2);
            setup.expect_event();
            setup.take(2 - round as usize % 2);
            setup.silent();
            while dequeue(setup.pair.passive.recv).is_ok() {}
        }
    }
}

#[test]
fn srq_set_lw_l04_each_setting_above_the_count_raises_one_event() {
    let fixture = Fixture::new();
    let setup = LowWatermark::new(&fixture, Poller::Consumer);
    setup.post(2);
    for mark in [3, 3, 16, 3] {
        setup.set(mark);
        setup.expect_queued_event();
    }
}

#[test]
fn srq_set_lw_l04_the_old_value_is_replaced_whether_or_not_it_fired() {
    let fixture = Fixture::new();
    for poller in POLLERS {
        // By a lower one.
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(6);
        setup.set(5);
        setup.set(2);
        assert_eq!(srq_info(setup.srq).low_watermark, 2);
        setup.take(4);
        setup.silent();
        setup.take(1);
        setup.expect_event();
        // By a higher one: one event, and none at the old value.
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(6);
        setup.set(2);
        setup.set(5);
        assert_eq!(srq_info(setup.srq).low_watermark, 5);
        setup.take(1);
        setup.silent();
        setup.take(1);
        setup.expect_event();
        setup.take(4);
        setup.silent();
        // By the same: still one event.
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(3);
        for _ in 0..3 {
            setup.set(3);
        }
        setup.take(1);
        setup.expect_event();
        // By none.
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(3);
        setup.set(3);
        setup.set(0);
        setup.take(3);
        setup.silent();
    }
}

/// An event of the device that arrives while the watermark is set again must not
/// count for the new setting.
#[test]
fn srq_set_lw_l04_an_event_under_way_does_not_count_for_the_new_setting() {
    let fixture = Fixture::new();
    let setup = LowWatermark::new(&fixture, Poller::NotPolled);
    for round in 0..40 {
        setup.post(6);
        setup.set(6);
        setup.take(1);
        // The event of this setting may have come, may come later, or may be
        // dropped.
        setup.set(2);
        if round % 4 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
        let mut events = 0;
        while dequeue(fixture.async_evd).is_ok() {
            events += 1;
        }
        assert!(events <= 1, "{events} for one setting");
        setup.take(3);
        // Two are left, so the second setting has had no event. If the event of
        // the first setting came only now, it would be too late.
        setup.silent();
        setup.take(1);
        setup.expect_event();
        setup.take(1);
        while dequeue(setup.pair.passive.recv).is_ok() {}
    }
}
