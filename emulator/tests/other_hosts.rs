//! The UDP wire: Debian's programs between two addresses, which are two hosts to the devices.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{
    Running, await_listener, eventually, find, finish, free_port, launcher, run, skipped, start,
};

const VERBS: &str = "ibverbs-utils";
const CM: &str = "rdmacm-utils";
const PERFTEST: &str = "perftest";
/// The index of the address as RoCE v2 in the GID table.
const V2: &str = "3";

/// Two addresses of the loopback network, which no other test has.
struct Hosts {
    server: String,
    client: String,
    port: String,
}

impl Hosts {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let [.., high, low] = std::process::id().to_be_bytes();
        let number = NEXT.fetch_add(1, Ordering::Relaxed) * 2;
        let address = |number: u32| format!("127.{}.{high}.{low}", 64 + number);
        Self {
            server: address(number),
            client: address(number + 1),
            port: free_port().to_string(),
        }
    }

    fn command(&self, address: &str, program: &PathBuf, arguments: &[&str]) -> Command {
        let mut command = run(&["--explain", &format!("--wire=udp={address}")]);
        command
            .arg(program)
            .args(["-p", &self.port])
            .args(arguments)
            .env("DAT_LISTEN", "all");
        command
    }

    fn serve(&self, program: &PathBuf, arguments: &[&str]) -> Running {
        start(self.command(&self.server, program, arguments))
    }

    /// Runs a program on both hosts, which connect by TCP. Returns the client's output.
    fn exchange(&self, program: &PathBuf, arguments: &[&str]) -> String {
        let server = self.serve(program, arguments);
        await_listener(self.port.parse().unwrap());
        let all = [arguments, &[&self.server]].concat();
        let client = finish(self.command(&self.client, program, &all));
        let server = server.finish().expect_success("server");
        client.expect_success(&format!("client of {server}"))
    }

    /// Starts a launcher that receives for the server's host.
    fn receive(&self) -> Running {
        let mut command = run(&[&format!("--wire=udp={}", self.server)]);
        command.args(["sleep", "100"]);
        let launcher = start(command);
        eventually("it receives", || is_bound(&self.server));
        launcher
    }

    /// Waits until a process of the server's host listens by rdma_cm.
    fn await_service(&self) {
        let fabric = format!("udp-{}", self.server);
        eventually("a process listens", || {
            let parents = ["/dev/shm", "/tmp"].map(std::fs::read_dir);
            let parents = parents.into_iter().flatten().flatten().flatten();
            let files = parents.flat_map(|it| std::fs::read_dir(it.path().join(&fabric)));
            let mut files = files.flatten().flatten();
            files.any(|file| file.path().extension().is_some_and(|it| it == "services"))
        });
    }
}

#[test]
fn pingpongs_of_all_services_run_between_two_hosts() {
    for name in [
        "ibv_rc_pingpong",
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong",
    ] {
        let Some(program) = find(name, VERBS) else {
            return;
        };
        let output = Hosts::new().exchange(&program, &["-g", V2, "-n", "100"]);
        assert!(output.contains("100 iters"), "{name}: {output}");
    }
}

#[test]
fn every_operation_arrives_also_if_packets_are_lost_and_reordered() {
    for (name, arguments) in [
        ("ib_send_bw", &["-s", "20000", "-n", "50"][..]),
        ("ib_write_bw", &["-s", "20000", "-n", "50"]),
        ("ib_read_bw", &["-s", "20000", "-n", "50"]),
        ("ib_atomic_bw", &["-n", "50"]),
    ] {
        let Some(program) = find(name, PERFTEST) else {
            return;
        };
        let hosts = Hosts::new();
        let common = ["-F", "-x", V2, "-u", "10"];
        let arguments = [&common[..], arguments].concat();
        let faults = "seed=3,drop=0.02,reorder=0.05,dup=0.02";
        let faulty = |address: &str, arguments: &[&str]| {
            let mut command = hosts.command(address, &program, arguments);
            command.env("MLX5EMU_FAULTS", faults);
            command
        };
        let server = start(faulty(&hosts.server, &arguments));
        await_listener(hosts.port.parse().unwrap());
        let all = [&arguments[..], &[&hosts.server]].concat();
        finish(faulty(&hosts.client, &all)).expect_success(name);
        server.finish().expect_success(name);
    }
}

#[test]
fn rdma_cm_connects_two_hosts() {
    let (Some(rping), Some(ucmatose)) = (find("rping", CM), find("ucmatose", CM)) else {
        return;
    };
    let hosts = Hosts::new();
    let server = hosts.serve(&rping, &["-s", "-a", &hosts.server, "-C", "5", "-V"]);
    hosts.await_service();
    let client = ["-c", "-a", &hosts.server, "-C", "5", "-V", "-v"];
    let output = finish(hosts.command(&hosts.client, &rping, &client)).output;
    assert_eq!(output.matches("ping data: ").count(), 5, "{output}");
    drop(server.finish());
    let hosts = Hosts::new();
    let server = hosts.serve(&ucmatose, &["-c", "10"]);
    hosts.await_service();
    let client = hosts.command(&hosts.client, &ucmatose, &["-c", "10", "-s", &hosts.server]);
    finish(client).expect_success("ucmatose");
    server.finish().expect_success("ucmatose, server");
}

