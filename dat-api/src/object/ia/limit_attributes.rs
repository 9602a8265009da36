//! The DAT attributes that follow from a device's limits.

use dat_engine::Limits;

use super::limits::MAX_SEGMENTS;

/// The members of `DAT_IA_ATTR` that follow from the limits of a device alone, under the same
/// names. The table of [`super::attributes`] has the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "see the table of `attributes`")]
pub struct LimitAttributes {
    pub max_eps: i32,
    pub max_dto_per_ep: i32,
    pub max_evd_qlen: i32,
    pub max_iov_segments_per_dto: i32,
    pub max_iov_segments_per_rdma_read: i32,
    pub max_iov_segments_per_rdma_write: i32,
    pub max_rdma_read_per_ep_in: i32,
    pub max_rdma_read_per_ep_out: i32,
    pub max_srqs: i32,
    pub max_ep_per_srq: i32,
    pub max_recv_per_srq: i32,
    /// The maximum number of segments of a receive in a shared queue; DAT has no attribute for it.
    pub max_iov_segments_per_srq_recv: i32,
    pub max_rmrs: i32,
}

impl LimitAttributes {
    /// Returns the attributes of an IA on a device with these limits.
    #[must_use]
    pub fn of(limits: &Limits) -> Self {
        let segments = |limit: u32| count(limit.min(MAX_SEGMENTS as u32));
        let shares = limits.srqs > 0;
        let if_shared = |value: i32| if shares { value } else { 0 };
        Self {
            max_eps: count(limits.qps),
            max_dto_per_ep: count(limits.queue_depth.min(limits.cq_depth).saturating_sub(1)),
            max_evd_qlen: count(limits.cq_depth),
            max_iov_segments_per_dto: segments(limits.segments),
            max_iov_segments_per_rdma_read: segments(limits.read_segments),
            max_iov_segments_per_rdma_write: segments(limits.segments),
            max_rdma_read_per_ep_in: limits.reads_served.into(),
            max_rdma_read_per_ep_out: limits.reads_issued.into(),
            max_srqs: count(limits.srqs),
            max_ep_per_srq: if_shared(count(limits.qps)),
            max_recv_per_srq: if_shared(count(limits.srq_depth.min(limits.cq_depth))),
            max_iov_segments_per_srq_recv: if_shared(segments(
                limits.srq_segments.min(limits.segments),
            )),
            max_rmrs: count(limits.windows),
        }
    }
}

/// Converts a limit to C's 31 bits.
pub(super) fn count(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns the attributes of an adapter on a small device with changed limits.
#[cfg(test)]
pub(crate) fn small_adapter(change: impl FnOnce(&mut Limits)) -> super::IaAttributes {
    let mut limits = tests::SMALL;
    change(&mut limits);
    tests::adapter(&limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ia::IaAttributes;

    /// A small device: siw of Linux 6.1 with smaller depths.
    pub(super) const SMALL: Limits = Limits {
        qps: 100,
        queue_depth: 16,
        segments: 6,
        read_segments: 1,
        cqs: 100,
        cq_depth: 64,
        vectors: 1,
        srqs: 10,
        srq_depth: 100,
        srq_segments: 2,
        regions: 100,
        region_size: u64::MAX,
        windows: 0,
        domains: 10,
        reads_served: 2,
        reads_issued: 1,
        ack_delay: 15,
        atomics: false,
    };

    /// Returns the attributes of an adapter on a device with these limits.
    pub(super) fn adapter(limits: &Limits) -> IaAttributes {
        let from_limits = LimitAttributes::of(limits);
        IaAttributes {
            adapter_name: String::new(),
            vendor_name: String::new(),
            hardware_version_major: 0,
            hardware_version_minor: 0,
            firmware_version_major: 0,
            firmware_version_minor: 0,
            ia_address_ptr: 0,
            ia_address: ([127, 0, 0, 1], 0).into(),
            max_eps: from_limits.max_eps,
            max_dto_per_ep: from_limits.max_dto_per_ep,
            max_rdma_read_per_ep_in: from_limits.max_rdma_read_per_ep_in,
            max_rdma_read_per_ep_out: from_limits.max_rdma_read_per_ep_out,
            max_evds: 100,
            max_evd_qlen: from_limits.max_evd_qlen,
            max_iov_segments_per_dto: from_limits.max_iov_segments_per_dto,
            max_lmrs: 100,
            max_lmr_block_size: u64::MAX,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: 10,
            max_message_size: 1 << 30,
            max_rdma_size: 1 << 30,
            max_rmrs: from_limits.max_rmrs,
            max_rmr_target_address: 0,
            max_srqs: from_limits.max_srqs,
            max_ep_per_srq: from_limits.max_ep_per_srq,
            max_recv_per_srq: from_limits.max_recv_per_srq,
            max_iov_segments_per_rdma_read: from_limits.max_iov_segments_per_rdma_read,
            max_iov_segments_per_rdma_write: from_limits.max_iov_segments_per_rdma_write,
            max_rdma_read_in: 0,
            max_rdma_read_out: 0,
            max_rdma_read_per_ep_in_guaranteed: true,
            max_rdma_read_per_ep_out_guaranteed: true,
            transport_mtu: 1024,
            atomics: limits.atomics,
            immediate_data: false,
            transport_attributes: Vec::new(),
            vendor_attributes: Vec::new(),
        }
    }

    #[test]
    fn counts_above_31_bits_become_i32_max() {
        assert_eq!(count(7), 7);
        assert_eq!(count(u32::MAX), i32::MAX);
    }

    #[test]
    fn every_attribute_follows_from_the_device_limits() {
        let expected = LimitAttributes {
            max_eps: 100,
            max_dto_per_ep: 15,
            max_evd_qlen: 64,
            max_iov_segments_per_dto: 6,
            max_iov_segments_per_rdma_read: 1,
            max_iov_segments_per_rdma_write: 6,
            max_rdma_read_per_ep_in: 2,
            max_rdma_read_per_ep_out: 1,
            max_srqs: 10,
            max_ep_per_srq: 100,
            // The completions must fit a completion queue.
            max_recv_per_srq: 64,
            max_iov_segments_per_srq_recv: 2,
            max_rmrs: 0,
        };
        assert_eq!(LimitAttributes::of(&SMALL), expected);
        let short = Limits {
            cq_depth: 8,
            ..SMALL
        };
        assert_eq!(LimitAttributes::of(&short).max_dto_per_ep, 7);
        let many = Limits {
            segments: 100,
            read_segments: 100,
            ..SMALL
        };
        assert_eq!(LimitAttributes::of(&many).max_iov_segments_per_dto, 32);
        assert_eq!(
            LimitAttributes::of(&many).max_iov_segments_per_rdma_read,
            32
        );
    }

    #[test]
    fn without_shared_queues_their_attributes_are_zero() {
        let from_limits = LimitAttributes::of(&Limits { srqs: 0, ..SMALL });
        let shared = [
            from_limits.max_srqs,
            from_limits.max_ep_per_srq,
            from_limits.max_recv_per_srq,
            from_limits.max_iov_segments_per_srq_recv,
        ];
        assert_eq!(shared, [0; 4]);
        assert_eq!(from_limits.max_eps, 100, "other attributes remain");
    }
}
