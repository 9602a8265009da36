//! Frames: the messages of the control connection in its byte stream.
//!
//! ```text
//! 0  magic "DATB"             4  version (u16)
//! 6  payload length (u32)    10  CRC-32 of bytes 0..10 and the payload
//! 14 payload
//! ```
//!
//! Big-endian. Magic and version are at the same offsets in all versions, so
//! that a side can name the version that it refuses.

use std::io::{self, Read};

/// First bytes of every frame.
const MAGIC: [u8; 4] = *b"DATB";
/// Version of frames and messages. A side refuses any other version.
const VERSION: u16 = 6;
/// Bytes of a header, and of the part of it that the checksum is for.
const HEADER: usize = 14;
const CHECKED: usize = 10;
/// Most bytes of a payload.
pub(super) const LONGEST: usize = 4096;

/// Why a frame was not received.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error(
        "the bytes on the control connection are not dat-bench's protocol; --peer perftest speaks that of perftest"
    )]
    NotDatBench,
    #[error(
        "the other side's dat-bench has version {0} of the control protocol, this one has version {VERSION}; use the same build on both sides"
    )]
    Version(u16),
    #[error("the control connection announced a message of {0} bytes; the limit is {LONGEST}")]
    TooLong(usize),
    #[error("a message on the control connection is damaged ({0})")]
    Damaged(&'static str),
    #[error("the other side closed the control connection")]
    Closed,
    #[error("the other side ended the run: {0}")]
    Aborted(String),
    #[error("the other side sent nothing for {0} s")]
    TimedOut(f64),
    #[error("control connection: {0}")]
    Io(#[from] io::Error),
}

/// Returns a text for a message: short enough for its payload, and without control characters,
/// because the other side prints it.
pub(super) fn text(text: &str) -> String {
    const LONGEST_TEXT: usize = LONGEST / 4;
    text[..text.floor_char_boundary(LONGEST_TEXT)].replace(char::is_control, " ")
}

/// Returns the frame of a payload.
///
/// # Panics
/// If the payload is longer than [`LONGEST`], which no message is.
pub(super) fn encode(payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    assert!(length <= LONGEST, "a message of {length} bytes");
    let mut frame = Vec::with_capacity(HEADER + length);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&VERSION.to_be_bytes());
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    let check = checksum(&frame, payload);
    frame.extend_from_slice(&check.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Returns the CRC-32 of Ethernet and zlib of a header without checksum and its payload.
fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(payload);
    crc.finalize()
}

/// Returns the length of the payload behind a header, and its checksum.
fn decode(header: &[u8; HEADER]) -> Result<(usize, u32), FrameError> {
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
    if header[..4] != MAGIC {
        return Err(FrameError::NotDatBench);
    }
    if half(4) != VERSION {
        return Err(FrameError::Version(half(4)));
    }
    match word(6) as usize {
        length if length <= LONGEST => Ok((length, word(CHECKED))),
        length => Err(FrameError::TooLong(length)),
    }
}

/// The part of a frame that has arrived.
#[derive(Default)]
pub(super) struct Arriving(Vec<u8>);

impl Arriving {
    /// Reads once from the stream, and no byte behind the frame. Returns the payload if all of
    /// the frame has arrived; none if it has not, also if the stream has nothing to read.
    pub(super) fn read(&mut self, stream: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
        let wanted = match self.0.first_chunk::<HEADER>() {
            Some(header) => HEADER + decode(header)?.0,
            None => HEADER,
        };
        let start = self.0.len();
        self.0.resize(wanted, 0);
        let read = stream.read(&mut self.0[start..]);
        self.0.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err(FrameError::Closed),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return Ok(None),
                // The last two are what keep-alive reports for an unreachable host.
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable => return Err(FrameError::Closed),
                _ => return Err(error.into()),
            },
        }
        let Some((header, payload)) = self.0.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (length, check) = decode(header)?;
        if payload.len() < length {
            return Ok(None);
        }
        if checksum(&header[..CHECKED], payload) != check {
            return Err(FrameError::Damaged("checksum"));
        }
        let payload = payload.to_vec();
        self.0.clear();
        Ok(Some(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads one frame.
    fn read(mut bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut arriving = Arriving::default();
        loop {
            if let Some(payload) = arriving.read(&mut bytes)? {
                return Ok(payload);
            }
        }
    }

    #[test]
    fn a_frame_has_the_documented_bytes_and_a_published_checksum() {
        let frame = encode(b"xyz");
        assert_eq!(frame[..10], *b"DATB\x00\x06\x00\x00\x00\x03");
        assert_eq!(frame[14..], *b"xyz");
        assert_eq!(checksum(b"1234", b"56789"), 0xCBF4_3926);
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let mut frame = encode(b"");
        frame[5] = 9;
        assert!(matches!(read(&frame), Err(FrameError::Version(9))));
    }

    proptest! {
        #[test]
        fn reading_returns_what_was_encoded_and_no_byte_behind_it(
            payload in proptest::collection::vec(any::<u8>(), 1..300), behind in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let bytes = [encode(&payload), behind.clone()].concat();
            let (mut stream, mut arriving) = (&bytes[..], Arriving::default());
            let read = std::iter::repeat_with(|| arriving.read(&mut stream).unwrap()).find_map(|read| read);
            prop_assert_eq!((read, stream), (Some(payload), &behind[..]));
        }

        #[test]
        fn one_flipped_bit_is_detected(
            payload in proptest::collection::vec(any::<u8>(), 1..100), at: proptest::sample::Index, bit in 0..8u8,
        ) {
            let mut frame = encode(&payload);
            let at = at.index(frame.len());
            frame[at] ^= 1 << bit;
            prop_assert!(read(&frame).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), HEADER..200)) {
            prop_assert!(read(&bytes).is_err());
        }
    }
}
