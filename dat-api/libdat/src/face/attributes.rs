//! Conversion of attributes and parameters between C and the objects.

use core::ptr::with_exposed_provenance_mut as pointer;
use std::ffi::CString;

use dat_api::object::ep::{EpFields, EpInfo};
use dat_api::object::ia::{IaAttributes, IaInfo, NamedAttribute};
use dat_api::sync::Mutex;
use dat_api::types::{CompletionFlags, EpAttributes};
use dat_api::{Result, Subtype};

use super::frame::require_with;
use super::handles::{bare, or_null};
use super::strings::copy;
use crate::abi::{
    DAT_COUNT, DAT_EP_ATTR, DAT_EP_CREATOR_FOR_PSP, DAT_EP_PARAM, DAT_EP_STATE, DAT_IA_ATTR,
    DAT_IOV_OWNERSHIP, DAT_NAMED_ATTR, DAT_PROVIDER_ATTR,
};
use crate::version;

/// Converts a count; values above the range of `DAT_COUNT` become its maximum.
#[inline(always)]
pub(crate) fn count(count: u32) -> DAT_COUNT {
    DAT_COUNT::try_from(count).unwrap_or(DAT_COUNT::MAX)
}

/// Converts the attributes of a new endpoint. `argument` names the argument for
/// error returns.
pub(crate) fn endpoint(from: &DAT_EP_ATTR, argument: Subtype) -> Result<EpAttributes> {
    require_no_specific(
        from.ep_transport_specific_count,
        from.ep_provider_specific_count,
        argument,
    )?;
    Ok(values(from))
}

fn require_no_specific(transport: DAT_COUNT, provider: DAT_COUNT, argument: Subtype) -> Result<()> {
    require_with(transport == 0 && provider == 0, argument, || {
        format!(
            "{transport} transport-specific and {provider} provider-specific attributes: expected \
             0 of both, because endpoints have none; clear the whole DAT_EP_ATTR before filling it"
        )
    })
}

/// Converts new attributes of an existing endpoint; only the named fields are
/// used.
pub(crate) fn changed_endpoint(from: &DAT_EP_ATTR, fields: EpFields) -> Result<EpAttributes> {
    let named = |field, count| if fields.contains(field) { count } else { 0 };
    require_no_specific(
        named(
            EpFields::NUM_TRANSPORT_ATTRIBUTES,
            from.ep_transport_specific_count,
        ),
        named(
            EpFields::NUM_PROVIDER_ATTRIBUTES,
            from.ep_provider_specific_count,
        ),
        Subtype::InvalidArg3,
    )?;
    Ok(values(from))
}

fn values(from: &DAT_EP_ATTR) -> EpAttributes {
    EpAttributes {
        service_type: from.service_type,
        max_message_size: version::bytes(from.max_message_size),
        max_rdma_size: version::bytes(from.max_rdma_size),
        qos: from.qos,
        // Unknown flags are kept here, and the endpoint refuses them.
        recv_completion_flags: CompletionFlags::from_bits_retain(from.recv_completion_flags),
        request_completion_flags: CompletionFlags::from_bits_retain(from.request_completion_flags),
        max_recv_dtos: from.max_recv_dtos,
        max_request_dtos: from.max_request_dtos,
        max_recv_iov: from.max_recv_iov,
        max_request_iov: from.max_request_iov,
        max_rdma_read_in: from.max_rdma_read_in,
        max_rdma_read_out: from.max_rdma_read_out,
        srq_soft_hw: from.srq_soft_hw,
        max_rdma_read_iov: from.max_rdma_read_iov,
        max_rdma_write_iov: from.max_rdma_write_iov,
    }
}

