//! Memory that processes share under an identifier (`DAT_MEM_TYPE_SHARED_VIRTUAL`).
//!
//! Verbs cannot share a translation, so every process registers the memory for itself. The library
//! cannot check the meaning of an identifier in other processes. In this process, an identifier
//! names one piece of one shared object as long as an LMR uses it.

use std::collections::HashMap;

use crate::error::{DatError, Result};
use crate::per_process::PerProcess;
use crate::status::{ReturnType, Subtype};

type Identifier = [u8; 40];

/// A piece of a shared object, independent of the address it is mapped at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// Device and inode, as the kernel prints them.
    object: String,
    offset: u64,
    length: u64,
}

/// The pieces that identifiers name in this process, and how many LMRs have each.
static NAMES: PerProcess<HashMap<Identifier, (Piece, u32)>> = PerProcess::new();

/// An identifier in use, until this is dropped.
#[derive(Debug)]
pub(super) struct Name(Identifier);

impl Name {
    /// Names memory by an identifier.
    ///
    /// # Errors
    /// - The memory is not mapped: `DAT_INVALID_PARAMETER`, argument 3.
    /// - It is not shared, or belongs to several objects: `DAT_INVALID_STATE`.
    /// - The identifier names something else: `DAT_INVALID_STATE_LMR_IN_USE`.
    pub(super) fn claim(identifier: Identifier, address: usize, length: u64) -> Result<Self> {
        // Read as bytes: the name of a mapped file may not be UTF-8.
        let maps = std::fs::read("/proc/self/maps").map_err(|error| {
            DatError::new(
                ReturnType::InsufficientResources,
                Subtype::NoSubtype,
                format!("cannot check whether the memory is shared: /proc/self/maps: {error}"),
            )
        })?;
        let piece = piece(&maps, address as u64, length)?;
        let mut names = NAMES.lock();
        let (known, users) = names.entry(identifier).or_insert((piece.clone(), 0));
        if *known != piece {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStateLmrInUse,
                "the identifier names other shared memory in this process: expected the same memory for \
                 the same identifier",
            ));
        }
        *users += 1;
        Ok(Self(identifier))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut names = NAMES.lock();
        if let Some((_, users)) = names.get_mut(&self.0) {
            *users -= 1;
            if *users == 0 {
                names.remove(&self.0);
            }
        }
    }
}

/// A line of `/proc/self/maps` (proc(5)).
struct Mapping<'a> {
    start: u64,
    end: u64,
    shared: bool,
    offset: u64,
    device: &'a str,
    inode: &'a str,
}

impl<'a> Mapping<'a> {
    /// Parses a line up to the name of the file, which is ignored.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let number = |text| u64::from_str_radix(text, 16).ok();
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .map_while(|word| str::from_utf8(word).ok());
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        Some(Self {
            start: number(start)?,
            end: number(end)?,
            shared: rights.ends_with('s'),
            offset: number(words.next()?)?,
            device: words.next()?,
            inode: words.next()?,
        })
    }
}

/// Returns the piece of a shared object that the memory maps.
fn piece(maps: &[u8], address: u64, length: u64) -> Result<Piece> {
    let end = address + length;
    let mut at = address;
    let mut found: Option<Piece> = None;
    let lines = maps.split(|&byte| byte == b'\n');
    for mapping in lines.filter_map(Mapping::parse) {
        if at >= end {
            break;
        }
        if at < mapping.start || at >= mapping.end {
            continue;
        }
        let object = format!("{} {}", mapping.device, mapping.inode);
        let offset = mapping.offset + (at - mapping.start);
        let goes_on = found
            .as_ref()
            .is_none_or(|piece| piece.object == object && piece.offset + (at - address) == offset);
        if !mapping.shared || !goes_on {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::NoSubtype,
                format!(
                    "{length} bytes at {address:#x} are not a mapping of one shared object (mmap with MAP_SHARED)"
                ),
            ));
        }
        found.get_or_insert(Piece {
            object,
            offset,
            length,
        });
        at = mapping.end;
    }
    found.filter(|_| at >= end).ok_or_else(|| {
        DatError::new(
            ReturnType::InvalidParameter,
            Subtype::InvalidArg3,
            format!("{length} bytes at {address:#x} are not all mapped: expected mapped memory"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
1000-3000 rw-s 00005000 00:05 77 /dev/shm/one
3000-4000 r--s 00007000 00:05 77 /dev/shm/one
4000-5000 rw-s 00000000 00:05 78 /dev/shm/two
5000-6000 rw-p 00000000 00:00 0
8000-9000 rw-s 00000000 00:01 9                            /dev/zero (deleted)
a000-b000 rw-s 00001000 00:05 79 /dev/shm/\xff\xfe \x80
";

    #[test]
    fn shared_memory_must_be_one_object_without_holes() {
        let of = |address, length| piece(MAPS, address, length);
        let one = of(0x1800, 0x2000).expect("both parts of one");
        assert_eq!((one.object.as_str(), one.offset), ("00:05 77", 0x5800));
        let kind = |address, length| of(address, length).unwrap_err().code().kind();
        let (state, parameter) = (
            Some(ReturnType::InvalidState),
            Some(ReturnType::InvalidParameter),
        );
        assert_eq!(kind(0x3800, 0x1000), state, "two objects");
        assert_eq!(kind(0x5000, 1), state, "private");
        assert_eq!(kind(0x4fff, 2), state, "shared and private");
        assert_eq!(kind(0x7000, 1), parameter, "not mapped");
        assert_eq!(kind(0x8fff, 2), parameter, "the end is not mapped");
        assert!(of(0x8000, 0x1000).is_ok());
        let odd = of(0xa000, 0x1000).expect("a name that is not UTF-8");
        assert_eq!((odd.object.as_str(), odd.offset), ("00:05 79", 0x1000));
    }
}
