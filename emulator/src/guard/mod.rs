//! Accesses to memory of the program that may be gone.
//!
//! The NIC reads and writes the program's memory while the program runs, and
//! a wrong program unmaps a ring that is in use, or memory that it has
//! registered. A device in silicon would go on with the pages that the kernel
//! had pinned; here the access itself must fail, and nothing else: each
//! function of this module answers [`Gone`] where a plain load or store would
//! end the process.
//!
//! The accesses are a few instructions in one place (`access`). The handler
//! for `SIGSEGV` and `SIGBUS` looks where the signal came from: from there it
//! sends the thread to an exit that answers the failure, every other one it
//! hands to whoever stood there before. Until [`install`] was called, and on
//! processors for which `access` has no instructions, a failing access ends
//! the process as any other.

mod access;
pub(crate) mod shared;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::preload::real;
use crate::trap;
use crate::trap::chain::Chain;

pub(crate) use access::{add, compare_swap, load, load_words, store, store_words};

/// There is no such memory, or it may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// The program's own action for `SIGSEGV`.
pub(crate) static THEIRS: Chain = Chain::new();
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether the program's actions for `SIGSEGV` are kept by us.
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Installs the handlers, once. Where they cannot be had, accesses are plain.
///
/// A file behind memory that was truncated raises `SIGBUS`, the rest `SIGSEGV`.
pub(crate) fn install() {
    // Without it the program ends at such an access, as without this module.
    let _ = trap::install_handler();
    if !access::CAN_FAIL || is_installed() {
        return;
    }
    // SAFETY: plain data, for which zeros are valid.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_fault as *const () as usize;
    // On the alternate stack: the signal may say that the other one is full.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: room for an action.
    unsafe { real::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut before) };
    THEIRS.replace(before);
    // SAFETY: a handler of the right type, which lives as long as the process.
    let status = unsafe { real::sigaction(libc::SIGSEGV, &raw const ours, std::ptr::null_mut()) };
    INSTALLED.store(status == 0, Ordering::Release);
}

/// Takes a `SIGBUS` at this address: lets the interrupted thread go on, if it
/// was in a mapping that is watched ([`shared`]), or in `access`.
///
/// # Safety
/// `context` is the third argument of a running handler of `SA_SIGINFO`.
pub(crate) unsafe fn recover_from_truncation(address: usize, context: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    shared::replace(address) || unsafe { recover(context) }
}

/// Sends the interrupted thread to the exit, if it was in `access`.
///
/// # Safety
/// `context` is the third argument of a running handler of `SA_SIGINFO`.
pub(crate) unsafe fn recover(context: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    unsafe { access::leave(context) }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: our own arguments.
    unsafe {
        if !recover(context) {
            THEIRS.forward(signal, info, context);
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
            let done = unsafe { libc::mprotect(self.0 as *mut c_void, 4096, rights) };
            assert_eq!(done, 0);
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`, used no more.
            unsafe { libc::munmap(self.0 as *mut c_void, 4096) };
        }
    }

    #[test]
    fn what_is_there_is_read_and_written() {
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
    fn what_is_not_there_is_an_answer() {
        if !access::CAN_FAIL {
            eprintln!("SKIPPED: accesses cannot fail on this processor");
            return;
        }
        install();
        let page = Page::new();
        let at = page.0 as u64;
        page.protect(libc::PROT_READ);
        assert_eq!(load::<u64>(at), Ok(0));
        assert_eq!(store(at, 1_u8), Err(Gone));
        assert_eq!(store(at, 1_u16), Err(Gone));
        assert_eq!(store(at, 1_u32), Err(Gone));
        assert_eq!(store(at, 1_u64), Err(Gone));
        assert_eq!(store_words(at, &[1; 24]), Err(Gone));
        assert_eq!(store_words(at, &[1; 4096]), Err(Gone));
        assert_eq!(add(at, 1), Err(Gone));
        assert_eq!(compare_swap(at, 0, 1), Err(Gone));
        page.protect(libc::PROT_NONE);
        assert_eq!(load::<u8>(at), Err(Gone));
        assert_eq!(load::<u16>(at), Err(Gone));
        assert_eq!(load::<u32>(at), Err(Gone));
        assert_eq!(load::<u64>(at), Err(Gone));
        assert_eq!(load_words(at, &mut [0; 24]), Err(Gone));
        assert_eq!(load_words(at, &mut [0; 4096]), Err(Gone));
        page.protect(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(load::<u64>(at), Ok(0), "nothing was written");
    }
}
