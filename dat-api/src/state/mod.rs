//! The state machine of an endpoint, as tables: where each trigger leads and with which event, and
//! which call is legal in which state.
//!
//! From the published 1.2 man pages (section 3DAT: `dat_ep_create`, `dat_ep_connect`,
//! `dat_cr_accept`, `dat_ep_disconnect`, `dat_ep_reset`, `dat_ep_free`, `dat_rsp_create`). The
//! endpoint changes its state only by these tables.
//!
//! Decision: `docs/decisions/034-deviations-from-dat.md`

use crate::error::DatError;
use crate::status::ReturnType;
use crate::types::{ConnectionKind, EpState};

#[cfg(test)]
mod tests;

/// What changes the state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// `dat_rsp_create` that names it.
    Reserve,
    /// `dat_rsp_free`.
    Release,
    /// A request has come for the reserved service point that holds it.
    RequestArrived,
    /// `dat_ep_connect` and `dat_ep_dup_connect`.
    Connect,
    /// The peer accepted, and this side is ready.
    PeerAccepted,
    /// The peer's consumer rejected.
    PeerRejected,
    /// Rejected otherwise, or the attempt failed.
    NonPeerRejected,
    /// There is no route to the peer, or its host does not answer.
    Unreachable,
    /// The timeout of `dat_ep_connect` has expired.
    TimedOut,
    /// `dat_cr_accept`.
    Accept,
    /// `dat_cr_reject`.
    Reject,
    /// The peer has received the accept, and is ready.
    TransportReady,
    /// The peer will not become ready.
    AcceptFailed,
    /// `dat_ep_disconnect`, graceful.
    DisconnectGraceful,
    /// `dat_ep_disconnect`, abrupt.
    DisconnectAbrupt,
    /// The peer has disconnected.
    PeerDisconnected,
    /// A transfer failed, or the peer is gone.
    Failed,
    /// The disconnect is complete.
    TornDown,
    /// `dat_ep_reset`.
    Reset,
    /// `dat_ep_free`.
    Free,
}

impl Trigger {
    /// All triggers.
    pub const ALL: [Self; 20] = [
        Self::Reserve,
        Self::Release,
        Self::RequestArrived,
        Self::Connect,
        Self::PeerAccepted,
        Self::PeerRejected,
        Self::NonPeerRejected,
        Self::Unreachable,
        Self::TimedOut,
        Self::Accept,
        Self::Reject,
        Self::TransportReady,
        Self::AcceptFailed,
        Self::DisconnectGraceful,
        Self::DisconnectAbrupt,
        Self::PeerDisconnected,
        Self::Failed,
        Self::TornDown,
        Self::Reset,
        Self::Free,
    ];
}

/// Where a trigger leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To a state, which may be the present one.
    State(EpState),
    /// The endpoint is freed.
    Gone,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The state before.
    pub from: EpState,
    /// What happens.
    pub trigger: Trigger,
    /// The state after.
    pub to: To,
    /// The event on the connect EVD.
    pub event: Option<ConnectionKind>,
}

const fn edge(from: EpState, trigger: Trigger, to: EpState, event: Option<ConnectionKind>) -> Edge {
    Edge {
        from,
        trigger,
        to: To::State(to),
        event,
    }
}

const fn end(from: EpState, trigger: Trigger) -> Edge {
    Edge {
        from,
        trigger,
        to: To::Gone,
        event: None,
    }
}

use ConnectionKind as Event;
use EpState::{
    ActiveConnectionPending as Active, CompletionPending, Connected, DisconnectPending,
    Disconnected, PassiveConnectionPending as Passive, Reserved,
    TentativeConnectionPending as Tentative, Unconnected,
};

