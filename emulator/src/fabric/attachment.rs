//! The attachment of a process to a fabric: its slot, and its rings to and from
//! its peers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::directory::{FabricDirectory, JoinError, UntrustedEntry};
use super::name::FabricName;
use super::packet::{Operation, Packet};
use super::registry::ProcessSlot;
use super::ring::{Consumer, Producer, push_packet};
use super::segment::{RingMap, Segment, Slot};
use super::waker::{PeerWaker, WakeSet};
use super::wire::{self, Generations};
use crate::fabric::counters::Counters;
use crate::hidden::HiddenFile;
use crate::limits::MAX_PROCESSES;

mod receive;

const SLOTS: u8 = MAX_PROCESSES as u8;

/// Interval of checks whether the reader of a full ring is still alive.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// Interval at which an unresponsive peer is woken even though it has not
/// announced a sleep: its announcement may have been overwritten.
const FORCED_WAKE_INTERVAL: Duration = Duration::from_millis(100);
/// Counters of fabric errors, for traces and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    /// Records that are not valid; everything published in the ring was skipped.
    pub malformed: u64,
    /// Packets from or to an earlier generation of a slot, or to another slot.
    pub stale: u64,
    /// Packets to a process that has left or cannot be reached.
    pub undeliverable: u64,
}

/// The attachment of a process to a fabric.
#[derive(Debug)]
pub struct Attachment {
    segment: Arc<Segment>,
    directory: FabricDirectory,
    slot: Slot,
    generation: u32,
    slot_lock: Option<HiddenFile>,
    waker: Arc<PeerWaker>,
    peers: Vec<Peer>,
    /// Slots whose rings must be read, as in `SlotWords::pending`.
    sources: u64,
    /// Something was received, and [`Self::served`] has not been called since.
    serving: bool,
    round_robin: u32,
    /// Slots that must be woken at once for packets sent to them.
    immediate_wakes: WakeSet,
    /// Slots that were sent acks, for which they need not be woken at once.
    delayed_wakes: WakeSet,
    counters: FabricCounters,
    error: Option<FabricError>,
    /// Whether the shared memory was truncated.
    is_lost: bool,
}

/// An error that keeps packets from their receivers. Reported once, by
/// [`Attachment::take_error`].
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The shared memory was truncated.
    #[error(
        "fabric file {}: another process has truncated it; the emulated devices of this process have failed",
        .0.display()
    )]
    Lost(PathBuf),
    /// A peer cannot be reached.
    #[error("packets to process {slot} of the fabric are lost: {cause}")]
    Unreachable {
        /// Slot of the peer.
        slot: Slot,
        /// The cause.
        cause: JoinError,
    },
    /// Packets of a peer cannot be read.
    #[error("packets from process {slot} of the fabric are lost: {cause}")]
    Unreadable {
        /// Slot of the peer.
        slot: Slot,
        /// The cause.
        cause: JoinError,
    },
}

#[derive(Debug, Default)]
struct Peer {
    outgoing: Option<Outgoing>,
    incoming: Option<Consumer<RingMap>>,
}

#[derive(Debug)]
struct Outgoing {
    producer: Producer<RingMap>,
    /// The generation in which the peer was found dead.
    dead: u32,
    probed_at: Option<Instant>,
    forced_at: Option<Instant>,
}

impl Attachment {
    /// Joins a fabric in the default location.
    ///
    /// # Errors
    /// Returns [`JoinError`].
    pub fn join(name: &FabricName) -> Result<Self, JoinError> {
        Self::join_under(&FabricDirectory::bases(), name)
    }

    /// Joins the fabric whose directory is under one of `bases`, or creates it
    /// there.
    ///
    /// # Errors
    /// Returns [`JoinError`].
    pub fn join_under(bases: &[PathBuf], name: &FabricName) -> Result<Self, JoinError> {
        let (directory, _lock) = loop {
            let directory = FabricDirectory::create(bases, name)?;
            if let Some(lock) = directory.lock()? {
                break (directory, lock);
            }
        };
        Self::join_in(directory.clone(), name).inspect_err(|_| {
            // Remove what was created for this process alone.
            if directory.is_dead() {
                directory.remove();
            }
        })
    }

