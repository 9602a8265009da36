//! Runs the C examples. They compile without a warning. Servers and clients
//! communicate, each process with its own emulated adapter. Under valgrind they
//! have neither errors nor leaks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crate::emulator::{fabric, launcher};
use crate::free_port::free_port;
use crate::tool::is_installed;

/// Limit for one process, in seconds.
const LIMIT: &str = "120";
const VALGRIND: [&str; 5] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
];

const EXAMPLES: [&str; 5] = [
    "ping_pong",
    "fd_server",
    "rdma_ring",
    "srq_client",
    "srq_server",
];

struct Built {
    /// Contains the library under its soname, and the programs.
    folder: PathBuf,
}

impl Built {
    fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Compiles the examples with the library of this test.
fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples-c");
        std::fs::create_dir_all(&folder).expect("the folder can be created");
        let tests = std::env::current_exe().expect("this binary has a path");
        let library = tests.parent().expect("a folder").join("libdat.so");
        // Other test processes create the same files at the same time: each file
        // is renamed into place when it is complete.
        let own = std::process::id().to_string();
        for name in ["libdat.so", "libdat.so.1"] {
            let link = folder.join(name);
            let new = link.with_extension(&own);
            std::os::unix::fs::symlink(&library, &new).expect("the link can be created");
            std::fs::rename(new, link).expect("the file can be renamed");
        }
        let base = Path::new(env!("CARGO_MANIFEST_DIR"));
        let compile = |name: &str, place: &str| {
            let program = folder.join(name).with_extension(&own);
            let source = base.join(place).join(name).with_extension("c");
            let output = Command::new("cc")
                // The flags of the examples' Makefile.
                .args(["-std=c99", "-D_DEFAULT_SOURCE", "-O2", "-g"])
                .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
                .arg(base.join("include"))
                .arg("-o")
                .args([&program, &source])
                .arg("-L")
                .arg(&folder)
                .arg("-ldat")
                .output()
                .expect("cc can be run");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {stderr}");
            std::fs::rename(program, folder.join(name)).expect("the file can be renamed");
        };
        for name in EXAMPLES {
            compile(name, "../../examples/c");
        }
        compile("dispatch", "tests/support");
        let source = folder.join("hello").with_extension(&own);
        std::fs::write(&source, program_of_the_manual()).expect("it can be written");
        std::fs::rename(source, folder.join("hello.c")).expect("it can be renamed");
        compile("hello", folder.to_str().expect("a path of UTF-8"));
        Built { folder }
    })
}

/// Returns the program in udapl(7), as a reader copies it from the page.
fn program_of_the_manual() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/udapl.7");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, examples) = page.split_once("\n.SH EXAMPLES\n").expect("a section");
    let lines = examples
        .lines()
        .skip_while(|line| *line != ".EX")
        .skip(1)
        .take_while(|line| *line != ".EE");
    lines
        .map(|line| {
            let line = line.replace("\\-", "-").replace("\\e", "\\");
            line.replace("\\&", "") + "\n"
        })
        .collect()
}

/// Starts a process, which ends within the limit.
fn start(fabric: &str, under: &[&str], program: &str, arguments: &[&str]) -> Child {
    spawn(&mut command(fabric, under, program, arguments))
}

/// Starts a process that connects by TCP.
fn start_on_tcp(fabric: &str, program: &str, arguments: &[&str]) -> Child {
    spawn(command(fabric, &[], program, arguments).env("DAT_CM", "socket"))
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout can be run")
}

fn command(fabric: &str, under: &[&str], program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg(LIMIT)
        .arg(launcher())
        .args(["run", "--fabric", fabric, "--"])
        .args(under)
        .arg(built().program(program))
        .args(arguments)
        .env("LD_LIBRARY_PATH", &built().folder)
        .env("DAT_DBG_TYPE", "1");
    if !under.is_empty() {
        // On a busy machine, valgrind takes longer to emulate rdma_cm than the
        // examples wait for a connection.
        command.env("DAT_CM", "socket");
    }
    command
}

