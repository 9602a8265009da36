//! The limits of a device.

use super::transport::Transport;
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::verbs::{ibv_atomic_cap, ibv_device_attr, ibv_device_cap_flags};

/// The limits of a device, as `ibv_query_device_ex` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub qps: u32,
    /// Outstanding requests of a send or receive queue (`max_qp_wr`).
    pub queue_depth: u32,
    /// Segments of one request (`max_sge`).
    pub segments: u32,
    /// Segments of one RDMA read (`max_sge_rd`).
    pub read_segments: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Entries of a CQ (`max_cqe`).
    pub cq_depth: u32,
    /// Completion vectors; the vector of a CQ is below this number.
    pub vectors: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Outstanding receives of a shared receive queue (`max_srq_wr`).
    pub srq_depth: u32,
    /// Segments of a receive in a shared receive queue (`max_srq_sge`).
    pub srq_segments: u32,
    /// Memory regions.
    pub regions: u32,
    /// Bytes of one memory region.
    pub region_size: u64,
    /// Memory windows; 0 if the device has none.
    pub windows: u32,
    /// Protection domains.
    pub domains: u32,
    /// RDMA reads and atomics of a peer that a QP serves at a time (`max_qp_rd_atom`).
    pub reads_served: u8,
    /// RDMA reads and atomics that a QP has in flight (`max_qp_init_rd_atom`).
    pub reads_issued: u8,
    /// The longest time that the device takes to acknowledge a packet, as the code
    /// of `TransportOptions`'s timeout (`local_ca_ack_delay`).
    pub ack_delay: u8,
    /// Whether the device has atomic operations (`atomic_cap`).
    pub atomics: bool,
}

const WINDOWS: u32 = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW.0;

impl Limits {
    pub(super) fn new(attr: &ibv_device_attr, vectors: u32, transport: Transport) -> Self {
        // Verbs use signed counts; a negative count means 0.
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        let small = |n: i32| u8::try_from(n.clamp(0, 255)).unwrap_or(u8::MAX);
        Self {
            qps: count(attr.max_qp),
            queue_depth: count(attr.max_qp_wr),
            segments: count(attr.max_sge),
            read_segments: read_segments(attr, transport),
            cqs: count(attr.max_cq),
            cq_depth: count(attr.max_cqe),
            vectors,
            srqs: count(attr.max_srq),
            srq_depth: count(attr.max_srq_wr),
            srq_segments: srq_segments(attr),
            regions: count(attr.max_mr),
            region_size: attr.max_mr_size,
            // Some drivers report a number although they have no memory windows.
            windows: if attr.device_cap_flags & WINDOWS != 0 {
                count(attr.max_mw)
            } else {
                0
            },
            domains: count(attr.max_pd),
            reads_served: small(attr.max_qp_rd_atom),
            reads_issued: small(attr.max_qp_init_rd_atom),
            ack_delay: attr.local_ca_ack_delay,
            atomics: attr.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE,
        }
    }
}

/// Returns the most segments of a receive in a shared receive queue. qedr of Linux
/// 6.1 has such queues but leaves `max_srq_sge` 0 (`qedr_set_device_attr`).
fn srq_segments(attr: &ibv_device_attr) -> u32 {
    let count = |n: i32| u32::try_from(n).unwrap_or(0);
    match (count(attr.max_srq), count(attr.max_srq_sge)) {
        (0, reported) => reported,
        (_, 0) => count(attr.max_sge),
        (_, reported) => reported,
    }
}

/// Returns the most segments of an RDMA read. Some drivers leave `max_sge_rd` 0: a
/// read then takes as many segments as other requests, but one on iWARP, whose
/// protocol has one sink buffer per read (RFC 5040, 4.4).
fn read_segments(attr: &ibv_device_attr, transport: Transport) -> u32 {
    let segments = u32::try_from(attr.max_sge).unwrap_or(0);
    match (u32::try_from(attr.max_sge_rd).unwrap_or(0), transport) {
        (0, Transport::Iwarp) => segments.min(1),
        (0, _) => segments,
        (reported, _) => reported.min(segments),
    }
}

/// A number from the application that must be between `least` and `most`, a limit
/// of the device or of a field that `limit` names.
pub(super) struct Bounded {
    pub(super) what: &'static str,
    pub(super) value: u32,
    pub(super) least: u32,
    pub(super) most: u32,
    pub(super) limit: &'static str,
}

impl Bounded {
    pub(super) fn check(&self, operation: &'static str) -> Result<(), ControlError> {
        let Self {
            what,
            value,
            least,
            most,
            limit,
        } = *self;
        let cause = if value < least {
            format!("{what} is {value}, and must be at least {least}")
        } else if value > most {
            format!("{what} is {value}, above the limit {limit} = {most}")
        } else {
            return Ok(());
        };
        Err(ControlError::new(ControlErrorKind::Limit, operation, cause)
            .with_remedy(format!("use {least} to {most}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_have_a_segment_limit_of_their_own() {
        // SAFETY: integers and byte arrays, for which zero is valid.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        for (max_sge, max_sge_rd, transport, expected) in [
            (30, 30, Transport::InfiniBand, 30),
            (6, 1, Transport::Iwarp, 1),
            (13, 4, Transport::Iwarp, 4),
            (6, 0, Transport::Iwarp, 1),
            (6, 0, Transport::Roce, 6),
            (4, 8, Transport::Roce, 4),
            (-1, 8, Transport::Roce, 0),
        ] {
            (attr.max_sge, attr.max_sge_rd) = (max_sge, max_sge_rd);
            let limits = Limits::new(&attr, 1, transport);
            let row = format!("{max_sge} {max_sge_rd} {transport}");
            assert_eq!(limits.read_segments, expected, "{row}");
        }
    }

    #[test]
    fn shared_queues_have_a_segment_limit_although_the_driver_reports_none() {
        // SAFETY: as above.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        attr.max_sge = 4;
        for (max_srq, max_srq_sge, expected) in [(0, 0, 0), (9, 0, 4), (9, 3, 3), (9, 6, 6)] {
            (attr.max_srq, attr.max_srq_sge) = (max_srq, max_srq_sge);
            let limits = Limits::new(&attr, 1, Transport::Roce);
            assert_eq!(limits.srq_segments, expected, "{max_srq} {max_srq_sge}");
        }
    }

    #[test]
    fn windows_and_atomics_follow_the_device_s_flags() {
        // SAFETY: as above.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        attr.max_mw = 100;
        let limits = |attr: &_| Limits::new(attr, 1, Transport::Roce);
        assert_eq!((limits(&attr).windows, limits(&attr).atomics), (0, false));
        attr.device_cap_flags = WINDOWS;
        attr.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_HCA;
        assert_eq!((limits(&attr).windows, limits(&attr).atomics), (100, true));
    }

    fn depth(value: u32) -> Result<(), ControlError> {
        Bounded {
            what: "the depth",
            value,
            least: 1,
            most: 4096,
            limit: "max_cqe",
        }
        .check("create")
    }

    #[test]
    fn zero_and_too_much_are_refused_and_the_limit_is_named() {
        assert!(depth(1).is_ok() && depth(4096).is_ok());
        let zero = depth(0).unwrap_err();
        assert!(zero.to_string().contains("at least 1"), "{zero}");
        let much = depth(4097).unwrap_err();
        assert_eq!(much.kind(), ControlErrorKind::Limit);
        assert!(much.to_string().contains("max_cqe = 4096"), "{much}");
    }
}
