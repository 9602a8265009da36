//! Debian's programs for uDAPL 2.0, unmodified, on the emulated adapter.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::emulator::{artifact, fabric, launcher};

/// A folder with the library under its soname and as a provider, and a dat.conf.
struct Folder {
    path: PathBuf,
    /// Where programs find libdat2.so.2.
    libraries: PathBuf,
    /// The connection manager, as `DAT_CM`.
    manager: &'static str,
    /// The data path, as `DAT_PATH`.
    data_path: &'static str,
    /// Options of the launcher.
    options: &'static [&'static str],
    /// The address of service points, as `DAT_LISTEN`.
    listen: Ipv4Addr,
}

/// Returns an address of this host for the service points of this process: the programs
/// have fixed ports, on which another test may listen.
fn address() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 77, high, low)
}

/// The registry and the provider that open the adapter.
#[derive(Clone, Copy)]
enum Provider {
    /// Both are this library.
    Ours,
    /// This library loads Debian's provider.
    Theirs,
    /// Debian's registry loads this library.
    OursInTheirRegistry,
    /// Both are Debian's, over rdma_cm.
    AllTheirs,
}

impl Folder {
    /// Makes a folder for programs that use this library, or Debian's.
    fn new(name: &str, provider: Provider) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        let libraries = path.join(match provider {
            Provider::Ours | Provider::Theirs => "own",
            Provider::OursInTheirRegistry | Provider::AllTheirs => "none",
        });
        for folder in [path.join("own"), path.join("none")] {
            fs::create_dir_all(folder).expect("the folder can be created");
        }
        let library = artifact("libdat2.so");
        let guest = path.join("libudapl2.so.2");
        symlink(&library, path.join("own/libdat2.so.2")).expect("a link");
        symlink(&library, &guest).expect("a link");
        let library = match provider {
            Provider::Ours => Path::new("libdat2.so.2"),
            Provider::Theirs => Path::new("libdaploscm.so.2"),
            Provider::OursInTheirRegistry => &guest,
            Provider::AllTheirs => Path::new("libdaplofa.so.2"),
        };
        // Their provider for rdma_cm takes an address, and a number that it ignores.
        let device = match provider {
            Provider::AllTheirs => "127.0.0.1 0",
            _ => "mlx5_0 1",
        };
        let conf = format!(
            "emu u2.0 nonthreadsafe default {} dapl.2.0 \"{device}\" \"\"\n",
            library.display()
        );
        fs::write(path.join("dat.conf"), conf).expect("the file can be written");
        Self {
            path,
            libraries,
            manager: "auto",
            data_path: "auto",
            options: &[],
            listen: address(),
        }
    }

    /// Starts a program, which ends within a limit, in a process of its own on the
    /// fabric.
    fn start(&self, fabric: &str, program: &[&str]) -> Child {
        Command::new("timeout")
            .arg("300")
            .arg(launcher())
            .args(["run", "--fabric", fabric])
            .args(self.options)
            .arg("--")
            .args(program)
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("DAT_OVERRIDE", self.path.join("dat.conf"))
            .env("DAT_LISTEN", self.listen.to_string())
            .env("DAT_CM", self.manager)
            .env("DAT_PATH", self.data_path)
            .env("DAT_DBG_TYPE", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|cause| panic!("timeout: {cause}"))
    }
}

fn finish(child: Child) -> (bool, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("the process was started");
    let text = format!(
        "{status}\n{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    (status.success(), text)
}

/// Waits until a server listens on a port of TCP.
fn await_listener(on: Ipv4Addr, port: u16) {
    // The kernel prints the address as a number of the host.
    let listener = format!(
        "{:08X}:{port:04X} 00000000:0000 0A",
        u32::from_ne_bytes(on.octets())
    );
    let deadline = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string("/proc/net/tcp").is_ok_and(|table| table.contains(&listener)) {
        assert!(Instant::now() < deadline, "nothing listens on port {port}");
        sleep(Duration::from_millis(20));
    }
}

/// Returns whether a program is installed: some distributions do not have them.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("-U")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed (Debian 12: apt-get install dapl2-utils)");
    }
    found
}

/// Starts a server and, once it listens, its clients, one after the other. All must succeed and print
/// a text.
fn serve(
    folder: &Folder,
    listens: &[(Ipv4Addr, u16)],
    server: &[&str],
    clients: &[(&[&str], &str)],
    last: &str,
) {
    let text = serve_once(folder, listens, server, clients);
    assert!(text.contains(last), "server: {text}");
}

