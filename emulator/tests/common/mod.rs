//! Runs programs under the launcher, with time limits.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[path = "../../../tests/support/free_port.rs"]
mod free_port;

pub(crate) use free_port::free_port;

/// Upper bound for any wait, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn launcher() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_mlx5-emu"))
}

/// Returns the library that the launcher preloads.
pub(crate) fn library() -> PathBuf {
    let newest = launcher().with_file_name("deps/libmlx5emu.so");
    if newest.is_file() {
        newest
    } else {
        launcher().with_file_name("libmlx5emu.so")
    }
}

/// Returns `mlx5-emu run` with these options, up to the `--`.
pub(crate) fn run<S: AsRef<OsStr>>(options: &[S]) -> Command {
    let mut command = Command::new(launcher());
    command.arg("run").args(options).arg("--");
    command
}

/// Returns the name of a fabric for this test alone.
pub(crate) fn fabric() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "test-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Returns the path of a program, or prints that it is not installed.
pub(crate) fn find(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|it| it.is_file());
    if found.is_none() {
        skipped(&format!(
            "{program} is not installed (apt-get install {package})"
        ));
    }
    found
}

/// Compiles a C program of this directory that uses libibverbs and librdmacm. Returns its path,
/// which is this call's own.
pub(crate) fn compiled(source: &str) -> PathBuf {
    compiled_with(source, &["-lrdmacm", "-libverbs"])
}

/// Compiles a C program of this directory with more options.
pub(crate) fn compiled_with(source: &str, options: &[&str]) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!(
        "{}-{number}-{}",
        std::process::id(),
        source.replace('/', "-")
    );
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(source);
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .args(options)
        .output()
        .expect("cc is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    program
}

/// Prints a skip reason on the real standard error, past the test harness.
pub(crate) fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {why}");
}

/// The result of a program.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

impl Outcome {
    /// Asserts success. Returns the output.
    pub(crate) fn expect_success(self, what: &str) -> String {
        assert!(
            self.status.success(),
            "{what}: {}\n{}",
            self.status,
            self.output
        );
        self.output
    }
}

/// A running program whose output is collected.
pub(crate) struct Running {
    child: Child,
    readers: Vec<JoinHandle<String>>,
}

pub(crate) fn start(mut command: Command) -> Running {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let collect = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let readers = vec![
        collect(Box::new(child.stdout.take().expect("piped"))),
        collect(Box::new(child.stderr.take().expect("piped"))),
    ];
    Running { child, readers }
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }

    /// Asks the program to end. The launcher ends its command too.
    pub(crate) fn terminate(&mut self) {
        // SAFETY: the child was not waited for if it runs, so its process id is not reused.
        unsafe { libc::kill(self.pid(), libc::SIGTERM) };
    }

    /// Waits for the end of the program. Fails the test if it does not end.
    pub(crate) fn finish(mut self) -> Outcome {
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                break Some(status);
            }
            if Instant::now() > end {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if status.is_none() {
            // The launcher ends its command too.
            // SAFETY: the child was not waited for, so its process id is not reused.
            unsafe { libc::kill(self.pid(), libc::SIGTERM) };
        }
        let output: String = self
            .readers
            .into_iter()
            .map(|it| it.join().unwrap())
            .collect();
        let status = status.unwrap_or_else(|| panic!("no end after {TIMEOUT:?}:\n{output}"));
        Outcome { status, output }
    }
}

/// Runs a program to its end.
pub(crate) fn finish(command: Command) -> Outcome {
    start(command).finish()
}

/// Runs a program in two processes, which must both succeed: a server, and a client that
/// connects to its TCP port (`-p`). `options` are the launcher's; `through` is a command
/// that starts the program.
pub(crate) fn pair_with(
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

/// Waits until a socket listens on a port, without connecting to it.
pub(crate) fn await_listener(port: u16) {
    const LISTEN: &str = "0A";
    await_socket(port, LISTEN);
}

/// Waits until a connection to a port is established.
pub(crate) fn await_connection(port: u16) {
    const ESTABLISHED: &str = "01";
    await_socket(port, ESTABLISHED);
}

fn await_socket(port: u16, wanted: &str) {
    let local_end = format!(":{port:04X}");
    let is_there = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        fields
            .next()
            .is_some_and(|local| local.ends_with(&local_end))
            && fields.nth(1).is_some_and(|state| state == wanted)
    };
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
        if tables
            .iter()
            .any(|it| std::fs::read_to_string(it).is_ok_and(|it| it.lines().any(is_there)))
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no socket in state {wanted} on port {port}");
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not after {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the parent of a process.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}
