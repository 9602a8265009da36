//! Running a command under supervision, in three processes, so that no process
//! remains when the launcher is killed.
//!
//! ```text
//! launcher ── guardian ── command ── processes that the command starts …
//! ```
//!
//! The launcher waits for the guardian, and the guardian for the command. Both
//! forward signals down, and the exit status comes back the same way. When the
//! launcher dies, the kernel sends the guardian a signal (`PR_SET_PDEATHSIG`), and
//! the guardian kills all its descendants: it is a subreaper
//! (`PR_SET_CHILD_SUBREAPER`), so the orphans among them become its children. If the
//! guardian is killed, the kernel kills the command.
//!
//! If the command leaves processes (daemons), the launcher exits with the command's status, and
//! the guardian stays until they have ended, since the devices exist that long.
//!
//! Decision: `docs/decisions/055-launcher-with-a-guardian.md`

use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Signals that the launcher forwards to the command.
const FORWARDED: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];

/// The signal that the guardian receives when the launcher dies. Its default action is
/// to end the process.
const LAUNCHER_DIED: libc::c_int = libc::SIGIO;

/// The signal by which a guardian that stays reports the command's exit status.
const COMMAND_ENDED: libc::c_int = libc::SIGURG;

/// Maximum time that the guardian waits for the processes that it has killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The command has exited.
pub(super) struct Ended {
    /// The exit status for the launcher.
    pub(super) status: u8,
    /// Whether processes remain, after which the guardian cleans up.
    pub(super) left_processes: bool,
}

/// Runs the command until it exits, and forwards signals to it. If the launcher is killed or
/// processes remain, the guardian calls `clean_up` when all of them have exited. It calls `begin`
/// before the command; if that fails, it prints the reason, and the status is 125. It drops what `begin`
/// returns when the command has exited.
pub(super) fn supervise<B>(
    command: &mut Command,
    begin: impl FnOnce() -> Result<B, String>,
    clean_up: impl FnOnce(),
) -> io::Result<Ended> {
    let mut signals = empty_set();
    let own = [libc::SIGCHLD, LAUNCHER_DIED, COMMAND_ENDED];
    for signal in FORWARDED.into_iter().chain(own) {
        // SAFETY: the set was initialised by `empty_set`.
        unsafe { libc::sigaddset(&raw mut signals, signal) };
    }
    let before = block(&signals);
    let launcher = own_id();
    // SAFETY: this process has one thread, so the child may call any function.
    let guardian = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let status = run_guardian(command, launcher, signals, before, begin, clean_up);
            // SAFETY: ends this process, without the launcher's exit handlers.
            unsafe { libc::_exit(status.into()) };
        }
        guardian => guardian,
    };
    loop {
        if let Some(status) = reap(guardian)? {
            return Ok(Ended {
                status: exit_status(status),
                left_processes: false,
            });
        }
        let signal = wait(&signals);
        if signal.number == COMMAND_ENDED && signal.sender == Some(guardian) {
            return Ok(Ended {
                status: signal.value as u8,
                left_processes: true,
            });
        }
        if signal.is_for_command() {
            signal.forward_to(guardian);
        }
    }
}

/// Runs the guardian. Returns its exit status.
fn run_guardian<B>(
    command: &mut Command,
    launcher: libc::pid_t,
    signals: libc::sigset_t,
    before: libc::sigset_t,
    begin: impl FnOnce() -> Result<B, String>,
    clean_up: impl FnOnce(),
) -> u8 {
    // SAFETY: prctl(2) with numbers, and with a C string. The name is shown
    // by `ps`.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"mlx5-emu-guard".as_ptr());
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
    // With the UDP wire this process receives for the programs of other launchers, too, which are
    // not to stop when the terminal stops this job.
    let mut stops = empty_set();
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: the set was initialised by `empty_set`.
        unsafe { libc::sigaddset(&raw mut stops, signal) };
    }
    block(&stops);
    if !signal_on_parent_death(launcher, LAUNCHER_DIED) {
        clean_up();
        return 128 + libc::SIGKILL as u8;
    }
    let _begun = match begin() {
        Ok(begun) => begun,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "mlx5-emu: {reason}");
            clean_up();
            return 125;
        }
    };
    let guardian = own_id();
    // SAFETY: the closure runs between fork and exec and makes
    // async-signal-safe calls with its own copies.
    unsafe {
        command.pre_exec(move || {
            if !signal_on_parent_death(guardian, libc::SIGKILL) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            Ok(())
        });
    }
    let child = match command.spawn() {
        Ok(child) => child.id().cast_signed(),
        Err(error) => {
            let program = command.get_program().display();
            let _ = writeln!(io::stderr(), "mlx5-emu: cannot run {program}: {error}");
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            return if is_missing { 127 } else { 126 };
        }
    };
    loop {
        match reap(child) {
            Ok(Some(status)) => {
                let status = exit_status(status);
                if reap(-1).is_ok() {
                    outlive(launcher, status, &signals);
                    clean_up();
                }
                return status;
            }
            Ok(None) => {}
            Err(_) => return 126,
        }
        let signal = wait(&signals);
        if parent() != launcher {
            kill(child);
            kill_all();
            clean_up();
            return 128 + libc::SIGKILL as u8;
        }
        // A signal to the whole process group reaches the launcher as well.
        if signal.sender == Some(launcher) && signal.is_for_command() {
            signal.forward_to(child);
        }
    }
}

