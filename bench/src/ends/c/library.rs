//! `libdat.so`, loaded with dlopen and called through its symbols only.
//!
//! It is not linked, because several DAT libraries export the same names, and a
//! benchmark of one must not call another. Of the crate `libdat` only the types
//! are used.

use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use dat::abi::{
    DAT_CR_ACCEPT_FUNC, DAT_CR_QUERY_FUNC, DAT_EP_CONNECT_FUNC, DAT_EP_CREATE_FUNC,
    DAT_EP_CREATE_WITH_SRQ_FUNC, DAT_EP_FREE_FUNC, DAT_EP_POST_RDMA_READ_FUNC,
    DAT_EP_POST_RDMA_WRITE_FUNC, DAT_EP_POST_RECV_FUNC, DAT_EP_POST_SEND_FUNC, DAT_EVD_CREATE_FUNC,
    DAT_EVD_DEQUEUE_FUNC, DAT_EVD_FREE_FUNC, DAT_EVD_WAIT_FUNC, DAT_IA_CLOSE_FUNC,
    DAT_IA_OPENV_FUNC, DAT_IA_QUERY_FUNC, DAT_LMR_CREATE_FUNC, DAT_LMR_FREE_FUNC,
    DAT_PSP_CREATE_ANY_FUNC, DAT_PSP_FREE_FUNC, DAT_PZ_CREATE_FUNC, DAT_PZ_FREE_FUNC,
    DAT_SRQ_CREATE_FUNC, DAT_SRQ_FREE_FUNC, DAT_SRQ_POST_RECV_FUNC,
};

use crate::failure::Failure;

/// The environment variable with the path of the library.
const VARIABLE: &str = "DAT_BENCH_LIBDAT";
/// The file name in the build folder.
const BESIDE: &str = "libdat.so";
/// The file name of an installed library.
const INSTALLED: &str = "libdat.so.1";

/// Declares [`Calls`].
macro_rules! calls {
    ($($name:ident: $type:ident = $symbol:literal,)*) => {
        /// Function pointers of the library.
        #[derive(Clone, Copy)]
        pub(crate) struct Calls {
            $(pub(crate) $name: <$type as Function>::Pointer,)*
        }

        impl Calls {
            fn find(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let address = library.symbol($symbol)?;
                        // SAFETY: the symbol is the loaded library's function of
                        // this name, which has this type in uDAPL 1.2, and
                        // `symbol` never returns null.
                        unsafe { core::mem::transmute::<*mut c_void, <$type as Function>::Pointer>(address) }
                    },)*
                })
            }
        }
    };
}

calls! {
    ia_openv: DAT_IA_OPENV_FUNC = c"dat_ia_openv",
    ia_query: DAT_IA_QUERY_FUNC = c"dat_ia_query",
    ia_close: DAT_IA_CLOSE_FUNC = c"dat_ia_close",
    pz_create: DAT_PZ_CREATE_FUNC = c"dat_pz_create",
    pz_free: DAT_PZ_FREE_FUNC = c"dat_pz_free",
    lmr_create: DAT_LMR_CREATE_FUNC = c"dat_lmr_create",
    lmr_free: DAT_LMR_FREE_FUNC = c"dat_lmr_free",
    evd_create: DAT_EVD_CREATE_FUNC = c"dat_evd_create",
    evd_free: DAT_EVD_FREE_FUNC = c"dat_evd_free",
    evd_dequeue: DAT_EVD_DEQUEUE_FUNC = c"dat_evd_dequeue",
    evd_wait: DAT_EVD_WAIT_FUNC = c"dat_evd_wait",
    ep_create: DAT_EP_CREATE_FUNC = c"dat_ep_create",
    ep_create_with_srq: DAT_EP_CREATE_WITH_SRQ_FUNC = c"dat_ep_create_with_srq",
    ep_free: DAT_EP_FREE_FUNC = c"dat_ep_free",
    ep_connect: DAT_EP_CONNECT_FUNC = c"dat_ep_connect",
    ep_post_recv: DAT_EP_POST_RECV_FUNC = c"dat_ep_post_recv",
    ep_post_send: DAT_EP_POST_SEND_FUNC = c"dat_ep_post_send",
    ep_post_rdma_write: DAT_EP_POST_RDMA_WRITE_FUNC = c"dat_ep_post_rdma_write",
    ep_post_rdma_read: DAT_EP_POST_RDMA_READ_FUNC = c"dat_ep_post_rdma_read",
    srq_create: DAT_SRQ_CREATE_FUNC = c"dat_srq_create",
    srq_free: DAT_SRQ_FREE_FUNC = c"dat_srq_free",
    srq_post_recv: DAT_SRQ_POST_RECV_FUNC = c"dat_srq_post_recv",
    psp_create_any: DAT_PSP_CREATE_ANY_FUNC = c"dat_psp_create_any",
    psp_free: DAT_PSP_FREE_FUNC = c"dat_psp_free",
    cr_query: DAT_CR_QUERY_FUNC = c"dat_cr_query",
    cr_accept: DAT_CR_ACCEPT_FUNC = c"dat_cr_accept",
}

