//! What the queries answer, by object; LMR and RMR are in `memory`.

use super::attributes::DAT_EP_ATTR;
use super::flags::{DAT_EP_STATE, DAT_EVD_FLAGS, DAT_EVD_STATE, DAT_PSP_FLAGS, DAT_SRQ_STATE};
use super::types::{
    DAT_CNO_HANDLE, DAT_CONN_QUAL, DAT_COUNT, DAT_EP_HANDLE, DAT_EVD_HANDLE, DAT_IA_ADDRESS_PTR,
    DAT_IA_HANDLE, DAT_PORT_QUAL, DAT_PVOID, DAT_PZ_HANDLE, DAT_SRQ_HANDLE,
};

/// What `dat_ep_query` answers and `dat_ep_modify` takes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_EP_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub ep_state: DAT_EP_STATE,
    pub local_ia_address_ptr: DAT_IA_ADDRESS_PTR,
    pub local_port_qual: DAT_PORT_QUAL,
    pub remote_ia_address_ptr: DAT_IA_ADDRESS_PTR,
    pub remote_port_qual: DAT_PORT_QUAL,
    pub pz_handle: DAT_PZ_HANDLE,
    pub recv_evd_handle: DAT_EVD_HANDLE,
    pub request_evd_handle: DAT_EVD_HANDLE,
    pub connect_evd_handle: DAT_EVD_HANDLE,
    pub srq_handle: DAT_SRQ_HANDLE,
    pub ep_attr: DAT_EP_ATTR,
}

/// What `dat_evd_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_EVD_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub evd_qlen: DAT_COUNT,
    pub evd_state: DAT_EVD_STATE,
    pub cno_handle: DAT_CNO_HANDLE,
    pub evd_flags: DAT_EVD_FLAGS,
}

/// What `dat_cno_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_CNO_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub agent: DAT_OS_WAIT_PROXY_AGENT,
}

/// What `dat_srq_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_SRQ_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub srq_state: DAT_SRQ_STATE,
    pub pz_handle: DAT_PZ_HANDLE,
    pub max_recv_dtos: DAT_COUNT,
    pub max_recv_iov: DAT_COUNT,
    pub low_watermark: DAT_COUNT,
    pub available_dto_count: DAT_COUNT,
    pub outstanding_dto_count: DAT_COUNT,
}

/// What `dat_pz_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_PZ_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
}

/// What `dat_psp_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_PSP_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub conn_qual: DAT_CONN_QUAL,
    pub evd_handle: DAT_EVD_HANDLE,
    pub psp_flags: DAT_PSP_FLAGS,
}

/// What `dat_rsp_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_RSP_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub conn_qual: DAT_CONN_QUAL,
    pub evd_handle: DAT_EVD_HANDLE,
    pub ep_handle: DAT_EP_HANDLE,
}

/// What `dat_cr_query` answers. The private data lives until the CR is accepted, rejected or
/// handed off.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_CR_PARAM {
    pub remote_ia_address_ptr: DAT_IA_ADDRESS_PTR,
    pub remote_port_qual: DAT_PORT_QUAL,
    pub private_data_size: DAT_COUNT,
    pub private_data: DAT_PVOID,
    pub local_ep_handle: DAT_EP_HANDLE,
}

/// Called with its `instance_data` and the EVD that triggered; with a null EVD when the CNO
/// goes away. It may end the thread that it is called on (pthread_exit(3)).
pub type DAT_AGENT_FUNC =
    Option<unsafe extern "C-unwind" fn(instance_data: DAT_PVOID, evd_handle: DAT_EVD_HANDLE)>;

/// A function to call when a CNO triggers; none if the function is null.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_OS_WAIT_PROXY_AGENT {
    pub instance_data: DAT_PVOID,
    pub proxy_agent_func: DAT_AGENT_FUNC,
}
