//! The bytes of the uverbs ABI: numbers and structures as libibverbs and libmlx5
//! send them.
//!
//! Sources: the kernel's `rdma_user_ioctl_cmds.h`, `ib_user_ioctl_cmds.h`,
//! `ib_user_ioctl_verbs.h`, `ib_user_verbs.h`, `mlx5-abi.h` and
//! `mlx5_user_ioctl_cmds.h`. The doc of each structure names the C structure.

use zerocopy::{FromBytes, IntoBytes, KnownLayout};

use crate::abi::{AhAttr, abi};

/// `RDMA_VERBS_IOCTL`: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
pub const RDMA_VERBS_IOCTL: libc::c_ulong = 0xc018_1b01;
/// `RDMA_DRIVER_MLX5`.
pub const DRIVER_MLX5: u32 = 1;
/// `UVERBS_ATTR_F_MANDATORY`: the command fails if the attribute is unknown.
pub const ATTR_F_MANDATORY: u16 = 1;
/// `UVERBS_ATTR_F_VALID_OUTPUT`: set by the kernel on attributes it wrote.
pub const ATTR_F_VALID_OUTPUT: u16 = 2;
/// `UVERBS_ATTR_UHW_IN`: the driver's part of the request.
pub const UHW_IN: u16 = 0x1000;
/// `UVERBS_ATTR_UHW_OUT`: the driver's part of the reply.
pub const UHW_OUT: u16 = 0x1001;
/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
pub const WRITE_EXTENDED: u32 = 0x8000_0000;

/// `IB_USER_VERBS_CMD_COMMAND_MASK`.
pub const WRITE_COMMAND_MASK: u32 = 0xff;

/// `enum uverbs_default_objects` and `enum mlx5_ib_objects`.
pub mod object {
    #![allow(missing_docs)]
    pub const DEVICE: u16 = 0;
    pub const PD: u16 = 1;
    pub const CQ: u16 = 3;
    pub const QP: u16 = 4;
    pub const SRQ: u16 = 5;
    pub const AH: u16 = 6;
    pub const MR: u16 = 7;
    pub const MW: u16 = 8;
    pub const ASYNC_EVENT: u16 = 16;
    pub const DEVX: u16 = 0x1000;
    pub const DEVX_OBJ: u16 = 0x1001;
    pub const MLX5_UAR: u16 = 0x1008;
}

/// Method numbers, by object.
pub mod method {
    #![allow(missing_docs)]
    pub const DEVICE_INVOKE_WRITE: u16 = 0;
    pub const DEVICE_QUERY_PORT: u16 = 2;
    pub const DEVICE_GET_CONTEXT: u16 = 3;
    pub const DEVICE_QUERY_CONTEXT: u16 = 4;
    pub const DEVICE_QUERY_GID_TABLE: u16 = 5;
    pub const DEVICE_QUERY_GID_ENTRY: u16 = 6;
    pub const ASYNC_EVENT_ALLOC: u16 = 0;
    pub const PD_DESTROY: u16 = 0;
    pub const PD_MLX5_QUERY: u16 = 0x1000;
    pub const CQ_CREATE: u16 = 0;
    pub const CQ_DESTROY: u16 = 1;
    pub const QP_CREATE: u16 = 0;
    pub const QP_DESTROY: u16 = 1;
    pub const AH_DESTROY: u16 = 0;
    pub const SRQ_CREATE: u16 = 0;
    pub const SRQ_DESTROY: u16 = 1;
    pub const MW_DESTROY: u16 = 0;
    pub const MR_DESTROY: u16 = 1;
    pub const MR_ADVISE: u16 = 2;
    pub const MR_QUERY: u16 = 3;
    pub const DEVX_OTHER: u16 = 0x1000;
    pub const DEVX_OBJ_QUERY: u16 = 0x1003;
    pub const UAR_ALLOC: u16 = 0x1000;
    pub const UAR_DESTROY: u16 = 0x1001;
}