/// All transitions of an endpoint.
pub const EDGES: [Edge; 37] = [
    edge(Unconnected, Trigger::Reserve, Reserved, None),
    edge(Reserved, Trigger::Release, Unconnected, None),
    edge(Reserved, Trigger::RequestArrived, Passive, None),
    edge(Unconnected, Trigger::Connect, Active, None),
    edge(
        Active,
        Trigger::PeerAccepted,
        Connected,
        Some(Event::Established),
    ),
    edge(
        Active,
        Trigger::PeerRejected,
        Disconnected,
        Some(Event::PeerRejected),
    ),
    edge(
        Active,
        Trigger::NonPeerRejected,
        Disconnected,
        Some(Event::NonPeerRejected),
    ),
    edge(
        Active,
        Trigger::Unreachable,
        Disconnected,
        Some(Event::Unreachable),
    ),
    edge(
        Active,
        Trigger::TimedOut,
        Disconnected,
        Some(Event::TimedOut),
    ),
    edge(
        Active,
        Trigger::DisconnectGraceful,
        Disconnected,
        Some(Event::Disconnected),
    ),
    edge(
        Active,
        Trigger::DisconnectAbrupt,
        Disconnected,
        Some(Event::Disconnected),
    ),
    edge(Unconnected, Trigger::Accept, CompletionPending, None),
    edge(Passive, Trigger::Accept, CompletionPending, None),
    edge(Tentative, Trigger::Accept, CompletionPending, None),
    edge(Passive, Trigger::Reject, Unconnected, None),
    end(Tentative, Trigger::Reject),
    edge(
        CompletionPending,
        Trigger::TransportReady,
        Connected,
        Some(Event::Established),
    ),
    edge(
        CompletionPending,
        Trigger::AcceptFailed,
        Disconnected,
        Some(Event::AcceptCompletionError),
    ),
    edge(
        CompletionPending,
        Trigger::DisconnectGraceful,
        Disconnected,
        Some(Event::Disconnected),
    ),
    edge(
        CompletionPending,
        Trigger::DisconnectAbrupt,
        Disconnected,
        Some(Event::Disconnected),
    ),
    edge(
        Connected,
        Trigger::DisconnectGraceful,
        DisconnectPending,
        None,
    ),
    edge(
        Connected,
        Trigger::DisconnectAbrupt,
        DisconnectPending,
        None,
    ),
    edge(
        Connected,
        Trigger::PeerDisconnected,
        Disconnected,
        Some(Event::Disconnected),
    ),
    edge(
        Connected,
        Trigger::Failed,
        Disconnected,
        Some(Event::Broken),
    ),
    edge(
        DisconnectPending,
        Trigger::TornDown,
        Disconnected,
        Some(Event::Disconnected),
    ),
    edge(
        DisconnectPending,
        Trigger::DisconnectAbrupt,
        Disconnected,
        Some(Event::Disconnected),
    ),
    edge(
        DisconnectPending,
        Trigger::DisconnectGraceful,
        DisconnectPending,
        None,
    ),
    edge(
        Disconnected,
        Trigger::DisconnectGraceful,
        Disconnected,
        None,
    ),
    edge(Disconnected, Trigger::DisconnectAbrupt, Disconnected, None),
    edge(Disconnected, Trigger::Reset, Unconnected, None),
    edge(Unconnected, Trigger::Reset, Unconnected, None),
    end(Unconnected, Trigger::Free),
    end(Active, Trigger::Free),
    end(CompletionPending, Trigger::Free),
    end(Connected, Trigger::Free),
    end(DisconnectPending, Trigger::Free),
    end(Disconnected, Trigger::Free),
];

/// Returns the transition for a trigger in a state; `None` if there is none.
#[must_use]
pub fn step(from: EpState, trigger: Trigger) -> Option<&'static Edge> {
    EDGES
        .iter()
        .find(|edge| edge.from == from && edge.trigger == trigger)
}

/// A set of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(u32);

