//! Traps stores to protected doorbell pages on the storing thread.
//!
//! Such a store raises `SIGBUS`. The handler decodes the instruction, passes the
//! doorbell to the [`StoreHandler`] of the page, and continues the thread after
//! the instruction. The page stays protected, so neither this store nor the next
//! one needs another thread or a system call.
//!
//! The signal must reach the handler. A thread that has it blocked would be
//! killed, so the interposed signal functions (`signal_calls`) remove it from every
//! signal mask and keep the application's own `SIGBUS` action behind the emulator's.
//! [`install`] fails where this cannot be ensured.
//!
//! Decision: `docs/decisions/046-doorbell-on-the-ringing-thread.md`

#[cfg(target_arch = "x86_64")]
mod registers;
mod signal_calls;
mod store;
mod support;
mod vector;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::fork::forks;
use crate::guard;
use crate::guard::chain::ApplicationAction;
use crate::real;
use crate::spec::{UarPage, UarWrite};
pub(crate) use signal_calls::SIGNAL_CALLS;
pub use support::TrapError;

/// Handles the trapped stores to some doorbell pages. All methods run in a signal
/// handler on the storing thread.
pub trait StoreHandler: Sync {
    /// Returns the doorbell page at an address, if it is one of this handler's.
    fn page_of(&self, addr: usize) -> Option<UarPage>;
    /// Handles a store. The thread then continues as if it had made the store.
    /// Unknown bytes are zeros.
    fn store(&self, write: &UarWrite);
    /// Unprotects the page, since the thread will make its store itself.
    fn allow_store(&self);
}

struct Registration {
    handler: &'static dyn StoreHandler,
    /// [`forks`] of the process: a child has none of its parent's pages.
    forks: u32,
    next: *const Registration,
}

/// All registered handlers; entries are never removed.
static HANDLERS: AtomicPtr<Registration> = AtomicPtr::new(std::ptr::null_mut());
/// The application's own action for `SIGBUS`.
static APPLICATION_ACTION: ApplicationAction = ApplicationAction::new();
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Returns whether the application's `SIGBUS` action is kept by the emulator.
fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Installs the handlers.
///
/// # Errors
/// Returns the reason if this program does not support trapped stores.
pub fn install() -> Result<(), TrapError> {
    support::check()?;
    install_handlers()
}

/// Installs the handlers of `SIGBUS` and, for [`guard`], of `SIGSEGV`, without checking the
/// program first.
pub(crate) fn install_handlers() -> Result<(), TrapError> {
    guard::install();
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    #[cfg(target_arch = "x86_64")]
    registers::read_layout();
    let mut before = action_of(libc::SIG_DFL);
    // SAFETY: room for an action.
    unsafe { real::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) };
    APPLICATION_ACTION.replace(before);
    let emulator_handler = action_of(emulator_handler());
    // SAFETY: a handler of the right type, which lives as long as the process.
    let status = unsafe {
        real::sigaction(
            libc::SIGBUS,
            &raw const emulator_handler,
            std::ptr::null_mut(),
        )
    };
    if status != 0 {
        return Err(TrapError::Handler);
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Returns whether the kernel still calls the emulator's handler.
#[must_use]
pub fn is_handler_active() -> bool {
    let mut now = action_of(libc::SIG_DFL);
    // SAFETY: room for an action.
    unsafe { real::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut now) };
    now.sa_sigaction == emulator_handler()
}

