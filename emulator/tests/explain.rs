//! What `--trace commands` and `--explain` show.

use crate::common::{await_listener, fabric, find, finish, free_port, run, start};

const UTILITIES: &str = "ibverbs-utils";

/// Returns the output of a program that is run with these options.
fn output_of(options: &[&str], program: &str) -> Option<String> {
    let program = find(program, UTILITIES)?;
    let mut command = run(options);
    command.arg(program);
    Some(finish(command).output)
}

#[test]
fn every_command_is_shown_with_its_interface() {
    for face in ["ioctl", "write"] {
        let options = ["--face", face, "--trace", "commands"];
        let Some(output) = output_of(&options, "ibv_devinfo") else {
            return;
        };
        for (command, words) in [
            ("GET_CONTEXT", ""),
            ("EX_QUERY_DEVICE", "phys_port_cnt: 1"),
            ("QUERY_PORT", "link_layer: 1"),
        ] {
            let begins = format!("{command} by {face}: ");
            let shown = output
                .lines()
                .any(|line| line.starts_with(&begins) && line.contains(words));
            assert!(shown, "no {begins}… {words} in:\n{output}");
        }
        assert!(output.contains("hca_id:\tmlx5_0"), "{output}");
    }
}

#[test]
fn commands_and_requests_are_traced_to_files() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    let directory = std::env::temp_dir().join(fabric());
    std::fs::create_dir(&directory).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let commands = format!("commands={}", path("commands"));
    let mut command = run(&["--trace", &commands, "--trace", &path("wqes")]);
    // It waits for a peer, after it has posted its receives.
    command.args(["timeout", "2"]).arg(program);
    finish(command);
    let read = |name| std::fs::read_to_string(path(name)).unwrap();
    let (commands, wqes) = (read("commands"), read("wqes"));
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(
        commands.contains("CREATE_QP by ioctl: QpRequest {"),
        "{commands}"
    );
    assert!(
        commands.contains("MODIFY_QP by ioctl: ModifyQp {"),
        "{commands}"
    );
    assert!(!commands.contains("WQE") && !wqes.contains("MODIFY_QP"));
}

#[test]
fn a_refused_command_is_explained_if_requested() {
    let limits = ["--limits", "max_srq=0", "--explain"];
    let sentence = "the device has no shared receive queues (max_srq=0 of --limits).";
    for (face, expected) in [
        ("ioctl", "CREATE_SRQ (ioctl) failed with EPROTONOSUPPORT: "),
        ("write", "CREATE_SRQ (write) failed with EOPNOTSUPP: "),
    ] {
        let options = [&limits[..], &["--face", face]].concat();
        let Some(output) = output_of(&options, "ibv_srq_pingpong") else {
            return;
        };
        let expected = format!("mlx5-emu: {expected}{sentence}");
        assert!(output.contains(&expected), "no {expected:?} in:\n{output}");
        let silent = output_of(&limits[..2], "ibv_srq_pingpong").unwrap();
        assert!(!silent.contains("failed with"), "{silent}");
    }
}

#[test]
fn the_probe_for_commands_by_ioctl_is_not_explained() {
    let options = ["--explain", "--trace", "commands"];
    let Some(output) = output_of(&options, "ibv_devinfo") else {
        return;
    };
    let probe = "QUERY_DEVICE by ioctl: ";
    let shown = output
        .lines()
        .any(|line| line.starts_with(probe) && line.contains("= ENOSPC: the request is empty"));
    assert!(shown, "no {probe}… = ENOSPC in:\n{output}");
    assert!(!output.contains("QUERY_DEVICE (ioctl) failed"), "{output}");
}

#[test]
fn commands_of_rdma_cm_are_shown_by_name() {
    let Some(program) = find("rping", "rdmacm-utils") else {
        return;
    };
    let port = free_port().to_string();
    let mut command = run(&["--trace", "commands"]);
    // There is no server.
    command
        .arg(program)
        .args(["-c", "-a", "127.0.0.1", "-p", &port]);
    let output = finish(command).output;
    for line in [
        "open: /dev/infiniband/rdma_cm = ok",
        "open: /dev/infiniband/uverbs0 = ok",
        "NLDEV_GET_CHARDEV by netlink:  = replies: 1",
        "QUERY by rdma_cm: id 0, paths = paths: 1",
        "CREATE_ID by rdma_cm: port space Tcp, queue pair RC = id 0",
        &format!("RESOLVE_ADDR by rdma_cm: id 0, 127.0.0.1:{port}, timeout 2000 ms = ok"),
        "GET_EVENT by rdma_cm:  = id 0, ROUTE_RESOLVED, status 0",
        "GET_EVENT by rdma_cm:  = id 0, REJECTED, status 8",
    ] {
        let shown = output.lines().any(|shown| shown == line);
        assert!(shown, "no {line:?} in:\n{output}");
    }
}

#[test]
fn refusals_of_rdma_cm_are_explained() {
    let Some(program) = find("rping", "rdmacm-utils") else {
        return;
    };
    let sentence = "(rdma_cm) failed with EADDRNOTAVAIL: \
        the local address is that of no network interface of this host.";
    let mut command = run(&["--explain"]);
    command.arg(&program).args(["-s", "-a", "240.0.0.1"]);
    let output = finish(command).output;
    assert!(output.contains(sentence), "no {sentence:?} in:\n{output}");
    let missing = "rdma_cm is not emulated (--no-rdma-cm).";
    let mut command = run(&["--no-rdma-cm", "--explain"]);
    command.arg(&program).args(["-s", "-a", "127.0.0.1"]);
    let output = finish(command).output;
    assert!(output.contains(missing), "no {missing:?} in:\n{output}");
}

#[test]
fn a_trace_that_cannot_be_written_is_refused() {
    let mut command = run(&["--trace", "commands=/no/such/x"]);
    command.arg("true");
    let outcome = finish(command);
    assert_eq!(outcome.status.code(), Some(1));
    let reason = "cannot write --trace /no/such/x: No such file";
    assert!(outcome.output.contains(reason), "{}", outcome.output);
}

#[test]
fn an_event_that_ends_an_object_is_explained_if_requested() {
    let Some(program) = find("ibv_rc_pingpong", UTILITIES) else {
        return;
    };
    let output_with = |explain: &[&str]| {
        let (fabric, port) = (fabric(), free_port());
        let side = |options: &[&str], peer: &[&str]| {
            let options = [&["--fabric", &fabric], options].concat();
            let mut command = run(&options);
            // With events, it ends when the device has failed.
            command.arg(&program).args(["-e", "-p", &port.to_string()]);
            command.args(peer);
            start(command)
        };
        let server = side(&[], &[]);
        await_listener(port);
        let faults = ["--faults", "device-fatal@3"];
        let client = side(&[&faults, explain].concat(), &["127.0.0.1"]).finish();
        // SAFETY: our child, which was not waited for.
        unsafe { libc::kill(server.pid(), libc::SIGTERM) };
        server.finish();
        client.output
    };
    let expected =
        "mlx5-emu: IBV_EVENT_DEVICE_FATAL: device 0: the fault device-fatal of --faults.\n";
    let output = output_with(&["--explain"]);
    assert!(output.contains(expected), "no {expected:?} in:\n{output}");
    let silent = output_with(&[]);
    assert!(!silent.contains("IBV_EVENT"), "{silent}");
}
