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
    /// The local qualifier: of the service point on the passive side; on the
    /// active one the port that it connects from, which the peer's request
    /// tells, once that is known. 0 where the state gives it no meaning.
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

/// New values for [`super::Ep::modify`]; only those whose [`super::EpFields`] are
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
