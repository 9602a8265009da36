//! The messages of the control connection.

use std::net::{IpAddr, Ipv6Addr};

use dat_engine::DataInOrder;

use super::frame::{FrameError, LONGEST};
use super::options::Options;
use crate::noise::Ran;

/// A message. The initiator is the client, which measures; the responder is the
/// server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// First from both sides: the options.
    Hello(Options),
    /// Then from both sides: the addresses of queue pair and buffer.
    Address(Address),
    /// Instead of that, from the responder: where its DAT service point listens.
    Service(Service),
    /// From both sides of `lat -o write`: what the queue pairs say about writes.
    DataInOrder(DataInOrder),
    /// The client accepts the options, the queue pair is connected, or the memory for the next
    /// size is prepared.
    Ready,
    /// The initiator is about to send messages of this size.
    Begin {
        /// Message size in bytes.
        size: u32,
    },
    /// What the sender of this message has done since the last size began.
    Done(Done),
    /// The sender ends the run, for this reason.
    Abort(String),
}

/// What one side has done in a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Messages sent, or answered by a side that only answers; includes the warm-up.
    pub(crate) messages: u64,
    /// How long the thread ran meanwhile.
    pub(crate) ran: Ran,
    /// The measured messages that it sent.
    pub(crate) transfer: Transfer,
}

/// Messages that one side has sent, and how long they took. Sums can be exact,
/// because the times are integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) messages: u64,
    /// From the first post to the last completion.
    pub(crate) picoseconds: u64,
    /// The fastest part; 0 and 0 if it was not looked for.
    pub(crate) peak_messages: u64,
    pub(crate) peak_picoseconds: u64,
}

/// The RDMA addresses of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Queue pair number, 24 bits.
    pub(crate) qpn: u32,
    /// First packet sequence number, 24 bits.
    pub(crate) psn: u32,
    /// Local identifier (InfiniBand).
    pub(crate) lid: u16,
    /// Index of `gid` in the port's table.
    pub(crate) gid_index: u8,
    /// Path MTU as in `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096.
    pub(crate) mtu: u8,
    /// Whether the link layer is Ethernet.
    pub(crate) ethernet: bool,
    /// Global identifier.
    pub(crate) gid: [u8; 16],
    /// Virtual address of the buffer that the other side may read and write.
    pub(crate) buffer: u64,
    /// Remote key of the buffer.
    pub(crate) rkey: u32,
    /// Length of the buffer in bytes.
    pub(crate) length: u64,
}

/// The DAT service point of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Address of the adapter.
    pub(crate) address: IpAddr,
    /// Connection qualifier.
    pub(crate) qualifier: u64,
}

mod kind {
    pub(super) const HELLO: u16 = 1;
    pub(super) const ADDRESS: u16 = 2;
    pub(super) const READY: u16 = 3;
    pub(super) const BEGIN: u16 = 4;
    pub(super) const DONE: u16 = 5;
    pub(super) const ABORT: u16 = 6;
    pub(super) const SERVICE: u16 = 7;
    pub(super) const DATA_IN_ORDER: u16 = 8;
}

impl Message {
    /// Returns kind and payload.
    pub(super) fn encode(&self) -> (u16, Vec<u8>) {
        let mut out = Vec::new();
        let kind = match self {
            Self::Hello(options) => {
                for (name, value) in options.iter() {
                    put_text(&mut out, name);
                    put_text(&mut out, value);
                }
                kind::HELLO
            }
            Self::Address(address) => {
                out.extend_from_slice(&address.qpn.to_be_bytes());
                out.extend_from_slice(&address.psn.to_be_bytes());
                out.extend_from_slice(&address.lid.to_be_bytes());
                out.extend_from_slice(&[
                    address.gid_index,
                    address.mtu,
                    u8::from(address.ethernet),
                ]);
                out.extend_from_slice(&address.gid);
                out.extend_from_slice(&address.buffer.to_be_bytes());
                out.extend_from_slice(&address.rkey.to_be_bytes());
                out.extend_from_slice(&address.length.to_be_bytes());
                kind::ADDRESS
            }
            Self::Service(service) => {
                let address = match service.address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                out.extend_from_slice(&address.octets());
                out.extend_from_slice(&service.qualifier.to_be_bytes());
                kind::SERVICE
            }
            Self::DataInOrder(answer) => {
                out.push(match answer {
                    DataInOrder::No => 0,
                    DataInOrder::Yes => 1,
                    DataInOrder::Unknown => 2,
                });
                kind::DATA_IN_ORDER
            }
            Self::Ready => kind::READY,
            Self::Begin { size } => {
                out.extend_from_slice(&size.to_be_bytes());
                kind::BEGIN
            }
            Self::Done(Done {
                messages,
                ran,
                transfer,
            }) => {
                for number in [
                    *messages,
                    ran.elapsed_nanoseconds,
                    ran.cpu_nanoseconds,
                    ran.involuntary_switches,
                    transfer.messages,
                    transfer.picoseconds,
                    transfer.peak_messages,
                    transfer.peak_picoseconds,
                ] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
                kind::DONE
            }
            Self::Abort(reason) => {
                put_text(&mut out, reason);
                kind::ABORT
            }
        };
        (kind, out)
    }

