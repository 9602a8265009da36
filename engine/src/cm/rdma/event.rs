//! Events of rdma_cm, as values.

use crate::cm::wire::{Event, PeerParameters};
use dv_sys::rdmacm::rdma_cm_event_type as number;

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

/// The reason of a rejection because nothing listens there.
pub(super) const NO_LISTENER: i32 = 8;

/// Makes an event of the fields of `rdma_cm_event`.
pub(super) fn event_of(event: number::Type, status: i32, peer_parameters: PeerParameters) -> Event {
    match event {
        number::RDMA_CM_EVENT_ADDR_RESOLVED => Event::AddressResolved,
        number::RDMA_CM_EVENT_ROUTE_RESOLVED => Event::RouteResolved,
        number::RDMA_CM_EVENT_CONNECT_REQUEST => Event::Requested(peer_parameters),
        number::RDMA_CM_EVENT_CONNECT_RESPONSE => Event::Accepted(peer_parameters),
        number::RDMA_CM_EVENT_REJECTED => Event::Rejected {
            reason: status,
            private_data: peer_parameters.private_data,
        },
        number::RDMA_CM_EVENT_ESTABLISHED => Event::Established(peer_parameters),
        number::RDMA_CM_EVENT_DISCONNECTED => Event::Disconnected,
        number::RDMA_CM_EVENT_ADDR_ERROR
        | number::RDMA_CM_EVENT_ROUTE_ERROR
        | number::RDMA_CM_EVENT_CONNECT_ERROR
        | number::RDMA_CM_EVENT_UNREACHABLE => Event::Failed(status),
        number::RDMA_CM_EVENT_DEVICE_REMOVAL => Event::DeviceRemoved,
        // The address change of an interface, for example when a member of a
        // bond fails, is only a hint to reconnect for better performance, since
        // the bond's device stays. TIMEWAIT_EXIT says that a queue pair may be
        // used again. Other events are of multicast, or of a later kernel.
        other => Event::Other(other),
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
        let of = |event, status| event_of(event, status, peer_parameters.clone());
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
