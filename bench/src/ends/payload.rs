//! The message memory of one side.
//!
//! ```text
//! buffer   0            area             2 × area        + 64             + 128
//!          | outgoing   | incoming       | grant, theirs  | grant, ours    |
//! ```
//!
//! The outgoing half holds what this side sends or writes, and what the other
//! side reads. The incoming half holds what is received, read, or written by
//! the other side. The other side has the same layout, since both have the same
//! largest size.
//!
//! A *grant* is the number of messages that a side has received, which it writes
//! into the other side's memory, so that the other side knows how many receives
//! are posted. It is 8 bytes: the number and its complement. The device may write
//! them one after the other, in either order; a number that does not match its
//! complement is not complete.

use core::ops::Range;
use core::ptr::NonNull;

use crate::failure::Failure;
use crate::options::Operation;

/// Areas are aligned to cache lines.
const ALIGNMENT: usize = 64;
/// Bytes that are filled or compared at a time.
const CHUNK: usize = 4096;

/// One side's buffer, which its owner has registered.
pub(crate) struct Payload {
    base: NonNull<u8>,
    operation: Operation,
    /// Bytes of one half.
    area: usize,
    largest: u32,
    size: u32,
    /// Numbers from which the two sides' patterns are computed.
    ours: u32,
    theirs: u32,
}

/// Returns the bytes of one half of a buffer for messages up to this size.
fn area(largest: u32) -> usize {
    (largest as usize).next_multiple_of(ALIGNMENT)
}

/// Returns the bytes of a whole buffer for messages up to this size.
pub(crate) fn bytes(largest: u32) -> usize {
    2 * area(largest) + 2 * ALIGNMENT
}

/// Returns where messages are received, in a buffer for messages up to this size.
#[inline(always)]
pub(crate) fn incoming(largest: u32) -> Range<usize> {
    area(largest)..area(largest) + largest as usize
}

/// Bytes of a grant.
pub(crate) const GRANT: usize = 8;

/// Returns the bytes of a grant.
fn encode_grant(received: u32) -> [u8; GRANT] {
    (u64::from(received) | u64::from(!received) << 32).to_ne_bytes()
}

impl Payload {
    /// # Safety
    /// `base` is a multiple of a cache line and points to `bytes(largest)` bytes that
    /// are readable and writable as long as this value lives, and there are no references to them.
    pub(crate) unsafe fn new(base: NonNull<u8>, operation: Operation, largest: u32) -> Self {
        Self {
            base,
            operation,
            area: area(largest),
            largest,
            size: largest,
            ours: 0,
            theirs: 0,
        }
    }

    /// Sets the two sides' numbers, which differ. The other side has the same two,
    /// exchanged.
    pub(crate) fn set_side_numbers(&mut self, ours: u32, theirs: u32) {
        (self.ours, self.theirs) = (ours, theirs);
    }

    /// Returns the offset of the local bytes of this side's requests.
    pub(crate) fn local_offset(&self) -> usize {
        match self.operation {
            Operation::Send | Operation::Write => 0,
            Operation::Read => self.area,
        }
    }

    /// Returns the offset of their remote bytes in the other side's buffer.
    pub(crate) fn remote_offset(&self) -> usize {
        match self.operation {
            Operation::Send | Operation::Write => self.area,
            Operation::Read => 0,
        }
    }

    /// Returns where messages are received.
    #[inline(always)]
    pub(crate) fn incoming(&self) -> Range<usize> {
        incoming(self.largest)
    }

    /// Returns the bytes of the whole buffer.
    pub(crate) fn bytes(&self) -> usize {
        bytes(self.largest)
    }

    /// Returns the offset of the grant that the other side writes, in each side's
    /// buffer.
    pub(crate) fn their_grant(&self) -> usize {
        2 * self.area
    }

    /// Returns where the grant is that this side sends.
    #[inline(always)]
    pub(crate) fn our_grant(&self) -> Range<usize> {
        let start = 2 * self.area + ALIGNMENT;
        start..start + GRANT
    }

    /// Stores the grant that this side sends next. The previous one must be complete.
    #[inline(always)]
    pub(crate) fn write_grant(&mut self, received: u32) {
        self.write(self.our_grant().start, &encode_grant(received));
    }

