//! Words of memory that the device reads or writes while the program does.

use core::ptr::NonNull;

use crate::wire::Be32;

/// One integer in memory shared with the device. Reads and writes are volatile:
/// each happens, once, at its full width.
#[repr(transparent)]
#[derive(Debug)]
pub struct DmaCell<T>(NonNull<T>);

impl<T> Clone for DmaCell<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DmaCell<T> {}

impl<T: Copy> DmaCell<T> {
    /// Returns the cell at `at`.
    ///
    /// # Safety
    /// `at` is aligned, and readable and writable for as long as the cell or a
    /// copy of it is used. Any bytes are a valid `T`. The caller intends the
    /// effect that written values have on the device.
    #[inline(always)]
    pub const unsafe fn new(at: NonNull<T>) -> Self {
        Self(at)
    }

    /// Reads the value.
    #[inline(always)]
    pub fn read(self) -> T {
        // SAFETY: aligned and readable, as promised to `new`; volatile because
        // the device may write it.
        unsafe { self.0.as_ptr().read_volatile() }
    }

    /// Writes the value.
    #[inline(always)]
    pub fn write(self, value: T) {
        // SAFETY: aligned and writable, as promised to `new`; volatile because
        // the device may read it.
        unsafe { self.0.as_ptr().write_volatile(value) }
    }
}

/// A doorbell record: a big-endian counter that the device reads.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct DoorbellRecord(DmaCell<u32>);

// SAFETY: the pointer inside refers to DMA memory that belongs to no thread;
// which thread writes the counter is decided by the ring that holds it, through
// `&mut`. Concurrent readers use volatile single-word loads.
unsafe impl Send for DoorbellRecord {}
// SAFETY: as above; every access is one aligned 32-bit word.
unsafe impl Sync for DoorbellRecord {}

impl DoorbellRecord {
    /// Returns the record at `at`.
    ///
    /// # Safety
    /// As for [`DmaCell::new`]; and one thread at a time calls [`Self::set`] for it.
    #[inline(always)]
    pub const unsafe fn new(at: NonNull<u32>) -> Self {
        // SAFETY: the word is valid and aligned as long as the record is used.
        Self(unsafe { DmaCell::new(at) })
    }

    /// Publishes a counter.
    #[inline(always)]
    pub fn set(self, value: u32) {
        // SAFETY: as in `DmaCell::write`.
        unsafe { self.0.0.as_ptr().write_volatile(value.to_be()) };
    }

    /// Returns the counter published last.
    #[inline(always)]
    pub fn get(self) -> u32 {
        Be32::from_bits(self.0.read()).get()
    }
}
