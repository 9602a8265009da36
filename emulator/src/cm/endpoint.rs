//! One connection, and the attributes of its queue pair.

use super::manager::Peer;
use super::message::{CommId, Message, Path, Req, timeout};
use crate::spec::Nanos;

/// The state of a connection (IBA vol. 1, 12.9.7; the names are those of the
/// kernel's `enum ib_cm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointPhase {
    /// Refused, given up or forgotten. Only `destroy` is left to do.
    Idle,
    /// REQ sent. The flag: the peer has sent an MRA.
    ReqSent,
    /// REQ received. The flag of the endpoint: an MRA was sent.
    ReqReceived,
    /// REP sent.
    RepSent,
    /// REP received.
    RepReceived,
    /// RTU sent or received.
    Established,
    /// DREQ sent.
    DreqSent,
    /// DREQ received.
    DreqReceived,
    /// Disconnected; packets of the connection may still be on their way.
    TimeWait,
    /// SIDR_REQ sent.
    SidrReqSent,
    /// SIDR_REQ received.
    SidrReqReceived,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) state: EndpointPhase,
    pub(super) peer: Peer,
    /// The communication ID of the other end, once known.
    pub(super) remote: CommId,
    /// Whether this end has told the other to wait (MRA).
    pub(super) delayed: bool,
    /// The message that is sent again until it is answered.
    pub(super) pending: Option<Message>,
    /// How often it may still be sent again.
    pub(super) retries_left: u8,
    /// How often any message may be sent again.
    pub(super) max_retries: u8,
    /// How long to wait for a reply.
    pub(super) timeout: Nanos,
    pub(super) link: Link,
}

/// What a queue pair must be told about its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// The path of this end; `None` for services by datagrams.
    pub(super) path: Option<Path>,
    pub(super) remote_qpn: u32,
    /// The GUID of this end's device, if this end has sent the REQ.
    pub(super) guid: [u8; 8],
    /// The service of a question by datagrams.
    pub(super) service_id: u64,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    /// The ACK timeout, as [`timeout`] computes it.
    pub(super) ack_timeout: u8,
}

/// The state to which a queue pair is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpState {
    /// INIT.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
}

/// The attributes with which a queue pair moves to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attributes {
    /// INIT.
    Init {
        /// Whether the peer may read and use atomics.
        remote_reads: bool,
    },
    /// RTR.
    Rtr {
        /// The path to the peer.
        path: Path,
        /// The peer's queue pair.
        remote_qpn: u32,
        /// The PSN of the first packet to receive.
        rq_psn: u32,
        /// Number of reads and atomics to serve at a time.
        max_dest_rd_atomic: u8,
    },
    /// RTS.
    Rts {
        /// The PSN of the first packet to send.
        sq_psn: u32,
        /// ACK timeout.
        timeout: u8,
        /// Number of retries.
        retry_count: u8,
        /// Number of retries after an RNR NAK.
        rnr_retry_count: u8,
        /// Number of reads and atomics to issue at a time.
        max_rd_atomic: u8,
    },
}

impl Endpoint {
    /// Returns the attributes for a state, or `None` if they are not known in
    /// the state of this connection (`ib_cm_init_qp_attr`).
    pub(super) fn attributes(&self, state: QpState) -> Option<Attributes> {
        use EndpointPhase::{Established, RepReceived, RepSent, ReqReceived, ReqSent};
        let link = &self.link;
        let knows_peer = matches!(
            self.state,
            ReqReceived | RepSent | RepReceived | Established
        );
        match state {
            QpState::Init if knows_peer || self.state == ReqSent => Some(Attributes::Init {
                remote_reads: link.responder_resources != 0,
            }),
            QpState::Rtr if knows_peer => Some(Attributes::Rtr {
                path: link.path?,
                remote_qpn: link.remote_qpn,
                rq_psn: link.rq_psn,
                max_dest_rd_atomic: link.responder_resources,
            }),
            QpState::Rts if knows_peer => Some(Attributes::Rts {
                sq_psn: link.sq_psn,
                timeout: link.ack_timeout,
                retry_count: link.retry_count,
                rnr_retry_count: link.rnr_retry_count,
                max_rd_atomic: link.initiator_depth,
            }),
            _ => None,
        }
    }

    /// Returns how long packets of a closed connection may be on their way.
    pub(super) fn time_wait(&self) -> Nanos {
        timeout(self.link.ack_timeout)
    }
}

/// Returns the ACK timeout for a path and a device's delay, in their common
/// encoding (`cm_ack_timeout`): a little more than twice the packet lifetime
/// plus the delay.
pub(super) fn ack_timeout(ack_delay: u8, packet_life_time: u8) -> u8 {
    let round_trip = packet_life_time + 1;
    let sum = if round_trip >= ack_delay {
        round_trip + u8::from(ack_delay >= round_trip - 1)
    } else {
        ack_delay + u8::from(round_trip >= ack_delay - 1)
    };
    sum.min(31)
}

/// Returns how long the sender of a REQ waits for the reply: the time that the peer may
/// take, and the way there and back.
pub(super) fn reply_timeout(req: &Req) -> Nanos {
    timeout(req.response_timeout) + 2 * timeout(req.path.packet_life_time)
}
