//! Stops and steps the emulated NIC, so that no other thread runs while the
//! processor is measured. On a real device these calls do nothing.

use std::ffi::c_int;
use std::time::Duration;

use libloading::os::unix::Library;

use crate::failure::Failure;

/// The NIC of this process.
pub(crate) struct Nic {
    calls: Option<Calls>,
    held: bool,
    /// Time to sleep before a stop for completions that the caller did not poll for.
    drain_time: Duration,
}

#[derive(Clone, Copy)]
struct Calls {
    hold: unsafe extern "C" fn() -> c_int,
    release: unsafe extern "C" fn(),
    step: unsafe extern "C" fn() -> c_int,
}

impl Nic {
    /// Returns the NIC of this process. If it is emulated, looks up the emulator's
    /// calls that stop and step it.
    pub(crate) fn find(emulated: bool, drain_time: Duration) -> Result<Self, Failure> {
        let find = || -> Result<Calls, libloading::Error> {
            let this = Library::this();
            // SAFETY: the emulator's functions of these names have these types; it is never
            // unloaded.
            unsafe {
                Ok(Calls {
                    hold: *this.get(b"mlx5emu_hold")?,
                    release: *this.get(b"mlx5emu_release")?,
                    step: *this.get(b"mlx5emu_step")?,
                })
            }
        };
        let calls = emulated.then(find).transpose().map_err(|_| {
            Failure::environment(
                "this mlx5-emu has no mlx5emu_hold, so its NIC cannot be stopped: it is of another build; run cargo build --release",
            )
        })?;
        Ok(Self {
            calls,
            held: false,
            drain_time,
        })
    }

    /// Waits for outstanding completions, then stops the NIC if it is emulated.
    pub(crate) fn drain_and_hold(&mut self) -> Result<(), Failure> {
        self.release();
        std::thread::sleep(self.drain_time);
        self.hold()
    }

    /// Stops the NIC, if it is emulated.
    pub(crate) fn hold(&mut self) -> Result<(), Failure> {
        if let Some(calls) = self.calls.filter(|_| !self.held) {
            // SAFETY: the emulator requires that no object is destroyed while
            // the NIC is stopped; callers call `release` before they drop any.
            if unsafe { (calls.hold)() } != 0 {
                return Err(Failure::run(
                    "the emulated NIC did not stop, because its requests do not end; run again, and report it with the command line",
                ));
            }
            self.held = true;
        }
        Ok(())
    }

    /// Returns whether the NIC is emulated, so that it can be stopped and stepped.
    pub(crate) fn is_emulated(&self) -> bool {
        self.calls.is_some()
    }

    /// Moves a stopped NIC by one step. Returns `false` if it had nothing to do,
    /// is not stopped or is not emulated.
    pub(crate) fn step(&self) -> bool {
        match self.calls.filter(|_| self.held) {
            // SAFETY: has no preconditions.
            Some(calls) => unsafe { (calls.step)() > 0 },
            None => false,
        }
    }

    /// Starts a stopped NIC again.
    pub(crate) fn release(&mut self) {
        if let Some(calls) = self.calls.filter(|_| self.held) {
            // SAFETY: has no preconditions.
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
