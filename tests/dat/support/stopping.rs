//! Stops of this process, as by Ctrl-Z and `fg`, and of one thread, as by a debugger.

use std::fs;
use std::ptr;
use std::thread;
use std::time::Duration;

/// Stops this process with SIGSTOP, and continues it with SIGCONT when all its
/// threads have stopped. The caller has the process to itself
/// ([`super::is_alone`]).
#[track_caller]
pub fn stop_and_continue() {
    let process = std::process::id();
    let status = in_child(|| {
        let parent = process.cast_signed();
        // SAFETY: takes numbers.
        let is_sent = unsafe { libc::kill(parent, libc::SIGSTOP) } == 0;
        while is_sent && !threads_are_stopped(process) {
            thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: as above.
        i32::from(unsafe { libc::kill(parent, libc::SIGCONT) } != 0)
    });
    assert_eq!(status, 0);
}

/// Returns whether all threads of a process have stopped. One that has ended does
/// not count.
fn threads_are_stopped(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    threads.is_ok_and(|mut all| {
        all.all(|one| {
            let status = one.and_then(|one| fs::read_to_string(one.path().join("status")));
            status.map_or(true, |status| status.contains("\nState:\tT"))
        })
    })
}

/// Stops a thread of this process and lets it go on, as a debugger that attaches and
/// detaches. Where the host forbids that, prints so to standard error.
#[track_caller]
pub fn attach_and_detach(thread: libc::pid_t) {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: takes numbers. Where the call is unknown, any process may attach.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    let status = in_child(|| {
        // SAFETY: numbers, and a status that is not requested.
        unsafe {
            let is_attached = libc::ptrace(libc::PTRACE_SEIZE, thread, nothing, nothing) == 0;
            let is_stopped = is_attached
                && libc::ptrace(libc::PTRACE_INTERRUPT, thread, nothing, nothing) == 0
                && libc::waitpid(thread, ptr::null_mut(), libc::__WALL) == thread
                && libc::ptrace(libc::PTRACE_DETACH, thread, nothing, nothing) == 0;
            match (is_stopped, *libc::__errno_location()) {
                (true, _) => 0,
                (false, errno) => errno,
            }
        }
    });
    match status {
        0 => {}
        libc::EPERM => eprintln!("SKIPPED: this host forbids ptrace"),
        errno => panic!("ptrace failed with errno {errno}"),
    }
}

/// Runs code in a forked child. Returns the exit status, which is what the code
/// returns.
#[track_caller]
fn in_child(code: impl FnOnce() -> i32) -> i32 {
    // SAFETY: of the locks that other threads may hold, the code takes only malloc's,
    // which glibc gives to the child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = code();
        // SAFETY: always safe.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: the status is writable.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(ended, child);
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    libc::WEXITSTATUS(status)
}
