//! Runs dat-check with a time limit, with and without the emulated device.

// Each test binary uses some of these.
#![allow(dead_code, unused_imports)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[path = "../../../../tests/support/launcher.rs"]
mod artifacts;
#[path = "../../../../tests/support/free_port.rs"]
mod free_port;

use artifacts::{fabric, launcher};
pub(crate) use free_port::free_port;

/// Time limit of each program.
const LIMIT: Duration = Duration::from_secs(60);

/// Entries of every kind; the number of a line is part of the expected results.
pub(crate) const CONF: &str = r#"# names
fast u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 wait=poll" ""
fast u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 wait=block" ""
gone u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_7 1" ""
noport u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 3" ""
badkey u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 colour=red" ""
badvalue u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 wait=sleep" ""
rcm u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 cm=rdma_cm" ""
gid u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 gid=200" ""
address u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 listen=192.0.2.77" ""
interface u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "noif0 0" ""
safe u1.2 threadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1" ""
missing u1.2 nonthreadsafe default libno-such-provider.so.1 other.1.2 "ib0 0" ""
other u1.2 nonthreadsafe default libibverbs.so.1 other.1.2 "ib0 0" ""
newer u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "ib0 0" ""
kernel k1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1" ""
off u1.2 nonthreadsafe nondefault libdat.so.1 udapl.1.2 "mlx5_0 1" ""
broken u1.2 nonthreadsafe
second u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_7 1" ""
second u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1" ""
ended u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 wait=sleep" ""
ended u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1" ""
mlx5_0 u1.2 threadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1 wait=block" ""
fast u1.2 threadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1" ""
eighth u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 "mlx5_0 1" "sl=3 colour=red"
"#;

/// A folder that is deleted when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("dat-check-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, text).expect("writable");
        path
    }

    pub(crate) fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode))
            .expect("the mode can be set");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a dat-check with these arguments, not on the emulated device.
pub(crate) fn check(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat-check"));
    command.args(words.split_whitespace());
    without_variables(&mut command);
    command
}

/// Returns a dat-check on the emulated device, on a fabric of its own.
pub(crate) fn emulated(words: &str) -> Command {
    emulated_with(&[], words)
}

/// Returns a dat-check on an emulated device with options of the launcher.
pub(crate) fn emulated_with(options: &[&str], words: &str) -> Command {
    on_fabric(&fabric(), options, words)
}

pub(crate) fn on_fabric(fabric: &str, options: &[&str], words: &str) -> Command {
    let mut command = Command::new(launcher());
    command
        .args(["run", "--fabric", fabric])
        .args(options)
        .arg("--");
    command.arg(env!("CARGO_BIN_EXE_dat-check"));
    command.args(words.split_whitespace());
    without_variables(&mut command);
    command
}

/// Removes what the environment of the tests may set.
fn without_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("DAT_") || text.starts_with("MLX5EMU_") {
            command.env_remove(&name);
        }
    }
}

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Fails the test unless the output has these words, wherever its lines are broken.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) {
        let text = format!("{}{}", self.stdout, self.stderr);
        let unbroken = text.replace("\n              ", " ");
        for words in words {
            let found = text.contains(words) || unbroken.contains(words);
            assert!(found, "'{words}' is missing in:\n{text}");
        }
    }
}

/// Runs a program to its end. Fails the test unless the exit status is this one.
#[track_caller]
pub(crate) fn finish(mut command: Command, status: i32) -> Ended {
    Running::start(&mut command).end(status)
}

/// Parses the output.
#[track_caller]
pub(crate) fn json(ended: Ended) -> serde_json::Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Adds the names of all fields of a document.
pub(crate) fn fields(value: &serde_json::Value, all: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                all.push(name.clone());
                fields(value, all);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| fields(value, all)),
        _ => {}
    }
}

/// Starts a listening side. Returns it with its fabric and its port when it waits for a peer.
pub(crate) fn server(name: &str) -> (Running, String, u16) {
    server_with("--listen", name)
}

/// [`server`] with this option.
pub(crate) fn server_with(option: &str, name: &str) -> (Running, String, u16) {
    let fabric = fabric();
    // Another program may take the port meanwhile.
    for _ in 0..5 {
        let port = free_port();
        let words = format!("{option} --port {port} {name}");
        let mut running = Running::start(&mut on_fabric(&fabric, &[], &words));
        if running.read_until("listening as") {
            return (running, fabric, port);
        }
    }
    panic!("no port is free");
}

/// A running program; killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    seen: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        // Its own process group, so that its children are killed with it.
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            lines,
            seen: String::new(),
        }
    }

    /// Reads up to a line with these words. Returns `false` if the program ends before.
    fn read_until(&mut self, words: &str) -> bool {
        let limit = Limit::start(self.child.id());
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("readable") > 0 {
            self.seen.push_str(&line);
            if line.contains(words) {
                limit.end();
                return true;
            }
            line.clear();
        }
        limit.end();
        false
    }

    /// Kills the program with SIGKILL.
    pub(crate) fn kill(&mut self) {
        kill_group(self.child.id());
        let _ = self.child.wait();
    }

    /// Waits for the end of the program, and checks its exit status.
    #[track_caller]
    pub(crate) fn end(mut self, expected: i32) -> Ended {
        let limit = Limit::start(self.child.id());
        let mut errors = self.child.stderr.take().expect("piped");
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        let mut stdout = core::mem::take(&mut self.seen);
        self.lines.read_to_string(&mut stdout).expect("readable");
        let stderr = stderr.join().expect("it reads only");
        let late = limit.end();
        let status = self.child.wait().expect("it was started");
        assert!(!late, "no end within {LIMIT:?}:\n{stdout}{stderr}");
        assert_eq!(status.code(), Some(expected), "{stdout}{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        Ended { stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

fn kill_group(leader: u32) {
    let group = i32::try_from(leader).expect("process numbers are small");
    // SAFETY: kill accesses no memory. `start` made the group, and its leader is not reaped yet.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Kills a program after [`LIMIT`].
struct Limit {
    over: mpsc::Sender<()>,
    watch: thread::JoinHandle<bool>,
}

impl Limit {
    fn start(leader: u32) -> Self {
        let (over, told) = mpsc::channel();
        let watch = thread::spawn(move || {
            let late = told.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                kill_group(leader);
            }
            late
        });
        Self { over, watch }
    }

    /// Returns whether the program was killed.
    fn end(self) -> bool {
        drop(self.over);
        self.watch
            .join()
            .expect("the watching thread does not panic")
    }
}
