//! The x86-64 half of the store tracer: page faults and the trap flag.
//!
//! The handlers run on the recording thread, in the middle of the code under
//! test. They allocate nothing and call only `mprotect`, `write` and `_exit`.

use core::cell::UnsafeCell;
use core::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::store_tracer::{PAGE, Store};

/// Size in bytes of the machine's widest store (AVX-512).
const WIDEST: usize = 64;
/// The bytes around a fault: the widest store that ends or begins there.
const WINDOW: usize = 2 * WIDEST;
/// Limit of stores in one recording, above the number that any request of the
/// tests makes.
const CAPACITY: usize = 8192;
const PAGES: usize = 32;
/// The trap flag of RFLAGS: a debug trap after the next instruction.
const TRAP_FLAG: i64 = 1 << 8;
/// "Write" in the page fault's error code.
const FAULT_WRITE: i64 = 1 << 1;
const FILL: u8 = 0xa5;

#[derive(Clone, Copy)]
struct Raw {
    addr: usize,
    len: usize,
    bytes: [u8; WINDOW],
}

/// The current trial of the instruction that faulted.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Idle,
    Fill,
    Complement,
    Real,
}

struct State {
    pages: [usize; PAGES],
    page_count: usize,
    run: Run,
    /// The part of the window that lies in watched pages.
    start: usize,
    len: usize,
    original: [u8; WINDOW],
    covered: [bool; WINDOW],
    /// The registers at the fault.
    registers: [i64; 23],
    log: [Raw; CAPACITY],
    logged: usize,
}

struct Shared(UnsafeCell<State>);
// SAFETY: only the thread that holds RECORDING uses it, and handlers on that
// thread while it runs `f`.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State {
    pages: [0; PAGES],
    page_count: 0,
    run: Run::Idle,
    start: 0,
    len: 0,
    original: [0; WINDOW],
    covered: [false; WINDOW],
    registers: [0; 23],
    log: [Raw {
        addr: 0,
        len: 0,
        bytes: [0; WINDOW],
    }; CAPACITY],
    logged: 0,
}));
static RECORDING: Mutex<()> = Mutex::new(());
static OVERFLOW: AtomicBool = AtomicBool::new(false);

struct SavedAction(UnsafeCell<libc::sigaction>);
// SAFETY: written under RECORDING before the handler that reads it is installed.
unsafe impl Sync for SavedAction {}
// SAFETY: all zeroes is the default action with an empty mask.
static OLD_SEGV: SavedAction = SavedAction(UnsafeCell::new(unsafe { core::mem::zeroed() }));

pub fn record<R>(pages: &[usize], f: impl FnOnce() -> R) -> (R, Vec<Store>) {
    assert!(pages.len() <= PAGES, "at most {PAGES} pages can be watched");
    let _one_at_a_time = RECORDING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let state = STATE.0.get();
    // SAFETY: RECORDING is held, and no page is protected yet, so no handler
    // runs.
    unsafe {
        (&mut (*state).pages)[..pages.len()].copy_from_slice(pages);
        (*state).page_count = pages.len();
        (*state).run = Run::Idle;
        (*state).logged = 0;
    }
    OVERFLOW.store(false, Ordering::Relaxed);
    let guard = Protected::new();
    let result = f();
    drop(guard);
    assert!(
        !OVERFLOW.load(Ordering::Relaxed),
        "more than {CAPACITY} stores in one recording"
    );
    // SAFETY: the pages are writable again, and the handlers are removed.
    let logged = unsafe { &(&(*state).log)[..(*state).logged] };
    let stores = logged.iter().map(|raw| Store {
        addr: raw.addr,
        bytes: raw.bytes[..raw.len].to_vec(),
    });
    (result, stores.collect())
}

/// While it exists, the handlers are installed and the pages read-only. Dropping
/// it undoes both, also when the code under test panics.
struct Protected {
    old_trap: libc::sigaction,
}

impl Protected {
    fn new() -> Self {
        // SAFETY: the handlers have the signature of SA_SIGINFO.
        let old_trap = unsafe {
            install(libc::SIGSEGV, fault as *const () as usize, OLD_SEGV.0.get());
            let mut old = core::mem::zeroed();
            install(libc::SIGTRAP, trap as *const () as usize, &raw mut old);
            old
        };
        protect(libc::PROT_READ);
        Protected { old_trap }
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        protect(libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: both actions were returned by sigaction.
        unsafe {
            libc::sigaction(libc::SIGSEGV, OLD_SEGV.0.get(), ptr::null_mut());
            libc::sigaction(libc::SIGTRAP, &raw const self.old_trap, ptr::null_mut());
        }
    }
}

/// # Safety
/// `handler` is an SA_SIGINFO handler, `old` writable.
unsafe fn install(signal: libc::c_int, handler: usize, old: *mut libc::sigaction) {
    // SAFETY: a zeroed action is valid; the rest is required of the caller.
    let failed = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(signal, &raw const action, old)
    };
    assert_eq!(failed, 0, "sigaction({signal})");
}

