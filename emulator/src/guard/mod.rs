//! Accesses to memory of the program that may have been unmapped.
//!
//! The NIC reads and writes the program's memory while the program runs. A faulty
//! program may unmap a ring in use or memory that it has registered. A hardware
//! NIC would continue with the pages that the kernel has pinned; here the access
//! fails, and only the access: every function of this module returns
//! [`AccessFault`] where an ordinary load or store would kill the process.
//!
//! The accesses are a few instructions in one place (`access`). The handler for
//! `SIGSEGV`, and that of [`crate::trap`] for `SIGBUS`, which the memory of a truncated
//! file raises, checks the interrupted instruction: if it is one of these, the handler
//! continues the thread at an exit that returns the error. Every other signal is
//! forwarded to the program's own action (`chain`). Before the handlers are installed, and on processors other than x86-64, a failing access
//! kills the process as usual.
//!
//! Decision: `docs/decisions/053-lost-memory-fails-the-request.md`

mod access;
pub(crate) mod chain;
pub(crate) mod shared;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use self::chain::ApplicationAction;
use crate::real;

pub(crate) use access::{add, compare_swap, load, load_words, store, store_words};

/// The memory is not mapped, or the access is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessFault;

/// The program's own action for `SIGSEGV`.
pub(crate) static APPLICATION_ACTION: ApplicationAction = ApplicationAction::new();
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Returns whether the program's `SIGSEGV` action is kept by the emulator.
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Installs the handler of `SIGSEGV`, once. If that fails, accesses cannot recover.
pub(crate) fn install() {
    if !access::CAN_RECOVER || is_installed() {
        return;
    }
    // SAFETY: plain data, for which zeros are valid.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    // On the alternate stack: the fault may be an overflow of the normal one.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: room for an action.
    unsafe { real::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut before) };
    APPLICATION_ACTION.replace(before);
    // SAFETY: a handler of the right type, which lives as long as the process.
    let status = unsafe { real::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) };
    INSTALLED.store(status == 0, Ordering::Release);
}

/// Handles a `SIGBUS` at this address if the interrupted access was to a watched
/// mapping ([`shared`]) or in `access`. Returns whether it was.
///
/// # Safety
/// `context` is the third argument of a running `SA_SIGINFO` handler.
pub(crate) unsafe fn recover_from_truncation(address: usize, context: *mut c_void) -> bool {
    // SAFETY: `context` is that of a running signal handler.
    shared::replace(address) || unsafe { recover(context) }
}

/// Continues the interrupted thread at the exit if it was in `access`. Returns
/// whether it was.
///
/// # Safety
/// `context` is the third argument of a running `SA_SIGINFO` handler.
pub(crate) unsafe fn recover(context: *mut c_void) -> bool {
    // SAFETY: `context` is that of a running signal handler.
    unsafe { access::continue_at_exit(context) }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the handler's own arguments.
    unsafe {
        if !recover(context) {
            APPLICATION_ACTION.forward(signal, info, context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that the test unmaps or protects.
    struct Page(usize);

    impl Page {
        fn new() -> Self {
            // SAFETY: a fresh anonymous mapping.
            let at = unsafe {
                let rights = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(std::ptr::null_mut(), 4096, rights, flags, -1, 0)
            };
            assert_ne!(at, libc::MAP_FAILED);
            Self(at.addr())
        }

        fn protect(&self, rights: c_int) {
            // SAFETY: the mapping is the test's own.
            let result_of = unsafe { libc::mprotect(self.0 as *mut c_void, 4096, rights) };
            assert_eq!(result_of, 0);
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: mapped by `new` and not used any more.
            unsafe { libc::munmap(self.0 as *mut c_void, 4096) };
        }
    }

    #[test]
    fn mapped_memory_is_read_and_written() {
        install();
        let page = Page::new();
        let at = page.0 as u64;
        assert_eq!(store(at, 0x1122_3344_5566_7788_u64), Ok(()));
        assert_eq!(store(at + 2, 0xaa_u8), Ok(()));
        assert_eq!(store(at + 4, 0xbbcc_u16), Ok(()));
        assert_eq!(load::<u64>(at), Ok(0x1122_bbcc_55aa_7788));
        assert_eq!(load::<u32>(at + 4), Ok(0x1122_bbcc));
        assert_eq!(load::<u16>(at), Ok(0x7788));
        assert_eq!(load::<u8>(at + 7), Ok(0x11));
        for words in [1, 2, 3, 31, 64, 300] {
            let from: Vec<u8> = (0..words * 8).map(|n| n as u8 ^ 0x5a).collect();
            assert_eq!(store_words(at + 8, &from), Ok(()));
            let mut back = vec![0; from.len()];
            assert_eq!(load_words(at + 8, &mut back), Ok(()));
            assert_eq!(back, from);
        }
        assert_eq!(store(at, 7_u64), Ok(()));
        assert_eq!(add(at, 3), Ok(7));
        assert_eq!(compare_swap(at, 9, 1), Ok(10));
        assert_eq!(compare_swap(at, 10, 1), Ok(10));
        assert_eq!(load::<u64>(at), Ok(1));
    }

    #[test]
    fn an_access_to_inaccessible_memory_returns_an_error() {
        if !access::CAN_RECOVER {
            eprintln!("SKIPPED: accesses cannot recover on this processor");
            return;
        }
        install();
        let page = Page::new();
        let at = page.0 as u64;
        page.protect(libc::PROT_READ);
        assert_eq!(load::<u64>(at), Ok(0));
        assert_eq!(store(at, 1_u8), Err(AccessFault));
        assert_eq!(store(at, 1_u16), Err(AccessFault));
        assert_eq!(store(at, 1_u32), Err(AccessFault));
        assert_eq!(store(at, 1_u64), Err(AccessFault));
        assert_eq!(store_words(at, &[1; 24]), Err(AccessFault));
        assert_eq!(store_words(at, &[1; 4096]), Err(AccessFault));
        assert_eq!(add(at, 1), Err(AccessFault));
        assert_eq!(compare_swap(at, 0, 1), Err(AccessFault));
        page.protect(libc::PROT_NONE);
        assert_eq!(load::<u8>(at), Err(AccessFault));
        assert_eq!(load::<u16>(at), Err(AccessFault));
        assert_eq!(load::<u32>(at), Err(AccessFault));
        assert_eq!(load::<u64>(at), Err(AccessFault));
        assert_eq!(load_words(at, &mut [0; 24]), Err(AccessFault));
        assert_eq!(load_words(at, &mut [0; 4096]), Err(AccessFault));
        page.protect(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(load::<u64>(at), Ok(0), "nothing was written");
    }
}
