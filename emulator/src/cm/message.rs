//! The messages of the communication manager (IBA vol. 1, 12.6 and 12.11).
//!
//! The fields are those that rdma_cm uses; alternate paths and automatic path
//! migration are left out. Private data have the fixed size of their message,
//! as in a MAD: the receiver cannot find out how much of it the sender set.

/// A communication ID: the number by which a manager names one of its
/// connections. 0 names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CommId(pub(crate) u32);

impl CommId {
    /// No connection.
    pub(crate) const NONE: Self = Self(0);
    /// The bits that count the connections of a process; those above are its slot.
    const COUNT: u32 = 0xff_ffff;

    /// Returns the ID before the first one of the process in a slot.
    pub(super) fn before(slot: u8, start: u64) -> Self {
        Self(u32::from(slot) << 24 | start as u32 & Self::COUNT)
    }

    /// Returns the next ID of the same process.
    pub(super) fn next(self) -> Self {
        let count = self.0.wrapping_add(1) & Self::COUNT;
        Self(self.0 & !Self::COUNT | count.max(1))
    }

    /// Returns the slot of the process.
    pub(crate) fn slot(self) -> u8 {
        self.0.to_be_bytes()[0]
    }
}

impl Default for CommId {
    fn default() -> Self {
        Self::NONE
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The sender's communication ID.
    pub(crate) sender: CommId,
    /// The receiver's communication ID, if the sender knows it.
    pub(crate) receiver: CommId,
    /// The kind and contents.
    pub(crate) body: Body,
}

/// The kind and contents of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// REQ: a request to connect.
    Req(Box<Req>),
    /// MRA: the reply to a REQ or REP takes longer.
    Mra {
        /// Which message is meant.
        answers: Answers,
        /// The time as [`timeout`] computes it.
        time: u8,
    },
    /// REP: the reply to a REQ.
    Rep(Box<Rep>),
    /// RTU: ready to use, the reply to a REP.
    Rtu,
    /// REJ: the refusal of a REQ or REP.
    Rej(Box<Rej>),
    /// DREQ: a request to disconnect the receiver's queue pair.
    Dreq {
        /// Its number.
        qpn: u32,
    },
    /// DREP: the reply to a DREQ.
    Drep,
    /// SIDR_REQ: asks which queue pair provides a service by datagrams.
    SidrReq(Box<SidrReq>),
    /// SIDR_REP: the reply to a SIDR_REQ.
    SidrRep(Box<SidrRep>),
}

/// The message that an MRA or a REJ answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// Another message, or none.
    Other = 2,
}

impl Answers {
    /// Returns what a number on the wire stands for.
    pub(super) fn of(number: u8) -> Option<Self> {
        let known = [Self::Req, Self::Rep, Self::Other];
        known.into_iter().find(|&it| it as u8 == number)
    }

    /// Returns the communication ID that names the transaction: that of the manager that
    /// sent the REQ.
    pub(super) fn transaction<'a>(self, sender: &'a CommId, receiver: &'a CommId) -> &'a CommId {
        match self {
            Self::Req => receiver,
            Self::Rep | Self::Other => sender,
        }
    }
}

/// The ACK delay of the emulated device, which `ibv_query_device` reports.
pub(super) const ACK_DELAY: u8 = 16;

/// Enhanced connection establishment: options that drivers negotiate. The
/// manager passes them on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ece {
    /// The vendor whose options these are; 0 for none.
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
}

/// A path as its sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Source and destination GID.
    pub(crate) sgid: [u8; 16],
    /// Destination GID.
    pub(crate) dgid: [u8; 16],
    /// Source LID, 0 on Ethernet.
    pub(crate) slid: u16,
    /// Destination LID, 0 on Ethernet.
    pub(crate) dlid: u16,
    /// Partition key.
    pub(crate) pkey: u16,
    /// Flow label, 20 bits.
    pub(crate) flow_label: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// Service level.
    pub(crate) sl: u8,
    /// Path MTU as `enum ibv_mtu`.
    pub(crate) mtu: u8,
    /// Rate as `enum ibv_rate`.
    pub(crate) rate: u8,
    /// Packet lifetime, as [`timeout`] computes it.
    pub(crate) packet_life_time: u8,
}

