//! A one-way byte ring in shared memory: one producer, one consumer, in
//! different processes.
//!
//! Each end owns one position and only ever writes that; positions count
//! bytes for ever and are masked when used. A record is published by one
//! store of the producer's position, after all its bytes: a producer killed
//! at any moment leaves no half record visible. The consumer takes nothing
//! it reads for granted; what cannot be true makes it skip to the producer's
//! position and count.
//!
//! Both ends keep their own position in private memory. Another process can
//! garble the shared copy, which makes the ring look full or empty to the
//! other end. So an end that waits publishes its own position again and asks
//! the other end to do so ([`Producer::ask_for_room`],
//! [`Consumer::answer_wish`]).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::packet::{Header, Packet};
use super::wire::{self, HEADER_BYTES, Lives, MAX_PAYLOAD};

/// Bytes of records a ring holds.
pub(super) const CAPACITY: usize = 256 << 10;
/// Bytes of a ring in the segment: a page of positions, then the records.
pub(super) const RING_BYTES: usize = DATA + CAPACITY;
/// Room that a packet of any size is sure to find enough.
const MAX_RECORD: u64 = padded(HEADER_BYTES + MAX_PAYLOAD);

const HEAD: usize = 0;
const TAIL: usize = 64;
const WANT_ROOM: usize = 128;
const DATA: usize = 4096;

const fn padded(len: usize) -> u64 {
    len.next_multiple_of(8) as u64
}

/// The memory of one ring.
#[derive(Debug)]
pub(super) struct RingMemory<M> {
    base: NonNull<u8>,
    /// Keeps `base` mapped.
    _owner: M,
}

// SAFETY: `base` points into memory that `_owner` keeps mapped wherever it
// moves; all access is through atomics or copies of bytes that the SPSC
// protocol gives to this end.
unsafe impl<M: Send> Send for RingMemory<M> {}

impl<M> RingMemory<M> {
    /// # Safety
    /// `base` is page aligned and [`RING_BYTES`] behind it stay mapped,
    /// readable and writable, as long as `owner` lives.
    pub(super) unsafe fn new(base: NonNull<u8>, owner: M) -> Self {
        Self {
            base,
            _owner: owner,
        }
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset < DATA && offset.is_multiple_of(8));
        // SAFETY: inside the mapping (`new`) and aligned; the other process
        // accesses it by atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn want_room(&self) -> &AtomicU32 {
        // SAFETY: as in `position`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(WANT_ROOM).cast()) }
    }

    /// Splits `len` bytes at `position` where the ring wraps.
    fn runs(&self, position: u64, len: usize) -> [(*mut u8, usize); 2] {
        assert!(len <= CAPACITY);
        let start = (position % CAPACITY as u64) as usize;
        let first = len.min(CAPACITY - start);
        // SAFETY: DATA + CAPACITY bytes are mapped and `start` < CAPACITY.
        let data = unsafe { self.base.as_ptr().add(DATA) };
        // SAFETY: as above.
        [(unsafe { data.add(start) }, first), (data, len - first)]
    }

    fn copy_in(&self, position: u64, bytes: &[u8]) {
        let [(one, first), (two, rest)] = self.runs(position, bytes.len());
        // SAFETY: `runs` stays inside the ring and the lengths add up to
        // `bytes`; the consumer does not look at bytes beyond the published
        // position, which the caller has not moved yet.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), one, first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), two, rest);
        }
    }

    fn copy_out(&self, position: u64, bytes: &mut [u8]) {
        let [(one, first), (two, rest)] = self.runs(position, bytes.len());
        // SAFETY: as in `copy_in`; the producer has published these bytes and
        // writes them again only after the consumer's position has passed.
        // A process that breaks this can only garble bytes, which are
        // checked after the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(one, bytes.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(two, bytes.as_mut_ptr().add(first), rest);
        }
    }
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Producer<M> {
    ring: RingMemory<M>,
    head: u64,
    tail_seen: u64,
}

impl<M> Producer<M> {
    /// Continues where an earlier producer of this ring stopped.
    pub(super) fn new(ring: RingMemory<M>) -> Self {
        let head = ring.position(HEAD).load(Ordering::Acquire);
        let tail_seen = ring.position(TAIL).load(Ordering::Acquire);
        Self {
            ring,
            head,
            tail_seen,
        }
    }

