//! What the kernel tells, as values.

use dv_sys::rdmacm::rdma_cm_event_type as number;

/// Something that happened to an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    AddressResolved,
    RouteResolved,
    /// Somebody wants to connect; the id is a listener's.
    Requested(Said),
    /// The peer accepted.
    Accepted(Said),
    Rejected {
        /// The reason of the InfiniBand specification; on iWARP a negative error
        /// number.
        reason: i32,
        private_data: Vec<u8>,
    },
    /// The connection is there. The requester of an iWARP connection gets this
    /// in place of [`Event::Accepted`]: its queue pair is in RTS.
    Established(Said),
    Disconnected,
    /// It will not be a connection, or is none any more: negative error numbers.
    Failed(i32),
    DeviceRemoved,
    /// Says nothing about the connection: the number.
    Other(u32),
}

/// What a peer says of his endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// RDMA reads of ours that he serves at a time.
    pub(super) reads_served: u8,
    /// RDMA reads that he would like to have in flight.
    pub(super) reads_asked: u8,
    pub(super) private_data: Vec<u8>,
}

/// Rejected: by the application, or by a kernel whose application is gone.
pub(super) const CONSUMER_DEFINED: i32 = 28;

/// Whether the application may have rejected for that reason. On iWARP an error
/// number stands for all of them.
pub(super) fn is_consumers(reason: i32) -> bool {
    reason == CONSUMER_DEFINED || reason < 0
}

/// Rejected: the peer's kernel remembers the last connection of this queue pair.
pub(super) const STALE_CONNECTION: i32 = 10;

impl Event {
    /// From the fields of `rdma_cm_event`.
    pub(super) fn new(event: number::Type, status: i32, said: Said) -> Self {
        match event {
            number::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddressResolved,
            number::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            number::RDMA_CM_EVENT_CONNECT_REQUEST => Self::Requested(said),
            number::RDMA_CM_EVENT_CONNECT_RESPONSE => Self::Accepted(said),
            number::RDMA_CM_EVENT_REJECTED => Self::Rejected {
                reason: status,
                private_data: said.private_data,
            },
            number::RDMA_CM_EVENT_ESTABLISHED => Self::Established(said),
            number::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            number::RDMA_CM_EVENT_ADDR_ERROR
            | number::RDMA_CM_EVENT_ROUTE_ERROR
            | number::RDMA_CM_EVENT_CONNECT_ERROR
            | number::RDMA_CM_EVENT_UNREACHABLE => Self::Failed(status),
            number::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoved,
            // Of an interface that changed its hardware address, as a bond
            // does when a member fails: a hint to reconnect for better
            // performance, for the bond's device goes on. TIMEWAIT_EXIT says
            // that a queue pair may be used again. Others are of multicast, or
            // of a later kernel.
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_meaning_and_unknown_ones_are_kept() {
        let said = Said {
            reads_served: 3,
            reads_asked: 4,
            private_data: vec![5],
        };
        let of = |event, status| Event::new(event, status, said.clone());
        assert_eq!(of(4, 0), Event::Requested(said.clone()));
        assert_eq!(of(5, 0), Event::Accepted(said.clone()));
        let rejected = Event::Rejected {
            reason: CONSUMER_DEFINED,
            private_data: vec![5],
        };
        assert_eq!(of(8, 28), rejected);
        assert_eq!(of(9, 0), Event::Established(said.clone()));
        for failed in [1, 3, 6, 7] {
            assert_eq!(of(failed, -110), Event::Failed(-110));
        }
        assert_eq!(of(11, 0), Event::DeviceRemoved);
        for other in [12, 14, 15, 16, 4711] {
            assert_eq!(of(other, 0), Event::Other(other));
        }
    }
}
