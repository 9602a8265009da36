//! Unmodified Debian programs on the emulated device.

mod common;

use std::path::Path;
use std::process::Command;

use common::{await_listener, fabric, find, finish, free_port, run, skipped, start};

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
fn programs_meet_the_limits_of_a_lesser_device() {
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
fn as_many_devices_as_asked_for_are_found() {
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
fn a_configuration_that_cannot_be_is_told_and_leaves_no_device() {
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

/// Runs a program in two processes: one serves, the other connects to it.
fn both_sides(program: &str, package: &str, arguments: &[&str], through: &[&str]) {
    pair("ib", program, package, arguments, through);
}

/// As `pair`, by a kernel that takes commands by `write` only.
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

fn pair_with(
    options: &[&str],
    link: &str,
    program: &str,
    package: &str,
    arguments: &[&str],
    through: &[&str],
) {
    let Some(program) = find(program, package) else {
        return;
    };
    let fabric = fabric();
    let port = free_port();
    let side = |peer: &[&str]| {
        let mut all = vec!["--fabric", &fabric, "--link", link];
        all.extend(options);
        let mut command = run(&all);
        command
            .args(through)
            .arg(&program)
            .args(["-p", &port.to_string()])
            .args(arguments);
        command.args(peer);
        start(command)
    };
    let server = side(&[]);
    await_listener(port);
    let client = side(&["127.0.0.1"]).finish();
    let server = server.finish();
    client.expect_success("client");
    server.expect_success("server");
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
fn every_way_to_learn_of_doorbells_serves_a_sleeping_pair() {
    if find("env", "coreutils").is_none() {
        return;
    }
    for wake in ["signal", "uffd", "nap"] {
        let through = ["env", &format!("MLX5EMU_WAKE={wake}")];
        both_sides("ibv_rc_pingpong", UTILITIES, &["-e", "-n", "200"], &through);
    }
}

/// `env` blocks the signal with our library preloaded, which keeps it out.
#[test]
fn a_program_that_blocks_sigbus_can_have_its_stores_trapped() {
    if find("env", "coreutils").is_none() {
        return;
    }
    let through = ["env", "--block-signal=BUS", "MLX5EMU_WAKE=signal"];
    both_sides("ibv_rc_pingpong", UTILITIES, &["-n", "50"], &through);
}

/// A mask from before our library was there is noticed.
#[test]
fn a_program_born_with_sigbus_blocked_is_served_in_another_way() {
    let (Some(_), Some(devinfo)) = (find("env", "coreutils"), find("ibv_devinfo", UTILITIES))
    else {
        return;
    };
    const BORN_BLOCKED: &str = r#"
        library=$LD_PRELOAD; wake=$1; shift
        exec env -u LD_PRELOAD \
            env --block-signal=BUS LD_PRELOAD="$library" MLX5EMU_WAKE=$wake "$@""#;
    let mut command = run::<&str>(&[]);
    command
        .args(["sh", "-c", BORN_BLOCKED, "sh", "signal"])
        .arg(devinfo);
    let output = finish(command).output;
    assert!(output.contains("blocks SIGBUS"), "{output}");

    let through = ["sh", "-c", BORN_BLOCKED, "sh", "auto"];
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
    assert_eq!(sent, 10, "five of each side:\n{text}");
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
fn unreliable_pingpongs_check_their_data() {
    for program in ["ibv_uc_pingpong", "ibv_ud_pingpong"] {
        both_sides(program, UTILITIES, &["-c", "-n", "50"], &[]);
        both_sides(program, UTILITIES, &["-e", "-n", "50"], &[]);
    }
}

#[test]
fn every_transport_runs_on_roce() {
    for program in ["rc", "uc", "ud", "srq"] {
        let program = format!("ibv_{program}_pingpong");
        on_link("roce", &program, UTILITIES, &["-g", "0", "-c", "-n", "50"]);
    }
    // By IPv4 addresses, which perftest chooses by itself.
    for program in ["ibv_rc_pingpong", "ibv_ud_pingpong"] {
        on_link("roce", program, UTILITIES, &["-g", "1", "-c", "-n", "50"]);
    }
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
fn commands_by_write_serve_every_transport() {
    let output = {
        let Some(program) = find("ibv_devinfo", UTILITIES) else {
            return;
        };
        let mut command = run(&["--face", "write", "--link", "roce"]);
        command.arg(program).arg("-v");
        finish(command).expect_success("ibv_devinfo")
    };
    assert!(output.contains("RoCE v2"), "{output}");
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

/// A QP works on the port it was moved to, and ports of all devices are on
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

/// Registers that the kernel hands out: many QPs on few of them, and pages
/// that are mapped in another way where BlueFlame is shut up.
#[test]
fn registers_of_the_kernel_serve_many_queue_pairs() {
    let arguments = ["-F", "-q", "32", "-n", "50"];
    by_write("ib", "ib_send_bw", PERFTEST, &arguments, &[]);
    for variable in ["MLX5_SHUT_UP_BF=1", "MLX5_TOTAL_UUARS=64"] {
        let through = ["env", variable];
        by_write("ib", "ib_write_bw", PERFTEST, &arguments, &through);
    }
}

#[test]
fn a_polling_pair_stays_clean_under_memcheck() {
    if find("valgrind", "valgrind").is_none() {
        return;
    }
    let memcheck = ["valgrind", "-q", "--error-exitcode=99"];
    both_sides("ibv_rc_pingpong", UTILITIES, &["-e", "-n", "20"], &memcheck);
}

/// A copy of the launcher and its library where every user can read it.
fn install_for_everybody(to: &Path) {
    let built = common::launcher();
    let newest = built.with_file_name("deps/libmlx5emu.so");
    let library = if newest.is_file() {
        newest
    } else {
        built.with_file_name("libmlx5emu.so")
    };
    std::fs::create_dir_all(to).unwrap();
    std::fs::copy(built, to.join("mlx5-emu")).unwrap();
    std::fs::copy(library, to.join("libmlx5emu.so")).unwrap();
    let everybody: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(to, everybody).unwrap();
}

#[test]
fn no_rights_are_needed() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    // SAFETY: geteuid has no demands.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("only root can become nobody; this user's other tests show the same");
    }
    if find("setpriv", "util-linux").is_none() {
        return;
    }
    let place = std::env::temp_dir().join(fabric());
    install_for_everybody(&place);
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