/// Returns what a process printed, or how it failed.
fn end(side: &str, mut child: Child, mut stdout: String) -> Result<String, String> {
    // Both at once: a process that has filled one pipe does not end.
    let stderr = child.stderr.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut stderr = String::new();
            pipe.read_to_string(&mut stderr).expect("text");
            stderr
        })
    });
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut stdout).expect("text");
    }
    let stderr = stderr.map(|reader| reader.join().expect("text"));
    let stderr = stderr.unwrap_or_default();
    let status = child.wait().expect("the child process was started");
    if status.success() {
        Ok(stdout)
    } else {
        Err(format!("{side}: {status}\n{stdout}{stderr}"))
    }
}

/// Returns a qualifier in the range of ports on which no program listens.
fn qualifier() -> String {
    free_port().to_string()
}

/// Runs a server and clients. Returns what they printed; all must exit with
/// success.
fn sides(
    under: &[&str],
    (server, of_server): (&str, &[&str]),
    client: &str,
    clients: &[&[&str]],
) -> (String, Vec<String>) {
    let (fabric, qualifier) = (fabric(), qualifier());
    let common = ["-d", "mlx5_0", "-p", &qualifier];
    let mut server = start(&fabric, under, server, &[&common, of_server].concat());
    let mut output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut stdout = String::new();
    output.read_line(&mut stdout).expect("text");
    let clients: Vec<_> = clients
        .iter()
        .map(|of_client| {
            let arguments = [&common[..], of_client, &["127.0.0.1"]].concat();
            start(&fabric, under, client, &arguments)
        })
        .collect();
    let clients: Vec<_> = clients
        .into_iter()
        .map(|client| end("client", client, String::new()))
        .collect();
    output.read_to_string(&mut stdout).expect("text");
    match (
        end("server", server, stdout),
        clients.iter().cloned().collect(),
    ) {
        (Ok(server), Ok(clients)) => (server, clients),
        (server, _) => panic!("{server:?}\n{clients:?}"),
    }
}

fn ping_pong(under: &[&str], count: &str) {
    let of_client = ["-n", count];
    let (server, clients) = sides(under, ("ping_pong", &[]), "ping_pong", &[&of_client]);
    assert!(
        server.ends_with(&format!("\n{count} messages answered\n")),
        "{server}"
    );
    let expected = format!("{count} round trips of 64 bytes: least ");
    assert!(clients[0].starts_with(&expected), "{clients:?}");
}

/// Runs the ring; `method` are the consumer's option and what it prints.
fn rdma_ring(under: &[&str], count: &str, method: (&[&str], &str)) {
    let of_client = ["-n", count];
    let server = ("rdma_ring", method.0);
    let (server, clients) = sides(under, server, "rdma_ring", &[&of_client]);
    assert!(
        server.ends_with(&format!("\n{}\n{count} messages read\n", method.1)),
        "{server}"
    );
    let expected = format!("{count} messages written, ");
    assert!(clients[0].starts_with(&expected), "{clients:?}");
}

/// uDAPL cannot ask for the order of bytes.
const MESSAGES: (&[&str], &str) = (&[], "polling for a message behind each write");
const MEMORY: (&[&str], &str) = (&["--last-byte", "force"], "polling memory");

fn shared_queue(under: &[&str], counts: [u32; 3]) {
    let words = counts.map(|count| count.to_string());
    let of_clients = words.each_ref().map(|count| ["-n", count]);
    let of_clients = of_clients.each_ref().map(|words| &words[..]);
    let (server, clients) = sides(
        under,
        ("srq_server", &["-c", "3"]),
        "srq_client",
        &of_clients,
    );
    let all: u32 = counts.iter().sum();
    assert!(
        server.contains(&format!("\n{all} messages, refilled ")),
        "{server}"
    );
    for (client, count) in clients.iter().zip(counts) {
        assert_eq!(*client, format!("{count} messages sent\n"));
        assert!(
            server.contains(&format!(": {count} messages\n")),
            "{server}"
        );
    }
}

#[test]
fn the_program_in_udapl_7_sends_its_message() {
    let (fabric, qualifier) = (fabric(), qualifier());
    let of_server = ["mlx5_0", &qualifier];
    let of_client = ["mlx5_0", &qualifier, "127.0.0.1"];
    let mut server = start(&fabric, &[], "hello", &of_server);
    let mut output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut stdout = String::new();
    output.read_line(&mut stdout).expect("text");
    let client = start(&fabric, &[], "hello", &of_client);
    assert_eq!(end("client", client, String::new()).as_deref(), Ok(""));
    output.read_to_string(&mut stdout).expect("text");
    assert_eq!(
        end("server", server, stdout).as_deref(),
        Ok("listening\nreceived: hello, world\n")
    );
}

