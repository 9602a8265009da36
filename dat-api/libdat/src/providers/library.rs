//! A loaded provider library: `dlopen` and its two entry points.

use core::ffi::{CStr, c_void};
use core::mem;
use core::ptr::NonNull;
use std::ffi::CString;

use dat_api::environment;

use super::Key;
use crate::abi::{
    DAT_PROVIDER_FINI_FUNC, DAT_PROVIDER_FINI_FUNC_STR, DAT_PROVIDER_INIT_FUNC,
    DAT_PROVIDER_INIT_FUNC_STR,
};

/// A loaded library whose `dat_provider_init` has run. [`Library::end`] runs
/// `dat_provider_fini` and unloads the library.
pub(super) struct Library {
    handle: NonNull<c_void>,
    fini: DAT_PROVIDER_FINI_FUNC,
}

// SAFETY: a handle of dlopen is valid on any thread.
unsafe impl Send for Library {}

impl Library {
    /// Loads a library with its symbols visible to later ones, and calls its
    /// `dat_provider_init` for the key.
    ///
    /// # Errors
    /// The reason why the library cannot be loaded.
    pub(super) fn load(path: &str, key: &Key, instance_data: &str) -> Result<Self, String> {
        // A privileged program must not load from the working directory, which
        // its caller chose. A name without a slash is safe: the loader then
        // ignores LD_LIBRARY_PATH.
        if environment::is_secure() && path.contains('/') && !path.starts_with('/') {
            return Err(
                "a relative path, in a program that runs with more rights than its caller: \
                 write the absolute path in /etc/dat.conf"
                    .to_owned(),
            );
        }
        let c_string =
            |text: &str| CString::new(text).map_err(|_| "the text contains a NUL byte".to_owned());
        let (path, data) = (c_string(path)?, c_string(instance_data)?);
        // SAFETY: the path is a C string. The library's constructors are outside
        // this crate's control.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        let Some(handle) = NonNull::new(handle) else {
            return Err(loader_error());
        };
        // SAFETY: the specification gives these names to such functions; a null
        // pointer becomes `None`.
        let (init, fini) = unsafe {
            (
                mem::transmute::<*mut c_void, DAT_PROVIDER_INIT_FUNC>(symbol(
                    handle,
                    DAT_PROVIDER_INIT_FUNC_STR,
                )),
                mem::transmute::<*mut c_void, DAT_PROVIDER_FINI_FUNC>(symbol(
                    handle,
                    DAT_PROVIDER_FINI_FUNC_STR,
                )),
            )
        };
        if let Some(init) = init {
            let info = key.to_info();
            // SAFETY: both arguments live until the call returns.
            unsafe { init(&raw const info, data.as_ptr()) };
        }
        Ok(Self { handle, fini })
    }

    /// Lets the library remove its entry, then unloads the library.
    pub(super) fn end(self, key: &Key) {
        if let Some(fini) = self.fini {
            let info = key.to_info();
            // SAFETY: the argument lives until the call returns, and the library
            // is loaded.
            unsafe { fini(&raw const info) };
        }
        // The entry must not outlive the code that its table points to.
        let _ = super::dynamic::remove(key);
        // SAFETY: loaded once, unloaded once; no adapter of it is open.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

fn symbol(library: NonNull<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: the library is loaded, and the name is a C string.
    unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) }
}

/// Returns the loader's message about the last failure.
fn loader_error() -> String {
    // SAFETY: the text belongs to this thread until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gave no reason".to_owned();
    }
    // SAFETY: dlerror returned a C string.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
