//! The messages of the TCP manager as bytes.
//!
//! A frame is a header of eight bytes and a body; numbers are big-endian:
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..4 | magic `dCM\x17` |
//! | 4 | version of everything after the header |
//! | 5 | kind |
//! | 6..8 | length of the body |
//!
//! The header and [`Reject`](Kind::Reject) are the same in every version, so that
//! one version can refuse another with a reason. A reader takes the parameters that
//! it knows and skips those that a later minor change appended.
//!
//! Decision: `docs/decisions/071-own-messages-over-tcp.md`

use crate::cm::{MAX_PRIVATE_DATA, Parameters};
use crate::control::{EndpointAddress, LinkLayer};

const MAGIC: [u8; 4] = *b"dCM\x17";
/// The protocol version of this file.
pub(super) const VERSION: u8 = 1;
const HEADER: usize = 8;
/// The size of the parameters of this version, in bytes.
const PARAMETERS: usize = 31;
/// The longest body in bytes: longer than any of this version, and the most that a
/// reader has to store.
const MAX_BODY: usize = 1024;
/// The longest frame in bytes.
pub(super) const MAX_FRAME: usize = HEADER + MAX_BODY;

const _: () = assert!(8 + 2 + PARAMETERS + 2 + MAX_PRIVATE_DATA <= MAX_BODY);

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// From the active side: requests a connection.
    Request {
        qualifier: u64,
        parameters: Parameters,
        private_data: Vec<u8>,
    },
    /// From the passive side: accepts the request.
    Accept {
        parameters: Parameters,
        private_data: Vec<u8>,
    },
    /// From the passive side: rejects the request.
    Reject(Reason),
    /// From the active side: its endpoint is ready.
    Ready,
    /// From the active side: its endpoint cannot be made ready, although the
    /// request was accepted. From either side: the connection has failed.
    Failed,
    /// From either side: disconnects, or gives up.
    Disconnect,
    /// The answer to a [`Frame::Disconnect`].
    DisconnectReply,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// By the application, with its private data.
    Application(Vec<u8>),
    /// No listener, or no answer to the request.
    NoListener,
    /// The request's version is unknown to the sender of the rejection, whose
    /// version this is.
    Version(u8),
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("not this protocol")]
    Magic,
    #[error("version {0} of the protocol, but this side uses version {VERSION}")]
    Version(u8),
    #[error("a message of unknown kind {0}")]
    Kind(u8),
    #[error("a message of {0} bytes, more than there are")]
    TooLong(usize),
    #[error("a message with invalid contents")]
    Contents,
}

