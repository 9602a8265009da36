//! The attributes of an IA and of this library, as plain values.
//!
//! # `DAT_IA_ATTR`
//! "Limit" is a field of [`dat_engine::Limits`], which the device reports. C counts in 31 bits: a
//! larger limit becomes `i32::MAX`.
//!
//! | attribute | value | reason |
//! | --- | --- | --- |
//! | `adapter_name` | the name it was opened by | |
//! | `vendor_name` | from the device's vendor number | verbs report no name |
//! | `hardware_version_*` | the vendor's number for the model, 0 | verbs report no minor version |
//! | `firmware_version_*` | the first two numbers | `vendor_attributes` have all of it |
//! | `ia_address_ptr` | `sockaddr` of the port's network interface | the address that the connection manager listens on |
//! | `max_eps` | limit `qps` | each EP is one QP |
//! | `max_dto_per_ep` | limit `queue_depth`, at most `cq_depth`, - 1 | completions must fit a completion queue; one entry is for the marker of a graceful disconnect. Requests of several segments take more room, so fewer of them fit; creating the EP then fails with the cause |
//! | `max_rdma_read_per_ep_in`, `_out` | limits `reads_served`, `reads_issued` | |
//! | `max_evds` | limit `cqs` | an EVD needs a CQ when it gets DTO streams |
//! | `max_evd_qlen` | limit `cq_depth` | |
//! | `max_iov_segments_per_dto`, `_rdma_write` | limit `segments`, at most [`MAX_SEGMENTS`] | posts convert segments on the stack |
//! | `max_iov_segments_per_rdma_read` | limit `read_segments`, likewise | most iWARP devices take one |
//! | `max_lmrs` | limit `regions`, at most `MAX_LMRS` | the table of contexts |
//! | `max_lmr_block_size` | limit `region_size` | |
//! | `max_lmr_virtual_address` | 2^64 - 1 | addresses are 64 bits on the wire and in the device |
//! | `max_pzs` | limit `domains` | |
//! | `max_message_size`, `max_rdma_size` | the port's `max_msg_sz` | |
//! | `max_rmrs` | limit `windows` | each RMR is a memory window |
//! | `max_rmr_target_address` | 2^64 - 1; 0 without windows | as for LMRs |
//! | `max_srqs` | limit `srqs` | 0: the device has no shared receive queues, and the next two are 0 |
//! | `max_recv_per_srq` | limit `srq_depth`, at most `cq_depth` | the EVD of an endpoint on it must hold a completion of each |
//! | `max_ep_per_srq` | limit `qps` | |
//! | `max_rdma_read_in`, `_out` | those per EP, times `max_eps` | mlx5 reserves the resources per QP |
//! | `max_rdma_read_per_ep_*_guaranteed` | true | so another EP cannot use them up |
//! | `transport_attributes` | none | |
//! | `transport_mtu` | the port's active MTU, in bytes | not of DAT; for provider-specific attributes of 2.0 |
//! | `atomics` | limit `atomics` | likewise |
//! | `immediate_data` | all devices but iWARP | likewise; the protocol has none (RFC 5040) |
//!
//! # `DAT_PROVIDER_ATTR`
//! | attribute | value | reason |
//! | --- | --- | --- |
//! | `provider_name`, `provider_version_*` | this crate's | |
//! | `dapl_version_*` | of the interface: 1.2, or 2.0 | |
//! | `lmr_mem_types_supported` | LMR and shared virtual | and virtual, whose number is 0 |
//! | `iov_ownership_on_return` | the consumer | posting copies the segments into the ring (R14) |
//! | `dat_qos_supported` | best effort | |
//! | `completion_flags_supported` | all five; on siw without SOLICITED_WAIT | its completion queues cannot raise events for solicited receives alone |
//! | `is_thread_safe` | as it was opened | a threadsafe IA takes a spin lock per EP and SRQ while it posts |
//! | `max_private_data_size` | 512 over sockets, 56 by rdma_cm, 235 by rdma_cm on iWARP | see [`Manager::max_private_data`] |
//! | `supports_multipath` | false | |
//! | `ep_creator` | if requested | |
//! | `pz_support` | unique | a zone is a protection domain of one IA |
//! | `optimal_buffer_alignment` | 64 | see [`ALIGNMENT`] (R15) |
//! | `evd_stream_merging_supported` | all | |
//! | `srq_supported` | if limit `srqs` is not 0 | otherwise the other `srq_` attributes are 0 or false |
//! | `srq_ep_pz_difference_supported` | on mlx5 devices | others may check shared receives against the zone of the EP |
//! | `srq_watermarks_supported` | [`LOW_WATERMARK`], [`SOFT_WATERMARK`] and [`HARD_WATERMARK`] | all three are checked (L07) |
//! | `srq_info_supported` | [`AVAILABLE`] and [`OUTSTANDING`] | both are counted |
//! | `ep_recv_info_supported` | [`ALLOCATED`] and [`SPAN`] | both are counted (Q06) |
//! | `lmr_sync_req` | false | hosts are cache-coherent with their devices |
//! | `dto_async_return_guaranteed` | true | a post never waits for its transfer |
//! | `rdma_write_for_rdma_read_req` | false | InfiniBand and RoCE need local write only; on iWARP such an LMR is registered with the remote access that reads need |
//! | `provider_specific_attributes` | data path, waiting, connection manager, payload in completions, and the options of connections | named after the keys of dat.conf |
//!
//! [`MAX_SEGMENTS`]: super::MAX_SEGMENTS
//! [`Manager::max_private_data`]: dat_engine::cm::Manager::max_private_data

