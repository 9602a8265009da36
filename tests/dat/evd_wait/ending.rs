//! Waits that end without an event: the EVD is unwaitable, freed or invalid.

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use super::{Evd, LONG, MessagePair, SOON, joined};
use crate::support::{End, Fixture, Shape, dequeue, fails, fails_with, nothing_on, ok, take_dto};

/// Spins a little longer in each round.
fn spin(round: u32) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_nanos(u64::from(round) * 1500) {
        std::hint::spin_loop();
    }
}

#[test]
fn evd_wait_w16_an_unwaitable_evd_refuses_at_once() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(0..2);
    let recv = messages.recv();
    messages.deliver();
    recv.set_unwaitable();
    for timeout in [0, LONG, DAT_TIMEOUT_INFINITE] {
        for threshold in [1, 2] {
            recv.wait(timeout, threshold)
                .soon()
                .refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
        }
    }
    let states = DAT_EVD_STATE_WAITABLE | DAT_EVD_STATE_UNWAITABLE;
    assert_eq!(recv.query().evd_state & states, DAT_EVD_STATE_UNWAITABLE);
    // Everything else still works.
    assert_eq!(take_dto(recv.0).cookie, 0);
    nothing_on(recv.0);
    messages.deliver();
    recv.clear_unwaitable();
    assert_eq!(recv.query().evd_state & states, DAT_EVD_STATE_WAITABLE);
    assert_eq!(recv.wait(0, 1).tag(), (1, 0));
}

#[test]
fn evd_wait_w16_unwaitable_ends_a_wait_at_once() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(0..2);
    messages.deliver();
    for evd in [
        messages.recv(),
        Evd::software(&fixture, 4),
        Evd(fixture.async_evd),
    ] {
        for timeout in [LONG, DAT_TIMEOUT_INFINITE] {
            thread::scope(|scope| {
                let waiter = evd.in_thread(scope, timeout, 2);
                thread::sleep(Duration::from_millis(4));
                evd.set_unwaitable();
                joined(waiter)
                    .soon()
                    .refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
                evd.clear_unwaitable();
            });
        }
    }
    // Events that were queued during the wait are still there.
    assert_eq!(messages.recv().wait(0, 1).tag(), (0, 0));
}

/// Set unwaitable and waitable again before the waiter could look: its wait ends
/// all the same.
#[test]
fn evd_wait_w16_unwaitable_for_a_moment_ends_a_wait() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    for round in 0..200 {
        thread::scope(|scope| {
            let waiter = evd.in_thread(scope, LONG, 1);
            spin(round);
            evd.set_unwaitable();
            evd.clear_unwaitable();
            joined(waiter)
                .soon()
                .refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
        });
    }
    evd.post(1);
    assert_eq!(evd.wait(0, 1).number(), (1, 0));
}

#[test]
fn evd_wait_w16_repeated_calls_have_no_further_effect() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    for _ in 0..2 {
        evd.set_unwaitable();
        evd.wait(0, 1)
            .refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
    }
    for _ in 0..2 {
        evd.clear_unwaitable();
        assert_eq!(evd.wait(0, 1).expired(), 0);
    }
}

/// Checks that the handle is refused, whatever its value, and that the results
/// are not written.
#[track_caller]
fn is_no_evd(handle: DAT_HANDLE) {
    for timeout in [0, LONG, DAT_TIMEOUT_INFINITE] {
        for threshold in [1, 0, DAT_COUNT::MAX] {
            let waited = Evd(handle).wait(timeout, threshold).soon();
            fails(waited.answer, DAT_INVALID_HANDLE);
            assert_eq!((waited.event.event_number, waited.nmore), (0, -77));
            assert!(waited.event.evd_handle.is_null());
        }
    }
    fails(
        dequeue(handle).err().unwrap_or(DAT_SUCCESS),
        DAT_INVALID_HANDLE,
    );
    // SAFETY: the call validates the handle before it uses the pointers.
    let answer = unsafe { dat_evd_wait(handle, 0, 1, ptr::null_mut(), ptr::null_mut()) };
    fails(answer, DAT_INVALID_HANDLE);
}

