//! Stores on protected doorbell pages, taken on the thread that makes them.
//!
//! Such a store raises `SIGBUS`. The handler makes the store itself: it reads
//! the instruction, tells the doorbell to whoever serves the page, and lets
//! the thread go on behind it. So the page stays protected, and neither the
//! store nor the next one needs another thread, or a system call.
//!
//! The signal must reach the handler. A thread that has it blocked would be
//! killed, so [`crate::preload`] keeps it out of every signal mask, and lets
//! the application's own `SIGBUS` handler stand behind ours (`chain`).
//! [`install`] refuses where that cannot be relied on.

pub(crate) mod actions;
pub(crate) mod chain;
mod fitness;
mod store;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::guard;
use crate::nic::spec::{UarPage, UarWrite};
use crate::preload::real;
pub use fitness::Unfit;

/// Serves the stores on some doorbell pages. All of this runs in a signal
/// handler, on the thread that stores.
pub trait StoreTaker: Sync {
    /// The doorbell page at that address, if it is one of these.
    fn page_of(&self, addr: usize) -> Option<UarPage>;
    /// A store; the thread goes on as if it had been made. Bytes that are
    /// not known are zeros.
    fn store(&self, write: &UarWrite);
    /// The thread will make its store itself: it must not be trapped again.
    fn let_through(&self);
}

struct Told {
    taker: &'static dyn StoreTaker,
    next: *const Told,
}

/// Everyone who was ever [`tell`]ed of; never shortened.
static TOLD: AtomicPtr<Told> = AtomicPtr::new(std::ptr::null_mut());
/// The application's own action for `SIGBUS`.
static THEIRS: chain::Chain = chain::Chain::new();
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether the application's actions for `SIGBUS` are kept by us.
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Installs the handler.
///
/// # Errors
/// Why this program cannot have it.
pub fn install() -> Result<(), Unfit> {
    fitness::check()?;
    install_handler()
}

/// Installs the handler, fit or not.
pub(crate) fn install_handler() -> Result<(), Unfit> {
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut before = action_of(libc::SIG_DFL);
    // SAFETY: room for an action.
    unsafe { real::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) };
    THEIRS.replace(before);
    let ours = action_of(ours());
    // SAFETY: a handler of the right type, which lives as long as the process.
    let status = unsafe { real::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) };
    if status != 0 {
        return Err(Unfit::Handler);
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Whether our handler is still the one that the kernel calls.
#[must_use]
pub fn is_standing() -> bool {
    let mut now = action_of(libc::SIG_DFL);
    // SAFETY: room for an action.
    unsafe { real::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut now) };
    now.sa_sigaction == ours()
}

