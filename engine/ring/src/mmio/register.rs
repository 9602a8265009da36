//! Doorbell registers: eight bytes that start the device, or a whole WQE
//! (BlueFlame) that saves it the fetch.
//!
//! A register has two halves that are written alternately, so that consecutive
//! doorbells do not combine into one. Several queue pairs can have the same register.
//! They then share the offset of the next half, and write one at a time. So the state
//! of a register exists once per address in the process ([`Register::at`]).
//!
//! The sequence is that of libmlx5's `post_send_db`, so that both leave the
//! same stores: record, barrier, register, flush, other half.
//!
//! Decision: `docs/decisions/003-blueflame-exclusive-register.md`

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::barrier;
use crate::sync::SpinLock;
use crate::wire::{Be64, WQEBB};

/// The state of a register, which all its rings share.
#[derive(Debug)]
struct UarState {
    /// Offset of the half to write next: 0 or the half's size.
    offset: AtomicUsize,
    /// Held while a doorbell is written, unless there is only one writer.
    lock: SpinLock<()>,
}

/// The states by address. Locked only when a queue is created.
static STATES: SpinLock<Option<HashMap<usize, Weak<UarState>>>> = SpinLock::new(None);

fn state_of(address: usize) -> Arc<UarState> {
    let mut states = STATES.lock();
    let states = states.get_or_insert_default();
    if let Some(uar) = states.get(&address).and_then(Weak::upgrade) {
        return uar;
    }
    states.retain(|_, uar| uar.strong_count() > 0);
    let uar = Arc::new(UarState {
        offset: AtomicUsize::new(0),
        lock: SpinLock::new(()),
    });
    states.insert(address, Arc::downgrade(&uar));
    uar
}

/// One ring's access to its doorbell register.
#[derive(Debug)]
pub(crate) struct Register {
    reg: NonNull<u8>,
    half_size: usize,
    locked: bool,
    uar: Arc<UarState>,
}

// SAFETY: `reg` is device memory, bound to no thread; two rings with the same
// register are kept apart by `UarState::lock`, or by the promise given to `at`.
unsafe impl Send for Register {}

/// A WQE in a send ring, as [`Register::blue_flame`] copies it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlueFlame {
    /// The WQE's first WQEBB.
    pub(crate) wqe: NonNull<u8>,
    /// Its length in WQEBBs.
    pub(crate) wqebbs: u32,
    /// First WQEBB of the ring, at which a WQE continues that reaches the end of the ring.
    pub(crate) ring: NonNull<u8>,
    /// Just past the ring's last WQEBB.
    pub(crate) ring_end: *const u8,
}

impl Register {
    /// Returns access to the register at `reg`, whose halves are `half_size` bytes
    /// apart (0: it has one half). `locked` is false if no two threads ever ring
    /// this register at once.
    ///
    /// # Safety
    /// `reg` is a doorbell register, or memory that may be written like one,
    /// for 8 bytes and, if `half_size` is not 0, for `2 * half_size` bytes,
    /// aligned to 8, for as long as the value lives. If `locked` is false,
    /// the caller ensures that the register has one writer at a time.
    pub(crate) unsafe fn at(reg: NonNull<u8>, half_size: u32, locked: bool) -> Self {
        debug_assert!(reg.cast::<u64>().is_aligned());
        Self {
            reg,
            half_size: half_size as usize,
            locked,
            uar: state_of(reg.as_ptr().addr()),
        }
    }

    /// Writes the first eight bytes of the last WQE, under the lock of the register if other
    /// threads may ring at the same time.
    #[inline(always)]
    pub(crate) fn ring(&mut self, doorbell: Be64) {
        let uar = &*self.uar;
        if self.locked {
            let held = uar.lock.lock();
            barrier::before_register_locked();
            // Inside the lock: the flush works on this processor only, and the
            // next holder's doorbell must not overtake this one.
            self.write_db(uar, doorbell);
            drop(held);
        } else {
            barrier::before_register();
            self.write_db(uar, doorbell);
        }
    }

    #[inline(always)]
    fn write_db(&self, uar: &UarState, doorbell: Be64) {
        let offset = uar.offset.load(Ordering::Relaxed);
        // SAFETY: the offset is 0 or `half_size`: 8 aligned writable bytes at either half, as
        // promised to `at`; device memory is written by volatile stores.
        unsafe {
            let half = self.reg.add(offset).cast::<u64>();
            half.write_volatile(doorbell.to_bits());
        }
        barrier::after_register();
        uar.offset.store(offset ^ self.half_size, Ordering::Relaxed);
    }