/// Takes the first frame off `bytes`. Returns the frame and its length, or `None`
/// if there are too few bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
    // Other protocols are recognised by the first differing byte, without waiting
    // for a whole header.
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(Malformed::Magic);
    }
    let Some((&[_, _, _, _, version, kind, high, low], rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if version != VERSION && kind != Kind::Reject as u8 {
        return Err(Malformed::Version(version));
    }
    if length > MAX_BODY {
        return Err(Malformed::TooLong(length));
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let frame = decode(kind, version, Reader(body))?;
    Ok(Some((frame, HEADER + length)))
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Request = 1,
    Accept = 2,
    Reject = 3,
    Ready = 4,
    Failed = 5,
    Disconnect = 6,
    DisconnectReply = 7,
}

fn decode(kind: u8, version: u8, mut body: Reader<'_>) -> Result<Frame, Malformed> {
    const REQUEST: u8 = Kind::Request as u8;
    const ACCEPT: u8 = Kind::Accept as u8;
    const REJECT: u8 = Kind::Reject as u8;
    let frame = match kind {
        REQUEST => Frame::Request {
            qualifier: u64::from_be_bytes(body.array()?),
            parameters: body.parameters()?,
            private_data: body.private_data()?,
        },
        ACCEPT => Frame::Accept {
            parameters: body.parameters()?,
            private_data: body.private_data()?,
        },
        REJECT => match (version, body.byte()?) {
            (VERSION, 1) => Frame::Reject(Reason::Application(match body.0 {
                [] => Vec::new(),
                _ => body.private_data()?,
            })),
            (VERSION, 2) => Frame::Reject(Reason::NoListener),
            (_, 3) => Frame::Reject(Reason::Version(version)),
            _ => return Err(Malformed::Contents),
        },
        _ => match [
            (Kind::Ready, Frame::Ready),
            (Kind::Failed, Frame::Failed),
            (Kind::Disconnect, Frame::Disconnect),
            (Kind::DisconnectReply, Frame::DisconnectReply),
        ]
        .into_iter()
        .find(|&(known, _)| known as u8 == kind)
        {
            Some((_, frame)) => frame,
            None => return Err(Malformed::Kind(kind)),
        },
    };
    // Nothing may follow, so that an unknown addition is an error rather than
    // ignored.
    if body.0.is_empty() {
        Ok(frame)
    } else {
        Err(Malformed::Contents)
    }
}

/// The unread bytes of a body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (&array, rest) = self.0.split_first_chunk().ok_or(Malformed::Contents)?;
        self.0 = rest;
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// Reads bytes that follow their length.
    fn counted(&mut self) -> Result<&'a [u8], Malformed> {
        let length = u16::from_be_bytes(self.array()?).into();
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed::Contents)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn private_data(&mut self) -> Result<Vec<u8>, Malformed> {
        let bytes = self.counted()?;
        if bytes.len() > MAX_PRIVATE_DATA {
            return Err(Malformed::Contents);
        }
        Ok(bytes.to_vec())
    }

    fn parameters(&mut self) -> Result<Parameters, Malformed> {
        let mut block = Reader(self.counted()?);
        let address = EndpointAddress {
            qpn: block.number24()?,
            psn: block.number24()?,
            lid: u16::from_be_bytes(block.array()?),
            gid: block.array()?,
            gid_index: block.byte()?,
            mtu: block.byte()?,
            link: match block.byte()? {
                1 => LinkLayer::InfiniBand,
                2 => LinkLayer::Ethernet,
                _ => return Err(Malformed::Contents),
            },
        };
        if !(1..=5).contains(&address.mtu) {
            return Err(Malformed::Contents);
        }
        Ok(Parameters {
            address,
            reads_served: block.byte()?,
            reads_requested: block.byte()?,
        })
    }

    /// Reads 24 bits from four bytes.
    fn number24(&mut self) -> Result<u32, Malformed> {
        match u32::from_be_bytes(self.array()?) {
            number @ 0..=0xff_ffff => Ok(number),
            _ => Err(Malformed::Contents),
        }
    }
}

/// Returns a request as bytes. `private_data` is at most [`MAX_PRIVATE_DATA`] bytes
/// long.
pub(super) fn request(qualifier: u64, parameters: &Parameters, private_data: &[u8]) -> Vec<u8> {
    frame(Kind::Request, |body| {
        body.extend(qualifier.to_be_bytes());
        put_parameters(body, parameters);
        put_counted(body, private_data);
    })
}

/// Returns an acceptance as bytes. `private_data` is as in [`request`].
pub(super) fn accept(parameters: &Parameters, private_data: &[u8]) -> Vec<u8> {
    frame(Kind::Accept, |body| {
        put_parameters(body, parameters);
        put_counted(body, private_data);
    })
}

/// Returns a rejection as bytes. Its header has the version of this side.
pub(super) fn reject(reason: &Reason) -> Vec<u8> {
    frame(Kind::Reject, |body| match reason {
        Reason::Application(private_data) => {
            body.push(1);
            if !private_data.is_empty() {
                put_counted(body, private_data);
            }
        }
        Reason::NoListener => body.push(2),
        Reason::Version(_) => body.push(3),
    })
}

/// Returns [`Frame::Ready`] as bytes.
pub(super) fn ready() -> Vec<u8> {
    frame(Kind::Ready, |_| ())
}

/// Returns [`Frame::Failed`] as bytes.
pub(super) fn failed() -> Vec<u8> {
    frame(Kind::Failed, |_| ())
}

/// Returns [`Frame::Disconnect`] as bytes.
pub(super) fn disconnect() -> Vec<u8> {
    frame(Kind::Disconnect, |_| ())
}

