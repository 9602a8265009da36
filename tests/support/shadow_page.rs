//! Memory in the place of a page of doorbell registers.
//!
//! A doorbell makes an existing device run, and the trial runs of the store tracer would ring it
//! with values that mean nothing. So a test that compares stores moves the registers to another
//! address and maps memory at theirs: both libraries store there as before, and no device reads
//! it.

use core::ptr;
use core::sync::atomic::{Ordering, fence};

use super::rings::Rings;

/// Memory at the address of a page of registers. The registers return when it is dropped.
#[derive(Debug)]
pub struct ShadowPage {
    addr: usize,
    /// Where the registers are meanwhile.
    registers: usize,
    len: usize,
}

impl ShadowPage {
    /// Maps memory over the page of registers that this address is in.
    ///
    /// # Safety
    /// The page is a mapping of doorbell registers that stays until this value is dropped, and
    /// no other thread uses it in this call or while the value is dropped.
    pub unsafe fn over(addr: usize) -> Self {
        let len = page_size();
        let addr = addr & !(len - 1);
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let to = ptr::null_mut();
        // SAFETY: a mapping at an address of the kernel's choice.
        let to = unsafe { libc::mmap(to, len, libc::PROT_NONE, private, -1, 0) };
        assert_ne!(to, libc::MAP_FAILED, "mmap: {}", errno());
        // SAFETY: `to` is this call's own, and the caller vouches for the page.
        let registers = unsafe { move_page(addr, to as usize, len) };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // Another thread may have mapped something there since, which must not be replaced.
        let flags = private | libc::MAP_FIXED_NOREPLACE;
        let at = addr as *mut libc::c_void;
        // SAFETY: replaces no mapping.
        let memory = unsafe { libc::mmap(at, len, rights, flags, -1, 0) };
        assert_eq!(memory, at, "mmap at the registers' address: {}", errno());
        ShadowPage {
            addr,
            registers,
            len,
        }
    }

    /// Maps memory over each page on which a queue pair and its CQs ring.
    ///
    /// # Safety
    /// As for [`Self::over`].
    pub unsafe fn over_all(rings: &Rings) -> Vec<Self> {
        let [send_cq, recv_cq] = rings.cqs;
        let mut pages = [rings.register, send_cq.page, recv_cq.page].map(page_of);
        pages.sort_unstable();
        let mut pages = pages.to_vec();
        pages.dedup();
        // SAFETY: as the caller promises; each page once.
        let over = |page| unsafe { Self::over(page) };
        pages.into_iter().map(over).collect()
    }

    /// Rings the device with the eight bytes at this offset of the memory.
    pub fn forward(&self, offset: usize) {
        assert!(offset.is_multiple_of(8) && offset < self.len);
        let at = |page: usize| (page + offset) as *mut u64;
        // The doorbell record is written before, and is visible to the device first; after the
        // store nothing stays in the processor's write-combining buffer.
        fence(Ordering::SeqCst);
        // SAFETY: aligned, and inside the two mappings of this value.
        unsafe { at(self.registers).write_volatile(at(self.addr).read_volatile()) };
        fence(Ordering::SeqCst);
    }
}

impl Drop for ShadowPage {
    fn drop(&mut self) {
        // SAFETY: both are mappings of this value, which is used no more.
        unsafe { move_page(self.registers, self.addr, self.len) };
    }
}

/// Returns the address of the page that this address is in.
pub fn page_of(addr: usize) -> usize {
    addr & !(page_size() - 1)
}

fn page_size() -> usize {
    // SAFETY: a query.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("the size of a page")
}

/// Moves a mapping to the place of another.
///
/// # Safety
/// Both are mappings of one page that are used by nothing else.
unsafe fn move_page(from: usize, to: usize, len: usize) -> usize {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let at = to as *mut libc::c_void;
    // SAFETY: as the caller promises.
    let moved = unsafe { libc::mremap(from as *mut libc::c_void, len, len, flags, at) };
    assert_eq!(moved, at, "mremap of a page of registers: {}", errno());
    to
}

fn errno() -> std::io::Error {
    std::io::Error::last_os_error()
}
