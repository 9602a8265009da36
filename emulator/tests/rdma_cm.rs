//! Debian's unmodified rdma_cm programs, two processes each, on the emulated
//! devices.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::capture::{capture_file, decoded};
use crate::common::{
    Outcome, Running, compiled, eventually, fabric, find, finish, free_port, run, skipped, start,
};

const UTILITIES: &str = "rdmacm-utils";

/// Two processes on a fabric of their own.
struct Pair {
    fabric: String,
    options: Vec<&'static str>,
    program: PathBuf,
    port: String,
}

impl Pair {
    /// Returns `None` if the program is not installed.
    fn of(program: &str, options: &[&'static str]) -> Option<Self> {
        Some(Self {
            fabric: fabric(),
            options: options.to_vec(),
            program: find(program, UTILITIES)?,
            port: free_port().to_string(),
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut options = vec!["--fabric", &self.fabric];
        options.extend(&self.options);
        let mut command = run(&options);
        command
            .arg(&self.program)
            .args(["-p", &self.port])
            .args(arguments);
        command
    }

    /// Starts the server, and waits until it listens.
    fn serve(&self, arguments: &[&str]) -> Running {
        let server = start(self.command(arguments));
        eventually("a process listens", || self.listeners() > 0);
        server
    }

    /// Returns the number of processes that listen to a service.
    fn listeners(&self) -> usize {
        let parents = ["/dev/shm", "/tmp"].map(std::fs::read_dir);
        let parents = parents.into_iter().flatten().flatten().flatten();
        let fabrics = parents
            .map(|parent| parent.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("mlx5emu-")
            })
            .map(|parent| parent.join(&self.fabric));
        let files = fabrics.flat_map(std::fs::read_dir).flatten().flatten();
        files
            .filter(|file| file.path().extension().is_some_and(|it| it == "services"))
            .count()
    }

    /// Runs both sides to their end, which must be successful. Returns their
    /// outputs.
    fn finish(&self, server: &[&str], client: &[&str]) -> [String; 2] {
        let server = self.serve(server);
        let client = finish(self.command(client));
        let server = server.finish();
        assert!(
            has_served(&client) && has_served(&server),
            "client {}:\n{}\nserver {}:\n{}",
            client.status,
            client.output,
            server.status,
            server.output
        );
        [server.output, client.output]
    }
}

/// Returns whether a program was successful, or is an rping that was until it ended:
/// its main thread closes the event channel, which its event thread may be about to
/// read again. With any kernel, that thread then ends the process with status 255.
fn has_served(outcome: &Outcome) -> bool {
    let said = |text| outcome.output.contains(text);
    outcome.status.success()
        || said("DISCONNECT EVENT") && said("rdma_get_cm_event: Bad file descriptor")
}

/// Returns an address of this host that is not a loopback address.
fn host_address() -> Option<String> {
    let route = || {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_loopback() && !ip.is_unspecified()).then(|| ip.to_string())
    };
    let found = route();
    if found.is_none() {
        skipped("this host has loopback addresses only");
    }
    found
}

/// The kernel interfaces and links, of which each test takes one or all.
const PLACES: [&[&str]; 4] = [
    &["--link", "ib"],
    &["--link", "roce"],
    &["--link", "ib", "--face", "write"],
    &["--link", "roce", "--face", "write"],
];

#[test]
fn rping_runs_on_every_link_and_kernel_interface() {
    for place in PLACES {
        let Some(pair) = Pair::of("rping", place) else {
            return;
        };
        let client = ["-c", "-a", "127.0.0.1", "-C", "10", "-V", "-v"];
        let [_, output] = pair.finish(&["-s", "-a", "0.0.0.0", "-C", "10", "-V"], &client);
        assert_eq!(
            output.matches("ping data: ").count(),
            10,
            "{place:?}\n{output}"
        );
    }
}

#[test]
fn rping_runs_on_the_hosts_own_addresses() {
    let mut addresses = vec!["::1".to_owned()];
    addresses.extend(host_address());
    for address in addresses {
        let Some(pair) = Pair::of("rping", PLACES[1]) else {
            return;
        };
        let client = ["-c", "-a", &address, "-C", "5", "-v"];
        let [_, output] = pair.finish(&["-s", "-a", &address, "-C", "5"], &client);
        assert_eq!(
            output.matches("ping data: ").count(),
            5,
            "{address}\n{output}"
        );
    }
}

#[test]
fn ucmatose_connects_many_and_migrates_ids() {
    for (place, options) in [(0, &["-c", "20"][..]), (1, &["-c", "5", "-m"])] {
        let Some(pair) = Pair::of("ucmatose", PLACES[place]) else {
            return;
        };
        let client = [options, &["-s", "127.0.0.1"]].concat();
        let outputs = pair.finish(options, &client);
        for output in outputs {
            assert!(output.contains("test complete"), "{options:?}\n{output}");
            assert!(output.contains("return status 0"), "{options:?}\n{output}");
        }
    }
}

#[test]
fn udaddy_exchanges_datagrams() {
    for place in [PLACES[0], PLACES[1]] {
        let Some(pair) = Pair::of("udaddy", place) else {
            return;
        };
        // The option -p of udaddy is the port space.
        let pair = Pair {
            port: "0x111".to_owned(),
            ..pair
        };
        let outputs = pair.finish(&["-c", "3"], &["-c", "3", "-s", "127.0.0.1"]);
        for output in outputs {
            assert!(output.contains("return status 0"), "{place:?}\n{output}");
        }
    }
}

#[test]
fn rdma_client_and_server_use_synchronous_ids() {
    let Some(pair) = Pair::of("rdma_server", PLACES[0]) else {
        return;
    };
    let server = pair.serve(&[]);
    let client = Pair {
        program: find("rdma_client", UTILITIES).expect("beside rdma_server"),
        fabric: pair.fabric.clone(),
        port: pair.port.clone(),
        options: pair.options.clone(),
    };
    finish(client.command(&["-s", "127.0.0.1"])).expect_success("rdma_client");
    server.finish().expect_success("rdma_server");
}

#[test]
fn rstream_runs_sockets_over_rdma_cm() {
    let Some(pair) = Pair::of("rstream", PLACES[1]) else {
        return;
    };
    let options = ["-S", "4096", "-C", "20"];
    let client = [&options[..], &["-s", "127.0.0.1"]].concat();
    pair.finish(&options, &client);
}

#[test]
fn a_port_on_which_no_process_listens_refuses_the_connection() {
    let Some(pair) = Pair::of("rping", PLACES[0]) else {
        return;
    };
    let outcome = finish(pair.command(&["-c", "-a", "127.0.0.1", "-C", "1"]));
    assert!(!outcome.status.success(), "{}", outcome.output);
    let event = "RDMA_CM_EVENT_REJECTED, error 8";
    assert!(outcome.output.contains(event), "{}", outcome.output);
}

#[test]
fn a_second_server_on_a_port_is_refused() {
    let Some(pair) = Pair::of("rping", PLACES[0]) else {
        return;
    };
    let server = pair.serve(&["-s", "-a", "0.0.0.0", "-C", "1"]);
    let second = finish(pair.command(&["-s", "-a", "0.0.0.0", "-C", "1"]));
    assert!(!second.status.success(), "{}", second.output);
    let error = "rdma_bind_addr: Cannot assign requested address";
    assert!(second.output.contains(error), "{}", second.output);
    let client = finish(pair.command(&["-c", "-a", "127.0.0.1", "-C", "1"]));
    assert!(has_served(&client), "{}", client.output);
    let server = server.finish();
    assert!(has_served(&server), "{}", server.output);
}

/// Checks that tshark reads each kind of message in a capture.
fn check_messages(file: &Path) {
    let Some(packets) = decoded(file) else {
        return;
    };
    for message in [
        "ConnectRequest",
        "ConnectReply",
        "ReadyToUse",
        "ConnectReject",
        "DisconnectRequest",
        "DisconnectReply",
        "ServiceIDResReq",
        "ServiceIDResReqResp",
    ] {
        let name = format!("CM: {message}");
        let is_there = packets.iter().any(|packet| packet.starts_with(&name));
        assert!(is_there, "no {name} in {packets:#?}");
    }
}

#[test]
fn calls_and_events_are_those_of_a_kernel() {
    let Some(address) = host_address() else {
        return;
    };
    let program = compiled("rdma_cm/semantics.c");
    let recorded = include_str!("rdma_cm/semantics.expected");
    let compare = |place: &[&str]| {
        // mlx5 keeps the logarithms of the depths.
        let zero = "max_rd_atomic 0, max_dest_rd_atomic 0";
        let recorded = recorded.replace(zero, "max_rd_atomic 1, max_dest_rd_atomic 1");
        // The recorded device is RoCE, which always has a GRH.
        let expected = match place[1] {
            "ib" => recorded.replace("is_global 1", "is_global 0"),
            _ => recorded.to_owned(),
        };
        let file = capture_file();
        let pcap = ["--pcap", file.to_str().expect("ASCII")];
        let mut command = run(&[&["--fabric", &fabric()], place, &pcap].concat());
        command.arg(&program).arg(&address);
        let output = finish(command).expect_success("semantics");
        check_messages(&file);
        let differs = output.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "{place:?}: emulated NIC, kernel");
        assert_eq!(
            output.lines().count(),
            expected.lines().count(),
            "{place:?}"
        );
    };
    // At the same time, because a client repeats a request only after four seconds.
    let compare = &compare;
    std::thread::scope(|scope| {
        for place in PLACES {
            scope.spawn(move || compare(place));
        }
    });
}

