//! Frames: the messages of the control connection in its byte stream.
//!
//! ```text
//! 0  magic "DATB"     4  version (u16)    6  kind (u16)
//! 8  payload length (u32)                12  CRC-32 of bytes 0..12 and the payload
//! 16 payload
//! ```
//!
//! Big-endian. Magic and version are at the same offsets in all versions, so
//! that a side can name the version that it refuses.

use std::io;

/// First bytes of every frame.
const MAGIC: [u8; 4] = *b"DATB";
/// Version of frames and messages. A side refuses any other version.
pub(super) const VERSION: u16 = 4;
/// Bytes of a header.
pub(super) const HEADER: usize = 16;
/// Most bytes of a payload.
pub(super) const LONGEST: usize = 4096;

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u16,
    pub(super) length: usize,
    check: u32,
}

/// Why a frame was not received.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("the bytes on the control connection are not dat-bench's protocol")]
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

/// Returns the frame of a payload.
///
/// # Panics
/// If the payload is longer than [`LONGEST`], which no message is.
pub(super) fn encode(kind: u16, payload: &[u8]) -> Vec<u8> {
    assert!(
        payload.len() <= LONGEST,
        "a message of {} bytes",
        payload.len()
    );
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&VERSION.to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(
        &u32::try_from(payload.len())
            .expect("at most LONGEST")
            .to_be_bytes(),
    );
    let check = crc32(&[&frame, payload]);
    frame.extend_from_slice(&check.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

impl Header {
    /// Decodes a header. The payload must then be read and checked.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Self, FrameError> {
        if bytes[..4] != MAGIC {
            return Err(FrameError::NotDatBench);
        }
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        if half(4) != VERSION {
            return Err(FrameError::Version(half(4)));
        }
        let length = word(8) as usize;
        if length > LONGEST {
            return Err(FrameError::TooLong(length));
        }
        Ok(Self {
            kind: half(6),
            length,
            check: word(12),
        })
    }

    /// Checks length and checksum of the payload.
    pub(super) fn check(&self, header: &[u8; HEADER], payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() != self.length || crc32(&[&header[..12], payload]) != self.check {
            return Err(FrameError::Damaged("checksum"));
        }
        Ok(())
    }
}

/// CRC-32 of Ethernet and zlib (reflected, polynomial 0xEDB88320), bit by bit:
/// a run has only a few small frames.
fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in parts.iter().copied().flatten() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Result<(u16, Vec<u8>), FrameError> {
        let (header, payload) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(FrameError::Closed)?;
        let decoded = Header::decode(header)?;
        decoded.check(header, payload)?;
        Ok((decoded.kind, payload.to_vec()))
    }

    #[test]
    fn crc_32_has_its_published_check_value() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xCBF4_3926);
    }

    #[test]
    fn a_frame_has_the_documented_bytes() {
        let frame = encode(0x0102, b"xyz");
        assert_eq!(frame[..12], *b"DATB\x00\x04\x01\x02\x00\x00\x00\x03");
        assert_eq!(frame[16..], *b"xyz");
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let mut frame = encode(1, b"");
        frame[5] = 9;
        assert!(matches!(decode(&frame), Err(FrameError::Version(9))));
    }

    proptest! {
        #[test]
        fn decoding_returns_what_was_encoded(kind: u16, payload in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(decode(&encode(kind, &payload)).unwrap(), (kind, payload));
        }

        #[test]
        fn one_flipped_bit_is_detected(
            payload in proptest::collection::vec(any::<u8>(), 0..100), at: proptest::sample::Index, bit in 0..8u8,
        ) {
            let mut frame = encode(7, &payload);
            let at = at.index(frame.len());
            frame[at] ^= 1 << bit;
            prop_assert!(decode(&frame).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), HEADER..200)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }
}
