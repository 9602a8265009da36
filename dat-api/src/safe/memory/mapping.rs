//! The registered bytes, with their owner.

use core::any::Any;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use dat_engine::sync::Mutex;
use dat_engine::{MessageValue, load_message, read_message, store_message, write_message};

use super::Segment;
use super::owner::OwnedBytes;

/// Bytes that the device may access, apart from their registration.
pub(in crate::safe) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    /// `None` once the owner was taken back.
    owner: Option<Box<dyn Any + Send>>,
}

// SAFETY: the bytes are bound to no thread (`OwnedBytes`), and accessed as `read_message` and
// `write_message` allow from any. The owner, which is `Send`, is used through `&mut` only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Takes the owner's bytes.
    pub(super) fn of<T: OwnedBytes>(owner: T) -> Self {
        // The bytes are asked for at the owner's last place: a `Box` that is moved after that could
        // be assumed to have no other pointer to its bytes.
        let mut owner = Box::new(owner);
        let bytes = owner.owned_bytes();
        Self {
            start: bytes.cast(),
            length: bytes.len(),
            owner: Some(owner),
        }
    }

    /// Returns the owner, which had the type `T`. Ends all access through this value.
    pub(super) fn into_owner<T: OwnedBytes>(mut self) -> Option<T> {
        let owner = self.owner.take()?.downcast::<T>();
        owner.ok().map(|owner| *owner)
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns a pointer to `length` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not inside.
    pub(super) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "{length} bytes at {offset} are not inside {} bytes",
            self.length
        );
        // SAFETY: inside the bytes.
        unsafe { self.as_ptr().add(offset) }
    }

    /// Copies bytes into the memory, as [`super::Memory::write`].
    ///
    /// # Safety
    /// `length` readable bytes at `from`, which nothing writes meanwhile.
    pub(super) unsafe fn write(&self, offset: usize, from: *const u8, length: usize) {
        let at = self.at(offset, length);
        // SAFETY: `at` has checked the bounds; no reference to these bytes exists, so the two do
        // not overlap. `write_message` allows concurrent access by other threads and the device.
        unsafe { write_message(from, at, length) };
    }

    /// Copies bytes out of the memory, as [`super::Memory::read`].
    ///
    /// # Safety
    /// `length` writable bytes at `to`, which nothing else accesses meanwhile.
    pub(super) unsafe fn read(&self, offset: usize, to: *mut u8, length: usize) {
        let at = self.at(offset, length);
        // SAFETY: as in `write`.
        unsafe { read_message(at, to, length) };
    }

    /// Reads a number at once. Later reads are not older than this one.
    ///
    /// # Panics
    /// If it is not inside, or not aligned.
    pub(super) fn load<T: MessageValue>(&self, offset: usize) -> T {
        // SAFETY: inside the bytes, and aligned.
        unsafe { load_message(self.word(offset)) }
    }

    /// Writes a number at once. Earlier writes are not newer than this one.
    ///
    /// # Panics
    /// As [`Self::load`].
    pub(super) fn store<T: MessageValue>(&self, offset: usize, value: T) {
        // SAFETY: as in `load`.
        unsafe { store_message(self.word(offset), value) };
    }

    fn word<T>(&self, offset: usize) -> *mut T {
        let size = size_of::<T>();
        let at = self.at(offset, size).cast::<T>();
        assert!(at.is_aligned(), "{at:?} is not a multiple of {size}");
        at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let owner = self.owner.take();
        // The last user of the memory may be in the middle of freeing an endpoint, which must go on.
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| drop(owner))) {
            tracing::error!("the owner of registered memory panicked when it was dropped");
            // What it panicked with may panic, too.
            let dropped = panic::catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(core::mem::forget);
        }
    }
}

/// Mappings that the device, or the copy of a CQE's payload, may still write to; kept until their
/// owner is dropped.
#[derive(Default)]
pub(in crate::safe) struct Mappings {
    /// The one that was posted last, which most posts use again.
    latest: Option<Arc<Mapping>>,
    others: Vec<Arc<Mapping>>,
}