#[test]
fn thousands_of_ids_have_ports_of_their_own_and_are_found() {
    let Some(rping) = find("rping", UTILITIES) else {
        return;
    };
    let fabric = fabric();
    let options = ["--fabric", &fabric];
    let mut command = run(&options);
    command.arg(compiled("rdma_cm/ids.c"));
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut port).unwrap();
    let mut command = run(&options);
    command.arg(rping);
    command.args(["-c", "-a", "127.0.0.1", "-p", port.trim_end()]);
    let outcome = finish(command);
    // By the program (IB_CM_REJ_CONSUMER_DEFINED), not for want of a listener.
    let event = "RDMA_CM_EVENT_REJECTED, error 28";
    assert!(outcome.output.contains(event), "{}", outcome.output);
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_killed_client_disconnects_from_its_server() {
    let Some(pair) = Pair::of("rping", PLACES[1]) else {
        return;
    };
    let server = pair.serve(&["-s", "-a", "0.0.0.0", "-d"]);
    let file = capture_file();
    let mut client = pair.command(&["-c", "-a", "127.0.0.1", "-d"]);
    client.env("MLX5EMU_PCAP", &file);
    let client = start(client);
    // The client has sent its first two messages, and so it is connected.
    eventually("the client is connected", || {
        std::fs::metadata(&file).is_ok_and(|data| data.len() > 24 + 2 * 256)
    });
    // SAFETY: the launcher was not waited for, so its process id is not reused.
    unsafe { libc::kill(client.pid(), libc::SIGKILL) };
    let _ = client.finish();
    let output = server.finish().output;
    let _ = std::fs::remove_file(&file);
    assert!(output.contains("RDMA_CM_EVENT_DISCONNECTED"), "{output}");
}
