//! A process on a fabric: its slot, its rings to and from the others.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::bells::{Bells, Wakes};
use super::directory::{FabricDirectory, Foreign, JoinError};
use super::name::FabricName;
use super::packet::{Header, Operation, Packet};
use super::ring::{Consumer, Found, Producer, push_packet};
use super::segment::{RingMap, Segment, Slot};
use super::wire::{self, Lives};
use crate::limits::MAX_PROCESSES;

const SLOTS: u8 = MAX_PROCESSES as u8;

/// How often a full ring's reader is asked whether it still lives.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// How often a peer that does not answer is woken although it has announced no
/// sleep: what it has announced may be garbled.
const INSIST_INTERVAL: Duration = Duration::from_millis(100);
/// Records that one call of [`Attachment::receive`] discards at most: a peer
/// that writes garbage without end must not keep this process from others.
const MAX_DISCARDED: u32 = 256;

/// What went wrong on the fabric, for traces and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    /// Bytes in a ring that are no packet: the ring was resynchronised.
    pub malformed: u64,
    /// Packets from or to an earlier life of a slot, or of another slot.
    pub stale: u64,
    /// Packets to a process that is gone.
    pub vanished: u64,
}

/// A process on a fabric.
#[derive(Debug)]
pub struct Attachment {
    segment: Arc<Segment>,
    directory: FabricDirectory,
    slot: Slot,
    life: u32,
    slot_lock: Option<File>,
    bells: Arc<Bells>,
    peers: Vec<Peer>,
    /// Sources whose rings are to be looked at, as in `SlotWords::pending`.
    sources: u64,
    /// Something was received, and [`Self::served`] not called since.
    serving: bool,
    turn: u32,
    /// Slots to be woken at once, for what was sent to them.
    urgent: Wakes,
    /// Slots that have acknowledgements and need not be woken at once.
    patient: Wakes,
    counters: FabricCounters,
    trouble: Option<Trouble>,
    /// The shared memory was found gone.
    is_lost: bool,
}

/// What keeps packets from their receivers, told once by
/// [`Attachment::take_trouble`].
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The shared memory was truncated.
    #[error(
        "fabric file {}: another process has truncated it; the emulated devices of this process have failed",
        .0.display()
    )]
    Lost(PathBuf),
    /// A peer cannot be reached.
    #[error("packets to process {slot} of the fabric are lost: {cause}")]
    Unreachable {
        /// Its slot.
        slot: Slot,
        /// Why.
        cause: JoinError,
    },
    /// What a peer sends cannot be read.
    #[error("packets from process {slot} of the fabric are lost: {cause}")]
    Unreadable {
        /// Its slot.
        slot: Slot,
        /// Why.
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
    /// The life in which the peer was found dead.
    dead: u32,
    probed: Option<Instant>,
    insisted: Option<Instant>,
}

