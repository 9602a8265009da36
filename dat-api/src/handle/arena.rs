//! Where slots lie: address space reserved once and never given back.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::{MmapOptions, MmapRaw};

use super::slot::{FREE, PARENTS, Slot};

/// Slots of one arena: the most objects that a process can have at a time.
/// 64 MiB of address space; memory is taken page by page as slots are used.
const SLOTS: usize = 1 << 20;
/// A slot rests while so many others are freed, so that a stale handle stays
/// recognisable for long; when fresh ones run out, the rest is cut short.
const RESTING: usize = SLOTS / 2;

/// A reserved range of slots.
pub(super) struct Arena {
    /// First slot; null before the first use.
    base: AtomicPtr<Slot>,
    state: Mutex<State>,
    /// How many slots have ever been used: those at and after are unmapped
    /// zero pages, and are not looked at.
    used: AtomicUsize,
}

/// What taking and giving back slots changes.
pub(super) struct State {
    memory: Option<MmapRaw>,
    /// Freed slots, longest first.
    resting: VecDeque<&'static Slot>,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            state: Mutex::new(State {
                memory: None,
                resting: VecDeque::new(),
            }),
            used: AtomicUsize::new(0),
        }
    }

    /// The slot that a value points to exactly, if it points to one.
    #[inline(always)]
    pub(super) fn find(&self, value: usize) -> Option<&'static Slot> {
        let base = self.base.load(Ordering::Acquire);
        let offset = value.wrapping_sub(base.addr());
        // The number of the slot, if the value points to the start of one; any
        // bit below turns up on top, and the number is out of reach. So one
        // comparison is for "too low", "too high", "in between" and "nothing
        // made yet": `used` is 0 then.
        let number = offset.rotate_right(size_of::<Slot>().trailing_zeros());
        if number < self.used.load(Ordering::Relaxed) {
            // SAFETY: inside the mapping, which is never unmapped, at a
            // multiple of the slot's size from its page-aligned start; any
            // bytes, zero at first, are a slot of atomics.
            Some(unsafe {
                let slot = base.byte_add(offset);
                core::hint::assert_unchecked(!slot.is_null());
                &*slot
            })
        } else {
            None
        }
    }

    /// The slot of a number that [`Self::number`] told.
    pub(super) fn at(&self, number: u32) -> Option<&'static Slot> {
        let base = self.base.load(Ordering::Acquire);
        self.find(base.addr() + number as usize * size_of::<Slot>())
    }

    /// The number of a slot: below 2^20.
    pub(super) fn number(&self, slot: &'static Slot) -> u32 {
        let offset = core::ptr::from_ref(slot).addr() - self.base.load(Ordering::Acquire).addr();
        (offset / size_of::<Slot>()) as u32
    }

    /// A free slot, or nothing when all are used or memory has run out.
    pub(super) fn take(&self) -> Option<&'static Slot> {
        let mut state = self.lock();
        if state.memory.is_none() {
            super::fork::watch();
            let memory = MmapOptions::new()
                .len(SLOTS * size_of::<Slot>())
                .no_reserve_swap()
                .map_anon()
                .ok()?;
            let memory = MmapRaw::from(memory);
            self.base
                .store(memory.as_mut_ptr().cast(), Ordering::Release);
            state.memory = Some(memory);
        }
        let used = self.used.load(Ordering::Relaxed);
        if used < SLOTS && state.resting.len() < RESTING {
            self.used.store(used + 1, Ordering::Release);
            let base = self.base.load(Ordering::Relaxed);
            // SAFETY: inside the mapping, aligned, as in `find`.
            return Some(unsafe { &*base.add(used) });
        }
        state.resting.pop_front()
    }

    /// Gives a slot back.
    pub(super) fn give_back(&self, slot: &'static Slot) {
        self.lock().resting.push_back(slot);
    }

    /// Nobody takes or gives back a slot while the answer lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all handles stale for good. Only stores: good in a child of a fork.
    pub(super) fn disown(&self) {
        let base = self.base.load(Ordering::Acquire);
        for number in 0..self.used.load(Ordering::Acquire) {
            // SAFETY: inside the mapping, aligned, as in `find`.
            let slot = unsafe { &*base.add(number) };
            if slot.tag.load(Ordering::Relaxed) != FREE {
                slot.tag.store(PARENTS, Ordering::Relaxed);
            }
        }
    }
}