    /// Whether any packet would fit now.
    pub(super) fn has_room(&mut self) -> bool {
        if self.fits() {
            return true;
        }
        self.tail_seen = self.ring.position(TAIL).load(Ordering::Acquire);
        self.fits()
    }

    /// Asks the consumer to publish its position and to wake this end when the
    /// ring is drained. Returns `true` if there is room by now.
    pub(super) fn ask_for_room(&mut self) -> bool {
        // What the consumer sees may be garbage that hides what was sent.
        self.ring.position(HEAD).store(self.head, Ordering::Release);
        // SeqCst on both sides: either the consumer sees the wish after its
        // move, or this end sees the move.
        self.ring.want_room().store(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.has_room()
    }

    /// Publishes a record. The caller has seen room for it.
    pub(super) fn push(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        debug_assert!(self.fits());
        self.ring.copy_in(self.head, header);
        self.ring
            .copy_in(self.head.wrapping_add(HEADER_BYTES as u64), payload);
        self.head = self.head.wrapping_add(padded(HEADER_BYTES + payload.len()));
        self.ring.position(HEAD).store(self.head, Ordering::Release);
    }

    /// Whether the consumer has taken everything.
    pub(super) fn is_empty(&mut self) -> bool {
        self.tail_seen = self.ring.position(TAIL).load(Ordering::Acquire);
        self.head == self.tail_seen
    }

    fn fits(&self) -> bool {
        // A garbled position gives a huge number: full, until the consumer
        // has published its position again.
        let used = self.head.wrapping_sub(self.tail_seen);
        used.checked_add(MAX_RECORD)
            .is_some_and(|end| end <= CAPACITY as u64)
    }
}

/// What the receiving end found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A packet. Its payload is in the buffer that was handed in.
    Packet(Header, Lives),
    /// Nothing (more) to read.
    Empty,
    /// Bytes that are no record; everything published so far is skipped.
    Malformed,
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Consumer<M> {
    ring: RingMemory<M>,
    tail: u64,
}

impl<M> Consumer<M> {
    /// Continues where an earlier consumer of this ring stopped.
    pub(super) fn new(ring: RingMemory<M>) -> Self {
        let tail = ring.position(TAIL).load(Ordering::Acquire);
        Self { ring, tail }
    }

    /// Takes the next record; its payload replaces what `payload` held.
    pub(super) fn pop(&mut self, payload: &mut Vec<u8>) -> Found {
        let head = self.ring.position(HEAD).load(Ordering::Acquire);
        let available = head.wrapping_sub(self.tail);
        if available == 0 {
            return Found::Empty;
        }
        let found = self.read(available, payload);
        let Some((len, header, lives)) = found else {
            self.advance_to(head);
            return Found::Malformed;
        };
        self.advance_to(self.tail.wrapping_add(padded(len)));
        Found::Packet(header, lives)
    }

    /// Returns whether the producer waits; called once the ring is drained. If
    /// it does, this end's position is published again.
    pub(super) fn answer_wish(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        let wish = self.ring.want_room();
        let waits = wish.load(Ordering::SeqCst) != 0 && wish.swap(0, Ordering::SeqCst) != 0;
        if waits {
            self.ring.position(TAIL).store(self.tail, Ordering::Release);
        }
        waits
    }

    fn read(&self, available: u64, payload: &mut Vec<u8>) -> Option<(usize, Header, Lives)> {
        if available > CAPACITY as u64 || available < HEADER_BYTES as u64 {
            return None;
        }
        let mut bytes = [0; HEADER_BYTES];
        self.ring.copy_out(self.tail, &mut bytes);
        let len = wire::record_len(u32::from_ne_bytes(*bytes.first_chunk()?))?;
        if padded(len) > available {
            return None;
        }
        let (header, lives) = wire::decode(&bytes)?;
        payload.clear();
        payload.resize(len - HEADER_BYTES, 0);
        self.ring
            .copy_out(self.tail.wrapping_add(HEADER_BYTES as u64), payload);
        Some((len, header, lives))
    }

    fn advance_to(&mut self, tail: u64) {
        self.tail = tail;
        self.ring.position(TAIL).store(tail, Ordering::Release);
    }
}

/// Encodes and publishes a packet.
pub(super) fn push_packet<M>(producer: &mut Producer<M>, packet: &Packet, lives: Lives) {
    let header = wire::encode(&packet.header, packet.payload.len(), lives);
    producer.push(&header, &packet.payload);
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
