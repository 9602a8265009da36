//! Unmodified programs under faults: lossy wires, QPs and devices that fail,
//! killed processes, and many processes at a time.
//!
//! The suite runs a short sample; `MLX5EMU_SOAK=1` (`perf-scripts/soak`) runs all.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{
    Outcome, Running, await_connection, await_listener, fabric, find, finish, free_port, launcher,
    run, start,
};

const UTILITIES: &str = "ibverbs-utils";
const PERFTEST: &str = "perftest";
/// Upper bound for the retries, delays and waits of these programs.
const SOON: Duration = Duration::from_secs(60);

/// Returns the number of rounds in the suite or in a soak.
fn rounds(suite: u32, soak: u32) -> u32 {
    let is_soak = std::env::var_os("MLX5EMU_SOAK").is_some_and(|it| !it.is_empty());
    if is_soak { soak } else { suite }
}

/// A server and a client on a fabric of their own.
struct Pair {
    fabric: String,
    port: u16,
    server: Running,
    client: Running,
}

fn command(fabric: &str, faults: &str, program: &Path, port: u16, arguments: &[&str]) -> Command {
    let mut options = vec!["--fabric", fabric];
    if !faults.is_empty() {
        options.extend(["--faults", faults]);
    }
    let mut command = run(&options);
    command.arg(program).args(arguments);
    command.args(["-p", &port.to_string()]);
    command
}

impl Pair {
    /// Starts both programs, each with its own faults.
    fn start(program: &Path, arguments: &[&str], faults: [&str; 2]) -> Self {
        let (fabric, port) = (fabric(), free_port());
        let server = start(command(&fabric, faults[0], program, port, arguments));
        await_listener(port);
        let mut client = command(&fabric, faults[1], program, port, arguments);
        client.arg("localhost");
        Self {
            server,
            client: start(client),
            fabric,
            port,
        }
    }

    /// Expects both programs to succeed.
    fn expect_success(self, what: &str) {
        let Self { server, client, .. } = self;
        client.finish().expect_success(what);
        server.finish().expect_success(what);
    }
}

/// Kills the command of a launcher; the launcher then exits with its status.
fn kill_command(of: &Running) {
    let launcher = of.pid();
    let children = format!("/proc/{launcher}/task/{launcher}/children");
    let children = std::fs::read_to_string(children).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|it| it.parse().ok()) {
        // SAFETY: a child of our launcher, which has not waited for it.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
}

fn expect_end_soon(running: Running, what: &str) -> Outcome {
    let begin = Instant::now();
    let outcome = running.finish();
    assert!(begin.elapsed() < SOON, "{what} took {:?}", begin.elapsed());
    outcome
}

fn expect_failure_soon(running: Running, what: &str) -> Outcome {
    let outcome = expect_end_soon(running, what);
    assert!(
        !outcome.status.success(),
        "{what} must fail: {}",
        outcome.output
    );
    outcome
}

#[test]
fn an_invalid_fault_list_is_refused_with_what_is_accepted() {
    let mut command = Command::new(launcher());
    command.args(["run", "--faults", "drop=0.1,dorp=0.1", "--", "true"]);
    let outcome = finish(command);
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.output);
    for text in ["\"dorp=0.1\"", "names: seed, drop, dup", "NAME@N"] {
        assert!(outcome.output.contains(text), "{}", outcome.output);
    }
    let mut command = Command::new(launcher());
    command.args(["run", "--help"]);
    let help = finish(command).expect_success("help");
    assert!(help.contains("device-fatal") && help.contains("delay=0.05:100us"));
}

#[test]
fn reliable_programs_survive_lost_duplicated_delayed_and_reordered_packets() {
    let spec = |seed: u32| {
        format!("seed={seed},drop=0.002,dup=0.02,delay=0.02:100us,reorder=0.02,rnr=0.01")
    };
    let programs: [(&str, &str, &[&str]); 5] = [
        ("ibv_rc_pingpong", UTILITIES, &["-n", "300", "-c"]),
        ("ib_send_bw", PERFTEST, &["-n", "300", "-s", "8192"]),
        ("ib_write_bw", PERFTEST, &["-n", "300", "-s", "8192"]),
        ("ib_read_bw", PERFTEST, &["-n", "300", "-s", "8192"]),
        ("ib_atomic_bw", PERFTEST, &["-n", "300"]),
    ];
    for seed in 0..rounds(1, 30) {
        for (name, package, arguments) in programs {
            let Some(program) = find(name, package) else {
                return;
            };
            let (one, other) = (spec(seed), spec(seed + 1000));
            Pair::start(&program, arguments, [&one, &other])
                .expect_success(&format!("{name}, --faults {one} and {other}"));
        }
    }
}

