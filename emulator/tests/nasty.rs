//! Unmodified programs in the modes of `--nasty`: libmlx5 makes no mistake that they
//! show.

use crate::common::{find, finish, pair_with, run};
use mlx5emu::nasty::Nasty;

const UTILITIES: &str = "ibverbs-utils";

#[test]
fn a_pair_that_sleeps_on_events_and_checks_its_data_runs_in_every_mode() {
    let arguments = ["-c", "-e", "-n", "50"];
    for mode in Nasty::names().chain(["all"]) {
        for face in ["ioctl", "write"] {
            let options = ["--nasty", mode, "--face", face];
            pair_with(
                &options,
                "ib",
                "ibv_rc_pingpong",
                UTILITIES,
                &arguments,
                &[],
            );
        }
    }
}

#[test]
fn queue_pairs_on_a_shared_receive_queue_run_in_every_mode() {
    let arguments = ["-e", "-n", "200"];
    for mode in ["srq", "poison", "guard,poison", "all"] {
        let options = ["--nasty", mode];
        pair_with(
            &options,
            "ib",
            "ibv_srq_pingpong",
            UTILITIES,
            &arguments,
            &[],
        );
    }
}

#[test]
fn a_device_without_blueflame_and_with_late_events_is_found() {
    let Some(program) = find("ibv_devinfo", UTILITIES) else {
        return;
    };
    let mut command = run(&["--nasty", "all,-guard,seed=3"]);
    command.arg(program);
    let output = finish(command).expect_success("ibv_devinfo");
    assert!(output.contains("PORT_ACTIVE"), "{output}");
}
