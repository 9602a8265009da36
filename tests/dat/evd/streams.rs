//! Asynchronous events: their object, and their reason.

use std::process::Command;

use dat::abi::*;

use mlx5emu::spec::{Cqn, Qpn, Srqn};

use super::{LONG, joined, waits};
use crate::cno::{Cno, SECOND};
use crate::support::{
    End, Fixture, Pair, Shape, dequeue, device, expect, fails_with, nothing_on, ok, post_srq,
    reaches, srq, srq_info, take, wait,
};

/// Returns the object and the reason of an asynchronous event.
#[track_caller]
fn reported(event: &DAT_EVENT) -> (DAT_HANDLE, DAT_COUNT) {
    // SAFETY: only asynchronous events are passed.
    let data = unsafe { event.event_data.asynch_error_event_data };
    (data.dat_handle, data.reason)
}

/// Counts the object numbers of the device for which this holds; the upper bits
/// of some numbers identify the process.
fn numbers(holds: impl Fn(u32) -> bool) -> usize {
    let all = (0..1 << 8).flat_map(|process| {
        (0..1 << 12)
            .chain(0xfff0..1 << 16)
            .map(move |low| process << 16 | low)
    });
    all.filter(|&number| holds(number)).count()
}

/// The device fails the queue pairs. An event names the endpoint, its connection
/// is broken, and receives are flushed at both ends.
#[test]
fn evd_x15_a_failed_endpoint_is_reported() {
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: needs the emulated NIC, which fails on demand");
        return;
    };
    let pair = Pair::new(&fixture, &Shape::default());
    let memory = fixture.memory(64);
    for end in [pair.active, pair.passive] {
        ok(end.post_recv(&[memory.segment(0, 8)], 7));
    }
    let cno = Cno::new(&fixture);
    cno.bind(fixture.async_evd);
    let failed = numbers(|number| emulator.nic().fail_qp(Qpn(number)).is_ok());
    assert!(failed >= 2, "{failed} queue pairs");
    fixture.run();
    assert_eq!(cno.wait(10 * SECOND), Ok(fixture.async_evd));
    let event = expect(fixture.async_evd, DAT_ASYNC_ERROR_EP_BROKEN);
    let (handle, reason) = reported(&event);
    assert_eq!(reason, DAT_EP_TRANSFER_TO_ERROR as DAT_COUNT);
    let ends = [pair.active, pair.passive];
    let broken = ends.into_iter().find(|end| end.ep == handle);
    let broken = broken.expect("one of the two");
    expect(broken.connect, DAT_CONNECTION_EVENT_BROKEN);
    for end in ends {
        reaches(end.ep, DAT_EP_STATE_DISCONNECTED);
        fixture.run();
        let flushed = end.received();
        assert_eq!((flushed.cookie, flushed.status), (7, DAT_DTO_ERR_FLUSHED));
    }
    // The other one too, unless it was disconnected before it failed.
    while let Ok(event) = dequeue(fixture.async_evd) {
        assert_eq!(event.event_number, DAT_ASYNC_ERROR_EP_BROKEN);
        let (handle, _) = reported(&event);
        assert!(handle != broken.ep && ends.iter().any(|end| end.ep == handle));
    }
}

