//! The emulated devices of this process: whether there are any, and the emulator
//! behind them once one was opened.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, OnceLock};

use libc::{ENODEV, c_int};

use super::node::Node;
use crate::config::Config;
use crate::emulator::Emulator;
use crate::fork::{self, PerProcess};
use crate::log;
use crate::log::warn;
use crate::real;
use crate::refusal::refuse;
use crate::spec::{Errno, Result};
use crate::sync::Mutex;
use crate::sysfs::Sysfs;
use crate::ucma::{CmFile, Ucma};
use crate::uverbs::{Backend, DeviceConfig, DeviceFile, EmulatorBackend, Events, files};

/// The configuration; `None` if this process has no emulated devices.
static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// The emulator; locked while the first device is opened.
static BACKEND: PerProcess<Mutex<Option<Arc<dyn Backend>>>> = PerProcess::new();

/// rdma_cm of this process, once it was opened.
static UCMA: PerProcess<OnceLock<Arc<Ucma>>> = PerProcess::new();

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
    // Not `get_or_init`, which a child that is forked meanwhile would wait in.
    if CONFIG.get().is_none() {
        let _ = CONFIG.set(from_environment());
    }
    CONFIG.get()?.as_ref()
}

/// Returns the directory of the sysfs tree, without symbolic links in its path, if
/// this process has emulated devices.
pub(super) fn tree() -> Option<&'static [u8]> {
    static ROOT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    config()?;
    let root = || {
        let path = CString::new(std::env::var_os("SYSFS_PATH")?.into_vec()).ok()?;
        let mut real = vec![0_u8; libc::PATH_MAX as usize];
        // SAFETY: a C string, and the room that `realpath` needs.
        let found = unsafe { real::realpath(path.as_ptr(), real.as_mut_ptr().cast()) };
        if found.is_null() {
            return None;
        }
        let real = CStr::from_bytes_until_nul(&real).ok()?;
        Some(real.to_bytes().to_vec())
    };
    if ROOT.get().is_none() {
        let _ = ROOT.set(root());
    }
    ROOT.get()?.as_deref()
}

/// Returns the error of a call in a forked child that concerns its parent's device.
pub(super) fn refuse_child(code: c_int) -> Errno {
    const WHY: &str =
        "a forked child cannot use a device that its parent opened: open it in the child";
    if !fork::is_outsider() {
        warn("fork", WHY);
    }
    refuse(code, WHY)
}

/// Opens a device file. Of the flags, `O_CLOEXEC` and `O_NONBLOCK` have an effect.
pub(super) fn open(node: Node, flags: c_int) -> Result<RawFd> {
    start_log();
    log::observed("open", || {
        log::request(|| format!("/dev/infiniband/{}", node.name()));
        open_node(node, flags)
    })
}

fn open_node(node: Node, flags: c_int) -> Result<RawFd> {
    node.check()?;
    if fork::is_outsider() {
        return Err(refuse(
            ENODEV,
            "this child shares the memory of its parent (vfork): it can open devices after exec",
        ));
    }
    match node {
        Node::Verbs(device) => {
            let config = config().map(DeviceConfig::from).ok_or(Errno(ENODEV))?;
            let file = DeviceFile::open(backend()?, device, config).map_err(errno)?;
            let fd = file.application_descriptor().map_err(errno)?;
            set_close_on_exec(&fd, flags);
            files().publish_device(fd, Arc::new(file))
        }
        Node::RdmaCm => {
            backend()?;
            let emulator = Emulator::get().ok_or(Errno(ENODEV))?;
            let ucma = Arc::clone(UCMA.get().get_or_init(|| Ucma::start(emulator)));
            let (file, fd) = CmFile::open(&ucma).map_err(errno)?;
            set_close_on_exec(&fd, flags);
            if flags & libc::O_NONBLOCK != 0 {
                // SAFETY: a plain call on a descriptor we own.
                unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
            }
            files().publish_cm(fd, Arc::new(file))
        }
    }
}

/// Shows commands from now on, if the configuration asks for it.
pub(super) fn start_log() {
    let Some(config) = config() else { return };
    if let Err(error) = log::start(config.trace_commands.as_deref(), config.explain) {
        let text = format!("cannot write the trace of commands: {error}");
        warn("trace of commands", &text);
    }
}

/// Adapts a descriptor that is closed on exec to the flags of `open`.
fn set_close_on_exec(fd: &OwnedFd, flags: c_int) {
    if flags & libc::O_CLOEXEC == 0 {
        // SAFETY: a plain call on a descriptor we own.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) };
    }
}

/// Returns the emulator, which the first opened device starts.
fn backend() -> Result<Arc<dyn Backend>> {
    let mut backend = BACKEND.get().lock();
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
        refuse(ENODEV, "the emulated device cannot start")
    })?;
    let started: Arc<dyn Backend> = Arc::new(EmulatorBackend::new(emulator, events));
    *backend = Some(Arc::clone(&started));
    Ok(started)
}

/// Returns the emulator if it was started.
pub(super) fn started() -> Option<Arc<dyn Backend>> {
    BACKEND.get().lock().clone()
}

fn errno(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
