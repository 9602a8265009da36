//! A slot: the place of one object, which its handle points to.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::{Handle, Kind, Upcalls};

/// The slot holds no object.
pub(super) const FREE: u32 = 0;
/// Added to the kind while the object is live, so that no live tag is [`FREE`].
pub(super) const LIVE: u32 = 0x100;
/// The object is being freed: new calls do not find it.
pub(super) const DYING: u32 = 0x200;

/// The object belongs to the process that this one was forked from.
pub(super) const FORKED: u32 = 0x300;

/// The owner flag in `owner`. It is one bit, so that one instruction sets and tests it.
pub(super) const OWNED: u32 = 1;

/// Returns the tag of a live object of a kind.
#[inline(always)]
pub(super) const fn live(kind: Kind) -> u32 {
    LIVE | kind as u32
}

/// What a handle points to: one cache line. Slots are never unmapped and never move, so a stale
/// handle, or one of another kind, is recognised by reading its slot.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The function table of the C interface that created the object. DAT requires it as the first
    /// word of what a handle points to.
    pub(super) table: AtomicPtr<c_void>,
    /// [`FREE`], [`live`], [`DYING`] or [`FORKED`].
    pub(super) tag: AtomicU32,
    /// The number of calls that have pinned the object.
    pub(super) pins: AtomicU32,
    /// The object, from `Arc::into_raw`; while the slot is free, the next free one.
    pub(super) object: AtomicPtr<()>,
    /// [`OWNED`] while a call owns the object.
    pub(super) owner: AtomicU32,
    /// See [`SlotCounters`].
    pub(super) counters: SlotCounters,
    /// EP on an SRQ: the SRQ's handle, or 0.
    srq: AtomicU64,
    /// The consumer's context; initially 0.
    pub(super) context: AtomicU64,
    /// The upcalls of the object that was published last; initially null.
    pub(super) upcalls: AtomicPtr<Upcalls>,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// What is needed to turn a completion into an event without touching the endpoint or SRQ. All are
/// zero when an object is created.
///
/// Completed receives are not counted here: the receive queue in the engine counts them when it
/// returns a receive to the producer.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SlotCounters {
    /// SRQ: the low watermark while it is armed, otherwise 0.
    pub(crate) low_watermark: AtomicU32,
    /// EP: completed receives whose events are staged: the EVD holds them, and the consumer has not
    /// dequeued them.
    pub(crate) recv_staged: AtomicU32,
    /// EP: what its completions need before they become events: [`super::CompletionHooks`].
    pub(crate) cqe_flags: AtomicU32,
}

impl SlotCounters {
    /// Sets all to zero.
    pub(super) fn clear(&self) {
        self.low_watermark.store(0, Ordering::Relaxed);
        self.recv_staged.store(0, Ordering::Relaxed);
        self.cqe_flags.store(0, Ordering::Relaxed);
    }
}

impl Slot {
    #[inline(always)]
    #[must_use]
    pub(crate) fn counters(&self) -> &SlotCounters {
        &self.counters
    }

    /// EP: returns what its completions need before they become events.
    #[inline(always)]
    pub(crate) fn hooks(&self) -> super::CompletionHooks {
        super::CompletionHooks(self.counters.cqe_flags.load(Ordering::Relaxed))
    }

    /// EP: returns the SRQ that the endpoint takes its receives from, if the SRQ's low watermark is
    /// armed. The caller then calls [`Self::recv_taken`] for each receive.
    #[inline(always)]
    pub(crate) fn armed_srq(&self) -> Option<&'static Slot> {
        // Not a closure: see `is_recv_consumers` in `object/evd/convert.rs`.
        let bits = self.srq.load(Ordering::Relaxed) as usize;
        if bits == 0 {
            return None;
        }
        // SAFETY: `set_srq` has stored the address of a slot, and slots are never unmapped.
        let (_, srq) = unsafe { Handle::known(bits) };
        if srq.counters.low_watermark.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(srq)
    }

    /// EP: sets the SRQ that the endpoint takes its receives from.
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
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
