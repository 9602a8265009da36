//! `dat_srq_set_lw`: the statements L01 to L07 of its page.
//!
//! The page describes the moment of the event twice. "Below the watermark" in the
//! description holds; the usage paragraph has the comparison reversed (the last
//! test).

mod again;
mod setup;

use std::ptr;
use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use self::setup::{LowWatermark, POLLERS, Poller, names, set_lw};
use crate::support::{
    End, Fixture, Pair, Shape, abilities, expect, fails, fails_with, nothing_on, ok, srq, srq_info,
    take_dto,
};

#[test]
fn srq_set_lw_l01_one_event_on_the_async_evd_names_the_queue() {
    let fixture = Fixture::new();
    for poller in POLLERS {
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(4);
        // While it is not armed, no event comes.
        setup.take(3);
        setup.silent();
        setup.post(3);
        setup.set(3);
        setup.silent();
        setup.take(2);
        setup.expect_event();
        for evd in [setup.pair.passive.connect, setup.pair.active.recv] {
            nothing_on(evd);
        }
        if poller == Poller::Consumer {
            nothing_on(setup.pair.passive.recv);
        }
    }
}

#[test]
fn srq_set_lw_l01_of_two_queues_it_names_the_right_one() {
    let fixture = Fixture::new();
    let benches = [POLLERS[0], POLLERS[1]].map(|poller| LowWatermark::new(&fixture, poller));
    for setup in &benches {
        setup.post(2);
        setup.set(2);
    }
    benches[1].take(1);
    benches[1].expect_event();
    benches[0].take(1);
    benches[0].expect_event();
}

#[test]
fn srq_set_lw_l01_a_thread_that_waits_for_the_event_is_woken() {
    let fixture = Fixture::new();
    for poller in POLLERS {
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(2);
        setup.set(2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| setup.awaits());
            thread::sleep(Duration::from_millis(10));
            assert!(!waiter.is_finished());
            setup.take(1);
            waiter.join().expect("no panic");
        });
        setup.silent();
    }
}

/// The event comes exactly when one buffer fewer than the watermark is left,
/// whichever call polls.
#[test]
fn srq_set_lw_l02_comes_as_the_first_buffer_below_the_watermark_is_taken() {
    let fixture = Fixture::new();
    for poller in POLLERS {
        for mark in 1..=5 {
            let setup = LowWatermark::new(&fixture, poller);
            setup.post(6);
            setup.set(mark);
            setup.silent();
            for _ in mark..6 {
                setup.take(1);
                setup.silent();
            }
            // As many as the watermark are left.
            setup.take(1);
            setup.expect_event();
        }
    }
}

/// A buffer that is posted counts again.
#[test]
fn srq_set_lw_l02_counts_what_is_on_the_queue_not_what_was_taken() {
    let fixture = Fixture::new();
    let setup = LowWatermark::new(&fixture, Poller::Consumer);
    setup.post(3);
    setup.set(2);
    for _ in 0..20 {
        setup.take(1);
        setup.post(1);
    }
    setup.post(2);
    setup.take(3);
    setup.silent();
    setup.take(1);
    setup.expect_event();
}

#[test]
fn srq_set_lw_l02_comes_during_the_call_if_it_is_below_already() {
    let fixture = Fixture::new();
    for (posted, mark) in [(0, 1), (2, 3), (2, 16), (0, 15)] {
        let setup = LowWatermark::new(&fixture, Poller::Consumer);
        setup.post(posted);
        setup.set(mark);
        setup.expect_queued_event();
        // The event disarms it.
        setup.take(posted);
        setup.silent();
    }
}

/// The device has taken buffers, and no call has polled the completions.
#[test]
fn srq_set_lw_l02_buffers_that_were_taken_and_not_polled_count() {
    let fixture = Fixture::new();
    let setup = LowWatermark::new(&fixture, Poller::NotPolled);
    setup.post(4);
    setup.take(2);
    setup.set(3);
    setup.expect_queued_event();
    setup.set(2);
    setup.silent();
    setup.take(1);
    setup.expect_event();
    // All completions are still queued.
    for tag in 0..3 {
        assert_eq!(take_dto(setup.pair.passive.recv).cookie, tag);
    }
}

/// As many as the watermark are not below it.
#[test]
fn srq_set_lw_l02_at_the_watermark_is_not_below_it() {
    let fixture = Fixture::new();
    for (posted, mark) in [(0, 0), (1, 1), (3, 3), (15, 15)] {
        let setup = LowWatermark::new(&fixture, Poller::Consumer);
        setup.post(posted);
        setup.set(mark);
        setup.silent();
    }
}