    /// Joins a fabric whose lock is held by the caller.
    fn join_in(directory: FabricDirectory, name: &FabricName) -> Result<Self, JoinError> {
        let error = |source| JoinError::file(directory.segment_path(), source);
        let file = directory.segment()?;
        let segment = match Segment::open(file.try_clone().map_err(error)?).map_err(error)? {
            Some(segment) => segment,
            // Left behind by processes of another version that have all exited.
            None if directory.is_dead() => {
                Segment::erase(&file).map_err(error)?;
                Segment::open(file)
                    .map_err(error)?
                    .ok_or_else(|| JoinError::Version { name: name.clone() })?
            }
            None => return Err(JoinError::Version { name: name.clone() }),
        };
        let (slot, slot_lock) =
            take_slot(&directory, &segment)?.ok_or_else(|| JoinError::Full {
                name: name.clone(),
                limit: MAX_PROCESSES,
            })?;
        let fifo = directory.fifo(slot, true)?;
        let words = segment.slot(slot);
        let generation = (words.generation.load(Ordering::Relaxed) | 1).wrapping_add(2);
        words.sleep.fetch_and(!1, Ordering::Relaxed);
        words.serving.store(0, Ordering::Relaxed);
        words.generation.store(generation, Ordering::Release);
        let mut peers = Vec::new();
        peers.resize_with(usize::from(SLOTS), Peer::default);
        let segment = Arc::new(segment);
        Ok(Self {
            waker: Arc::new(PeerWaker::new(Arc::clone(&segment), slot, fifo)),
            segment,
            directory,
            slot,
            generation,
            slot_lock: Some(slot_lock),
            peers,
            sources: 0,
            serving: false,
            round_robin: 0,
            immediate_wakes: WakeSet::default(),
            delayed_wakes: WakeSet::default(),
            counters: FabricCounters::default(),
            error: None,
            is_lost: false,
        })
    }

    /// Returns the slot of this process: the upper 8 bits of its QP numbers.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the directory of the fabric's files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the entries that are not private to this user and occupy a
    /// preferred location of the fabric's directory.
    #[must_use]
    pub fn untrusted_entries(&self) -> &[UntrustedEntry] {
        self.directory.untrusted_entries()
    }

    /// Removes the files of fabrics without a living process, which killed
    /// processes leave behind.
    pub fn sweep() {
        FabricDirectory::sweep(&FabricDirectory::bases());
    }

    /// Returns whether a process lives on a fabric.
    pub(crate) fn is_living(name: &FabricName) -> bool {
        let directory = FabricDirectory::find(&FabricDirectory::bases(), name);
        directory.is_some_and(|it| !it.is_dead())
    }

    /// Returns the error counters.
    #[must_use]
    pub fn counters(&self) -> FabricCounters {
        self.counters
    }

    /// Returns the object by which this process sleeps and wakes its peers.
    #[must_use]
    pub fn waker(&self) -> &Arc<PeerWaker> {
        &self.waker
    }

