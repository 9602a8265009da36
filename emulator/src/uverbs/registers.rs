//! Doorbell registers that the kernel hands out: the way from before libmlx5
//! could ask for doorbell pages by command, and the only one over the write
//! interface.
//!
//! The context names a number of registers, two to a page, which libmlx5 maps
//! at once. The kernel chooses one for each QP (mlx5_ib's `alloc_bfreg`).
//! Further pages come by mapping them, for thread domains.
//!
//! An mmap offset is a command and an index, in pages: `command << 8 | index`,
//! and for further pages the index' upper bits at `<< 16`.

use libc::{EINVAL, ENOMEM};

use super::pages::Pages;
use crate::limits::{BF_OFFSET, BF_REG_SIZE};
use crate::nic::spec::{Errno, Result};

/// Registers of a page that are used; `MLX5_NON_FP_BFREGS_PER_UAR`.
const PER_PAGE: u32 = 2;
/// Registers of a page by which libmlx5 counts; `MLX5_BFREGS_PER_UAR`.
const NUMBERED_PER_PAGE: u32 = 4;
/// `MLX5_MAX_BFREGS`, and as many on further pages (`MLX5_MAX_DYN_BFREGS`).
const MOST: u32 = 512;
const FURTHER: u32 = 512;

/// `MLX5_IB_MMAP_*`: the registers' pages with three kinds of caching, which
/// are one here, and a further page.
const REGULAR_PAGE: u64 = 0;
const WC_PAGE: u64 = 2;
const NC_PAGE: u64 = 3;
const ALLOC_WC: u64 = 6;

/// The registers of a context.
#[derive(Debug)]
pub(super) struct Registers {
    /// QPs on each of the registers that the context asked for.
    users: Vec<u32>,
    /// How many of them, the last ones, never have more than one user.
    low_latency: usize,
}

/// A register: its page, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) page: u32,
    pub(super) offset: u16,
}

impl Registers {
    /// As many registers as a context asks for, rounded up to whole pages.
    ///
    /// # Errors
    /// As mlx5_ib: `EINVAL` for none, or if all were to have one user only;
    /// `ENOMEM` for too many.
    pub(super) fn new(total: u32, low_latency: u32, pages: &mut Pages) -> Result<Self> {
        if total == 0 {
            return Err(Errno(EINVAL));
        }
        if total > MOST {
            return Err(Errno(ENOMEM));
        }
        let total = total.next_multiple_of(PER_PAGE);
        if low_latency > total - 1 {
            return Err(Errno(EINVAL));
        }
        (0..total / PER_PAGE).for_each(|page| pages.add(page));
        Ok(Self {
            users: vec![0; total as usize],
            low_latency: low_latency as usize,
        })
    }

