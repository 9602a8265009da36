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

/// Lets the NIC of this process go on.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mlx5emu_release() {
    let _ = catch_unwind(|| {
        if let Some(emulator) = Emulator::get().filter(|it| !it.forked()) {
            emulator.release();
        }
    });
}
