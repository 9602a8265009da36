//! An adapter whose entry of dat.conf has settings.

use std::env;
use std::ffi::{CStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process;

use super::device;

/// The name of the entry.
const NAME: &CStr = c"configured";

/// Passes the name of an adapter whose instance data has these settings to `open`.
/// The caller has exclusive use of the device, and so of the environment.
pub fn with_entry<T>(settings: &str, open: impl FnOnce(&CStr) -> T) -> T {
    let name = NAME.to_str().expect("ASCII");
    let (device, port) = (device::name(), 1);
    let _file = File::new(&format!(
        "{name} u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"{device} {port} {settings}\" \"\"\n"
    ));
    open(NAME)
}

/// A file that `DAT_OVERRIDE` names while this value exists.
struct File {
    path: PathBuf,
    before: Option<OsString>,
}

impl File {
    fn new(text: &str) -> Self {
        let path = env::temp_dir().join(format!("dat-configured-{}.conf", process::id()));
        fs::write(&path, text).expect("a file");
        let before = env::var_os("DAT_OVERRIDE");
        // SAFETY: no other test reads the environment now.
        unsafe { env::set_var("DAT_OVERRIDE", &path) };
        Self { path, before }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            match &self.before {
                Some(before) => env::set_var("DAT_OVERRIDE", before),
                None => env::remove_var("DAT_OVERRIDE"),
            }
        }
        let _ = fs::remove_file(&self.path);
    }
}