/// `enum ib_uverbs_write_cmds`: the commands of the write interface that this
/// device supports.
pub mod write_command {
    #![allow(missing_docs)]
    pub const GET_CONTEXT: u32 = 0;
    pub const QUERY_DEVICE: u32 = 1;
    pub const QUERY_PORT: u32 = 2;
    pub const ALLOC_PD: u32 = 3;
    pub const DEALLOC_PD: u32 = 4;
    pub const CREATE_AH: u32 = 5;
    pub const DESTROY_AH: u32 = 8;
    pub const REG_MR: u32 = 9;
    pub const REREG_MR: u32 = 11;
    pub const DEREG_MR: u32 = 13;
    pub const ALLOC_MW: u32 = 14;
    pub const DEALLOC_MW: u32 = 16;
    pub const CREATE_COMP_CHANNEL: u32 = 17;
    pub const CREATE_CQ: u32 = 18;
    pub const RESIZE_CQ: u32 = 19;
    pub const DESTROY_CQ: u32 = 20;
    pub const CREATE_QP: u32 = 24;
    pub const QUERY_QP: u32 = 25;
    pub const MODIFY_QP: u32 = 26;
    pub const DESTROY_QP: u32 = 27;
    /// Not supported.
    pub const ATTACH_MCAST: u32 = 30;
    /// Not supported.
    pub const DETACH_MCAST: u32 = 31;
    pub const CREATE_SRQ: u32 = 32;
    pub const MODIFY_SRQ: u32 = 33;
    pub const QUERY_SRQ: u32 = 34;
    pub const DESTROY_SRQ: u32 = 35;
    pub const EX_QUERY_DEVICE: u32 = super::WRITE_EXTENDED | QUERY_DEVICE;
    pub const EX_CREATE_CQ: u32 = super::WRITE_EXTENDED | CREATE_CQ;
    pub const EX_CREATE_QP: u32 = super::WRITE_EXTENDED | CREATE_QP;
    pub const EX_MODIFY_QP: u32 = super::WRITE_EXTENDED | MODIFY_QP;
    /// Above the numbers of plain commands.
    pub const EX_MODIFY_CQ: u32 = super::WRITE_EXTENDED | 57;
}

