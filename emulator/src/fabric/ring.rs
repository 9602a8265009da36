//! A one-way byte ring in shared memory, with one producer and one consumer in
//! different processes.
//!
//! Each end owns one position and writes only that one. Positions are
//! free-running byte counts, masked when used. The producer publishes a record
//! with one store of its position, after all bytes of the record, so a producer
//! that is killed never leaves a partial record visible. The consumer validates
//! everything it reads; after an invalid record it skips to the producer's
//! position and counts the error.
//!
//! Both ends keep their own position in private memory, since another process
//! can overwrite the shared copy, which makes the ring look full or empty to the
//! other end. An end that waits therefore publishes its own position again and
//! requests this from the other end ([`Producer::request_room`],
//! [`Consumer::take_room_request`]).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::packet::{Header, Packet};
use super::wire::{self, Generations, HEADER_BYTES, MAX_PAYLOAD};

/// Capacity of a ring in bytes.
pub(super) const CAPACITY: usize = 256 << 10;
/// Size of a ring in the segment in bytes: a page of positions, then the records.
pub(super) const RING_BYTES: usize = DATA + CAPACITY;
/// Size of the largest record in bytes.
const MAX_RECORD: u64 = padded(HEADER_BYTES + MAX_PAYLOAD);

const HEAD: usize = 0;
const TAIL: usize = 64;
const WANT_ROOM: usize = 128;
const DATA: usize = 4096;

const fn padded(len: usize) -> u64 {
    len.next_multiple_of(8) as u64
}

#[derive(Debug)]
pub(super) struct RingMemory<M> {
    base: NonNull<u8>,
    /// Keeps `base` mapped.
    _owner: M,
}

// SAFETY: `base` points into memory that `_owner` keeps mapped wherever it
// moves; all access is through atomics or copies of bytes that the SPSC
// protocol assigns to this end.
unsafe impl<M: Send> Send for RingMemory<M> {}

impl<M> RingMemory<M> {
    /// Returns the memory of a ring.
    ///
    /// # Safety
    /// `base` is page aligned, and [`RING_BYTES`] bytes from it stay mapped,
    /// readable and writable while `owner` lives.
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

    fn room_requested(&self) -> &AtomicU32 {
        // SAFETY: as for `position`.
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
        // `bytes`; the consumer does not read bytes beyond the published
        // position, which the caller has not moved yet.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), one, first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), two, rest);
        }
    }

    fn copy_out(&self, position: u64, bytes: &mut [u8]) {
        let [(one, first), (two, rest)] = self.runs(position, bytes.len());
        // SAFETY: as for `copy_in`; the producer has published these bytes and
        // writes them again only after the consumer's position has passed.
        // A process that violates this can only corrupt bytes, which are
        // checked after the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(one, bytes.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(two, bytes.as_mut_ptr().add(first), rest);
        }
    }
}

/// The sending end of a ring.
#[derive(Debug)]
pub(super) struct Producer<M> {
    ring: RingMemory<M>,
    head: u64,
    tail_seen: u64,
}

impl<M> Producer<M> {
    /// Returns a producer that continues where an earlier one of this ring stopped.
    pub(super) fn new(ring: RingMemory<M>) -> Self {
        let head = ring.position(HEAD).load(Ordering::Acquire);
        let tail_seen = ring.position(TAIL).load(Ordering::Acquire);
        Self {
            ring,
            head,
            tail_seen,
        }
    }

    /// Returns whether a packet of any size fits now.
    pub(super) fn has_room(&mut self) -> bool {
        if self.fits() {
            return true;
        }
        self.tail_seen = self.ring.position(TAIL).load(Ordering::Acquire);
        self.fits()
    }

