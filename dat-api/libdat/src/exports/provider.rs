//! What another registry calls when it has loaded this library as a provider.
//! Serving one comes later: for now the library does not register itself, so
//! that registry finds no provider of the name.

use core::ffi::c_char;

use crate::abi::DAT_PROVIDER_INFO;

/// Does nothing yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_init(
    _provider_info: *const DAT_PROVIDER_INFO,
    _instance_data: *const c_char,
) {
}

/// Does nothing yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_fini(_provider_info: *const DAT_PROVIDER_INFO) {}