#[test]
fn evd_wait_w17_null_and_garbage_are_refused() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    evd.post(1);
    is_no_evd(DAT_HANDLE_NULL);
    let local = [0_u64; 16];
    let address = ptr::without_provenance_mut::<std::ffi::c_void>;
    for garbage in [
        address(1),
        address(2),
        address(0x1000),
        address(0xdead_beef_0000),
        address(usize::MAX),
        address(usize::MAX & !63),
        address(1 << 63),
        (&raw const local).cast_mut().cast(),
        evd.0.wrapping_byte_add(1),
        evd.0.wrapping_byte_add(8),
        evd.0.wrapping_byte_add(64 << 16),
    ] {
        is_no_evd(garbage);
    }
    assert_eq!(evd.wait(0, 1).number(), (1, 0));
}

#[test]
fn evd_wait_w17_handles_of_other_objects_are_refused() {
    let fixture = Fixture::new();
    let end = End::new(&fixture, &Shape::default());
    let memory = fixture.memory(64);
    let (mut qualifier, mut psp) = (0, ptr::null_mut());
    let requests = fixture.evd(2, DAT_EVD_CR_FLAG);
    // SAFETY: live handles; results are writable.
    ok(unsafe {
        dat_psp_create_any(
            fixture.ia,
            &raw mut qualifier,
            requests,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        )
    });
    for other in [fixture.ia, fixture.pz, end.ep, memory.lmr, psp] {
        is_no_evd(other);
    }
}

/// The handle of a freed EVD never names a later one.
#[test]
fn evd_wait_w17_a_freed_evd_stays_refused() {
    let fixture = Fixture::new();
    let mut old = Vec::new();
    for round in 0..40 {
        let evd = Evd::software(&fixture, 2);
        assert!(!old.contains(&evd));
        evd.post(round);
        if round % 8 == 0 {
            for &Evd(gone) in &old {
                is_no_evd(gone);
            }
        }
        assert_eq!(evd.wait(0, 1).number(), (round, 0));
        evd.free();
        fails(
            // SAFETY: the call validates its handles.
            unsafe { dat_evd_free(evd.0) },
            DAT_INVALID_HANDLE,
        );
        is_no_evd(evd.0);
        old.push(evd);
    }
}

#[track_caller]
fn is_aborted(waited: &super::Waited) {
    fails_with(waited.answer, DAT_ABORT, DAT_NO_SUBTYPE);
}

#[test]
fn evd_wait_w18_freeing_an_evd_ends_its_wait() {
    let fixture = Fixture::new();
    for flags in [
        DAT_EVD_SOFTWARE_FLAG,
        DAT_EVD_DTO_FLAG,
        DAT_EVD_DEFAULT_FLAG,
    ] {
        for timeout in [LONG, DAT_TIMEOUT_INFINITE] {
            let evd = Evd(fixture.evd(4, flags));
            thread::scope(|scope| {
                let waiter = evd.in_thread(scope, timeout, 1);
                thread::sleep(Duration::from_millis(4));
                evd.free();
                is_aborted(&joined(waiter).soon());
            });
            is_no_evd(evd.0);
        }
    }
}

/// The free may come at any moment of the wait; a wait that begins after it gets
/// DAT_INVALID_HANDLE.
#[test]
fn evd_wait_w18_an_evd_may_be_freed_at_any_moment_of_a_wait() {
    let fixture = Fixture::new();
    let mut aborted = 0;
    for round in 0..200 {
        let evd = Evd::software(&fixture, 4);
        thread::scope(|scope| {
            let waiter = scope.spawn(move || evd.wait(LONG, 1));
            spin(round % 100);
            if round >= 100 {
                evd.until_waited();
            }
            evd.free();
            let waited = joined(waiter).soon();
            if waited.answer & DAT_TYPE_MASK != DAT_INVALID_HANDLE {
                is_aborted(&waited);
                aborted += 1;
            }
        });
    }
    assert!(aborted >= 100, "{aborted}");
}

