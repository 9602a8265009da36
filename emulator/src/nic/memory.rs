//! Access to the host's memory. All accesses of the NIC go through this module.
//!
//! The NIC runs in the process whose memory it accesses, while the program runs,
//! as a hardware NIC does by DMA. There are therefore no references here, only
//! addresses, and every access uses `crate::guard`. The functions return a
//! [`Fault`] where the memory is not mapped or not writable, as after a program
//! has unmapped memory that it gave to the device. Addresses of pinned pages
//! (`crate::residency::pins`) are used like others.

use std::fmt;

use crate::guard;
use crate::residency::pins;

/// Memory that cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// First byte of the access.
    pub address: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no accessible memory at {:#x}", self.address)
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

/// Loads a big-endian word that software publishes: what software stored before it
/// is visible after this call.
///
/// # Errors
/// Returns an error if the memory is not mapped or the address is not aligned to 4.
pub(crate) fn load_be32(address: u64) -> Result<u32, Fault> {
    check(address, 4, 4)?;
    let word: u32 = guard::load(address).map_err(|_| Fault { address })?;
    Ok(u32::from_be(word))
}

/// Stores a big-endian word of a doorbell record.
///
/// # Errors
/// Returns an error if the memory is not mapped or the address is not aligned to 4.
pub(crate) fn store_be32(address: u64, value: u32) -> Result<(), Fault> {
    check(address, 4, 4)?;
    guard::store(address, value.to_be()).map_err(|_| Fault { address })
}

/// Replaces the 8 bytes at `address` by `swap` if they equal `compare`. Returns the
/// previous value. Atomic with respect to all threads and all NICs.
///
/// # Errors
/// Returns an error if the memory is not mapped or the address is not aligned to 8.
pub(crate) fn compare_swap(address: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
    check(address, 8, 8)?;
    if pins::is_pinned(address) {
        let to = |was| if was == compare { swap } else { was };
        return pins::update(address, to).ok_or(Fault { address });
    }
    guard::compare_swap(address, compare, swap).map_err(|_| Fault { address })
}

/// Adds to the 8 bytes at `address`. Returns the previous value. Atomic like
/// [`compare_swap`].
///
/// # Errors
/// The same as for [`compare_swap`].
pub(crate) fn fetch_add(address: u64, add: u64) -> Result<u64, Fault> {
    check(address, 8, 8)?;
    if pins::is_pinned(address) {
        return pins::update(address, |was| was.wrapping_add(add)).ok_or(Fault { address });
    }
    guard::add(address, add).map_err(|_| Fault { address })
}

/// Copies host memory to `into`. Aligned words of 2, 4 and 8 bytes are read whole.
///
/// # Errors
/// Returns an error if part of the range is not mapped.
pub fn read(address: u64, into: &mut [u8]) -> Result<(), Fault> {
    check(address, into.len(), 1)?;
    if pins::is_pinned(address) {
        return pins::read(address, into).ok_or(Fault { address });
    }
    let fault = |_| Fault { address };
    let mut at = address;
    let mut rest = into;
    while !rest.is_empty() {
        let bytes = step(at, rest.len());
        let (piece, behind) = rest.split_at_mut(bytes);
        match bytes {
            1 => piece[0] = guard::load(at).map_err(fault)?,
            2 => piece.copy_from_slice(&guard::load::<u16>(at).map_err(fault)?.to_ne_bytes()),
            4 => piece.copy_from_slice(&guard::load::<u32>(at).map_err(fault)?.to_ne_bytes()),
            _ => guard::load_words(at, piece).map_err(fault)?,
        }
        at += bytes as u64;
        rest = behind;
    }
    Ok(())
}

/// Copies `bytes` to host memory in ascending order. Aligned words of 2, 4 and 8
/// bytes are stored whole, and the last one only after all before it are visible,
/// since a program may poll it.
///
/// # Errors
/// Returns an error if part of the range is not mapped.
pub fn write(address: u64, bytes: &[u8]) -> Result<(), Fault> {
    check(address, bytes.len(), 1)?;
    if pins::is_pinned(address) {
        return pins::write(address, bytes).ok_or(Fault { address });
    }
    let fault = |_| Fault { address };
    let mut at = address;
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = step(at, rest.len());
        let (piece, behind) = rest.split_at(length);
        match *piece {
            [a] => guard::store(at, a),
            [a, b] => guard::store(at, u16::from_ne_bytes([a, b])),
            [a, b, c, d] => guard::store(at, u32::from_ne_bytes([a, b, c, d])),
            _ => guard::store_words(at, piece),
        }
        .map_err(fault)?;
        at += length as u64;
        rest = behind;
    }
    Ok(())
}

/// Returns the number of bytes to copy next: a naturally aligned word, or a multiple
/// of 8 bytes. The last word is always copied separately.
#[inline(always)]
fn step(address: u64, left: usize) -> usize {
    let aligned = 1 << address.trailing_zeros().min(WORD.trailing_zeros());
    if aligned == WORD && left > WORD {
        (left - 1) / WORD * WORD
    } else {
        aligned.min(1 << left.ilog2())
    }
}

/// Stores the byte that passes a CQE to software: everything stored before it is
/// visible once the byte is.
///
/// # Errors
/// Returns an error if the memory is not mapped.
pub fn publish_byte(address: u64, value: u8) -> Result<(), Fault> {
    check(address, 1, 1)?;
    guard::store(address, value).map_err(|_| Fault { address })
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
                let written = start as usize..start as usize + length;
                let outside = host
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| !written.contains(n));
                assert!(outside.into_iter().all(|(_, byte)| *byte == 0xee));
            }
        }
    }

    #[test]
    fn atomics_return_the_previous_value() {
        let mut host = vec![7_u64, 7];
        let at = host.as_mut_ptr() as u64;
        assert_eq!(compare_swap(at, 6, 9), Ok(7), "no match");
        assert_eq!(compare_swap(at, 7, u64::MAX), Ok(7));
        assert_eq!(fetch_add(at, 3), Ok(u64::MAX));
        assert_eq!(fetch_add(at, 0), Ok(2), "it wraps");
        let mut next_word = [0; 8];
        read(at + 8, &mut next_word).unwrap();
        assert_eq!(next_word, 7_u64.to_ne_bytes());
        assert_eq!(fetch_add(at + 4, 1), Err(Fault { address: at + 4 }));
    }

    #[test]
    fn concurrent_atomics_lose_no_update() {
        let mut host = vec![0_u64];
        let at = host.as_mut_ptr() as u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    fetch_add(at, 1).unwrap();
                }
            });
            for _ in 0..20_000 {
                let mut expected = fetch_add(at, 0).unwrap();
                while let Ok(was) = compare_swap(at, expected, expected + 1)
                    && was != expected
                {
                    expected = was;
                }
            }
        });
        assert_eq!(fetch_add(at, 0), Ok(40_000));
    }

    #[test]
    fn invalid_addresses_are_faults() {
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