#[test]
fn a_flapping_port_costs_only_time() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    let faults = ["port-flap@100:20ms,gid-change@50", "port-flap@300:5ms"];
    Pair::start(&program, &["-n", "300"], faults).expect_success("a flapping port");
}

#[test]
fn a_failed_qp_ends_both_programs() {
    let Some(program) = find("ib_write_bw", PERFTEST) else {
        return;
    };
    let arguments = ["-n", "50000", "-s", "4096"];
    let pair = Pair::start(&program, &arguments, ["kill-qp@100", ""]);
    // The client's writes are no longer acknowledged.
    let outcome = expect_failure_soon(pair.client, "the client");
    assert!(
        outcome.output.contains("status 12"),
        "retries exceeded: {}",
        outcome.output
    );
    expect_failure_soon(pair.server, "the server");
}

#[test]
fn corrupt_completions_end_a_program_with_an_error() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    for (faults, events) in [
        ("corrupt-cqe@100", ["-n", "5000"].as_slice()),
        ("corrupt-cqe@100", &["-n", "5000", "-e"]),
    ] {
        let pair = Pair::start(&program, events, ["", faults]);
        expect_failure_soon(pair.client, faults);
        kill_command(&pair.server);
        pair.server.finish();
    }
}

#[test]
fn a_failed_device_wakes_waiting_threads_and_refuses_further_commands() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    let pair = Pair::start(&program, &["-n", "5000", "-e"], ["", "device-fatal@200"]);
    let outcome = expect_failure_soon(pair.client, "the program on the failed device");
    assert!(
        outcome.output.contains("Failed to get cq_event"),
        "{}",
        outcome.output
    );
    kill_command(&pair.server);
    pair.server.finish();
}

#[test]
fn the_peer_of_a_killed_process_fails_and_the_fabric_keeps_working() {
    let Some(program) = find("ib_write_bw", PERFTEST) else {
        return;
    };
    for round in 0..rounds(4, 200) {
        let arguments = ["-n", "1000000", "-s", "4096"];
        let pair = Pair::start(&program, &arguments, ["", ""]);
        // At any moment; but the server does not notice a client that never
        // connected.
        if round % 2 != 0 {
            await_connection(pair.port);
        }
        std::thread::sleep(Duration::from_millis(u64::from(round * 97 % 400)));
        if round % 2 == 0 {
            kill_command(&pair.server);
            pair.server.finish();
            expect_failure_soon(pair.client, "the client of a killed server");
        } else {
            kill_command(&pair.client);
            pair.client.finish();
            // The server has no request outstanding: it ends with the TCP
            // connection, which may look like a normal end.
            expect_end_soon(pair.server, "the server of a killed client");
        }
        // The next programs find a working fabric.
        let again = |to: Option<&str>| {
            let mut next = command(&pair.fabric, "", &program, pair.port, &["-n", "100"]);
            next.args(to);
            start(next)
        };
        let server = again(None);
        await_listener(pair.port);
        again(Some("localhost")).finish().expect_success("the next");
        server.finish().expect_success("the next");
    }
}

#[test]
fn sixteen_processes_share_a_fabric() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    let fabric = fabric();
    for _ in 0..rounds(1, 20) {
        let arguments = ["-n", "200", "-e"];
        let pairs: Vec<_> = (0..8)
            .map(|_| {
                let port = free_port();
                let server = start(command(&fabric, "", &program, port, &arguments));
                await_listener(port);
                let mut client = command(&fabric, "", &program, port, &arguments);
                client.arg("localhost");
                [start(client), server]
            })
            .collect();
        for program in pairs.into_iter().flatten() {
            program.finish().expect_success("one of sixteen");
        }
    }
}
