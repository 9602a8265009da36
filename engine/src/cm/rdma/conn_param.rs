//! The parameters of a connection that rdma_cm sends.

use std::sync::Arc;

use crate::control::Greeting;

/// The parameters of an endpoint that are sent to its peer.
#[derive(Clone, Debug)]
pub(super) struct ConnParam {
    pub(super) qpn: u32,
    pub(super) reads_served: u8,
    pub(super) reads_requested: u8,
    /// The private data as it is sent.
    pub(super) private_data: Vec<u8>,
    /// The numbers of retries that the peer is asked for, after an ACK timeout and
    /// after an RNR NAK.
    pub(super) retries: (u8, u8),
    /// For an acceptance: where the requester has to write before this side sends.
    pub(super) greeting: Option<Arc<Greeting>>,
}