/// Converts the result of `dat_ep_query`.
#[allow(clippy::needless_update, reason = "a later version has more members")]
pub(crate) fn endpoint_info(info: &EpInfo) -> DAT_EP_PARAM {
    let from = &info.attributes;
    DAT_EP_PARAM {
        ia_handle: bare(info.ia),
        // `EpState` has the numbers of the header.
        ep_state: info.state as DAT_EP_STATE,
        local_ia_address_ptr: pointer(info.local_address),
        local_port_qual: info.local_port_qualifier,
        remote_ia_address_ptr: pointer(info.remote_address),
        remote_port_qual: info.remote_port_qualifier,
        pz_handle: or_null(info.pz),
        recv_evd_handle: or_null(info.recv_evd),
        request_evd_handle: or_null(info.request_evd),
        connect_evd_handle: or_null(info.connect_evd),
        srq_handle: or_null(info.srq),
        ep_attr: DAT_EP_ATTR {
            service_type: from.service_type,
            max_message_size: version::length(from.max_message_size),
            max_rdma_size: version::length(from.max_rdma_size),
            qos: from.qos,
            recv_completion_flags: from.recv_completion_flags.bits(),
            request_completion_flags: from.request_completion_flags.bits(),
            max_recv_dtos: from.max_recv_dtos,
            max_request_dtos: from.max_request_dtos,
            max_recv_iov: from.max_recv_iov,
            max_request_iov: from.max_request_iov,
            max_rdma_read_in: from.max_rdma_read_in,
            max_rdma_read_out: from.max_rdma_read_out,
            srq_soft_hw: from.srq_soft_hw,
            max_rdma_read_iov: from.max_rdma_read_iov,
            max_rdma_write_iov: from.max_rdma_write_iov,
            ep_transport_specific_count: 0,
            ep_transport_specific: core::ptr::null_mut(),
            ep_provider_specific_count: 0,
            ep_provider_specific: core::ptr::null_mut(),
        },
        ..version::ep_param()
    }
}

/// Converts the attributes of an adapter.
#[allow(clippy::needless_update, reason = "a later version has more members")]
pub(crate) fn ia(from: &IaAttributes) -> DAT_IA_ATTR {
    let (num_transport_attr, transport_attr) = named(&from.transport_attributes);
    let (num_vendor_attr, vendor_attr) = named(&from.vendor_attributes);
    DAT_IA_ATTR {
        adapter_name: copy(&from.adapter_name),
        vendor_name: copy(&from.vendor_name),
        hardware_version_major: from.hardware_version_major,
        hardware_version_minor: from.hardware_version_minor,
        firmware_version_major: from.firmware_version_major,
        firmware_version_minor: from.firmware_version_minor,
        ia_address_ptr: pointer(from.ia_address_ptr),
        max_eps: from.max_eps,
        max_dto_per_ep: from.max_dto_per_ep,
        max_rdma_read_per_ep_in: from.max_rdma_read_per_ep_in,
        max_rdma_read_per_ep_out: from.max_rdma_read_per_ep_out,
        max_evds: from.max_evds,
        max_evd_qlen: from.max_evd_qlen,
        max_iov_segments_per_dto: from.max_iov_segments_per_dto,
        max_lmrs: from.max_lmrs,
        max_lmr_block_size: version::length(from.max_lmr_block_size),
        max_lmr_virtual_address: from.max_lmr_virtual_address,
        max_pzs: from.max_pzs,
        max_message_size: version::length(from.max_message_size),
        max_rdma_size: version::length(from.max_rdma_size),
        max_rmrs: from.max_rmrs,
        max_rmr_target_address: from.max_rmr_target_address,
        max_srqs: from.max_srqs,
        max_ep_per_srq: from.max_ep_per_srq,
        max_recv_per_srq: from.max_recv_per_srq,
        max_iov_segments_per_rdma_read: from.max_iov_segments_per_rdma_read,
        max_iov_segments_per_rdma_write: from.max_iov_segments_per_rdma_write,
        max_rdma_read_in: from.max_rdma_read_in,
        max_rdma_read_out: from.max_rdma_read_out,
        max_rdma_read_per_ep_in_guaranteed: from.max_rdma_read_per_ep_in_guaranteed.into(),
        max_rdma_read_per_ep_out_guaranteed: from.max_rdma_read_per_ep_out_guaranteed.into(),
        num_transport_attr,
        transport_attr,
        num_vendor_attr,
        vendor_attr,
        ..version::ia_attr(from)
    }
}