/// Changes the protection of every watched page.
fn protect(protection: libc::c_int) {
    let state = STATE.0.get();
    // SAFETY: called by the recording thread or by a handler on it, never by both
    // at once.
    let pages = unsafe { &(&(*state).pages)[..(*state).page_count] };
    for &page in pages {
        // SAFETY: by the contract of `StoreTracer::watch` the page is mapped.
        if unsafe { libc::mprotect(page as *mut libc::c_void, PAGE, protection) } != 0 {
            die(b"store tracer: mprotect failed\n");
        }
    }
}

fn die(message: &[u8]) -> ! {
    // SAFETY: write and _exit may be called anywhere.
    unsafe {
        libc::write(2, message.as_ptr().cast(), message.len());
        libc::_exit(134)
    }
}

/// Handles a store to a watched page: opens the pages and steps over the store.
extern "C" fn fault(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers to an SA_SIGINFO handler; State
    // belongs to this thread (see Shared).
    let (state, registers, addr) = unsafe {
        let context = context.cast::<libc::ucontext_t>();
        (
            &mut *STATE.0.get(),
            &mut (*context).uc_mcontext.gregs,
            (*info).si_addr() as usize,
        )
    };
    let page = addr & !(PAGE - 1);
    let watched = state.pages[..state.page_count].contains(&page);
    if !watched || registers[libc::REG_ERR as usize] & FAULT_WRITE == 0 || state.run != Run::Idle {
        // The fault is not in a watched page: the instruction runs again under
        // the old action. SAFETY: OLD_SEGV was filled by sigaction.
        unsafe { libc::sigaction(libc::SIGSEGV, OLD_SEGV.0.get(), ptr::null_mut()) };
        return;
    }
    protect(libc::PROT_READ | libc::PROT_WRITE);
    let watched = |byte: usize| state.pages[..state.page_count].contains(&(byte & !(PAGE - 1)));
    state.start = (addr - WIDEST..=addr)
        .find(|&byte| watched(byte))
        .unwrap_or(addr);
    state.len = (state.start..addr + WIDEST)
        .take_while(|&byte| watched(byte))
        .count();
    state.registers = *registers;
    state.covered = [false; WINDOW];
    for i in 0..state.len {
        // SAFETY: the window lies in watched pages, which are mapped.
        state.original[i] = unsafe { ptr::read_volatile((state.start + i) as *const u8) };
    }
    start_run(state, registers, Run::Fill);
}

/// Fills the window for a trial and sets the trap flag.
fn start_run(state: &mut State, registers: &mut [i64; 23], run: Run) {
    for i in 0..state.len {
        let byte = match run {
            Run::Fill => FILL,
            Run::Complement => !FILL,
            Run::Idle | Run::Real => state.original[i],
        };
        // SAFETY: the window lies in watched pages, writable since the fault.
        unsafe { ptr::write_volatile((state.start + i) as *mut u8, byte) };
    }
    *registers = state.registers;
    registers[libc::REG_EFL as usize] |= TRAP_FLAG;
    state.run = run;
}

/// Handles the trap after the instruction has run once: records what it wrote,
/// then starts the next trial or continues.
extern "C" fn trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as in `fault`.
    let (state, registers) = unsafe {
        let context = context.cast::<libc::ucontext_t>();
        (&mut *STATE.0.get(), &mut (*context).uc_mcontext.gregs)
    };
    // SAFETY: the window lies in watched pages.
    let now =
        |state: &State, i: usize| unsafe { ptr::read_volatile((state.start + i) as *const u8) };
    let filled = match state.run {
        Run::Idle => die(b"store tracer: unexpected trap\n"),
        Run::Fill => FILL,
        Run::Complement => !FILL,
        Run::Real => {
            log_store(state, now);
            registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
            state.run = Run::Idle;
            protect(libc::PROT_READ);
            return;
        }
    };
    for i in 0..state.len {
        state.covered[i] |= now(state, i) != filled;
    }
    let next = if state.run == Run::Fill {
        Run::Complement
    } else {
        Run::Real
    };
    start_run(state, registers, next);
}

/// Records the bytes of the real run that the trial runs have shown to be stored.
fn log_store(state: &mut State, now: impl Fn(&State, usize) -> u8) {
    let Some(first) = (0..state.len).find(|&i| state.covered[i]) else {
        return;
    };
    let end = (first..state.len)
        .rfind(|&i| state.covered[i])
        .map_or(first, |last| last + 1);
    if state.logged == CAPACITY {
        OVERFLOW.store(true, Ordering::Relaxed);
        return;
    }
    let mut raw = Raw {
        addr: state.start + first,
        len: end - first,
        bytes: [0; WINDOW],
    };
    for i in first..end {
        raw.bytes[i - first] = now(state, i);
    }
    state.log[state.logged] = raw;
    state.logged += 1;
}