/// From now on that one is told of stores on its pages.
pub fn tell(taker: &'static dyn StoreTaker) {
    let told = Box::leak(Box::new(Told {
        taker,
        next: std::ptr::null(),
    }));
    let mut first = TOLD.load(Ordering::Relaxed);
    loop {
        told.next = first;
        match TOLD.compare_exchange(first, told, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

fn owner_of(addr: usize) -> Option<(&'static dyn StoreTaker, UarPage)> {
    // SAFETY: entries are leaked boxes, published whole by `tell`.
    let mut told = unsafe { TOLD.load(Ordering::Acquire).as_ref() };
    while let Some(Told { taker, next }) = told {
        if let Some(page) = taker.page_of(addr) {
            return Some((*taker, page));
        }
        // SAFETY: as above.
        told = unsafe { next.as_ref() };
    }
    None
}

fn ours() -> usize {
    on_bus_error as *const () as usize
}

fn action_of(handler: usize) -> libc::sigaction {
    // SAFETY: plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // The NIC that this handler moves finds out by these two signals that
    // memory is gone, so they must reach it in the handler as well. No other
    // handler runs on top of this one, which holds the NIC. Not on the
    // alternate stack: those are small, and made for full stacks.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
    // SAFETY: a set to fill.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: as above.
        unsafe { libc::sigdelset(&raw mut action.sa_mask, signal) };
    }
    action
}

unsafe extern "C" {
    // pthread.h. The libc crate does not have it on Linux.
    safe fn pthread_setcancelstate(state: c_int, before: &mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc.
const CANCEL_DISABLE: c_int = 1;

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the address of this thread's errno; the interrupted code must
    // find it unchanged.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: the kernel's, valid while this runs.
    let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let owner = (code == libc::BUS_ADRERR).then(|| owner_of(addr)).flatten();
    match owner {
        Some((taker, page)) => {
            // The NIC may ring its peer by `write`, a cancellation point: the thread
            // must not end in the middle of a store.
            let (mut state, mut held) = (0, 0);
            pthread_setcancelstate(CANCEL_DISABLE, &mut state);
            // SAFETY: the kernel's, valid and ours to change while this runs.
            let taken = unsafe { machine::take(context, addr, page, taker) };
            if !taken {
                taker.let_through();
            }
            pthread_setcancelstate(state, &mut held);
        }
        // SAFETY: our own arguments.
        None => unsafe {
            let from_memory = code > 0;
            if !(from_memory && guard::recover_from_truncation(addr, context)) {
                THEIRS.forward(signal, info, context);
            }
        },
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(target_arch = "x86_64")]
mod machine {
    //! The interrupted thread's registers and memory.

    use std::ffi::c_void;

    use super::store::{Cpu, Memory, Store, first, next};
    use super::{StoreTaker, UarPage, UarWrite};

    /// Where the general registers are, by their number in instructions.
    const GENERAL: [libc::c_int; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];

    struct Own;

    impl Memory for Own {
        fn byte(&self, address: u64) -> u8 {
            // SAFETY: a byte of the instruction that the interrupted thread
            // executes, or will execute next: it can be read, unless the
            // thread itself is about to fail there.
            unsafe { (address as *const u8).read_volatile() }
        }

        fn load(&self, address: u64) -> u64 {
            let mut bytes = [0; 8];
            for (at, byte) in (address..).zip(&mut bytes) {
                // SAFETY: what the interrupted thread is about to load.
                *byte = unsafe { (at as *const u8).read_volatile() };
            }
            u64::from_le_bytes(bytes)
        }
    }

    /// Makes the store at hand, and those that follow it at once, in the
    /// thread's stead. `false`, and nothing done, if it is not understood.
    ///
    /// # Safety
    /// `context` is the third argument of the running signal handler.
    pub(super) unsafe fn take(
        context: *mut c_void,
        addr: usize,
        page: UarPage,
        taker: &dyn StoreTaker,
    ) -> bool {
        // SAFETY: the caller's promise.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let mut cpu = Cpu {
            general: GENERAL.map(|at| registers[at as usize].cast_unsigned()),
            rip: registers[libc::REG_RIP as usize].cast_unsigned(),
        };
        let addr = addr as u64;
        let tell = |store: Store| {
            taker.store(&UarWrite {
                page,
                offset: (store.address % 4096) as u16,
                bytes: store.bytes,
            });
        };
        let Some(store) = first(&mut cpu, addr, &Own) else {
            return false;
        };
        tell(store);
        while let Some(store) = next(&mut cpu, addr, &Own) {
            tell(store);
        }
        for (at, value) in GENERAL.into_iter().zip(cpu.general) {
            registers[at as usize] = value.cast_signed();
        }
        registers[libc::REG_RIP as usize] = cpu.rip.cast_signed();
        true
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use std::ffi::c_void;

    use super::{StoreTaker, UarPage};

    /// Other processors' stores are not understood; [`super::install`]
    /// refuses on them.
    pub(super) unsafe fn take(
        _context: *mut c_void,
        _addr: usize,
        _page: UarPage,
        _taker: &dyn StoreTaker,
    ) -> bool {
        false
    }
}
