//! The UDP wire: Debian's programs between two addresses, which are two hosts to the devices.

mod flood;

use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mlx5emu::fabric::iba::icrc;
use mlx5emu::fabric::iba::network::{Global, Network};

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
    /// What follows the address in --wire.
    speed: &'static str,
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
            speed: "",
        }
    }

    fn command(&self, address: &str, program: &PathBuf, arguments: &[&str]) -> Command {
        let wire = format!("--wire=udp={address}{}", self.speed);
        let mut command = run(&["--explain", &wire]);
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
        let namespace = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        let fabric = format!("udp-{namespace}-{}", self.server);
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
        let common = ["-F", "-x", V2, "-u", "14"];
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
fn a_link_has_the_latency_and_the_bandwidth_that_it_is_given() {
    let Some(program) = find("ibv_rc_pingpong", VERBS) else {
        return;
    };
    // The microseconds of a round trip: 2 * 50 ms; 2 * 64 KiB at 10 Mbit/s.
    for (speed, arguments, least) in [
        (",latency=50ms", &["-n", "4"][..], 100_000.0),
        (",bandwidth=10mbit", &["-n", "4", "-s", "65536"], 104_857.0),
    ] {
        let hosts = Hosts {
            speed,
            ..Hosts::new()
        };
        let output = hosts.exchange(&program, &[&["-g", V2], arguments].concat());
        let (before, _) = output.rsplit_once(" usec/iter").unwrap();
        let time: f64 = before.rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(time >= least, "{speed}: {time} microseconds");
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

/// Runs a part of `places.sh`: a sample, of which `perf-scripts/soak` runs all.
fn places(part: &str, expected: usize) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/other_hosts/places.sh");
    let mut command = Command::new(script);
    command.arg(launcher()).arg(part);
    let output = finish(command).expect_success("places.sh");
    for reason in output.lines().filter(|line| line.starts_with("SKIPPED")) {
        skipped(reason);
    }
    // Without privileges some parts cannot run at all.
    let lines = |result: &str| output.lines().filter(|it| it.starts_with(result)).count();
    let runs = lines("ok");
    assert!(
        runs == expected || runs == 0 && lines("SKIPPED") > 0,
        "{output}"
    );
}

#[test]
fn two_containers_without_privileges_meet() {
    places("containers", 4);
}

#[test]
fn a_container_and_its_host_meet() {
    places("host", 4);
}

#[test]
fn two_addresses_of_an_interface_are_two_hosts() {
    places("interface", 4);
}

#[test]
fn two_users_meet_by_an_address_each_and_cannot_share_one() {
    places("users", 6);
}

#[test]
fn the_same_address_in_two_network_namespaces_is_two_fabrics() {
    places("address", 1);
}

#[test]
fn requests_are_executed_once_on_a_link_with_faults_that_goes_down() {
    places("weather", 3);
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

/// Returns a packet with its invariant CRC, as it comes from a socket.
fn with_crc(mut packet: Vec<u8>, from: &UdpSocket, to: &str) -> Vec<u8> {
    let own = from.local_addr().unwrap();
    let gid = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let network = Network::RoceV2 {
        global: Global {
            source: gid(own.ip()),
            destination: gid(to.parse().unwrap()),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
        },
        source_port: own.port(),
    };
    let crc = icrc::of(&network, &packet);
    packet.extend(crc);
    packet
}

/// Returns a message of a connection manager with these bytes, as a datagram to queue pair 1.
fn management(attribute: u8, data: &[u8]) -> Vec<u8> {
    let base = [0x64, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0];
    let datagram = [0x80, 1, 0, 0, 0, 0, 0, 1];
    let header = [1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, attribute];
    let mut packet = [&base[..], &datagram, &header].concat();
    packet.resize(20 + 24, 0);
    packet.extend(data);
    packet.resize(20 + 256, 0);
    packet
}

#[test]
fn a_disconnect_of_a_connection_whose_process_is_gone_is_confirmed() {
    let hosts = Hosts::new();
    let receives = hosts.receive();
    let peer = UdpSocket::bind((&*hosts.client, 4791)).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // From connection 7 to a connection of the process in slot 9, which there is not.
    let request = management(0x15, &[0, 0, 0, 7, 9, 0, 0, 1]);
    let to = (&*hosts.server, 4791);
    peer.send_to(&with_crc(request, &peer, &hosts.server), to)
        .unwrap();
    let mut answer = [0; 512];
    let received = peer.recv_from(&mut answer);
    kill(receives);
    let (len, from) = received.expect("an answer");
    assert_eq!((len, from.ip().to_string()), (280, hosts.server));
    let (attribute, ids) = (&answer[20 + 16..20 + 18], &answer[44..52]);
    assert_eq!(
        (attribute, ids),
        (&[0, 0x16][..], &[9, 0, 0, 1, 0, 0, 0, 7][..])
    );
}

#[test]
fn a_port_that_another_program_has_is_refused_in_a_sentence() {
    let hosts = Hosts::new();
    let _other = UdpSocket::bind((&*hosts.server, 4791)).unwrap();
    let mut command = run(&[&format!("--wire=udp={}", hosts.server)]);
    command.arg("true");
    let outcome = finish(command);
    let reason = format!("UDP port 4791 of {} is in use, by another", hosts.server);
    assert!(!outcome.status.success());
    assert!(outcome.output.contains(&reason), "{}", outcome.output);
}

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Returns a packet to a queue pair of one of the first slots, or a message of a
    /// connection manager.
    fn packet(&mut self) -> Vec<u8> {
        let kind = self.next();
        if kind & 3 == 0 {
            let mut data = self.bytes(232);
            // For a process or for none, and half of the requests from addresses of IP.
            data[4] = (self.next() % 5) as u8;
            data[5..7].fill(0);
            if kind & 4 == 0 {
                data[..2].fill(0);
                data[4..8].fill(0);
                data[8..16].copy_from_slice(&[0, 0, 0, 0, 1, 6, 0x1c, 0x06]);
                data[140..142].copy_from_slice(&[0, 0x40]);
            }
            return management(0x10 + (self.next() % 9) as u8, &data);
        }
        // What an opcode requires, to the byte, or anything.
        let len = [12, 16, 20, 28, 40, 60, 1036, 4108][self.next() as usize % 8];
        let mut packet = self.bytes(len);
        packet[0] &= 0x7f;
        packet[1] &= if kind & 4 == 0 { 0xc0 } else { 0xf0 };
        packet[2..4].fill(0xff);
        packet[5..8].copy_from_slice(&[(self.next() % 6) as u8, 0, (self.next() % 4) as u8]);
        packet
    }
}

#[test]
fn packets_of_strangers_with_a_valid_crc_harm_no_program() {
    let (Some(pingpong), Some(rping)) = (find("ibv_rc_pingpong", VERBS), find("rping", CM)) else {
        return;
    };
    let hosts = Hosts::new();
    let receives = hosts.receive();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            // The peer of the programs, and others.
            let addresses = [&*hosts.client, "127.0.0.1", "127.0.0.5"];
            let sockets = addresses.map(|it| UdpSocket::bind((it, 0)).unwrap());
            while !is_over.load(Ordering::Relaxed) {
                for socket in &sockets {
                    let packet = with_crc(random.packet(), socket, &hosts.server);
                    let _ = socket.send_to(&packet, (&*hosts.server, 4791));
                }
                // A few thousand in a second, so that those of the programs arrive.
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let harmless = std::panic::catch_unwind(|| {
            let end = Instant::now() + flood::duration();
            for round in 0.. {
                let output = hosts.exchange(&pingpong, &["-g", V2, "-n", "300"]);
                assert!(output.contains("300 iters"), "{output}");
                if round >= 2 && Instant::now() > end {
                    break;
                }
            }
            let server = hosts.serve(&rping, &["-s", "-a", &hosts.server, "-C", "3"]);
            hosts.await_service();
            let client = ["-c", "-a", &hosts.server, "-C", "3", "-v"];
            let output = finish(hosts.command(&hosts.client, &rping, &client)).output;
            assert_eq!(output.matches("ping data: ").count(), 3, "{output}");
            drop(server.finish());
        });
        is_over.store(true, Ordering::Relaxed);
        kill(receives);
        if let Err(panic) = harmless {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn the_peer_of_a_killed_process_is_disconnected() {
    let Some(rping) = find("rping", CM) else {
        return;
    };
    // The launcher of the killed process receives, or another one.
    for is_alone in [true, false] {
        let hosts = Hosts::new();
        let server = hosts.serve(&rping, &["-s", "-a", &hosts.server]);
        hosts.await_service();
        let other = (!is_alone).then(|| {
            let mut command = run(&[&format!("--wire=udp={}", hosts.client)]);
            command.args(["sleep", "100"]);
            let launcher = start(command);
            eventually("it receives", || is_bound(&hosts.client));
            launcher
        });
        let capture = std::env::temp_dir().join(format!("mlx5emu-killed-{}", hosts.client));
        let mut command = hosts.command(&hosts.client, &rping, &["-c", "-a", &hosts.server]);
        let client = start({
            command.env("MLX5EMU_PCAP", &capture);
            command
        });
        let size = || std::fs::metadata(&capture).map_or(0, |it| it.len());
        eventually("data travel", || size() > 10_000);
        kill(client);
        let output = server.finish().output;
        assert!(output.contains("DISCONNECT EVENT"), "{output}");
        other.into_iter().for_each(kill);
        std::fs::remove_file(&capture).unwrap();
    }
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
fn a_launcher_receives_for_others_while_the_terminal_has_stopped_its_job() {
    let Some(program) = find("ibv_rc_pingpong", VERBS) else {
        return;
    };
    let hosts = Hosts::new();
    let stopped = hosts.receive();
    let launcher = stopped.pid();
    let children = format!("/proc/{launcher}/task/{launcher}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let guardian: libc::pid_t = children.trim().parse().unwrap();
    // Ctrl-Z sends it to all processes of the job.
    for process in [guardian, launcher] {
        // SAFETY: our child, which was not waited for, and its child.
        unsafe { libc::kill(process, libc::SIGTSTP) };
    }
    let output = hosts.exchange(&program, &["-g", V2, "-n", "50"]);
    kill(stopped);
    assert!(output.contains("50 iters"), "{output}");
}

#[test]
fn an_index_without_packets_on_the_wire_is_refused_with_the_one_to_use() {
    let Some(program) = find("ibv_rc_pingpong", VERBS) else {
        return;
    };
    for (index, reason) in [
        ("2", "the UDP wire has RoCE v2 only: use sgid_index + 1"),
        // Link-local, which these hosts are not.
        ("0", "leaves it out: use sgid_index 3"),
        ("1", "leaves it out: use sgid_index 3"),
    ] {
        let hosts = Hosts::new();
        let server = hosts.serve(&program, &["-g", index]);
        await_listener(hosts.port.parse().unwrap());
        let all = ["-g", index, &hosts.server];
        let client = finish(hosts.command(&hosts.client, &program, &all));
        let outputs = client.output + &server.finish().output;
        assert!(outputs.contains(reason), "{index}: {outputs}");
    }
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
