//! The fixture of these tests: turns, adapters, and counts of descriptors and threads.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_api::handle::Handle;
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::{DatError, DatReturn, ReturnType, Subtype};

use crate::fixture;
pub use crate::fixture::close_ia;

static LOCK: Mutex<()> = Mutex::new(());

/// Adapters that [`open`] has opened.
static OPENED: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

/// While this lives, no other test runs.
pub struct DeviceLock(#[expect(dead_code, reason = "kept for its drop")] MutexGuard<'static, ()>);

/// Waits until no other test runs, and sets up the device.
pub fn lock_device() -> DeviceLock {
    let lock_device = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    fixture::device();
    DeviceLock(lock_device)
}

impl Drop for DeviceLock {
    fn drop(&mut self) {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        for ia in opened.drain(..) {
            // A test that failed must not disturb the next one.
            let _ = close_ia(ia, false);
        }
    }
}

/// Returns a request for `name` with an asynchronous EVD of its own.
pub fn request(name: &str) -> OpenRequest<'_> {
    OpenRequest {
        name,
        async_qlen: 8,
        async_evd: AsyncEvd::New,
        threadsafe: false,
        major: 1,
        minor: 2,
        interface: (1, 2),
    }
}

/// Opens an adapter; also returns its asynchronous EVD.
pub fn open(name: &str) -> (Arc<Ia>, Handle) {
    let (ia, evd) = Ia::open(&request(name)).expect("the adapter opens");
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.push(ia.handle());
    (ia, evd.expect("a new asynchronous EVD"))
}

/// Opens an adapter, which must fail.
pub fn refused(request: &OpenRequest<'_>) -> DatError {
    Ia::open(request).expect_err("refused")
}

pub fn close(ia: Arc<Ia>) {
    close_ia(ia.handle(), false).expect("an abrupt close always completes");
}

pub fn code(kind: ReturnType, subtype: Subtype) -> DatReturn {
    DatReturn::error(kind, subtype)
}

/// Returns the number of descriptors of the process, and of threads of the library.
pub fn holdings() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    let threads = std::fs::read_dir("/proc/self/task").expect("procfs");
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    let ours = names
        .filter(|name| name.starts_with("dat-") || name.starts_with("engine-"))
        .count();
    (descriptors, ours)
}

/// Waits until the process has as many descriptors and threads as before. A joined thread is still
/// listed for a moment.
pub fn hold(before: (usize, usize)) {
    fixture::until("the end of descriptors and threads", || {
        holdings() == before
    });
}

/// Waits until the process has no more descriptors than before. A thread that has just started
/// reads a file.
pub fn descriptors_at_most(before: usize) {
    fixture::until("the end of descriptors", || holdings().0 <= before);
}

/// Environment variables, restored when this is dropped. Only with [`turn`].
pub struct Variables(Vec<(&'static str, Option<OsString>)>);

impl Variables {
    pub fn set(pairs: &[(&'static str, &str)]) -> Self {
        let before = pairs
            .iter()
            .map(|&(name, _)| (name, std::env::var_os(name)));
        let before = Self(before.collect());
        for (name, value) in pairs {
            // SAFETY: one test runs at a time, and the library's threads do not read the
            // environment.
            unsafe { std::env::set_var(name, value) };
        }
        before
    }
}

impl Drop for Variables {
    fn drop(&mut self) {
        for (name, before) in &self.0 {
            // SAFETY: as above.
            unsafe {
                match before {
                    Some(value) => std::env::set_var(name, value),
                    None => std::env::remove_var(name),
                }
            }
        }
    }
}

/// The dat.conf of a test.
pub struct Conf {
    path: std::path::PathBuf,
    _variables: Variables,
}

impl Conf {
    pub fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dat-conf-{}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        let variables = Variables::set(&[("DAT_OVERRIDE", path.to_str().expect("ASCII"))]);
        Self {
            path,
            _variables: variables,
        }
    }

    pub fn path(&self) -> &str {
        self.path.to_str().expect("ASCII")
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
