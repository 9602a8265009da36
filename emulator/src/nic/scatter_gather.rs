//! Scatter/gather lists: the memory ranges of a message.

use super::core::Core;
use super::memory;
use super::mr::MkeyError;
use crate::spec::{Access, PdId};

/// A memory range of a scatter/gather list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sge {
    pub(super) address: u64,
    pub(super) length: u32,
    /// `None` for inline data in the WQE itself, which needs no key.
    pub(super) key: Option<u32>,
}

/// Reasons why a scatter/gather list cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SgeError {
    /// Key, bounds or access flags do not permit it, or the memory is not mapped.
    Protection,
    /// The list is shorter than the message.
    TooShort,
}

impl From<MkeyError> for SgeError {
    fn from(_: MkeyError) -> Self {
        Self::Protection
    }
}

impl From<memory::Fault> for SgeError {
    fn from(_: memory::Fault) -> Self {
        Self::Protection
    }
}

/// Returns the total length of a list in bytes.
pub(super) fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

impl Core {
    /// Checks that `pd` permits access to the whole list.
    pub(super) fn check_list(&self, sges: &[Sge], pd: PdId, needs: Access) -> Result<(), SgeError> {
        for sge in sges {
            if let Some(key) = sge.key {
                let length = u64::from(sge.length);
                self.mkeys.permit(key, pd, sge.address, length, needs)?;
            }
        }
        Ok(())
    }

    /// Appends `length` bytes at `offset` of the list to `into`.
    pub(super) fn gather(
        &self,
        sges: &[Sge],
        pd: PdId,
        offset: u32,
        length: u32,
        into: &mut Vec<u8>,
    ) -> Result<(), SgeError> {
        self.walk(
            sges,
            pd,
            Access::empty(),
            offset,
            length,
            |address, _, length| {
                let filled = into.len();
                into.resize(filled + length, 0);
                memory::read(address, &mut into[filled..])
            },
        )
    }

    /// Stores `bytes` at `offset` of the list.
    pub(super) fn scatter(
        &mut self,
        sges: &[Sge],
        pd: PdId,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), SgeError> {
        let length = bytes.len() as u32;
        if self.nasty.splits_payload() {
            self.place_rest();
            let mut ranges = Vec::new();
            self.walk(
                sges,
                pd,
                Access::LOCAL_WRITE,
                offset,
                length,
                |address, from, length| {
                    ranges.push((address, from..from + length));
                    Ok(())
                },
            )?;
            for (address, range) in ranges {
                self.place(address, &bytes[range])?;
            }
            return Ok(());
        }
        self.walk(
            sges,
            pd,
            Access::LOCAL_WRITE,
            offset,
            length,
            |address, from, length| memory::write(address, &bytes[from..from + length]),
        )
    }

    /// Checks that `length` bytes can be stored at the beginning of the list.
    pub(super) fn check_scatter(
        &self,
        sges: &[Sge],
        pd: PdId,
        length: u32,
    ) -> Result<(), SgeError> {
        self.walk(sges, pd, Access::LOCAL_WRITE, 0, length, |_, _, _| Ok(()))
    }

    /// Calls `visit` for the host ranges of `length` bytes at `offset` of the list,
    /// with the address, the offset in these bytes and the length of each.
    fn walk(
        &self,
        sges: &[Sge],
        pd: PdId,
        needs: Access,
        offset: u32,
        length: u32,
        mut visit: impl FnMut(u64, usize, usize) -> Result<(), memory::Fault>,
    ) -> Result<(), SgeError> {
        let mut skip = offset;
        let mut done = 0;
        for sge in sges {
            if done == length {
                break;
            }
            if skip >= sge.length {
                skip -= sge.length;
                continue;
            }
            let part = (sge.length - skip).min(length - done);
            let address = self.host_address(sge, pd, skip, part, needs)?;
            visit(address, done as usize, part as usize)?;
            done += part;
            skip = 0;
        }
        if done == length {
            Ok(())
        } else {
            Err(SgeError::TooShort)
        }
    }

    fn host_address(
        &self,
        sge: &Sge,
        pd: PdId,
        skip: u32,
        length: u32,
        needs: Access,
    ) -> Result<u64, MkeyError> {
        let address = sge.address.wrapping_add(u64::from(skip));
        match sge.key {
            None => Ok(address),
            Some(key) => self
                .mkeys
                .translate(key, pd, address, u64::from(length), needs),
        }
    }
}