/// An EVD in use cannot be freed, with or without a waiter.
#[test]
fn evd_wait_w18_an_evd_in_use_cannot_be_freed_during_a_wait() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(1..2);
    let recv = messages.recv();
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        // SAFETY: a live EVD.
        let answer = unsafe { dat_evd_free(recv.0) };
        fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
        super::stays(&waiter, recv);
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 0));
    });
}

#[test]
fn evd_wait_w18_closing_the_ia_abruptly_ends_every_wait() {
    let mut fixture = Fixture::new();
    let end = End::new(&fixture, &Shape::default());
    let evds = [
        Evd(end.recv),
        Evd(end.request),
        Evd(end.connect),
        Evd::software(&fixture, 4),
        Evd(fixture.async_evd),
    ];
    thread::scope(|scope| {
        let waiters = evds.map(|evd| evd.in_thread(scope, DAT_TIMEOUT_INFINITE, 1));
        thread::sleep(Duration::from_millis(5));
        ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
        for waiter in waiters {
            is_aborted(&joined(waiter));
        }
    });
    for Evd(evd) in evds {
        is_no_evd(evd);
    }
}

#[test]
fn evd_wait_w18_closing_a_connected_ia_ends_its_waits() {
    let mut fixture = Fixture::new();
    let (recv, ep) = {
        let pair = crate::support::Pair::new(&fixture, &Shape::default());
        (Evd(pair.passive.recv), pair.passive.ep)
    };
    thread::scope(|scope| {
        let waiter = recv.in_thread(scope, DAT_TIMEOUT_INFINITE, 1);
        thread::sleep(Duration::from_millis(5));
        ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
        is_aborted(&joined(waiter));
    });
    let mut state = 0;
    // SAFETY: the result is writable.
    let answer = unsafe { dat_ep_get_status(ep, &raw mut state, ptr::null_mut(), ptr::null_mut()) };
    fails(answer, DAT_INVALID_HANDLE);
}

/// An adapter's own asynchronous EVD does not keep it from being closed
/// gracefully, and neither does a thread that waits on that EVD.
#[test]
fn evd_wait_w18_closing_gracefully_ends_the_wait_on_the_async_evd() {
    let mut fixture = Fixture::new();
    // SAFETY: a zone that is not in use.
    ok(unsafe { dat_pz_free(fixture.pz) });
    let evd = Evd(fixture.async_evd);
    thread::scope(|scope| {
        let waiter = evd.in_thread(scope, DAT_TIMEOUT_INFINITE, 1);
        thread::sleep(Duration::from_millis(5));
        ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
        is_aborted(&joined(waiter));
    });
    is_no_evd(evd.0);
}

/// A refused close ends no wait.
#[test]
fn evd_wait_w18_a_refused_close_ends_no_wait() {
    let mut fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    thread::scope(|scope| {
        let waiter = evd.asleep(scope, 1);
        fails_with(
            fixture.close(DAT_CLOSE_GRACEFUL_FLAG),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_IA_IN_USE,
        );
        super::stays(&waiter, evd);
        evd.post(1);
        let waited = joined(waiter);
        assert_eq!(waited.number(), (1, 0));
        assert!(waited.took < SOON);
    });
}

/// Repeatedly, with every kind of object in the adapter.
#[test]
fn evd_wait_w18_the_ia_may_be_closed_at_any_moment_of_a_wait() {
    for round in 0..12 {
        let mut fixture = Fixture::new();
        let evds = [
            Evd::software(&fixture, 4),
            Evd(fixture.evd(4, DAT_EVD_DTO_FLAG)),
        ];
        thread::scope(|scope| {
            let waiters = evds.map(|evd| scope.spawn(move || evd.wait(LONG, 1)));
            spin(round * 20);
            if round % 2 == 0 {
                for evd in evds {
                    evd.until_waited();
                }
            }
            ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
            for waiter in waiters {
                let waited = joined(waiter).soon();
                if waited.answer & DAT_TYPE_MASK != DAT_INVALID_HANDLE || round % 2 == 0 {
                    is_aborted(&waited);
                }
            }
        });
    }
}