abi! {
    /// `struct ib_uverbs_ioctl_hdr` without its attributes.
    struct IoctlHeader = 24 {
        length: u16, object_id: u16, method_id: u16, num_attrs: u16,
        reserved1: u64, driver_id: u32, reserved2: u32,
    }
    /// `struct ib_uverbs_attr`.
    struct Attribute = 16 { id: u16, len: u16, flags: u16, reserved: u16, data: u64, }
    /// `struct ib_uverbs_cmd_hdr`: lengths of the whole command and of its reply in
    /// 4-byte words; for an extended command, lengths of the parts without the
    /// driver's in 8-byte words.
    struct WriteHeader = 8 { command: u32, in_words: u16, out_words: u16, }
    /// `struct ib_uverbs_ex_cmd_hdr`: lengths in 8-byte words.
    struct ExWriteHeader = 16 {
        response: u64, provider_in_words: u16, provider_out_words: u16, reserved: u32,
    }
    /// `struct ib_uverbs_get_context_resp`.
    struct GetContextResp = 8 { async_fd: i32, num_comp_vectors: u32, }
    /// `struct ib_uverbs_async_event_desc`.
    struct AsyncEventDesc = 16 { element: u64, event_type: u32, reserved: u32, }

    /// `struct ib_uverbs_query_device_resp`.
    struct QueryDeviceResp = 176 {
        fw_ver: u64, node_guid: [u8; 8], sys_image_guid: [u8; 8],
        max_mr_size: u64, page_size_cap: u64,
        vendor_id: u32, vendor_part_id: u32, hw_ver: u32,
        max_qp: u32, max_qp_wr: u32, device_cap_flags: u32,
        max_sge: u32, max_sge_rd: u32, max_cq: u32, max_cqe: u32, max_mr: u32, max_pd: u32,
        max_qp_rd_atom: u32, max_ee_rd_atom: u32, max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32, max_ee_init_rd_atom: u32, atomic_cap: u32,
        max_ee: u32, max_rdd: u32, max_mw: u32, max_raw_ipv6_qp: u32, max_raw_ethy_qp: u32,
        max_mcast_grp: u32, max_mcast_qp_attach: u32, max_total_mcast_qp_attach: u32,
        max_ah: u32, max_fmr: u32, max_map_per_fmr: u32,
        max_srq: u32, max_srq_wr: u32, max_srq_sge: u32,
        max_pkeys: u16, local_ca_ack_delay: u8, phys_port_cnt: u8, reserved: [u8; 4],
    }
    /// `struct ib_uverbs_ex_query_device_resp`.
    struct ExQueryDeviceResp = 304 {
        base: QueryDeviceResp, comp_mask: u32, response_length: u32,
        odp_general: u64, odp_transport: [u32; 3], odp_reserved: u32,
        timestamp_mask: u64, hca_core_clock: u64, device_cap_flags_ex: u64,
        rss: [u32; 4], max_wq_type_rq: u32, raw_packet_caps: u32,
        tag_matching: [u32; 6], max_cq_moderation_count: u16, max_cq_moderation_period: u16,
        moderation_reserved: u32, max_dm_size: u64, xrc_odp_caps: u32, reserved: u32,
    }
    /// `struct ib_uverbs_query_port_resp`.
    struct QueryPortResp = 40 {
        port_cap_flags: u32, max_msg_sz: u32, bad_pkey_cntr: u32, qkey_viol_cntr: u32,
        gid_tbl_len: u32, pkey_tbl_len: u16, lid: u16, sm_lid: u16,
        state: u8, max_mtu: u8, active_mtu: u8, lmc: u8, max_vl_num: u8, sm_sl: u8,
        subnet_timeout: u8, init_type_reply: u8, active_width: u8, active_speed: u8,
        phys_state: u8, link_layer: u8, flags: u8, reserved: u8,
    }
    /// `struct ib_uverbs_query_port_resp_ex`.
    struct QueryPortRespEx = 48 { legacy_resp: QueryPortResp, port_cap_flags2: u16, reserved: [u8; 6], }
    /// `struct ib_uverbs_gid_entry`.
    struct GidEntry = 32 { gid: [u8; 16], gid_index: u32, port_num: u32, gid_type: u32, netdev_ifindex: u32, }

    /// `struct ib_uverbs_query_port`.
    struct QueryPort = 16 { response: u64, port_num: u8, reserved: [u8; 7], }
    /// `struct ib_uverbs_alloc_pd_resp`.
    struct AllocPdResp = 4 { pd_handle: u32, }
    /// A request that is one handle: `ib_uverbs_dealloc_pd`, `ib_uverbs_dereg_mr`,
    /// `ib_uverbs_dealloc_mw`.
    struct HandleOnly = 4 { handle: u32, }
    /// A request that is a reply address and a handle: the destroy and query
    /// commands of the write interface.
    struct HandleRequest = 16 { response: u64, handle: u32, reserved: u32, }
    /// `struct ib_uverbs_reg_mr`.
    struct RegMr = 40 {
        response: u64, start: u64, length: u64, hca_va: u64, pd_handle: u32, access_flags: u32,
    }
    /// `struct ib_uverbs_reg_mr_resp`.
    struct RegMrResp = 12 { mr_handle: u32, lkey: u32, rkey: u32, }
    /// `struct ib_uverbs_alloc_mw`.
    struct AllocMw = 16 { response: u64, pd_handle: u32, mw_type: u8, reserved: [u8; 3], }
    /// `struct ib_uverbs_alloc_mw_resp`.
    struct AllocMwResp = 8 { mw_handle: u32, rkey: u32, }
    /// `struct ib_uverbs_rereg_mr`.
    struct ReregMr = 48 {
        response: u64, mr_handle: u32, flags: u32, start: u64, length: u64, hca_va: u64,
        pd_handle: u32, access_flags: u32,
    }
    /// `struct ib_uverbs_rereg_mr_resp`.
    struct ReregMrResp = 8 { lkey: u32, rkey: u32, }
    /// `struct ib_uverbs_create_cq`.
    struct CreateCq = 32 {
        response: u64, user_handle: u64, cqe: u32, comp_vector: u32, comp_channel: i32, reserved: u32,
    }
    /// `struct ib_uverbs_ex_create_cq`.
    struct ExCreateCq = 32 {
        user_handle: u64, cqe: u32, comp_vector: u32, comp_channel: i32,
        comp_mask: u32, flags: u32, reserved: u32,
    }
    /// `struct ib_uverbs_create_cq_resp`.
    struct CreateCqResp = 8 { cq_handle: u32, cqe: u32, }
    /// `struct ib_uverbs_ex_create_cq_resp`.
    struct ExCreateCqResp = 16 { base: CreateCqResp, comp_mask: u32, response_length: u32, }
    /// `struct ib_uverbs_resize_cq`.
    struct ResizeCq = 16 { response: u64, cq_handle: u32, cqe: u32, }
    /// `struct ib_uverbs_resize_cq_resp`.
    struct ResizeCqResp = 8 { cqe: u32, reserved: u32, }
    /// `struct ib_uverbs_ex_modify_cq`.
    struct ExModifyCq = 16 {
        cq_handle: u32, attr_mask: u32, cq_count: u16, cq_period: u16, reserved: u32,
    }
    /// `struct ib_uverbs_destroy_cq_resp`.
    struct DestroyCqResp = 8 { comp_events_reported: u32, async_events_reported: u32, }
    /// `struct ib_uverbs_qp_cap`.
    struct QpCap = 20 {
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
    }
    /// `struct ib_uverbs_create_qp`.
    struct CreateQp = 56 {
        response: u64, user_handle: u64,
        pd_handle: u32, send_cq_handle: u32, recv_cq_handle: u32, srq_handle: u32,
        cap: QpCap, sq_sig_all: u8, qp_type: u8, is_srq: u8, reserved: u8,
    }
    /// `struct ib_uverbs_ex_create_qp`.
    struct ExCreateQp = 64 {
        user_handle: u64,
        pd_handle: u32, send_cq_handle: u32, recv_cq_handle: u32, srq_handle: u32,
        cap: QpCap, sq_sig_all: u8, qp_type: u8, is_srq: u8, reserved: u8,
        comp_mask: u32, create_flags: u32, rwq_ind_tbl_handle: u32, source_qpn: u32,
    }
    /// `struct ib_uverbs_create_qp_resp`.
    struct CreateQpResp = 32 { qp_handle: u32, qpn: u32, cap: QpCap, reserved: u32, }
    /// `struct ib_uverbs_ex_create_qp_resp`.
    struct ExCreateQpResp = 40 { base: CreateQpResp, comp_mask: u32, response_length: u32, }
    /// `struct ib_uverbs_qp_dest`.
    struct QpDest = 32 {
        dgid: [u8; 16], flow_label: u32, dlid: u16, reserved: u16,
        sgid_index: u8, hop_limit: u8, traffic_class: u8, sl: u8,
        src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    }
    /// `struct ib_uverbs_modify_qp`.
    struct ModifyQp = 112 {
        dest: QpDest, alt_dest: QpDest, qp_handle: u32, attr_mask: u32,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        pkey_index: u16, alt_pkey_index: u16,
        qp_state: u8, cur_qp_state: u8, path_mtu: u8, path_mig_state: u8,
        en_sqd_async_notify: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8,
        port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, reserved: [u8; 2],
    }
    /// `struct ib_uverbs_ex_modify_qp`.
    struct ExModifyQp = 120 { base: ModifyQp, rate_limit: u32, reserved: u32, }
    /// `struct ib_uverbs_ex_modify_qp_resp`.
    struct ExModifyQpResp = 8 { comp_mask: u32, response_length: u32, }
    /// `struct ib_uverbs_query_qp`.
    struct QueryQp = 16 { response: u64, qp_handle: u32, attr_mask: u32, }
    /// `struct ib_uverbs_query_qp_resp`.
    struct QueryQpResp = 128 {
        dest: QpDest, alt_dest: QpDest, cap: QpCap,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        pkey_index: u16, alt_pkey_index: u16,
        qp_state: u8, cur_qp_state: u8, path_mtu: u8, path_mig_state: u8,
        sq_draining: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8,
        port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, sq_sig_all: u8, reserved: [u8; 5],
    }
    /// `struct ib_uverbs_create_ah`.
    struct CreateAh = 56 { response: u64, user_handle: u64, pd_handle: u32, reserved: u32, attr: AhAttr, }
    /// `struct ib_uverbs_create_ah_resp`.
    struct CreateAhResp = 4 { ah_handle: u32, }
    /// `struct mlx5_ib_create_ah_resp`.
    struct Mlx5CreateAhResp = 16 { response_length: u32, dmac: [u8; 6], reserved: [u8; 6], }
    /// `struct ib_uverbs_create_srq`.
    struct CreateSrq = 32 {
        response: u64, user_handle: u64, pd_handle: u32, max_wr: u32, max_sge: u32, srq_limit: u32,
    }
    /// `struct ib_uverbs_create_srq_resp`.
    struct CreateSrqResp = 16 { srq_handle: u32, max_wr: u32, max_sge: u32, srqn: u32, }
    /// `struct ib_uverbs_modify_srq`.
    struct ModifySrq = 16 { srq_handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32, }
    /// `struct ib_uverbs_query_srq_resp`.
    struct QuerySrqResp = 16 { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32, }

    /// `struct mlx5_ib_alloc_ucontext_req_v2`.
    struct Mlx5AllocUcontextReq = 32 {
        total_num_bfregs: u32, num_low_latency_bfregs: u32, flags: u32, comp_mask: u32,
        max_cqe_version: u8, reserved0: u8, reserved1: u16, reserved2: u32, lib_caps: u64,
    }
    /// `struct mlx5_ib_alloc_ucontext_resp`.
    struct Mlx5AllocUcontextResp = 72 {
        qp_tab_size: u32, bf_reg_size: u32, tot_bfregs: u32, cache_line_size: u32,
        max_sq_desc_sz: u16, max_rq_desc_sz: u16, max_send_wqebb: u32,
        max_recv_wr: u32, max_srq_recv_wr: u32, num_ports: u16, flow_action_flags: u16,
        comp_mask: u32, response_length: u32,
        cqe_version: u8, cmds_supp_uhw: u8, eth_min_inline: u8, clock_info_versions: u8,
        hca_core_clock_offset: u64, log_uar_size: u32, num_uars_per_page: u32,
        num_dyn_bfregs: u32, dump_fill_mkey: u32,
    }
    /// `struct mlx5_ib_query_device_resp`. The device has none of its optional
    /// capabilities, so only the lengths are returned.
    struct Mlx5QueryDeviceResp = 8 { comp_mask: u32, response_length: u32, }
    /// `struct mlx5_ib_create_cq`.
    struct Mlx5CreateCq = 32 {
        buf_addr: u64, db_addr: u64, cqe_size: u32, cqe_comp_en: u8, cqe_comp_res_format: u8,
        flags: u16, uar_page_index: u16, reserved0: u16, reserved1: u32,
    }
    /// `struct mlx5_ib_create_cq_resp`.
    struct Mlx5CreateCqResp = 8 { cqn: u32, reserved: u32, }
    /// `struct mlx5_ib_clock_info`.
    struct Mlx5ClockInfo = 56 {
        sign: u32, reserved: u32, nsec: u64, cycles: u64, frac: u64,
        mult: u32, shift: u32, mask: u64, overflow_period: u64,
    }
    /// `struct mlx5_ib_resize_cq`.
    struct Mlx5ResizeCq = 16 { buf_addr: u64, cqe_size: u16, reserved0: u16, reserved1: u32, }
    /// `struct mlx5_ib_alloc_mw`.
    struct Mlx5AllocMw = 8 { comp_mask: u32, num_klms: u8, reserved1: u8, reserved2: u16, }
    /// The reply of mlx5_ib to `mlx5_ib_alloc_mw`.
    struct Mlx5AllocMwResp = 8 { comp_mask: u32, response_length: u32, }
    /// `struct mlx5_ib_create_srq`.
    struct Mlx5CreateSrq = 32 {
        buf_addr: u64, db_addr: u64, flags: u32, reserved0: u32, uidx: u32, reserved1: u32,
    }
    /// `struct mlx5_ib_create_srq_resp`.
    struct Mlx5CreateSrqResp = 8 { srqn: u32, reserved: u32, }
    /// `struct mlx5_ib_create_qp`.
    struct Mlx5CreateQp = 56 {
        buf_addr: u64, db_addr: u64, sq_wqe_count: u32, rq_wqe_count: u32, rq_wqe_shift: u32,
        flags: u32, uidx: u32, bfreg_index: u32, sq_buf_addr: u64,
        ece_options: u32, dci_streams: u16, reserved: u16,
    }
    /// `struct mlx5_ib_create_qp_resp`.
    struct Mlx5CreateQpResp = 40 {
        bfreg_index: u32, ece_options: u32, comp_mask: u32, tirn: u32, tisn: u32,
        rqn: u32, sqn: u32, reserved1: u32, tir_icm_addr: u64,
    }
}

/// Returns a request as the kernel reads it: bytes that were not sent are zero, bytes
/// beyond the structure are ignored.
pub fn request<T: FromBytes + IntoBytes + KnownLayout>(sent: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let len = sent.len().min(size_of::<T>());
    value.as_mut_bytes()[..len].copy_from_slice(&sent[..len]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_request_is_extended_with_zeros_and_a_long_one_is_cut() {
        let short: HandleRequest = request(&[0xff; 9]);
        assert_eq!(
            (short.response, short.handle, short.reserved),
            (u64::MAX, 0xff, 0)
        );
        let long: HandleOnly = request(&[1, 0, 0, 0, 9, 9]);
        assert_eq!(long.handle, 1);
    }
}
