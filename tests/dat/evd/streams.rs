//! Asynchronous events: which object, and why.

use std::process::Command;

use dat::abi::*;

use mlx5emu::nic::spec::Qpn;

use crate::cno::{Cno, SECOND};
use crate::support::{
    Bed, End, Pair, Shape, dequeue, device, expect, nothing_on, ok, post_srq, reaches, srq, take,
    wait,
};

/// The object and the reason of an asynchronous event.
#[track_caller]
fn told(event: &DAT_EVENT) -> (DAT_HANDLE, DAT_COUNT) {
    // SAFETY: the events looked at are of that kind.
    let data = unsafe { event.event_data.asynch_error_event_data };
    (data.dat_handle, data.reason)
}

/// The adapter fails the queue pairs: an endpoint is told of, its connection is
/// broken, and receives come back flushed at both ends.
#[test]
fn evd_x15_a_failed_endpoint_is_told_of() {
    let bed = Bed::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: incidents at will are the emulated NIC's");
        return;
    };
    let pair = Pair::new(&bed, &Shape::default());
    let memory = bed.memory(64);
    for end in [pair.active, pair.passive] {
        ok(end.post_recv(&[memory.segment(0, 8)], 7));
    }
    let cno = Cno::new(&bed);
    cno.feed(bed.async_evd);
    // Whatever the numbers are: the upper bits name the process.
    let numbers = (0..1 << 8).flat_map(|process| (0..1 << 12).map(move |low| process << 16 | low));
    let failed = numbers
        .filter(|&number| emulator.nic().fail_qp(Qpn(number)).is_ok())
        .count();
    assert!(failed >= 2, "{failed} queue pairs");
    bed.run();
    assert_eq!(cno.wait(10 * SECOND), Ok(bed.async_evd));
    let event = expect(bed.async_evd, DAT_ASYNC_ERROR_EP_BROKEN);
    let (handle, reason) = told(&event);
    assert_eq!(reason, DAT_EP_TRANSFER_TO_ERROR as DAT_COUNT);
    let ends = [pair.active, pair.passive];
    let broken = ends.into_iter().find(|end| end.ep == handle);
    let broken = broken.expect("one of the two");
    expect(broken.connect, DAT_CONNECTION_EVENT_BROKEN);
    for end in ends {
        reaches(end.ep, DAT_EP_STATE_DISCONNECTED);
        bed.run();
        let flushed = end.received();
        assert_eq!((flushed.cookie, flushed.status), (7, DAT_DTO_ERR_FLUSHED));
    }
    // The other one too, unless it had been disconnected before it failed.
    while let Ok(event) = dequeue(bed.async_evd) {
        assert_eq!(event.event_number, DAT_ASYNC_ERROR_EP_BROKEN);
        let (handle, _) = told(&event);
        assert!(handle != broken.ep && ends.iter().any(|end| end.ep == handle));
    }
}

/// The device is gone for good: each test process has one, so this has one of
/// its own.
#[test]
fn evd_x14_a_failed_adapter_is_told_of() {
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
    let bed = Bed::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: incidents at will are the emulated NIC's");
        return;
    };
    let end = End::new(&bed, &Shape::default());
    let cno = Cno::new(&bed);
    cno.feed(bed.async_evd);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cno.wait(20 * SECOND).map(super::Evd));
        std::thread::sleep(std::time::Duration::from_millis(5));
        emulator.nic().fail_device(0);
        assert_eq!(
            waiter.join().expect("no panic"),
            Ok(super::Evd(bed.async_evd))
        );
    });
    let event = expect(bed.async_evd, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
    assert_eq!(told(&event).0, bed.ia);
    // Told once; and nothing hangs.
    nothing_on(bed.async_evd);
    let (answer, _, _) = wait(end.recv, 1000, 1);
    assert_ne!(answer, DAT_SUCCESS);
}

/// What has no number of its own comes as an internal error of its object.
#[test]
fn evd_x17_watermarks_are_told_by_object_and_reason() {
    let bed = Bed::new();
    let queue = srq(&bed, 4);
    let memory = bed.memory(64);
    ok(post_srq(queue, &[memory.segment(0, 8)], 1));
    // SAFETY: a live handle.
    ok(unsafe { dat::exports::dat_srq_set_lw(queue, 2) });
    let event = take(bed.async_evd, "watermark");
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR);
    assert_eq!(
        told(&event),
        (queue, DAT_SRQ_LOW_WATERMARK_EVENT as DAT_COUNT)
    );
    nothing_on(bed.async_evd);
}
