//! Runs dat-bench with a time limit, with and without the emulated device.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) mod schema;

#[path = "../../../tests/support/launcher.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod artifacts;

use artifacts::artifact;
pub(crate) use artifacts::launcher;

/// Time limit of each program.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit status; none if a signal ended the program.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Returns standard output and standard error.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Fails the test unless the exit status is this one and the output has these
    /// words.
    #[track_caller]
    pub(crate) fn expect(self, status: i32, words: &[&str]) -> Self {
        let text = self.text();
        assert_eq!(self.status, Some(status), "{text}");
        // Sentences may be broken into lines.
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            let found = text.contains(word) || joined.contains(word);
            assert!(found, "'{word}' is missing in:\n{text}");
        }
        assert!(!text.contains("panicked"), "{text}");
        self
    }
}

pub(crate) fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_dat-bench"))
}

/// Returns a dat-bench with these arguments, not under the launcher.
pub(crate) fn bench(words: &str) -> Command {
    let mut command = Command::new(executable());
    command.args(words.split_whitespace());
    command
        .env_remove("MLX5EMU_FABRIC")
        .env_remove("DAT_BENCH_RELAUNCHED")
        .env_remove("DAT_BENCH_LIBDAT")
        .env_remove("DAT_BENCH_LIBDAT2");
    command
}

/// Returns a dat-bench with these arguments under the launcher, on a fabric of
/// this test.
pub(crate) fn emulated(fabric: &str, words: &str) -> Command {
    let mut command = Command::new(launcher());
    command.args([
        "run",
        "--fabric",
        &format!("{fabric}-{}", std::process::id()),
        "--",
    ]);
    command.arg(executable()).args(words.split_whitespace());
    command
}

/// Runs a program to its end. Kills it and fails the test after [`LIMIT`].
#[track_caller]
pub(crate) fn run(mut command: Command) -> Ended {
    Running::start(&mut command).end()
}

