//! The memory that both sides use.
//!
//! ```text
//! buffer   0            area             2 × area
//!          | outgoing   | incoming       |
//! ```
//!
//! What goes out is sent from, or read by the other side from, the first half;
//! what comes in is received, written or read into the second. The other side
//! has the same layout, as both know the largest size.

use core::ptr::NonNull;

use crate::cli::Operation;
use crate::failure::Failure;

/// Areas start on lines of their own.
const ALIGNMENT: usize = 64;
/// Filling and comparing go in pieces of this many bytes.
const PIECE: usize = 4096;

/// One side's buffer, registered by somebody else.
pub(super) struct Payload {
    base: NonNull<u8>,
    operation: Operation,
    /// Bytes of one half.
    area: usize,
    largest: u32,
    size: u32,
    /// What tells this side's bytes from the other's.
    ours: u32,
    theirs: u32,
}

/// Bytes of one half of a buffer for messages up to this size.
pub(super) fn area(largest: u32) -> usize {
    (largest as usize).next_multiple_of(ALIGNMENT)
}

impl Payload {
    /// # Safety
    /// There are `2 * area(largest)` bytes at `base`, readable and writable for
    /// as long as this lives, and no references to them.
    pub(super) unsafe fn new(base: NonNull<u8>, operation: Operation, largest: u32) -> Self {
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

    /// Names the two sides: numbers that differ, each known to both.
    pub(super) fn name_sides(&mut self, ours: u32, theirs: u32) {
        (self.ours, self.theirs) = (ours, theirs);
    }

    /// Where in the buffer the requests of this side have their local bytes.
    pub(super) fn local_offset(&self) -> usize {
        match self.operation {
            Operation::Send | Operation::Write => 0,
            Operation::Read => self.area,
        }
    }

    /// Where in the other side's buffer they have their remote bytes.
    pub(super) fn remote_offset(&self) -> usize {
        match self.operation {
            Operation::Send | Operation::Write => self.area,
            Operation::Read => 0,
        }
    }

    /// Where messages are received.
    pub(super) fn incoming_offset(&self) -> usize {
        self.area
    }

    pub(super) fn largest(&self) -> u32 {
        self.largest
    }

    pub(super) fn operation(&self) -> Operation {
        self.operation
    }

    /// Bytes of the whole buffer.
    pub(super) fn bytes(&self) -> usize {
        2 * self.area
    }

    /// Refuses the other side's buffer if it is shorter than this one.
    pub(super) fn require(&self, theirs: u64) -> Result<(), Failure> {
        if theirs >= self.bytes() as u64 {
            return Ok(());
        }
        Err(Failure::run(format!(
            "the other side's buffer has {theirs} bytes where {} are needed",
            self.bytes()
        )))
    }

    /// Fills the outgoing half, clears the incoming.
    pub(super) fn prepare(&mut self, size: u32) {
        assert!(
            (1..=self.largest).contains(&size),
            "no size is above the largest"
        );
        self.size = size;
        // All of the incoming half: a smaller message before must not pass for this one.
        for (start, length) in pieces(self.largest) {
            self.put(self.area + start, &[0; PIECE][..length]);
        }
        let ours = self.ours;
        for (start, length) in pieces(size) {
            self.put(start, &pattern(ours, start)[..length]);
        }
    }

    /// Compares the incoming half with what the other side sent.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        // The last byte of a write is its sequence number.
        let fixed = match self.operation {
            Operation::Write => self.size - 1,
            Operation::Send | Operation::Read => self.size,
        };
        for (start, length) in pieces(fixed) {
            let mut came = [0u8; PIECE];
            let from = self.at(self.area + start);
            // SAFETY: pieces of a message are inside the half (`prepare`), no
            // message is under way, and the bytes go to an array of this frame.
            unsafe { core::ptr::copy_nonoverlapping(from, came.as_mut_ptr(), length) };
            let expected = pattern(self.theirs, start);
            let differs = came
                .iter()
                .zip(&expected)
                .take(length)
                .position(|(a, b)| a != b);
            if let Some(at) = differs {
                return Err(Failure::run(format!(
                    "byte {} of a message of {} bytes came as 0x{:02x}, 0x{:02x} was sent: the data path damages data",
                    start + at,
                    self.size,
                    came[at],
                    expected[at]
                )));
            }
        }
        Ok(())
    }

