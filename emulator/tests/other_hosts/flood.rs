//! Packets of the programs that run, changed and with a right CRC, from strangers and from the
//! address of the peer. `MLX5EMU_FLOOD_SECONDS` sets how long, for `perf-scripts/soak`.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Hosts, PERFTEST, Random, V2, VERBS, is_bound, kill, with_crc};
use crate::common::{Running, await_listener, eventually, find, finish, run, start};

/// Sizes of the headers before a packet in a capture file: of the file and the packet, and those
/// of Ethernet, IPv4 and UDP.
const FILE: usize = 24;
const RECORD: usize = 16;
const NETWORK: usize = 14 + 20 + 8;
/// The most bytes at the end of a capture file from which packets are taken.
const RECENT: usize = 1 << 20;

/// Returns how long programs run among such packets.
pub(super) fn duration() -> Duration {
    let given = std::env::var("MLX5EMU_FLOOD_SECONDS").ok();
    let seconds = given.map_or(4, |text| text.parse().expect("seconds, as a number"));
    Duration::from_secs(seconds)
}

/// Returns the packets in a capture file, from the base transport header on, without their CRC.
fn packets(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut rest = bytes.get(FILE..).unwrap_or_default();
    let mut all = Vec::new();
    while let Some(len) = rest.get(8..12) {
        let len = u32::from_ne_bytes(len.try_into().unwrap()) as usize;
        let Some(packet) = rest.get(RECORD..RECORD + len) else {
            break;
        };
        if rest.len() < RECENT {
            let transport = packet.get(NETWORK..len - 4).unwrap_or_default();
            all.push(transport.to_vec());
        }
        rest = &rest[RECORD + len..];
    }
    all
}

/// Changes a packet: some of its bytes, mostly of its headers, its operation, its sequence number
/// by a little, or its length.
fn change(packet: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.next() % 3 {
        let number = random.next();
        let (len, value) = (packet.len(), (number >> 40) as u8);
        if len < 12 {
            return;
        }
        let at = (number >> 8) as usize % len;
        match number % 8 {
            0 => packet[at] = value,
            1 | 2 => packet[at % 40 % len] ^= 1 << (value & 7),
            3 => packet[0] = packet[0] & 0xe0 | value & 0x1f,
            4 | 5 => packet[11] = packet[11].wrapping_add(value % 9).wrapping_sub(4),
            6 => packet.truncate(at / 4 * 4),
            _ => packet.resize(len + usize::from(value) % 64 * 4, value),
        }
    }
}

/// Sends changed packets of a capture file from addresses, until it is over. Returns how many.
fn flood(capture: &Path, from: &[&str], to: &str, is_over: &AtomicBool) -> u64 {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let sockets: Vec<UdpSocket> = from
        .iter()
        .map(|address| UdpSocket::bind((*address, 0)).unwrap())
        .collect();
    let (mut known, mut read, mut sent) = (Vec::new(), Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        // The connections change, and with them the numbers of their queue pairs.
        if known.is_empty() || read.elapsed() > Duration::from_millis(300) {
            (known, read) = (packets(capture), Instant::now());
        }
        for socket in sockets.iter().filter(|_| !known.is_empty()) {
            let mut packet = known[random.next() as usize % known.len()].clone();
            change(&mut packet, &mut random);
            let mut packet = with_crc(packet, socket, to);
            if random.next().is_multiple_of(16) {
                let last = packet.len() - 1;
                packet[last] ^= 1;
            }
            sent += u64::from(socket.send_to(&packet, (to, 4791)).is_ok());
        }
        // A few thousand in a second, so that those of the programs arrive.
        std::thread::sleep(Duration::from_micros(500));
    }
    sent
}

/// A capture file of two hosts' programs, which is removed at the end.
struct Captured {
    hosts: Hosts,
    file: PathBuf,
}

