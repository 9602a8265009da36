//! Values whose bytes can be registered.

use core::ptr::NonNull;

use memmap2::MmapMut;

/// A value that owns bytes in memory, for [`super::super::ProtectionZone::register`].
///
/// # Safety
/// From the return of [`Self::owned_bytes`] until the value is used again or dropped:
///
/// - The bytes are mapped, readable and writable, and have values. They stay where they are, also
///   if the value is moved: they are not a part of the value itself.
/// - Nothing accesses them but through the returned pointer: no other owner, clone or view of the
///   same bytes in this process exists, and no reference to them is used.
/// - They are bound to no thread.
pub unsafe trait OwnedBytes: Send + 'static {
    /// Returns the bytes. Called once, before they are registered.
    fn owned_bytes(&mut self) -> NonNull<[u8]>;
}

// SAFETY: the bytes up to the length are initialised, on the heap, and have one owner.
unsafe impl OwnedBytes for Vec<u8> {
    fn owned_bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(self.as_mut_slice())
    }
}

// SAFETY: as above.
unsafe impl OwnedBytes for Box<[u8]> {
    fn owned_bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut **self)
    }
}

// SAFETY: the reference is the only one to the bytes, which are never freed.
unsafe impl OwnedBytes for &'static mut [u8] {
    fn owned_bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut **self)
    }
}

// SAFETY: the mapping is readable and writable, does not move, and has one owner in this process.
// Whoever made it of a file has promised that other processes do not shorten that.
unsafe impl OwnedBytes for MmapMut {
    fn owned_bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut **self)
    }
}
