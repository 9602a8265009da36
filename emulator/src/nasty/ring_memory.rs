//! Memory for the rings and doorbell records of libmlx5, in place of libmlx5's own:
//! full of garbage, or followed by a page that cannot be accessed.
//!
//! libmlx5 clears most of the memory before it uses it. It rounds the size of a ring up to pages. So the guard page follows the ring
//! directly if the ring fills its last page.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use super::policies::GARBAGE;
use super::{Modes, Nasty};
use crate::fork::PerProcess;
use crate::sync::Mutex;

const PAGE: usize = 4096;

/// `struct mlx5dv_ctx_allocators`.
#[repr(C)]
pub(crate) struct Allocators {
    alloc: unsafe extern "C" fn(usize, *mut c_void) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void),
    /// The modes, as an integer.
    data: *mut c_void,
}

/// `MLX5DV_CTX_ATTR_BUF_ALLOCATORS`.
pub(crate) const BUF_ALLOCATORS: c_int = 1;

impl Allocators {
    /// Returns the allocator for these modes, if one of them needs it.
    pub(crate) fn of(nasty: Nasty) -> Option<Self> {
        let modes = nasty.modes & (Modes::GUARD | Modes::POISON);
        (!modes.is_empty()).then_some(Self {
            alloc: allocate,
            free: release,
            data: std::ptr::without_provenance_mut(modes.bits().into()),
        })
    }
}

/// The mappings, by the address of the memory in them, with their sizes.
static MAPPINGS: PerProcess<Mutex<HashMap<usize, usize>>> = PerProcess::new();

unsafe extern "C" fn allocate(size: usize, data: *mut c_void) -> *mut c_void {
    let null = std::ptr::null_mut();
    let modes = Modes::from_bits_truncate(data.addr() as u16);
    // A page in front, since libmlx5 before version 64 reads the byte before a ring of
    // 128-byte CQEs; and the guard.
    let Some(mapped) = size
        .checked_next_multiple_of(PAGE)
        .and_then(|size| size.checked_add(2 * PAGE))
    else {
        return null;
    };
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            null,
            mapped,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return null;
    }
    let at = base.wrapping_byte_add(PAGE);
    if modes.contains(Modes::GUARD) {
        let guard = base.wrapping_byte_add(mapped - PAGE);
        // SAFETY: the last page of the mapping, which no reference uses. If the call
        // fails, there is no guard.
        unsafe { libc::mprotect(guard, PAGE, libc::PROT_NONE) };
    }
    if modes.contains(Modes::POISON) {
        // SAFETY: `size` writable bytes of the mapping.
        unsafe { at.cast::<u8>().write_bytes(GARBAGE, size) };
    }
    MAPPINGS.get().lock().insert(at.addr(), mapped);
    at
}

unsafe extern "C" fn release(at: *mut c_void, _: *mut c_void) {
    if let Some(mapped) = MAPPINGS.get().lock().remove(&at.addr()) {
        // SAFETY: a whole mapping of `allocate`, which libmlx5 uses no longer.
        unsafe { libc::munmap(at.wrapping_byte_sub(PAGE), mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::load;

    #[test]
    fn a_page_that_cannot_be_accessed_follows_the_memory() {
        crate::trap::install_handlers().unwrap();
        let allocators = Allocators::of("guard,poison".parse().unwrap()).unwrap();
        for size in [64, 4096, 5000] {
            // SAFETY: the allocator's own data.
            let at = unsafe { (allocators.alloc)(size, allocators.data) };
            let end = (at.addr() + size.next_multiple_of(PAGE)) as u64;
            assert!(load::<u8>(end - 1).is_ok(), "{size}");
            assert!(load::<u8>(end).is_err(), "{size}");
            assert!(load::<u8>(at.addr() as u64 - 1).is_ok());
            assert_eq!(load(at.addr() as u64), Ok(GARBAGE));
            // SAFETY: what was just allocated.
            unsafe { (allocators.free)(at, allocators.data) };
            assert!(load::<u8>(at.addr() as u64).is_err());
        }
        assert!(Allocators::of("srq".parse().unwrap()).is_none());
    }
}
