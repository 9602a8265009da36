//! `SIGSEGV` of the NIC itself: memory that the program took away from under
//! the device. The access answers a fault then (see `crate::nic::memory`);
//! every other `SIGSEGV` is the program's own.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{action_of, chain};
use crate::nic::memory;
use crate::preload::real;

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether the application's actions for `SIGSEGV` are kept by us.
pub(super) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Installs the handler. Where that cannot be, memory that is gone ends the
/// process, as it did before.
pub(crate) fn install() {
    if !cfg!(target_arch = "x86_64") || INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut before = action_of(libc::SIG_DFL);
    let mut ours = action_of(on_segmentation_fault as *const () as usize);
    // The program may have an alternate stack for its own overflows.
    ours.sa_flags |= libc::SA_ONSTACK;
    // SAFETY: room for an action; and a handler of the right type, which lives
    // as long as the process.
    unsafe {
        real::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut before);
        chain::replace(libc::SIGSEGV, before);
        real::sigaction(libc::SIGSEGV, &raw const ours, std::ptr::null_mut());
    }
}

extern "C" fn on_segmentation_fault(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the handler's own arguments.
    unsafe {
        if !resume(context) {
            chain::forward(signal, info, context);
        }
    }
}

/// Lets the interrupted thread go on with a fault for an answer, if it was
/// the NIC's access that failed.
///
/// # Safety
/// `context` is the third argument of the running signal handler.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn resume(context: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = &mut registers[libc::REG_RIP as usize];
    match memory::resume(at.cast_unsigned()) {
        Some(answer) => {
            *at = answer.cast_signed();
            true
        }
        None => false,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn resume(_context: *mut c_void) -> bool {
    // Nothing is guarded there.
    let _ = memory::resume(0);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::memory::{Fault, compare_swap, fetch_add, load_be32, read, write};

    #[test]
    fn memory_that_was_taken_away_is_a_fault_to_answer() {
        install();
        const PAGE: usize = 4096;
        // SAFETY: a fresh mapping of two pages, of which the second is taken
        // away again.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::munmap(at.byte_add(PAGE), PAGE);
            at as u64
        };
        let end = at + PAGE as u64;
        let gone = |address| Err(Fault { address });
        for length in [1, 2, 4, 8, 64, 200] {
            let mut into = vec![0; length];
            assert_eq!(read(end, &mut into), gone(end));
            assert_eq!(write(end, &into), gone(end));
        }
        let mut across = [1; 100];
        assert_eq!(read(end - 72, &mut across), gone(end));
        assert_eq!(across[..72], [0; 72]);
        assert_eq!(write(end - 72, &across), gone(end));
        assert_eq!(load_be32(end), Err(Fault { address: end }));
        assert_eq!(compare_swap(end, 0, 1), Err(Fault { address: end }));
        assert_eq!(fetch_add(end, 1), Err(Fault { address: end }));
        // SAFETY: the first page is still there.
        unsafe { libc::mprotect(at as *mut c_void, PAGE, libc::PROT_READ) };
        assert_eq!(write(at, &[1]), gone(at));
        assert_eq!(read(at, &mut [0]), Ok(()));
        // SAFETY: mapped above and not used any more.
        unsafe { libc::munmap(at as *mut c_void, PAGE) };
    }
}
