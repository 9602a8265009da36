//! The key of a registry entry.

use core::ffi::CStr;

use dat_api::{Result, Subtype};

use crate::abi::{DAT_BOOLEAN, DAT_FALSE, DAT_PROVIDER_INFO, DAT_TRUE};
use crate::face::frame::bad_argument;
use crate::face::strings;

/// Two keys are equal if all four parts are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The name: at most 255 bytes, none of them a NUL.
    pub(crate) name: Vec<u8>,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) threadsafe: bool,
}

impl Key {
    /// Reads a key.
    ///
    /// # Errors
    /// The pointer is null, or the name has no NUL. `argument` names the
    /// argument.
    ///
    /// # Safety
    /// The pointer is null or leads to a key.
    pub(crate) unsafe fn read(info: *const DAT_PROVIDER_INFO, argument: Subtype) -> Result<Self> {
        if info.is_null() {
            return Err(bad_argument(
                argument,
                "the key is null: expected a DAT_PROVIDER_INFO",
            ));
        }
        // SAFETY: not null, so it leads to a key.
        let info = unsafe { info.read_unaligned() };
        let bytes = info.ia_name.map(strings::byte);
        let name = CStr::from_bytes_until_nul(&bytes).map_err(|_| {
            bad_argument(
                argument,
                "the name in the key has no NUL: expected at most 255 bytes and a NUL",
            )
        })?;
        Ok(Self {
            name: name.to_bytes().to_vec(),
            major: info.dapl_version_major,
            minor: info.dapl_version_minor,
            threadsafe: info.is_thread_safe != DAT_FALSE,
        })
    }

    /// Converts the key to its C structure.
    pub(crate) fn to_info(&self) -> DAT_PROVIDER_INFO {
        let safe: DAT_BOOLEAN = if self.threadsafe { DAT_TRUE } else { DAT_FALSE };
        let mut name = [0; _];
        for (place, &byte) in name.iter_mut().zip(&self.name) {
            *place = strings::character(byte);
        }
        DAT_PROVIDER_INFO {
            ia_name: name,
            dapl_version_major: self.major,
            dapl_version_minor: self.minor,
            is_thread_safe: safe,
        }
    }

    /// Returns the name for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}