    /// Returns whether there may be a packet, or new room in a ring that was full.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.sources != 0 || self.waker.has_pending()
    }

    /// Returns whether [`send`](Self::send) would accept a packet for this slot.
    pub fn has_room(&mut self, to: Slot) -> bool {
        if self.is_lost {
            return true;
        }
        let Some(generation) = self.generation_of(to) else {
            return true;
        };
        let Some(outgoing) = self.outgoing(to) else {
            return true;
        };
        if outgoing.dead == generation || outgoing.producer.has_room() {
            return true;
        }
        if outgoing.producer.request_room() {
            return true;
        }
        let now = Instant::now();
        let due = outgoing
            .probed_at
            .is_none_or(|probed_at| now - probed_at >= PROBE_INTERVAL);
        if due {
            outgoing.probed_at = Some(now);
            if !self.directory.is_alive(to) {
                if let Some(outgoing) = self.outgoing(to) {
                    outgoing.dead = generation;
                }
                return true;
            }
        }
        // The ring may be full of packets for an earlier reader: wake this one.
        self.signal(to);
        self.force_wake(to);
        false
    }

    /// Wakes a peer even if its words in the segment mark it as awake.
    fn force_wake(&mut self, to: Slot) {
        let now = Instant::now();
        let waker = Arc::clone(&self.waker);
        if let Some(outgoing) = self.outgoing(to)
            && outgoing
                .forced_at
                .is_none_or(|forced_at| now - forced_at >= FORCED_WAKE_INTERVAL)
        {
            outgoing.forced_at = Some(now);
            waker.force_wake(to);
        }
    }

    /// Sends a packet to a slot. A packet to a process that has left is
    /// dropped. The caller must then wake the slot: see
    /// [`take_immediate_wakes`](Self::take_immediate_wakes).
    ///
    /// # Errors
    /// Returns the packet if there is no room.
    pub fn send<'p>(&mut self, to: Slot, packet: &'p Packet) -> Result<(), &'p Packet> {
        if !self.has_room(to) {
            return Err(packet);
        }
        let source = self.generation;
        let peer = (!self.is_lost)
            .then(|| self.generation_of(to))
            .flatten()
            .and_then(|generation| Some((generation, self.outgoing(to)?)));
        match peer {
            Some((generation, outgoing)) if outgoing.dead != generation && wire::fits(packet) => {
                let generations = Generations {
                    source,
                    destination: generation,
                };
                push_packet(&mut outgoing.producer, packet, generations);
                // A peer that is awake, or wakes up for another reason, must
                // find the packet at once: this process may exit before it
                // wakes the peer.
                self.mark(to);
                let wakes = if packet.header.operation == Operation::Acknowledge {
                    &mut self.delayed_wakes
                } else {
                    &mut self.immediate_wakes
                };
                wakes.add(to);
            }
            _ => self.counters.undeliverable += 1,
        }
        Ok(())
    }

    /// Returns whether the process in this slot is alive and has not yet taken,
    /// or not yet finished serving, packets that were sent to it.
    pub fn peer_is_busy(&mut self, to: Slot) -> bool {
        if self.is_lost || self.generation_of(to).is_none() {
            return false;
        }
        let waiting = self
            .outgoing(to)
            .is_some_and(|outgoing| !outgoing.producer.is_empty());
        // Read after the ring: the flag is set before packets are taken.
        let waiting = waiting || self.segment.slot(to).serving.load(Ordering::Acquire) != 0;
        if !waiting || !self.directory.is_alive(to) {
            return false;
        }
        // The words may hold garbage, which the peer then corrects.
        if let Some(outgoing) = self.outgoing(to) {
            outgoing.producer.request_room();
        }
        self.signal(to);
        self.force_wake(to);
        true
    }

    /// Returns the generation of the process in this slot if it is alive.
    pub fn live_generation(&mut self, slot: Slot) -> Option<u32> {
        if self.is_lost {
            return None;
        }
        self.generation_of(slot)
            .filter(|_| slot == self.slot || self.directory.is_alive(slot))
    }

    /// Returns the counters of this process's slot, which others can read.
    ///
    /// # Errors
    /// Returns [`JoinError`] if there is no memory for them.
    pub(crate) fn port_counters(&self) -> Result<Counters, JoinError> {
        let counters = Arc::clone(&self.segment).counters(self.slot);
        counters.map_err(|source| JoinError::file(self.directory.segment_path(), source))
    }

    /// Writes the report of this process for the last request: see [`super::reports`].
    pub(crate) fn report(&self, report: &[u8]) {
        // If it cannot be written, the process is missing in the lists.
        let _ = self.place().publish_report(self.waker.request(), report);
    }

    /// Returns where the registry of ports and services is.
    pub(crate) fn place(&self) -> ProcessSlot {
        ProcessSlot::new(self.directory.clone(), self.slot)
    }

    /// Records that all received packets have been served: see [`Self::peer_is_busy`].
    pub fn served(&mut self) {
        let words = self.segment.slot(self.slot);
        if std::mem::take(&mut self.serving) {
            words.serving.store(0, Ordering::Release);
        }
        // If overwritten, this process would look dead forever.
        if words.generation.load(Ordering::Relaxed) != self.generation {
            words.generation.store(self.generation, Ordering::Release);
        }
    }

    /// Returns the slots to wake at once with [`PeerWaker::wake`].
    #[must_use]
    pub fn take_immediate_wakes(&mut self) -> WakeSet {
        let immediate_wakes = std::mem::take(&mut self.immediate_wakes);
        self.delayed_wakes = self.delayed_wakes.difference(immediate_wakes);
        immediate_wakes
    }

    /// Returns whether slots were sent acks without being woken. A lone ack is
    /// rarely waited for, and a packet that needs the wake-up often follows
    /// soon.
    #[must_use]
    pub fn has_delayed_wakes(&self) -> bool {
        !self.delayed_wakes.is_empty()
    }

    /// Returns all slots that were sent something without being woken.
    #[must_use]
    pub fn take_wakes(&mut self) -> WakeSet {
        self.take_immediate_wakes()
            .union(std::mem::take(&mut self.delayed_wakes))
    }

    fn generation_of(&self, slot: Slot) -> Option<u32> {
        if !(1..=SLOTS).contains(&slot) {
            return None;
        }
        let generation = self.segment.slot(slot).generation.load(Ordering::Acquire);
        (generation & 1 == 1).then_some(generation)
    }

    fn outgoing(&mut self, to: Slot) -> Option<&mut Outgoing> {
        let index = usize::from(to) - 1;
        if self.peers[index].outgoing.is_none() {
            // On lack of memory or descriptors the packet is dropped, and the
            // transport's retry tries again.
            match self.connect(to) {
                Ok(outgoing) => self.peers[index].outgoing = Some(outgoing),
                Err(cause) => self.error = Some(FabricError::Unreachable { slot: to, cause }),
            }
        }
        self.peers[index].outgoing.as_mut()
    }

    fn connect(&self, to: Slot) -> Result<Outgoing, JoinError> {
        let ring = self.segment.ring(self.slot, to);
        let ring = ring.map_err(|source| JoinError::file(self.directory.segment_path(), source))?;
        self.waker.connect(to, self.directory.fifo(to, false)?);
        Ok(Outgoing {
            producer: Producer::new(ring),
            dead: 0,
            probed_at: None,
            forced_at: None,
        })
    }

    /// Returns whether the shared memory was truncated. From then on nothing is
    /// sent or received, and peers treat this process as exited.
    pub fn is_lost(&mut self) -> bool {
        if !self.is_lost && self.segment.is_lost() {
            self.is_lost = true;
            self.generation &= !1;
            self.error = Some(FabricError::Lost(self.directory.segment_path()));
            let generation = self.segment.slot(self.slot).generation;
            generation.store(self.generation, Ordering::Release);
            // The peers notice when they run, and nothing else would wake them.
            (1..=SLOTS).for_each(|slot| self.waker.force_wake(slot));
        }
        self.is_lost
    }

    /// Returns the last error that was not reported yet.
    #[must_use]
    pub fn take_error(&mut self) -> Option<FabricError> {
        self.error.take()
    }

    /// Marks the ring from this slot as pending at the receiver.
    fn mark(&self, to: Slot) {
        let pending = self.segment.slot(to).pending;
        pending.fetch_or(bit(self.slot), Ordering::SeqCst);
    }

    /// Makes a slot check the rings that it shares with this one.
    fn signal(&mut self, to: Slot) {
        self.mark(to);
        // Opens the peer's FIFO if nothing was ever sent there.
        let _ = self.outgoing(to);
        self.immediate_wakes.add(to);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let wakes = self.take_wakes();
        self.waker.wake(wakes);
        let lock = self.directory.lock();
        self.segment
            .slot(self.slot)
            .generation
            .store(self.generation & !1, Ordering::Release);
        self.slot_lock = None;
        if let Ok(Some(_held)) = lock
            && self.directory.is_dead()
        {
            self.directory.remove();
        }
    }
}

/// Takes the free slot with the lowest generation, so that the slot of a dead
/// process, and with it its QP numbers, is reused late.
fn take_slot(
    directory: &FabricDirectory,
    segment: &Segment,
) -> Result<Option<(Slot, HiddenFile)>, JoinError> {
    let mut slots: Vec<Slot> = (1..=SLOTS).collect();
    slots.sort_by_key(|&slot| segment.slot(slot).generation.load(Ordering::Acquire) | 1);
    for slot in slots {
        if let Some(lock) = directory.take_slot(slot)? {
            return Ok(Some((slot, lock)));
        }
    }
    Ok(None)
}

fn bit(slot: Slot) -> u64 {
    1 << (slot - 1)
}

/// Converts the error for callers that report I/O errors.
impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        io::Error::other(error)
    }
}
