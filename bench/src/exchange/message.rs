//! The messages of the control connection, as JSON.

use std::net::IpAddr;

use dat_engine::DataInOrder;
use serde::{Deserialize, Deserializer, Serialize};

use super::frame::{self, FrameError, text};
use super::options::Options;
use crate::noise::Ran;

/// A message. The initiator is the client, which measures; the responder is the
/// server.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// First from both sides: the options.
    Hello(Options),
    /// Then from both sides: the addresses of queue pair and buffer.
    Address(Address),
    /// Instead of that, from the responder: where its DAT service point listens.
    Service(Service),
    /// From both sides of `lat -o write`: what the queue pairs say about writes.
    DataInOrder(#[serde(with = "Order")] DataInOrder),
    /// The client accepts the options, the queue pair is connected, or the memory for the next
    /// size is prepared.
    Ready,
    /// From the responder: the TCP port for the control connections of the initiator's other threads.
    Port(u16),
    /// The initiator is about to send messages of this size.
    Begin {
        /// Message size in bytes.
        size: u32,
    },
    /// What the sender of this message has done since the last size began.
    Done(Done),
    /// The sender ends the run, for this reason.
    Abort(#[serde(deserialize_with = "printable")] String),
}

/// What one side has done in a pass.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Transfer {
    pub(crate) messages: u64,
    /// From the first post to the last completion.
    pub(crate) picoseconds: u64,
    /// The fastest part; 0 and 0 if it was not looked for.
    pub(crate) peak_messages: u64,
    pub(crate) peak_picoseconds: u64,
    /// The time that its thread ran meanwhile.
    pub(crate) cpu_nanoseconds: u64,
    /// The least part of that time in which the thread found nothing to do.
    pub(crate) idle_nanoseconds: u64,
}

/// The RDMA addresses of one side.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Service {
    /// Address of the adapter.
    pub(crate) address: IpAddr,
    /// Connection qualifier.
    pub(crate) qualifier: u64,
}

/// The engine's type, by the same names.
#[derive(Deserialize, Serialize)]
#[serde(remote = "DataInOrder")]
enum Order {
    Yes,
    No,
    Unknown,
}

impl Message {
    /// Returns the frame of the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let payload = serde_json::to_vec(self).expect("all keys are texts");
        frame::encode(&payload)
    }

    /// Decodes the payload of a frame. Refuses values that are out of range.
    pub(super) fn decode(payload: &[u8]) -> Result<Self, FrameError> {
        const BITS_24: u32 = 0xff_ffff;
        match serde_json::from_slice(payload) {
            Ok(Self::Address(it)) if it.qpn.max(it.psn) > BITS_24 => {
                Err(FrameError::Damaged("queue pair or packet number"))
            }
            Ok(Self::Address(it)) if !(1..=5).contains(&it.mtu) => {
                Err(FrameError::Damaged("path MTU"))
            }
            Ok(message) => Ok(message),
            Err(_) => Err(FrameError::Damaged("it is no message of this version")),
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
            Self::Port(_) => "port",
            Self::Begin { .. } => "begin",
            Self::Done(_) => "done",
            Self::Abort(_) => "abort",
        }
    }
}

/// Reads a text, which is printed.
fn printable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(text(&String::deserialize(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::frame::LONGEST;
    use proptest::prelude::*;

    fn payload(message: &Message) -> Vec<u8> {
        serde_json::to_vec(message).unwrap()
    }

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
        let mut options = Options::default();
        options.set("-s", "64");
        for message in [
            Message::Hello(options),
            Message::Address(address()),
            service("10.1.2.3"),
            service("fe80::1"),
            Message::DataInOrder(DataInOrder::Yes),
            Message::DataInOrder(DataInOrder::No),
            Message::DataInOrder(DataInOrder::Unknown),
            Message::Ready,
            Message::Port(18_516),
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
                    cpu_nanoseconds: 8,
                    idle_nanoseconds: 9,
                },
            }),
            Message::Abort("no such device".into()),
        ] {
            assert_eq!(Message::decode(&payload(&message)).unwrap(), message);
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for bad in [
            Address {
                mtu: 6,
                ..address()
            },
            Address {
                qpn: 1 << 24,
                ..address()
            },
        ] {
            assert!(Message::decode(&payload(&Message::Address(bad))).is_err());
        }
    }

    #[test]
    fn control_characters_of_a_text_become_spaces() {
        let said = Message::Abort("\x1b[2Jgone\n".into());
        let read = Message::decode(&payload(&said)).unwrap();
        assert_eq!(read, Message::Abort(" [2Jgone ".into()));
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        for long in ["ü".repeat(5000), "\"".repeat(5000), "\n".repeat(5000)] {
            let said = Message::Abort(text(&long));
            assert!(payload(&said).len() <= LONGEST);
            assert_eq!(Message::decode(&payload(&said)).unwrap(), said);
        }
    }

    proptest! {
        #[test]
        fn decoding_any_payload_does_not_panic(
            at: proptest::sample::Index, byte: u8, payload in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut changed = self::payload(&Message::Address(address()));
            let at = at.index(changed.len());
            changed[at] = byte;
            for payload in [payload, changed] {
                if let Ok(message) = Message::decode(&payload) {
                    // What was accepted encodes to the same message.
                    prop_assert_eq!(Message::decode(&self::payload(&message)).unwrap(), message);
                }
            }
        }
    }

    #[test]
    fn an_address_of_any_other_length_is_refused() {
        let mut bytes = payload(&Message::Address(address()));
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length}");
        }
        bytes.push(b'0');
        assert!(Message::decode(&bytes).is_err());
    }
}
