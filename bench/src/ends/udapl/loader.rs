//! Libraries that are loaded with dlopen, and never unloaded: their threads may still run.

use std::ffi::{CStr, OsString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

pub(super) struct Library(ManuallyDrop<Loaded>);

impl Library {
    pub(super) fn open(name: &Path) -> Result<Self, String> {
        // SAFETY: the library's constructors run, which the user asked for.
        let loaded = unsafe { Loaded::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        Ok(Self(ManuallyDrop::new(loaded.map_err(cause)?)))
    }

    /// Returns a function of this library.
    ///
    /// # Safety
    /// `F` is the type of a function pointer, and the function of this name has this type.
    pub(super) unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        // SAFETY: required of the caller; the library is never unloaded.
        let function = unsafe { self.0.get::<F>(name.to_bytes_with_nul()) };
        Ok(*function.map_err(cause)?)
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        // SAFETY: the address is not called.
        let open: unsafe extern "C" fn() = unsafe { self.function(c"dat_ia_openv") }.ok()?;
        file_of(open as *const c_void)
    }
}

/// Returns the text of the dynamic loader.
fn cause(error: libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { desc } | libloading::Error::DlSym { desc } => {
            format!("{desc:?}").trim_matches('"').to_owned()
        }
        other => other.to_string(),
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