/// The device is removed for good. Each test process has one device, so this test
/// needs its own process.
#[test]
fn evd_x14_a_failed_adapter_is_reported() {
    let program = std::env::current_exe().expect("this test");
    let output = Command::new(program)
        .args(["--exact", "evd::streams::adapter_fails", "--ignored"])
        .arg("--nocapture")
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn adapter_fails() {
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: needs the emulated NIC, which fails on demand");
        return;
    };
    // Opened twice: each open adapter has its own context on the device.
    let beside = fixture.beside(std::ptr::null_mut());
    let end = End::new(&fixture, &Shape::default());
    let cno = Cno::new(&fixture);
    cno.bind(fixture.async_evd);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cno.wait(20 * SECOND).map(super::Evd));
        let on_end = waits(scope, super::Evd(end.recv), 1);
        emulator.nic().fail_device(0);
        // Waits for transfers end too.
        fails_with(joined(on_end), DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
        assert_eq!(
            waiter.join().expect("no panic"),
            Ok(super::Evd(fixture.async_evd))
        );
    });
    for opening in [&fixture, &beside] {
        let event = expect(opening.async_evd, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
        let reason = DAT_IA_CATASTROPHIC_ERROR as DAT_COUNT;
        assert_eq!(reported(&event), (opening.ia, reason));
        // Reported once.
        nothing_on(opening.async_evd);
    }
    // Later waits fail as well, on the EVD and on a CNO that it triggers.
    for _ in 0..2 {
        let (answer, _, _) = wait(end.recv, LONG, 1);
        fails_with(answer, DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    }
    let fed = Cno::new(&fixture);
    fed.bind(end.recv);
    for _ in 0..2 {
        let answer = fed.wait(20 * SECOND).expect_err("nothing comes");
        fails_with(answer, DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    }
}

/// The device fails the completion queue of an EVD, and so the EVD fails. The
/// failure is reported as an overflow; the EVD can no longer be dequeued or
/// waited on, and does not trigger its CNO. It can be freed like any other.
#[test]
fn evd_x13_a_failed_queue_is_reported_and_its_evd_fails() {
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: needs the emulated NIC, which fails on demand");
        return;
    };
    let end = End::new(&fixture, &Shape::default());
    let failed = numbers(|number| emulator.nic().fail_cq(Cqn(number)).is_ok());
    assert!(
        failed >= 2,
        "{failed} completion queues: receives, requests"
    );
    fixture.run();
    let mut lost = Vec::new();
    while lost.len() < 2 {
        // A thread of the library posts the event.
        let (answer, event, _) = wait(fixture.async_evd, 60_000_000, 1);
        ok(answer);
        let (handle, reason) = reported(&event);
        if handle == end.ep {
            // The queue pair failed together with its queues.
            assert_eq!(event.event_number, DAT_ASYNC_ERROR_EP_BROKEN);
            continue;
        }
        assert_eq!(event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
        assert_eq!(reason, DAT_EVD_OVERFLOW_ERROR as DAT_COUNT);
        lost.push(handle);
    }
    lost.sort_unstable();
    let mut both = [end.recv, end.request];
    both.sort_unstable();
    assert_eq!(lost, both);
    for evd in both {
        let dead = (DAT_INVALID_STATE, DAT_NO_SUBTYPE);
        let taken = dequeue(evd).err().expect("no event");
        fails_with(taken, dead.0, dead.1);
        let (answer, _, _) = wait(evd, DAT_TIMEOUT_INFINITE, 1);
        fails_with(answer, dead.0, dead.1);
    }
    // SAFETY: live handles that only this test uses.
    unsafe {
        ok(dat::exports::dat_ep_free(end.ep));
        for evd in both {
            ok(dat::exports::dat_evd_free(evd));
        }
    }
}

/// The asynchronous EVD has no other EVD to report to: events for which it has no
/// room are lost, and queued ones are kept.
#[test]
fn evd_x13_an_asynchronous_evd_that_overflows_keeps_what_it_has() {
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: needs the emulated NIC, which fails on demand");
        return;
    };
    // SAFETY: live handles that only this test uses.
    ok(unsafe { dat::exports::dat_evd_resize(fixture.async_evd, 1) });
    let ends = [0; 2].map(|_| End::new(&fixture, &Shape::default()));
    let failed = numbers(|number| emulator.nic().fail_cq(Cqn(number)).is_ok());
    assert!(failed >= 4, "{failed} completion queues");
    fixture.run();
    // A thread of the library posts the event.
    let (answer, first, _) = wait(fixture.async_evd, 60_000_000, 1);
    ok(answer);
    assert_eq!(first.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
    let (handle, _) = reported(&first);
    let known = ends
        .iter()
        .any(|end| [end.recv, end.request].contains(&handle));
    assert!(known, "one of the endpoints");
    // If the library's thread has not finished, later events find room. Then the
    // EVD is empty.
    let mut others = 0;
    let last = loop {
        match wait(fixture.async_evd, 1000, 1).0 {
            DAT_SUCCESS => others += 1,
            answer => break answer,
        }
    };
    fails_with(last, DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
    assert!(others < 4, "{others} more of 4");
}

/// A shared receive queue fails. The event reports an internal error of the
/// queue; its query reports the error state, and posts still succeed.
#[test]
fn evd_x17_a_failed_srq_is_reported() {
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: needs the emulated NIC, which fails on demand");
        return;
    };
    let queue = srq(&fixture, 4);
    let memory = fixture.memory(64);
    ok(post_srq(queue, &[memory.segment(0, 8)], 1));
    assert_eq!(srq_info(queue).srq_state, DAT_SRQ_STATE_OPERATIONAL);
    let failed = numbers(|number| emulator.nic().fail_srq(Srqn(number)).is_ok());
    assert!(failed >= 1);
    fixture.run();
    let event = expect(fixture.async_evd, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR);
    let reason = DAT_SRQ_TRANSFER_TO_ERROR as DAT_COUNT;
    assert_eq!(reported(&event), (queue, reason));
    assert_eq!(srq_info(queue).srq_state, DAT_SRQ_STATE_ERROR);
    ok(post_srq(queue, &[memory.segment(0, 8)], 2));
    // SAFETY: a live handle.
    ok(unsafe { dat::exports::dat_srq_free(queue) });
}

/// An event without its own number is reported as an internal error of its
/// object.
#[test]
fn evd_x17_watermarks_are_reported_by_object_and_reason() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 4);
    let memory = fixture.memory(64);
    ok(post_srq(queue, &[memory.segment(0, 8)], 1));
    // SAFETY: a live handle.
    ok(unsafe { dat::exports::dat_srq_set_lw(queue, 2) });
    let event = take(fixture.async_evd, "watermark");
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR);
    assert_eq!(
        reported(&event),
        (queue, DAT_SRQ_LOW_WATERMARK_EVENT as DAT_COUNT)
    );
    nothing_on(fixture.async_evd);
}