/// Another thread waits for the receives themselves and owns the queues. The
/// event comes all the same, and the message wakes that thread.
#[test]
fn srq_set_lw_l02_comes_under_a_waiter_on_the_receives() {
    let fixture = Fixture::new();
    let setup = LowWatermark::new(&fixture, Poller::NotPolled);
    for round in 0..30 {
        setup.post(2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| setup.receives());
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            setup.set(2);
            setup.take(1);
            waiter.join().expect("no panic");
        });
        setup.awaits();
        setup.take(1);
        setup.receives();
        nothing_on(fixture.async_evd);
    }
    setup.silent();
}

#[test]
fn srq_set_lw_l02_any_endpoint_of_the_queue_makes_it_run_low() {
    let fixture = Fixture::new();
    let first = LowWatermark::new(&fixture, Poller::Consumer);
    let shape = Shape::default();
    let second = LowWatermark {
        pair: Pair::connect(
            &fixture,
            End::new(&fixture, &shape),
            End::on_srq(&fixture, &shape, first.srq),
        ),
        memory: fixture.memory(4096),
        ..LowWatermark::new(&fixture, Poller::NotPolled)
    };
    first.post(6);
    first.set(4);
    first.take(1);
    second.take(1);
    first.silent();
    second.take(1);
    first.expect_event();
    first.take(3);
    first.silent();
}

#[test]
fn srq_set_lw_l05_a_watermark_above_max_recv_dtos_is_refused_and_changes_nothing() {
    let fixture = Fixture::new();
    let setup = LowWatermark::new(&fixture, Poller::Consumer);
    let most = srq_info(setup.srq).max_recv_dtos;
    assert!(most >= 16);
    setup.post(3);
    setup.set(3);
    for bad in [most + 1, most + 2, DAT_COUNT::MAX, -1, DAT_COUNT::MIN] {
        fails_with(
            set_lw(setup.srq, bad),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        );
        assert_eq!(srq_info(setup.srq).low_watermark, 3);
    }
    setup.silent();
    // The previous watermark is still armed.
    setup.take(1);
    setup.expect_event();
    // The largest value is valid.
    setup.set(most);
    setup.expect_queued_event();
    assert_eq!(srq_info(setup.srq).low_watermark, most);
}

#[test]
fn srq_set_lw_l06_a_handle_that_is_not_a_queue_is_refused() {
    let fixture = Fixture::new();
    let setup = LowWatermark::new(&fixture, Poller::Consumer);
    let freed = srq(&fixture, 4);
    // SAFETY: a live queue that is not in use.
    ok(unsafe { dat_srq_free(freed) });
    let local = [0_u64; 16];
    let address = ptr::without_provenance_mut::<std::ffi::c_void>;
    for handle in [
        DAT_HANDLE_NULL,
        address(1),
        address(0xdead_beef_0000),
        address(usize::MAX),
        (&raw const local).cast_mut().cast(),
        setup.srq.wrapping_byte_add(8),
        freed,
        fixture.ia,
        fixture.pz,
        fixture.async_evd,
        setup.pair.passive.ep,
        setup.memory.lmr,
    ] {
        for mark in [0, 1, -1, DAT_COUNT::MAX] {
            fails_with(
                set_lw(handle, mark),
                DAT_INVALID_HANDLE,
                DAT_INVALID_HANDLE_SRQ,
            );
        }
    }
    setup.silent();
}

#[test]
fn srq_set_lw_l07_the_model_is_supported_and_reported() {
    let fixture = Fixture::new();
    let (_, provider) = abilities(&fixture);
    assert_eq!(provider.srq_supported, DAT_TRUE);
    assert_ne!(provider.srq_watermarks_supported, 0);
    let queue = srq(&fixture, 4);
    // Without an endpoint, too.
    ok(set_lw(queue, 0));
    ok(set_lw(queue, 1));
    names(
        &expect(fixture.async_evd, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR),
        queue,
        &fixture,
    );
    // A low watermark in the attributes of a new queue does not set it.
    let mut attributes = DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 1,
    };
    let mut other = ptr::null_mut();
    // SAFETY: live handles; attributes and result are local.
    let answer =
        unsafe { dat_srq_create(fixture.ia, fixture.pz, &raw mut attributes, &raw mut other) };
    fails(answer, DAT_INVALID_PARAMETER);
}

#[test]
fn srq_set_lw_note_more_buffers_than_the_watermark_raise_no_event() {
    let fixture = Fixture::new();
    for poller in POLLERS {
        let setup = LowWatermark::new(&fixture, poller);
        setup.post(6);
        for mark in [1, 2, 5] {
            setup.set(mark);
            setup.silent();
        }
    }
}
