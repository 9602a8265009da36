//! The message memory of one side.
//!
//! ```text
//! buffer   0            area             2 × area        + 64             + 128
//!          | outgoing   | incoming       | grant, theirs  | grant, ours    |
//! ```
//!
//! The outgoing half holds what this side sends or writes, and what the other
//! side reads or changes by atomic operations. The incoming half holds what is
//! received, fetched, or written by the other side. Each half is an array of
//! *slots* for one message each: one slot if all messages are the same, else the
//! slot of a message is its number modulo their number, a power of two. The other
//! side has the same layout, since both have the same largest size and slots.
//!
//! A *grant* is the number of messages that a side has received, which it writes
//! into the other side's memory, so that the other side knows how many receives
//! are posted. It is 8 bytes: the number and its complement. The device may write
//! them one after the other, in either order; a number that does not match its
//! complement is not complete.

use core::ops::Range;
use core::ptr::NonNull;

use super::pattern::{Mismatch, Pattern};
use crate::failure::Failure;
use crate::options::Operation;

/// Slots are aligned to cache lines.
const ALIGNMENT: usize = 64;

/// Where messages are in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The largest message, bytes.
    pub(crate) largest: u32,
    /// Slots of each half, a power of two.
    pub(crate) slots: u32,
}

impl Layout {
    /// Returns the bytes from a slot to the next.
    fn stride(self) -> usize {
        (self.largest as usize).next_multiple_of(ALIGNMENT)
    }

    /// Returns the bytes of one half.
    #[inline(always)]
    pub(super) fn area(self) -> usize {
        self.stride() * self.slots as usize
    }

    /// Returns the bytes of a whole buffer.
    pub(crate) fn bytes(self) -> usize {
        2 * self.area() + 2 * ALIGNMENT
    }

    /// Returns the offset of a message's slot in its half.
    #[inline(always)]
    pub(super) fn slot(self, number: u64) -> usize {
        self.stride() * (number & u64::from(self.slots - 1)) as usize
    }

    /// Returns where messages of any size are received.
    #[inline(always)]
    pub(crate) fn incoming(self, number: u64) -> Range<usize> {
        let start = self.area() + self.slot(number);
        start..start + self.largest as usize
    }
}

/// One side's buffer, which its owner has registered.
pub(crate) struct Payload {
    base: NonNull<u8>,
    operation: Operation,
    layout: Layout,
    /// Bytes of one half.
    area: usize,
    size: u32,
    /// Numbers from which the two sides' patterns are computed.
    ours: u32,
    theirs: u32,
}

/// Bytes of a grant.
pub(crate) const GRANT: usize = 8;

/// Returns the bytes of a grant.
fn encode_grant(received: u32) -> [u8; GRANT] {
    (u64::from(received) | u64::from(!received) << 32).to_ne_bytes()
}

impl Payload {
    /// # Safety
    /// `base` is a multiple of a cache line and points to `layout.bytes()` bytes that
    /// are readable and writable as long as this value lives, and there are no references to them.
    pub(crate) unsafe fn new(base: NonNull<u8>, operation: Operation, layout: Layout) -> Self {
        Self {
            base,
            operation,
            area: layout.area(),
            layout,
            size: layout.largest,
            ours: 0,
            theirs: 0,
        }
    }