/// The function pointer type in an `Option`.
pub(crate) trait Function {
    type Pointer;
}

impl<F> Function for Option<F> {
    type Pointer = F;
}

/// The loaded library.
pub(crate) struct Libdat {
    pub(crate) calls: Calls,
    path: PathBuf,
}

impl Libdat {
    /// Loads the library that `DAT_BENCH_LIBDAT` names, else the one in the folder
    /// of this executable, else the system's. It is never unloaded.
    pub(crate) fn load() -> Result<Self, Failure> {
        let beside = std::env::current_exe()
            .map(|this| this.with_file_name(BESIDE))
            .ok()
            .filter(|path| path.is_file());
        let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        Self::load_from(named, beside)
    }

    fn load_from(named: Option<OsString>, beside: Option<PathBuf>) -> Result<Self, Failure> {
        let name = match (named, beside) {
            // With a slash in the name, dlopen does not search other folders.
            (Some(name), _) => std::path::absolute(&name).unwrap_or_else(|_| name.into()),
            (None, Some(path)) => path,
            (None, None) => INSTALLED.into(),
        };
        let loaded = Library::open(&name).and_then(|library| {
            let calls = Calls::find(&library)?;
            let path = library.path().unwrap_or_else(|| name.clone());
            Ok(Self { calls, path })
        });
        loaded.map_err(|cause| {
            Failure::environment(format!(
                "--api c needs libdat.so: {cause}; build it (cargo build --release -p libdat), install it, or set {VARIABLE} to its path"
            ))
        })
    }

    /// Returns the path of the loaded file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A handle of dlopen. Never closed, because the library's threads may still run.
struct Library(*mut c_void);

impl Library {
    fn open(name: &Path) -> Result<Self, String> {
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
    fn symbol(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle is never closed, and `name` is a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(last_error());
        }
        Ok(address)
    }

    /// Returns the path of the library.
    fn path(&self) -> Option<PathBuf> {
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
    fn dat_bench_exports_no_dat_calls_that_could_replace_the_librarys() {
        for name in [c"dat_ia_openv", c"dat_ep_post_send", c"dat_evd_dequeue"] {
            // SAFETY: `name` is a C string.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert!(address.is_null(), "{name:?} in {:?}", file_of(address));
        }
    }

    #[test]
    fn a_missing_library_is_an_environment_failure_with_a_remedy() {
        let named = Some("/nonexistent/libdat.so".into());
        let Err(failure) = Libdat::load_from(named, None) else {
            panic!("the file does not exist");
        };
        assert_eq!(failure.status(), 2);
        for word in ["/nonexistent/libdat.so", "cargo build", VARIABLE] {
            assert!(failure.to_string().contains(word), "{failure}");
        }
    }

    #[test]
    fn a_library_without_dat_calls_is_refused() {
        let Err(failure) = Libdat::load_from(None, Some("libm.so.6".into())) else {
            panic!("libm has no DAT calls");
        };
        assert_eq!(failure.status(), 2);
        assert!(failure.to_string().contains("dat_ia_openv"), "{failure}");
    }
}
