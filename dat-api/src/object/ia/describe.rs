//! The values of the attributes; [`super::attributes`] has the tables.

use core::net::SocketAddr;

use dat_engine::cm::Manager;
use dat_engine::{Device, PortInfo, Transport};

use super::attributes::{
    ALIGNMENT, ALLOCATED, AVAILABLE, EpCreator, HARD_WATERMARK, IaAttributes, IovOwnership,
    LOW_WATERMARK, NamedAttribute, OUTSTANDING, ProviderAttributes, PzSupport, SOFT_WATERMARK,
    SPAN,
};
use super::limit_attributes::{LimitAttributes, count};
use super::limits::MAX_LMRS;
use crate::options::{NumaChoice, Options};
use crate::types::CompletionFlags;

/// What the attributes are derived from.
pub(super) struct AttributeSources<'a> {
    pub(super) name: &'a str,
    pub(super) device: &'a Device,
    pub(super) port: &'a PortInfo,
    pub(super) address: SocketAddr,
    pub(super) local_address: usize,
    pub(super) manager: &'a Manager,
    pub(super) threadsafe: bool,
    /// The DAT version of the interface.
    pub(super) interface: (u32, u32),
    pub(super) options: &'a Options,
    /// The result of [`placement`].
    pub(super) numa: String,
    /// The attributes of connections.
    pub(super) connections: Vec<NamedAttribute>,
}

impl AttributeSources<'_> {
    pub(super) fn adapter(&self) -> IaAttributes {
        let info = self.device.info();
        let limits = self.device.limits();
        let from_limits = LimitAttributes::of(limits);
        let per_ep = |reads: i32| reads.saturating_mul(from_limits.max_eps);
        let (firmware_version_major, firmware_version_minor) = version(&info.firmware);
        IaAttributes {
            adapter_name: self.name.to_owned(),
            vendor_name: vendor(info.vendor_id),
            hardware_version_major: info.part_id,
            hardware_version_minor: 0,
            firmware_version_major,
            firmware_version_minor,
            ia_address_ptr: self.local_address,
            ia_address: self.address,
            max_eps: from_limits.max_eps,
            max_dto_per_ep: from_limits.max_dto_per_ep,
            max_rdma_read_per_ep_in: from_limits.max_rdma_read_per_ep_in,
            max_rdma_read_per_ep_out: from_limits.max_rdma_read_per_ep_out,
            max_evds: count(limits.cqs),
            max_evd_qlen: from_limits.max_evd_qlen,
            max_iov_segments_per_dto: from_limits.max_iov_segments_per_dto,
            max_lmrs: count(limits.regions.min(MAX_LMRS)),
            max_lmr_block_size: limits.region_size,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: count(limits.domains),
            max_message_size: self.port.max_message.into(),
            max_rdma_size: self.port.max_message.into(),
            max_rmrs: from_limits.max_rmrs,
            max_rmr_target_address: if limits.windows == 0 { 0 } else { u64::MAX },
            max_srqs: from_limits.max_srqs,
            max_ep_per_srq: from_limits.max_ep_per_srq,
            max_recv_per_srq: from_limits.max_recv_per_srq,
            max_iov_segments_per_rdma_read: from_limits.max_iov_segments_per_rdma_read,
            max_iov_segments_per_rdma_write: from_limits.max_iov_segments_per_rdma_write,
            max_rdma_read_in: per_ep(from_limits.max_rdma_read_per_ep_in),
            max_rdma_read_out: per_ep(from_limits.max_rdma_read_per_ep_out),
            max_rdma_read_per_ep_in_guaranteed: true,
            max_rdma_read_per_ep_out_guaranteed: true,
            transport_mtu: self.port.active_mtu.bytes(),
            atomics: limits.atomics,
            immediate_data: info.transport != Transport::Iwarp,
            transport_attributes: Vec::new(),
            vendor_attributes: vec![
                named("firmware", info.firmware.clone()),
                named("guid", format!("{:016x}", info.guid)),
            ],
        }
    }

    pub(super) fn provider(&self) -> ProviderAttributes {
        let part = |text: &str| text.parse().unwrap_or(0);
        let (dapl_version_major, dapl_version_minor) = self.interface;
        let shares = self.device.limits().srqs > 0;
        let if_shared = |bits: i32| if shares { bits } else { 0 };
        ProviderAttributes {
            provider_name: "udapl".to_owned(),
            provider_version_major: part(env!("CARGO_PKG_VERSION_MAJOR")),
            provider_version_minor: part(env!("CARGO_PKG_VERSION_MINOR")),
            dapl_version_major,
            dapl_version_minor,
            lmr_mem_types_supported: 1 | 2,
            iov_ownership_on_return: IovOwnership::Consumer,
            dat_qos_supported: 0,
            completion_flags_supported: match self.device.reports_solicited() {
                true => CompletionFlags::all(),
                false => CompletionFlags::all() - CompletionFlags::SOLICITED_WAIT,
            },
            is_thread_safe: self.threadsafe,
            max_private_data_size: i32::try_from(
                self.manager.max_private_data(self.device.info().transport),
            )
            .unwrap_or(i32::MAX),
            supports_multipath: false,
            ep_creator: EpCreator::IfAsked,
            pz_support: PzSupport::Unique,
            optimal_buffer_alignment: ALIGNMENT,
            evd_stream_merging_supported: [[true; 6]; 6],
            srq_supported: shares,
            srq_watermarks_supported: if_shared(LOW_WATERMARK | SOFT_WATERMARK | HARD_WATERMARK),
            srq_ep_pz_difference_supported: shares && self.device.srq_domain_may_differ(),
            srq_info_supported: if_shared(AVAILABLE | OUTSTANDING),
            ep_recv_info_supported: ALLOCATED | SPAN,
            lmr_sync_req: false,
            dto_async_return_guaranteed: true,
            rdma_write_for_rdma_read_req: false,
            provider_specific_attributes: [
                named("path", self.device.info().path.to_string()),
                named("wait", self.options.wait.to_string()),
                named("cm", self.manager.kind().to_string()),
                named("scatter", u8::from(!self.options.no_scatter).to_string()),
                named("numa", self.numa.clone()),
            ]
            .into_iter()
            .chain(self.connections.iter().cloned())
            .collect(),
        }
    }
}

