//! Runs the Rust examples: servers and their clients, each process with its own
//! emulated adapter. (The package `libdat` runs the C examples.)

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../support/free_port.rs"]
mod free_port;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../support/launcher.rs"]
mod launcher;

use free_port::free_port;
use launcher::{fabric, folder, launcher};

/// Limit for one process, in seconds.
const LIMIT: &str = "120";

const EXAMPLES: [&str; 7] = [
    "blocking_server",
    "operations",
    "ping_pong",
    "rdma_ring",
    "srq_client",
    "srq_server",
    "tokio_echo",
];

type Options = &'static [&'static str];

/// The fabric and the qualifier of one test.
struct TestFabric {
    fabric: String,
    /// The connection manager, as `DAT_CM`.
    manager: &'static str,
    /// The data path, as `DAT_PATH`.
    path: &'static str,
    /// Options of the emulated device, for the launcher.
    device: Options,
    /// A qualifier in the range of ports on which no program listens.
    qualifier: String,
}

impl TestFabric {
    fn new() -> Self {
        Self {
            fabric: fabric(),
            manager: "auto",
            path: "auto",
            device: &[],
            qualifier: free_port().to_string(),
        }
    }

    /// Starts an example.
    fn start(&self, example: &str, arguments: &[&str]) -> Child {
        Command::new("timeout")
            .arg(LIMIT)
            .arg(launcher())
            .args(["run", "--fabric", &self.fabric])
            .args(self.device)
            .arg("--")
            .arg(folder().join("examples").join(example))
            .args(["-p", &self.qualifier])
            .args(arguments)
            .env("DAT_CM", self.manager)
            .env("DAT_PATH", self.path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("timeout can be run")
    }

    /// Takes the port of the adapter down or up for all processes.
    fn switch_port(&self, state: &str) {
        let status = Command::new(launcher())
            .args(["port", state, "--fabric", &self.fabric])
            .status()
            .expect("the launcher runs");
        assert!(status.success(), "port {state}: {status}");
    }

    /// Starts a server, and returns once it listens.
    fn serve(&self, example: &'static str, arguments: &[&str]) -> Server {
        let mut child = self.start(example, arguments);
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("text");
        let server = Server {
            example,
            child,
            output,
        };
        if line != format!("listening on {}\n", self.qualifier) {
            panic!("{line:?}, then {:?}", server.end());
        }
        server
    }
}

struct Server {
    example: &'static str,
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Server {
    /// Returns what the server printed after it listened. It must have exited
    /// with success.
    fn end(mut self) -> String {
        let mut stdout = String::new();
        self.output.read_to_string(&mut stdout).expect("text");
        let output = self
            .child
            .wait_with_output()
            .expect("the child process was started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let (example, status) = (self.example, output.status);
        assert!(status.success(), "{example}: {status}\n{stdout}{stderr}");
        stdout
    }
}

/// Returns what a process printed. It must have exited with success.
fn end(child: Child) -> String {
    let output = child
        .wait_with_output()
        .expect("the child process was started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn operations_move_data_both_ways_and_compare_it() {
    for (path, device) in [("direct", &[][..]), ("verbs", &["--link", "roce"])] {
        let place = TestFabric {
            path,
            device,
            ..TestFabric::new()
        };
        let server = place.serve("operations", &[]);
        let client = end(place.start("operations", &["127.0.0.1"]));
        let served = server.end();
        for said in [&client, &served] {
            for round in ["send: 8 bytes", "rdma_write: 1024", "rdma_read: 65536"] {
                assert!(said.contains(round), "{said}");
            }
            assert_eq!(said.lines().count(), 9, "{said}");
        }
    }
}

/// The private data of another program are refused.
#[test]
fn operations_reject_clients_of_other_programs() {
    let place = TestFabric::new();
    let server = place.serve("operations", &[]);
    let other = place.start("ping_pong", &["-n", "1", "127.0.0.1"]);
    let refused = other.wait_with_output().expect("it was started");
    assert!(!refused.status.success(), "{refused:?}");
    end(place.start("operations", &["127.0.0.1"]));
    server.end();
}

#[test]
fn ping_pong_measures_round_trips() {
    let place = TestFabric::new();
    for size in ["8", "5000"] {
        let server = place.serve("ping_pong", &["-s", size]);
        let client = end(place.start("ping_pong", &["-s", size, "-n", "300", "127.0.0.1"]));
        let expected = format!("300 round trips of {size} bytes: least ");
        assert!(client.starts_with(&expected), "{client}");
        assert_eq!(server.end(), "300 messages answered\n");
    }
}

/// The device has one of the addresses of its network interface.
#[test]
fn ping_pong_runs_between_two_addresses_of_an_interface() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/emulator/tests/other_hosts");
    let output = Command::new(format!("{tests}/places.sh"))
        .arg("--examples")
        .arg(folder().join("examples"))
        .arg(launcher())
        .arg("interface")
        .output()
        .expect("the script can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let runs = text.matches("interface: ping_pong, rdma_cm").count();
    assert!(runs == 2 || text.starts_with("SKIPPED"), "{text}");
    eprint!("{text}");
}

#[test]
fn a_ring_is_written_and_read() {
    let place = TestFabric::new();
    // Fewer than the ring has slots, exactly as many, and a number that is no
    // multiple.
    for count in ["1", "64", "2001"] {
        let consumer = place.serve("rdma_ring", &[]);
        let producer = end(place.start("rdma_ring", &["-n", count, "127.0.0.1"]));
        let expected = format!("{count} messages written, ");
        assert!(producer.starts_with(&expected), "{producer}");
        let read = consumer.end();
        assert!(
            read.ends_with(&format!("\n{count} messages read\n")),
            "{read}"
        );
    }
}

/// libibverbs asks the device on x86 only.
const PROMISED: bool = cfg!(target_arch = "x86_64");

#[test]
fn a_ring_is_polled_in_memory_only_if_the_device_promises_the_order_or_by_force() {
    const MEMORY: &str = "polling memory";
    const MESSAGES: &str = "polling for a message behind each write";
    let yes = if PROMISED {
        (MEMORY, "yes")
    } else {
        (MESSAGES, "no")
    };
    let no = (MESSAGES, "no");
    let cases: [(Options, Options, (&str, &str)); 7] = [
        (&[], &[], yes),
        (&["--data-in-order", "no"], &[], no),
        (&["--data-in-order", "unknown"], &[], no),
        // Here only a message shows that a slot is complete.
        (&["--nasty", "parts"], &[], no),
        (
            &["--data-in-order", "no"],
            &["--last-byte", "force"],
            (MEMORY, "no"),
        ),
        (&[], &["--last-byte", "never"], (MESSAGES, yes.1)),
        (&["--face", "write"], &[], no),
    ];
    for path in ["auto", "verbs"] {
        for (device, arguments, (method, answer)) in cases {
            let mut place = TestFabric::new();
            (place.device, place.path) = (device, path);
            let consumer = place.serve("rdma_ring", arguments);
            let producer = end(place.start("rdma_ring", &["-n", "1001", "127.0.0.1"]));
            assert!(
                producer.starts_with("1001 messages written, "),
                "{producer}"
            );
            let expected = format!("{method}; data in order: {answer}\n1001 messages read\n");
            assert_eq!(consumer.end(), expected, "{path} {device:?} {arguments:?}");
        }
    }
}

#[test]
fn a_server_takes_messages_of_many_clients_from_one_queue() {
    let place = TestFabric::new();
    let server = place.serve("srq_server", &["-c", "3"]);
    let counts = ["1", "400", "1001"];
    let clients = counts.map(|count| place.start("srq_client", &["-n", count, "127.0.0.1"]));
    for (client, count) in clients.into_iter().zip(counts) {
        assert_eq!(end(client), format!("{count} messages sent\n"));
    }
    let stdout = server.end();
    for count in counts {
        assert!(
            stdout.contains(&format!(": {count} messages\n")),
            "{stdout}"
        );
    }
    let refills = stdout
        .rsplit_once("\n1402 messages, refilled ")
        .and_then(|(_, end)| end.strip_suffix(" times\n"))
        .and_then(|count| count.parse::<u32>().ok());
    // There are 48 buffers for 1402 messages.
    assert!(refills.is_some_and(|count| count > 10), "{stdout}");
}

/// One client is killed half way, and one before the server has accepted it. The
/// server serves the others to the end, and reports the killed one. Over TCP, whose
/// connections the test can see.
#[test]
fn a_server_outlives_its_clients() {
    let place = TestFabric {
        manager: "socket",
        ..TestFabric::new()
    };
    let Server {
        child: server,
        mut output,
        ..
    } = place.serve("srq_server", &["-c", "3"]);
    // Killed while it sends, with other messages in flight.
    let victim = place.start("srq_client", &["-n", "4000000000", "127.0.0.1"]);
    let mut line = String::new();
    output.read_line(&mut line).expect("text");
    assert!(
        line.ends_with(": announces 4000000000 messages\n"),
        "{line:?}"
    );
    let first = place.start("srq_client", &["-n", "2000", "127.0.0.1"]);
    line.clear();
    output.read_line(&mut line).expect("text");
    assert!(line.ends_with(": announces 2000 messages\n"), "{line:?}");
    signal(&victim, libc::SIGKILL);
    let reaped = victim
        .wait_with_output()
        .expect("the child process was started");
    assert!(!reaped.status.success());
    assert_eq!(end(first), "2000 messages sent\n");
    // Killed while it waits for the accept.
    signal(&server, libc::SIGSTOP);
    let victim = place.start("srq_client", &["-n", "5", "127.0.0.1"]);
    while !is_connected(&place.qualifier) {
        thread::sleep(Duration::from_millis(1));
    }
    signal(&victim, libc::SIGKILL);
    victim
        .wait_with_output()
        .expect("the child process was started");
    signal(&server, libc::SIGCONT);
    // The third client.
    let last = place.start("srq_client", &["-n", "300", "127.0.0.1"]);
    assert_eq!(end(last), "300 messages sent\n");
    let mut stdout = String::new();
    output.read_to_string(&mut stdout).expect("text");
    let ended = server
        .wait_with_output()
        .expect("the child process was started");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{stdout}{stderr}");
    for expected in [
        "left after ",
        "1 of 3 clients did not send all announced messages",
    ] {
        assert!(stderr.contains(expected), "{stdout}{stderr}");
    }
    for expected in [
        ": 2000 messages\n",
        ": 300 messages\n",
        " messages, refilled ",
    ] {
        assert!(stdout.contains(expected), "{stdout}{stderr}");
    }
}

/// Sends a signal to a process and its children: `timeout` leads a process group.
fn signal(child: &Child, signal: libc::c_int) {
    let group = libc::pid_t::try_from(child.id()).expect("a process");
    // SAFETY: the child has not been waited for.
    assert_eq!(unsafe { libc::kill(-group, signal) }, 0);
}

/// Returns whether a process has a connection to this port of the host.
fn is_connected(port: &str) -> bool {
    let port: u16 = port.parse().expect("a port");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("procfs");
    // Entry, local and remote address, state: 01 means established.
    let remote = format!(":{port:04X} 01 ");
    table.contains(&remote)
}

/// The client whose transfers fail ends, and the server serves others once the port is
/// up again.
#[test]
fn a_port_that_goes_down_ends_connections_and_serves_new_ones_when_it_is_up() {
    for path in ["direct", "verbs"] {
        let is_tested = (0..10).any(|_| port_goes_down_and_up(path));
        assert!(is_tested, "{path}: the client never had a transfer");
    }
}

/// Returns false if the client had no transfer outstanding when the port went down: all its
/// messages were acknowledged, and it waited for the server. Nothing tells such a client that
/// its peer cannot be reached.
fn port_goes_down_and_up(path: &'static str) -> bool {
    let place = TestFabric {
        path,
        ..TestFabric::new()
    };
    let mut server = place.serve("srq_server", &["-c", "2"]);
    let mut client = place.start("srq_client", &["-n", "4000000000", "127.0.0.1"]);
    let mut line = String::new();
    server.output.read_line(&mut line).expect("text");
    assert!(
        line.ends_with(": announces 4000000000 messages\n"),
        "{line:?}"
    );
    place.switch_port("down");
    if !ends_within(&mut client, Duration::from_secs(30)) {
        for process in [&client, &server.child] {
            signal(process, libc::SIGTERM);
        }
        for process in [client, server.child] {
            process.wait_with_output().expect("it was started");
        }
        return false;
    }
    let (status, stderr) = refusal(client.wait_with_output());
    assert_eq!(status, Some(3), "{path}: {stderr}");
    assert!(stderr.contains("status: Transport"), "{path}: {stderr}");
    let client = place.start("srq_client", &["-n", "1", "127.0.0.1"]);
    let (status, stderr) = refusal(client.wait_with_output());
    assert_eq!(status, Some(3), "{path}: {stderr}");
    assert!(
        stderr.contains("no answer from 127.0.0.1"),
        "{path}: {stderr}"
    );
    place.switch_port("up");
    let client = place.start("srq_client", &["-n", "300", "127.0.0.1"]);
    assert_eq!(end(client), "300 messages sent\n");
    let mut stdout = String::new();
    server.output.read_to_string(&mut stdout).expect("text");
    let (status, stderr) = refusal(server.child.wait_with_output());
    assert_eq!(status, Some(3), "{path}: {stdout}{stderr}");
    assert!(stdout.contains(": 300 messages\n"), "{path}: {stdout}");
    let expected = "1 of 2 clients did not send all announced messages";
    assert!(stderr.contains(expected), "{path}: {stderr}");
    true
}

/// Returns whether a process ends before the time has passed.
fn ends_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        if child.try_wait().expect("the process was started").is_some() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn a_blocking_server_answers_several_clients_and_their_successors() {
    let place = TestFabric::new();
    let server = place.serve("blocking_server", &["-c", "2", "-n", "4"]);
    for counts in [["200", "200"], ["1", "200"]] {
        let clients = counts.map(|count| place.start("ping_pong", &["-n", count, "127.0.0.1"]));
        for client in clients {
            end(client);
        }
    }
    let stdout = server.end();
    assert_eq!(stdout.lines().count(), 4, "{stdout}");
    let whole = stdout
        .matches(": 200 messages answered, Disconnected\n")
        .count();
    assert_eq!(whole, 3, "{stdout}");
    assert!(stdout.contains(": 1 messages answered"), "{stdout}");
}

#[test]
fn many_tasks_of_one_thread_share_a_receive_queue_on_tokio() {
    for path in ["direct", "verbs"] {
        let place = TestFabric {
            path,
            ..TestFabric::new()
        };
        let options = ["-c", "100", "-n", "20"];
        let server = place.serve("tokio_echo", &options);
        let clients = end(place.start("tokio_echo", &[&options[..], &["127.0.0.1"]].concat()));
        for said in [clients, server.end()] {
            let expected = "100 connections, 2000 messages, ";
            assert!(said.starts_with(expected), "{path}: {said}");
        }
    }
}

#[test]
fn a_client_too_many_is_rejected_with_the_reason() {
    let place = TestFabric::new();
    let server = place.serve("srq_server", &["-c", "1"]);
    // The request does not announce a number of messages.
    let refused = place.start("ping_pong", &["127.0.0.1"]);
    let (status, stderr) = refusal(refused.wait_with_output());
    assert_eq!(status, Some(3));
    assert!(stderr.contains("accepts no more clients"), "{stderr}");
    assert_eq!(
        end(place.start("srq_client", &["-n", "9", "127.0.0.1"])),
        "9 messages sent\n"
    );
    server.end();
}

/// Returns the exit status, and the message.
fn refusal(output: std::io::Result<Output>) -> (Option<i32>, String) {
    let output = output.expect("the child process was started");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

#[test]
fn errors_are_printed_with_a_remedy() {
    let place = TestFabric::new();
    let cases: [(&str, &[&str], i32, &[&str]); 5] = [
        (
            "ping_pong",
            &["127.0.0.1"],
            3,
            &["no server listens", "start the server first"],
        ),
        (
            "rdma_ring",
            &["-d", "nix"],
            2,
            &["DAT_PROVIDER_NOT_FOUND", "next: ", "dat-bench devices"],
        ),
        (
            "srq_client",
            &["-n", "1", "no.such.host.invalid"],
            3,
            &["cannot resolve no.such.host.invalid"],
        ),
        ("ping_pong", &["-s", "7"], 1, &["8..=1048576"]),
        ("srq_server", &["-c", "0"], 1, &["1..=512"]),
    ];
    for (example, arguments, status, reasons) in cases {
        let ended = place.start(example, arguments).wait_with_output();
        let (code, stderr) = refusal(ended);
        assert_eq!(code, Some(status), "{example} {arguments:?}: {stderr}");
        for reason in reasons {
            assert!(stderr.contains(reason), "{example} {arguments:?}: {stderr}");
        }
    }
    let server = place.serve("srq_server", &[]);
    let (status, stderr) = refusal(place.start("ping_pong", &[]).wait_with_output());
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("DAT_CONN_QUAL_IN_USE"), "{stderr}");
    assert!(stderr.contains("another qualifier with -p"), "{stderr}");
    end(place.start("srq_client", &["-n", "1"]));
    server.end();
}

#[test]
fn every_example_has_a_help_and_a_row_in_the_table() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/README.md");
    let table = std::fs::read_to_string(table).expect("a table of the examples");
    for example in EXAMPLES {
        let help = Command::new(folder().join("examples").join(example))
            .arg("--help")
            .output();
        let help = String::from_utf8(help.expect("the program can be run").stdout).expect("text");
        for part in ["--adapter", "--port", "Usage: ", "Exit status: "] {
            assert!(help.contains(part), "{example}: {help}");
        }
        let forms = [
            format!("[`{example}.rs`]({example}.rs)"),
            format!("[`{example}`]({example}/main.rs)"),
        ];
        assert!(forms.iter().any(|form| table.contains(form)), "{example}");
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut sources: Vec<String> = std::fs::read_dir(folder)
        .expect("the examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension().is_some_and(|it| it == "rs") || path.join("main.rs").is_file()
        })
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned))
        .collect();
    sources.sort();
    assert_eq!(sources, EXAMPLES);
}