    /// Decodes a checked frame. Refuses values that are out of range.
    pub(super) fn decode(kind: u16, payload: &[u8]) -> Result<Self, FrameError> {
        let mut fields = Fields(payload);
        let message = match kind {
            kind::HELLO => {
                let mut options = Options::default();
                while !fields.0.is_empty() {
                    let name = fields.text()?;
                    options.set(name, fields.text()?);
                }
                Self::Hello(options)
            }
            kind::ADDRESS => Self::Address(Address {
                qpn: fields.number24()?,
                psn: fields.number24()?,
                lid: u16::from_be_bytes(fields.take()?),
                gid_index: fields.byte()?,
                mtu: match fields.byte()? {
                    mtu @ 1..=5 => mtu,
                    _ => return Err(FrameError::Damaged("path MTU")),
                },
                ethernet: match fields.byte()? {
                    link @ 0..=1 => link == 1,
                    _ => return Err(FrameError::Damaged("link layer")),
                },
                gid: fields.take()?,
                buffer: u64::from_be_bytes(fields.take()?),
                rkey: u32::from_be_bytes(fields.take()?),
                length: u64::from_be_bytes(fields.take()?),
            }),
            kind::SERVICE => Self::Service(Service {
                address: Ipv6Addr::from(fields.take::<16>()?).to_canonical(),
                qualifier: u64::from_be_bytes(fields.take()?),
            }),
            kind::DATA_IN_ORDER => Self::DataInOrder(match fields.byte()? {
                0 => DataInOrder::No,
                1 => DataInOrder::Yes,
                2 => DataInOrder::Unknown,
                _ => return Err(FrameError::Damaged("order of data")),
            }),
            kind::READY => Self::Ready,
            kind::BEGIN => Self::Begin {
                size: u32::from_be_bytes(fields.take()?),
            },
            kind::DONE => Self::Done(Done {
                messages: fields.number64()?,
                ran: Ran {
                    elapsed_nanoseconds: fields.number64()?,
                    cpu_nanoseconds: fields.number64()?,
                    involuntary_switches: fields.number64()?,
                },
                transfer: Transfer {
                    messages: fields.number64()?,
                    picoseconds: fields.number64()?,
                    peak_messages: fields.number64()?,
                    peak_picoseconds: fields.number64()?,
                },
            }),
            kind::ABORT => Self::Abort(fields.text()?),
            _ => return Err(FrameError::Damaged("unknown kind of message")),
        };
        if fields.0.is_empty() {
            Ok(message)
        } else {
            Err(FrameError::Damaged("excess bytes"))
        }
    }

    /// Returns the name in error messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Address(_) => "address",
            Self::Service(_) => "service",
            Self::DataInOrder(_) => "order of data",
            Self::Ready => "ready",
            Self::Begin { .. } => "begin",
            Self::Done(_) => "done",
            Self::Abort(_) => "abort",
        }
    }
}