/// A running program; killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    seen: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        // Its own process group, so that its children are killed with it.
        command.process_group(0);
        command
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

    /// Reads up to the line that contains these words, and returns this line.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        let guard = Guard::new(&self.child);
        loop {
            let mut line = String::new();
            let length = self.lines.read_line(&mut line).expect("readable");
            if length == 0 {
                let killed = guard.end();
                let mut stderr = String::new();
                let _ = self
                    .child
                    .stderr
                    .take()
                    .expect("piped")
                    .read_to_string(&mut stderr);
                panic!(
                    "the program ended (killed: {killed}) before '{words}':\n{}{stderr}",
                    self.seen
                );
            }
            self.seen.push_str(&line);
            if line.contains(words) {
                guard.end();
                return line;
            }
        }
    }

    /// Kills the program with SIGKILL.
    pub(crate) fn kill(&mut self) {
        kill_group(self.child.id());
    }

    /// Sends the program a SIGINT, which the launcher forwards.
    pub(crate) fn interrupt(&mut self) {
        let id = i32::try_from(self.child.id()).expect("process numbers are small");
        // SAFETY: kill accesses no memory, and the program is not reaped yet.
        unsafe { libc::kill(id, libc::SIGINT) };
    }

    /// Waits for the end of the program.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let guard = Guard::new(&self.child);
        let mut errors = self.child.stderr.take().expect("piped");
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            errors
                .read_to_string(&mut text)
                .map(|_| text)
                .unwrap_or_default()
        });
        let mut stdout = core::mem::take(&mut self.seen);
        self.lines.read_to_string(&mut stdout).expect("readable");
        let stderr = stderr.join().expect("reads");
        let killed = guard.end();
        let status = self.child.wait().expect("the program was started");
        assert!(
            !killed,
            "the program did not end within {LIMIT:?}:\n{stdout}{stderr}"
        );
        Ended {
            status: status.code(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails leaves no process; one that has ended needs no kill.
        if let Ok(None) = self.child.try_wait() {
            kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

fn kill_group(leader: u32) {
    let group = i32::try_from(leader).expect("process numbers are small");
    // SAFETY: kill accesses no memory. `start` made the group, and its leader is
    // not reaped yet, so the number is still that of the group.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Kills a program after [`LIMIT`].
struct Guard {
    over: mpsc::Sender<()>,
    watch: JoinHandle<bool>,
}

impl Guard {
    fn new(child: &Child) -> Self {
        let (over, told) = mpsc::channel();
        let id = child.id();
        let watch = thread::spawn(move || {
            let late = told.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                kill_group(id);
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

/// Returns the path of `libdat.so` in the folder of dat-bench, where `--api c`
/// finds it.
pub(crate) fn libdat() -> &'static Path {
    static LIBDAT: OnceLock<PathBuf> = OnceLock::new();
    LIBDAT.get_or_init(|| artifact("libdat.so"))
}

/// Returns the path of `libdat2.so`, likewise for `--api c2`.
pub(crate) fn libdat2() -> &'static Path {
    static LIBDAT2: OnceLock<PathBuf> = OnceLock::new();
    LIBDAT2.get_or_init(|| artifact("libdat2.so"))
}

/// Returns the figures of the table's row for a size: all columns of perftest. A figure without enough samples is not a
/// number.
#[track_caller]
pub(crate) fn row(ended: &Ended, size: u32) -> Vec<f64> {
    let wanted = size.to_string();
    let lines = ended.stdout.lines();
    let cells = lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|cells| cells.len() >= 11 && cells[0] == wanted)
        .unwrap_or_else(|| panic!("no row for {size} in:\n{}", ended.text()));
    let figure = |cell: &str| match cell {
        "-" => f64::NAN,
        cell => cell.parse().expect("a number"),
    };
    cells[..10].iter().map(|cell| figure(cell)).collect()
}

/// Checks that a row has this many samples, and that its figures are in the order
/// of quantiles of one distribution.
#[track_caller]
pub(crate) fn check_row(ended: &Ended, size: u32, iterations: u64) {
    let cells = row(ended, size);
    assert_eq!(cells[1], iterations as f64);
    let (min, max, typical, mean) = (cells[2], cells[3], cells[4], cells[5]);
    // The median comes from buckets of 0.1 %.
    assert!(
        min > 0.0 && min <= typical * 1.001 && typical <= max,
        "{cells:?}"
    );
    assert!(min <= mean && mean <= max && cells[6] >= 0.0, "{cells:?}");
    // Ten samples are above each percentile that is there.
    let mut least = 0.0;
    for (percentile, samples) in cells[7..].iter().zip([1000, 10_000, 100_000]) {
        assert_eq!(percentile.is_nan(), iterations < samples, "{cells:?}");
        assert!(
            percentile.is_nan() || (least..=max).contains(percentile),
            "{cells:?}"
        );
        least = percentile.max(least);
    }
}

/// Returns the path of a result file.
pub(crate) fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Starts a server of `lat`. Returns it and its port when it waits for a client.
pub(crate) fn server(fabric: &str, words: &str) -> (Running, String) {
    server_of("lat", fabric, words)
}

/// Starts a server of a command. Returns it and its port when it waits for a client.
pub(crate) fn server_of(command: &str, fabric: &str, words: &str) -> (Running, String) {
    let words = format!("{command} -p 0 {words}");
    let mut server = Running::start(&mut emulated(fabric, &words));
    let line = server.wait_for("waiting on TCP port");
    let port = line.split_whitespace().nth(4).expect("the port").to_owned();
    (server, port)
}

/// Returns a dat-bench with these arguments, on an emulated device with these
/// limits.
pub(crate) fn limited(fabric: &str, limits: &str, words: &str) -> Command {
    let mut command = emulated(fabric, words);
    command.env("MLX5EMU_LIMITS", limits);
    command
}
