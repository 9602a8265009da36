//! The clock page, with which libmlx5 converts the device's time to the time of day
//! (`struct mlx5_ib_clock_info`).
//!
//! Device time is the host's monotonic clock in ticks, which is slewed like the time
//! of day. One pair of both is therefore enough for 13 days; then the product of
//! `mult` and the ticks overflows. A later step of the time of day does not affect a
//! context that is already open.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use libc::{EINVAL, EOPNOTSUPP, EPERM};
use zerocopy::IntoBytes;

use super::abi::Mlx5ClockInfo;
use super::context::PAGE_SIZE;
use super::pages::MAX_PAGES;
use crate::refusal::refuse_if;
use crate::spec::{CLOCK_KHZ, Result, WallClock};

/// `MLX5_IB_MMAP_CLOCK_INFO` in a mapping's offset, in pages; the low byte is the
/// version of the page.
const COMMAND: u64 = 7;
/// `MLX5_IB_CLOCK_INFO_V1`, the only version.
const VERSION: u64 = 0;
/// The bit of that version in the reply to `GET_CONTEXT`.
pub(super) const VERSIONS: u8 = 1 << VERSION;
/// Index of the page in the memory file of a command descriptor: after all doorbell
/// pages.
const PAGE: u64 = MAX_PAGES as u64;
/// Number of pages of the memory file.
pub(super) const MEMORY_PAGES: u64 = PAGE + 1;

/// A tick has `MULT / 2^SHIFT` nanoseconds, with an error below a millionth.
const SHIFT: u32 = 14;
const MULT: u32 = ((1_000_000 << SHIFT) / CLOCK_KHZ) as u32;

/// Returns whether a doorbell page of this number would have the mmap offset of the
/// clock page.
pub(super) fn collides(page: u32) -> bool {
    u64::from(page) >> 8 == COMMAND
}

/// Writes the page.
pub(super) fn write_page(memory: BorrowedFd<'_>, clock: WallClock) -> std::io::Result<()> {
    let info = Mlx5ClockInfo {
        sign: 0,
        reserved: 0,
        nsec: clock.nanoseconds,
        cycles: clock.device,
        frac: 0,
        mult: MULT,
        shift: SHIFT,
        mask: u64::MAX >> 1,
        overflow_period: u64::MAX >> 1,
    };
    let file = File::from(memory.as_fd().try_clone_to_owned()?);
    file.write_all_at(info.as_bytes(), PAGE * PAGE_SIZE)
}

/// Returns the offset in the memory file for a mapping of the clock page, or `None`
/// for a mapping of another page.
///
/// # Errors
/// As mlx5_ib: `EINVAL` for a length other than a page, `EOPNOTSUPP` for another
/// version, `EPERM` for a writable mapping.
pub(super) fn check(offset: u64, len: usize, writes: bool) -> Result<Option<u64>> {
    let page_offset = offset / PAGE_SIZE;
    if page_offset >> 8 != COMMAND || !offset.is_multiple_of(PAGE_SIZE) {
        return Ok(None);
    }
    refuse_if(
        len as u64 != PAGE_SIZE,
        EINVAL,
        "a mapping of the clock page is one whole page",
    )?;
    refuse_if(
        page_offset & 0xff != VERSION,
        EOPNOTSUPP,
        "there is no clock page of this version",
    )?;
    refuse_if(writes, EPERM, "the clock page cannot be written")?;
    Ok(Some(PAGE * PAGE_SIZE))
}