use core::net::SocketAddr;

use crate::handle::Handle;
use crate::types::CompletionFlags;

/// In bytes. The device moves memory in cache lines of 64 bytes; for a buffer that begins with a
/// cache line it need not read a partial line first. The library treats all alignments alike.
pub const ALIGNMENT: u32 = 64;

/// In `srq_watermarks_supported`: `dat_srq_set_lw`.
pub const LOW_WATERMARK: i32 = 0x1;
/// In `srq_watermarks_supported`: the soft mark of `dat_ep_set_watermark`.
pub const SOFT_WATERMARK: i32 = 0x10;
/// In `srq_watermarks_supported`: the hard mark of `dat_ep_set_watermark`.
pub const HARD_WATERMARK: i32 = 0x100;
/// In `srq_info_supported`: `available_dto_count`.
pub const AVAILABLE: i32 = 0x1;
/// In `srq_info_supported`: `outstanding_dto_count`.
pub const OUTSTANDING: i32 = 0x10;
/// In `ep_recv_info_supported`: `nbufs_allocated` of `dat_ep_recv_query`.
pub const ALLOCATED: i32 = 0x1;
/// In `ep_recv_info_supported`: `bufs_alloc_span`.
pub const SPAN: i32 = 0x10;

/// The result of [`super::Ia::query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IaInfo {
    /// The EVD of asynchronous events, if it is known and live.
    pub async_evd: Option<Handle>,
    /// The attributes of the adapter.
    pub ia: IaAttributes,
    /// The attributes of the library.
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
#[expect(missing_docs, reason = "see the table of the module")]
pub struct IaAttributes {
    pub adapter_name: String,
    pub vendor_name: String,
    pub hardware_version_major: u32,
    pub hardware_version_minor: u32,
    pub firmware_version_major: u32,
    pub firmware_version_minor: u32,
    /// The address of the `sockaddr`: see [`super::Ia::local_address`].
    pub ia_address_ptr: usize,
    /// The address as a value.
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
    pub transport_mtu: u32,
    pub atomics: bool,
    pub immediate_data: bool,
    pub transport_attributes: Vec<NamedAttribute>,
    pub vendor_attributes: Vec<NamedAttribute>,
}

/// `DAT_PROVIDER_ATTR`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "see the table of the module")]
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
    /// The caller may reuse the array when the post returns.
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
