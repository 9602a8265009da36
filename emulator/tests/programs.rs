//! Unmodified Debian programs on the emulated device.

use std::path::Path;
use std::process::Command;

use crate::common::{
    await_listener, fabric, find, finish, free_port, pair_with, run, skipped, start,
};

const UTILITIES: &str = "ibverbs-utils";
const PERFTEST: &str = "perftest";

#[test]
fn ibv_devinfo_shows_the_device() {
    let Some(program) = find("ibv_devinfo", UTILITIES) else {
        return;
    };
    let mut command = run::<&str>(&[]);
    command.arg(program).arg("-v");
    let output = finish(command).expect_success("ibv_devinfo");
    for line in [
        "hca_id:\tmlx5_0",
        "PORT_ACTIVE (4)",
        "link_layer:\t\tInfiniBand",
        "max_qp_wr:",
    ] {
        assert!(output.contains(line), "no {line:?} in:\n{output}");
    }
    assert!(output.contains("GID[  0]:\t\tfe80:"), "{output}");
}

#[test]
fn programs_see_the_limits_of_a_device_with_lower_limits() {
    let Some(program) = find("ibv_devinfo", UTILITIES) else {
        return;
    };
    let limits = ["--limits", "max_sge=3,max_srq=0,max_qp_rd_atom=1"];
    let mut command = run(&limits);
    command.arg(program).arg("-v");
    let output = finish(command).expect_success("ibv_devinfo");
    for line in [
        "max_sge:\t\t\t3",
        "max_srq:\t\t\t0",
        "max_qp_rd_atom:\t\t\t1",
    ] {
        assert!(output.contains(line), "no {line:?} in:\n{output}");
    }
    let Some(program) = find("ibv_srq_pingpong", UTILITIES) else {
        return;
    };
    for face in ["ioctl", "write"] {
        let mut command = run(&[&limits[..], &["--face", face]].concat());
        command.arg(&program);
        let outcome = finish(command);
        assert!(!outcome.status.success(), "{}", outcome.output);
        let reason = "Couldn't create SRQ";
        assert!(outcome.output.contains(reason), "{}", outcome.output);
    }
}

#[test]
fn the_configured_number_of_devices_is_found() {
    let Some(program) = find("ibv_devices", UTILITIES) else {
        return;
    };
    let mut command = run(&["--devices", "3"]);
    command.arg(program);
    let output = finish(command).expect_success("ibv_devices");
    assert!(
        output.contains("mlx5_2") && !output.contains("mlx5_3"),
        "{output}"
    );
}

#[test]
fn an_invalid_configuration_is_reported_and_no_device_exists() {
    let Some(program) = find("ibv_devinfo", UTILITIES) else {
        return;
    };
    let mut command = run::<&str>(&[]);
    command.args(["env", "MLX5EMU_DEVICES=none"]).arg(program);
    let outcome = finish(command);
    assert!(!outcome.status.success(), "{}", outcome.output);
    assert!(
        outcome.output.contains("MLX5EMU_DEVICES=\"none\""),
        "{}",
        outcome.output
    );
}

/// Runs a program in two processes: a server and a client.
fn both_sides(program: &str, package: &str, arguments: &[&str], through: &[&str]) {
    pair("ib", program, package, arguments, through);
}

/// Runs `pair` on a kernel that accepts commands by `write()` only.
fn by_write(link: &str, program: &str, package: &str, arguments: &[&str], through: &[&str]) {
    pair_with(
        &["--face", "write"],
        link,
        program,
        package,
        arguments,
        through,
    );
}

fn on_link(link: &str, program: &str, package: &str, arguments: &[&str]) {
    pair(link, program, package, arguments, &[]);
}

fn pair(link: &str, program: &str, package: &str, arguments: &[&str], through: &[&str]) {
    pair_with(&[], link, program, package, arguments, through);
}

#[test]
fn ibv_rc_pingpong_polls() {
    both_sides("ibv_rc_pingpong", UTILITIES, &["-n", "50"], &[]);
}

#[test]
fn ibv_rc_pingpong_sleeps_on_events() {
    both_sides("ibv_rc_pingpong", UTILITIES, &["-e", "-n", "200"], &[]);
}

#[test]
fn every_wake_mode_serves_a_sleeping_pair() {
    if find("env", "coreutils").is_none() {
        return;
    }
    for wake in ["signal", "uffd", "nap"] {
        let through = ["env", &format!("MLX5EMU_WAKE={wake}")];
        both_sides("ibv_rc_pingpong", UTILITIES, &["-e", "-n", "200"], &through);
    }
}

