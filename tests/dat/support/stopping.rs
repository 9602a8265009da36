//! Stops of this process, as by Ctrl-Z and `fg`, and of one thread, as by a debugger.

use std::process::Command;
use std::ptr;

/// Stops this process with SIGSTOP, and continues it with SIGCONT when all its
/// threads have stopped. The caller has the process to itself
/// ([`super::is_alone`]).
#[track_caller]
pub fn stop_and_continue() {
    const SCRIPT: &str = "kill -STOP $PPID
        for status in /proc/$PPID/task/*/status; do
            until [ ! -e $status ] || grep -q '^State:.T' $status; do sleep 0.01; done
        done
        kill -CONT $PPID";
    let ended = Command::new("sh").args(["-c", SCRIPT]).status();
    assert!(ended.expect("sh can be run").success());
}

/// Stops a thread of this process and lets it go on, as a debugger that attaches and
/// detaches. Where the host forbids that, prints so to standard error.
#[track_caller]
pub fn attach_and_detach(thread: libc::pid_t) {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: takes numbers. Where the call is unknown, any process may attach.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    // SAFETY: the child makes system calls only.
    let debugger = unsafe { libc::fork() };
    if debugger == 0 {
        // SAFETY: numbers, and a status that is not requested.
        unsafe {
            let is_attached = libc::ptrace(libc::PTRACE_SEIZE, thread, nothing, nothing) == 0;
            let is_stopped = is_attached
                && libc::ptrace(libc::PTRACE_INTERRUPT, thread, nothing, nothing) == 0
                && libc::waitpid(thread, ptr::null_mut(), libc::__WALL) == thread
                && libc::ptrace(libc::PTRACE_DETACH, thread, nothing, nothing) == 0;
            libc::_exit(match (is_stopped, *libc::__errno_location()) {
                (true, _) => 0,
                (false, errno) => errno,
            });
        }
    }
    let mut status = -1;
    // SAFETY: the status is writable.
    let ended = unsafe { libc::waitpid(debugger, &raw mut status, 0) };
    assert_eq!(ended, debugger);
    match libc::WEXITSTATUS(status) {
        0 => {}
        libc::EPERM => eprintln!("SKIPPED: this host forbids ptrace"),
        errno => panic!("ptrace failed with errno {errno}"),
    }
}
