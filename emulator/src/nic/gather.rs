//! Lists of memory pieces that a message is taken from or placed into.

use super::core::Core;
use super::memory;
use super::mr::Denied;
use super::spec::{Access, PdId};

/// A piece of host memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) length: u32,
    /// `None` for bytes inside the WQE itself: no key guards them.
    pub(super) key: Option<u32>,
}

/// Why a list cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Key, bounds or rights, or no memory there.
    Protection,
    /// The list is shorter than the message.
    TooShort,
}

impl From<Denied> for Refused {
    fn from(_: Denied) -> Self {
        Self::Protection
    }
}

impl From<memory::Fault> for Refused {
    fn from(_: memory::Fault) -> Self {
        Self::Protection
    }
}

/// Bytes of the whole list.
pub(super) fn total(list: &[Piece]) -> u64 {
    list.iter().map(|piece| u64::from(piece.length)).sum()
}

impl Core {
    /// Checks that `pd` may use the whole list.
    pub(super) fn check_list(
        &self,
        list: &[Piece],
        pd: PdId,
        needs: Access,
    ) -> Result<(), Refused> {
        for piece in list {
            self.host_address(piece, pd, 0, piece.length, needs)?;
        }
        Ok(())
    }

    /// Appends `length` bytes at `offset` of the list to `into`.
    pub(super) fn gather(
        &self,
        list: &[Piece],
        pd: PdId,
        offset: u32,
        length: u32,
        into: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        self.walk(
            list,
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

    /// Places `bytes` at `offset` of the list.
    pub(super) fn scatter(
        &self,
        list: &[Piece],
        pd: PdId,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let length = bytes.len() as u32;
        self.walk(
            list,
            pd,
            Access::LOCAL_WRITE,
            offset,
            length,
            |address, from, length| memory::write(address, &bytes[from..from + length]),
        )
    }

    /// Checks that `length` bytes could be placed at the beginning of the list.
    pub(super) fn check_scatter(
        &self,
        list: &[Piece],
        pd: PdId,
        length: u32,
    ) -> Result<(), Refused> {
        self.walk(list, pd, Access::LOCAL_WRITE, 0, length, |_, _, _| Ok(()))
    }

    /// Visits the host ranges of `length` bytes at `offset`: with their
    /// address, their place in those bytes, and their length.
    fn walk(
        &self,
        list: &[Piece],
        pd: PdId,
        needs: Access,
        offset: u32,
        length: u32,
        mut visit: impl FnMut(u64, usize, usize) -> Result<(), memory::Fault>,
    ) -> Result<(), Refused> {
        let mut skip = offset;
        let mut done = 0;
        for piece in list {
            if done == length {
                break;
            }
            if skip >= piece.length {
                skip -= piece.length;
                continue;
            }
            let part = (piece.length - skip).min(length - done);
            let address = self.host_address(piece, pd, skip, part, needs)?;
            visit(address, done as usize, part as usize)?;
            done += part;
            skip = 0;
        }
        if done == length {
            Ok(())
        } else {
            Err(Refused::TooShort)
        }
    }

    fn host_address(
        &self,
        piece: &Piece,
        pd: PdId,
        skip: u32,
        length: u32,
        needs: Access,
    ) -> Result<u64, Denied> {
        let address = piece.address.wrapping_add(u64::from(skip));
        match piece.key {
            None => Ok(address),
            Some(key) => self
                .mrs
                .translate(key, pd, address, u64::from(length), needs),
        }
    }
}