    /// Copies a whole WQE to the register, 64 bytes at a time, in ascending
    /// order. No other thread rings the same register meanwhile.
    ///
    /// # Safety
    /// The WQE lies in its ring as the fields of `source` say, in memory that
    /// is readable and aligned to 64 bytes, and is no longer than one half.
    #[inline(always)]
    pub(crate) unsafe fn blue_flame(&mut self, source: BlueFlame) {
        debug_assert!(source.wqebbs as usize * WQEBB <= self.half_size);
        debug_assert!(!self.locked);
        let uar = &*self.uar;
        barrier::before_register();
        let offset = uar.offset.load(Ordering::Relaxed);
        // SAFETY: as in `write_db`; the register is two halves long.
        let half = unsafe { self.reg.add(offset) };
        // Up to two WQEBBs, as a short inline message takes, are copied inline.
        // SAFETY: WQEBBs of the ring and of the half, as many as the WQE is
        // long, which the caller promises.
        unsafe {
            copy_wqebb(half.cast(), source.wqe.cast());
            if source.wqebbs > 1 {
                let (ring, end) = (source.ring, source.ring_end);
                let second = behind(source.wqe, ring, end);
                copy_wqebb(half.add(WQEBB).cast(), second.cast());
                if source.wqebbs > 2 {
                    let (to, third) = (half.add(2 * WQEBB), behind(second, ring, end));
                    copy_wqebbs(to, third, source.wqebbs - 2, ring, end);
                }
            }
        }
        barrier::after_register();
        uar.offset.store(offset ^ self.half_size, Ordering::Relaxed);
    }
}

/// Returns the WQEBB after one, in a ring.
///
/// # Safety
/// That one is of the ring.
#[inline(always)]
unsafe fn behind(wqebb: NonNull<u8>, ring: NonNull<u8>, ring_end: *const u8) -> NonNull<u8> {
    // SAFETY: within, or one past, the ring.
    let next = unsafe { wqebb.add(WQEBB) };
    if core::ptr::eq(next.as_ptr(), ring_end) {
        ring
    } else {
        next
    }
}

/// Copies `count` WQEBBs of a ring. All arguments fit registers.
///
/// # Safety
/// The ring has at least `count` WQEBBs, and `to` has room for them.
#[inline(never)]
unsafe fn copy_wqebbs(
    mut to: NonNull<u8>,
    mut from: NonNull<u8>,
    count: u32,
    ring: NonNull<u8>,
    ring_end: *const u8,
) {
    for _ in 0..count {
        // SAFETY: the ring has `count` WQEBBs, and `to` has room for them; `to` may end one past
        // the room.
        unsafe {
            copy_wqebb(to.cast(), from.cast());
            to = to.add(WQEBB);
            from = behind(from, ring, ring_end);
        }
    }
}

/// Copies 64 bytes by eight stores in ascending order. Not `memcpy`, which may
/// store in any order and width.
///
/// # Safety
/// 64 readable bytes at `from`, 64 writable bytes at `to`, both aligned to 8.
#[cfg(not(all(target_arch = "aarch64", not(miri))))]
#[inline(always)]
unsafe fn copy_wqebb(to: NonNull<u64>, from: NonNull<u64>) {
    for word in 0..WQEBB / size_of::<u64>() {
        // SAFETY: within the 64 bytes that the caller promises.
        let (from, to) = unsafe { (from.add(word), to.add(word)) };
        // SAFETY: aligned, readable and writable as the caller promises. Volatile stores keep
        // their order.
        unsafe { to.write_volatile(from.read()) };
    }
}

