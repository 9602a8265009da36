//! States of endpoints.

use crate::status::Subtype;

/// `DAT_EP_STATE`, with its numbers, without the four UNCONFIGURED ones that no provider reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EpState {
    /// No connection, and none being established.
    Unconnected = 0,
    /// Held by a reserved service point.
    Reserved = 2,
    /// A request has come for the reserved service point that holds it.
    PassiveConnectionPending = 4,
    /// Connecting.
    ActiveConnectionPending = 6,
    /// Created by the provider for a request.
    TentativeConnectionPending = 7,
    /// Connected.
    Connected = 9,
    /// A graceful disconnect is in progress.
    DisconnectPending = 10,
    /// Disconnected, not yet reset.
    Disconnected = 11,
    /// Accepted; waiting until the peer is ready.
    CompletionPending = 12,
}

impl EpState {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Unconnected,
        Self::Reserved,
        Self::PassiveConnectionPending,
        Self::ActiveConnectionPending,
        Self::TentativeConnectionPending,
        Self::Connected,
        Self::DisconnectPending,
        Self::Disconnected,
        Self::CompletionPending,
    ];

    /// Returns the subtype of `DAT_INVALID_STATE` that names this state.
    #[must_use]
    pub const fn subtype(self) -> Subtype {
        match self {
            Self::Unconnected => Subtype::InvalidStateEpUnconnected,
            Self::Reserved => Subtype::InvalidStateEpReserved,
            Self::PassiveConnectionPending => Subtype::InvalidStateEpPassconnpending,
            Self::ActiveConnectionPending => Subtype::InvalidStateEpActconnpending,
            Self::TentativeConnectionPending => Subtype::InvalidStateEpTentconnpending,
            Self::Connected => Subtype::InvalidStateEpConnected,
            Self::DisconnectPending => Subtype::InvalidStateEpDiscpending,
            Self::Disconnected => Subtype::InvalidStateEpDisconnected,
            Self::CompletionPending => Subtype::InvalidStateEpComplpending,
        }
    }
}
