//! How the processes of a fabric wake each other.
//!
//! Sending a packet and waking its receiver are two steps: a packet is sent with
//! the NIC locked, and the receiver is woken after the NIC is unlocked. The
//! woken thread often takes the core of the thread that woke it, which could
//! then not release the lock.
//!
//! Nothing here takes a lock. A process that sleeps announces this in the shared
//! segment and waits on its FIFO; a process that finds the announcement writes a
//! byte to the FIFO.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock};

use super::ports;
use super::segment::{Segment, Slot};
use crate::hidden::HiddenFile;
use crate::limits::MAX_PROCESSES;
use crate::spec::PortSet;

/// The FIFO of this process, and those of its peers.
#[derive(Debug)]
pub struct PeerWaker {
    segment: Arc<Segment>,
    slot: Slot,
    fifo: HiddenFile,
    /// The private copy of `SlotWords::sleep`, which other processes can
    /// overwrite.
    sleep: AtomicU32,
    /// The word of switched ports as [`PeerWaker::take_switched_ports`] has last
    /// returned it.
    ports_off: AtomicU64,
    peers: [Peer; MAX_PROCESSES as usize],
}

#[derive(Debug, Default)]
struct Peer {
    fifo: OnceLock<HiddenFile>,
    /// The sleep count for which the peer was last woken.
    woken: AtomicU32,
}

/// A set of peers to wake: bit n-1 is slot n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeSet(u64);

impl WakeSet {
    pub(super) fn add(&mut self, slot: Slot) {
        self.0 |= 1 << (slot - 1);
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the set without the slots in `others`.
    #[must_use]
    pub(super) fn difference(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl PeerWaker {
    pub(super) fn new(segment: Arc<Segment>, slot: Slot, fifo: File) -> Self {
        let segment_sleep = segment.slot(slot).sleep.load(Ordering::Relaxed);
        Self {
            segment,
            slot,
            fifo: HiddenFile::new(fifo),
            sleep: AtomicU32::new(segment_sleep),
            ports_off: AtomicU64::new(0),
            peers: std::array::from_fn(|_| Peer::default()),
        }
    }

    /// Adds the FIFO of a slot, so that the slot can be woken.
    pub(super) fn connect(&self, slot: Slot, fifo: File) {
        // A slot keeps its FIFO from generation to generation.
        let _ = self.peers[usize::from(slot) - 1]
            .fifo
            .set(HiddenFile::new(fifo));
    }

    /// Returns whether peers have signalled packets, or room in a ring that was
    /// full, or ports were switched.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.segment.slot(self.slot).pending.load(Ordering::SeqCst) != 0
            || self.segment.ports_off().load(Ordering::SeqCst) != self.ports_off.load(Relaxed)
    }

    /// Returns the ports that are switched off, if that has changed since the last
    /// call or a report is requested.
    #[must_use]
    pub fn take_switched_ports(&self) -> Option<PortSet> {
        let word = self.segment.ports_off().load(Ordering::SeqCst);
        let changed =
            self.ports_off.load(Relaxed) != word && self.ports_off.swap(word, Relaxed) != word;
        let is_valid = changed && !self.segment.is_lost();
        is_valid.then(|| ports::set_of_word(word))
    }

    /// Returns the last request for a report that [`Self::take_switched_ports`] has taken.
    pub(super) fn request(&self) -> u32 {
        ports::request_of_word(self.ports_off.load(Relaxed))
    }

    /// Shows other processes how many devices, and ports of each, this process has.
    pub fn announce(&self, devices: u8, ports: u8) {
        let shape = ports::shape(devices, ports);
        let word = self.segment.slot(self.slot).shape;
        word.store(shape, Relaxed);
    }

    /// Announces a sleep: from now on peers write to the FIFO. The caller must
    /// check for pending packets again before it sleeps.
    pub fn begin_sleep(&self) {
        let sleep = self.sleep.fetch_or(1, Ordering::SeqCst) | 1;
        let announced = self.segment.slot(self.slot).sleep;
        announced.store(sleep, Ordering::SeqCst);
        // Either a peer sees the announcement after it has marked a packet as
        // pending, or the caller's check sees the packet.
        fence(Ordering::SeqCst);
    }

    /// Ends an announced sleep.
    pub fn end_sleep(&self) {
        let sleep = self.sleep.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        let announced = self.segment.slot(self.slot).sleep;
        announced.store(sleep, Ordering::SeqCst);
    }

    /// Returns a descriptor that is readable after a wake-up.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fifo.as_fd()
    }

    /// Discards the bytes in the FIFO.
    pub fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&*self.fifo).read(&mut bytes), Ok(len) if len == bytes.len()) {}
    }

    /// Returns the core from which a peer has woken this process since the last
    /// call.
    #[must_use]
    pub fn take_waker_core(&self) -> Option<u32> {
        let waker_core = self.segment.slot(self.slot).waker_core;
        waker_core.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// Wakes this process's own NIC thread if it sleeps. The caller must first
    /// store what the thread is to find.
    pub fn wake_own(&self) {
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::SeqCst) & 1 == 1 {
            let _ = (&*self.fifo).write(&[1]);
        }
    }

    /// Wakes a peer whether or not it has announced a sleep.
    pub(super) fn force_wake(&self, slot: Slot) {
        if let Some(fifo) = self.peers[usize::from(slot) - 1].fifo.get() {
            // A full FIFO wakes the peer too.
            let _ = (&**fifo).write(&[1]);
        }
    }

    /// Wakes the peers in the set that sleep. Their packets must already be
    /// marked as pending.
    pub fn wake(&self, wakes: WakeSet) {
        let mut left = wakes.0;
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            let Some(sleep) = self.sleep_of(index as Slot + 1) else {
                continue;
            };
            let peer = &self.peers[index as usize];
            // One write per sleep and sender: the byte is not lost if a sender
            // is killed, and a burst of packets writes only one.
            if let Some(fifo) = peer.fifo.get()
                && peer.woken.swap(sleep, Ordering::Relaxed) != sleep
            {
                // SAFETY: sched_getcpu has no preconditions.
                let core = unsafe { libc::sched_getcpu() };
                let waker_core = self.segment.slot(index as Slot + 1).waker_core;
                waker_core.store(core.cast_unsigned().wrapping_add(1), Ordering::Relaxed);
                // A full FIFO wakes the peer too.
                let _ = (&**fifo).write(&[1]);
            }
        }
    }

    /// Returns the sleep count of a slot if it sleeps.
    fn sleep_of(&self, slot: Slot) -> Option<u32> {
        fence(Ordering::SeqCst);
        let sleep = self.segment.slot(slot).sleep.load(Ordering::SeqCst);
        (sleep & 1 == 1).then_some(sleep)
    }
}
