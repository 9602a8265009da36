//! The clock info page, with which libmlx5 converts device time to the time of day.

use libc::{EINVAL, EOPNOTSUPP, EPERM};

use super::fixtures::*;
use crate::spec::{CLOCK_KHZ, Errno};
use crate::uverbs::PAGE_SIZE;

/// `MLX5_IB_MMAP_CLOCK_INFO`, version 1.
const CLOCK_PAGE_OFFSET: u64 = 7 << 8;

#[test]
fn the_clock_info_page_is_one_read_only_page() {
    let app = Application::new();
    let check = |page_offset: u64, len, writes| {
        app.file
            .check_clock_mapping(page_offset * 4096, len, writes)
    };
    let at = check(CLOCK_PAGE_OFFSET, 4096, false)
        .unwrap()
        .expect("a page");
    assert_eq!(check(CLOCK_PAGE_OFFSET, 8192, false), Err(Errno(EINVAL)));
    assert_eq!(check(CLOCK_PAGE_OFFSET, 4096, true), Err(Errno(EPERM)));
    assert_eq!(
        check(CLOCK_PAGE_OFFSET + 1, 4096, false),
        Err(Errno(EOPNOTSUPP))
    );
    assert_eq!(check(1, 4096, false), Ok(None), "a UAR page");
    let memory = std::fs::File::from(app.file.application_descriptor().unwrap());
    let mut page = [0; PAGE_SIZE as usize];
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut page, at).unwrap();
    let word = |at: usize| u64::from_ne_bytes(page[at..at + 8].try_into().unwrap());
    assert_eq!([word(0), word(8), word(16)], [0, 1_000_000, 5]);
    // One second of ticks is converted with an error below one microsecond.
    let (mult, shift) = (word(32) & 0xffff_ffff, word(32) >> 32);
    let second = (1000 * CLOCK_KHZ * mult) >> shift;
    assert!(second.abs_diff(1_000_000_000) < 1000, "{second} ns");
}