/// `env` runs with the library preloaded, which keeps the signal unblocked.
#[test]
fn stores_are_trapped_in_a_program_that_blocks_sigbus() {
    if find("env", "coreutils").is_none() {
        return;
    }
    let through = ["env", "--block-signal=BUS", "MLX5EMU_WAKE=signal"];
    both_sides("ibv_rc_pingpong", UTILITIES, &["-n", "50"], &through);
}

/// A signal mask from before the library was loaded is noticed.
#[test]
fn a_program_started_with_sigbus_blocked_uses_another_wake_mode() {
    let (Some(_), Some(devinfo)) = (find("env", "coreutils"), find("ibv_devinfo", UTILITIES))
    else {
        return;
    };
    const START_BLOCKED: &str = r#"
        library=$LD_PRELOAD; wake=$1; shift
        exec env -u LD_PRELOAD \
            env --block-signal=BUS LD_PRELOAD="$library" MLX5EMU_WAKE=$wake "$@""#;
    let mut command = run::<&str>(&[]);
    command
        .args(["sh", "-c", START_BLOCKED, "sh", "signal"])
        .arg(devinfo);
    let output = finish(command).output;
    assert!(output.contains("blocks SIGBUS"), "{output}");

    let through = ["sh", "-c", START_BLOCKED, "sh", "auto"];
    both_sides("ibv_rc_pingpong", UTILITIES, &["-e", "-n", "50"], &through);
}

#[test]
fn two_processes_share_a_trace_file() {
    let trace = std::env::temp_dir().join(fabric());
    let through = ["env", &format!("MLX5EMU_TRACE={}", trace.display())];
    both_sides("ibv_rc_pingpong", UTILITIES, &["-n", "5"], &through);
    let Ok(text) = std::fs::read_to_string(&trace) else {
        return skipped("there is no ibv_rc_pingpong to trace");
    };
    let _ = std::fs::remove_file(&trace);
    let sent = text.matches("send WQE").count();
    assert_eq!(sent, 10, "five from each side:\n{text}");
}

#[test]
fn ibv_rc_pingpong_checks_its_data() {
    both_sides(
        "ibv_rc_pingpong",
        UTILITIES,
        &["-c", "-e", "-n", "200"],
        &[],
    );
}

#[test]
fn ibv_srq_pingpong_shares_a_receive_queue() {
    both_sides("ibv_srq_pingpong", UTILITIES, &["-e", "-n", "200"], &[]);
}

#[test]
fn ib_send_lat_measures() {
    both_sides("ib_send_lat", PERFTEST, &["-F", "-n", "50"], &[]);
}

#[test]
fn ib_write_lat_measures() {
    both_sides("ib_write_lat", PERFTEST, &["-F", "-n", "50"], &[]);
}

#[test]
fn ib_read_lat_measures() {
    both_sides("ib_read_lat", PERFTEST, &["-F", "-n", "50"], &[]);
}

#[test]
fn ib_atomic_lat_measures() {
    both_sides("ib_atomic_lat", PERFTEST, &["-F", "-n", "50"], &[]);
}

#[test]
fn uc_and_ud_pingpongs_check_their_data() {
    for program in ["ibv_uc_pingpong", "ibv_ud_pingpong"] {
        both_sides(program, UTILITIES, &["-c", "-n", "50"], &[]);
        both_sides(program, UTILITIES, &["-e", "-n", "50"], &[]);
    }
}

#[test]
fn every_transport_runs_on_roce() {
    // Link-local v1, link-local v2, IPv4 v1, IPv4 v2, as on a ConnectX.
    for (program, index) in [("rc", "0"), ("uc", "1"), ("ud", "2"), ("srq", "3")] {
        let program = format!("ibv_{program}_pingpong");
        on_link(
            "roce",
            &program,
            UTILITIES,
            &["-g", index, "-c", "-n", "50"],
        );
    }
    for index in ["0", "1", "2", "3"] {
        let options = ["-F", "-n", "50", "-x", index];
        on_link("roce", "ib_write_lat", PERFTEST, &options);
    }
    // perftest chooses the index itself.
    for transport in ["RC", "UC", "UD"] {
        on_link(
            "roce",
            "ib_send_lat",
            PERFTEST,
            &["-F", "-n", "50", "-c", transport],
        );
    }
}

