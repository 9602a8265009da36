//! What can be asked of an IA and of this library.

use core::net::SocketAddr;

use crate::handle::Handle;
use crate::types::CompletionFlags;

/// What [`super::Ia::query`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IaInfo {
    /// The EVD of asynchronous events, if that is known and lives.
    pub async_evd: Option<Handle>,
    /// Of the adapter.
    pub ia: IaAttributes,
    /// Of the library.
    pub provider: ProviderAttributes,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAttribute {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: String,
}

/// `DAT_IA_ATTR`. Counts are at most `i32::MAX`, as C has them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "filled in with the values")]
pub struct IaAttributes {
    pub adapter_name: String,
    pub vendor_name: String,
    pub hardware_version_major: u32,
    pub hardware_version_minor: u32,
    pub firmware_version_major: u32,
    pub firmware_version_minor: u32,
    /// Where the `sockaddr` lies: see [`super::Ia::local_address`].
    pub ia_address_ptr: usize,
    /// The same as a value.
    pub ia_address: SocketAddr,
    pub max_eps: i32,
    pub max_dto_per_ep: i32,
    pub max_rdma_read_per_ep_in: i32,
    pub max_rdma_read_per_ep_out: i32,
    pub max_evds: i32,
    pub max_evd_qlen: i32,
    pub max_iov_segments_per_dto: i32,
    pub max_lmrs: i32,
    pub max_lmr_block_size: u64,
    pub max_lmr_virtual_address: u64,
    pub max_pzs: i32,
    pub max_message_size: u64,
    pub max_rdma_size: u64,
    pub max_rmrs: i32,
    pub max_rmr_target_address: u64,
    pub max_srqs: i32,
    pub max_ep_per_srq: i32,
    pub max_recv_per_srq: i32,
    pub max_iov_segments_per_rdma_read: i32,
    pub max_iov_segments_per_rdma_write: i32,
    pub max_rdma_read_in: i32,
    pub max_rdma_read_out: i32,
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    pub transport_attributes: Vec<NamedAttribute>,
    pub vendor_attributes: Vec<NamedAttribute>,
}

/// `DAT_PROVIDER_ATTR`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "filled in with the values")]
pub struct ProviderAttributes {
    pub provider_name: String,
    pub provider_version_major: u32,
    pub provider_version_minor: u32,
    pub dapl_version_major: u32,
    pub dapl_version_minor: u32,
    /// `DAT_MEM_TYPE`.
    pub lmr_mem_types_supported: u32,
    pub iov_ownership_on_return: IovOwnership,
    /// `DAT_QOS` bits; 0 is best effort.
    pub dat_qos_supported: u32,
    pub completion_flags_supported: CompletionFlags,
    pub is_thread_safe: bool,
    pub max_private_data_size: i32,
    pub supports_multipath: bool,
    pub ep_creator: EpCreator,
    pub pz_support: PzSupport,
    pub optimal_buffer_alignment: u32,
    pub evd_stream_merging_supported: [[bool; 6]; 6],
    pub srq_supported: bool,
    pub srq_watermarks_supported: i32,
    pub srq_ep_pz_difference_supported: bool,
    pub srq_info_supported: i32,
    pub ep_recv_info_supported: i32,
    pub lmr_sync_req: bool,
    pub dto_async_return_guaranteed: bool,
    pub rdma_write_for_rdma_read_req: bool,
    pub provider_specific_attributes: Vec<NamedAttribute>,
}

/// `DAT_IOV_OWNERSHIP`, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum IovOwnership {
    /// The array is the caller's again when the post returns.
    Consumer = 0,
}

/// `DAT_EP_CREATOR_FOR_PSP`, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are DAT's")]
pub enum EpCreator {
    Never = 0,
    IfAsked = 1,
}

/// `DAT_PZ_SUPPORT`, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are DAT's")]
pub enum PzSupport {
    Unique = 0,
    Shareable = 2,
}
