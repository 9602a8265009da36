//! libc's own definitions of the interposed functions (`dlsym(RTLD_NEXT, …)`).
#![allow(clippy::missing_safety_doc)] // each is libc's function, with its contract

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

fn next(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `name` is a C string; dlsym has no other precondition.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "libc has no {name:?}");
    slot.store(found, Relaxed);
    found
}

macro_rules! real {
    ($($name:ident = $symbol:literal ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
            static SLOT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let found = next(&SLOT, $symbol);
            // SAFETY: the symbol is libc's function of this name, with the C type
            // given here. Variadic functions (`open`, `fcntl`, `ioctl`) take
            // their optional argument as a fixed one, which has the same calling
            // convention on x86-64 and aarch64 Linux.
            let function = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $ret>(found)
            };
            // SAFETY: the caller's arguments, under the contract of that function.
            unsafe { function($($arg),*) }
        }
    )*};
}

real! {
    open = c"open" (path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat = c"openat" (dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    stat = c"stat" (path: *const c_char, into: *mut libc::stat) -> c_int;
    lstat = c"lstat" (path: *const c_char, into: *mut libc::stat) -> c_int;
    fstatat = c"fstatat" (
        dir: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int
    ) -> c_int;
    statx = c"statx" (
        dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut libc::statx
    ) -> c_int;
    access = c"access" (path: *const c_char, mode: c_int) -> c_int;
    euidaccess = c"euidaccess" (path: *const c_char, mode: c_int) -> c_int;
    faccessat = c"faccessat" (
        dir: c_int, path: *const c_char, mode: c_int, flags: c_int
    ) -> c_int;
    readlink = c"readlink" (path: *const c_char, into: *mut c_char, len: usize) -> isize;
    readlinkat = c"readlinkat" (
        dir: c_int, path: *const c_char, into: *mut c_char, len: usize
    ) -> isize;
    realpath = c"realpath" (path: *const c_char, into: *mut c_char) -> *mut c_char;
    getxattr = c"getxattr" (
        path: *const c_char, name: *const c_char, into: *mut c_void, len: usize
    ) -> isize;
    lgetxattr = c"lgetxattr" (
        path: *const c_char, name: *const c_char, into: *mut c_void, len: usize
    ) -> isize;
    listxattr = c"listxattr" (path: *const c_char, into: *mut c_char, len: usize) -> isize;
    llistxattr = c"llistxattr" (path: *const c_char, into: *mut c_char, len: usize) -> isize;
    chdir = c"chdir" (path: *const c_char) -> c_int;
    opendir = c"opendir" (path: *const c_char) -> *mut c_void;
    scandir = c"scandir" (
        path: *const c_char, into: *mut c_void, filter: *const c_void, compare: *const c_void
    ) -> c_int;
    scandirat = c"scandirat" (
        dir: c_int, path: *const c_char, into: *mut c_void, filter: *const c_void,
        compare: *const c_void
    ) -> c_int;
    fopen = c"fopen" (path: *const c_char, mode: *const c_char) -> *mut c_void;
    fstat = c"fstat" (fd: c_int, into: *mut libc::stat) -> c_int;
    read = c"read" (fd: c_int, into: *mut c_void, len: usize) -> isize;
    write = c"write" (fd: c_int, from: *const c_void, len: usize) -> isize;
    ioctl = c"ioctl" (fd: c_int, number: c_ulong, argument: usize) -> c_int;
    close = c"close" (fd: c_int) -> c_int;
    send = c"send" (fd: c_int, from: *const c_void, len: usize, flags: c_int) -> isize;
    sendto = c"sendto" (
        fd: c_int, from: *const c_void, len: usize, flags: c_int, to: *const libc::sockaddr,
        to_len: libc::socklen_t
    ) -> isize;
    sendmsg = c"sendmsg" (fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize;
    socket = c"socket" (domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    dup = c"dup" (fd: c_int) -> c_int;
    dup2 = c"dup2" (from: c_int, to: c_int) -> c_int;
    dup3 = c"dup3" (from: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl = c"fcntl" (fd: c_int, command: c_int, argument: usize) -> c_int;
    mmap = c"mmap" (
        at: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64
    ) -> *mut c_void;
    sigaction = c"sigaction" (
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int;
    signal = c"signal" (signal: c_int, handler: usize) -> usize;
    pthread_sigmask = c"pthread_sigmask" (
        how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t
    ) -> c_int;
    munmap = c"munmap" (at: *mut c_void, len: usize) -> c_int;
    mremap = c"mremap" (
        old: *mut c_void, old_len: usize, new_len: usize, flags: c_int, new: *mut c_void
    ) -> *mut c_void;
    madvise = c"madvise" (at: *mut c_void, len: usize, advice: c_int) -> c_int;
    brk = c"brk" (end: *mut c_void) -> c_int;
    sbrk = c"sbrk" (increment: isize) -> *mut c_void;
    free = c"free" (block: *mut c_void) -> ();
    realloc = c"realloc" (block: *mut c_void, len: usize) -> *mut c_void;
}