    /// Loads the other side's grant; none while it is being written.
    #[inline(always)]
    pub(crate) fn read_grant(&self) -> Option<u32> {
        let grant = self.pointer(self.their_grant()).cast::<u64>();
        // SAFETY: within the buffer, which begins at a multiple of a cache line, as
        // the grant does. Volatile, because the device may write it at any time.
        let grant = unsafe { grant.read_volatile() };
        let (received, complement) = (grant as u32, (grant >> 32) as u32);
        (received == !complement).then_some(received)
    }

    /// Refuses the other side's buffer if it is shorter than this one.
    pub(crate) fn require_length(&self, theirs: u64) -> Result<(), Failure> {
        if theirs >= self.bytes() as u64 {
            return Ok(());
        }
        Err(Failure::run(format!(
            "the other side's buffer has {theirs} bytes, but {} are needed; give both sides the same -s or -a",
            self.bytes()
        )))
    }

    /// Fills the outgoing half and clears the incoming half.
    pub(crate) fn prepare(&mut self, size: u32) {
        assert!(
            (1..=self.largest).contains(&size),
            "no size is above the largest"
        );
        self.size = size;
        // Clears all of the incoming half, so that no older message passes for a new one.
        for (start, length) in chunks(self.largest) {
            self.write(self.area + start, &[0; CHUNK][..length]);
        }
        let none = encode_grant(0);
        self.write(self.their_grant(), &none);
        self.write(self.our_grant().start, &none);
        let ours = self.ours;
        for (start, length) in chunks(size) {
            self.write(start, &pattern(ours, start)[..length]);
        }
    }

    /// Compares the incoming half with the other side's pattern.
    pub(crate) fn verify(&self) -> Result<(), Failure> {
        // The last byte of a write is its sequence number.
        let fixed = match self.operation {
            Operation::Write => self.size - 1,
            Operation::Send | Operation::Read => self.size,
        };
        for (start, length) in chunks(fixed) {
            let mut received = [0u8; CHUNK];
            let from = self.pointer(self.area + start);
            // SAFETY: chunks of a message are within the half (`prepare`), no
            // message is in flight, and the target is a local array.
            unsafe { core::ptr::copy_nonoverlapping(from, received.as_mut_ptr(), length) };
            let expected = pattern(self.theirs, start);
            let differs = received
                .iter()
                .zip(&expected)
                .take(length)
                .position(|(a, b)| a != b);
            if let Some(at) = differs {
                return Err(Failure::run(format!(
                    "byte {} of a message of {} bytes is 0x{:02x}, but 0x{:02x} was sent: the data path corrupts data",
                    start + at,
                    self.size,
                    received[at],
                    expected[at]
                )));
            }
        }
        Ok(())
    }

    /// Stores a sequence number in the last outgoing byte.
    #[inline(always)]
    pub(crate) fn write_sequence(&mut self, sequence: u8) {
        let last = self.pointer(self.size as usize - 1);
        // SAFETY: within the outgoing half (`prepare`), which the device only
        // reads. Volatile, because the device may read it at any time.
        unsafe { last.write_volatile(sequence) };
    }

    /// Loads the last incoming byte.
    #[inline(always)]
    pub(crate) fn read_sequence(&self) -> u8 {
        let last = self.pointer(self.area + self.size as usize - 1);
        // SAFETY: within the incoming half (`prepare`). Volatile, because the device
        // may write it at any time.
        unsafe { last.read_volatile() }
    }

