//! Doorbell registers that the kernel assigns, as before libmlx5 could allocate
//! doorbell pages by command. The write interface supports only this.
//!
//! The context requests a number of registers, two per page, and libmlx5 maps all of
//! their pages. The kernel assigns one register to each QP (mlx5_ib's
//! `alloc_bfreg`). Mapping allocates additional pages, for thread domains.
//!
//! An mmap offset consists of a command and an index, in pages:
//! `command << 8 | index`; for additional pages the index's upper bits are at
//! `<< 16`.

use libc::{EINVAL, ENOMEM};

use super::pages::Pages;
use crate::limits::{BF_OFFSET, BF_REG_SIZE};
use crate::refusal::{refuse, refuse_if};
use crate::spec::Result;

/// Number of registers used per page; `MLX5_NON_FP_BFREGS_PER_UAR`.
const PER_PAGE: u32 = 2;
/// Number of registers per page in libmlx5's numbering; `MLX5_BFREGS_PER_UAR`.
const NUMBERED_PER_PAGE: u32 = 4;
/// `MLX5_MAX_BFREGS`, and the maximum on additional pages (`MLX5_MAX_DYN_BFREGS`).
const MAX_REGISTERS: u32 = 512;
const MAX_ADDITIONAL: u32 = 512;

/// `MLX5_IB_MMAP_*`: the registers' pages with three kinds of caching, which are the
/// same here, and an additional page.
const REGULAR_PAGE: u64 = 0;
const WC_PAGE: u64 = 2;
const NC_PAGE: u64 = 3;
const ALLOC_WC: u64 = 6;

/// The registers of a context.
#[derive(Debug)]
pub(super) struct Registers {
    /// Number of QPs on each of the registers that the context requested.
    users: Vec<u32>,
    /// Number of low-latency registers, the last ones, which have at most one user.
    low_latency: usize,
}

/// The location of a register: its page, and its offset in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterLocation {
    pub(super) page: u32,
    pub(super) offset: u16,
}

impl Registers {
    /// Returns the registers that a context requests, rounded up to whole pages.
    ///
    /// # Errors
    /// As mlx5_ib: `EINVAL` for 0 registers, or if all are low-latency; `ENOMEM` for
    /// too many.
    pub(super) fn new(total: u32, low_latency: u32, pages: &mut Pages) -> Result<Self> {
        refuse_if(
            total == 0,
            EINVAL,
            "the context asks for 0 doorbell registers",
        )?;
        refuse_if(
            total > MAX_REGISTERS,
            ENOMEM,
            "the context asks for more than 512 doorbell registers (MLX5_TOTAL_UUARS)",
        )?;
        let total = total.next_multiple_of(PER_PAGE);
        refuse_if(
            low_latency > total - 1,
            EINVAL,
            "all doorbell registers are low-latency ones (MLX5_NUM_LOW_LAT_UUARS)",
        )?;
        (0..total / PER_PAGE).for_each(|page| pages.add(page));
        Ok(Self {
            users: vec![0; total as usize],
            low_latency: low_latency as usize,
        })
    }

