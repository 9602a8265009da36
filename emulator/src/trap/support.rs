//! Checks whether doorbell stores can be trapped in this program.

use std::ffi::CStr;

use super::SIGNAL_CALLS;

/// Reasons why doorbell stores cannot be trapped in this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrapError {
    /// Store instructions are decoded on x86-64 only.
    #[error("only x86-64 is supported")]
    Processor,
    /// The program runs on a simulated processor, whose registers are not
    /// available to a handler.
    #[error("the program runs under valgrind")]
    Valgrind,
    /// The program does not use the interposed signal functions.
    #[error(
        "{0} of this program is not the interposed function; link with -rdynamic, or use mlx5-emu run"
    )]
    NotInterposed(&'static str),
    /// A thread has the signal blocked.
    #[error("a thread of this program blocks SIGBUS")]
    Blocked,
    /// The kernel refuses to install the handler.
    #[error("the SIGBUS handler cannot be installed")]
    Handler,
}

pub(super) fn check() -> Result<(), TrapError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(TrapError::Processor);
    }
    if under_valgrind() {
        return Err(TrapError::Valgrind);
    }
    for (name, interposed) in SIGNAL_CALLS {
        if resolved_by_libraries(name) != interposed() as usize {
            return Err(TrapError::NotInterposed(name.to_str().unwrap_or_default()));
        }
    }
    if any_thread_blocks() {
        return Err(TrapError::Blocked);
    }
    Ok(())
}

fn resolved_by_libraries(name: &CStr) -> usize {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr()
}

/// Returns whether a thread has `SIGBUS` blocked. The mask may be inherited from
/// before this library was loaded. Returns `false` if there is no `/proc`.
fn any_thread_blocks() -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    tasks.flatten().any(|task| {
        let status = std::fs::read_to_string(task.path().join("status"));
        status.is_ok_and(|status| blocks(&status, libc::SIGBUS))
    })
}

/// Returns whether a thread's status shows a signal as blocked.
fn blocks(status: &str, signal: libc::c_int) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Returns whether the program runs under valgrind, with a client request: an
/// instruction sequence that does nothing on a processor.
#[cfg(target_arch = "x86_64")]
fn under_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let question = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: u64;
    // SAFETY: four rotations by 128 bits in total and an exchange of a register
    // with itself; `rdi` and `rdx` are unchanged unless valgrind stores its
    // reply in `rdx`. It reads the six words at `rax`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") question.as_ptr(),
            inout("rdx") 0_u64 => answer,
            out("rdi") _,
            options(nostack),
        );
    }
    answer != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn under_valgrind() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_mask_is_read_from_a_threads_status() {
        let status = "Name:\tx\nSigPnd:\t00000000000000ff\nSigBlk:\t0000000000000040\n";
        assert!(blocks(status, libc::SIGBUS));
        assert!(!blocks(status, libc::SIGSEGV));
        assert!(!blocks("SigBlk:\t0000000000000000\n", libc::SIGBUS));
        assert!(!blocks("Name:\tx\n", libc::SIGBUS));
    }
}
