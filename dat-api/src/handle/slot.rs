//! One place for one object: what a handle points to.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::{Handle, Kind, Upcalls};

/// A slot holds nothing.
pub(super) const FREE: u32 = 0;
/// Added to the kind while the object lives, so that no live tag is [`FREE`].
pub(super) const LIVE: u32 = 0x100;
/// The object is on its way out: no call finds it any more.
pub(super) const DYING: u32 = 0x200;

/// The object is that of the process which this one is a fork of.
pub(super) const PARENTS: u32 = 0x300;

/// In the gate. One bit, which a processor sets and asks for at once.
pub(super) const HELD: u32 = 1;

/// The tag of a live object of a kind.
#[inline(always)]
pub(super) const fn live(kind: Kind) -> u32 {
    LIVE | kind as u32
}

/// What a handle points to. Slots are never unmapped and move never, so a
/// handle that is stale, or of another kind, can be told from a good one by
/// reading it. One cache line.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The table of functions of the C face that the object was made through:
    /// DAT wants it as the first word of what a handle points to.
    pub(super) table: AtomicPtr<c_void>,
    /// [`FREE`], [`live`], [`DYING`] or [`PARENTS`].
    pub(super) tag: AtomicU32,
    /// Calls that use the object now and hold no gate.
    pub(super) pins: AtomicU32,
    /// The object, from `Arc::into_raw`.
    pub(super) object: AtomicPtr<()>,
    /// [`HELD`] while a call has the object for itself.
    pub(super) gate: AtomicU32,
    /// See [`Meters`].
    pub(super) meters: Meters,
    /// EP on an SRQ: the SRQ's handle, or 0.
    srq: AtomicU64,
    /// The consumer's context, zero at first.
    pub(super) context: AtomicU64,
    /// Those of the object that was published last; null at first.
    pub(super) upcalls: AtomicPtr<Upcalls>,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// What completions need of an object, where it is found from a completion
/// without looking at the object. Zero when an object is made.
///
/// Nothing here counts the receives that have completed: that count is kept by
/// the receive queue alone, in the engine, which gives a receive back with its
/// completion.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Meters {
    /// SRQ: the low watermark while it is armed, else 0.
    pub(crate) low_watermark: AtomicU32,
    /// EP: receives that have completed and whose events are staged: the EVD
    /// holds them, and the consumer has not taken them.
    pub(crate) recv_staged: AtomicU32,
    /// EP: what its completions need before they are events: [`super::Needs`].
    pub(crate) cqe_flags: AtomicU32,
}

impl Meters {
    /// All of them zero.
    pub(super) fn clear(&self) {
        self.low_watermark.store(0, Ordering::Relaxed);
        self.recv_staged.store(0, Ordering::Relaxed);
        self.cqe_flags.store(0, Ordering::Relaxed);
    }
}

impl Slot {
    /// The counters.
    #[inline(always)]
    #[must_use]
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// EP: the slot of the SRQ that it takes its receives from.
    #[inline(always)]
    pub(crate) fn srq(&self) -> Option<&'static Slot> {
        let bits = self.srq.load(Ordering::Relaxed) as usize;
        if bits == 0 {
            return None;
        }
        // SAFETY: `set_srq` has stored the address of a slot, and slots stay.
        let (_, slot) = unsafe { Handle::known(bits) };
        Some(slot)
    }

    /// EP: the SRQ that it takes its receives from, if its low watermark is armed:
    /// then [`Self::recv_taken`] is to be called for each.
    #[inline(always)]
    pub(crate) fn armed_srq(&self) -> Option<&'static Slot> {
        // No closure: see `is_recv_consumers` in `object/evd/fast.rs`.
        let srq = self.srq()?;
        if srq.meters.low_watermark.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(srq)
    }

    /// EP: the SRQ that it takes its receives from, or none.
    pub(crate) fn set_srq(&self, srq: Option<Handle>) {
        let srq = srq.filter(|srq| srq.is_ours());
        let bits = srq.map_or(0, Handle::bits);
        self.srq.store(bits as u64, Ordering::Relaxed);
    }
}

impl core::fmt::Debug for Slot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Slot")
            .field("tag", &self.tag)
            .field("pins", &self.pins)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
