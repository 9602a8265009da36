//! The key of a registry's entry.

use core::ffi::CStr;

use dat_api::{Result, Subtype};

use crate::abi::{DAT_BOOLEAN, DAT_FALSE, DAT_PROVIDER_INFO, DAT_TRUE};
use crate::face::answer::bad_argument;

/// All four parts count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Bytes without a NUL; at most 255.
    pub(crate) name: Vec<u8>,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) threadsafe: bool,
}

impl Key {
    /// # Errors
    /// The pointer is null, or the name does not end: the argument is wrong.
    ///
    /// # Safety
    /// The pointer is null or leads to a key.
    pub(crate) unsafe fn read(info: *const DAT_PROVIDER_INFO, argument: Subtype) -> Result<Self> {
        if info.is_null() {
            return Err(bad_argument(argument, "the key is null"));
        }
        // SAFETY: the caller's promise.
        let info = unsafe { info.read_unaligned() };
        let bytes = info.ia_name.map(i8::cast_unsigned);
        let name = CStr::from_bytes_until_nul(&bytes).map_err(|_| {
            bad_argument(
                argument,
                "the name in the key is longer than 255 bytes: it has no NUL",
            )
        })?;
        Ok(Self {
            name: name.to_bytes().to_vec(),
            major: info.dapl_version_major,
            minor: info.dapl_version_minor,
            threadsafe: info.is_thread_safe != DAT_FALSE,
        })
    }

    /// As C passes it.
    pub(crate) fn to_info(&self) -> DAT_PROVIDER_INFO {
        let safe: DAT_BOOLEAN = if self.threadsafe { DAT_TRUE } else { DAT_FALSE };
        let mut name = [0; _];
        for (place, &byte) in name.iter_mut().zip(&self.name) {
            *place = byte.cast_signed();
        }
        DAT_PROVIDER_INFO {
            ia_name: name,
            dapl_version_major: self.major,
            dapl_version_minor: self.minor,
            is_thread_safe: safe,
        }
    }

    /// The name to be read by people.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}
