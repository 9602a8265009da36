//! Turns, adapters, and what the process holds.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_api::handle::Handle;
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::{DatError, DatReturn, ReturnType, Subtype};

use crate::world;
pub use crate::world::close_ia;

static TURN: Mutex<()> = Mutex::new(());

/// Adapters that [`open`] has opened.
static OPENED: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

/// No other test runs.
pub struct Turn(#[expect(dead_code, reason = "kept for its drop")] MutexGuard<'static, ()>);

/// The device is there, and no other test runs.
pub fn turn() -> Turn {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    world::device();
    Turn(turn)
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        for ia in opened.drain(..) {
            // What a test that failed has left is not to disturb the next.
            let _ = close_ia(ia, false);
        }
    }
}

/// A request for `name` with an asynchronous EVD of its own.
pub fn request(name: &str) -> OpenRequest<'_> {
    OpenRequest {
        name,
        async_qlen: 8,
        async_evd: AsyncEvd::New,
        threadsafe: false,
        major: 1,
        minor: 2,
    }
}

/// An open adapter, and its asynchronous EVD.
pub fn open(name: &str) -> (Arc<Ia>, Handle) {
    let (ia, evd) = Ia::open(&request(name)).expect("the adapter opens");
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.push(ia.handle());
    (ia, evd.expect("asked for"))
}

/// Opening is refused.
pub fn refused(request: &OpenRequest<'_>) -> DatError {
    Ia::open(request).expect_err("refused")
}

pub fn close(ia: Arc<Ia>) {
    close_ia(ia.handle(), false).expect("an abrupt close always completes");
}

pub fn code(kind: ReturnType, subtype: Subtype) -> DatReturn {
    DatReturn::error(kind, subtype)
}

/// Descriptors of the process, and threads of the library.
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

/// The process holds what it held before. A thread that was waited for is
/// still listed for a moment.
pub fn hold(before: (usize, usize)) {
    world::until("the end of descriptors and threads", || {
        holdings() == before
    });
}

/// The process holds no more descriptors than that. A thread that has just
/// started reads a file.
pub fn descriptors_at_most(before: usize) {
    world::until("the end of descriptors", || holdings().0 <= before);
}

/// Variables of the environment, put back when this is dropped. Only with
/// [`turn`].
pub struct Variables(Vec<(&'static str, Option<OsString>)>);

impl Variables {
    pub fn set(pairs: &[(&'static str, &str)]) -> Self {
        let before = pairs
            .iter()
            .map(|&(name, _)| (name, std::env::var_os(name)));
        let before = Self(before.collect());
        for (name, value) in pairs {
            // SAFETY: one test at a time, and the library's threads do not
            // look at the environment.
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

/// A dat.conf of one test.
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