/// Appends a text, cut to a quarter of the longest payload.
fn put_text(out: &mut Vec<u8>, text: &str) {
    const LONGEST_TEXT: usize = LONGEST / 4;
    let text = &text[..text.floor_char_boundary(LONGEST_TEXT)];
    out.extend_from_slice(&u16::try_from(text.len()).expect("cut above").to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The bytes of a payload that are not decoded yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(FrameError::Damaged("incomplete field"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        Ok(self.slice(N)?.try_into().expect("the slice has N bytes"))
    }

    fn byte(&mut self) -> Result<u8, FrameError> {
        Ok(self.take::<1>()?[0])
    }

    fn number64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn number24(&mut self) -> Result<u32, FrameError> {
        match u32::from_be_bytes(self.take()?) {
            number @ ..=0xff_ffff => Ok(number),
            _ => Err(FrameError::Damaged("queue pair or packet number")),
        }
    }

    /// Takes a text. Control characters become spaces, because it is printed.
    fn text(&mut self) -> Result<String, FrameError> {
        let length = usize::from(u16::from_be_bytes(self.take()?));
        let text = core::str::from_utf8(self.slice(length)?)
            .map_err(|_| FrameError::Damaged("text that is not UTF-8"))?;
        Ok(text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> Address {
        Address {
            qpn: 0x01_0203,
            psn: 0xff_ffff,
            lid: 7,
            gid_index: 3,
            mtu: 5,
            ethernet: true,
            gid: *b"0123456789abcdef",
            buffer: 1 << 40,
            rkey: 0xdead_beef,
            length: 1 << 24,
        }
    }

    fn service(address: &str) -> Message {
        Message::Service(Service {
            address: address.parse().unwrap(),
            qualifier: 0x1_0000_4321,
        })
    }

    #[test]
    fn every_message_decodes_to_what_was_encoded() {
        let options: Options = [("-o", "send"), ("-s", "64")].into_iter().collect();
        for message in [
            Message::Hello(options),
            Message::Address(address()),
            service("10.1.2.3"),
            service("fe80::1"),
            Message::DataInOrder(DataInOrder::Yes),
            Message::DataInOrder(DataInOrder::No),
            Message::DataInOrder(DataInOrder::Unknown),
            Message::Ready,
            Message::Begin { size: 1 << 23 },
            Message::Done(Done {
                messages: u64::MAX,
                ran: Ran {
                    elapsed_nanoseconds: 3,
                    cpu_nanoseconds: 2,
                    involuntary_switches: 1,
                },
                transfer: Transfer {
                    messages: 4,
                    picoseconds: 5,
                    peak_messages: 6,
                    peak_picoseconds: 7,
                },
            }),
            Message::Abort("no such device".into()),
        ] {
            let (kind, payload) = message.encode();
            assert_eq!(Message::decode(kind, &payload).unwrap(), message);
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let (kind, payload) = Message::Address(Address {
            mtu: 6,
            ..address()
        })
        .encode();
        assert!(Message::decode(kind, &payload).is_err());
        let (kind, payload) = Message::Address(Address {
            qpn: 1 << 24,
            ..address()
        })
        .encode();
        assert!(Message::decode(kind, &payload).is_err());
    }

    #[test]
    fn control_characters_of_a_text_become_spaces() {
        let (kind, payload) = Message::Abort("\x1b[2Jgone\n".into()).encode();
        assert_eq!(
            Message::decode(kind, &payload).unwrap(),
            Message::Abort(" [2Jgone ".into())
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let (kind, payload) = Message::Abort("ü".repeat(5000)).encode();
        assert!(payload.len() <= LONGEST);
        assert!(Message::decode(kind, &payload).is_ok());
    }

    proptest! {
        #[test]
        fn decoding_any_payload_does_not_panic(kind in 0u16..9, payload in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(message) = Message::decode(kind, &payload) {
                // What was accepted encodes to the same message.
                let (again, bytes) = message.encode();
                prop_assert_eq!(Message::decode(again, &bytes).unwrap(), message);
            }
        }

    }

    #[test]
    fn an_address_of_any_other_length_is_refused() {
        let (kind, mut payload) = Message::Address(address()).encode();
        for length in 0..payload.len() {
            assert!(
                Message::decode(kind, &payload[..length]).is_err(),
                "{length}"
            );
        }
        payload.push(0);
        assert!(Message::decode(kind, &payload).is_err());
    }
}
