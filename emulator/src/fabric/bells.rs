//! How the processes of a fabric wake each other.
//!
//! Sending a packet and waking its receiver are two steps: a packet is sent
//! with the NIC locked, and a bell is rung when it no longer is. The woken
//! thread mostly takes the core of the one that woke it, and a lock held
//! there would be held until it sleeps again.
//!
//! Nothing here takes a lock. A sleeper announces itself in the shared
//! segment and waits for its FIFO; who finds the announcement writes a byte.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};

use super::segment::{Segment, Slot};
use crate::limits::MAX_PROCESSES;

/// The bells of one process: its own, and those of its peers.
#[derive(Debug)]
pub struct Bells {
    segment: Arc<Segment>,
    slot: Slot,
    own: File,
    /// What this process has announced in its `SlotWords::sleep`, which others
    /// can garble.
    sleep: AtomicU32,
    peers: [Peer; MAX_PROCESSES as usize],
}

#[derive(Debug, Default)]
struct Peer {
    fifo: OnceLock<File>,
    /// The sleep that the peer was woken from last.
    woken: AtomicU32,
}

/// Peers that are to be woken: bit n-1 is slot n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakes(u64);

impl Wakes {
    pub(super) fn add(&mut self, slot: Slot) {
        self.0 |= 1 << (slot - 1);
    }

    /// Both together.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without those.
    #[must_use]
    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Bells {
    pub(super) fn new(segment: Arc<Segment>, slot: Slot, own: File) -> Self {
        let segment_sleep = segment.slot(slot).sleep.load(Ordering::Relaxed);
        Self {
            segment,
            slot,
            own,
            sleep: AtomicU32::new(segment_sleep),
            peers: std::array::from_fn(|_| Peer::default()),
        }
    }

    /// From now on that slot can be woken.
    pub(super) fn connect(&self, slot: Slot, fifo: File) {
        // A slot keeps its FIFO from life to life.
        let _ = self.peers[usize::from(slot) - 1].fifo.set(fifo);
    }

    /// Whether peers have something for this process: packets, or room in a
    /// ring that was full.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.segment.slot(self.slot).pending.load(Ordering::SeqCst) != 0
    }

    /// Announces sleep: from now on peers write to the FIFO. The caller looks
    /// for pending packets once more before it sleeps.
    pub fn begin_sleep(&self) {
        let sleep = self.sleep.fetch_or(1, Ordering::SeqCst) | 1;
        let announced = self.segment.slot(self.slot).sleep;
        announced.store(sleep, Ordering::SeqCst);
        // Either a peer sees the announcement after it has made a packet
        // pending, or the caller's look sees the packet.
        fence(Ordering::SeqCst);
    }

    /// Ends the sleep.
    pub fn end_sleep(&self) {
        let sleep = self.sleep.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        let announced = self.segment.slot(self.slot).sleep;
        announced.store(sleep, Ordering::SeqCst);
    }

    /// Readable when somebody wants this process awake.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// Takes what was written to the FIFO.
    pub fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.own).read(&mut bytes), Ok(len) if len == bytes.len()) {}
    }

    /// The core that a peer has rung from, if one has since this was asked.
    #[must_use]
    pub fn take_rung_from(&self) -> Option<u32> {
        let rung_from = self.segment.slot(self.slot).rung_from;
        rung_from.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// Wakes this process' own sleeper, if it sleeps. The caller has stored
    /// beforehand what it wants the sleeper to see.
    pub fn wake_own(&self) {
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::SeqCst) & 1 == 1 {
            let _ = (&self.own).write(&[1]);
        }
    }

    /// Wakes a peer whether or not it has announced a sleep.
    pub(super) fn insist(&self, slot: Slot) {
        if let Some(mut fifo) = self.peers[usize::from(slot) - 1].fifo.get() {
            // A full FIFO has bytes enough.
            let _ = fifo.write(&[1]);
        }
    }

    /// Wakes those peers that sleep. What they are to find is pending.
    pub fn ring(&self, wakes: Wakes) {
        let mut left = wakes.0;
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            let Some(sleep) = self.sleep_of(index as Slot + 1) else {
                continue;
            };
            let peer = &self.peers[index as usize];
            // One write per sleep and sender: neither a burst of packets nor
            // a sender killed half-way can leave the sleeper without its byte.
            if let Some(mut fifo) = peer.fifo.get()
                && peer.woken.swap(sleep, Ordering::Relaxed) != sleep
            {
                // SAFETY: sched_getcpu has no demands.
                let core = unsafe { libc::sched_getcpu() };
                let rung_from = self.segment.slot(index as Slot + 1).rung_from;
                rung_from.store(core.cast_unsigned().wrapping_add(1), Ordering::Relaxed);
                // A full FIFO has bytes enough.
                let _ = fifo.write(&[1]);
            }
        }
    }

    /// The sleep that a slot has announced and not ended.
    fn sleep_of(&self, slot: Slot) -> Option<u32> {
        fence(Ordering::SeqCst);
        let sleep = self.segment.slot(slot).sleep.load(Ordering::SeqCst);
        (sleep & 1 == 1).then_some(sleep)
    }
}
