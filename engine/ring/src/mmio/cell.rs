//! Words of memory that the device reads or writes while the program does.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::wire::Be32;

/// An integer that is accessed atomically.
///
/// Sealed: `u8`, `u16`, `u32` and `u64`.
pub trait Word: Copy + Sealed {
    #[doc(hidden)]
    unsafe fn load(at: *mut Self) -> Self;
    #[doc(hidden)]
    unsafe fn store(at: *mut Self, value: Self);
}

#[doc(hidden)]
pub trait Sealed {}

macro_rules! word {
    ($($type:ty, $atomic:ty;)*) => {$(
        impl Sealed for $type {}

        impl Word for $type {
            #[inline(always)]
            unsafe fn load(at: *mut Self) -> Self {
                // SAFETY: aligned and readable, as the caller promises.
                unsafe { <$atomic>::from_ptr(at) }.load(Ordering::Relaxed)
            }

            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self) {
                // SAFETY: aligned and writable, as the caller promises.
                unsafe { <$atomic>::from_ptr(at) }.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

word! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// One integer in memory shared with the device, or with another thread. Reads and writes
/// are relaxed atomic ones: each is one access, at its full width.
#[repr(transparent)]
#[derive(Debug)]
pub struct DmaCell<T>(NonNull<T>);

impl<T> Clone for DmaCell<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DmaCell<T> {}

impl<T: Word> DmaCell<T> {
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
        // SAFETY: aligned and readable, as promised to `new`.
        unsafe { T::load(self.0.as_ptr()) }
    }

    /// Writes the value.
    #[inline(always)]
    pub fn write(self, value: T) {
        // SAFETY: aligned and writable, as promised to `new`.
        unsafe { T::store(self.0.as_ptr(), value) }
    }
}

/// A doorbell record: a big-endian counter that the device reads.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct DoorbellRecord(DmaCell<u32>);

// SAFETY: the pointer inside refers to DMA memory that belongs to no thread;
// which thread writes the counter is decided by the ring that holds it, through
// `&mut`. Every access is atomic.
unsafe impl Send for DoorbellRecord {}
// SAFETY: as above.
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
        self.0.write(value.to_be());
    }

    /// Returns the counter published last.
    #[inline(always)]
    pub fn get(self) -> u32 {
        Be32::from_bits(self.0.read()).get()
    }
}
