//! The emulated devices of this process: whether there are any, and the emulator
//! behind them once one was opened.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use libc::{ENODEV, ENOENT};

use crate::config::Config;
use crate::emulator::Emulator;
use crate::nic::spec::{Errno, Result};
use crate::sync::Mutex;
use crate::sysfs::Sysfs;
use crate::ucma::{CmFile, Ucma};
use crate::uverbs::{Backend, DeviceConfig, DeviceFile, EmulatorBackend, Events, FILES, warn};

/// The configuration; `None` if this process has no emulated devices.
static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// The process that opened the first device; 0 before that.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The emulator; locked while the first device is opened.
static BACKEND: Mutex<Option<Arc<dyn Backend>>> = Mutex::new(None);

/// rdma_cm of this process, once it was opened.
static UCMA: OnceLock<Arc<Ucma>> = OnceLock::new();

/// The emulated devices of a program that links this crate. The directory in
/// which libibverbs finds them is removed when this value is dropped or the
/// program exits (test programs may keep the value in a static).
#[derive(Debug)]
pub struct Installed(());

/// The sysfs tree of installed devices.
static TREE: Mutex<Option<Sysfs>> = Mutex::new(None);

extern "C" fn remove_tree() {
    // Dropping the tree does nothing in a forked child.
    drop(TREE.try_lock().and_then(|mut tree| tree.take()));
}

impl Drop for Installed {
    fn drop(&mut self) {
        remove_tree();
    }
}

/// Installs emulated devices in the calling program, without a launcher. Must be
/// called before libibverbs is used; the program must also be linked as
/// [`super::link`] describes. The emulator starts, in the configured mode, when
/// the first device is opened.
///
/// # Errors
/// Returns an error if the sysfs tree cannot be written, or if the process has
/// already looked for devices or installed them.
///
/// # Safety
/// Sets `SYSFS_PATH` in the environment and, unless it has a value, `DAT_LISTEN`:
/// no other thread may access the environment meanwhile.
pub unsafe fn install(config: &Config) -> std::io::Result<Installed> {
    super::link();
    let sysfs = Sysfs::create(config)?;
    if CONFIG.set(Some(config.clone())).is_err() {
        let text = "emulated devices are already in use in this process: install them before libibverbs is used";
        return Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, text));
    }
    // SAFETY: the caller ensures that no other thread accesses the environment.
    unsafe { std::env::set_var("SYSFS_PATH", sysfs.root()) };
    if let Some((name, value)) = Config::listen_default() {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
    *TREE.lock() = Some(sysfs);
    // SAFETY: the handler is a function of this program and does not unwind.
    unsafe { libc::atexit(remove_tree) };
    Ok(Installed(()))
}

/// Returns the configuration if this process has emulated devices.
pub(super) fn config() -> Option<&'static Config> {
    let from_environment = || {
        // The launcher always sets it.
        std::env::var_os(Config::FABRIC)?;
        Config::from_env()
            .inspect_err(|error| warn("configuration", &format!("{error}; no device is emulated")))
            .ok()
    };
    CONFIG.get_or_init(from_environment).as_ref()
}

/// Returns the index in the path of an emulated device, `/dev/infiniband/uverbsN`.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn device_of(path: *const std::ffi::c_char) -> Option<u8> {
    const PREFIX: &[u8] = b"/dev/infiniband/uverbs";
    if path.is_null() {
        return None;
    }
    for (index, expected) in PREFIX.iter().enumerate() {
        // SAFETY: all earlier bytes equal the prefix, so the string does not
        // end before this byte.
        if unsafe { path.add(index).cast::<u8>().read() } != *expected {
            return None;
        }
    }
    config()?;
    // SAFETY: the prefix has no NUL, so the rest is a C string.
    let number = unsafe { CStr::from_ptr(path.add(PREFIX.len())) }
        .to_str()
        .ok()?;
    number.parse().ok()
}

