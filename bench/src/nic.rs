//! The NIC while the processor is measured: one that is emulated stands still.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use crate::failure::Failure;

/// The device under the measurement.
pub(crate) struct Nic {
    calls: Option<Calls>,
    held: bool,
    /// How long completions may take that were not waited for one by one.
    settling: Duration,
}

#[derive(Clone, Copy)]
struct Calls {
    hold: unsafe extern "C" fn() -> c_int,
    release: unsafe extern "C" fn(),
    step: unsafe extern "C" fn() -> c_int,
}

impl Nic {
    /// That of this process. An emulated one must be able to stand still.
    pub(crate) fn find(emulated: bool, settling: Duration) -> Result<Self, Failure> {
        let calls = if emulated {
            let find = |name: &core::ffi::CStr| {
                // SAFETY: `name` is a C string.
                let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
                (!address.is_null()).then_some(address)
            };
            let all = find(c"mlx5emu_hold")
                .zip(find(c"mlx5emu_release"))
                .zip(find(c"mlx5emu_step"));
            let ((hold, release), step) = all.ok_or_else(|| {
                Failure::environment(
                    "this mlx5-emu cannot make its NIC stand still; build it anew: cargo build --release",
                )
            })?;
            type Answers = unsafe extern "C" fn() -> c_int;
            // SAFETY: the emulator's functions of these names have these types.
            Some(unsafe {
                Calls {
                    hold: core::mem::transmute::<*mut c_void, Answers>(hold),
                    release: core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(release),
                    step: core::mem::transmute::<*mut c_void, Answers>(step),
                }
            })
        } else {
            None
        };
        Ok(Self {
            calls,
            held: false,
            settling,
        })
    }

    /// Lets completions come that nobody has waited for, and then makes the
    /// NIC stand still, if it is emulated.
    pub(crate) fn settle_and_hold(&mut self) -> Result<(), Failure> {
        self.release();
        std::thread::sleep(self.settling);
        self.hold()
    }

    /// Makes the NIC stand still, if it is emulated.
    pub(crate) fn hold(&mut self) -> Result<(), Failure> {
        if let Some(calls) = self.calls.filter(|_| !self.held) {
            // SAFETY: no demands but that nothing is destroyed meanwhile,
            // which only happens after `release`.
            if unsafe { (calls.hold)() } != 0 {
                return Err(Failure::run("the emulated NIC does not come to rest"));
            }
            self.held = true;
        }
        Ok(())
    }

    /// Whether it is emulated, and so can stand still and be moved by hand.
    pub(crate) fn is_emulated(&self) -> bool {
        self.calls.is_some()
    }

    /// Moves a NIC that stands still by one step; whether there was anything to
    /// do. Nothing is ever to be done on one that is not emulated.
    pub(crate) fn step(&self) -> bool {
        match self.calls.filter(|_| self.held) {
            // SAFETY: no demands.
            Some(calls) => unsafe { (calls.step)() > 0 },
            None => false,
        }
    }

    /// Lets it go on.
    pub(crate) fn release(&mut self) {
        if let Some(calls) = self.calls.filter(|_| self.held) {
            // SAFETY: no demands.
            unsafe { (calls.release)() };
            self.held = false;
        }
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        self.release();
    }
}
