//! `dat_srq_set_lw`: the statements L01 to L07 of its page.
//!
//! The page describes the moment of the event twice. "Below the watermark" in the
//! description holds; the usage paragraph has the comparison reversed (the last
//! test).

mod again;
mod bench;

use std::ptr;
use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use self::bench::{Bench, TAKERS, Taker, names, set_lw};
use crate::support::{
    Bed, End, Pair, Shape, abilities, expect, fails, fails_with, nothing_on, ok, srq, srq_info,
    take_dto,
};

#[test]
fn srq_set_lw_l01_one_event_on_the_async_evd_names_the_queue() {
    let bed = Bed::new();
    for taker in TAKERS {
        let bench = Bench::new(&bed, taker);
        bench.post(4);
        // While it is not armed, no event comes.
        bench.take(3);
        bench.silent();
        bench.post(3);
        bench.set(3);
        bench.silent();
        bench.take(2);
        bench.told();
        for evd in [bench.pair.passive.connect, bench.pair.active.recv] {
            nothing_on(evd);
        }
        if taker == Taker::Consumer {
            nothing_on(bench.pair.passive.recv);
        }
    }
}

#[test]
fn srq_set_lw_l01_of_two_queues_it_names_the_right_one() {
    let bed = Bed::new();
    let benches = [TAKERS[0], TAKERS[1]].map(|taker| Bench::new(&bed, taker));
    for bench in &benches {
        bench.post(2);
        bench.set(2);
    }
    benches[1].take(1);
    benches[1].told();
    benches[0].take(1);
    benches[0].told();
}

#[test]
fn srq_set_lw_l01_a_thread_that_waits_for_the_event_is_woken() {
    let bed = Bed::new();
    for taker in TAKERS {
        let bench = Bench::new(&bed, taker);
        bench.post(2);
        bench.set(2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| bench.awaits());
            thread::sleep(Duration::from_millis(10));
            assert!(!waiter.is_finished());
            bench.take(1);
            waiter.join().expect("no panic");
        });
        bench.silent();
    }
}

/// The event comes exactly when one buffer fewer than the watermark is left,
/// whichever call polls.
#[test]
fn srq_set_lw_l02_comes_as_the_first_buffer_below_the_watermark_is_taken() {
    let bed = Bed::new();
    for taker in TAKERS {
        for mark in 1..=5 {
            let bench = Bench::new(&bed, taker);
            bench.post(6);
            bench.set(mark);
            bench.silent();
            for _ in mark..6 {
                bench.take(1);
                bench.silent();
            }
            // As many as the watermark are left.
            bench.take(1);
            bench.told();
        }
    }
}

/// A buffer that is posted counts again.
#[test]
fn srq_set_lw_l02_counts_what_is_on_the_queue_not_what_was_taken() {
    let bed = Bed::new();
    let bench = Bench::new(&bed, Taker::Consumer);
    bench.post(3);
    bench.set(2);
    for _ in 0..20 {
        bench.take(1);
        bench.post(1);
    }
    bench.post(2);
    bench.take(3);
    bench.silent();
    bench.take(1);
    bench.told();
}

#[test]
fn srq_set_lw_l02_comes_during_the_call_if_it_is_below_already() {
    let bed = Bed::new();
    for (posted, mark) in [(0, 1), (2, 3), (2, 16), (0, 15)] {
        let bench = Bench::new(&bed, Taker::Consumer);
        bench.post(posted);
        bench.set(mark);
        bench.told_at_once();
        // The event disarms it.
        bench.take(posted);
        bench.silent();
    }
}

/// The device has taken buffers, and no call has polled the completions.
#[test]
fn srq_set_lw_l02_buffers_that_were_taken_and_not_polled_count() {
    let bed = Bed::new();
    let bench = Bench::new(&bed, Taker::Nobody);
    bench.post(4);
    bench.take(2);
    bench.set(3);
    bench.told_at_once();
    bench.set(2);
    bench.silent();
    bench.take(1);
    bench.told();
    // All completions are still queued.
    for tag in 0..3 {
        assert_eq!(take_dto(bench.pair.passive.recv).cookie, tag);
    }
}

