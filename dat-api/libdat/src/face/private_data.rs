//! Private data that a call sends to the peer.

use dat_api::{Result, Subtype};

use super::call::Argument;
use super::frame::{bad_argument, require_with};
use crate::abi::{DAT_COUNT, DAT_PVOID};

/// The pointer to private data. The size is another argument.
pub struct PrivateData(DAT_PVOID);

impl Argument for PrivateData {
    type C = DAT_PVOID;

    unsafe fn from_c(given: DAT_PVOID) -> Self {
        Self(given)
    }
}

impl PrivateData {
    /// Returns the data. `at` names the arguments for error returns: the size, then the data.
    pub(crate) fn of_size(&self, count: DAT_COUNT, at: [Subtype; 2]) -> Result<&[u8]> {
        let count = usize::try_from(count).map_err(|_| {
            bad_argument(
                at[0],
                format!("invalid size of the private data, {count} bytes: expected 0 or more"),
            )
        })?;
        if count == 0 {
            return Ok(&[]);
        }
        require_with(!self.0.is_null(), at[1], || {
            format!(
                "the private data are null, but their size is {count} bytes: expected data, or \
                 size 0"
            )
        })?;
        // SAFETY: by the contract of `exports`, which `from_c` requires, this many bytes are
        // readable during the call.
        Ok(unsafe { core::slice::from_raw_parts(self.0.cast::<u8>(), count) })
    }
}