/// Places memory as configured. Returns how, as the value of an attribute.
pub(super) fn placement(device: &Device, choice: NumaChoice) -> String {
    match choice {
        NumaChoice::Any => "any".to_owned(),
        NumaChoice::Device => match device.prefer_its_numa_node() {
            Ok(node) => format!("device (node {node})"),
            Err(error) => {
                tracing::warn!("{error}; memory is placed as with numa=any");
                format!("any ({})", error.cause())
            }
        },
    }
}

fn named(name: &'static str, value: String) -> NamedAttribute {
    NamedAttribute { name, value }
}

/// The numbers are those of the IEEE and of the PCI SIG.
fn vendor(number: u32) -> String {
    match number {
        0x02c9 | 0x15b3 => "Mellanox Technologies".to_owned(),
        0x8086 => "Intel".to_owned(),
        0x14e4 => "Broadcom".to_owned(),
        _ => format!("vendor {number:#06x}"),
    }
}

/// Returns the first two numbers of a version such as `16.35.2000`; 0 for parts that are not
/// numbers.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|part| part.trim().parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_vendors_are_parsed_with_defaults_for_unknown_parts() {
        assert_eq!(version("16.35.2000"), (16, 35));
        assert_eq!(version("16"), (16, 0));
        assert_eq!(version("garbage"), (0, 0));
        assert_eq!(version(""), (0, 0));
        assert_eq!(vendor(0x15b3), "Mellanox Technologies");
        assert_eq!(vendor(0xbad), "vendor 0x0bad");
    }
}