impl States {
    /// Returns the set of these states.
    #[must_use]
    pub const fn of(states: &[EpState]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < states.len() {
            bits |= 1 << states[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Returns whether a state is in the set.
    #[inline(always)]
    #[must_use]
    pub const fn has(self, state: EpState) -> bool {
        self.0 >> (state as u32) & 1 != 0
    }
}

/// Calls whose legality depends on the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `dat_ep_connect`, and `dat_ep_dup_connect` of the new endpoint.
    Connect,
    /// `dat_ep_dup_connect`, of the endpoint whose peer is connected to.
    DupModel,
    /// `dat_ep_disconnect`.
    Disconnect,
    /// `dat_ep_reset`.
    Reset,
    /// `dat_ep_free`.
    Free,
    /// `dat_ep_post_send`, `dat_ep_post_rdma_read`, `dat_ep_post_rdma_write`,
    /// `dat_rmr_bind`.
    PostRequest,
    /// `dat_ep_post_recv`.
    PostRecv,
    /// `dat_rsp_create`.
    Reserve,
    /// `dat_cr_accept` that names it.
    AcceptNamed,
    /// `dat_cr_accept` of the request that it was created or reserved for.
    AcceptProvided,
    /// `dat_ep_modify` of the protection zone.
    ModifyZone,
    /// `dat_ep_modify` of EVDs and attributes.
    Modify,
    /// `dat_ep_modify` of transport's and provider's attributes.
    ModifySpecific,
}

impl Call {
    /// All calls.
    pub const ALL: [Self; 13] = [
        Self::Connect,
        Self::DupModel,
        Self::Disconnect,
        Self::Reset,
        Self::Free,
        Self::PostRequest,
        Self::PostRecv,
        Self::Reserve,
        Self::AcceptNamed,
        Self::AcceptProvided,
        Self::ModifyZone,
        Self::Modify,
        Self::ModifySpecific,
    ];

    /// Returns the states in which it is legal.
    #[must_use]
    pub const fn legal(self) -> States {
        match self {
            Self::Connect | Self::Reserve | Self::AcceptNamed | Self::ModifySpecific => {
                States::of(&[Unconnected])
            }
            Self::DupModel => States::of(&[Connected]),
            Self::Disconnect => States::of(&[
                Connected,
                DisconnectPending,
                Disconnected,
                Active,
                CompletionPending,
            ]),
            Self::Reset => States::of(&[Unconnected, Disconnected]),
            Self::Free => States::of(&[
                Unconnected,
                Active,
                CompletionPending,
                Connected,
                DisconnectPending,
                Disconnected,
            ]),
            Self::PostRequest => States::of(&[Connected, Disconnected]),
            Self::PostRecv => States::of(&EpState::ALL),
            Self::AcceptProvided => States::of(&[Passive, Tentative]),
            Self::ModifyZone => States::of(&[Unconnected, Tentative]),
            Self::Modify => States::of(&[Unconnected, Reserved, Passive, Tentative]),
        }
    }
}

/// Returns `DAT_INVALID_STATE`, with the subtype that names the state, and the cause.
pub(crate) fn refused(what: &str, state: EpState) -> DatError {
    DatError::new(
        ReturnType::InvalidState,
        state.subtype(),
        format!(
            "{what} is not possible while the endpoint is {state:?}: {}",
            remedy(state)
        ),
    )
}

/// As [`refused`], with the states in which it is possible.
pub(crate) fn refused_in(legal: States, what: &str, state: EpState) -> DatError {
    let legal: Vec<_> = EpState::ALL
        .into_iter()
        .filter(|&state| legal.has(state))
        .map(|state| format!("{state:?}"))
        .collect();
    DatError::new(
        ReturnType::InvalidState,
        state.subtype(),
        format!(
            "{what} is not possible while the endpoint is {state:?}: expected {}; {}",
            legal.join(", "),
            remedy(state)
        ),
    )
}

/// Returns how an endpoint leaves a state.
fn remedy(state: EpState) -> &'static str {
    match state {
        EpState::Unconnected => "connect it first",
        EpState::Reserved => "free the service point that holds it first",
        EpState::PassiveConnectionPending | EpState::TentativeConnectionPending => {
            "accept or reject its connection request first"
        }
        EpState::ActiveConnectionPending | EpState::CompletionPending => {
            "wait for its connection event first"
        }
        EpState::Connected => "disconnect it and wait for the event, then reset it",
        EpState::DisconnectPending => "wait for DAT_CONNECTION_EVENT_DISCONNECTED first",
        EpState::Disconnected => "call dat_ep_reset first",
    }
}