#[test]
fn ping_pong_measures_round_trips() {
    ping_pong(&[], "500");
}

/// RDMA and sockets in one loop: each is served while the other waits.
#[test]
fn a_server_polls_rdma_and_sockets_together() {
    let (fabric, qualifier) = (fabric(), qualifier());
    let common = ["-d", "mlx5_0", "-p", &qualifier];
    let of_server = [&common[..], &["-c", "2"]].concat();
    let mut server = start(&fabric, &[], "fd_server", &of_server);
    let mut output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut stdout = String::new();
    output.read_line(&mut stdout).expect("text");
    let (_, port) = stdout.trim().rsplit_once(" status on ").expect("a port");
    let port = port.parse().expect("a number");
    let status = || {
        let mut text = String::new();
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        socket.read_to_string(&mut text).expect("text");
        text
    };
    assert_eq!(status(), "0 clients, 0 messages\n");
    let of_client = [&common[..], &["-n", "300", "127.0.0.1"]].concat();
    for served in 1..=2 {
        let client = start(&fabric, &[], "ping_pong", &of_client);
        if served == 1 {
            let answer = end("client", client, String::new()).expect("a good end");
            assert!(answer.starts_with("300 round trips "), "{answer}");
            while !status().starts_with("1 clients, ") {}
            assert_eq!(status(), "1 clients, 300 messages\n");
        } else {
            end("client", client, String::new()).expect("a good end");
        }
    }
    output.read_to_string(&mut stdout).expect("text");
    let stdout = end("server", server, stdout).expect("a good end");
    assert!(stdout.contains("\n600 messages answered, "), "{stdout}");
}

#[test]
fn a_ring_is_written_and_read() {
    for count in ["1", "64", "2001"] {
        rdma_ring(&[], count, MESSAGES);
        rdma_ring(&[], count, MEMORY);
    }
}

#[test]
fn a_server_takes_messages_of_many_clients_from_one_queue() {
    shared_queue(&[], [1, 500, 1001]);
}

/// One client is killed half way, and one before the server has accepted it. The
/// server serves the others to the end, and reports the killed one. Over TCP, whose
/// connections the test can see.
#[test]
fn a_server_outlives_its_clients() {
    let (fabric, qualifier) = (fabric(), qualifier());
    let client = |count| {
        let arguments = ["-p", &qualifier, "-n", count, "127.0.0.1"];
        start_on_tcp(&fabric, "srq_client", &arguments)
    };
    let mut server = start_on_tcp(&fabric, "srq_server", &["-p", &qualifier, "-c", "3"]);
    let mut output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut listening = String::new();
    output.read_line(&mut listening).expect("text");
    // Killed while it sends, with other messages in flight.
    let victim = client("4000000000");
    let mut line = String::new();
    output.read_line(&mut line).expect("text");
    assert!(
        line.ends_with(": announces 4000000000 messages\n"),
        "{line:?}"
    );
    let first = client("2000");
    line.clear();
    output.read_line(&mut line).expect("text");
    assert!(line.ends_with(": announces 2000 messages\n"), "{line:?}");
    signal(&victim, libc::SIGKILL);
    let reaped = victim
        .wait_with_output()
        .expect("the child process was started");
    assert!(!reaped.status.success());
    assert_eq!(
        end("client", first, String::new()).as_deref(),
        Ok("2000 messages sent\n")
    );
    // Killed while it waits for the accept.
    signal(&server, libc::SIGSTOP);
    let victim = client("5");
    while !is_connected(&qualifier) {
        thread::sleep(Duration::from_millis(1));
    }
    signal(&victim, libc::SIGKILL);
    victim
        .wait_with_output()
        .expect("the child process was started");
    signal(&server, libc::SIGCONT);
    // The third client.
    let last = client("300");
    assert_eq!(
        end("client", last, String::new()).as_deref(),
        Ok("300 messages sent\n")
    );
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

#[test]
fn errors_are_printed_with_a_remedy() {
    let cases: [(&str, &[&str], i32, &[&str]); 7] = [
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
            &["no.such.host.invalid"],
            3,
            &["cannot resolve no.such.host.invalid"],
        ),
        ("ping_pong", &["-s", "7"], 1, &["expected 8 to 1048576"]),
        ("rdma_ring", &["-l", "yes"], 1, &["--last-byte yes"]),
        ("ping_pong", &["--last-byte", "force"], 1, &["--last-byte"]),
        ("srq_server", &["here"], 1, &["unexpected argument 'here'"]),
    ];
    let (fabric, qualifier) = (fabric(), qualifier());
    for (program, arguments, status, reasons) in cases {
        let arguments = [&["-p", &qualifier][..], arguments].concat();
        let child = start(&fabric, &[], program, &arguments);
        let output = child
            .wait_with_output()
            .expect("the child process was started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{program}: {stderr}");
        for reason in reasons {
            assert!(stderr.contains(reason), "{program}: {stderr}");
        }
    }
    for program in EXAMPLES {
        let help = end("help", start(&fabric, &[], program, &["-h"]), String::new());
        let help = help.expect("the help is printed without an error");
        assert!(help.starts_with(&format!("usage: {program} ")), "{help}");
        assert!(help.contains("Exit status: "), "{help}");
    }
}