/// Returns [`Frame::DisconnectReply`] as bytes.
pub(super) fn disconnect_reply() -> Vec<u8> {
    frame(Kind::DisconnectReply, |_| ())
}

fn frame(kind: Kind, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::from(MAGIC);
    bytes.extend([VERSION, kind as u8, 0, 0]);
    body(&mut bytes);
    // Bodies are shorter than MAX_BODY, see the assertion at the top.
    let length = u16::try_from(bytes.len() - HEADER).unwrap_or(u16::MAX);
    bytes[6..HEADER].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn put_counted(body: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    body.extend(length.to_be_bytes());
    body.extend(bytes);
}

fn put_parameters(body: &mut Vec<u8>, parameters: &Parameters) {
    let address = &parameters.address;
    let mut block = Vec::with_capacity(PARAMETERS);
    block.extend(address.qpn.to_be_bytes());
    block.extend(address.psn.to_be_bytes());
    block.extend(address.lid.to_be_bytes());
    block.extend(address.gid);
    block.extend([address.gid_index, address.mtu]);
    block.push(match address.link {
        LinkLayer::InfiniBand => 1,
        LinkLayer::Ethernet => 2,
    });
    block.extend([parameters.reads_served, parameters.reads_requested]);
    put_counted(body, &block);
}

/// Takes all frames off the bytes of a peer, for `fuzz/`: each is the same when it is sent again.
#[cfg(fuzzing)]
pub fn fuzz(mut bytes: &[u8]) {
    while let Ok(Some((found, length))) = parse(bytes) {
        let again = match &found {
            Frame::Request {
                qualifier,
                parameters,
                private_data,
            } => request(*qualifier, parameters, private_data),
            Frame::Accept {
                parameters,
                private_data,
            } => accept(parameters, private_data),
            Frame::Reject(reason) => reject(reason),
            Frame::Ready => ready(),
            Frame::Failed => failed(),
            Frame::Disconnect => disconnect(),
            Frame::DisconnectReply => disconnect_reply(),
        };
        assert!(again.len() <= MAX_FRAME && length <= MAX_FRAME);
        // A rejection of another version has that version in its header.
        if !matches!(found, Frame::Reject(Reason::Version(_))) {
            assert_eq!(parse(&again), Ok(Some((found, again.len()))));
        }
        bytes = &bytes[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parameters() -> impl Strategy<Value = Parameters> {
        let link = prop_oneof![Just(LinkLayer::InfiniBand), Just(LinkLayer::Ethernet)];
        let ends = (
            0..1_u32 << 24,
            0..1_u32 << 24,
            any::<u16>(),
            any::<[u8; 16]>(),
        );
        (ends, any::<[u8; 3]>(), 1..=5_u8, link).prop_map(|(ends, bytes, mtu, link)| {
            let (qpn, psn, lid, gid) = ends;
            let [gid_index, reads_served, reads_requested] = bytes;
            Parameters {
                address: EndpointAddress {
                    qpn,
                    psn,
                    lid,
                    gid,
                    gid_index,
                    mtu,
                    link,
                },
                reads_served,
                reads_requested,
            }
        })
    }

    fn private_data() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..=MAX_PRIVATE_DATA)
    }

    proptest! {
        #[test]
        fn a_request_is_parsed_as_it_was_written(
            qualifier: u64,
            parameters in parameters(),
            private_data in private_data(),
        ) {
            let bytes = request(qualifier, &parameters, &private_data);
            prop_assert!(bytes.len() <= MAX_FRAME);
            let length = bytes.len();
            let expected = Frame::Request { qualifier, parameters, private_data };
            prop_assert_eq!(parse(&bytes), Ok(Some((expected, length))));
            for cut in 0..length {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
        }

        #[test]
        fn an_acceptance_is_parsed_as_it_was_written(
            parameters in parameters(),
            private_data in private_data(),
        ) {
            let mut bytes = accept(&parameters, &private_data);
            let length = bytes.len();
            bytes.extend(ready());
            let expected = Frame::Accept { parameters, private_data };
            prop_assert_eq!(parse(&bytes), Ok(Some((expected, length))));
            prop_assert_eq!(parse(&bytes[length..]), Ok(Some((Frame::Ready, HEADER))));
        }

        #[test]
        fn junk_after_a_valid_header_never_panics_nor_reads_beyond_its_length(
            version in 0..3_u8,
            kind: u8,
            length: u16,
            body in proptest::collection::vec(any::<u8>(), 0..2048),
        ) {
            let mut bytes = Vec::from(MAGIC);
            bytes.extend([version, kind]);
            bytes.extend(length.to_be_bytes());
            bytes.extend(&body);
            match parse(&bytes) {
                Ok(Some((_, taken))) => prop_assert_eq!(taken, HEADER + usize::from(length)),
                Ok(None) => prop_assert!(body.len() < usize::from(length)),
                Err(_) => (),
            }
        }

        #[test]
        fn a_changed_byte_is_another_frame_or_none(
            parameters in parameters(),
            private_data in private_data(),
            place: prop::sample::Index,
            change in 1..=u8::MAX,
        ) {
            let good = request(7, &parameters, &private_data);
            let mut bytes = good.clone();
            bytes[place.index(good.len())] ^= change;
            prop_assert_ne!(parse(&bytes), parse(&good));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..2048),
        ) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn every_message_without_body_is_parsed_as_it_was_written() {
        let words = [
            (ready(), Frame::Ready),
            (failed(), Frame::Failed),
            (disconnect(), Frame::Disconnect),
            (disconnect_reply(), Frame::DisconnectReply),
            (
                reject(&Reason::Application(Vec::new())),
                Frame::Reject(Reason::Application(Vec::new())),
            ),
            (
                reject(&Reason::Application(b"full".to_vec())),
                Frame::Reject(Reason::Application(b"full".to_vec())),
            ),
            (
                reject(&Reason::NoListener),
                Frame::Reject(Reason::NoListener),
            ),
            (
                reject(&Reason::Version(VERSION)),
                Frame::Reject(Reason::Version(VERSION)),
            ),
        ];
        for (bytes, frame) in words {
            assert_eq!(parse(&bytes), Ok(Some((frame, bytes.len()))));
        }
    }

    #[test]
    fn errors_are_reported_at_the_first_wrong_byte() {
        assert_eq!(parse(b"G"), Err(Malformed::Magic));
        assert_eq!(parse(b"dCMx"), Err(Malformed::Magic));
        let mut bytes = ready();
        bytes[4] = 9;
        assert_eq!(parse(&bytes), Err(Malformed::Version(9)));
        let mut bytes = ready();
        bytes[5] = 99;
        assert_eq!(parse(&bytes), Err(Malformed::Kind(99)));
        let mut bytes = ready();
        bytes[6] = 0xff;
        assert_eq!(parse(&bytes), Err(Malformed::TooLong(0xff00)));
        let mut bytes = ready();
        bytes[7] = 1;
        bytes.push(0);
        assert_eq!(parse(&bytes), Err(Malformed::Contents));
    }

    #[test]
    fn a_rejection_of_the_version_is_parsed_in_every_version() {
        let mut bytes = reject(&Reason::Version(VERSION));
        bytes[4] = VERSION + 1;
        let frame = Frame::Reject(Reason::Version(VERSION + 1));
        assert_eq!(parse(&bytes), Ok(Some((frame, bytes.len()))));
    }

    #[test]
    fn appended_parameters_of_a_later_version_are_skipped() {
        let parameters = Parameters {
            address: EndpointAddress {
                qpn: 1,
                psn: 2,
                lid: 3,
                gid: [4; 16],
                gid_index: 5,
                mtu: 3,
                link: LinkLayer::Ethernet,
            },
            reads_served: 6,
            reads_requested: 7,
        };
        let mut bytes = accept(&parameters, b"data");
        let end = HEADER + 2 + usize::from(bytes[HEADER + 1]);
        bytes.splice(end..end, [0xaa; 5]);
        bytes[HEADER + 1] += 5;
        bytes[7] += 5;
        let expected = Frame::Accept {
            parameters,
            private_data: b"data".to_vec(),
        };
        assert_eq!(parse(&bytes), Ok(Some((expected, bytes.len()))));
    }
}
