//! The shared memory of a fabric: a table of slots, and a ring for every ordered
//! pair of slots. The file is sparse; a ring takes memory from its first packet
//! on.
//!
//! Every process of the user can truncate the file. Accesses then continue on
//! private memory ([`crate::guard::shared`]), and [`Segment::is_lost`] returns
//! `true`.
//!
//! Every process of the user can also write to the file. So a process keeps the words of its own slot
//! in private memory, as the ends of a ring do (`fabric/ring`), and a peer that seems busy, asleep
//! or unreachable is woken anyway at every acknowledgement timeout, at most every 100 ms. Garbage
//! costs packets, which the transport repeats, and stalls no process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::ring::{RING_BYTES, RingMemory};
use crate::fabric::counters::{CELLS, Counters};
use crate::guard::shared::{self, Watched};
use crate::hidden::HiddenFile;
use crate::limits::MAX_PROCESSES;

/// A slot number, from 1: the upper 8 bits of its process's QP numbers.
pub(super) type Slot = u8;

const SLOTS: usize = MAX_PROCESSES as usize;
// One bit per slot in the word of pending sources.
const _: () = assert!(SLOTS <= 64);

const MAGIC: u64 = u64::from_ne_bytes(*b"mlx5emuF");
/// Incremented with every change of the layout of segment, ring or record, except
/// for added words that may stay 0.
const VERSION: u64 = 6;
const GEOMETRY: u64 = (SLOTS as u64) << 32 | RING_BYTES as u64;

/// Where the set of ports is that are switched off.
pub(super) const PORTS_OFF: usize = 64;
const SLOT_TABLE: usize = 4096;
/// Two cache lines: one written by the owner, one by its peers.
const SLOT_BYTES: usize = 128;
/// Where `SlotWords::shape` is in the words of a slot.
const SHAPE: usize = 12;
/// The counters of the NICs. Those of a slot take memory when a process takes it, and
/// stay when it leaves.
const COUNTERS: usize = SLOT_TABLE + (SLOTS * SLOT_BYTES).next_multiple_of(4096);
const COUNTER_BYTES: usize = CELLS * 8;
const CONTROL_BYTES: usize = COUNTERS + (SLOTS * COUNTER_BYTES).next_multiple_of(4096);
const SEGMENT_BYTES: usize = CONTROL_BYTES + SLOTS * SLOTS * RING_BYTES;

/// The control part of the segment, mapped.
#[derive(Debug)]
pub(super) struct Segment {
    file: HiddenFile,
    // Before the mapping: a watched range must be mapped.
    _watched: Watched,
    control: MmapRaw,
    /// Generations as long as the process, since a signal handler sets it.
    lost: &'static AtomicBool,
}

/// The memory of a ring in the segment.
#[derive(Debug)]
pub(super) struct RingMap {
    // In this order: a watched range must be mapped.
    _watched: Watched,
    _map: MmapRaw,
}

/// The shared words of one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotWords<'a> {
    /// Twice the slot's generation, plus 1 while its process is on the fabric. A
    /// killed process leaves the 1 behind.
    pub(super) generation: &'a AtomicU32,
    /// Odd while the NIC thread sleeps; incremented at every change.
    pub(super) sleep: &'a AtomicU32,
    /// 1 while the process serves packets that it has taken.
    pub(super) serving: &'a AtomicU32,
    /// The numbers of devices and of their ports: see [`super::ports`].
    pub(super) shape: &'a AtomicU32,
    /// Bit n-1: the rings from and to slot n must be checked.
    pub(super) pending: &'a AtomicU64,
    /// The core of the last thread that woke this process, plus 1; 0 once read.
    pub(super) waker_core: &'a AtomicU32,
}

