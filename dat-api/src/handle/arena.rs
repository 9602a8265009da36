//! The array of slots. It is static memory of the library and is never unmapped.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::slot::{FORKED, FREE, Slot};
use dat_engine::sync::{Mutex, MutexGuard};

/// The maximum number of live objects in a process.
const COUNT: usize = 1 << 20;
/// The number of other slots that are freed before a slot is reused, so that a stale handle stays
/// recognisable for long. They take 2 MiB at most. When no fresh slots are left, slots are reused
/// earlier.
const RESTING: usize = 1 << 15;

/// All slots: 64 MiB of address space. The kernel provides a page when a slot in it is first used.
/// The array is static, so finding a slot loads no base address.
static SLOTS: MaybeUninit<[Slot; COUNT]> = MaybeUninit::zeroed();

/// The free slots.
pub(super) struct Arena {
    resting: Mutex<Resting>,
    /// The number of slots that have been used at least once.
    used: AtomicUsize,
}

/// The freed slots, the one freed first in front. Each has the address of the next one in its `object`.
pub(super) struct Resting {
    ends: Option<(&'static Slot, &'static Slot)>,
    count: usize,
}

impl Resting {
    fn push_back(&mut self, slot: &'static Slot) {
        let address = core::ptr::from_ref(slot).cast_mut().cast();
        self.ends = Some(match self.ends {
            Some((first, last)) => {
                last.object.store(address, Ordering::Relaxed);
                (first, slot)
            }
            None => (slot, slot),
        });
        self.count += 1;
    }

    fn pop_front(&mut self) -> Option<&'static Slot> {
        let (first, last) = self.ends?;
        self.count -= 1;
        self.ends = (self.count > 0).then(|| {
            // SAFETY: not the last one, so `push_back` has stored the address of a slot.
            let next = unsafe { known(first.object.load(Ordering::Relaxed).cast()) };
            (next, last)
        });
        Some(first)
    }
}

/// Returns the slot with a number.
///
/// # Safety
/// The number is below [`COUNT`].
#[inline(always)]
unsafe fn at(number: usize) -> &'static Slot {
    // SAFETY: the slot is inside the array; every bit pattern is a valid slot, which holds only
    // atomics.
    unsafe { &*SLOTS.as_ptr().cast::<Slot>().add(number) }
}

/// Returns the slot whose first byte a pointer points to, if there is one.
#[inline(always)]
pub(super) fn find(pointer: *const c_void) -> Option<&'static Slot> {
    let offset = pointer.addr().wrapping_sub(SLOTS.as_ptr().addr());
    // The number of the slot, if the pointer points to the first byte of a slot. If it points into
    // a slot, the rotation moves the low bits to the top and the number is too large. One
    // comparison thus rejects pointers below, above and inside slots.
    let number = offset.rotate_right(size_of::<Slot>().trailing_zeros());
    // SAFETY: the comparison shows that a slot begins there; a caller that has the address got it
    // from a slot whose provenance `take` exposed.
    (number < COUNT).then(|| unsafe { known(pointer) })
}

/// Returns the slot that a pointer points to.
///
/// # Safety
/// The pointer points to the first byte of a slot.
#[inline(always)]
pub(super) unsafe fn known(pointer: *const c_void) -> &'static Slot {
    // SAFETY: the pointer points to the first byte of a slot; every bit pattern is a valid slot.
    unsafe { &*pointer.cast() }
}

pub(super) fn numbered(number: u32) -> Option<&'static Slot> {
    let number = number as usize;
    // SAFETY: the number was compared with `COUNT`.
    (number < COUNT).then(|| unsafe { at(number) })
}

/// Returns the number of a slot, which is below 2^20.
pub(super) fn number(slot: &'static Slot) -> u32 {
    let offset = core::ptr::from_ref(slot).addr() - SLOTS.as_ptr().addr();
    (offset / size_of::<Slot>()) as u32
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            resting: Mutex::new(Resting {
                ends: None,
                count: 0,
            }),
            used: AtomicUsize::new(0),
        }
    }

    /// Takes a free slot; returns `None` when all are used or no memory is left.
    pub(super) fn take(&self) -> Option<&'static Slot> {
        let mut resting = self.lock();
        let used = self.used.load(Ordering::Relaxed);
        if used == 0 {
            // Handles are addresses: they become pointers again by exposed provenance.
            SLOTS.as_ptr().expose_provenance();
        }
        if used < COUNT && resting.count < RESTING {
            self.used.store(used + 1, Ordering::Release);
            // SAFETY: `used` is below `COUNT`.
            return Some(unsafe { at(used) });
        }
        resting.pop_front()
    }

    /// Returns a slot to the free slots.
    pub(super) fn release(&self, slot: &'static Slot) {
        self.lock().push_back(slot);
    }

    /// Locks the arena: no thread takes or releases a slot while the guard lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock()
    }

    /// Makes all handles stale for ever. It only stores to atomics, so a child of fork may call it.
    pub(super) fn invalidate_all(&self) {
        for number in 0..self.used.load(Ordering::Acquire) {
            // SAFETY: `used` never exceeds `COUNT`.
            let slot = unsafe { at(number) };
            if slot.tag.load(Ordering::Relaxed) != FREE {
                slot.tag.store(FORKED, Ordering::Relaxed);
            }
        }
    }
}
