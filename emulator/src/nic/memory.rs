//! The single door to the host's memory.
//!
//! The NIC lives in the process whose memory it reads and writes, as a real
//! one does by DMA: while the program runs on it. So there are no references
//! here, only addresses, and every access is volatile or atomic. The functions
//! answer a [`Fault`] so that a door which survives unmapped memory can take
//! their place; this one refuses only what can never be an address.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

/// Memory that cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// First byte of the access.
    pub address: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory at {:#x}", self.address)
    }
}

/// The lowest page is never mapped (`vm.mmap_min_addr`).
const LOWEST: u64 = 4096;
const WORD: usize = 8;

fn check(address: u64, length: usize, align: u64) -> Result<(), Fault> {
    let end = address.checked_add(length as u64);
    if address < LOWEST || end.is_none() || !address.is_multiple_of(align) {
        return Err(Fault { address });
    }
    Ok(())
}

/// Reads a big-endian word that software publishes: what software wrote
/// before it is visible after this.
///
/// # Errors
/// The address is impossible or not aligned to 4.
pub fn load_be32(address: u64) -> Result<u32, Fault> {
    check(address, 4, 4)?;
    // SAFETY: aligned by `check`; mapped because it lies in a doorbell record
    // that the driver library gave the device and keeps until the object that
    // owns it is destroyed.
    let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
    Ok(u32::from_be(word.load(Ordering::Acquire)))
}

/// Writes a big-endian word of a doorbell record.
///
/// # Errors
/// The address is impossible or not aligned to 4.
pub fn store_be32(address: u64, value: u32) -> Result<(), Fault> {
    check(address, 4, 4)?;
    // SAFETY: as in `load_be32`; software reads and writes the word whole.
    let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
    word.store(value.to_be(), Ordering::Release);
    Ok(())
}

/// Copies host memory into `into`.
///
/// # Errors
/// The range is impossible.
pub fn read(address: u64, into: &mut [u8]) -> Result<(), Fault> {
    check(address, into.len(), 1)?;
    let mut from = address as *const u8;
    let lead = from.align_offset(WORD).min(into.len());
    let (head, rest) = into.split_at_mut(lead);
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    for byte in head {
        // SAFETY: inside the range, which the caller took from a ring or a
        // registered region of this process.
        *byte = unsafe { from.read_volatile() };
        from = from.wrapping_add(1);
    }
    for word in words {
        // SAFETY: as above; aligned to 8 after the head.
        let value = unsafe { from.cast::<u64>().read_volatile() };
        *word = value.to_ne_bytes();
        from = from.wrapping_add(WORD);
    }
    for byte in tail {
        // SAFETY: as above.
        *byte = unsafe { from.read_volatile() };
        from = from.wrapping_add(1);
    }
    Ok(())
}

/// Copies `bytes` into host memory in rising order. The last piece is stored
/// only when all before it are visible: a program may watch the last byte.
///
/// # Errors
/// The range is impossible.
pub fn write(address: u64, bytes: &[u8]) -> Result<(), Fault> {
    check(address, bytes.len(), 1)?;
    let to = address as *mut u8;
    let lead = to.align_offset(WORD).min(bytes.len());
    let (head, rest) = bytes.split_at(lead);
    let (words, tail) = rest.as_chunks::<WORD>();
    let mut to = store_bytes(to, head, words.is_empty() && tail.is_empty());
    for (left, word) in (0..words.len()).rev().zip(words) {
        if left == 0 && tail.is_empty() {
            fence(Ordering::Release);
        }
        // SAFETY: inside the range, which the caller took from a ring or a
        // registered region of this process; aligned to 8 after the head.
        unsafe { to.cast::<u64>().write_volatile(u64::from_ne_bytes(*word)) };
        to = to.wrapping_add(WORD);
    }
    store_bytes(to, tail, true);
    Ok(())
}

/// Stores single bytes and returns the address after them.
fn store_bytes(mut to: *mut u8, bytes: &[u8], ends_the_copy: bool) -> *mut u8 {
    for (left, byte) in (0..bytes.len()).rev().zip(bytes) {
        if left == 0 && ends_the_copy {
            fence(Ordering::Release);
        }
        // SAFETY: inside the range that `write` was given.
        unsafe { to.write_volatile(*byte) };
        to = to.wrapping_add(1);
    }
    to
}

/// Stores the byte that hands a CQE over: everything written before it is
/// visible to whoever sees it.
///
/// # Errors
/// The address is impossible.
pub fn publish_byte(address: u64, value: u8) -> Result<(), Fault> {
    check(address, 1, 1)?;
    // SAFETY: inside a CQ ring, which lives until the CQ is destroyed.
    let byte = unsafe { AtomicU8::from_ptr(address as *mut u8) };
    byte.store(value, Ordering::Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_alignment_and_length_are_exact() {
        let source: Vec<u8> = (0..64).map(|n| n ^ 0x5a).collect();
        for start in 0..9 {
            for length in 0..40 {
                let mut host = vec![0xee_u8; 64];
                let base = host.as_mut_ptr() as u64;
                write(base + start, &source[..length]).unwrap();
                let mut back = vec![0; length];
                read(base + start, &mut back).unwrap();
                assert_eq!(back, source[..length]);
                let touched = start as usize..start as usize + length;
                let outside = host
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| !touched.contains(n));
                assert!(outside.into_iter().all(|(_, byte)| *byte == 0xee));
            }
        }
    }

    #[test]
    fn impossible_addresses_are_faults() {
        assert_eq!(load_be32(0), Err(Fault { address: 0 }));
        assert_eq!(load_be32(0x1001), Err(Fault { address: 0x1001 }));
        assert_eq!(
            read(u64::MAX - 1, &mut [0; 4]),
            Err(Fault {
                address: u64::MAX - 1
            })
        );
        assert_eq!(write(8, &[1]), Err(Fault { address: 8 }));
    }
}