impl Captured {
    fn new(name: &str) -> Self {
        let file = format!("mlx5emu-{name}-{}.pcap", std::process::id());
        let file = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&file);
        Self {
            hosts: Hosts::new(),
            file,
        }
    }

    fn command(&self, address: &str, program: &Path, arguments: &[&str]) -> Command {
        let wire = format!("--wire=udp={address}");
        let mut command = run(&["--pcap", &self.file.to_string_lossy(), &wire]);
        command.arg(program).args(["-p", &self.hosts.port]);
        command.args(arguments).env("DAT_LISTEN", "all");
        command
    }

    /// Starts a program on both hosts. Returns server and client.
    fn start(&self, program: &Path, arguments: &[&str]) -> [Running; 2] {
        // Only packets of this connection.
        let _ = std::fs::remove_file(&self.file);
        let server = start(self.command(&self.hosts.server, program, arguments));
        await_listener(self.hosts.port.parse().unwrap());
        let all = [arguments, &[&self.hosts.server]].concat();
        [
            server,
            start(self.command(&self.hosts.client, program, &all)),
        ]
    }

    /// Returns the counters of packets that the server's host has dropped: for a wrong CRC, and
    /// for other causes.
    fn dropped(&self) -> [u64; 2] {
        let mut command = run(&[&format!("--wire=udp={}", self.hosts.server)]);
        let ports = "/sys/class/infiniband/mlx5_0/ports/1";
        command.args(["cat", &format!("{ports}/hw_counters/rx_icrc_encapsulated")]);
        command.arg(format!("{ports}/counters/port_rcv_errors"));
        let text = finish(command).expect_success("cat");
        let mut numbers = text.split_whitespace().map(|it| it.parse().unwrap());
        [(); 2].map(|()| numbers.next().expect("two counters"))
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Floods while `work` runs; returns how many packets were sent.
fn while_flooded(captured: &Captured, from: &[&str], mut work: impl FnMut()) -> u64 {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let to = &*captured.hosts.server;
        let flood = threads.spawn(|| flood(&captured.file, from, to, &is_over));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let end = Instant::now() + duration();
            while Instant::now() < end {
                work();
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        let sent = flood.join().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent
    })
}

#[test]
fn changed_packets_of_strangers_harm_no_program_and_are_counted() {
    let (Some(pingpong), Some(write)) = (
        find("ibv_rc_pingpong", VERBS),
        find("ib_write_bw", PERFTEST),
    ) else {
        return;
    };
    let captured = Captured::new("strangers");
    let receives = captured.hosts.receive();
    let programs = [
        (&pingpong, &["-g", V2, "-n", "500"][..]),
        (
            &write,
            &["-F", "-x", V2, "-s", "9000", "-n", "100", "-u", "18"],
        ),
    ];
    let mut turns = programs.iter().cycle();
    let sent = while_flooded(&captured, &["127.0.0.1", "127.0.0.5"], || {
        let (program, arguments) = turns.next().expect("it never ends");
        let [server, client] = captured.start(program, arguments).map(Running::finish);
        let both = format!("server: {}\nclient: {}", server.output, client.output);
        assert!(server.status.success() && client.status.success(), "{both}");
    });
    let [icrc, others] = captured.dropped();
    kill(receives);
    assert!(icrc > 0 && others > 0, "{icrc}, {others} of {sent} packets");
    println!("{sent} packets, dropped: {icrc} for their CRC, {others} for other causes");
}

#[test]
fn changed_packets_inside_a_connection_break_no_more_than_it() {
    let Some(pingpong) = find("ibv_rc_pingpong", VERBS) else {
        return;
    };
    let captured = Captured::new("spoofed");
    let receives = captured.hosts.receive();
    let client = captured.hosts.client.clone();
    let (mut good, mut failed, mut stuck) = (0, 0, 0);
    let sent = while_flooded(&captured, &[&client], || {
        let ends = captured.start(&pingpong, &["-g", V2, "-n", "2000"]);
        // A pingpong whose peer has failed, or whose message was acknowledged by another one,
        // waits for ever, as on any network.
        let limit = Instant::now() + Duration::from_secs(5);
        for mut end in ends {
            while end.is_running() && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(5));
            }
            if end.is_running() {
                stuck += 1;
                end.terminate();
                drop(end.finish());
                continue;
            }
            let outcome = end.finish();
            // Not by a signal, and not by a panic of the emulator.
            let code = outcome.status.code();
            assert!(code.is_some_and(|code| code < 100), "{}", outcome.output);
            assert!(!outcome.output.contains("panicked"), "{}", outcome.output);
            *(if code == Some(0) {
                &mut good
            } else {
                &mut failed
            }) += 1;
        }
    });
    // The host works as before.
    for end in captured.start(&pingpong, &["-g", V2, "-n", "100"]) {
        end.finish().expect_success("after the flood");
    }
    kill(receives);
    eventually("the port is free", || !is_bound(&captured.hosts.server));
    println!("{sent} packets; ends: {good} good, {failed} failed, {stuck} stuck");
}