    /// How many there are, and how many may come by mapping further pages.
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.users.len() as u32, FURTHER)
    }

    /// The page that is mapped at an offset, in pages. A further one exists
    /// from then on.
    ///
    /// # Errors
    /// `EINVAL` for a page that there is not, or a further one that is there
    /// already.
    pub(super) fn page_at(&self, place: u64, pages: &mut Pages) -> Result<u32> {
        let (command, index) = (place >> 8 & 0xff, place & 0xff);
        let own = self.users.len() as u64 / u64::from(PER_PAGE);
        match command {
            REGULAR_PAGE | WC_PAGE | NC_PAGE if index < own => Ok(index as u32),
            ALLOC_WC => {
                let index = index | (place >> 16) << 8;
                if index >= u64::from(FURTHER / PER_PAGE) {
                    return Err(Errno(EINVAL));
                }
                let page = (own + index) as u32;
                if pages.check(page).is_ok() {
                    return Err(Errno(EINVAL));
                }
                pages.add(page);
                Ok(page)
            }
            _ => Err(Errno(EINVAL)),
        }
    }

    /// Chooses a register for a QP: one of its own while there are any, else
    /// that of the others which has the fewest users, and the first, which
    /// takes no copied WQEs, if there are no others.
    pub(super) fn take(&mut self) -> u32 {
        let first_own = self.users.len() - self.low_latency;
        let own = (first_own..self.users.len()).find(|&it| self.users[it] == 0);
        let shared = || (1..first_own).min_by_key(|&it| self.users[it]);
        let chosen = own.or_else(shared).unwrap_or(0);
        self.users[chosen] += 1;
        chosen as u32
    }

    /// A QP gives its register back.
    pub(super) fn give_back(&mut self, register: u32) {
        if let Some(users) = self.users.get_mut(register as usize) {
            *users -= 1;
        }
    }

    /// Where a register lies.
    pub(super) fn place(register: u32) -> Place {
        Place {
            page: register / PER_PAGE,
            offset: (BF_OFFSET + register % PER_PAGE * BF_REG_SIZE) as u16,
        }
    }

    /// Where a register of a further page lies.
    ///
    /// # Errors
    /// `EINVAL` if its page was not mapped.
    pub(super) fn further_place(&self, register: u32, pages: &Pages) -> Result<Place> {
        let own = self.users.len() as u32;
        if register >= FURTHER {
            return Err(Errno(EINVAL));
        }
        let place = Self::place(own + register);
        pages.check(place.page)?;
        Ok(place)
    }

    /// The number by which libmlx5 knows a register.
    pub(super) fn number(register: u32) -> u32 {
        register / PER_PAGE * NUMBERED_PER_PAGE + register % PER_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(total: u32, low_latency: u32) -> (Registers, Pages) {
        let mut pages = Pages::default();
        let registers = Registers::new(total, low_latency, &mut pages);
        (registers.unwrap(), pages)
    }

    #[test]
    fn counts_that_make_no_sense_are_refused() {
        let refused = |total, low| {
            let made = Registers::new(total, low, &mut Pages::default());
            made.err().map(|errno| errno.0)
        };
        assert_eq!(refused(0, 0), Some(EINVAL));
        assert_eq!(refused(16, 16), Some(EINVAL));
        assert_eq!(refused(15, 15), None, "rounded up first");
        assert_eq!(refused(513, 0), Some(ENOMEM));
        assert_eq!(refused(512, 4), None);
    }

    #[test]
    fn the_last_registers_have_one_user_and_the_others_share() {
        let (mut registers, _) = registers(16, 4);
        let first: Vec<_> = (0..16).map(|_| registers.take()).collect();
        assert_eq!(first[..6], [12, 13, 14, 15, 1, 2]);
        assert_eq!(first[15], 1, "eleven are shared, the twelfth QP is second");
        registers.give_back(13);
        assert_eq!(registers.take(), 13);
        assert_eq!(registers.take(), 2);
        registers.give_back(7);
        assert_eq!(registers.take(), 7);
    }

    #[test]
    fn without_shared_registers_the_first_takes_all() {
        let (mut registers, _) = registers(2, 1);
        assert_eq!(
            [registers.take(), registers.take(), registers.take()],
            [1, 0, 0]
        );
    }

    #[test]
    fn a_number_and_a_place_lead_to_the_same_register() {
        for register in 0..16 {
            let (number, place) = (Registers::number(register), Registers::place(register));
            assert_eq!(number / 4, place.page);
            assert_eq!(0x800 + number % 4 * 512, u32::from(place.offset));
        }
    }

    #[test]
    fn an_offset_leads_to_a_page_that_there_is() {
        let (registers, mut pages) = registers(16, 4);
        for command in [0, 2, 3] {
            assert_eq!(registers.page_at(command << 8 | 7, &mut pages), Ok(7));
            assert!(registers.page_at(command << 8 | 8, &mut pages).is_err());
        }
        for command in [1, 4, 5, 7, 8] {
            assert!(registers.page_at(command << 8, &mut pages).is_err());
        }
        assert!(registers.page_at(1 << 16 | 1, &mut pages).is_err() || pages.check(1).is_ok());
        let invalid = Err(Errno(EINVAL));
        assert_eq!(
            registers.further_place(3, &pages),
            invalid,
            "not mapped yet"
        );
        assert_eq!(registers.page_at(6 << 8 | 1, &mut pages), Ok(9));
        assert_eq!(
            registers.page_at(6 << 8 | 1, &mut pages),
            Err(Errno(EINVAL))
        );
        let place = registers.further_place(3, &pages).unwrap();
        assert_eq!((place.page, place.offset), (9, 0xa00));
        assert_eq!(registers.further_place(FURTHER, &pages), invalid);
        assert_eq!(registers.page_at(6 << 8 | 255, &mut pages), Ok(8 + 255));
        assert!(registers.page_at(1 << 16 | 6 << 8, &mut pages).is_err());
    }
}
