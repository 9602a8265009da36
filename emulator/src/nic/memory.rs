//! The single door to the host's memory.
//!
//! The NIC lives in the process whose memory it reads and writes, as a real
//! one does by DMA: while the program runs on it. So there are no references
//! here, only addresses, and every access is volatile or atomic. The functions
//! answer a [`Fault`] so that a door which survives unmapped memory can take
//! their place; this one refuses only what can never be an address.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

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
/// Bytes copied by words in one go: a constant, so that the loop is unrolled.
const BLOCK: usize = 64;

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

/// Replaces the 8 bytes at `address` by `swap` if they are `compare`; answers
/// what was there. Atomic towards every thread and every other NIC.
///
/// # Errors
/// The address is impossible or not aligned to 8.
pub fn compare_swap(address: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
    let word = word_of_region(address)?;
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    let was = word.compare_exchange(compare, swap, success, failure);
    Ok(was.unwrap_or_else(|other| other))
}

/// Adds to the 8 bytes at `address`; answers what was there. Atomic as
/// [`compare_swap`].
///
/// # Errors
/// As [`compare_swap`].
pub fn fetch_add(address: u64, add: u64) -> Result<u64, Fault> {
    Ok(word_of_region(address)?.fetch_add(add, Ordering::AcqRel))
}

fn word_of_region<'a>(address: u64) -> Result<&'a AtomicU64, Fault> {
    check(address, 8, 8)?;
    // SAFETY: aligned by `check`; mapped and writable because it lies in a
    // region that was registered for remote atomics and whose key was looked
    // up just before. The reference does not outlive the one operation, and
    // software that shares the word with atomics uses atomics itself.
    Ok(unsafe { AtomicU64::from_ptr(address as *mut u64) })
}

/// Copies host memory into `into`. Aligned words of 2, 4 and 8 bytes are read
/// whole.
///
/// # Errors
/// The range is impossible.
pub fn read(address: u64, into: &mut [u8]) -> Result<(), Fault> {
    check(address, into.len(), 1)?;
    let mut at = address;
    let mut rest = into;
    while !rest.is_empty() {
        let bytes = step(at, rest.len());
        let (piece, behind) = rest.split_at_mut(bytes);
        if bytes == BLOCK {
            for (word, into) in (0_u64..).zip(piece.as_chunks_mut::<WORD>().0) {
                *into = load::<u64>(at + word * WORD as u64).to_ne_bytes();
            }
        } else {
            match bytes {
                8 => piece.copy_from_slice(&load::<u64>(at).to_ne_bytes()),
                4 => piece.copy_from_slice(&load::<u32>(at).to_ne_bytes()),
                2 => piece.copy_from_slice(&load::<u16>(at).to_ne_bytes()),
                _ => piece[0] = load(at),
            }
        }
        at += bytes as u64;
        rest = behind;
    }
    Ok(())
}

/// Copies `bytes` into host memory in rising order. Aligned words of 2, 4 and
/// 8 bytes are stored whole, and the last one only when all before it are
/// visible: a program may watch it.
///
/// # Errors
/// The range is impossible.
pub fn write(address: u64, bytes: &[u8]) -> Result<(), Fault> {
    check(address, bytes.len(), 1)?;
    let mut at = address;
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = step(at, rest.len());
        let (piece, behind) = rest.split_at(length);
        if behind.is_empty() {
            fence(Ordering::Release);
        }
        match *piece {
            [a] => store(at, a),
            [a, b] => store(at, u16::from_ne_bytes([a, b])),
            [a, b, c, d] => store(at, u32::from_ne_bytes([a, b, c, d])),
            _ => {
                for (word, bytes) in (0_u64..).zip(piece.as_chunks::<WORD>().0) {
                    store(at + word * WORD as u64, u64::from_ne_bytes(*bytes));
                }
            }
        }
        at += length as u64;
        rest = behind;
    }
    Ok(())
}

/// How many bytes to copy next: a naturally aligned word, or many of 8 bytes.
/// The last word is always a step of its own.
#[inline(always)]
fn step(address: u64, left: usize) -> usize {
    let aligned = 1 << address.trailing_zeros().min(WORD.trailing_zeros());
    if aligned == WORD && left > BLOCK {
        BLOCK
    } else {
        aligned.min(1 << left.ilog2())
    }
}

#[inline(always)]
fn load<T: Copy>(address: u64) -> T {
    // SAFETY: inside the range that `read` was given, which its caller took
    // from a ring or a registered region of this process; `step` aligns it.
    unsafe { (address as *const T).read_volatile() }
}

#[inline(always)]
fn store<T: Copy>(address: u64, value: T) {
    // SAFETY: inside the range that `write` was given, as in `load`.
    unsafe { (address as *mut T).write_volatile(value) };
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
        let source: Vec<u8> = (0..200).map(|n| n ^ 0x5a).collect();
        for start in 0..9 {
            for length in (0..40).chain([63, 64, 65, 127, 128, 129, 200]) {
                let mut host = vec![0xee_u8; 224];
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
    fn atomics_answer_what_was_there() {
        let mut host = vec![7_u64, 7];
        let at = host.as_mut_ptr() as u64;
        assert_eq!(compare_swap(at, 6, 9), Ok(7), "no match, no change");
        assert_eq!(compare_swap(at, 7, u64::MAX), Ok(7));
        assert_eq!(fetch_add(at, 3), Ok(u64::MAX));
        assert_eq!(fetch_add(at, 0), Ok(2), "it wraps");
        let mut neighbour = [0; 8];
        read(at + 8, &mut neighbour).unwrap();
        assert_eq!(neighbour, 7_u64.to_ne_bytes());
        assert_eq!(fetch_add(at + 4, 1), Err(Fault { address: at + 4 }));
    }

    #[test]
    fn atomics_of_two_threads_do_not_lose_each_other() {
        let mut host = vec![0_u64];
        let at = host.as_mut_ptr() as u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    fetch_add(at, 1).unwrap();
                }
            });
            for _ in 0..20_000 {
                let mut seen = fetch_add(at, 0).unwrap();
                while let Ok(was) = compare_swap(at, seen, seen + 1)
                    && was != seen
                {
                    seen = was;
                }
            }
        });
        assert_eq!(fetch_add(at, 0), Ok(40_000));
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