impl Path {
    /// Returns the path as the other end sees it.
    pub(crate) fn reversed(&self) -> Self {
        Self {
            sgid: self.dgid,
            dgid: self.sgid,
            slid: self.dlid,
            dlid: self.slid,
            ..*self
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Req {
    /// The service that is to accept the connection.
    pub(crate) service_id: u64,
    /// The sender's device.
    pub(crate) guid: [u8; 8],
    /// The sender's queue pair.
    pub(crate) qpn: u32,
    /// The type of the sender's queue pair, as `enum ibv_qp_type`.
    pub(crate) qp_type: u8,
    /// The PSN with which the receiver's queue pair is to start.
    pub(crate) starting_psn: u32,
    /// Number of reads and atomics that the sender can serve at a time.
    pub(crate) responder_resources: u8,
    /// Number of reads and atomics that the sender issues at a time.
    pub(crate) initiator_depth: u8,
    /// End-to-end flow control.
    pub(crate) flow_control: bool,
    /// Number of retries, 0 to 7.
    pub(crate) retry_count: u8,
    /// Number of retries after an RNR NAK, 0 to 7.
    pub(crate) rnr_retry_count: u8,
    /// Whether the sender's queue pair uses an SRQ.
    pub(crate) srq: bool,
    /// How often a message of this connection is sent again.
    pub(crate) max_cm_retries: u8,
    /// How long either manager waits for a reply; see [`timeout`].
    pub(crate) response_timeout: u8,
    pub(crate) path: Path,
    /// Options of the drivers.
    pub(crate) ece: Ece,
    pub(crate) private_data: [u8; Req::PRIVATE_DATA],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rep {
    /// The sender's queue pair.
    pub(crate) qpn: u32,
    /// The sender's device.
    pub(crate) guid: [u8; 8],
    /// The PSN with which the receiver's queue pair is to start.
    pub(crate) starting_psn: u32,
    /// Number of reads and atomics that the sender can serve at a time.
    pub(crate) responder_resources: u8,
    /// Number of reads and atomics that the sender issues at a time.
    pub(crate) initiator_depth: u8,
    /// End-to-end flow control.
    pub(crate) flow_control: bool,
    /// Number of retries after an RNR NAK, 0 to 7.
    pub(crate) rnr_retry_count: u8,
    /// Whether the sender's queue pair uses an SRQ.
    pub(crate) srq: bool,
    /// How long the sender's device may take for an acknowledgement.
    pub(crate) target_ack_delay: u8,
    /// Options of the drivers.
    pub(crate) ece: Ece,
    pub(crate) private_data: [u8; Rep::PRIVATE_DATA],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rej {
    /// Which message is refused.
    pub(crate) answers: Answers,
    /// The sender's device, by which the receiver finds a connection whose REP it has not
    /// seen.
    pub(crate) guid: Option<[u8; 8]>,
    pub(crate) reason: RejReason,
    pub(crate) private_data: [u8; Rej::PRIVATE_DATA],
}

/// The reason of a REJ (IBA vol. 1, 12.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RejReason(pub(crate) u16);

impl RejReason {
    /// The sender has given up waiting.
    pub(crate) const TIMEOUT: Self = Self(4);
    /// No such service.
    pub(crate) const INVALID_SERVICE_ID: Self = Self(8);
    /// The application has refused.
    pub(crate) const CONSUMER_DEFINED: Self = Self(28);
    /// A driver's option is not supported.
    pub(crate) const VENDOR_OPTION_NOT_SUPPORTED: Self = Self(35);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SidrReq {
    pub(crate) service_id: u64,
    /// Partition key.
    pub(crate) pkey: u16,
    pub(crate) private_data: [u8; SidrReq::PRIVATE_DATA],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SidrRep {
    /// The service of the question, which the manager fills in.
    pub(crate) service_id: u64,
    /// Whether there is such a queue pair.
    pub(crate) status: SidrStatus,
    /// The queue pair.
    pub(crate) qpn: u32,
    /// The key of its datagrams.
    pub(crate) qkey: u32,
    /// Options of the drivers.
    pub(crate) ece: Ece,
    pub(crate) private_data: [u8; SidrRep::PRIVATE_DATA],
}

/// The status of a SIDR_REP (IBA vol. 1, 12.11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SidrStatus(pub(crate) u8);

impl SidrStatus {
    /// The queue pair is valid.
    pub(crate) const SUCCESS: Self = Self(0);
    /// No such service.
    pub(crate) const UNSUPPORTED: Self = Self(1);
    /// The application has refused.
    pub(crate) const REJECTED: Self = Self(2);
}

/// A message with room for private data.
pub(crate) trait Reserved {
    /// The type of the private data.
    type Data;
    /// Copies private data and fills the rest with zeros. Returns `None` if
    /// there are too many bytes.
    fn pad(data: &[u8]) -> Option<Self::Data>;
}

macro_rules! reserve {
    ($($message:ident $len:literal)*) => {$(
        impl $message {
            /// Size of the private data in bytes.
            pub(crate) const PRIVATE_DATA: usize = $len;
        }

        impl Reserved for $message {
            type Data = [u8; $len];

            fn pad(data: &[u8]) -> Option<Self::Data> {
                let mut padded = [0; $len];
                padded.get_mut(..data.len())?.copy_from_slice(data);
                Some(padded)
            }
        }
    )*};
}

reserve! { Req 92 Rep 196 Rej 148 SidrReq 216 SidrRep 136 }

/// Returns private data of a message of type `M`, padded with zeros, or `None`
/// if there are too many bytes.
pub(crate) fn data_of<M: Reserved>(data: &[u8]) -> Option<M::Data> {
    M::pad(data)
}

/// Returns the nanoseconds of a time in the encoding of management messages,
/// 4.096 µs · 2^`exponent`. Only 5 bits are used.
pub(crate) fn timeout(exponent: u8) -> u64 {
    4096 << (exponent & 0x1f)
}
