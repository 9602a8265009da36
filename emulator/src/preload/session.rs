//! This process' emulated devices: whether there are any, and the machine
//! behind them once one was opened.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use libc::{ENODEV, ENOENT};

use crate::config::Config;
use crate::emulator::Emulator;
use crate::nic::spec::{Errno, Result};
use crate::sysfs::Sysfs;
use crate::uverbs::{DeviceFile, Emulated, Events, FILES, Machine, Show, complain};

/// The configuration; `None` when there are no emulated devices here.
static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// The process that opened the first device; 0 before.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Held while the first device is opened.
static MACHINE: Mutex<Option<Arc<dyn Machine>>> = Mutex::new(None);

/// Emulated devices of a program that links this crate. The directory that
/// libibverbs finds them in goes when this is dropped or the program exits,
/// for test programs keep such things in statics.
#[derive(Debug)]
pub struct Installed(());

/// The tree of an installation.
static TREE: Mutex<Option<Sysfs>> = Mutex::new(None);

extern "C" fn remove_tree() {
    // The tree's drop looks that this is no forked child.
    drop(TREE.try_lock().ok().and_then(|mut tree| tree.take()));
}

impl Drop for Installed {
    fn drop(&mut self) {
        remove_tree();
    }
}

/// Gives this very program emulated devices, without a launcher. To be called
/// before libibverbs is used; see [`super::link`] for what else is needed. The
/// emulator starts, in the configured mode, when a device is opened first.
///
/// # Errors
/// When the sysfs tree cannot be written, or devices were looked for already
/// under another configuration.
///
/// # Safety
/// It sets `SYSFS_PATH` and, unless it has a value, `DAT_LISTEN` in the environment: no other thread may read or write
/// the environment meanwhile.
pub unsafe fn install(config: &Config) -> std::io::Result<Installed> {
    super::link();
    let sysfs = Sysfs::create(config)?;
    if CONFIG.set(Some(config.clone())).is_err() {
        let text = "devices were looked for, or installed, before";
        return Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, text));
    }
    // SAFETY: the caller keeps other threads away from the environment.
    unsafe { std::env::set_var("SYSFS_PATH", sysfs.root()) };
    if let Some((name, value)) = Config::listen_default() {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
    *TREE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(sysfs);
    // SAFETY: the handler is a function of this program and does not unwind.
    unsafe { libc::atexit(remove_tree) };
    Ok(Installed(()))
}

/// The configuration, if this process has emulated devices.
pub(super) fn config() -> Option<&'static Config> {
    let from_environment = || {
        // The launcher always sets it.
        std::env::var_os(Config::FABRIC)?;
        Config::from_env()
            .inspect_err(|error| complain("configuration", &format!("{error}; there is no device")))
            .ok()
    };
    CONFIG.get_or_init(from_environment).as_ref()
}

/// The index in the name of one of our device files, `/dev/infiniband/uverbsN`.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn device_of(path: *const std::ffi::c_char) -> Option<u8> {
    const PREFIX: &[u8] = b"/dev/infiniband/uverbs";
    if path.is_null() {
        return None;
    }
    for (index, expected) in PREFIX.iter().enumerate() {
        // SAFETY: all bytes before were those of the prefix, so the string's
        // end is not behind us.
        if unsafe { path.add(index).cast::<u8>().read() } != *expected {
            return None;
        }
    }
    config()?;
    // SAFETY: the prefix has no NUL, so the rest is a C string as well.
    let number = unsafe { CStr::from_ptr(path.add(PREFIX.len())) }
        .to_str()
        .ok()?;
    number.parse().ok()
}

/// Answers an error unless there is a device of this index.
pub(super) fn check_device(device: u8) -> Result<()> {
    let devices = config().map_or(0, |config| config.devices);
    if device < devices {
        Ok(())
    } else {
        Err(Errno(ENOENT))
    }
}

/// Whether this is a child of the process that opened devices: it has its
/// memory, but not its NIC. Takes no lock: one may be held for ever here.
pub(super) fn forked() -> bool {
    let owner = OWNER.load(Relaxed);
    // SAFETY: getpid has no demands.
    owner != 0 && owner != unsafe { libc::getpid() }
}

/// Opens a device.
pub(super) fn open(device: u8, close_on_exec: bool) -> Result<RawFd> {
    check_device(device)?;
    if forked() {
        complain(
            "fork",
            "a forked child cannot use the emulated device its parent opened; \
             let it exec, or open devices after the fork only",
        );
        return Err(Errno(ENODEV));
    }
    let show = config().map(Show::from).ok_or(Errno(ENODEV))?;
    let file = DeviceFile::open(machine()?, device, show).map_err(errno)?;
    let fd = file.application_descriptor().map_err(errno)?;
    if !close_on_exec {
        // SAFETY: a plain call on a descriptor we own.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) };
    }
    FILES.publish_device(fd, Arc::new(file))
}

/// The machine, which the first device to be opened starts.
fn machine() -> Result<Arc<dyn Machine>> {
    let mut machine = MACHINE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(machine) = &*machine {
        return Ok(Arc::clone(machine));
    }
    let config = config().cloned().ok_or(Errno(ENODEV))?;
    let events = Arc::new(Events::default());
    let emulator = Emulator::start(config, Box::new(Arc::clone(&events))).map_err(|error| {
        complain(
            "start",
            &format!("the emulated device cannot start: {error}"),
        );
        Errno(ENODEV)
    })?;
    // SAFETY: getpid has no demands.
    OWNER.store(unsafe { libc::getpid() }, Relaxed);
    let started: Arc<dyn Machine> = Arc::new(Emulated::new(emulator, events));
    *machine = Some(Arc::clone(&started));
    Ok(started)
}

/// The machine, if it was started.
pub(super) fn started() -> Option<Arc<dyn Machine>> {
    MACHINE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone()
}

fn errno(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