/// As on x86-64, but with all loads before the stores. The processor combines the stores
/// into one write to the device only if no other instruction is between them. They are
/// 8 bytes wide, because a virtual machine may not support pairs (`stp`) in device memory.
/// Both rules are those of Linux's `__iowrite64_copy` (`arch/arm64/include/asm/io.h`).
///
/// # Safety
/// 64 readable bytes at `from`, 64 writable bytes at `to`, both aligned to 8.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
unsafe fn copy_wqebb(to: NonNull<u64>, from: NonNull<u64>) {
    let words: [u64; WQEBB / size_of::<u64>()] = core::array::from_fn(|word| {
        // SAFETY: within the 64 bytes that the caller promises.
        let from = unsafe { from.add(word) };
        // SAFETY: aligned and readable as the caller promises.
        unsafe { from.read() }
    });
    // SAFETY: stores to the 64 writable bytes that the caller promises.
    unsafe {
        core::arch::asm!(
            "str {0}, [{to}]",
            "str {1}, [{to}, #8]",
            "str {2}, [{to}, #16]",
            "str {3}, [{to}, #24]",
            "str {4}, [{to}, #32]",
            "str {5}, [{to}, #40]",
            "str {6}, [{to}, #48]",
            "str {7}, [{to}, #56]",
            in(reg) words[0],
            in(reg) words[1],
            in(reg) words[2],
            in(reg) words[3],
            in(reg) words[4],
            in(reg) words[5],
            in(reg) words[6],
            in(reg) words[7],
            to = in(reg) to.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
}

/// The register that arms completion queues.
///
/// All completion queues of a context share it. Arming is one eight-byte store,
/// so they need no lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArmRegister(NonNull<u64>);

// SAFETY: device memory, bound to no thread; every store is complete in itself.
unsafe impl Send for ArmRegister {}
// SAFETY: as above.
unsafe impl Sync for ArmRegister {}

impl ArmRegister {
    /// Offset of the CQ doorbell in its page (`MLX5_CQ_DOORBELL`).
    pub(crate) const OFFSET: usize = 0x20;

    /// Returns the register in the page at `uar`.
    ///
    /// # Safety
    /// The page is writable at [`Self::OFFSET`] for 8 bytes, aligned to 8, for
    /// as long as the value or a copy of it is used.
    pub(crate) unsafe fn new(uar: NonNull<u8>) -> Self {
        // SAFETY: inside the page, as promised.
        Self(unsafe { uar.add(Self::OFFSET) }.cast())
    }

    /// Arms the completion queue. The arm record has been written before.
    #[inline]
    pub(crate) fn ring(self, doorbell: Be64) {
        barrier::before_register();
        // SAFETY: aligned and writable, as promised to `new`.
        unsafe { self.0.write_volatile(doorbell.to_bits()) };
        barrier::after_register();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Page([u64; 128]);

    fn register(page: &mut Page, half: u32, locked: bool) -> Register {
        let reg = NonNull::from(&mut page.0).cast();
        // SAFETY: the page outlives the register in these tests and is 1 KiB.
        unsafe { Register::at(reg, half, locked) }
    }

    #[test]
    fn doorbells_alternate_between_the_halves() {
        let mut page = Page([0; 128]);
        let at = |page: &Page, i: usize| Be64::from_bits(page.0[i]).get();
        let mut reg = register(&mut page, 256, false);
        for doorbell in 1..=4 {
            reg.ring(Be64::new(doorbell));
        }
        drop(reg);
        assert_eq!((at(&page, 0), at(&page, 32)), (3, 4));
    }

    #[test]
    fn queue_pairs_on_one_register_alternate_its_halves_together() {
        let mut page = Page([0; 128]);
        let mut a = register(&mut page, 256, true);
        // SAFETY: the same page as above.
        let mut b = unsafe { Register::at(a.reg, 256, true) };
        a.ring(Be64::new(1));
        b.ring(Be64::new(2));
        drop((a, b));
        assert_eq!(Be64::from_bits(page.0[0]).get(), 1);
        assert_eq!(Be64::from_bits(page.0[32]).get(), 2);
    }

    #[test]
    fn a_register_without_a_second_half_stays_where_it_is() {
        let mut page = Page([0; 128]);
        let mut reg = register(&mut page, 0, false);
        reg.ring(Be64::new(1));
        reg.ring(Be64::new(2));
        drop(reg);
        assert_eq!(Be64::from_bits(page.0[0]).get(), 2);
    }

    #[test]
    fn blue_flame_goes_on_at_the_start_of_the_ring() {
        // WQEBBs before the end of the ring, and of the WQE.
        for (before, wqebbs) in [
            (1, 1),
            (1, 2),
            (2, 2),
            (1, 3),
            (2, 3),
            (3, 3),
            (2, 4),
            (3, 4),
        ] {
            let mut page = Page([0; 128]);
            let mut ring = Page(core::array::from_fn(|i| i as u64));
            let base = NonNull::from(&mut ring.0).cast::<u8>();
            let mut reg = register(&mut page, 256, false);
            let source = BlueFlame {
                // SAFETY: both inside, or at the end of, the 1 KiB ring.
                wqe: unsafe { base.add(1024 - 64 * before) },
                wqebbs,
                ring: base,
                // SAFETY: as above.
                ring_end: unsafe { base.add(1024) }.as_ptr(),
            };
            // SAFETY: `source` describes `ring`, and 256 bytes fit a half.
            unsafe { reg.blue_flame(source) };
            drop(reg);
            let words = 8 * wqebbs as usize;
            let from = 128 - 8 * before as u64;
            let expected = (0..words as u64).map(|word| (from + word) % 128);
            assert!(
                page.0[..words].iter().copied().eq(expected),
                "{before} {wqebbs}"
            );
            assert!(page.0[words..].iter().all(|&w| w == 0));
        }
    }

    #[test]
    fn concurrent_writers_of_a_serialised_register_alternate_its_halves() {
        let mut page = Page([0; 128]);
        let reg = register(&mut page, 256, true);
        let base = reg.reg.as_ptr().expose_provenance();
        let rounds: u64 = if cfg!(miri) { 20 } else { 10_000 };
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                scope.spawn(move || {
                    let at = NonNull::new(core::ptr::with_exposed_provenance_mut(base));
                    // SAFETY: the page outlives the scope.
                    let mut reg = unsafe { Register::at(at.expect("not null"), 256, true) };
                    for _ in 0..rounds {
                        reg.ring(Be64::new(thread + 1));
                    }
                });
            }
        });
        // An even number of doorbells ends where it began.
        assert_eq!(reg.uar.offset.load(Ordering::Relaxed), 0);
    }
}