    /// Asks the consumer to publish its position and to wake this end when the
    /// ring is drained. Returns whether there is room now.
    pub(super) fn request_room(&mut self) -> bool {
        // The shared copy may hold garbage that hides sent packets.
        self.ring.position(HEAD).store(self.head, Ordering::Release);
        // SeqCst on both sides: either the consumer sees the request after its
        // move, or this end sees the move.
        self.ring.room_requested().store(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.has_room()
    }

    /// Publishes a record. The caller has checked that there is room.
    pub(super) fn push(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        debug_assert!(self.fits());
        self.ring.copy_in(self.head, header);
        self.ring
            .copy_in(self.head.wrapping_add(HEADER_BYTES as u64), payload);
        self.head = self.head.wrapping_add(padded(HEADER_BYTES + payload.len()));
        self.ring.position(HEAD).store(self.head, Ordering::Release);
    }

    /// Returns whether the consumer has taken everything.
    pub(super) fn is_empty(&mut self) -> bool {
        self.tail_seen = self.ring.position(TAIL).load(Ordering::Acquire);
        self.head == self.tail_seen
    }

    fn fits(&self) -> bool {
        // A corrupt position yields a huge number: the ring counts as full
        // until the consumer has published its position again.
        let used = self.head.wrapping_sub(self.tail_seen);
        used.checked_add(MAX_RECORD)
            .is_some_and(|end| end <= CAPACITY as u64)
    }
}

/// The result of [`Consumer::pop`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Popped {
    /// A packet. Its payload is in the caller's buffer.
    Packet(Header, Generations),
    /// Nothing to read.
    Empty,
    /// An invalid record; everything published so far was skipped.
    Malformed,
}

/// The receiving end of a ring.
#[derive(Debug)]
pub(super) struct Consumer<M> {
    ring: RingMemory<M>,
    tail: u64,
}

impl<M> Consumer<M> {
    /// Returns a consumer that continues where an earlier one of this ring stopped.
    pub(super) fn new(ring: RingMemory<M>) -> Self {
        let tail = ring.position(TAIL).load(Ordering::Acquire);
        Self { ring, tail }
    }

    /// Takes the next record. Its payload replaces the contents of `payload`.
    pub(super) fn pop(&mut self, payload: &mut Vec<u8>) -> Popped {
        let head = self.ring.position(HEAD).load(Ordering::Acquire);
        let available = head.wrapping_sub(self.tail);
        if available == 0 {
            return Popped::Empty;
        }
        let found = self.read(available, payload);
        let Some((len, header, generations)) = found else {
            self.advance_to(head);
            return Popped::Malformed;
        };
        self.advance_to(self.tail.wrapping_add(padded(len)));
        Popped::Packet(header, generations)
    }

    /// Returns whether the producer waits for room, and if so publishes this
    /// end's position again. Called once the ring is drained.
    pub(super) fn take_room_request(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        let request = self.ring.room_requested();
        let waits = request.load(Ordering::SeqCst) != 0 && request.swap(0, Ordering::SeqCst) != 0;
        if waits {
            self.ring.position(TAIL).store(self.tail, Ordering::Release);
        }
        waits
    }

    fn read(&self, available: u64, payload: &mut Vec<u8>) -> Option<(usize, Header, Generations)> {
        if available > CAPACITY as u64 || available < HEADER_BYTES as u64 {
            return None;
        }
        let mut bytes = [0; HEADER_BYTES];
        self.ring.copy_out(self.tail, &mut bytes);
        let len = wire::record_len(u32::from_ne_bytes(*bytes.first_chunk()?))?;
        if padded(len) > available {
            return None;
        }
        let (header, generations) = wire::decode(&bytes)?;
        payload.clear();
        payload.resize(len - HEADER_BYTES, 0);
        self.ring
            .copy_out(self.tail.wrapping_add(HEADER_BYTES as u64), payload);
        Some((len, header, generations))
    }

    fn advance_to(&mut self, tail: u64) {
        self.tail = tail;
        self.ring.position(TAIL).store(tail, Ordering::Release);
    }
}

/// Encodes and publishes a packet.
pub(super) fn push_packet<M>(
    producer: &mut Producer<M>,
    packet: &Packet,
    generations: Generations,
) {
    let header = wire::encode(&packet.header, packet.payload.len(), generations);
    producer.push(&header, &packet.payload);
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
