//! The adapter that a test works on, and the device behind it.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;
use mlx5emu::config::{Config, Mode};
use mlx5emu::emulator::Emulator;
use mlx5emu::preload::{Installed, install};

use super::{Memory, ok};

static DEVICE: OnceLock<Mutex<Option<Installed>>> = OnceLock::new();
static ONE_TEST: Mutex<()> = Mutex::new(());

/// An open adapter. Closed abruptly when dropped, or by [`Bed::close`].
pub struct Bed {
    pub ia: DAT_IA_HANDLE,
    pub async_evd: DAT_EVD_HANDLE,
    pub pz: DAT_PZ_HANDLE,
    closed: bool,
    _one_test: MutexGuard<'static, ()>,
}

// SAFETY: handles are numbers; the calls that the tests make from several
// threads are those that DAT allows.
unsafe impl Sync for Bed {}

impl Bed {
    /// Opens the adapter. Tests of one process take turns.
    pub fn new() -> Self {
        let one_test = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
        DEVICE.get_or_init(set_up);
        let name = CString::new("mlx5_0").expect("no NUL");
        let (mut ia, mut async_evd, mut pz) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: every pointer leads to what the call expects.
        unsafe {
            ok(dat_ia_openv(
                name.as_ptr().cast_mut(),
                64,
                &raw mut async_evd,
                &raw mut ia,
                1,
                2,
                DAT_FALSE,
            ));
            ok(dat_pz_create(ia, &raw mut pz));
        }
        Self {
            ia,
            async_evd,
            pz,
            closed: false,
            _one_test: one_test,
        }
    }

    /// Lets the device work until nothing is left to do now.
    pub fn run(&self) {
        emulator().run_until_idle();
    }

    /// Lets the device do one thing; `false` if there was nothing to do.
    pub fn step(&self) -> bool {
        emulator().step()
    }

    /// Lets virtual time pass, and the device do what falls due.
    pub fn advance(&self, by: Duration) {
        emulator().advance(by);
    }

    /// Keeps the device running from a thread of its own until the answer is
    /// dropped: for calls that block.
    pub fn turning<'s, 'e>(&'e self, scope: &'s Scope<'s, 'e>) -> Turning<'s> {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let seen = std::sync::Arc::clone(&stop);
        let thread = scope.spawn(move || {
            while !seen.load(Ordering::Acquire) {
                if emulator().run_until_idle() == 0 {
                    emulator().advance(Duration::from_micros(100));
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Turning {
            stop,
            thread: Some(thread),
        }
    }

    /// An EVD of its own for these streams.
    pub fn evd(&self, qlen: DAT_COUNT, flags: DAT_EVD_FLAGS) -> DAT_EVD_HANDLE {
        let mut evd = ptr::null_mut();
        // SAFETY: a live adapter; the result is writable.
        ok(unsafe { dat_evd_create(self.ia, qlen, ptr::null_mut(), flags, &raw mut evd) });
        evd
    }

    /// Another protection zone.
    pub fn pz(&self) -> DAT_PZ_HANDLE {
        let mut pz = ptr::null_mut();
        // SAFETY: a live adapter; the result is writable.
        ok(unsafe { dat_pz_create(self.ia, &raw mut pz) });
        pz
    }

    /// Registered memory with every right, in the bed's zone.
    pub fn memory(&self, len: usize) -> Memory {
        Memory::new(self.ia, self.pz, len, DAT_MEM_PRIV_ALL_FLAG)
    }

    /// Registered memory with these rights in this zone.
    pub fn memory_in(&self, pz: DAT_PZ_HANDLE, len: usize, rights: DAT_MEM_PRIV_FLAGS) -> Memory {
        Memory::new(self.ia, pz, len, rights)
    }

    /// Closes the adapter in this way, and answers what the call answered.
    pub fn close(&mut self, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        // SAFETY: any value may be given.
        let answer = unsafe { dat_ia_close(self.ia, flags) };
        self.closed |= answer == DAT_SUCCESS;
        answer
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.closed {
            let answer = self.close(DAT_CLOSE_ABRUPT_FLAG);
            if !std::thread::panicking() {
                ok(answer);
            }
        }
    }
}

/// Keeps the device running; see [`Bed::turning`].
pub struct Turning<'s> {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<ScopedJoinHandle<'s, ()>>,
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn emulator() -> &'static Emulator {
    Emulator::get().expect("started when the adapter was opened")
}

fn set_up() -> Mutex<Option<Installed>> {
    // SAFETY: the tests read the environment only under ONE_TEST, which is
    // held. libmlx5 prints every error CQE, of which these tests make many.
    unsafe { std::env::set_var("MLX5_DEBUG_FILE", "/dev/null") };
    let config = Config {
        mode: Mode::Stepped,
        ..Config::default()
    };
    // SAFETY: as above.
    let installed = unsafe { install(&config) }.expect("an emulated device");
    // SAFETY: the function may be called at exit.
    unsafe { libc::atexit(take_down) };
    Mutex::new(Some(installed))
}

/// Removes the directory of the emulated device, which statics do not do.
extern "C" fn take_down() {
    if let Some(device) = DEVICE.get() {
        drop(device.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
