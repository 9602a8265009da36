//! Entry points for another registry that has loaded this library as a provider.
//! They return nothing: errors are printed as `DAT_DBG_TYPE` says, and the
//! registry then finds no entry.

use core::ffi::c_char;

use dat_api::Subtype;

use crate::abi::DAT_PROVIDER_INFO;
use crate::face::frame::{control, ending};
use crate::face::subject::Subject;
use crate::providers::{Key, guest};

/// Registers the key with the calling registry. `instance_data` has the format of
/// this library's dat.conf: `"DEVICE PORT [KEY=VALUE…]"`.
#[unsafe(export_name = symbol!(dat_provider_init))]
pub unsafe extern "C" fn dat_provider_init(
    provider_info: *const DAT_PROVIDER_INFO,
    instance_data: *const c_char,
) {
    control("dat_provider_init", Subject::Nothing, || {
        // SAFETY: the contract of `exports`.
        let key = unsafe { Key::read(provider_info, Subtype::InvalidArg1) }?;
        // SAFETY: the contract of `exports`.
        guest::register(key, unsafe { guest::text(instance_data) }?)
    });
}

/// Removes the registry entry again.
#[unsafe(export_name = symbol!(dat_provider_fini))]
pub unsafe extern "C" fn dat_provider_fini(provider_info: *const DAT_PROVIDER_INFO) {
    ending("dat_provider_fini", Subject::Nothing, || {
        // SAFETY: the contract of `exports`.
        let key = unsafe { Key::read(provider_info, Subtype::InvalidArg1) }?;
        guest::unregister(&key)
    });
}