#[test]
fn the_redirection_macros_call_through_the_table() {
    let child = start(&fabric(), &[], "dispatch", &[]);
    let stdout = end("dispatch", child, String::new()).unwrap_or_else(|cause| panic!("{cause}"));
    assert_eq!(stdout, "all through the table\n");
}

#[test]
fn all_are_clean_under_valgrind() {
    if !is_installed("valgrind") {
        return;
    }
    ping_pong(&VALGRIND, "50");
    rdma_ring(&VALGRIND, "100", MESSAGES);
    rdma_ring(&VALGRIND, "100", MEMORY);
    shared_queue(&VALGRIND, [1, 60, 100]);
}

/// The most frequent mistake: the server does not run, or on another qualifier.
#[test]
fn a_connection_to_a_qualifier_that_nothing_listens_on_says_so() {
    let (fabric, port) = (fabric(), qualifier());
    let arguments = ["-d", "mlx5_0", "-p", &port, "127.0.0.1"];
    let on_tcp = start_on_tcp(&fabric, "ping_pong", &arguments);
    let by_default = start(&fabric, &[], "ping_pong", &arguments);
    for (child, how) in [(on_tcp, "TCP port"), (by_default, "by rdma_cm")] {
        let stdout = end("client", child, String::new()).expect_err("nothing listens");
        let expected =
            format!("the connection to 127.0.0.1, qualifier {port}, refused: nothing listens");
        assert!(
            stdout.contains(&expected) && stdout.contains(how),
            "{stdout}"
        );
    }
}

/// The requesting and the listening program, each with a peer of an unsupported
/// version of the protocol over TCP.
#[test]
fn a_peer_of_another_version_is_refused_and_the_cause_is_printed() {
    const REQUEST: &[u8] = b"dCM\x17\x02\x01\0\0";
    const REFUSAL: &[u8] = b"dCM\x17\x02\x03\0\x01\x03";
    let cause = "version 2 of the protocol, but this side uses version 1";
    let (fabric, port) = (fabric(), qualifier());
    let common = ["-d", "mlx5_0", "-p", &port];
    let mut server = start_on_tcp(&fabric, "ping_pong", &common);
    let mut output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it listens");
    let mut peer = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    peer.write_all(REQUEST).expect("sent");
    while !line.contains(cause) {
        line.clear();
        assert_ne!(output.read_line(&mut line).expect("text"), 0, "no cause");
    }
    assert!(
        line.contains("request refused") && line.contains("127.0.0.1"),
        "{line}"
    );
    // `timeout` and the launcher forward the signal.
    let pid = libc::pid_t::try_from(server.id()).expect("a process");
    // SAFETY: a signal to a child process.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    server.wait().expect("the child process");

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let common = ["-d", "mlx5_0", "-p", &port, "127.0.0.1"];
    let client = start_on_tcp(&fabric, "ping_pong", &common);
    let (mut stream, _) = listener.accept().expect("it connects");
    stream.write_all(REFUSAL).expect("sent");
    let stdout = end("client", client, String::new()).expect_err("it is refused");
    assert!(
        stdout.contains(cause) && stdout.contains("127.0.0.1"),
        "{stdout}"
    );
}
