//! Reserves an offset of siw's device file that its library takes for an error.
//!
//! The kernel places the memory of each new queue at an offset of the device file,
//! and the library maps it from there. The library takes one offset, 0x90000, as
//! "no memory" (`SIW_INVAL_UOBJ_KEY` in rdma-core's kernel-headers/rdma/siw-abi.h).
//! Since Linux 5.5 the kernel uses the lowest free offsets
//! (`rdma_user_mmap_entry_insert` in drivers/infiniband/core/ib_core_uverbs.c),
//! including 0x90000: a queue is placed there once 576 KiB of queues are in use.
//! `ibv_create_qp`, `ibv_create_cq` and `ibv_create_srq` then destroy what the
//! kernel has created and fail without an error number. They fail again as long as
//! that offset is the lowest free one.
//!
//! So a completion queue is created across that offset before any other queue, and
//! kept as long as the device is open. No queue can then begin at the offset. It
//! takes 68 KiB of the kernel's memory where pages have 4 KiB.

use core::ptr::{self, NonNull};

use dv_sys::verbs::{self, ibv_cq};

use super::context::Context;
use crate::error::{ControlError, clear_errno};

/// The offset that the library takes for an error.
const OFFSET: u64 = 0x9_0000;
/// The size of a completion in the kernel's memory, in bytes (`struct siw_cqe`).
const ENTRY: u64 = 32;
/// The size of the control block after the last completion, in bytes (`struct
/// siw_cq_ctrl`).
const CONTROL: u64 = 8;

/// The completion queue that lies across the offset. Must be released explicitly.
pub(super) struct ReservedOffset(NonNull<ibv_cq>);

// SAFETY: libibverbs lets any thread destroy a completion queue.
unsafe impl Send for ReservedOffset {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for ReservedOffset {}

impl ReservedOffset {
    /// Creates the queue in a context of siw without any queues. Returns `None`,
    /// with a warning, if the device has no memory for it.
    pub(super) fn reserve(context: &Context) -> Option<Self> {
        let (below, across) = depths(page_size())?;
        let below = create(context, below)?;
        let across = create(context, across);
        // SAFETY: created above, and not used.
        unsafe { verbs::ibv_destroy_cq(below.as_ptr()) };
        across.map(Self)
    }

    /// Destroys the queue.
    ///
    /// # Safety
    /// The context is still open, and was opened by this process.
    pub(super) unsafe fn release(self) {
        // SAFETY: created by `reserve`, and not used.
        let errno = unsafe { verbs::ibv_destroy_cq(self.0.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_destroy_cq failed");
        }
    }
}

fn create(context: &Context, depth: u32) -> Option<NonNull<ibv_cq>> {
    let entries = i32::try_from(depth).ok()?;
    clear_errno();
    let (context, none) = (context.as_ptr(), ptr::null_mut());
    // SAFETY: the context is open; neither a channel nor a CQ context is passed.
    let cq = unsafe { verbs::ibv_create_cq(context, entries, none, ptr::null_mut(), 0) };
    let cq = NonNull::new(cq);
    if cq.is_none() {
        let error = ControlError::last("create a completion queue");
        tracing::warn!(
            "queues of siw may fail to be created once {OFFSET:#x} bytes of them are in use: \
             {error}"
        );
    }
    cq
}

fn page_size() -> u64 {
    // SAFETY: takes an integer.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Returns the number of pages for a completion queue of `depth` entries, a power
/// of two.
fn pages(depth: u32, page: u64) -> u64 {
    (u64::from(depth) * ENTRY + CONTROL).div_ceil(page)
}

/// Returns the depths of two completion queues, of which the first is placed at
/// offset 0 and the second, placed after it, lies across [`OFFSET`]. siw creates
/// powers of two only. `None` if no queue can be placed at that offset.
fn depths(page: u64) -> Option<(u32, u32)> {
    let bad = OFFSET / page;
    if !OFFSET.is_multiple_of(page) || bad < 2 {
        return None;
    }
    let powers = || (0..24).map(|shift| 1_u32 << shift);
    let below = powers().take_while(|&depth| pages(depth, page) < bad);
    let below = below.last()?;
    let across = powers().find(|&depth| pages(below, page) + pages(depth, page) > bad)?;
    Some((below, across))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages of the device file; queues are placed at the lowest free ones, as
    /// in the kernel.
    #[derive(Default)]
    struct Places(Vec<bool>);

    impl Places {
        /// Places a queue. Returns its first page.
        fn place(&mut self, pages: u64) -> u64 {
            let pages = usize::try_from(pages).unwrap();
            let is_free = |at: &usize| self.0.iter().skip(*at).take(pages).all(|taken| !taken);
            let first = (0..).find(is_free).unwrap();
            self.0.resize(self.0.len().max(first + pages), false);
            self.0[first..first + pages].fill(true);
            first as u64
        }

        fn free(&mut self, first: u64, pages: u64) {
            let first = usize::try_from(first).unwrap();
            self.0[first..][..usize::try_from(pages).unwrap()].fill(false);
        }
    }

    #[test]
    fn no_queue_begins_at_the_offset() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let bad = OFFSET / page;
            let mut bare = Places::default();
            assert!(
                (0..=bad).any(|_| bare.place(1) == bad),
                "reached without the reservation"
            );

            let (below, across) = depths(page).expect("two depths");
            let mut places = Places::default();
            assert_eq!(places.place(pages(below, page)), 0);
            let first = places.place(pages(across, page));
            assert!(first < bad && bad < first + pages(across, page), "{page}");
            places.free(0, pages(below, page));
            for pages in [1, 2, 3, 5, 17, 33, 129, 1, 2, 3] {
                for _ in 0..bad {
                    assert_ne!(places.place(pages), bad, "{pages} pages of {page}");
                }
            }
        }
    }

    #[test]
    fn the_reservation_is_small_with_small_pages() {
        let (_, across) = depths(4096).expect("two depths");
        assert_eq!(pages(across, 4096), 17);
        assert_eq!(depths(1 << 20), None, "no page begins there");
    }
}
