//! The provider table that the first word of every handle points to.

use core::ptr::NonNull;

use crate::abi::*;
use crate::exports::*;
use crate::version;

/// Defines the table of this library, and the functions that read a call's slot of any table.
macro_rules! table {
    ($($slot:ident: $type:ident = $call:ident,)*) => {
        /// The table of this library's calls. The macros of `dat_redirection.h` call
        /// through it, as do registries that load this library as a provider.
        #[allow(clippy::needless_update, reason = "a later version has a slot more")]
        pub static PROVIDER: DAT_PROVIDER = DAT_PROVIDER {
            // One table serves all adapters; `dat_ia_query` returns an adapter's name.
            device_name: c"".as_ptr(),
            extension: core::ptr::null_mut(),
            $($slot: Some($call),)*
            ..version::PROVIDER
        };

        /// The slots of a table, by the names of their calls.
        #[allow(dead_code, reason = "not every call is forwarded by its name")]
        pub(crate) mod slot {
            use super::*;

            $(
                /// # Safety
                /// The table is readable.
                #[inline(always)]
                pub(crate) unsafe fn $call(table: NonNull<DAT_PROVIDER>) -> $type {
                    // SAFETY: the table is readable.
                    unsafe { (*table.as_ptr()).$slot }
                }
            )*
        }
    };
}

// The build script has found the slots in the headers.
include!(concat!(env!("OUT_DIR"), "/slots.rs"));
