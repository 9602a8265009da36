//! The doorbell pages of a context.

use std::collections::BTreeSet;

use libc::{EINVAL, ENOMEM};

use super::clock;
use crate::refusal::{OrRefuse, refuse};
use crate::spec::Result;

/// Maximum number of doorbell pages of one context. A CQ names its page in 16 bits.
pub(super) const MAX_PAGES: u32 = 16_384;

/// The pages in use, by their number in the command descriptor's memory file. No
/// command allocates page 0, so a page number that is missing in a request is
/// invalid.
#[derive(Default)]
pub(super) struct Pages {
    in_use: BTreeSet<u32>,
    free: BTreeSet<u32>,
    highest: u32,
}

impl Pages {
    /// Allocates a page for a command of libmlx5.
    pub(super) fn allocate(&mut self) -> Result<u32> {
        let page = match self.free.pop_first() {
            Some(page) => page,
            None if self.highest + 1 < MAX_PAGES => {
                self.highest += 1;
                while clock::collides(self.highest) {
                    self.highest += 1;
                }
                self.highest
            }
            None => return Err(refuse(ENOMEM, "the context has all its doorbell pages")),
        };
        self.in_use.insert(page);
        Ok(page)
    }

    /// Adds a page whose number follows from the number of its registers.
    pub(super) fn add(&mut self, page: u32) {
        self.in_use.insert(page);
    }

    pub(super) fn release(&mut self, page: u32) {
        if self.in_use.remove(&page) {
            self.free.insert(page);
        }
    }

    /// Checks the page number of a request.
    pub(super) fn check(&self, page: u32) -> Result<u32> {
        self.in_use
            .contains(&page)
            .then_some(page)
            .or_refuse(EINVAL, "the context has no doorbell page of this number")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.in_use.iter().copied()
    }
}