    #[inline(always)]
    fn pointer(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset + bytes.len() <= self.bytes(),
            "chunks of a message are inside the buffer"
        );
        let to = self.pointer(offset);
        // SAFETY: within the buffer, which does not overlap `bytes`. Between
        // sizes no message is in flight, so the device does not access it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// Returns (start, length) of each chunk of `length` bytes.
fn chunks(length: u32) -> impl Iterator<Item = (usize, usize)> {
    let length = length as usize;
    (0..length)
        .step_by(CHUNK)
        .map(move |start| (start, CHUNK.min(length - start)))
}

/// Returns the bytes that the side with this number sends from this offset on.
/// They are not zero, and differ between the two sides.
fn pattern(side: u32, start: usize) -> [u8; CHUNK] {
    core::array::from_fn(|at| {
        // Any hash suffices that differs for neighbouring offsets and sides.
        let mixed = (start + at) as u64 + u64::from(side) * 0x9E37_79B9;
        (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_byte_once() {
        for length in [1, 4095, 4096, 4097, 100_000] {
            let mut next = 0;
            for (start, chunk) in chunks(length) {
                assert_eq!(start, next);
                assert!((1..=CHUNK).contains(&chunk));
                next += chunk;
            }
            assert_eq!(next, length as usize);
        }
    }

    #[test]
    fn patterns_differ_between_sides_and_offsets_and_have_no_zero() {
        for (one, other) in [(1, 2), (0x01_0001, 0x01_0002)] {
            assert_ne!(pattern(one, 0)[..64], pattern(other, 0)[..64]);
            assert_ne!(pattern(one, 0)[..64], pattern(one, CHUNK)[..64]);
            assert!(!pattern(one, 0).contains(&0));
        }
    }

    #[derive(Clone)]
    #[repr(C, align(64))]
    struct CacheLine([u8; ALIGNMENT]);

    #[test]
    fn a_grant_that_is_half_written_is_none() {
        let (_memory, mut payload) = carried(Operation::Send, 64);
        assert_eq!(payload.read_grant(), Some(0));
        payload.write_grant(0x1_00ff);
        let (from, to) = (payload.our_grant().start, payload.their_grant());
        let (before, after) = (encode_grant(0xffff), encode_grant(0x1_00ff));
        let read = |bytes: &[u8; GRANT], payload: &mut Payload| {
            payload.write(to, bytes);
            payload.read_grant()
        };
        for written in 0..=GRANT {
            let mut bytes = before;
            bytes[..written].copy_from_slice(&after[..written]);
            let seen = read(&bytes, &mut payload);
            assert!(
                [None, Some(0xffff), Some(0x1_00ff)].contains(&seen),
                "{seen:?}"
            );
            let mut bytes = before;
            bytes[written..].copy_from_slice(&after[written..]);
            let seen = read(&bytes, &mut payload);
            assert!(
                [None, Some(0xffff), Some(0x1_00ff)].contains(&seen),
                "{seen:?}"
            );
        }
        // SAFETY: the two grants do not overlap, and are within the buffer.
        unsafe {
            core::ptr::copy_nonoverlapping(payload.pointer(from), payload.pointer(to), GRANT)
        };
        assert_eq!(payload.read_grant(), Some(0x1_00ff));
        payload.verify().expect("a grant changes no message");
    }

    /// A side after a message, which was copied within its own buffer.
    fn carried(operation: Operation, size: u32) -> (Vec<CacheLine>, Payload) {
        let largest = 10_000;
        let mut memory = vec![CacheLine([0; ALIGNMENT]); bytes(largest) / ALIGNMENT];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap().cast();
        // SAFETY: `memory` has that many bytes and is returned with the payload;
        // only raw pointers access it.
        let mut payload = unsafe { Payload::new(base, operation, largest) };
        payload.set_side_numbers(1, 1);
        payload.prepare(size);
        let incoming = payload.pointer(payload.area);
        // SAFETY: the two halves do not overlap, and a message fits in each.
        unsafe { core::ptr::copy_nonoverlapping(payload.pointer(0), incoming, size as usize) };
        (memory, payload)
    }

    #[test]
    fn a_changed_byte_is_detected() {
        for size in [1, 4096, 4097, 10_000] {
            let (_memory, payload) = carried(Operation::Send, size);
            assert!(payload.verify().is_ok());
            let last = payload.pointer(payload.area + size as usize - 1);
            // SAFETY: within the incoming half.
            unsafe { last.write(!last.read()) };
            assert_eq!(payload.verify().unwrap_err().status(), 3);
        }
    }

    #[test]
    fn the_last_byte_of_a_write_is_its_sequence_number() {
        let (_memory, mut payload) = carried(Operation::Write, 4097);
        payload.write_sequence(7);
        // SAFETY: within the two halves.
        unsafe {
            payload
                .pointer(payload.area + 4096)
                .write(payload.pointer(4096).read())
        };
        assert_eq!(payload.read_sequence(), 7);
        assert!(payload.verify().is_ok());
    }
}
