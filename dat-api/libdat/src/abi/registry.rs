//! What the registry and a provider library tell each other.

use super::types::{DAT_BOOLEAN, DAT_UINT32, NAME_BYTES};
use core::ffi::{CStr, c_char};

/// The key of a registry entry: all four parts count.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_PROVIDER_INFO {
    pub ia_name: [c_char; NAME_BYTES],
    pub dapl_version_major: DAT_UINT32,
    pub dapl_version_minor: DAT_UINT32,
    pub is_thread_safe: DAT_BOOLEAN,
}

/// What a provider library exports as `dat_provider_init`.
pub type DAT_PROVIDER_INIT_FUNC = Option<
    unsafe extern "C" fn(provider_info: *const DAT_PROVIDER_INFO, instance_data: *const c_char),
>;
/// What a provider library exports as `dat_provider_fini`.
pub type DAT_PROVIDER_FINI_FUNC =
    Option<unsafe extern "C" fn(provider_info: *const DAT_PROVIDER_INFO)>;
/// The names of both, as `dlsym` takes them.
pub const DAT_PROVIDER_INIT_FUNC_STR: &CStr = c"dat_provider_init";
pub const DAT_PROVIDER_FINI_FUNC_STR: &CStr = c"dat_provider_fini";
