//! The functions with which a benchmark controls the NIC of its process. It finds
//! them with `dlsym`.

use std::ffi::c_int;
use std::panic::catch_unwind;

use crate::emulator::Emulator;
use crate::fork;

/// Pauses the NIC of this process until [`mlx5emu_release`]. Returns 0 when it is
/// paused, or -1 if no device was opened or it cannot be paused. While it is
/// paused, the caller must not destroy queues or close the device.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mlx5emu_hold() -> c_int {
    let holds = || Emulator::get().is_some_and(|it| !fork::is_outsider() && it.pause());
    match catch_unwind(holds) {
        Ok(true) => 0,
        _ => -1,
    }
}

/// Runs a paused NIC for one step: takes the doorbells and at most one packet,
/// and does at most one unit of work. Returns 1 if there was something to do, 0
/// if not, and -1 if the NIC is not paused. Only one thread may step it at a time.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mlx5emu_step() -> c_int {
    let steps = || {
        Emulator::get()
            .filter(|_| !fork::is_outsider())
            .and_then(Emulator::step_paused)
    };
    match catch_unwind(steps) {
        Ok(Some(worked)) => worked.into(),
        _ => -1,
    }
}

/// Resumes the NIC of this process.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mlx5emu_release() {
    let _ = catch_unwind(|| {
        if let Some(emulator) = Emulator::get().filter(|_| !fork::is_outsider()) {
            emulator.resume();
        }
    });
}
