//! Types, constants and exported functions of libibverbs, generated from the
//! installed header.
//!
//! `ibv_query_port` and `ibv_reg_mr` are not here, because they are macros in C:
//! see [`crate::inline`].

pub use crate::raw::{
    ibv_ah, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_gid_global_t,
    ibv_global_route, ibv_modify_cq_attr, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info,
    ibv_parent_domain_init_attr, ibv_pd, ibv_poll_cq_attr, ibv_port_attr, ibv_qp, ibv_qp_attr,
    ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_query_device_ex_input,
    ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_td,
    ibv_td_init_attr, ibv_wc, ibv_wq,
};

// `ibv_send_wr`, with names for its unnamed members.
pub use crate::raw::{
    atomic_t, bind_mw_t, bind_mw_tso_union_t, ibv_send_wr, imm_data_invalidated_rkey_union_t,
    qp_type_t, rdma_t, tso_t, ud_t, wr_t, xrc_t,
};

// Flag words.
pub use crate::raw::{
    ibv_access_flags, ibv_cq_init_attr_mask, ibv_create_cq_attr_flags, ibv_create_cq_wc_flags,
    ibv_device_cap_flags, ibv_parent_domain_init_attr_mask, ibv_port_cap_flags, ibv_qp_attr_mask,
    ibv_qp_create_flags, ibv_qp_create_send_ops_flags, ibv_qp_init_attr_mask, ibv_send_flags,
    ibv_srq_attr_mask, ibv_srq_init_attr_mask, ibv_wc_flags,
};

// Enums: modules of constants, each with its integer `Type`.
pub use crate::raw::{
    ibv_atomic_cap, ibv_mig_state, ibv_mtu, ibv_mw_type, ibv_node_type, ibv_port_state,
    ibv_qp_state, ibv_qp_type, ibv_srq_type, ibv_transport_type, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode,
};

pub use crate::raw::{
    IBV_FORK_DISABLED, IBV_FORK_ENABLED, IBV_FORK_UNNEEDED, IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1,
    IBV_GID_TYPE_ROCE_V2, ibv_fork_status, ibv_gid_type,
};

// Functions that libibverbs exports.
pub use crate::raw::{
    ibv_ack_cq_events, ibv_alloc_pd, ibv_close_device, ibv_create_ah, ibv_create_comp_channel,
    ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp, ibv_destroy_srq, ibv_fork_init,
    ibv_free_device_list, ibv_get_cq_event, ibv_get_device_guid, ibv_get_device_list,
    ibv_get_device_name, ibv_is_fork_initialized, ibv_modify_qp, ibv_modify_srq, ibv_node_type_str,
    ibv_open_device, ibv_port_state_str, ibv_qp_to_qp_ex, ibv_query_device, ibv_query_gid,
    ibv_query_pkey, ibv_query_qp, ibv_query_qp_data_in_order, ibv_query_srq, ibv_resize_cq,
    ibv_wc_status_str,
};
