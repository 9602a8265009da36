//! What a benchmark may ask of the emulator under it, by `dlsym`.

use std::ffi::c_int;
use std::panic::catch_unwind;

use crate::emulator::Emulator;

/// Makes the NIC of this process stand still until [`mlx5emu_release`]; 0 if it
/// does, -1 if no device was opened or it does not come to rest. A thread that
/// has made it stand must not destroy queues or close the device meanwhile.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mlx5emu_hold() -> c_int {
    let holds = || Emulator::get().is_some_and(|it| !it.forked() && it.hold());
    match catch_unwind(holds) {
        Ok(true) => 0,
        _ => -1,
    }
}

/// Moves the NIC, which stands still, by one step: takes the doorbells, at most
/// one packet, and does at most one unit of work. 1 if there was something to
/// do, 0 if not, -1 if it does not stand still. One thread at a time steps it.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mlx5emu_step() -> c_int {
    let steps = || {
        Emulator::get()
            .filter(|it| !it.forked())
            .and_then(Emulator::step_held)
    };
    match catch_unwind(steps) {
        Ok(Some(worked)) => worked.into(),
        _ => -1,
    }
}

/// Lets the NIC of this process go on.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mlx5emu_release() {
    let _ = catch_unwind(|| {
        if let Some(emulator) = Emulator::get().filter(|it| !it.forked()) {
            emulator.release();
        }
    });
}