/// Registers a handler for the stores to its pages.
pub fn register(handler: &'static dyn StoreHandler) {
    let entry = Box::leak(Box::new(Registration {
        handler,
        forks: forks(),
        next: std::ptr::null(),
    }));
    let mut first = HANDLERS.load(Ordering::Relaxed);
    loop {
        entry.next = first;
        match HANDLERS.compare_exchange(first, entry, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

fn owner_of(addr: usize) -> Option<(&'static dyn StoreHandler, UarPage)> {
    // SAFETY: entries are leaked boxes, fully initialised when published.
    let mut entry = unsafe { HANDLERS.load(Ordering::Acquire).as_ref() };
    while let Some(own) = entry.filter(|entry| entry.forks == forks()) {
        if let Some(page) = own.handler.page_of(addr) {
            return Some((own.handler, page));
        }
        // SAFETY: as above.
        entry = unsafe { own.next.as_ref() };
    }
    None
}

fn emulator_handler() -> usize {
    on_bus_error as *const () as usize
}

fn action_of(handler: usize) -> libc::sigaction {
    // SAFETY: plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // The NIC that this handler runs relies on these two signals to detect
    // missing memory, so they must stay unblocked in the handler. All other
    // signals are blocked, since the handler holds the NIC's lock. It does not
    // run on the alternate stack, which may be too small.
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
    // SAFETY: the address of this thread's errno, which the interrupted code
    // must find unchanged.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: provided by the kernel, valid while the handler runs.
    let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let owner = (code == libc::BUS_ADRERR).then(|| owner_of(addr)).flatten();
    match owner {
        Some((handler, page)) => {
            // The NIC may wake a peer with `write`, a cancellation point: the
            // thread must not be cancelled in the middle of a store.
            let (mut state, mut held) = (0, 0);
            pthread_setcancelstate(CANCEL_DISABLE, &mut state);
            let mut is_emulated = false;
            // SAFETY: provided by the kernel, valid and writable while the
            // handler runs.
            for store in unsafe { machine::stores(context, addr) } {
                is_emulated = true;
                handler.store(&UarWrite {
                    page,
                    offset: (store.address % 4096) as u16,
                    bytes: store.bytes,
                    copy: None,
                });
            }
            if !is_emulated {
                handler.allow_store();
            }
            pthread_setcancelstate(state, &mut held);
        }
        // SAFETY: the handler's own arguments.
        None => unsafe {
            let from_memory = code > 0;
            if !(from_memory && guard::recover_from_truncation(addr, context)) {
                APPLICATION_ACTION.forward(signal, info, context);
            }
        },
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(target_arch = "x86_64")]
mod machine {
    //! Access to the interrupted thread's registers and memory.

    use std::ffi::c_void;

    use super::registers::VectorRegisters;
    use super::store::{Cpu, Memory, Store, emulate_next, emulate_trapped};

    /// The general registers by their number in instruction encodings.
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

    /// The memory of this process, and the vector registers in the signal's frame.
    struct Interrupted(VectorRegisters);

    impl Memory for Interrupted {
        fn byte(&self, address: u64) -> u8 {
            // SAFETY: a byte of the instruction that the interrupted thread
            // executes now or next. It is readable unless the thread itself
            // is about to fault there.
            unsafe { (address as *const u8).read_volatile() }
        }

        fn load(&self, address: u64) -> u64 {
            let mut bytes = [0; 8];
            for (at, byte) in (address..).zip(&mut bytes) {
                // SAFETY: memory that the interrupted thread is about to load.
                *byte = unsafe { (at as *const u8).read_volatile() };
            }
            u64::from_le_bytes(bytes)
        }

        fn vector(&self, register: usize) -> [u8; 8] {
            // SAFETY: the frame of the signal whose handler runs.
            unsafe { self.0.low_bytes(register) }
        }
    }

    /// The stores of an interrupted thread to one page.
    struct Stores<'a> {
        registers: &'a mut [libc::greg_t; 23],
        memory: Interrupted,
        cpu: Cpu,
        address: u64,
        has_first: bool,
    }

    /// Returns the trapped store, and directly following stores to the page. The
    /// iterator executes each before it returns it, and the thread then continues
    /// behind the last one. It is empty, and nothing is changed, if the trapped
    /// instruction is not supported.
    ///
    /// # Safety
    /// `context` is the third argument of the running signal handler, which uses the
    /// iterator.
    pub(super) unsafe fn stores(
        context: *mut c_void,
        address: usize,
    ) -> impl Iterator<Item = Store> {
        // SAFETY: `context` is that of a running signal handler.
        let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
        let memory = Interrupted(VectorRegisters::new(machine.fpregs.cast_const().cast()));
        let registers = &mut machine.gregs;
        Stores {
            cpu: Cpu {
                general: GENERAL.map(|at| registers[at as usize].cast_unsigned()),
                rip: registers[libc::REG_RIP as usize].cast_unsigned(),
            },
            registers,
            memory,
            address: address as u64,
            has_first: false,
        }
    }

    impl Iterator for Stores<'_> {
        type Item = Store;

        fn next(&mut self) -> Option<Store> {
            if std::mem::replace(&mut self.has_first, true) {
                emulate_next(&mut self.cpu, self.address, &self.memory)
            } else {
                emulate_trapped(&mut self.cpu, self.address, &self.memory)
            }
        }
    }

    impl Drop for Stores<'_> {
        fn drop(&mut self) {
            for (at, value) in GENERAL.into_iter().zip(self.cpu.general) {
                self.registers[at as usize] = value.cast_signed();
            }
            self.registers[libc::REG_RIP as usize] = self.cpu.rip.cast_signed();
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use std::ffi::c_void;

    use super::store::Store;

    /// Returns no stores: they are not decoded on this processor, and
    /// [`super::install`] fails.
    pub(super) unsafe fn stores(
        _context: *mut c_void,
        _address: usize,
    ) -> impl Iterator<Item = Store> {
        std::iter::empty()
    }
}
