//! The LMR that a queue used last: most posts of a queue use one and the same,
//! and are answered from here by comparing one word and two bounds.

use core::sync::atomic::{AtomicU64, Ordering};

use super::table::{self, lookup};
use crate::status::DatReturn;
use crate::types::MemPrivileges;

/// No row has this tag: births and row number are both 0 in it.
static NOTHING: AtomicU64 = AtomicU64::new(0);

/// An LMR that was looked up, for one zone and one kind of use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    /// Where the row says what it holds.
    tag: &'static AtomicU64,
    /// What it said.
    seen: u64,
    first: u64,
    bytes: u64,
    key: u32,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            tag: &NOTHING,
            seen: u64::MAX,
            first: 0,
            bytes: 0,
            key: 0,
        }
    }
}

impl Recent {
    /// [`lookup`]. `pz` and `need` are the same in every call on one of these.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub(crate) fn lookup(
        &mut self,
        context: u32,
        address: u64,
        length: u64,
        pz: u32,
        need: MemPrivileges,
    ) -> Result<u32, DatReturn> {
        match self.find(context, address, length) {
            Some(key) => Ok(key),
            None => self.miss(context, address, length, pz, need),
        }
    }

    /// The key, if it is the LMR that was used last.
    #[inline(always)]
    pub(crate) fn find(&self, context: u32, address: u64, length: u64) -> Option<u32> {
        let offset = address.wrapping_sub(self.first);
        let last = self.bytes.checked_sub(length)?;
        // The whole tag never comes back: it is still the same LMR.
        (self.seen as u32 == context
            && self.tag.load(Ordering::Acquire) == self.seen
            && offset <= last)
            .then_some(self.key)
    }

    #[cold]
    #[inline(never)]
    fn miss(
        &mut self,
        context: u32,
        address: u64,
        length: u64,
        pz: u32,
        need: MemPrivileges,
    ) -> Result<u32, DatReturn> {
        let key = lookup(context, address, length, pz, need)?;
        if let Some((tag, seen, contents)) = table::snapshot(context)
            && contents.pz == pz
            && contents.privileges.contains(need)
        {
            *self = Self {
                tag,
                seen,
                first: contents.address,
                bytes: contents.length,
                key: contents.key,
            };
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Contents, Entry};
    use super::*;
    use crate::status::ReturnType;

    const READ: MemPrivileges = MemPrivileges::LOCAL_READ;

    fn entry(address: u64, key: u32) -> Entry {
        Entry::new(&Contents {
            address,
            length: 100,
            key,
            pz: 7,
            privileges: READ,
            handle: 0,
        })
        .expect("a row")
    }

    #[test]
    fn r10_r11_r12_what_is_remembered_is_checked_all_the_same() {
        let mut recent = Recent::default();
        let (one, other) = (entry(1000, 5), entry(5000, 6));
        let context = one.context();
        for _ in 0..2 {
            let mut look = |address, length| recent.lookup(context, address, length, 7, READ);
            assert_eq!(look(1000, 100), Ok(5));
            assert_eq!(look(1099, 1), Ok(5));
            let outside = Some(ReturnType::InvalidParameter);
            for (address, length) in [
                (999, 1),
                (1000, 101),
                (1099, 2),
                (1101, 1),
                (1050, u64::MAX),
            ] {
                assert_eq!(look(address, length).unwrap_err().kind(), outside);
            }
            assert_eq!(recent.lookup(other.context(), 5000, 1, 7, READ), Ok(6));
        }
        assert_eq!(recent.lookup(context, 1000, 1, 7, READ), Ok(5));
        drop(one);
        let gone = recent.lookup(context, 1000, 1, 7, READ).unwrap_err();
        assert_eq!(gone.kind(), Some(ReturnType::PrivilegesViolation));
    }
}