impl Attachment {
    /// Joins a fabric in the usual place.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(name: &FabricName) -> Result<Self, JoinError> {
        Self::join_under(&FabricDirectory::bases(), name)
    }

    /// Joins a fabric whose directory lies under one of `bases`, or creates it.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join_under(bases: &[PathBuf], name: &FabricName) -> Result<Self, JoinError> {
        let (directory, _lock) = loop {
            let directory = FabricDirectory::create(bases, name)?;
            if let Some(lock) = directory.lock()? {
                break (directory, lock);
            }
        };
        Self::join_in(directory.clone(), name).inspect_err(|_| {
            // What was created for this process alone goes with it.
            if directory.is_dead() {
                directory.remove();
            }
        })
    }

    /// Joins a fabric whose lock the caller holds.
    fn join_in(directory: FabricDirectory, name: &FabricName) -> Result<Self, JoinError> {
        let error = |source| JoinError::file(directory.segment_path(), source);
        let file = directory.segment()?;
        let segment = match Segment::open(file.try_clone().map_err(error)?).map_err(error)? {
            Some(segment) => segment,
            // Left behind by processes of another version that are all gone.
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
        let life = (words.life.load(Ordering::Relaxed) | 1).wrapping_add(2);
        words.sleep.fetch_and(!1, Ordering::Relaxed);
        words.serving.store(0, Ordering::Relaxed);
        words.life.store(life, Ordering::Release);
        let mut peers = Vec::new();
        peers.resize_with(usize::from(SLOTS), Peer::default);
        let segment = Arc::new(segment);
        Ok(Self {
            bells: Arc::new(Bells::new(Arc::clone(&segment), slot, fifo)),
            segment,
            directory,
            slot,
            life,
            slot_lock: Some(slot_lock),
            peers,
            sources: 0,
            serving: false,
            turn: 0,
            urgent: Wakes::default(),
            patient: Wakes::default(),
            counters: FabricCounters::default(),
            trouble: None,
            is_lost: false,
        })
    }

    /// The slot this process lives in: the upper 8 bits of its QP numbers.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Where the fabric's files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the entries of other users that stand where the fabric's files
    /// would have been.
    #[must_use]
    pub fn passed_over(&self) -> &[Foreign] {
        self.directory.passed_over()
    }

    /// Removes what killed processes have left of fabrics that have no living
    /// process.
    pub fn sweep() {
        FabricDirectory::sweep(&FabricDirectory::bases());
    }

    /// What went wrong so far.
    #[must_use]
    pub fn counters(&self) -> FabricCounters {
        self.counters
    }

    /// The descriptor of the slot's lock: a forked child must close its copy,
    /// or the slot stays taken when the parent is gone.
    #[must_use]
    pub fn lock_fd(&self) -> i32 {
        self.slot_lock.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// How this process sleeps and wakes others.
    #[must_use]
    pub fn bells(&self) -> &Arc<Bells> {
        &self.bells
    }

    /// Whether there may be a packet, or room in a ring that was full.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.sources != 0 || self.bells.has_pending()
    }

    /// Whether [`send`](Self::send) would take a packet for that slot.
    pub fn has_room(&mut self, to: Slot) -> bool {
        if self.is_lost {
            return true;
        }
        let Some(life) = self.life_of(to) else {
            return true;
        };
        let Some(outgoing) = self.outgoing(to) else {
            return true;
        };
        if outgoing.dead == life || outgoing.producer.has_room() {
            return true;
        }
        if outgoing.producer.ask_for_room() {
            return true;
        }
        let now = Instant::now();
        let due = outgoing
            .probed
            .is_none_or(|probed| now - probed >= PROBE_INTERVAL);
        if due {
            outgoing.probed = Some(now);
            if !self.directory.is_alive(to) {
                if let Some(outgoing) = self.outgoing(to) {
                    outgoing.dead = life;
                }
                return true;
            }
        }
        // What fills the ring may be of a time before the reader's: tell it.
        self.signal(to);
        self.insist(to);
        false
    }

    /// Makes a peer look at its ring although its words in the segment say
    /// that it need not.
    fn insist(&mut self, to: Slot) {
        let now = Instant::now();
        let bells = Arc::clone(&self.bells);
        if let Some(outgoing) = self.outgoing(to)
            && outgoing
                .insisted
                .is_none_or(|insisted| now - insisted >= INSIST_INTERVAL)
        {
            outgoing.insisted = Some(now);
            bells.insist(to);
        }
    }

    /// Takes a packet for that slot; one to a process that is gone vanishes.
    /// The slot is still to be woken: see [`take_urgent`](Self::take_urgent).
    ///
    /// # Errors
    /// Gives the packet back when there is no room.
    pub fn send<'p>(&mut self, to: Slot, packet: &'p Packet) -> Result<(), &'p Packet> {
        if !self.has_room(to) {
            return Err(packet);
        }
        let source = self.life;
        let reach = (!self.is_lost)
            .then(|| self.life_of(to))
            .flatten()
            .and_then(|life| Some((life, self.outgoing(to)?)));
        match reach {
            Some((life, outgoing)) if outgoing.dead != life && wire::fits(packet) => {
                let lives = Lives {
                    source,
                    destination: life,
                };
                push_packet(&mut outgoing.producer, packet, lives);
                // A peer that is awake, or wakes for something else, is to
                // find it at once: this process may end before it gets to
                // wake anybody.
                self.mark(to);
                let wakes = if packet.header.operation == Operation::Acknowledge {
                    &mut self.patient
                } else {
                    &mut self.urgent
                };
                wakes.add(to);
            }
            _ => self.counters.vanished += 1,
        }
        Ok(())
    }

    /// Whether packets sent to that slot wait for its process, which lives; or
    /// it has taken some, and has not come to the end of what they ask of it.
    pub fn is_unheard(&mut self, to: Slot) -> bool {
        if self.is_lost || self.life_of(to).is_none() {
            return false;
        }
        let waiting = self
            .outgoing(to)
            .is_some_and(|outgoing| !outgoing.producer.is_empty());
        // Read after what was taken: set before it was.
        let waiting = waiting || self.segment.slot(to).serving.load(Ordering::Acquire) != 0;
        if !waiting || !self.directory.is_alive(to) {
            return false;
        }
        // What says so may be garbage: the peer then puts it right.
        if let Some(outgoing) = self.outgoing(to) {
            outgoing.producer.ask_for_room();
        }
        self.signal(to);
        self.insist(to);
        true
    }

    /// All that was received has been answered: see [`Self::is_unheard`].
    pub fn served(&mut self) {
        let words = self.segment.slot(self.slot);
        if std::mem::take(&mut self.serving) {
            words.serving.store(0, Ordering::Release);
        }
        // Garbage there would make this process look dead for ever.
        if words.life.load(Ordering::Relaxed) != self.life {
            words.life.store(self.life, Ordering::Release);
        }
    }

    /// The slots to be woken at once, by [`Bells::ring`].
    #[must_use]
    pub fn take_urgent(&mut self) -> Wakes {
        let urgent = std::mem::take(&mut self.urgent);
        self.patient = self.patient.without(urgent);
        urgent
    }

    /// Whether slots have acknowledgements that they were not woken for. An
    /// acknowledgement alone is rarely waited for, and often something
    /// follows soon that is.
    #[must_use]
    pub fn has_patient(&self) -> bool {
        !self.patient.is_empty()
    }

    /// All slots that were sent something and not woken for it.
    #[must_use]
    pub fn take_wakes(&mut self) -> Wakes {
        self.take_urgent().and(std::mem::take(&mut self.patient))
    }

    /// Takes the next packet, from the sources in turn. Its payload replaces
    /// what `payload` held.
    pub fn receive(&mut self, payload: &mut Vec<u8>) -> Option<Header> {
        let pending = self.segment.slot(self.slot).pending;
        if pending.load(Ordering::Relaxed) != 0 {
            self.sources |= pending.swap(0, Ordering::SeqCst);
        }
        if self.is_lost {
            self.sources = 0;
        }
        if self.sources != 0 && !self.serving {
            self.serving = true;
            let serving = self.segment.slot(self.slot).serving;
            serving.store(1, Ordering::Release);
        }
        for _ in 0..MAX_DISCARDED {
            let from = self.next_source()?;
            let index = usize::from(from) - 1;
            if self.peers[index].incoming.is_none() {
                match self.segment.ring(from, self.slot) {
                    Ok(ring) => self.peers[index].incoming = Some(Consumer::new(ring)),
                    Err(source) => {
                        let cause = JoinError::file(self.directory.segment_path(), source);
                        self.trouble = Some(Trouble::Unreadable { slot: from, cause });
                    }
                }
            }
            let found = match &mut self.peers[index].incoming {
                Some(consumer) => consumer.pop(payload),
                None => Found::Empty,
            };
            if found != Found::Empty {
                self.turn = u32::from(from);
            }
            match found {
                Found::Packet(header, lives) if self.is_current(from, &header, lives) => {
                    return Some(header);
                }
                Found::Packet(..) => self.counters.stale += 1,
                Found::Malformed => self.counters.malformed += 1,
                Found::Empty => {
                    self.sources &= !bit(from);
                    let drained = self.peers[index].incoming.as_ref();
                    if drained.is_some_and(Consumer::answer_wish) {
                        self.signal(from);
                    }
                }
            }
        }
        // The caller comes back for the rest: see `Bells::has_pending`.
        let pending = self.segment.slot(self.slot).pending;
        pending.fetch_or(self.sources, Ordering::SeqCst);
        None
    }

    /// The first source at or after the one whose turn it is.
    fn next_source(&self) -> Option<Slot> {
        let turned = self.sources.rotate_right(self.turn);
        let index = (turned.trailing_zeros() + self.turn) % u64::BITS;
        (turned != 0).then_some(index as Slot + 1)
    }

    fn is_current(&self, from: Slot, header: &Header, lives: Lives) -> bool {
        // The last packets of a process that has left are still delivered.
        let life = self.segment.slot(from).life.load(Ordering::Acquire) | 1;
        let slot_of = |qpn: u32| (qpn >> 16) as Slot;
        lives
            == (Lives {
                source: life,
                destination: self.life,
            })
            && slot_of(header.source_qpn.0) == from
            && slot_of(header.destination_qpn.0) == self.slot
    }

    fn life_of(&self, slot: Slot) -> Option<u32> {
        if !(1..=SLOTS).contains(&slot) {
            return None;
        }
        let life = self.segment.slot(slot).life.load(Ordering::Acquire);
        (life & 1 == 1).then_some(life)
    }

    fn outgoing(&mut self, to: Slot) -> Option<&mut Outgoing> {
        let index = usize::from(to) - 1;
        if self.peers[index].outgoing.is_none() {
            // Out of memory or descriptors: the packet vanishes, and the
            // transport's retries come back here.
            match self.connect(to) {
                Ok(outgoing) => self.peers[index].outgoing = Some(outgoing),
                Err(cause) => self.trouble = Some(Trouble::Unreachable { slot: to, cause }),
            }
        }
        self.peers[index].outgoing.as_mut()
    }

    fn connect(&self, to: Slot) -> Result<Outgoing, JoinError> {
        let ring = self.segment.ring(self.slot, to);
        let ring = ring.map_err(|source| JoinError::file(self.directory.segment_path(), source))?;
        self.bells.connect(to, self.directory.fifo(to, false)?);
        Ok(Outgoing {
            producer: Producer::new(ring),
            dead: 0,
            probed: None,
            insisted: None,
        })
    }

    /// Whether the shared memory was truncated. Nothing is sent or received
    /// from then on, and the peers see this process as gone.
    pub fn is_lost(&mut self) -> bool {
        if !self.is_lost && self.segment.is_lost() {
            self.is_lost = true;
            self.life &= !1;
            self.trouble = Some(Trouble::Lost(self.directory.segment_path()));
            let life = self.segment.slot(self.slot).life;
            life.store(self.life, Ordering::Release);
            // The peers find out when they look, and nothing else wakes them.
            (1..=SLOTS).for_each(|slot| self.bells.insist(slot));
        }
        self.is_lost
    }

    /// Returns what went wrong since the last call, in words.
    #[must_use]
    pub fn take_trouble(&mut self) -> Option<Trouble> {
        self.trouble.take()
    }

    /// Notes for a slot that the ring from this one has something.
    fn mark(&self, to: Slot) {
        let pending = self.segment.slot(to).pending;
        pending.fetch_or(bit(self.slot), Ordering::SeqCst);
    }

    /// Makes a slot look at the rings it shares with this one.
    fn signal(&mut self, to: Slot) {
        self.mark(to);
        // Connects the bell, if nothing was ever sent there.
        let _ = self.outgoing(to);
        self.urgent.add(to);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let wakes = self.take_wakes();
        self.bells.ring(wakes);
        let lock = self.directory.lock();
        self.segment
            .slot(self.slot)
            .life
            .store(self.life & !1, Ordering::Release);
        self.slot_lock = None;
        if let Ok(Some(_held)) = lock
            && self.directory.is_dead()
        {
            self.directory.remove();
        }
    }
}

/// The free slot that has been idle for the fewest lives: so the number of a
/// dead process, and with it its QP numbers, returns late.
fn take_slot(
    directory: &FabricDirectory,
    segment: &Segment,
) -> Result<Option<(Slot, File)>, JoinError> {
    let mut slots: Vec<Slot> = (1..=SLOTS).collect();
    slots.sort_by_key(|&slot| segment.slot(slot).life.load(Ordering::Acquire) | 1);
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

/// For the runner: a wish that could not be fulfilled.
impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        io::Error::other(error)
    }
}
