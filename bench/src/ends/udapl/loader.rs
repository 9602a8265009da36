//! Libraries that are loaded with dlopen.

use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A handle of dlopen. Never closed, because the library's threads may still run.
pub(super) struct Library(*mut c_void);

impl Library {
    pub(super) fn open(name: &Path) -> Result<Self, String> {
        let text = CString::new(name.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: `text` is a C string. The library's constructors run, which
        // the user asked for.
        let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(last_error());
        }
        Ok(Self(library))
    }

    /// Returns the address of a function of this library.
    pub(super) fn symbol(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle is never closed, and `name` is a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(last_error());
        }
        Ok(address)
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        file_of(self.symbol(c"dat_ia_openv").ok()?)
    }
}

/// Returns the path of the file from which an address was loaded.
fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address; the structure is a local variable that is written.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: all zeros are a valid value, so it is valid whether written or not.
    let name: *const c_char = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || name.is_null() {
        return None;
    }
    // SAFETY: a C string that lives as long as the library, which is never unloaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(OsString::from_vec(name.to_bytes().to_vec()).into())
}

/// Returns the text of `dlerror`.
fn last_error() -> String {
    // SAFETY: has no preconditions; the text is valid until this thread's next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic loader returned no cause".into();
    }
    // SAFETY: not null, so it is a C string.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dat_bench_exports_no_dat_calls_that_could_replace_the_libraries() {
        for name in [
            c"dat_ia_openv",
            c"dat_ep_post_send",
            c"dat_evd_dequeue",
            c"dat_extension_op",
        ] {
            // SAFETY: `name` is a C string.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert!(address.is_null(), "{name:?} in {:?}", file_of(address));
        }
    }
}
