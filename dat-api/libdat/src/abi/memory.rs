//! Segments, regions and what the queries of LMR and RMR answer.

use super::flags::{DAT_MEM_PRIV_FLAGS, DAT_MEM_TYPE};
use super::types::{
    DAT_COUNT, DAT_IA_HANDLE, DAT_LMR_CONTEXT, DAT_LMR_HANDLE, DAT_PVOID, DAT_PZ_HANDLE,
    DAT_RMR_CONTEXT, DAT_UINT32, DAT_VADDR, DAT_VLEN,
};
use core::ffi::c_char;

/// A local segment: memory of an LMR.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_LMR_TRIPLET {
    pub lmr_context: DAT_LMR_CONTEXT,
    /// Not looked at.
    pub pad: DAT_UINT32,
    pub virtual_address: DAT_VADDR,
    pub segment_length: DAT_VLEN,
}

/// The remote side of an RDMA transfer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_RMR_TRIPLET {
    pub rmr_context: DAT_RMR_CONTEXT,
    /// Not looked at.
    pub pad: DAT_UINT32,
    pub target_address: DAT_VADDR,
    pub segment_length: DAT_VLEN,
}

/// The address of the 40 bytes by which processes name a shared registration.
pub type DAT_LMR_COOKIE = *mut [c_char; LMR_COOKIE_BYTES];
/// Bytes of it.
pub const DAT_LMR_COOKIE_SIZE: DAT_COUNT = 40;
const LMR_COOKIE_BYTES: usize = DAT_LMR_COOKIE_SIZE as usize;

/// Memory that several processes register under one name.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_SHARED_MEMORY {
    pub virtual_address: DAT_PVOID,
    pub shared_memory_id: DAT_LMR_COOKIE,
}

/// What to register; `DAT_MEM_TYPE` tells which member counts.
#[derive(Clone, Copy)]
#[repr(C)]
pub union DAT_REGION_DESCRIPTION {
    pub for_va: DAT_PVOID,
    pub for_lmr_handle: DAT_LMR_HANDLE,
    pub for_shared_memory: DAT_SHARED_MEMORY,
}

/// What `dat_lmr_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_LMR_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub mem_type: DAT_MEM_TYPE,
    pub region_desc: DAT_REGION_DESCRIPTION,
    pub length: DAT_VLEN,
    pub pz_handle: DAT_PZ_HANDLE,
    pub mem_priv: DAT_MEM_PRIV_FLAGS,
    pub lmr_context: DAT_LMR_CONTEXT,
    pub rmr_context: DAT_RMR_CONTEXT,
    pub registered_size: DAT_VLEN,
    pub registered_address: DAT_VADDR,
}

/// What `dat_rmr_query` answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DAT_RMR_PARAM {
    pub ia_handle: DAT_IA_HANDLE,
    pub pz_handle: DAT_PZ_HANDLE,
    pub lmr_triplet: DAT_LMR_TRIPLET,
    pub mem_priv: DAT_MEM_PRIV_FLAGS,
    pub rmr_context: DAT_RMR_CONTEXT,
}
