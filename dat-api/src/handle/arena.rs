//! Where slots lie: memory of the library's own, which is never given back.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;

use super::slot::{FREE, PARENTS, Slot};
use dat_engine::sync::{Mutex, MutexGuard};

/// The most objects that a process can have at a time.
const COUNT: usize = 1 << 20;
/// A slot rests while so many others are freed, so that a stale handle stays
/// recognisable for long; when fresh ones run out, the rest is cut short.
const RESTING: usize = COUNT / 2;

/// All slots: 64 MiB of address space, of which memory is taken page by page as
/// slots are used. That it is where the linker put it, finding a slot need not
/// ask.
static SLOTS: MaybeUninit<[Slot; COUNT]> = MaybeUninit::zeroed();

/// Which slots are free.
pub(super) struct Arena {
    state: Mutex<State>,
    /// How many slots have ever been used.
    used: AtomicUsize,
}

/// What taking and giving back slots changes.
pub(super) struct State {
    /// Freed slots, longest first.
    resting: VecDeque<&'static Slot>,
}

/// The slot of a number.
///
/// # Safety
/// It is below [`COUNT`].
#[inline(always)]
unsafe fn at(number: usize) -> &'static Slot {
    // SAFETY: inside the array, and any bytes, zero at first, are a slot of
    // atomics.
    unsafe { &*SLOTS.as_ptr().cast::<Slot>().add(number) }
}

/// The slot that a pointer leads to, if there is one that begins there.
#[inline(always)]
pub(super) fn find(pointer: *const c_void) -> Option<&'static Slot> {
    let offset = pointer.addr().wrapping_sub(SLOTS.as_ptr().addr());
    // The number of the slot, if the pointer is to where one starts; any bit
    // below turns up on top, and the number is out of reach. So one comparison
    // is for "too low", "too high" and "in between".
    let number = offset.rotate_right(size_of::<Slot>().trailing_zeros());
    // SAFETY: as compared; the pointer may be used there, for it was made of
    // what `take` has exposed, if by whoever calls us.
    (number < COUNT).then(|| unsafe { known(pointer) })
}

/// The slot that a pointer leads to.
///
/// # Safety
/// One begins there.
#[inline(always)]
pub(super) unsafe fn known(pointer: *const c_void) -> &'static Slot {
    // SAFETY: the caller's promise, and as in `at`.
    unsafe { &*pointer.cast() }
}

/// The slot of a number that [`number`] told.
pub(super) fn numbered(number: u32) -> Option<&'static Slot> {
    let number = number as usize;
    // SAFETY: as compared.
    (number < COUNT).then(|| unsafe { at(number) })
}

/// The number of a slot: below 2^20.
pub(super) fn number(slot: &'static Slot) -> u32 {
    let offset = core::ptr::from_ref(slot).addr() - SLOTS.as_ptr().addr();
    (offset / size_of::<Slot>()) as u32
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                resting: VecDeque::new(),
            }),
            used: AtomicUsize::new(0),
        }
    }

    /// A free slot, or nothing when all are used or memory has run out.
    pub(super) fn take(&self) -> Option<&'static Slot> {
        let mut state = self.lock();
        let used = self.used.load(Ordering::Relaxed);
        if used == 0 {
            // Handles are addresses.
            SLOTS.as_ptr().expose_provenance();
        }
        if used < COUNT && state.resting.len() < RESTING {
            self.used.store(used + 1, Ordering::Release);
            // SAFETY: below the count.
            return Some(unsafe { at(used) });
        }
        state.resting.pop_front()
    }

    /// Gives a slot back.
    pub(super) fn give_back(&self, slot: &'static Slot) {
        self.lock().resting.push_back(slot);
    }

    /// Nobody takes or gives back a slot while the answer lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Makes all handles stale for good. Only stores: good in a child of a fork.
    pub(super) fn disown(&self) {
        for number in 0..self.used.load(Ordering::Acquire) {
            // SAFETY: no more are used than there are.
            let slot = unsafe { at(number) };
            if slot.tag.load(Ordering::Relaxed) != FREE {
                slot.tag.store(PARENTS, Ordering::Relaxed);
            }
        }
    }
}
