//! The messages of netlink: a header, and attributes with a type and a length
//! (`netlink`(7)).

use libc::EINVAL;

use crate::refusal::OrRefuse;
use crate::spec::Result;

/// Size of a message header, and of an attribute header.
pub(super) const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// One message of the application.
pub(super) struct Request<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns the first message of a datagram, unless it is incomplete.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let bytes = bytes.get(..len)?;
        (len >= HEADER).then_some(Self { bytes })
    }

    pub(super) fn word(&self, offset: usize) -> u32 {
        let bytes = self.bytes[offset..].first_chunk();
        u32::from_ne_bytes(*bytes.expect("the header is complete"))
    }

    /// Returns the type: the client and the command.
    pub(super) fn kind(&self) -> u16 {
        self.word(4) as u16
    }

    pub(super) fn flags(&self) -> u16 {
        (self.word(4) >> 16) as u16
    }

    pub(super) fn sequence(&self) -> u32 {
        self.word(8)
    }

    pub(super) fn attribute(&self, wanted: u16) -> Option<&'a [u8]> {
        let mut rest = &self.bytes[HEADER..];
        loop {
            let [a, b, c, d] = *rest.first_chunk::<ATTRIBUTE_HEADER>()?;
            let (len, kind) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
            let len = usize::from(len);
            let value = rest.get(ATTRIBUTE_HEADER..len)?;
            if kind == wanted {
                return Some(value);
            }
            rest = rest.get(len.next_multiple_of(4)..)?;
        }
    }

    /// Returns the value of an attribute of 32 bits.
    ///
    /// # Errors
    /// `EINVAL` if it is absent or shorter.
    pub(super) fn number(&self, wanted: u16) -> Result<u32> {
        let value = self.attribute(wanted).and_then(<[u8]>::first_chunk);
        value
            .map(|bytes| u32::from_ne_bytes(*bytes))
            .or_refuse(EINVAL, "the request does not name its device or port")
    }
}

/// A message to the application.
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new(kind: u16, flags: u16, sequence: u32, port_id: u32) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(port_id.to_ne_bytes());
        Self(bytes)
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let len = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn u8(self, kind: u16, value: u8) -> Self {
        self.attribute(kind, &[value])
    }

    pub(super) fn u32(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub(super) fn u64(self, kind: u16, value: u64) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub(super) fn string(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that contains those that `fill` appends.
    pub(super) fn nested(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        let mut filled = fill(self.attribute(kind, &[]));
        let len = u16::try_from(filled.0.len() - start).unwrap_or(u16::MAX);
        filled.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        filled
    }

    /// Writes the length to the header.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}