/// Converts the attributes of this library.
#[allow(clippy::needless_update, reason = "a later version has more members")]
pub(crate) fn provider(info: &IaInfo) -> DAT_PROVIDER_ATTR {
    let from = &info.provider;
    let mut specific = from.provider_specific_attributes.clone();
    specific.extend(version::provider_specific(info));
    let (num_provider_specific_attr, provider_specific_attr) = named(&specific);
    DAT_PROVIDER_ATTR {
        provider_name: copy(&from.provider_name),
        provider_version_major: from.provider_version_major,
        provider_version_minor: from.provider_version_minor,
        dapl_version_major: from.dapl_version_major,
        dapl_version_minor: from.dapl_version_minor,
        lmr_mem_types_supported: from.lmr_mem_types_supported,
        // This enumeration and `EpCreator` have the numbers of the header.
        iov_ownership_on_return: from.iov_ownership_on_return as DAT_IOV_OWNERSHIP,
        dat_qos_supported: from.dat_qos_supported,
        completion_flags_supported: from.completion_flags_supported.bits(),
        is_thread_safe: from.is_thread_safe.into(),
        max_private_data_size: from.max_private_data_size,
        supports_multipath: from.supports_multipath.into(),
        ep_creator: from.ep_creator as DAT_EP_CREATOR_FOR_PSP,
        pz_support: version::pz_support(from.pz_support),
        optimal_buffer_alignment: from.optimal_buffer_alignment,
        evd_stream_merging_supported: from
            .evd_stream_merging_supported
            .map(|row| row.map(u32::from)),
        srq_supported: from.srq_supported.into(),
        srq_watermarks_supported: from.srq_watermarks_supported,
        srq_ep_pz_difference_supported: from.srq_ep_pz_difference_supported.into(),
        srq_info_supported: from.srq_info_supported,
        ep_recv_info_supported: from.ep_recv_info_supported,
        lmr_sync_req: from.lmr_sync_req.into(),
        dto_async_return_guaranteed: from.dto_async_return_guaranteed.into(),
        rdma_write_for_rdma_read_req: from.rdma_write_for_rdma_read_req.into(),
        num_provider_specific_attr,
        provider_specific_attr,
        ..version::provider_attr()
    }
}

/// A list of names and values that stays allocated for ever.
struct Kept {
    of: Vec<NamedAttribute>,
    list: &'static [DAT_NAMED_ATTR],
}

// SAFETY: the memory behind the pointers is never written nor freed.
unsafe impl Send for Kept {}

/// Returns names and values in memory that is never freed: C has no call that
/// says when it stops using them. Equal lists share their memory, so few exist.
fn named(attributes: &[NamedAttribute]) -> (DAT_COUNT, *mut DAT_NAMED_ATTR) {
    static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
    if attributes.is_empty() {
        return (0, core::ptr::null_mut());
    }
    let mut kept = KEPT.lock();
    let list = match kept.iter().find(|kept| kept.of == attributes) {
        Some(kept) => kept.list,
        None => {
            let list: Vec<_> = attributes.iter().map(keep).collect();
            let list: &'static [_] = list.leak();
            kept.push(Kept {
                of: attributes.to_vec(),
                list,
            });
            list
        }
    };
    let length = DAT_COUNT::try_from(list.len()).unwrap_or(DAT_COUNT::MAX);
    (length, list.as_ptr().cast_mut())
}

fn keep(attribute: &NamedAttribute) -> DAT_NAMED_ATTR {
    // A text that contains a NUL is returned empty.
    let keep = |text: &str| {
        CString::new(text)
            .unwrap_or_default()
            .into_raw()
            .cast_const()
    };
    DAT_NAMED_ATTR {
        name: keep(attribute.name),
        value: keep(&attribute.value),
    }
}
