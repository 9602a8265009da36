//! The values of the attributes; [`super::attributes`] has the tables.

use dat_engine::{Device, Transport};

use super::attributes::{
    ALIGNMENT, ALLOCATED, AVAILABLE, EpCreator, HARD_WATERMARK, IaAttributes, IovOwnership,
    LOW_WATERMARK, NamedAttribute, OUTSTANDING, ProviderAttributes, PzSupport, SOFT_WATERMARK,
    SPAN,
};
use super::open::Opening;
use super::rules::Rules;
use crate::options::NumaChoice;
use crate::types::CompletionFlags;

impl Opening<'_> {
    pub(super) fn adapter(&self) -> IaAttributes {
        let info = self.device.info();
        let (firmware_version_major, firmware_version_minor) = version(&info.firmware);
        IaAttributes {
            adapter_name: self.request.name.to_owned(),
            vendor_name: vendor(info.vendor_id),
            hardware_version_major: info.part_id,
            firmware_version_major,
            firmware_version_minor,
            ia_address_ptr: self.local_address,
            ia_address: self.address,
            max_message_size: self.port.max_message.into(),
            max_rdma_size: self.port.max_message.into(),
            transport_mtu: self.port.active_mtu.bytes(),
            immediate_data: info.transport != Transport::Iwarp,
            vendor_attributes: vec![
                named("firmware", info.firmware.clone()),
                named("guid", format!("{:016x}", info.guid.0)),
            ],
            ..IaAttributes::of(self.device.limits())
        }
    }

    pub(super) fn provider(&self, rules: &Rules, numa: String) -> ProviderAttributes {
        let part = |text: &str| text.parse().unwrap_or(0);
        let (dapl_version_major, dapl_version_minor) = self.request.interface;
        let shares = rules.limits.max_srqs > 0;
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
            completion_flags_supported: match rules.reports_solicited {
                true => CompletionFlags::all(),
                false => CompletionFlags::all() - CompletionFlags::SOLICITED_WAIT,
            },
            is_thread_safe: rules.threadsafe,
            max_private_data_size: i32::try_from(rules.max_private_data).unwrap_or(i32::MAX),
            supports_multipath: false,
            ep_creator: EpCreator::IfAsked,
            pz_support: PzSupport::Unique,
            optimal_buffer_alignment: ALIGNMENT,
            evd_stream_merging_supported: [[true; 6]; 6],
            srq_supported: shares,
            srq_watermarks_supported: if_shared(LOW_WATERMARK | SOFT_WATERMARK | HARD_WATERMARK),
            srq_ep_pz_difference_supported: shares && rules.srq_zone_may_differ,
            srq_info_supported: if_shared(AVAILABLE | OUTSTANDING),
            ep_recv_info_supported: ALLOCATED | SPAN,
            lmr_sync_req: false,
            dto_async_return_guaranteed: true,
            rdma_write_for_rdma_read_req: false,
            provider_specific_attributes: [
                named("path", self.device.info().path.to_string()),
                named("wait", rules.wait.to_string()),
                named("cm", self.manager.kind().to_string()),
                named(
                    "scatter",
                    u8::from(rules.scatters_to_completions).to_string(),
                ),
                named("numa", numa),
            ]
            .into_iter()
            .chain(self.named(&rules.connect.transport))
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
