//! The query whether the bytes of a message arrive in order, with every answer of the
//! device.

use std::process::Command;

use dat_engine::DataInOrder;

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