impl Segment {
    /// Maps the file, which the caller has locked against other joining
    /// processes. Returns `Ok(None)` if the file has another layout.
    pub(super) fn open(file: File) -> io::Result<Option<Self>> {
        let len = file.metadata()?.len();
        let fresh = len == 0;
        if fresh {
            file.set_len(SEGMENT_BYTES as u64)?;
        } else if len != SEGMENT_BYTES as u64 {
            return Ok(None);
        }
        reserve(&file, 0, COUNTERS)?;
        let control = MmapOptions::new()
            .len(CONTROL_BYTES)
            .map_raw(file.as_raw_fd())?;
        let lost: &'static AtomicBool = Box::leak(Box::default());
        let segment = Self {
            _watched: shared::watch(control.as_mut_ptr(), CONTROL_BYTES, lost),
            file: HiddenFile::new(file),
            control,
            lost,
        };
        let header = [MAGIC, VERSION, GEOMETRY];
        // A process that dies here leaves a magic of 0, and its successor
        // writes the header again.
        if segment.word(0).load(Ordering::Acquire) == 0 {
            segment.word(16).store(header[2], Ordering::Relaxed);
            segment.word(8).store(header[1], Ordering::Relaxed);
            segment.word(0).store(header[0], Ordering::Release);
        }
        let found = [0, 8, 16].map(|offset| segment.word(offset).load(Ordering::Acquire));
        Ok((found == header).then_some(segment))
    }

    /// Truncates a file so that [`open`](Self::open) initialises it again. No
    /// process may use it.
    pub(super) fn erase(file: &File) -> io::Result<()> {
        file.set_len(0)
    }

    pub(super) fn slot(&self, slot: Slot) -> SlotWords<'_> {
        let index = usize::from(slot) - 1;
        assert!(index < SLOTS);
        let base = SLOT_TABLE + index * SLOT_BYTES;
        let word32 = |offset: usize| {
            let word = self.control.as_mut_ptr().wrapping_add(base + offset).cast();
            // SAFETY: `base + offset` is inside the CONTROL_BYTES that `open`
            // mapped and a multiple of 4; all processes use it atomically.
            unsafe { AtomicU32::from_ptr(word) }
        };
        SlotWords {
            generation: word32(0),
            sleep: word32(4),
            serving: word32(8),
            shape: word32(SHAPE),
            pending: self.word(base + 64),
            waker_core: word32(72),
        }
    }

    /// Maps the ring between two slots and allocates its memory: a full
    /// `/dev/shm` must be an error here and not a `SIGBUS` later.
    pub(super) fn ring(&self, from: Slot, to: Slot) -> io::Result<RingMemory<RingMap>> {
        let index = (usize::from(from) - 1) * SLOTS + usize::from(to) - 1;
        assert!(index < SLOTS * SLOTS);
        let offset = CONTROL_BYTES + index * RING_BYTES;
        reserve(&self.file, offset, RING_BYTES)?;
        let map = MmapOptions::new()
            .offset(offset as u64)
            .len(RING_BYTES)
            .map_raw(self.file.as_raw_fd())?;
        let base = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        let owner = RingMap {
            _watched: shared::watch(base.as_ptr(), RING_BYTES, self.lost),
            _map: map,
        };
        // SAFETY: the mapping is RING_BYTES long, page aligned, readable and
        // writable, and is unmapped with the ring.
        Ok(unsafe { RingMemory::new(base, owner) })
    }

    /// Returns the counters of a slot, with memory for them.
    pub(super) fn counters(self: Arc<Self>, slot: Slot) -> io::Result<Counters> {
        reserve(&self.file, counters_offset(slot), COUNTER_BYTES)?;
        let segment = self;
        Ok(Counters(Box::new(SlotCounters { segment, slot })))
    }

    /// Returns the word with the ports that are switched off, of which `ports` knows
    /// the meaning.
    pub(super) fn ports_off(&self) -> &AtomicU64 {
        self.word(PORTS_OFF)
    }

    /// Returns whether the shared memory was truncated.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= CONTROL_BYTES);
        let word = self.control.as_mut_ptr().wrapping_add(offset).cast();
        // SAFETY: checked above to be inside the mapping and aligned; all
        // processes use it atomically.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

struct SlotCounters {
    segment: Arc<Segment>,
    slot: Slot,
}

impl AsRef<[AtomicU64]> for SlotCounters {
    fn as_ref(&self) -> &[AtomicU64] {
        let base = self.segment.control.as_mut_ptr();
        let first = base.wrapping_add(counters_offset(self.slot)).cast();
        // SAFETY: the CELLS words are inside the CONTROL_BYTES that `open` mapped, which
        // live as long as the segment, and aligned; all processes use them atomically.
        unsafe { std::slice::from_raw_parts(first, CELLS) }
    }
}

