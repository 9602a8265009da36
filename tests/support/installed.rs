//! Installs the emulated device in the test process, unless an existing device is
//! named.

use std::sync::{Mutex, OnceLock, PoisonError};

use dat_engine::{DataInOrder, Transport};
use mlx5emu::config::{Config, Face};
use mlx5emu::nasty::Modes;
use mlx5emu::preload::{Installed, install};

#[path = "given.rs"]
mod given;

pub use given::{given, name};

/// The emulated device, until the process ends; `None` if an existing device is
/// named.
static DEVICE: OnceLock<Mutex<Option<Installed>>> = OnceLock::new();

/// Installs an emulated device at the first call, unless an existing device is
/// named. Every test calls this function first.
pub fn set_up(config: impl FnOnce() -> Config) {
    DEVICE.get_or_init(|| {
        // SAFETY: other tests wait for this lock and read the environment
        // afterwards. libmlx5 prints every error CQE, and these tests cause many.
        unsafe { std::env::set_var("MLX5_DEBUG_FILE", "/dev/null") };
        if given().is_some() {
            return Mutex::new(None);
        }
        // SAFETY: as above.
        let installed = unsafe { install(&config()) }.expect("an emulated device");
        // SAFETY: the function may be called at exit.
        unsafe { libc::atexit(take_down) };
        Mutex::new(Some(installed))
    });
}

/// Removes the directory of the emulated device. Statics are not dropped, so this
/// runs at exit.
extern "C" fn take_down() {
    if let Some(device) = DEVICE.get() {
        drop(device.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Returns what the emulated device of this process says about the order of a message's
/// bytes; none for an existing device.
pub fn expected_order() -> Option<DataInOrder> {
    if given().is_some() {
        return None;
    }
    let config = Config::from_env().expect("variables of the emulated device");
    let promises = config.data_in_order == mlx5emu::config::DataInOrder::Yes
        && !config.nasty.modes.contains(Modes::PARTS)
        && config.face == Face::Ioctl
        // libibverbs asks the device on x86 only.
        && cfg!(target_arch = "x86_64");
    Some(match promises {
        true => DataInOrder::Yes,
        false => DataInOrder::No,
    })
}

/// Returns whether the device under test uses iWARP, where an RDMA read has one
/// segment. The emulated device does not; libibverbs must not list devices before
/// it is installed, so this function does not ask.
pub fn is_iwarp() -> bool {
    static IWARP: OnceLock<bool> = OnceLock::new();
    *IWARP.get_or_init(|| {
        let Some(given) = given() else {
            return false;
        };
        let devices = dat_engine::devices().unwrap_or_default();
        let found = devices.into_iter().find(|one| one.name == given);
        found.is_some_and(|device| device.transport == Transport::Iwarp)
    })
}
