//! The query whether the bytes of a message arrive in order, with every answer of the
//! device.

use std::process::Command;

use dat_engine::{DataInOrder, SendFlags, SendOp, SendRequest, read_message};

use crate::support::device::installed::{expected_order, given};
use crate::support::fixture::Fixture;

const QUERY: &str = "data_in_order::the_answer_is_the_devices_while_the_queue_pair_is_connected";

#[test]
fn the_answer_is_the_devices_while_the_queue_pair_is_connected() {
    let fixture = Fixture::new(16);
    let unconnected = fixture.endpoint(false);
    assert_eq!(unconnected.data_in_order(), DataInOrder::Unknown);
    let ends = fixture.pair(false);
    for end in &ends {
        let answer = end.data_in_order();
        match expected_order() {
            Some(expected) => assert_eq!(answer, expected),
            None => assert_ne!(answer, DataInOrder::Unknown),
        }
    }
    let [near, _] = &ends;
    near.handle().to_error().expect("the error state");
    assert_eq!(near.data_in_order(), DataInOrder::Unknown);
    fixture.system.run();
}

/// A program that polls the last byte would read the others before they are there.
#[test]
fn the_last_byte_of_a_write_is_not_early_if_the_device_promises_that() {
    const LENGTH: usize = 64;
    const INTO: usize = 1024;
    let mut fixture = Fixture::new(16);
    let [mut near, far] = fixture.pair(false);
    let promised = far.data_in_order() == DataInOrder::Yes;
    let buffer = &fixture.buffer;
    // SAFETY: no request uses the memory yet.
    assert!(unsafe { buffer.write(0, &[0x5a; LENGTH]) && buffer.write(INTO, &[0; LENGTH]) });
    let into = buffer.segment(INTO, LENGTH as u32).expect("inside");
    let segments = [buffer.segment(0, LENGTH as u32).expect("inside")];
    let write = SendRequest {
        wr_id: 1,
        op: SendOp::Write {
            remote_addr: into.addr,
            rkey: buffer.region().rkey(),
        },
        segments: &segments,
        flags: SendFlags::SIGNALED,
    };
    // SAFETY: the buffer outlives the endpoints.
    unsafe { near.post_send(&write) }.expect("room");
    let mut is_early = false;
    let from = buffer.as_ptr().as_ptr().wrapping_add(INTO);
    fixture.system.meanwhile(|| {
        let mut seen = [0; LENGTH];
        // The last byte first, as a program does.
        for at in (0..LENGTH).rev() {
            // SAFETY: inside the buffer.
            unsafe { read_message(from.wrapping_add(at), &raw mut seen[at], 1) };
        }
        is_early |= seen[LENGTH - 1] == 0x5a && seen != [0x5a; LENGTH];
    });
    assert_eq!(fixture.polled(1).len(), 1);
    assert!(
        !(promised && is_early),
        "the last byte was there before others"
    );
}

/// A device is configured once in each process.
#[test]
fn other_answers_of_the_emulated_device() {
    if given().is_some() {
        return println!("SKIPPED: sets what the emulated NIC answers");
    }
    for settings in [
        [("MLX5EMU_DATA_IN_ORDER", "yes"), ("MLX5EMU_NASTY", "srq")],
        [("MLX5EMU_DATA_IN_ORDER", "no"), ("MLX5EMU_NASTY", "srq")],
        [
            ("MLX5EMU_DATA_IN_ORDER", "unknown"),
            ("MLX5EMU_NASTY", "srq"),
        ],
        [("MLX5EMU_DATA_IN_ORDER", "yes"), ("MLX5EMU_NASTY", "parts")],
    ] {
        let output = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", QUERY])
            .envs(settings)
            .output()
            .expect("the tests run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{settings:?}\n{text}");
        assert!(text.contains("1 passed"), "{text}");
    }
}