/// Returns where in the file the counters of a slot are.
pub(super) fn counters_offset(slot: Slot) -> usize {
    let index = usize::from(slot) - 1;
    assert!(index < SLOTS);
    COUNTERS + index * COUNTER_BYTES
}

/// Returns where in the file a slot's `SlotWords::shape` is.
pub(super) fn shape_offset(slot: Slot) -> usize {
    SLOT_TABLE + (usize::from(slot) - 1) * SLOT_BYTES + SHAPE
}

/// Returns whether a file, which is read without mapping it, has this layout.
pub(super) fn has_layout(file: &File) -> bool {
    let mut header = [0; 24];
    let is_whole = file
        .metadata()
        .is_ok_and(|it| it.len() == SEGMENT_BYTES as u64);
    let words = [MAGIC, VERSION, GEOMETRY];
    is_whole
        && file.read_exact_at(&mut header, 0).is_ok()
        && header == *words.map(u64::to_ne_bytes).as_flattened()
}

fn reserve(file: &File, offset: usize, len: usize) -> io::Result<()> {
    let (offset, len) = (offset as libc::off_t, len as libc::off_t);
    loop {
        // SAFETY: an open descriptor and two numbers.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, len) } {
            0 => return Ok(()),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns where a ring begins in the file.
    pub(in crate::fabric) fn ring_offset(from: Slot, to: Slot) -> usize {
        CONTROL_BYTES + ((usize::from(from) - 1) * SLOTS + usize::from(to) - 1) * RING_BYTES
    }

    /// Returns where the words of a slot begin in the file.
    pub(in crate::fabric) fn slot_offset(slot: Slot) -> usize {
        SLOT_TABLE + (usize::from(slot) - 1) * SLOT_BYTES
    }

    fn file() -> File {
        // SAFETY: the name is a C string; the call returns a new descriptor.
        let fd = unsafe { libc::memfd_create(c"segment".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the descriptor was just created and is owned here only.
        unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
    }

    #[test]
    fn a_segment_is_initialised_once_and_recognised_later() {
        let file = file();
        let first = Segment::open(file.try_clone().unwrap()).unwrap().unwrap();
        first.slot(64).generation.store(9, Ordering::Relaxed);
        let second = Segment::open(file).unwrap().unwrap();
        assert_eq!(second.slot(64).generation.load(Ordering::Relaxed), 9);
        assert_eq!(second.slot(63).generation.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn another_layout_is_detected_and_can_be_erased() {
        let file = file();
        let foreign = Segment::open(file.try_clone().unwrap()).unwrap().unwrap();
        foreign.word(8).store(VERSION + 1, Ordering::Relaxed);
        assert!(Segment::open(file.try_clone().unwrap()).unwrap().is_none());
        file.set_len(4096).unwrap();
        assert!(Segment::open(file.try_clone().unwrap()).unwrap().is_none());
        Segment::erase(&file).unwrap();
        assert!(Segment::open(file).unwrap().is_some());
    }

    #[test]
    fn rings_of_different_pairs_do_not_overlap() {
        use crate::fabric::ring::{Consumer, Popped, Producer};
        use crate::fabric::wire::{Generations, HEADER_BYTES, encode};
        let segment = Segment::open(file()).unwrap().unwrap();
        let generations = Generations {
            source: 1,
            destination: 1,
        };
        let (header, _) = crate::fabric::wire::decode(&[0; HEADER_BYTES]).unwrap();
        let pairs = [(1, 1), (1, 64), (64, 1), (64, 64), (1, 2), (2, 1)];
        for (n, &(from, to)) in pairs.iter().enumerate() {
            let mut producer = Producer::new(segment.ring(from, to).unwrap());
            producer.push(&encode(&header, n, generations), &vec![n as u8; n]);
        }
        for (n, &(from, to)) in pairs.iter().enumerate() {
            let mut consumer = Consumer::new(segment.ring(from, to).unwrap());
            let mut payload = Vec::new();
            assert_eq!(
                consumer.pop(&mut payload),
                Popped::Packet(header, generations)
            );
            assert_eq!(payload, vec![n as u8; n]);
            assert_eq!(consumer.pop(&mut payload), Popped::Empty);
        }
    }
}
