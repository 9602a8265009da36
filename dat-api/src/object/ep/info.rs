//! The results of endpoint queries, and the parameters of a change.

use crate::handle::Handle;
use crate::types::{EpAttributes, EpState};

/// The result of `dat_ep_query`. Addresses point to a `sockaddr` that lives as long as the endpoint
/// (the local one: as long as the IA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// Its state.
    pub state: EpState,
    /// The address of the adapter's own `sockaddr`.
    pub local_address: usize,
    /// The local qualifier. On the passive side, that of the service point; on the active side, the
    /// port that the endpoint connects from, once the request is sent. 0 where the state gives it
    /// no meaning.
    pub local_port_qualifier: u64,
    /// The address of the `sockaddr` for the peer: the present or the last one, and of family 0
    /// (`AF_UNSPEC`) before the first. On a strict IA, 0 where the state gives it no meaning.
    pub remote_address: usize,
    /// The peer's qualifier; 0 where the state gives it no meaning.
    pub remote_port_qualifier: u64,
    /// The protection zone, if it has one.
    pub pz: Option<Handle>,
    /// The EVD for completions of receives.
    pub recv_evd: Option<Handle>,
    /// The EVD for completions of requests.
    pub request_evd: Option<Handle>,
    /// The EVD for connection events.
    pub connect_evd: Option<Handle>,
    /// The SRQ that receives are taken from, if not from a queue of its own.
    pub srq: Option<Handle>,
    /// The actual attributes.
    pub attributes: EpAttributes,
}

/// The result of `dat_ep_get_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpStatus {
    /// Its state.
    pub state: EpState,
    /// No receive is outstanding.
    pub recv_idle: bool,
    /// No request is outstanding.
    pub request_idle: bool,
}

/// The result of `dat_ep_recv_query`, from one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvQuery {
    /// The number of receives that belong to the endpoint and whose events have not been dequeued.
    /// On its own queue, a receive counts from the post; on an SRQ, from its completion.
    pub allocated: u32,
    /// The distance from the latest message that has a receive to the latest one whose event was
    /// dequeued; never less than `allocated`.
    pub span: u32,
}

/// The new values for [`super::Ep::modify`], which uses only those named by the
/// [`super::EpFields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpChange {
    /// Protection zone.
    pub pz: Option<Handle>,
    /// The EVD for completions of receives.
    pub recv_evd: Option<Handle>,
    /// The EVD for completions of requests.
    pub request_evd: Option<Handle>,
    /// The EVD for connection events.
    pub connect_evd: Option<Handle>,
    /// New attributes.
    pub attributes: EpAttributes,
}