impl Mappings {
    /// Keeps the memory of these segments.
    #[inline]
    pub(in crate::safe) fn keep(&mut self, segments: &[Segment<'_>]) {
        for segment in segments {
            let latest = self.latest.as_ref();
            if !latest.is_some_and(|latest| Arc::ptr_eq(latest, segment.memory)) {
                self.add(segment.memory);
            }
        }
    }

    /// Makes a mapping the latest; the others keep one of each. It may be the latest already:
    /// another thread may have added it just now.
    #[cold]
    fn add(&mut self, mapping: &Arc<Mapping>) {
        if self
            .latest
            .as_ref()
            .is_some_and(|latest| Arc::ptr_eq(latest, mapping))
        {
            return;
        }
        let mut others = self.others.iter_mut();
        let known = others.find(|known| Arc::ptr_eq(known, mapping));
        match (known, &mut self.latest) {
            (Some(known), Some(latest)) => core::mem::swap(known, latest),
            (_, latest) => self.others.extend(latest.replace(Arc::clone(mapping))),
        }
    }
}

/// As [`Mappings`], for posts of several threads at a time.
#[derive(Default)]
pub(in crate::safe) struct SharedMappings {
    /// The mapping that was posted last, which is kept; initially null. Only compared.
    latest: AtomicPtr<Mapping>,
    kept: Mutex<Mappings>,
}

impl SharedMappings {
    /// Keeps the memory of these segments.
    #[inline]
    pub(in crate::safe) fn keep(&self, segments: &[Segment<'_>]) {
        for segment in segments {
            // Acquire: the mapping was kept before.
            if !ptr::eq(
                self.latest.load(Ordering::Acquire),
                &raw const **segment.memory,
            ) {
                self.add(segment.memory);
            }
        }
    }

    #[cold]
    fn add(&self, mapping: &Arc<Mapping>) {
        let mut kept = self.kept.lock();
        kept.add(mapping);
        self.latest
            .store(Arc::as_ptr(mapping).cast_mut(), Ordering::Release);
    }
}

impl fmt::Debug for Mappings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latest = usize::from(self.latest.is_some());
        f.debug_tuple("Mappings")
            .field(&(latest + self.others.len()))
            .finish()
    }
}

impl fmt::Debug for SharedMappings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.lock().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Writes as a device does, and takes the owner back.
    fn written<T: OwnedBytes>(owner: T) -> T {
        let mapping = Box::new(Arc::new(Mapping::of(owner)));
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        // SAFETY: the bytes are borrowed.
        unsafe { mapping.write(3, bytes.as_ptr(), bytes.len()) };
        let mut read = [0; 12];
        let mapping = *mapping;
        // SAFETY: as above.
        unsafe { mapping.read(0, read.as_mut_ptr(), read.len()) };
        assert_eq!(read, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let mapping = Arc::into_inner(mapping).expect("one owner");
        mapping.into_owner().expect("an owner of this type")
    }

    #[test]
    fn owners_have_what_was_written_when_they_are_taken_back() {
        let expected = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0];
        assert_eq!(written(vec![0; 13]), expected);
        assert_eq!(&*written(vec![0; 13].into_boxed_slice()), expected);
        let leaked: &'static mut [u8] = Box::leak(Box::new([0; 13]));
        let leaked = written(leaked);
        assert_eq!(leaked, expected);
        // SAFETY: leaked above, and not used any more.
        drop(unsafe { Box::from_raw(leaked) });
    }

    #[test]
    fn a_flag_orders_what_was_written_before_it() {
        let mapping = Mapping::of(vec![0; 48]);
        let flag = mapping.as_ptr().align_offset(8);
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the bytes are borrowed.
                unsafe { mapping.write(flag + 8, b"message".as_ptr(), 7) };
                mapping.store(flag, 1u64);
            });
            while mapping.load::<u64>(flag) == 0 {
                thread::yield_now();
            }
            let mut read = [0; 7];
            // SAFETY: as above.
            unsafe { mapping.read(flag + 8, read.as_mut_ptr(), 7) };
            assert_eq!(&read, b"message");
        });
    }

    /// Panics when it is dropped.
    struct Panics(Vec<u8>);

    // SAFETY: as for `Vec<u8>`.
    unsafe impl OwnedBytes for Panics {
        fn owned_bytes(&mut self) -> NonNull<[u8]> {
            self.0.owned_bytes()
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("an owner that panics when it is dropped");
        }
    }

    #[test]
    fn an_owner_that_panics_when_it_is_dropped_does_not_disturb_its_last_user() {
        drop(Mapping::of(Panics(vec![0; 8])));
    }

    #[test]
    fn every_mapping_is_kept_once_whatever_the_order_of_posts() {
        let mappings: [_; 3] = core::array::from_fn(|_| Arc::new(Mapping::of(vec![0])));
        let (mut kept, shared) = (Mappings::default(), SharedMappings::default());
        for at in [0, 1, 0, 1, 2, 0, 2, 2, 1, 0] {
            kept.add(&mappings[at]);
            assert!(Arc::ptr_eq(
                kept.latest.as_ref().expect("one"),
                &mappings[at]
            ));
            shared.add(&mappings[at]);
            let latest = shared.latest.load(Ordering::Relaxed);
            assert!(ptr::eq(latest, Arc::as_ptr(&mappings[at])));
        }
        let owners = |count| mappings.each_ref().map(Arc::strong_count) == [count; 3];
        assert!(owners(3), "this test, `kept` and `shared`");
        drop(kept);
        assert!(owners(2));
        drop(shared);
        assert!(owners(1));
    }
}
