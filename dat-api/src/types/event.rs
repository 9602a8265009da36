//! Events.

use std::fmt;

use super::ExtendedOperation;
use crate::handle::Handle;

/// An event taken from an EVD; at most a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The EVD it was taken from.
    pub evd: Handle,
    /// What happened.
    pub data: EventData,
}

/// A software event of a dispatcher that never existed: the value with which an array of events
/// begins.
impl Default for Event {
    fn default() -> Self {
        Self {
            evd: Handle::NEVER,
            data: EventData::Software { pointer: 0 },
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventData {
    /// A data transfer has completed.
    Dto {
        /// The endpoint.
        ep: Handle,
        /// The cookie of the post.
        cookie: u64,
        /// The result.
        status: DtoStatus,
        /// The number of bytes transferred; meaningful with [`DtoStatus::Success`] only.
        length: u64,
        /// What was posted.
        operation: DtoOperation,
    },
    /// An extended data transfer has completed: an atomic operation, or a transfer with immediate
    /// data.
    ExtendedDto {
        /// The endpoint.
        ep: Handle,
        /// The cookie of the post.
        cookie: u64,
        /// The result.
        status: DtoStatus,
        /// The number of bytes transferred; meaningful with [`DtoStatus::Success`] only.
        length: u64,
        /// What was posted.
        operation: ExtendedOperation,
        /// The immediate data of a receive; 0 for a request.
        immediate: u32,
    },
    /// An RMR was bound or unbound.
    RmrBind {
        /// The endpoint that it was posted to.
        ep: Handle,
        /// The RMR.
        rmr: Handle,
        /// The cookie of the bind.
        cookie: u64,
        /// The result.
        status: DtoStatus,
    },
    /// A peer requests a connection.
    ConnectionRequest {
        /// The service point.
        sp: Handle,
        /// The address of the adapter's own `sockaddr`, which lives as long as the IA.
        local_address: usize,
        /// The requested qualifier.
        qualifier: u64,
        /// The request, to be accepted or rejected.
        cr: Handle,
    },
    /// A connection has changed.
    Connection {
        /// The kind of change.
        kind: ConnectionKind,
        /// The endpoint.
        ep: Handle,
        /// The private data of the peer; only on the active side, with `Established` and
        /// `PeerRejected`.
        private_data: PrivateData,
    },
    /// An asynchronous error, or a watermark.
    Async {
        /// The kind of error.
        kind: AsyncKind,
        /// The object.
        handle: Handle,
        /// The reason.
        reason: AsyncReason,
    },
    /// The consumer posted it.
    Software {
        /// The consumer's value.
        pointer: usize,
    },
}

/// The location of the peer's private data, which are valid while the endpoint is connected,
/// disconnecting or disconnected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivateData {
    /// The address of the first byte; 0 if there is none.
    pub address: usize,
    /// The length in bytes.
    pub len: u32,
}

/// The connection events, with the numbers of `DAT_EVENT_NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are DAT's")]
pub enum ConnectionKind {
    Established = 0x4001,
    PeerRejected = 0x4002,
    NonPeerRejected = 0x4003,
    AcceptCompletionError = 0x4004,
    Disconnected = 0x4005,
    Broken = 0x4006,
    TimedOut = 0x4007,
    Unreachable = 0x4008,
}

/// The asynchronous events, with the numbers of `DAT_EVENT_NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are DAT's")]
pub enum AsyncKind {
    EvdOverflow = 0x8001,
    IaCatastrophic = 0x8002,
    EpBroken = 0x8003,
    TimedOut = 0x8004,
    /// Also carries the watermarks of EPs and SRQs, for which DAT 1.2 has no number; the kind of
    /// the handle and the reason tell them apart.
    ProviderInternalError = 0x8005,
}

/// The reason of an asynchronous event; its number depends on the kind of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsyncReason {
    /// IA: catastrophic error. EP and SRQ: in the error state. EVD: overflow. (0)
    Failed,
    /// Something else. (1)
    Other,
    /// EP: soft high watermark. SRQ: low watermark. (2)
    Watermark,
}

/// `DAT_DTO_COMPLETION_STATUS`, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are DAT's")]
pub enum DtoStatus {
    Success = 0,
    Flushed = 1,
    LocalLength = 2,
    LocalEp = 3,
    LocalProtection = 4,
    BadResponse = 5,
    RemoteAccess = 6,
    RemoteResponder = 7,
    Transport = 8,
    ReceiverNotReady = 9,
    PartialPacket = 10,
    RmrOperationFailed = 11,
}

/// The name in the DAT pages.
impl fmt::Display for DtoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "DAT_DTO_SUCCESS",
            Self::Flushed => "DAT_DTO_ERR_FLUSHED",
            Self::LocalLength => "DAT_DTO_ERR_LOCAL_LENGTH",
            Self::LocalEp => "DAT_DTO_ERR_LOCAL_EP",
            Self::LocalProtection => "DAT_DTO_ERR_LOCAL_PROTECTION",
            Self::BadResponse => "DAT_DTO_ERR_BAD_RESPONSE",
            Self::RemoteAccess => "DAT_DTO_ERR_REMOTE_ACCESS",
            Self::RemoteResponder => "DAT_DTO_ERR_REMOTE_RESPONDER",
            Self::Transport => "DAT_DTO_ERR_TRANSPORT",
            Self::ReceiverNotReady => "DAT_DTO_ERR_RECEIVER_NOT_READY",
            Self::PartialPacket => "DAT_DTO_ERR_PARTIAL_PACKET",
            Self::RmrOperationFailed => "DAT_RMR_OPERATION_FAILED",
        })
    }
}

/// The operation of a data transfer, with the numbers of DAT 2.0's `DAT_DTOS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are DAT's")]
pub enum DtoOperation {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    Receive = 3,
}