    /// Puts a sequence number into the last outgoing byte.
    #[inline(always)]
    pub(super) fn stamp(&mut self, sequence: u8) {
        let last = self.at(self.size as usize - 1);
        // SAFETY: inside the outgoing half (`prepare`), which the device only
        // reads; volatile, as it reads when it likes.
        unsafe { last.write_volatile(sequence) };
    }

    /// The last incoming byte, as it is now.
    #[inline(always)]
    pub(super) fn arrived(&self) -> u8 {
        let last = self.at(self.area + self.size as usize - 1);
        // SAFETY: inside the incoming half (`prepare`); volatile, as the device
        // writes it at any time.
        unsafe { last.read_volatile() }
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset + bytes.len() <= self.bytes(),
            "pieces of a message are inside the buffer"
        );
        let to = self.at(offset);
        // SAFETY: inside the buffer, and not in `bytes`, which is Rust memory;
        // between sizes no message is under way, so the device neither reads
        // nor writes there.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// (start, length) of the pieces of so many bytes.
fn pieces(length: u32) -> impl Iterator<Item = (usize, usize)> {
    let length = length as usize;
    (0..length)
        .step_by(PIECE)
        .map(move |start| (start, PIECE.min(length - start)))
}

/// What the side of this number sends from this offset on: bytes that are
/// neither zero nor the same at the two sides.
fn pattern(side: u32, start: usize) -> [u8; PIECE] {
    core::array::from_fn(|at| {
        // Any mixing will do that tells neighbours and sides apart.
        let mixed = (start + at) as u64 + u64::from(side) * 0x9E37_79B9;
        (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_everything_once() {
        for length in [1, 4095, 4096, 4097, 100_000] {
            let mut next = 0;
            for (start, piece) in pieces(length) {
                assert_eq!(start, next);
                assert!((1..=PIECE).contains(&piece));
                next += piece;
            }
            assert_eq!(next, length as usize);
        }
    }

    #[test]
    fn sides_and_places_have_different_patterns_without_zeros() {
        for (one, other) in [(1, 2), (0x01_0001, 0x01_0002)] {
            assert_ne!(pattern(one, 0)[..64], pattern(other, 0)[..64]);
            assert_ne!(pattern(one, 0)[..64], pattern(one, PIECE)[..64]);
            assert!(!pattern(one, 0).contains(&0));
        }
    }

    /// Two sides whose messages are copies.
    fn carried(operation: Operation, size: u32) -> (Vec<u8>, Payload) {
        let largest = 10_000;
        let mut memory = vec![0u8; 2 * area(largest)];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: `memory` has that many bytes, and is returned with the
        // payload; only raw pointers reach it meanwhile.
        let mut payload = unsafe { Payload::new(base, operation, largest) };
        payload.name_sides(1, 1);
        payload.prepare(size);
        let incoming = payload.at(payload.area);
        // SAFETY: the two halves do not overlap, and a message fits in each.
        unsafe { core::ptr::copy_nonoverlapping(payload.at(0), incoming, size as usize) };
        (memory, payload)
    }

    #[test]
    fn a_message_is_what_was_sent_or_is_refused() {
        for size in [1, 4096, 4097, 10_000] {
            let (_memory, payload) = carried(Operation::Send, size);
            assert!(payload.verify().is_ok());
            let last = payload.at(payload.area + size as usize - 1);
            // SAFETY: inside the incoming half.
            unsafe { last.write(!last.read()) };
            assert_eq!(payload.verify().unwrap_err().status(), 3);
        }
    }

    #[test]
    fn the_last_byte_of_a_write_is_its_number() {
        let (_memory, mut payload) = carried(Operation::Write, 4097);
        payload.stamp(7);
        // SAFETY: inside the halves.
        unsafe {
            payload
                .at(payload.area + 4096)
                .write(payload.at(4096).read())
        };
        assert_eq!(payload.arrived(), 7);
        assert!(payload.verify().is_ok());
    }
}
