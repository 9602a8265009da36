//! The limits of an IA: the lower ones of its device and of the library itself.

use core::net::{Ipv4Addr, SocketAddr};

use dat_engine::Limits;

use super::IaAttributes;

/// The maximum number of segments of one request.
pub const MAX_SEGMENTS: usize = 32;

/// The maximum number of LMRs in a process.
pub(crate) const MAX_LMRS: u32 = (1 << 20) - 1;

impl IaAttributes {
    /// Returns the attributes of an IA on a device with these limits, without those that do not
    /// follow from limits. The table of [`super::attributes`] has the reasons.
    #[must_use]
    pub fn of(limits: &Limits) -> Self {
        let shares = limits.srqs > 0;
        let if_shared = |value: i32| if shares { value } else { 0 };
        let (max_eps, segments_of_one) = (count(limits.qps), segments(limits.segments));
        let [reads_served, reads_issued] =
            [limits.reads_served, limits.reads_issued].map(i32::from);
        Self {
            adapter_name: String::new(),
            vendor_name: String::new(),
            hardware_version_major: 0,
            hardware_version_minor: 0,
            firmware_version_major: 0,
            firmware_version_minor: 0,
            ia_address_ptr: 0,
            ia_address: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            max_eps,
            max_dto_per_ep: count(limits.queue_depth.min(limits.cq_depth).saturating_sub(1)),
            max_rdma_read_per_ep_in: reads_served,
            max_rdma_read_per_ep_out: reads_issued,
            max_evds: count(limits.cqs),
            max_evd_qlen: count(limits.cq_depth),
            max_iov_segments_per_dto: segments_of_one,
            max_lmrs: count(limits.regions.min(MAX_LMRS)),
            max_lmr_block_size: limits.region_size,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: count(limits.domains),
            max_message_size: 0,
            max_rdma_size: 0,
            max_rmrs: count(limits.windows),
            max_rmr_target_address: if limits.windows == 0 { 0 } else { u64::MAX },
            max_srqs: count(limits.srqs),
            max_ep_per_srq: if_shared(max_eps),
            max_recv_per_srq: if_shared(count(limits.srq_depth.min(limits.cq_depth))),
            max_iov_segments_per_rdma_read: segments(limits.read_segments),
            max_iov_segments_per_rdma_write: segments_of_one,
            max_rdma_read_in: reads_served.saturating_mul(max_eps),
            max_rdma_read_out: reads_issued.saturating_mul(max_eps),
            max_rdma_read_per_ep_in_guaranteed: true,
            max_rdma_read_per_ep_out_guaranteed: true,
            transport_mtu: 0,
            atomics: limits.atomics,
            immediate_data: false,
            transport_attributes: Vec::new(),
            vendor_attributes: Vec::new(),
        }
    }
}

/// Returns the maximum number of segments of a receive in an SRQ.
pub(super) fn srq_segments(limits: &Limits) -> i32 {
    segments(limits.srq_segments.min(limits.segments))
}

fn segments(limit: u32) -> i32 {
    count(limit.min(MAX_SEGMENTS as u32))
}

/// Converts a limit to C's 31 bits.
fn count(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns the rules of an IA on a small device with changed limits.
#[cfg(test)]
pub(crate) fn small_adapter(change: impl FnOnce(&mut Limits)) -> super::Rules {
    let mut limits = tests::SMALL;
    change(&mut limits);
    let mut rules = super::Rules::of(&limits);
    (rules.limits.max_message_size, rules.limits.max_rdma_size) = (1 << 30, 1 << 30);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn counts_above_31_bits_become_i32_max() {
        assert_eq!(count(7), 7);
        assert_eq!(count(u32::MAX), i32::MAX);
    }

    #[test]
    fn every_attribute_follows_from_the_device_limits() {
        let small = IaAttributes::of(&SMALL);
        let expected = IaAttributes {
            max_eps: 100,
            max_dto_per_ep: 15,
            max_evds: 100,
            max_evd_qlen: 64,
            max_iov_segments_per_dto: 6,
            max_iov_segments_per_rdma_read: 1,
            max_iov_segments_per_rdma_write: 6,
            max_rdma_read_per_ep_in: 2,
            max_rdma_read_per_ep_out: 1,
            max_rdma_read_in: 200,
            max_rdma_read_out: 100,
            max_srqs: 10,
            max_ep_per_srq: 100,
            // The completions must fit a completion queue.
            max_recv_per_srq: 64,
            max_rmrs: 0,
            max_rmr_target_address: 0,
            max_lmrs: 100,
            max_pzs: 10,
            ..small.clone()
        };
        assert_eq!((small, srq_segments(&SMALL)), (expected, 2));
        let short = Limits {
            cq_depth: 8,
            ..SMALL
        };
        assert_eq!(IaAttributes::of(&short).max_dto_per_ep, 7);
        let many = IaAttributes::of(&Limits {
            segments: 100,
            read_segments: 100,
            ..SMALL
        });
        assert_eq!(many.max_iov_segments_per_dto, 32);
        assert_eq!(many.max_iov_segments_per_rdma_read, 32);
    }

    #[test]
    fn without_shared_queues_their_attributes_are_zero() {
        let none = IaAttributes::of(&Limits { srqs: 0, ..SMALL });
        let shared = [none.max_srqs, none.max_ep_per_srq, none.max_recv_per_srq];
        assert_eq!(shared, [0; 3]);
        assert_eq!(none.max_eps, 100, "other attributes remain");
    }
}