/// As [`serve`], and returns what the server printed.
fn serve_once(
    folder: &Folder,
    listens: &[(Ipv4Addr, u16)],
    server: &[&str],
    clients: &[(&[&str], &str)],
) -> String {
    let fabric = fabric();
    let server = folder.start(&fabric, server);
    for &(on, port) in listens {
        await_listener(on, port);
    }
    for (client, expected) in clients {
        let (is_success, text) = finish(folder.start(&fabric, client));
        assert!(is_success && text.contains(expected), "{client:?}: {text}");
    }
    let (is_success, text) = finish(server);
    assert!(is_success, "server: {text}");
    text
}

/// Takes the lock for the port that `dtest` and `dtestx` have on all addresses.
fn lock() -> fs::File {
    // perf-scripts/lib/tools takes it, too.
    let lock = std::env::temp_dir().join("mlx5-emu-dtest.lock");
    let lock = fs::File::create(lock).expect("the file can be created");
    lock.lock().expect("a lock");
    lock
}

/// What `dtest` prints: it omits reads and the ping-pong after them if the attributes of the
/// adapter have no reads.
const DTEST_PASSED: [&str; 3] = [
    "RCV RDMA read buffer contains:",
    "Message PingPong:",
    "DAPL Test Complete. PASSED",
];

/// Connections, private data, RDMA writes, reads and messages of 4 MiB. One after the other,
/// because the server also has a port of its own, on all addresses.
#[test]
fn dtest_passes_with_each_registry_and_provider() {
    if !is_installed("dtest") {
        return;
    }
    let _lock = lock();
    for (name, provider) in [
        ("dtest", Provider::Ours),
        ("dtest-theirs", Provider::Theirs),
        ("dtest-guest", Provider::OursInTheirRegistry),
    ] {
        let folder = Folder::new(name, provider);
        // Debian's provider does not listen where this library is asked to.
        let listen = match provider {
            Provider::Theirs => Ipv4Addr::LOCALHOST,
            _ => folder.listen,
        };
        let folder = Folder { listen, ..folder };
        both(&["dtest", "-P", "emu"], &DTEST_PASSED, &folder, &folder);
    }
}

