//! Events of rdma_cm, as values.

use dv_sys::rdmacm::rdma_cm_event_type as number;

/// An event of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    AddressResolved,
    RouteResolved,
    /// A connection request; the id is a listener's.
    Requested(PeerParameters),
    /// The peer accepted.
    Accepted(PeerParameters),
    Rejected {
        /// The reason, as in the InfiniBand specification; on iWARP a negative
        /// error number.
        reason: i32,
        private_data: Vec<u8>,
    },
    /// The connection is established. The requester of an iWARP connection gets
    /// this in place of [`Event::Accepted`]: its queue pair is in RTS.
    Established(PeerParameters),
    Disconnected,
    /// The connection could not be established, or has ended; a negative error
    /// number.
    Failed(i32),
    DeviceRemoved,
    /// An event that does not concern the connection: its number.
    Other(u32),
}

/// The parameters of the peer's endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PeerParameters {
    /// The most RDMA reads of this side that it serves at a time.
    pub(super) reads_served: u8,
    /// The most RDMA reads that it requests to have in flight.
    pub(super) reads_requested: u8,
    pub(super) private_data: Vec<u8>,
}

/// The reason of a rejection by the application, or by a kernel whose application
/// has ended.
pub(super) const CONSUMER_DEFINED: i32 = 28;

/// Returns whether the application may have rejected for that reason. On iWARP one
/// error number stands for all reasons.
pub(super) fn is_consumers(reason: i32) -> bool {
    reason == CONSUMER_DEFINED || reason < 0
}

/// The reason of a rejection because the peer's kernel still remembers the last
/// connection of this queue pair.
pub(super) const STALE_CONNECTION: i32 = 10;

impl Event {
    /// Makes an event of the fields of `rdma_cm_event`.
    pub(super) fn new(event: number::Type, status: i32, peer_parameters: PeerParameters) -> Self {
        match event {
            number::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddressResolved,
            number::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            number::RDMA_CM_EVENT_CONNECT_REQUEST => Self::Requested(peer_parameters),
            number::RDMA_CM_EVENT_CONNECT_RESPONSE => Self::Accepted(peer_parameters),
            number::RDMA_CM_EVENT_REJECTED => Self::Rejected {
                reason: status,
                private_data: peer_parameters.private_data,
            },
            number::RDMA_CM_EVENT_ESTABLISHED => Self::Established(peer_parameters),
            number::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            number::RDMA_CM_EVENT_ADDR_ERROR
            | number::RDMA_CM_EVENT_ROUTE_ERROR
            | number::RDMA_CM_EVENT_CONNECT_ERROR
            | number::RDMA_CM_EVENT_UNREACHABLE => Self::Failed(status),
            number::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoved,
            // The address change of an interface, for example when a member of a
            // bond fails, is only a hint to reconnect for better performance, since
            // the bond's device stays. TIMEWAIT_EXIT says that a queue pair may be
            // used again. Other events are of multicast, or of a later kernel.
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_number_is_converted_and_unknown_ones_are_kept() {
        let peer_parameters = PeerParameters {
            reads_served: 3,
            reads_requested: 4,
            private_data: vec![5],
        };
        let of = |event, status| Event::new(event, status, peer_parameters.clone());
        assert_eq!(of(4, 0), Event::Requested(peer_parameters.clone()));
        assert_eq!(of(5, 0), Event::Accepted(peer_parameters.clone()));
        let rejected = Event::Rejected {
            reason: CONSUMER_DEFINED,
            private_data: vec![5],
        };
        assert_eq!(of(8, 28), rejected);
        assert_eq!(of(9, 0), Event::Established(peer_parameters.clone()));
        for failed in [1, 3, 6, 7] {
            assert_eq!(of(failed, -110), Event::Failed(-110));
        }
        assert_eq!(of(11, 0), Event::DeviceRemoved);
        for other in [12, 14, 15, 16, 4711] {
            assert_eq!(of(other, 0), Event::Other(other));
        }
    }
}
