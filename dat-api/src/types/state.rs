//! States of endpoints.

use crate::status::Subtype;

/// `DAT_EP_STATE`, with its numbers, less the four UNCONFIGURED ones that no
/// provider reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EpState {
    /// No connection, and none on its way.
    Unconnected = 0,
    /// Held by a reserved service point.
    Reserved = 2,
    /// A request has come for the reserved service point that holds it.
    PassiveConnectionPending = 4,
    /// Connecting.
    ActiveConnectionPending = 6,
    /// Made by the provider for a request.
    TentativeConnectionPending = 7,
    /// Connected.
    Connected = 9,
    /// A graceful disconnect is under way.
    DisconnectPending = 10,
    /// Disconnected, not yet reset.
    Disconnected = 11,
    /// Accepted; the peer's last word is awaited.
    CompletionPending = 12,
}

impl EpState {
    /// Every state, once.
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

    /// The subtype of `DAT_INVALID_STATE` that names this state.
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
