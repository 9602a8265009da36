//! Which doorbell pages of a context exist.

use std::collections::BTreeSet;

use libc::{EINVAL, ENOMEM};

use super::clock;
use crate::nic::spec::{Errno, Result};

/// Doorbell pages of one context. A CQ names its page in 16 bits.
pub(super) const MAX_PAGES: u32 = 16_384;

/// The pages, by their number in the command descriptor's memory file. Page
/// 0 is never one that a command allocated, so that a page number left out of
/// a request is not a valid one.
#[derive(Default)]
pub(super) struct Pages {
    in_use: BTreeSet<u32>,
    free: BTreeSet<u32>,
    highest: u32,
}

impl Pages {
    /// A page that libmlx5 asks for by command.
    pub(super) fn allocate(&mut self) -> Result<u32> {
        let page = match self.free.pop_first() {
            Some(page) => page,
            None if self.highest + 1 < MAX_PAGES => {
                self.highest += 1;
                while clock::takes(self.highest) {
                    self.highest += 1;
                }
                self.highest
            }
            None => return Err(Errno(ENOMEM)),
        };
        self.in_use.insert(page);
        Ok(page)
    }

    /// A page whose number is settled by its place among the registers.
    pub(super) fn add(&mut self, page: u32) {
        self.in_use.insert(page);
    }

    pub(super) fn release(&mut self, page: u32) {
        if self.in_use.remove(&page) {
            self.free.insert(page);
        }
    }

    /// The page a request names.
    pub(super) fn check(&self, page: u32) -> Result<u32> {
        self.in_use
            .contains(&page)
            .then_some(page)
            .ok_or(Errno(EINVAL))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.in_use.iter().copied()
    }
}