#[test]
fn commands_by_write_work_with_every_transport() {
    let output = {
        let Some(program) = find("ibv_devinfo", UTILITIES) else {
            return;
        };
        let mut command = run(&["--face", "write", "--link", "roce"]);
        command.arg(program).arg("-v");
        finish(command).expect_success("ibv_devinfo")
    };
    let kinds = output.lines().filter(|line| line.contains("GID["));
    let kinds: Vec<_> = kinds.filter_map(|line| line.split(", ").nth(1)).collect();
    assert_eq!(
        kinds,
        ["RoCE v1", "RoCE v2", "RoCE v1", "RoCE v2"],
        "{output}"
    );
    for program in ["rc", "uc", "ud", "srq"] {
        let program = format!("ibv_{program}_pingpong");
        by_write("ib", &program, UTILITIES, &["-e", "-n", "50"], &[]);
        by_write(
            "roce",
            &program,
            UTILITIES,
            &["-g", "0", "-c", "-n", "50"],
            &[],
        );
    }
}

/// A QP uses the port to which it was modified, and the ports of all devices are on
/// one fabric.
#[test]
fn every_port_of_every_device_reaches_every_other() {
    let (server, client) = (["-d", "mlx5_0", "-i", "1"], ["-d", "mlx5_1", "-i", "2"]);
    for (link, program) in [
        ("ib", "ibv_rc_pingpong"),
        ("ib", "ibv_ud_pingpong"),
        ("roce", "ibv_ud_pingpong"),
    ] {
        let Some(program) = find(program, UTILITIES) else {
            return;
        };
        let (fabric, port) = (fabric(), free_port());
        let side = |device: &[&str], peer: &[&str]| {
            let mut command = run(&[
                "--fabric",
                &fabric,
                "--link",
                link,
                "--devices",
                "2",
                "--ports",
                "2",
            ]);
            command
                .arg(&program)
                .args(["-c", "-n", "50", "-p", &port.to_string()]);
            if link == "roce" {
                command.args(["-g", "0"]);
            }
            command.args(device).args(peer);
            start(command)
        };
        let server = side(&server, &[]);
        await_listener(port);
        let client = side(&client, &["127.0.0.1"])
            .finish()
            .expect_success("client");
        server.finish().expect_success("server");
        assert_eq!(
            client.contains("local address:  LID 0x0042"),
            link == "ib",
            "{client}"
        );
    }
}

/// Registers assigned by the kernel: many QPs on few registers, and the pages that
/// libmlx5 maps if BlueFlame is disabled.
#[test]
fn kernel_assigned_registers_serve_many_qps() {
    let arguments = ["-F", "-q", "32", "-n", "50"];
    by_write("ib", "ib_send_bw", PERFTEST, &arguments, &[]);
    for variable in ["MLX5_SHUT_UP_BF=1", "MLX5_TOTAL_UUARS=64"] {
        let through = ["env", variable];
        by_write("ib", "ib_write_bw", PERFTEST, &arguments, &through);
    }
}

#[test]
fn a_pair_has_no_memcheck_errors() {
    if find("valgrind", "valgrind").is_none() {
        return;
    }
    let memcheck = ["valgrind", "-q", "--error-exitcode=99"];
    both_sides("ibv_rc_pingpong", UTILITIES, &["-e", "-n", "20"], &memcheck);
}

/// Copies the launcher and its library to a directory that every user can read.
fn install_for_all_users(to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::copy(crate::common::launcher(), to.join("mlx5-emu")).unwrap();
    std::fs::copy(crate::common::library(), to.join("libmlx5emu.so")).unwrap();
    let readable: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(to, readable).unwrap();
}

#[test]
fn no_privileges_are_needed() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skipped(
            "only root can change to another user; the other tests run without privileges",
        );
    }
    if find("setpriv", "util-linux").is_none() {
        return;
    }
    let place = std::env::temp_dir().join(fabric());
    install_for_all_users(&place);
    let (fabric, port) = (fabric(), free_port());
    let side = |peer: &str| {
        let script = format!(
            "ulimit -l 64; exec {}/mlx5-emu run --fabric {fabric} -- {} -e -n 50 -p {port} {peer}",
            place.display(),
            program.display()
        );
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
        ]);
        command
            .args(["sh", "-c", &script])
            .env_remove("TMPDIR")
            .env_remove("XDG_RUNTIME_DIR");
        start(command)
    };
    let server = side("");
    await_listener(port);
    let (client, server) = (side("127.0.0.1").finish(), server.finish());
    let _ = std::fs::remove_dir_all(&place);
    client.expect_success("client");
    server.expect_success("server");
}