    /// Returns the number of registers, and the maximum number on additional pages.
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.users.len() as u32, MAX_ADDITIONAL)
    }

    /// Returns the page that is mapped at an offset in pages. Creates an additional
    /// page.
    ///
    /// # Errors
    /// `EINVAL` for a page that does not exist, or an additional page that already
    /// exists.
    pub(super) fn page_at(&self, page_offset: u64, pages: &mut Pages) -> Result<u32> {
        let (command, index) = (page_offset >> 8 & 0xff, page_offset & 0xff);
        let own = self.users.len() as u64 / u64::from(PER_PAGE);
        match command {
            REGULAR_PAGE | WC_PAGE | NC_PAGE if index < own => Ok(index as u32),
            ALLOC_WC => {
                let index = index | (page_offset >> 16) << 8;
                refuse_if(
                    index >= u64::from(MAX_ADDITIONAL / PER_PAGE),
                    EINVAL,
                    "the offset is beyond the additional doorbell pages",
                )?;
                let page = (own + index) as u32;
                refuse_if(
                    pages.check(page).is_ok(),
                    EINVAL,
                    "the additional doorbell page is mapped already",
                )?;
                pages.add(page);
                Ok(page)
            }
            _ => Err(refuse(EINVAL, "the offset is that of no doorbell page")),
        }
    }

    /// Assigns a register to a QP: a free low-latency register if there is one, else
    /// the shared register with the fewest users, else the first register, on which
    /// BlueFlame is not used.
    pub(super) fn assign(&mut self) -> u32 {
        let first_own = self.users.len() - self.low_latency;
        let own = (first_own..self.users.len()).find(|&it| self.users[it] == 0);
        let shared = || (1..first_own).min_by_key(|&it| self.users[it]);
        let chosen = own.or_else(shared).unwrap_or(0);
        self.users[chosen] += 1;
        chosen as u32
    }

    /// Releases the register of a QP.
    pub(super) fn release(&mut self, register: u32) {
        if let Some(users) = self.users.get_mut(register as usize) {
            *users -= 1;
        }
    }

    pub(super) fn location(register: u32) -> RegisterLocation {
        RegisterLocation {
            page: register / PER_PAGE,
            offset: (BF_OFFSET + register % PER_PAGE * BF_REG_SIZE) as u16,
        }
    }

    /// Returns the location of a register on an additional page.
    ///
    /// # Errors
    /// `EINVAL` if its page is not mapped.
    pub(super) fn additional_location(
        &self,
        register: u32,
        pages: &Pages,
    ) -> Result<RegisterLocation> {
        let own = self.users.len() as u32;
        refuse_if(
            register >= MAX_ADDITIONAL,
            EINVAL,
            "the number of the doorbell register is out of range",
        )?;
        let location = Self::location(own + register);
        pages.check(location.page)?;
        Ok(location)
    }

    /// Returns libmlx5's number of a register.
    pub(super) fn number(register: u32) -> u32 {
        register / PER_PAGE * NUMBERED_PER_PAGE + register % PER_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Errno;

    fn registers(total: u32, low_latency: u32) -> (Registers, Pages) {
        let mut pages = Pages::default();
        let registers = Registers::new(total, low_latency, &mut pages);
        (registers.unwrap(), pages)
    }

    #[test]
    fn invalid_register_counts_are_refused() {
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
    fn low_latency_registers_have_one_user_and_the_others_are_shared() {
        let (mut registers, _) = registers(16, 4);
        let first: Vec<_> = (0..16).map(|_| registers.assign()).collect();
        assert_eq!(first[..6], [12, 13, 14, 15, 1, 2]);
        assert_eq!(
            first[15], 1,
            "eleven are shared; the twelfth QP is the second on its register"
        );
        registers.release(13);
        assert_eq!(registers.assign(), 13);
        assert_eq!(registers.assign(), 2);
        registers.release(7);
        assert_eq!(registers.assign(), 7);
    }

    #[test]
    fn without_shared_registers_the_first_is_used_by_all() {
        let (mut registers, _) = registers(2, 1);
        assert_eq!(
            [registers.assign(), registers.assign(), registers.assign()],
            [1, 0, 0]
        );
    }

    #[test]
    fn number_and_location_of_a_register_agree() {
        for register in 0..16 {
            let (number, location) = (Registers::number(register), Registers::location(register));
            assert_eq!(number / 4, location.page);
            assert_eq!(0x800 + number % 4 * 512, u32::from(location.offset));
        }
    }

    #[test]
    fn an_mmap_offset_selects_an_existing_page() {
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
            registers.additional_location(3, &pages),
            invalid,
            "not mapped yet"
        );
        assert_eq!(registers.page_at(6 << 8 | 1, &mut pages), Ok(9));
        assert_eq!(
            registers.page_at(6 << 8 | 1, &mut pages),
            Err(Errno(EINVAL))
        );
        let location = registers.additional_location(3, &pages).unwrap();
        assert_eq!((location.page, location.offset), (9, 0xa00));
        assert_eq!(
            registers.additional_location(MAX_ADDITIONAL, &pages),
            invalid
        );
        assert_eq!(registers.page_at(6 << 8 | 255, &mut pages), Ok(8 + 255));
        assert!(registers.page_at(1 << 16 | 6 << 8, &mut pages).is_err());
    }
}