#[test]
fn programs_without_privileges_meet_between_network_namespaces() {
    let Some(rping) = find("rping", CM) else {
        return;
    };
    let spaces = ["--user", "--map-root-user", "--net"];
    let mut trial = Command::new("unshare");
    trial
        .args(spaces)
        .args(["ip", "link", "add", "try0", "type", "veth"]);
    let trial = finish(trial);
    if !trial.status.success() {
        return skipped(&format!("no network namespaces here: {}", trial.output));
    }
    let mut command = Command::new("unshare");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/other_hosts/two_namespaces.sh"
    );
    command.args(spaces).args(["sh", script]).arg(launcher());
    command.args(["run", "--wire", "udp", "--"]).arg(rping);
    let output = finish(command).expect_success("the script");
    assert_eq!(output.matches("ping data: ").count(), 6, "{output}");
}

#[test]
fn a_host_without_the_service_rejects_a_request() {
    let Some(rping) = find("rping", CM) else {
        return;
    };
    let hosts = Hosts::new();
    // A launcher receives as long as its program runs.
    let receives = hosts.receive();
    let client = ["-c", "-a", &hosts.server, "-C", "1"];
    let outcome = finish(hosts.command(&hosts.client, &rping, &client));
    let rejected = outcome.output.contains("RDMA_CM_EVENT_REJECTED, error 8");
    kill(receives);
    assert!(rejected && !outcome.status.success(), "{}", outcome.output);
}

/// Kills a launcher.
fn kill(launcher: Running) {
    // SAFETY: our child, which was not waited for.
    unsafe { libc::kill(launcher.pid(), libc::SIGKILL) };
    drop(launcher.finish());
}

/// Returns whether a process receives RoCE v2 at an address.
fn is_bound(address: &str) -> bool {
    UdpSocket::bind((address, 4791)).is_err()
}

#[test]
fn another_launcher_receives_when_the_first_one_is_killed() {
    let Some(program) = find("ibv_rc_pingpong", VERBS) else {
        return;
    };
    let hosts = Hosts::new();
    let first = hosts.receive();
    let arguments = ["-g", V2, "-n", "50"];
    let server = hosts.serve(&program, &arguments);
    await_listener(hosts.port.parse().unwrap());
    kill(first);
    let all = [&arguments[..], &[&hosts.server]].concat();
    finish(hosts.command(&hosts.client, &program, &all)).expect_success("client");
    server.finish().expect_success("server");
}

#[test]
fn roce_v1_is_refused_with_the_index_to_use() {
    let Some(program) = find("ibv_rc_pingpong", VERBS) else {
        return;
    };
    let hosts = Hosts::new();
    let server = hosts.serve(&program, &["-g", "2"]);
    await_listener(hosts.port.parse().unwrap());
    let all = ["-g", "2", &hosts.server];
    let client = finish(hosts.command(&hosts.client, &program, &all));
    let outputs = client.output + &server.finish().output;
    let reason = "the UDP wire has RoCE v2 only: use sgid_index + 1";
    assert!(outputs.contains(reason), "{outputs}");
}

#[test]
fn packets_of_strangers_are_dropped_and_counted() {
    let (Some(program), Some(cat)) = (find("ibv_rc_pingpong", VERBS), find("cat", "coreutils"))
    else {
        return;
    };
    let hosts = Hosts::new();
    let server = hosts.serve(&program, &["-g", V2, "-n", "50"]);
    await_listener(hosts.port.parse().unwrap());
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = (&*hosts.server, 4791);
    // A SEND to each queue pair of the first processes, with a wrong CRC; and shorter ones.
    for slot in 1..4_u8 {
        for len in [0, 1, 7, 12, 16, 60, 4000] {
            let mut bytes = vec![0x55; len];
            for (at, byte) in [4, 0, 0xff, 0xff, 0, slot, 0, 1].into_iter().enumerate() {
                if let Some(to) = bytes.get_mut(at) {
                    *to = byte;
                }
            }
            stranger.send_to(&bytes, to).unwrap();
        }
    }
    let mut command = run(&[&format!("--wire=udp={}", hosts.server)]);
    command
        .arg(cat)
        .arg("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/rx_icrc_encapsulated");
    eventually("the packets are counted", || {
        let mut again = Command::new(command.get_program());
        again.args(command.get_args());
        finish(again)
            .expect_success("cat")
            .trim()
            .parse::<u32>()
            .unwrap()
            > 0
    });
    let all = ["-g", V2, "-n", "50", &hosts.server];
    finish(hosts.command(&hosts.client, &program, &all)).expect_success("client");
    server.finish().expect_success("server");
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    for (options, reason) in [
        (
            &["--wire", "udp=198.51.100.7"][..],
            "no network interface that is up has 198.51.100.7",
        ),
        (&["--wire", "udp=nowhere"], "'nowhere' is no IP address"),
        (&["--wire", "tcp"], "expected local, udp or udp=ADDRESS"),
        (&["--wire", "udp", "--link", "ib"], "cannot be used with"),
    ] {
        let mut command = run(options);
        command.arg("true");
        let outcome = finish(command);
        assert!(!outcome.status.success(), "{options:?}");
        assert!(
            outcome.output.contains(reason),
            "{options:?}: {}",
            outcome.output
        );
    }
}
