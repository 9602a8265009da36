//! How the launcher runs a command: three processes, so that none is left
//! when the launcher is killed.
//!
//! ```text
//! launcher ── guardian ── command ── what the command starts …
//! ```
//!
//! The launcher waits for the guardian, and the guardian for the command; both
//! hand signals on, and the exit status comes back the same way. The kernel
//! tells the guardian when the launcher has died (`PR_SET_PDEATHSIG`). It then
//! kills every process below it: it is their reaper
//! (`PR_SET_CHILD_SUBREAPER`), so the children of a process that dies become
//! its own. If the guardian is killed, the kernel kills the command.

use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Signals that are meant for the command when they come to the launcher.
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

/// Says to the guardian that the launcher has died. The default action of this
/// signal is to end the process.
const LAUNCHER_DIED: libc::c_int = libc::SIGIO;

/// How long the guardian waits for what it has killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the command to its end, handing signals on meanwhile, and returns the
/// status with which the launcher is to exit. If the launcher is killed, the
/// guardian calls `clean_up` when all processes have ended.
pub(super) fn supervise(command: &mut Command, clean_up: impl FnOnce()) -> io::Result<u8> {
    let mut waited_for = empty_set();
    for signal in FORWARDED.into_iter().chain([libc::SIGCHLD]) {
        // SAFETY: the set was initialised by `empty_set`.
        unsafe { libc::sigaddset(&raw mut waited_for, signal) };
    }
    let before = block(&waited_for);
    let launcher = own_id();
    // SAFETY: this process has one thread, so the child may do anything.
    let guardian = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let status = guard(command, launcher, waited_for, before, clean_up);
            // SAFETY: ends this process; what the launcher is to do at its
            // exit is not the guardian's business.
            unsafe { libc::_exit(status.into()) };
        }
        guardian => guardian,
    };
    loop {
        if let Some(status) = reap(guardian)? {
            return Ok(exit_status(status));
        }
        let signal = wait(&waited_for);
        if signal.is_for_command() {
            signal.hand_on(guardian);
        }
    }
}

/// The life of the guardian. Returns its exit status.
fn guard(
    command: &mut Command,
    launcher: libc::pid_t,
    mut waited_for: libc::sigset_t,
    before: libc::sigset_t,
    clean_up: impl FnOnce(),
) -> u8 {
    // SAFETY: the set is initialised.
    unsafe { libc::sigaddset(&raw mut waited_for, LAUNCHER_DIED) };
    block(&waited_for);
    // SAFETY: prctl(2) with numbers, and with a C string. The name is for
    // people who list processes.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"mlx5-emu-guard".as_ptr());
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
    if !die_with(launcher, LAUNCHER_DIED) {
        clean_up();
        return 128 + libc::SIGKILL as u8;
    }
    let guardian = own_id();
    // SAFETY: the closure runs between fork and exec and makes
    // async-signal-safe calls with its own copies.
    unsafe {
        command.pre_exec(move || {
            if !die_with(guardian, libc::SIGKILL) {
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
            Ok(Some(status)) => return exit_status(status),
            Ok(None) => {}
            Err(_) => return 126,
        }
        let signal = wait(&waited_for);
        if parent() != launcher {
            kill(child);
            kill_all();
            clean_up();
            return 128 + libc::SIGKILL as u8;
        }
        // A signal to the whole process group reaches the launcher as well.
        if signal.sender == launcher && signal.is_for_command() {
            signal.hand_on(child);
        }
    }
}

/// Asks the kernel to send this process a signal when its parent dies. `false`
/// if the parent is dead already.
fn die_with(expected: libc::pid_t, signal: libc::c_int) -> bool {
    // SAFETY: prctl(2) with numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
    parent() == expected
}

fn own_id() -> libc::pid_t {
    // SAFETY: getpid(2) has no demands.
    unsafe { libc::getpid() }
}

fn parent() -> libc::pid_t {
    // SAFETY: getppid(2) has no demands.
    unsafe { libc::getppid() }
}

/// Takes the status of all children that have ended, and returns that of
/// `awaited` if it is among them. The others are orphans that the command has
/// left to the guardian.
fn reap(awaited: libc::pid_t) -> io::Result<Option<ExitStatus>> {
    loop {
        let mut status = 0;
        // SAFETY: room for a status.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => return Ok(None),
            -1 => return Err(io::Error::last_os_error()),
            child if child == awaited => return Ok(Some(ExitStatus::from_raw(status))),
            _ => {}
        }
    }
}

/// The status of a command as shells report it.
fn exit_status(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map_or(0, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(signalled)).unwrap_or(u8::MAX)
}

/// A signal that was waited for.
struct Signal {
    number: libc::c_int,
    /// 0 if the kernel sent it.
    sender: libc::pid_t,
}

impl Signal {
    /// Whether it is to be handed on. The terminal, which is the kernel, sends
    /// its signals to the command as well.
    fn is_for_command(&self) -> bool {
        FORWARDED.contains(&self.number) && self.sender != 0
    }

    /// Sends it to a child that was not waited for, so that the number is its own.
    fn hand_on(&self, child: libc::pid_t) {
        // SAFETY: kill(2) with numbers.
        unsafe { libc::kill(child, self.number) };
    }
}

/// Waits for one of these signals, which are blocked.
fn wait(waited_for: &libc::sigset_t) -> Signal {
    // SAFETY: an all-zero siginfo_t is a valid one.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is initialised and `info` has room for the answer.
    let number = unsafe { libc::sigwaitinfo(waited_for, &raw mut info) };
    let sender = match info.si_code {
        1.. => 0,
        // SAFETY: a signal that a process has sent names its sender.
        _ => unsafe { info.si_pid() },
    };
    Signal { number, sender }
}

/// Blocks signals in this process, which has one thread. Returns the mask
/// that it had.
fn block(signals: &libc::sigset_t) -> libc::sigset_t {
    let mut before = empty_set();
    // SAFETY: both sets are initialised.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, signals, &raw mut before) };
    before
}

fn kill(child: libc::pid_t) {
    // SAFETY: kill(2) with numbers; children that were not waited for keep
    // theirs.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

/// Kills every process below this one.
fn kill_all() {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        children().into_iter().for_each(kill);
        // Fails when there is no child any more.
        if reap(-1).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<libc::pid_t> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = own_id();
    let is_child = |process: &libc::pid_t| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        parent_in(&stat) == Some(own) && is_own_child(*process)
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

/// Whether the kernel knows a process as a child of this one. `/proc` may be
/// that of another process namespace, with other numbers.
fn is_own_child(process: libc::pid_t) -> bool {
    // SAFETY: an all-zero siginfo_t is a valid one.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` has room for the answer; nothing is taken.
    unsafe { libc::waitid(libc::P_PID, process.cast_unsigned(), &raw mut info, look) == 0 }
}

/// The parent in a line of `/proc/PID/stat`. The name before it may hold
/// anything, also parentheses and spaces.
fn parent_in(stat: &str) -> Option<libc::pid_t> {
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
    fn a_parent_is_read_behind_any_name() {
        assert_eq!(parent_in("7 (a b) c) (S)) S 42 1 1"), Some(42));
        assert_eq!(parent_in("7 (sh) R 1 1"), Some(1));
        assert_eq!(parent_in(""), None);
    }
}
