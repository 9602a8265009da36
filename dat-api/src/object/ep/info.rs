//! What an endpoint tells of itself, and what may be changed.

use crate::handle::Handle;
use crate::types::{EpAttributes, EpState};

/// What `dat_ep_query` answers. Addresses point to a `sockaddr` that lives as
/// long as the endpoint (the local one: as long as the IA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// Its state.
    pub state: EpState,
    /// Where the adapter's own `sockaddr` lies.
    pub local_address: usize,
    /// The local qualifier: of the service point on the passive side, else 0.
    pub local_port_qualifier: u64,
    /// Where the peer's `sockaddr` lies; 0 where the state gives it no meaning.
    pub remote_address: usize,
    /// The peer's qualifier; 0 where the state gives it no meaning.
    pub remote_port_qualifier: u64,
    /// The protection zone, if it has one.
    pub pz: Option<Handle>,
    /// Where receives are reported.
    pub recv_evd: Option<Handle>,
    /// Where requests are reported.
    pub request_evd: Option<Handle>,
    /// Where connection events are reported.
    pub connect_evd: Option<Handle>,
    /// Where receives come from, if not from a queue of its own.
    pub srq: Option<Handle>,
    /// The real values.
    pub attributes: EpAttributes,
}

/// What `dat_ep_get_status` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpStatus {
    /// Its state.
    pub state: EpState,
    /// No receive is outstanding.
    pub recv_idle: bool,
    /// No request is outstanding.
    pub request_idle: bool,
}

/// What `dat_ep_recv_query` answers, from one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvQuery {
    /// Receives that belong to the endpoint and whose events were not taken
    /// yet. Its own queue: since they were posted. On an SRQ: since the device
    /// reported that a message filled them.
    pub allocated: u32,
    /// From the latest message that has a receive to the latest whose event
    /// was taken; never less than `allocated`.
    pub span: u32,
}

bitflags::bitflags! {
    /// `DAT_EP_PARAM_MASK`, with its bits: the members of `DAT_EP_PARAM`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[expect(missing_docs, reason = "the names are DAT's")]
    pub struct EpFields: u64 {
        const IA = 1 << 0;
        const STATE = 1 << 1;
        const LOCAL_ADDRESS = 1 << 2;
        const LOCAL_PORT = 1 << 3;
        const REMOTE_ADDRESS = 1 << 4;
        const REMOTE_PORT = 1 << 5;
        const PZ = 1 << 6;
        const RECV_EVD = 1 << 7;
        const REQUEST_EVD = 1 << 8;
        const CONNECT_EVD = 1 << 9;
        const SRQ = 1 << 10;
        const SERVICE_TYPE = 1 << 12;
        const MAX_MESSAGE_SIZE = 1 << 13;
        const MAX_RDMA_SIZE = 1 << 14;
        const QOS = 1 << 15;
        const RECV_FLAGS = 1 << 16;
        const REQUEST_FLAGS = 1 << 17;
        const MAX_RECV_DTOS = 1 << 18;
        const MAX_REQUEST_DTOS = 1 << 19;
        const MAX_RECV_IOV = 1 << 20;
        const MAX_REQUEST_IOV = 1 << 21;
        const MAX_RDMA_READ_IN = 1 << 22;
        const MAX_RDMA_READ_OUT = 1 << 23;
        const SRQ_SOFT_HW = 1 << 24;
        const MAX_RDMA_READ_IOV = 1 << 25;
        const MAX_RDMA_WRITE_IOV = 1 << 26;
        const NUM_TRANSPORT_ATTRIBUTES = 1 << 27;
        const TRANSPORT_ATTRIBUTES = 1 << 28;
        const NUM_PROVIDER_ATTRIBUTES = 1 << 29;
        const PROVIDER_ATTRIBUTES = 1 << 30;
    }
}

/// New values for [`super::Ep::modify`]; only those whose [`EpFields`] are
/// named with them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpChange {
    /// Protection zone.
    pub pz: Option<Handle>,
    /// Where receives are to be reported.
    pub recv_evd: Option<Handle>,
    /// Where requests are to be reported.
    pub request_evd: Option<Handle>,
    /// Where connection events are to be reported.
    pub connect_evd: Option<Handle>,
    /// New attributes.
    pub attributes: EpAttributes,
}
