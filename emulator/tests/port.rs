//! `mlx5-emu port`: ports that go down and up while programs run.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::common::{Outcome, fabric, find, finish, launcher, run};

const UTILITIES: &str = "ibverbs-utils";

/// Runs `mlx5-emu port`.
fn port(fabric: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(launcher());
    command.args(["port", "--fabric", fabric]).args(arguments);
    finish(command)
}

fn switch(fabric: &str, state: &str) {
    let expected =
        format!("port 1 of mlx5_0 on fabric {fabric} is {state}, for 1 running process\n");
    let output = port(fabric, &[state]).expect_success(state);
    assert_eq!(output, expected);
}

/// An `ibv_asyncwatch`, which prints the events of its device.
pub(crate) struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    /// Returns `None` if the program is not installed.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        let program = find("ibv_asyncwatch", UTILITIES)?;
        let mut command = run(options);
        command.args(["stdbuf", "-oL"]).arg(program);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut watch = Self { child, lines };
        watch.await_line("async event FD");
        Some(watch)
    }

    fn await_line(&mut self, words: &str) {
        let found = self
            .lines
            .find(|line| line.as_ref().unwrap().contains(words));
        assert!(found.is_some(), "no line with {words:?}");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The launcher forwards it to the program.
        // SAFETY: the child was not waited for, so its process id is not reused.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        let _ = self.child.wait();
    }
}

#[test]
fn running_programs_get_the_events_of_a_switched_port() {
    for link in ["ib", "roce"] {
        let fabric = fabric();
        let Some(mut watch) = Watch::start(&["--fabric", &fabric, "--link", link]) else {
            return;
        };
        for (state, event) in [
            ("down", "IBV_EVENT_PORT_ERR"),
            ("up", "IBV_EVENT_PORT_ACTIVE"),
        ] {
            switch(&fabric, state);
            watch.await_line(event);
        }
    }
}

#[test]
fn programs_that_start_later_find_the_port_down_until_the_last_one_ends() {
    let (fabric, other) = (fabric(), fabric());
    let options = ["--fabric", &fabric];
    let Some(watch) = Watch::start(&options) else {
        return;
    };
    switch(&fabric, "down");
    let states = |options: &[&str]| {
        let mut command = run(options);
        let script = "ibv_devinfo; cat /sys/class/infiniband/mlx5_0/ports/1/*state
            ! command -v rdma >&2 || rdma link >&2";
        command.args(["sh", "-ec", script]);
        finish(command).expect_success("sh")
    };
    let output = states(&options);
    for words in ["PORT_DOWN", "1: DOWN", "3: Disabled"] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
    assert!(!output.contains("ACTIVE"), "{output}");
    let output = states(&["--fabric", &other]);
    assert!(
        output.contains("PORT_ACTIVE") && !output.contains("DOWN"),
        "{output}"
    );
    drop(watch);
    let output = states(&options);
    assert!(
        output.contains("PORT_ACTIVE") && !output.contains("DOWN"),
        "{output}"
    );
}

#[test]
fn a_running_shell_sees_the_state_in_sysfs() {
    let fabric = fabric();
    let Some(watch) = Watch::start(&["--fabric", &fabric]) else {
        return;
    };
    let script = "state() { cat /sys/class/infiniband/mlx5_0/ports/1/state; }
        state; $0 port down >&2; state; $0 port up >&2; state";
    let mut command = run(&["--fabric", &fabric]);
    command.args(["sh", "-ec", script]).arg(launcher());
    let output = finish(command).expect_success("sh");
    assert!(
        output.starts_with("4: ACTIVE\n1: DOWN\n4: ACTIVE\n"),
        "{output}"
    );
    drop(watch);
}

#[test]
fn a_path_over_a_port_that_is_down_is_not_found() {
    let Some(program) = find("rping", "rdmacm-utils") else {
        return;
    };
    let fabric = fabric();
    let options = ["--fabric", &fabric];
    let Some(_watch) = Watch::start(&options) else {
        return;
    };
    switch(&fabric, "down");
    let mut command = run(&options);
    command.arg(program).args(["-c", "-a", "127.0.0.1"]);
    let outcome = finish(command);
    assert!(!outcome.status.success(), "{}", outcome.output);
    let event = "RDMA_CM_EVENT_ROUTE_ERROR, error -110";
    assert!(outcome.output.contains(event), "{}", outcome.output);
}

#[test]
fn what_is_not_there_is_refused_with_what_is_expected() {
    let (fabric, empty) = (fabric(), fabric());
    let Some(_watch) = Watch::start(&["--fabric", &fabric]) else {
        return;
    };
    for (fabric, arguments, status, reason) in [
        (&fabric, &["sideways"][..], 1, "[possible values: down, up]"),
        (
            &fabric,
            &["down", "--device", "rxe0"],
            1,
            "expected mlx5_0 to mlx5_15",
        ),
        (
            &fabric,
            &["down", "--device", "mlx5_00"],
            1,
            "expected mlx5_0 to mlx5_15",
        ),
        (
            &fabric,
            &["down", "--device", "mlx5_3"],
            1,
            "no device mlx5_3: expected mlx5_0",
        ),
        (
            &fabric,
            &["down", "--port", "2"],
            1,
            "has no port 2: expected 1",
        ),
        (&fabric, &["down", "--port", "0"], 1, "0 is not in 1..=2"),
        (
            &"../x".to_owned(),
            &["down"],
            1,
            "invalid --fabric \"../x\": expected 1 to 64",
        ),
        (
            &empty,
            &["down"],
            2,
            "no running program has opened a device of fabric",
        ),
        (&empty, &["up"], 2, &fabric),
    ] {
        let outcome = port(fabric, arguments);
        let output = &outcome.output;
        assert_eq!(
            outcome.status.code(),
            Some(status),
            "{arguments:?}: {output}"
        );
        assert!(output.contains(reason), "{arguments:?}: {output}");
    }
}