/// As many as the watermark are not below it.
#[test]
fn srq_set_lw_l02_at_the_watermark_is_not_below_it() {
    let bed = Bed::new();
    for (posted, mark) in [(0, 0), (1, 1), (3, 3), (15, 15)] {
        let bench = Bench::new(&bed, Taker::Consumer);
        bench.post(posted);
        bench.set(mark);
        bench.silent();
    }
}

/// Another thread waits for the receives themselves and owns the queues. The
/// event comes all the same, and the message wakes that thread.
#[test]
fn srq_set_lw_l02_comes_under_a_waiter_on_the_receives() {
    let bed = Bed::new();
    let bench = Bench::new(&bed, Taker::Nobody);
    for round in 0..30 {
        bench.post(2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| bench.receives());
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            bench.set(2);
            bench.take(1);
            waiter.join().expect("no panic");
        });
        bench.awaits();
        bench.take(1);
        bench.receives();
        nothing_on(bed.async_evd);
    }
    bench.silent();
}

#[test]
fn srq_set_lw_l02_any_endpoint_of_the_queue_makes_it_run_low() {
    let bed = Bed::new();
    let first = Bench::new(&bed, Taker::Consumer);
    let shape = Shape::default();
    let second = Bench {
        pair: Pair::connect(
            &bed,
            End::new(&bed, &shape),
            End::on_srq(&bed, &shape, first.srq),
        ),
        memory: bed.memory(4096),
        ..Bench::new(&bed, Taker::Nobody)
    };
    first.post(6);
    first.set(4);
    first.take(1);
    second.take(1);
    first.silent();
    second.take(1);
    first.told();
    first.take(3);
    first.silent();
}

#[test]
fn srq_set_lw_l05_a_watermark_above_max_recv_dtos_is_refused_and_changes_nothing() {
    let bed = Bed::new();
    let bench = Bench::new(&bed, Taker::Consumer);
    let most = srq_info(bench.srq).max_recv_dtos;
    assert!(most >= 16);
    bench.post(3);
    bench.set(3);
    for bad in [most + 1, most + 2, DAT_COUNT::MAX, -1, DAT_COUNT::MIN] {
        fails_with(
            set_lw(bench.srq, bad),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        );
        assert_eq!(srq_info(bench.srq).low_watermark, 3);
    }
    bench.silent();
    // The previous watermark is still armed.
    bench.take(1);
    bench.told();
    // The largest value is valid.
    bench.set(most);
    bench.told_at_once();
    assert_eq!(srq_info(bench.srq).low_watermark, most);
}

#[test]
fn srq_set_lw_l06_a_handle_that_is_not_a_queue_is_refused() {
    let bed = Bed::new();
    let bench = Bench::new(&bed, Taker::Consumer);
    let freed = srq(&bed, 4);
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
        bench.srq.wrapping_byte_add(8),
        freed,
        bed.ia,
        bed.pz,
        bed.async_evd,
        bench.pair.passive.ep,
        bench.memory.lmr,
    ] {
        for mark in [0, 1, -1, DAT_COUNT::MAX] {
            fails_with(
                set_lw(handle, mark),
                DAT_INVALID_HANDLE,
                DAT_INVALID_HANDLE_SRQ,
            );
        }
    }
    bench.silent();
}

#[test]
fn srq_set_lw_l07_the_model_is_supported_and_reported() {
    let bed = Bed::new();
    let (_, provider) = abilities(&bed);
    assert_eq!(provider.srq_supported, DAT_TRUE);
    assert_ne!(provider.srq_watermarks_supported, 0);
    let queue = srq(&bed, 4);
    // Without an endpoint, too.
    ok(set_lw(queue, 0));
    ok(set_lw(queue, 1));
    names(
        &expect(bed.async_evd, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR),
        queue,
        &bed,
    );
    // A low watermark in the attributes of a new queue does not set it.
    let mut attributes = DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 1,
    };
    let mut other = ptr::null_mut();
    // SAFETY: live handles; attributes and result are local.
    let answer = unsafe { dat_srq_create(bed.ia, bed.pz, &raw mut attributes, &raw mut other) };
    fails(answer, DAT_INVALID_PARAMETER);
}

#[test]
fn srq_set_lw_note_more_buffers_than_the_watermark_raise_no_event() {
    let bed = Bed::new();
    for taker in TAKERS {
        let bench = Bench::new(&bed, taker);
        bench.post(6);
        for mark in [1, 2, 5] {
            bench.set(mark);
            bench.silent();
        }
    }
}
