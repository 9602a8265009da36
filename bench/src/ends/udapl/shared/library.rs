//! A version's library, loaded with dlopen and called through its symbols only.
//!
//! It is not linked, because several DAT libraries export the same names, and a
//! benchmark of one must not call another. Of the crates `libdat` and `libdat2` only the
//! types are used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::abi::*;

use super::{Library, NAMES, OwnCalls};
use crate::failure::Failure;

/// Where the library of a version is.
pub(super) struct Names {
    pub(super) api: &'static str,
    /// The package that builds it.
    pub(super) package: &'static str,
    /// The environment variable with its path.
    pub(super) variable: &'static str,
    /// The file name in the build folder.
    pub(super) beside: &'static str,
    /// The file name of an installed library.
    pub(super) installed: &'static str,
}

/// Declares [`Calls`].
macro_rules! calls {
    ($($name:ident: $type:ident = $symbol:literal,)*) => {
        /// Function pointers of the library.
        #[derive(Clone, Copy)]
        pub(crate) struct Calls {
            $(pub(crate) $name: <$type as Function>::Pointer,)*
            /// The calls that only this version has.
            #[allow(dead_code, reason = "uDAPL 1.2 has none that are used")]
            pub(crate) own: OwnCalls,
        }

        impl Calls {
            fn find(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: the loaded library's functions of these names have these types
                    // in this version.
                    $($name: unsafe { library.function::<<$type as Function>::Pointer>($symbol) }?,)*
                    own: OwnCalls::find(library)?,
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
    type Pointer: Copy;
}

impl<F: Copy> Function for Option<F> {
    type Pointer = F;
}

/// The loaded library.
pub(crate) struct Libdat {
    pub(crate) calls: Calls,
    path: PathBuf,
}

impl Libdat {
    /// Loads the library that the environment variable names, else the one in the
    /// folder of this executable, else the system's. It is never unloaded.
    pub(crate) fn load() -> Result<Self, Failure> {
        let beside = std::env::current_exe()
            .map(|this| this.with_file_name(NAMES.beside))
            .ok()
            .filter(|path| path.is_file());
        let named = std::env::var_os(NAMES.variable).filter(|name| !name.is_empty());
        Self::load_from(named, beside)
    }

    fn load_from(named: Option<OsString>, beside: Option<PathBuf>) -> Result<Self, Failure> {
        let name = match (named, beside) {
            // With a slash in the name, dlopen does not search other folders.
            (Some(name), _) => std::path::absolute(&name).unwrap_or_else(|_| name.into()),
            (None, Some(path)) => path,
            (None, None) => NAMES.installed.into(),
        };
        let loaded = Library::open(&name).and_then(|library| {
            let calls = Calls::find(&library)?;
            let path = library.path().unwrap_or_else(|| name.clone());
            Ok(Self { calls, path })
        });
        loaded.map_err(|cause| {
            let Names {
                api,
                package,
                variable,
                ..
            } = NAMES;
            Failure::environment(format!(
                "--api {api} needs {package}.so: {cause}; build it (cargo build --release -p {package}), install it, or set {variable} to its path"
            ))
        })
    }

    /// Returns the path of the loaded file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_environment_failure_with_a_remedy() {
        let named = Some("/nonexistent/libdat.so".into());
        let Err(failure) = Libdat::load_from(named, None) else {
            panic!("the file does not exist");
        };
        assert_eq!(failure.status(), 2);
        for word in ["/nonexistent/libdat.so", "cargo build", NAMES.variable] {
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