/// Returns whether a path is `/dev/infiniband/rdma_cm`, and that is emulated.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn is_rdma_cm(path: *const std::ffi::c_char) -> bool {
    const PATH: &[u8] = b"/dev/infiniband/rdma_cm\0";
    if path.is_null() {
        return false;
    }
    for (index, expected) in PATH.iter().enumerate() {
        // SAFETY: all earlier bytes equal the path, so the string does not end
        // before this byte.
        if unsafe { path.add(index).cast::<u8>().read() } != *expected {
            return false;
        }
    }
    config().is_some_and(|config| config.rdma_cm)
}

/// Opens `/dev/infiniband/rdma_cm`.
pub(super) fn open_rdma_cm(close_on_exec: bool, non_blocking: bool) -> Result<RawFd> {
    refuse_child()?;
    backend()?;
    let emulator = Emulator::get().ok_or(Errno(ENODEV))?;
    let ucma = Arc::clone(UCMA.get_or_init(|| Ucma::start(emulator)));
    let (file, fd) = CmFile::open(&ucma).map_err(errno)?;
    if !close_on_exec {
        // SAFETY: a plain call on a descriptor we own.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) };
    }
    if non_blocking {
        // SAFETY: as above.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    }
    FILES.publish_cm(fd, Arc::new(file))
}

/// Returns an error in a forked child.
fn refuse_child() -> Result<()> {
    if forked() {
        warn(
            "fork",
            "a forked child cannot use the emulated device that its parent opened: \
             call exec in the child, or open devices only after the fork",
        );
        return Err(Errno(ENODEV));
    }
    Ok(())
}

/// Returns an error unless there is a device with this index.
pub(super) fn check_device(device: u8) -> Result<()> {
    let devices = config().map_or(0, |config| config.devices);
    if device < devices {
        Ok(())
    } else {
        Err(Errno(ENOENT))
    }
}

/// Returns whether this process was forked from the one that opened devices. The
/// child has a copy of its memory but no NIC thread. Takes no lock, since a lock
/// held by a thread of the parent stays locked in the child.
pub(super) fn forked() -> bool {
    let owner = OWNER.load(Relaxed);
    // SAFETY: getpid has no preconditions.
    owner != 0 && owner != unsafe { libc::getpid() }
}

/// Opens a device.
pub(super) fn open(device: u8, close_on_exec: bool) -> Result<RawFd> {
    check_device(device)?;
    refuse_child()?;
    let config = config().map(DeviceConfig::from).ok_or(Errno(ENODEV))?;
    let file = DeviceFile::open(backend()?, device, config).map_err(errno)?;
    let fd = file.application_descriptor().map_err(errno)?;
    if !close_on_exec {
        // SAFETY: a plain call on a descriptor we own.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) };
    }
    FILES.publish_device(fd, Arc::new(file))
}

/// Returns the emulator, which the first opened device starts.
fn backend() -> Result<Arc<dyn Backend>> {
    let mut backend = BACKEND.lock();
    if let Some(backend) = &*backend {
        return Ok(Arc::clone(backend));
    }
    let config = config().cloned().ok_or(Errno(ENODEV))?;
    let events = Arc::new(Events::default());
    let emulator = Emulator::start(config, Box::new(Arc::clone(&events))).map_err(|error| {
        warn(
            "start",
            &format!("cannot start the emulated device: {error}"),
        );
        Errno(ENODEV)
    })?;
    // SAFETY: getpid has no preconditions.
    OWNER.store(unsafe { libc::getpid() }, Relaxed);
    let started: Arc<dyn Backend> = Arc::new(EmulatorBackend::new(emulator, events));
    *backend = Some(Arc::clone(&started));
    Ok(started)
}

/// Returns the emulator if it was started.
pub(super) fn started() -> Option<Arc<dyn Backend>> {
    BACKEND.lock().clone()
}

fn errno(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