/// Transactions of messages, reads and writes on several endpoints and threads, the
/// performance of each, and the end of the server.
#[test]
fn dapltest_passes_between_two_processes() {
    if !is_installed("dapltest") {
        return;
    }
    let host = address().to_string();
    let end = "End of Work -- Client Exiting";
    let client = |more: &[&'static str]| [&["dapltest", "-T"], more].concat();
    let transactions = [
        client(&["T", "-D", "emu", "-i", "5", "-t", "2", "-w", "2"]),
        vec![
            "-s", &host, "client", "SR", "256", "4", "server", "SR", "256", "4",
        ],
        vec!["client", "RW", "4096", "server", "RR", "2048"],
    ]
    .concat();
    let performance = client(&["P", "-D", "emu", "-i", "64"]);
    let performance = [performance, vec!["-s", &host, "RW", "4096"]].concat();
    let quit = [client(&["Q", "-D", "emu"]), vec!["-s", &host]].concat();
    let clients: [(&[&str], &str); 3] = [
        (&transactions, end),
        (&performance, "Operation Throughput"),
        (&quit, end),
    ];
    let server = ["dapltest", "-T", "S", "-D", "emu"];
    let folder = Folder {
        // The test sees listeners of TCP only.
        manager: "socket",
        ..Folder::new("dapltest", Provider::Ours)
    };
    serve(
        &folder,
        &[(address(), 62000)],
        &server,
        &clients,
        "Exiting.",
    );
}

/// Ends a server that waits for ever.
fn stop(server: Child) {
    // The process is timeout(1), which passes the signal on.
    let process = server.id().to_string();
    let killed = Command::new("kill").arg(process).status();
    assert!(killed.is_ok_and(|status| status.success()));
    finish(server);
}

/// Runs `dtestx`: RDMA writes with immediate data, compare-and-swap and fetch-and-add, each
/// in both directions, and the query without an open adapter.
fn dtestx(server: &Folder, client: &Folder) {
    let passed = ["IB extension test - immed/atomic test PASSED"];
    both(&["dtestx", "-P", "emu"], &passed, server, client);
}

/// Runs a program as server and as client. Both must print all texts.
///
/// The server tells the client its address before it listens, so the client may be
/// refused. Both are then started again.
fn both(program: &[&str], passed: &[&str], server: &Folder, client: &Folder) {
    // DAT_CONNECTION_EVENT_NON_PEER_REJECTED, from dtest and from dtestx.
    const REFUSED: [&str; 2] = [
        "Error unexpected conn event : 0x4003",
        "unexpected event, !conn established: 0x4003",
    ];
    let host = server.listen.to_string();
    let has_passed = |side: &str, child| {
        let (is_success, text) = finish(child);
        let prints_all = passed.iter().all(|passed| text.contains(passed));
        let is_refused = REFUSED.iter().any(|refused| text.contains(refused));
        assert!(is_refused || is_success && prints_all, "{side}: {text}");
        !is_refused
    };
    let passes = || {
        let fabric = fabric();
        let server = server.start(&fabric, program);
        await_listener(Ipv4Addr::UNSPECIFIED, 15828);
        let words = [program, &["-h", &host]].concat();
        if !has_passed("client", client.start(&fabric, &words)) {
            stop(server);
            return false;
        }
        has_passed("server", server)
    };
    assert!((0..20).any(|_| passes()), "the client was always refused");
}

#[test]
fn dtestx_passes_on_both_data_paths_and_with_each_registry() {
    if !is_installed("dtestx") {
        return;
    }
    let _lock = lock();
    for (name, data_path, provider) in [
        ("dtestx", "direct", Provider::Ours),
        ("dtestx-verbs", "verbs", Provider::Ours),
        ("dtestx-guest", "direct", Provider::OursInTheirRegistry),
    ] {
        let folder = Folder {
            data_path,
            ..Folder::new(name, provider)
        };
        dtestx(&folder, &folder);
    }
}

/// This library and Debian's on one connection, over rdma_cm: the same messages, and
/// immediate data in the same byte order.
#[test]
fn dtest_and_dtestx_pass_between_this_library_and_debian_s() {
    if !is_installed("dtest") || !is_installed("dtestx") {
        return;
    }
    let _lock = lock();
    let folder = |name, provider| Folder {
        manager: "rdma_cm",
        options: &["--link", "roce"],
        listen: Ipv4Addr::LOCALHOST,
        ..Folder::new(name, provider)
    };
    let ours = folder("dtestx-ours", Provider::Ours);
    let theirs = folder("dtestx-theirs", Provider::AllTheirs);
    for (server, client) in [(&ours, &theirs), (&theirs, &ours)] {
        dtestx(server, client);
        let program = ["dtest", "-P", "emu", "-b", "4096"];
        both(&program, &DTEST_PASSED, server, client);
    }
}

/// Connections one after the other; and messages to a shared receive queue, whose end the
/// program learns from an asynchronous event.
#[test]
fn dtestcm_and_dtestsrq_pass_between_two_processes() {
    if !is_installed("dtestcm") || !is_installed("dtestsrq") {
        return;
    }
    let _lock = lock();
    let host = address().to_string();
    let listens = [(address(), 45248), (Ipv4Addr::UNSPECIFIED, 15828)];
    for data_path in ["direct", "verbs"] {
        let folder = Folder {
            // The test sees listeners of TCP only.
            manager: "socket",
            data_path,
            ..Folder::new(&format!("dtestcm-{data_path}"), Provider::Ours)
        };
        let server = ["dtestcm", "-P", "emu", "-c", "40"];
        let client = [&server[..], &["-h", &host]].concat();
        let passed = "DAPL Connection Test Complete.";
        let clients: [(&[&str], &str); 1] = [(&client, passed)];
        // The client disconnects as soon as it is connected. A server that is late takes the
        // events of these disconnects for those of connections, and then waits for the wrong ones.
        let is_late = |text: &str| text.contains("Error disconnect_eps: DAT_INVALID_HANDLE");
        let passes = || {
            let text = serve_once(&folder, &listens, &server, &clients);
            assert!(text.contains(passed) || is_late(&text), "server: {text}");
            !is_late(&text)
        };
        assert!((0..20).any(|_| passes()), "the server was always late");
        let server = ["dtestsrq", "-P", "emu", "-c", "3", "-B", "4"];
        let client = [&server[..], &["-h", &host]].concat();
        let passed = "DAPL RC SRQ Test Complete.";
        let clients: [(&[&str], &str); 1] = [(&client, passed)];
        serve(&folder, &listens[..1], &server, &clients, passed);
    }
}