/// Sends the launcher the command's exit status, with which it exits, and waits until all
/// processes that the command has left have ended.
fn outlive(launcher: libc::pid_t, status: u8, signals: &libc::sigset_t) {
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(status.into()),
    };
    // SAFETY: numbers and a C string. The launcher's output ends when the launcher exits and the
    // processes close it, so this process must not hold it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
        libc::sigqueue(launcher, COMMAND_ENDED, value);
    }
    while reap(-1).is_ok() {
        wait(signals);
    }
}

/// Requests a signal to this process when its parent dies. Returns `false` if the
/// parent has died already.
fn signal_on_parent_death(expected: libc::pid_t, signal: libc::c_int) -> bool {
    // SAFETY: prctl(2) with numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
    parent() == expected
}

/// Returns the process ID of this process.
fn own_id() -> libc::pid_t {
    // SAFETY: getpid(2) has no preconditions.
    unsafe { libc::getpid() }
}

/// Returns the process ID of the parent.
fn parent() -> libc::pid_t {
    // SAFETY: getppid(2) has no preconditions.
    unsafe { libc::getppid() }
}

/// Reaps all children that have exited, and returns the status of `awaited` if it is
/// among them. The others are orphans that the command has left.
fn reap(awaited: libc::pid_t) -> io::Result<Option<ExitStatus>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => return Ok(None),
            -1 => return Err(io::Error::last_os_error()),
            child if child == awaited => return Ok(Some(ExitStatus::from_raw(status))),
            _ => {}
        }
    }
}

/// Returns the status of a command as shells report it.
fn exit_status(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map_or(0, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(signalled)).unwrap_or(u8::MAX)
}

/// A received signal.
struct Signal {
    number: libc::c_int,
    /// `None` if the kernel sent it, 0 if the sender is outside this PID namespace, as the engine
    /// of a container is.
    sender: Option<libc::pid_t>,
    /// What the sender has attached ([`COMMAND_ENDED`]).
    value: usize,
}

impl Signal {
    /// Returns whether the signal is forwarded. Signals from the terminal are not: the
    /// kernel sends them to the command as well.
    fn is_for_command(&self) -> bool {
        FORWARDED.contains(&self.number) && self.sender.is_some()
    }

    /// Sends the signal to a child that was not reaped yet, so that its process ID is
    /// not reused.
    fn forward_to(&self, child: libc::pid_t) {
        // SAFETY: kill(2) with numbers.
        unsafe { libc::kill(child, self.number) };
    }
}

/// Waits for one of these signals, which must be blocked.
fn wait(signals: &libc::sigset_t) -> Signal {
    // SAFETY: an all-zero siginfo_t is a valid one.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is initialised and `info` is writable.
    let number = unsafe { libc::sigwaitinfo(signals, &raw mut info) };
    let (sender, value) = match info.si_code {
        1.. => (None, 0),
        // SAFETY: both are valid in a signal that a process has sent; the value is 0 if it has
        // attached none.
        _ => unsafe { (Some(info.si_pid()), info.si_value().sival_ptr.addr()) },
    };
    Signal {
        number,
        sender,
        value,
    }
}

/// Blocks signals in this process, which has one thread. Returns the previous signal
/// mask.
fn block(signals: &libc::sigset_t) -> libc::sigset_t {
    let mut before = empty_set();
    // SAFETY: both sets are initialised.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, signals, &raw mut before) };
    before
}

fn kill(child: libc::pid_t) {
    // SAFETY: kill(2) with numbers; the process ID of a child that was not reaped is
    // not reused.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

/// Kills all descendants of this process.
fn kill_all() {
    let end = Instant::now() + KILL_TIMEOUT;
    while Instant::now() < end {
        children().into_iter().for_each(kill);
        // Fails if there are no children any more.
        if reap(-1).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the processes whose parent is this process.
fn children() -> Vec<libc::pid_t> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = own_id();
    let is_child = |process: &libc::pid_t| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        parent_in_stat(&stat) == Some(own) && is_own_child(*process)
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

/// Returns whether a process is a child of this process according to the kernel.
/// `/proc` may belong to another PID namespace, with other process IDs.
fn is_own_child(process: libc::pid_t) -> bool {
    // SAFETY: an all-zero siginfo_t is a valid one.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is writable; WNOWAIT leaves the status in place.
    unsafe { libc::waitid(libc::P_PID, process.cast_unsigned(), &raw mut info, options) == 0 }
}

/// Returns the parent's process ID in a line of `/proc/PID/stat`. The process name before
/// it may contain any characters, also parentheses and spaces.
fn parent_in_stat(stat: &str) -> Option<libc::pid_t> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: sigset_t is plain integers, for which zero is valid; sigemptyset
    // then makes it the empty set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_after_a_process_name_with_any_characters() {
        assert_eq!(parent_in_stat("7 (a b) c) (S)) S 42 1 1"), Some(42));
        assert_eq!(parent_in_stat("7 (sh) R 1 1"), Some(1));
        assert_eq!(parent_in_stat(""), None);
    }
}
