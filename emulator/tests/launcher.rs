//! What `mlx5-emu` answers, and what it leaves behind.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{finish, launcher, run};

/// Status and output of the launcher with these arguments.
fn emu(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(launcher());
    command.args(arguments);
    let outcome = finish(command);
    (outcome.status.code(), outcome.output)
}

fn run_script(script: &str) -> (Option<i32>, String) {
    emu(&["run", "--", "sh", "-c", script])
}

#[test]
fn the_commands_status_is_the_launchers() {
    assert_eq!(run_script("exit 0").0, Some(0));
    assert_eq!(run_script("exit 7").0, Some(7));
    assert_eq!(run_script("kill -KILL $$").0, Some(128 + 9));
    assert_eq!(run_script("kill -TERM $$").0, Some(128 + 15));
}

#[test]
fn a_command_that_cannot_be_run_is_126_or_127() {
    let (status, output) = emu(&["run", "--", "/no/such/program"]);
    assert_eq!(status, Some(127), "{output}");
    assert!(output.contains("/no/such/program"), "{output}");
    assert_eq!(
        emu(&[
            "run",
            "--",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")
        ])
        .0,
        Some(126)
    );
}

#[test]
fn bad_command_lines_are_1_with_a_reason() {
    for (arguments, reason) in [
        (&["run"][..], "<CMD>"),
        (&["fly"], "fly"),
        (&["run", "--devices", "0", "--", "true"], "1 to 16"),
        (&["run", "--ports", "3", "--", "true"], "1 to 2"),
        (&["run", "--devices", "many", "--", "true"], "many"),
        (&["run", "--faults", "drop=2", "--", "true"], "from 0 to 1"),
        (&["run", "--fabric", "../x", "--", "true"], "../x"),
        (&["run", "--fabric", "", "--", "true"], "empty"),
        (&["dump", "cqe", "zz"], "zz"),
    ] {
        let (status, output) = emu(arguments);
        assert_eq!(status, Some(1), "{arguments:?}: {output}");
        assert!(output.contains(reason), "{arguments:?}: {output}");
    }
}

#[test]
fn help_and_info_are_answers() {
    let (status, output) = emu(&["--help"]);
    assert_eq!(status, Some(0));
    assert!(
        output.contains("mlx5-emu run -- ibv_devinfo -v"),
        "{output}"
    );
    let (status, output) = emu(&["info"]);
    assert_eq!(status, Some(0));
    assert!(output.contains("rdma-core"), "{output}");
}

#[test]
fn dump_reads_a_doorbell() {
    let (status, output) = emu(&["dump", "doorbell", "0000000a00000103"]);
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("SEND"), "{output}");
}

#[test]
fn the_command_finds_library_and_devices_in_its_environment() {
    let (_, output) = emu(&[
        "run",
        "--fabric",
        "f-1",
        "--devices",
        "2",
        "--lenient",
        "--",
        "sh",
        "-c",
        "echo $LD_PRELOAD $MLX5EMU_FABRIC $MLX5EMU_DEVICES $MLX5EMU_LENIENT; \
         cat $SYSFS_PATH/class/infiniband_verbs/uverbs1/ibdev; echo $SYSFS_PATH",
    ]);
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].contains("libmlx5emu.so f-1 2 1"), "{output}");
    assert_eq!(lines[1], "mlx5_1");
    assert!(!Path::new(lines[2]).exists(), "{} stayed behind", lines[2]);
}

#[test]
fn programs_listen_on_loopback_unless_the_user_says_where() {
    for (given, expected) in [
        (None, "loopback"),
        (Some(""), "loopback"),
        (Some("all"), "all"),
        (Some("192.0.2.9"), "192.0.2.9"),
    ] {
        let mut command = run::<&str>(&[]);
        command.env_remove("DAT_LISTEN");
        command.args(["sh", "-c", "echo $DAT_LISTEN"]);
        if let Some(given) = given {
            command.env("DAT_LISTEN", given);
        }
        let output = finish(command).expect_success("sh");
        assert_eq!(output.trim_end(), expected, "{given:?}");
    }
}

#[test]
fn what_was_preloaded_before_stays() {
    let mut command = run::<&str>(&[]);
    command
        .env("LD_PRELOAD", "libdl.so.2")
        .args(["sh", "-c", "echo $LD_PRELOAD"]);
    let output = finish(command).expect_success("sh");
    assert!(
        output.trim_end().ends_with("libmlx5emu.so:libdl.so.2"),
        "{output}"
    );
}

#[test]
fn signals_reach_the_command_and_its_files_still_go() {
    let mut command = run::<&str>(&[]);
    let script = "trap 'exit 9' TERM; echo $SYSFS_PATH; sleep 60 & wait; exit 1";
    let mut child = command
        .args(["sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut sysfs = String::new();
    output.read_line(&mut sysfs).unwrap();
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(!Path::new(sysfs.trim_end()).exists());
    drop(output);
}

#[test]
fn programs_that_want_no_device_are_left_alone() {
    let mut command = run::<&str>(&[]);
    command.args([
        "sh",
        "-c",
        "echo one >&2; cat /proc/self/status | head -1; exit 3",
    ]);
    let outcome = finish(command);
    assert_eq!(outcome.status.code(), Some(3));
    assert_eq!(outcome.output, "Name:\tcat\none\n");
}
