//! A library of providers: `dlopen`, and its two functions.

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
/// its `dat_provider_fini` and unloads it.
pub(super) struct Library {
    handle: NonNull<c_void>,
    fini: DAT_PROVIDER_FINI_FUNC,
}

// SAFETY: a handle of dlopen is good on any thread.
unsafe impl Send for Library {}

impl Library {
    /// Loads a library, whose names others may then use, and lets it register
    /// the key.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub(super) fn load(path: &str, key: &Key, instance_data: &str) -> Result<Self, String> {
        // The working directory is the caller's choice. A name without a slash
        // is safe: the loader then ignores LD_LIBRARY_PATH.
        if environment::is_secure() && path.contains('/') && !path.starts_with('/') {
            return Err(
                "a relative path, in a program that runs with more rights than its caller: \
                 write the absolute path in /etc/dat.conf"
                    .to_owned(),
            );
        }
        let c_string = |text: &str| CString::new(text).map_err(|_| "a byte 0".to_owned());
        let (path, data) = (c_string(path)?, c_string(instance_data)?);
        // SAFETY: a C string. What the library's constructors do is its own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        let Some(handle) = NonNull::new(handle) else {
            return Err(complaint());
        };
        // SAFETY: by the specification these names are such functions, if they
        // are there at all; a null pointer is `None`.
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
            // SAFETY: both live through the call.
            unsafe { init(&raw const info, data.as_ptr()) };
        }
        Ok(Self { handle, fini })
    }

    /// Lets the library remove its entry, and unloads it.
    pub(super) fn end(self, key: &Key) {
        if let Some(fini) = self.fini {
            let info = key.to_info();
            // SAFETY: it lives through the call, and the library is loaded.
            unsafe { fini(&raw const info) };
        }
        // The entry must not outlive the code that its table leads to.
        let _ = super::dynamic::remove(key);
        // SAFETY: loaded once, unloaded once; no adapter of it is open.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

fn symbol(library: NonNull<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: a library that is loaded, and a C string.
    unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) }
}

/// What the loader says of the last failure.
fn complaint() -> String {
    // SAFETY: the text is the thread's own until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: a C string.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