    /// Sets the two sides' numbers, which differ. The other side has the same two,
    /// exchanged.
    pub(crate) fn set_side_numbers(&mut self, ours: u32, theirs: u32) {
        (self.ours, self.theirs) = (ours, theirs);
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the local bytes of this side's request of this number.
    pub(crate) fn local(&self, number: u64) -> Range<usize> {
        let half = match self.operation.fetches() {
            false => 0,
            true => self.area,
        };
        let start = half + self.layout.slot(number);
        start..start + self.size as usize
    }

    /// Returns the offset of its remote bytes in the other side's buffer. All atomic operations
    /// change the same bytes.
    pub(crate) fn remote_offset(&self, number: u64) -> usize {
        match self.operation {
            it if it.is_atomic() => 0,
            Operation::Read => self.layout.slot(number),
            _ => self.area + self.layout.slot(number),
        }
    }

    /// Returns where messages are received.
    #[inline(always)]
    pub(crate) fn incoming(&self) -> Range<usize> {
        self.layout.incoming(0)
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
        let needed = self.layout.bytes();
        if theirs >= needed as u64 {
            return Ok(());
        }
        Err(Failure::run(format!(
            "the other side's buffer has {theirs} bytes, but {needed} are needed; give both sides the same -s or -a"
        )))
    }

    /// Fills the outgoing half, each slot with the pattern of the message of its number, and
    /// clears the incoming half. Only the slots of messages of this size are accessed.
    pub(crate) fn prepare(&mut self, size: u32) {
        assert!(
            (1..=self.layout.largest).contains(&size),
            "no size is above the largest"
        );
        self.size = size;
        let none = encode_grant(0);
        self.write(self.their_grant(), &none);
        self.write(self.our_grant().start, &none);
        for slot in 0..u64::from(self.layout.slots) {
            // Of the largest message, so that no older message passes for a new one.
            self.clear(slot, self.layout.largest);
            self.fill(slot);
        }
        if self.operation.is_atomic() {
            self.write(0, &[0; 8]);
        }
    }

    /// Fills the outgoing slot of a message with its pattern. The message before it in the slot
    /// must have arrived.
    pub(super) fn fill(&mut self, number: u64) {
        let pattern = Pattern::new(self.ours, number);
        let to = self.words(self.layout.slot(number));
        for word in 0..words(self.size) {
            // SAFETY: within the slot, whose stride is a multiple of words. No request accesses it.
            unsafe { to.add(word).write(pattern.word(word)) };
        }
    }

    /// Clears the incoming slot of a message of this size. No request may access it.
    fn clear(&mut self, number: u64, size: u32) {
        // Atomic operations fetch 0, too.
        let word = if self.operation.is_atomic() {
            u64::MAX
        } else {
            0
        };
        let to = self.words(self.area + self.layout.slot(number));
        for at in 0..words(size) {
            // SAFETY: as in `fill`.
            unsafe { to.add(at).write(word) };
        }
    }

    /// Compares an incoming slot, in which a message has arrived, with what the other side has
    /// sent.
    pub(super) fn compare(&self, slot: u64, number: u64) -> Result<(), Mismatch> {
        let (number, length) = match self.operation {
            // The other side does not know which message it is: its slots keep their patterns.
            Operation::Read => (number & u64::from(self.layout.slots - 1), self.size),
            // The last byte of a write is its sequence number.
            Operation::Write => (number, self.size - 1),
            _ => (number, self.size),
        };
        let pattern = Pattern::new(self.theirs, number);
        let from = self.words(self.area + self.layout.slot(slot));
        let differs = (0..words(length)).find_map(|at| {
            // SAFETY: within the slot, in which no message is in flight.
            let found = unsafe { from.add(at).read_volatile() };
            pattern.mismatch(at, found, length)
        });
        differs.map_or(Ok(()), Err)
    }

    /// Clears what the request of this number fills.
    pub(super) fn clear_for(&mut self, number: u64) {
        self.clear(number, self.size);
    }

    /// Returns the 8 bytes that the atomic operation of this number has fetched.
    #[inline(always)]
    pub(super) fn fetched(&self, number: u64) -> u64 {
        let from = self.words(self.area + self.layout.slot(number));
        // SAFETY: within the slot, whose request is complete.
        unsafe { from.read_volatile() }
    }

    /// Compares the incoming half with the other side's pattern: the first slot, if all messages
    /// are the same.
    pub(crate) fn verify(&self) -> Result<(), Failure> {
        let compared = self.compare(0, 0);
        let size = self.size;
        let failed =
            |it| format!("in a message of {size} bytes, {it}: the data path corrupts data");
        compared.map_err(|it| Failure::run(failed(it)))
    }

    /// Stores a sequence number in the last outgoing byte of a message.
    #[inline(always)]
    pub(crate) fn write_sequence(&mut self, slot: usize, sequence: u8) {
        let last = self.pointer(slot + self.size as usize - 1);
        // SAFETY: within the outgoing half (`prepare`), which the device only
        // reads. Volatile, because the device may read it at any time.
        unsafe { last.write_volatile(sequence) };
    }

    /// Loads the last incoming byte of a message.
    #[inline(always)]
    pub(crate) fn read_sequence(&self, slot: usize) -> u8 {
        let last = self.pointer(self.area + slot + self.size as usize - 1);
        // SAFETY: within the incoming half (`prepare`). Volatile, because the device
        // may write it at any time.
        unsafe { last.read_volatile() }
    }

    #[inline(always)]
    fn pointer(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Returns the words of a slot, which is aligned to cache lines.
    #[inline(always)]
    fn words(&self, offset: usize) -> *mut u64 {
        debug_assert!(offset.is_multiple_of(ALIGNMENT), "no slot is at {offset}");
        self.pointer(offset).cast()
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset + bytes.len() <= self.layout.bytes(),
            "it is inside the buffer"
        );
        let to = self.pointer(offset);
        // SAFETY: within the buffer, which does not overlap `bytes`. Between
        // sizes no message is in flight, so the device does not access it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// Returns the number of words that contain this many bytes.
fn words(bytes: u32) -> usize {
    (bytes as usize).div_ceil(size_of::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let layout = Layout { largest, slots: 1 };
        let mut memory = vec![CacheLine([0; ALIGNMENT]); layout.bytes() / ALIGNMENT];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap().cast();
        // SAFETY: `memory` has that many bytes and is returned with the payload;
        // only raw pointers access it.
        let mut payload = unsafe { Payload::new(base, operation, layout) };
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
        payload.write_sequence(0, 7);
        // SAFETY: within the two halves.
        unsafe {
            payload
                .pointer(payload.area + 4096)
                .write(payload.pointer(4096).read())
        };
        assert_eq!(payload.read_sequence(0), 7);
        assert!(payload.verify().is_ok());
    }
}
