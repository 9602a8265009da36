//! The exported functions whose parameters differ between versions, and those that
//! only this version has. The contract is that of `exports`.

#![allow(missing_docs, reason = "the headers explain each call")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all, in the documentation of `exports`"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "the signatures are those of the headers"
)]

use dat_api::Subtype;

pub use super::counters::*;
use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_CR_HANDLE, DAT_EP_HANDLE, DAT_IA_HANDLE, DAT_LMR_CONTEXT,
    DAT_LMR_HANDLE, DAT_LMR_TRIPLET, DAT_MEM_PRIV_FLAGS, DAT_MEM_TYPE, DAT_PZ_HANDLE,
    DAT_REGION_DESCRIPTION, DAT_RETURN, DAT_RMR_CONTEXT, DAT_RMR_COOKIE, DAT_RMR_HANDLE, DAT_VADDR,
    DAT_VLEN,
};
use crate::exports::{cr, lmr, rmr};
use crate::face::frame::{control, posting};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

#[unsafe(export_name = symbol!("dat_cr_reject"))]
pub unsafe extern "C" fn dat_cr_reject(cr_handle: DAT_CR_HANDLE) -> DAT_RETURN {
    foreign!(cr_handle.cr_reject_func(cr_handle));
    control("dat_cr_reject", on("cr", cr_handle), || {
        cr::reject(cr_handle, &[])
    })
}

/// Every result pointer may be null.
#[unsafe(export_name = symbol!("dat_lmr_create"))]
pub unsafe extern "C" fn dat_lmr_create(
    ia_handle: DAT_IA_HANDLE,
    mem_type: DAT_MEM_TYPE,
    region_description: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
    pz_handle: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    lmr_handle: *mut DAT_LMR_HANDLE,
    lmr_context: *mut DAT_LMR_CONTEXT,
    rmr_context: *mut DAT_RMR_CONTEXT,
    registered_length: *mut DAT_VLEN,
    registered_address: *mut DAT_VADDR,
) -> DAT_RETURN {
    foreign!(ia_handle.lmr_create_func(
        ia_handle,
        mem_type,
        region_description,
        length,
        pz_handle,
        privileges,
        lmr_handle,
        lmr_context,
        rmr_context,
        registered_length,
        registered_address
    ));
    control("dat_lmr_create", on("ia", ia_handle), || {
        let created = lmr::Created {
            lmr_handle,
            lmr_context,
            rmr_context,
            registered_length,
            registered_address,
        };
        // SAFETY: the contract of `exports`.
        unsafe {
            lmr::create(
                ia_handle,
                mem_type,
                region_description,
                length,
                pz_handle,
                privileges,
                &created,
            )
        }
    })
}

#[unsafe(export_name = symbol!("dat_rmr_bind"))]
pub unsafe extern "C" fn dat_rmr_bind(
    rmr_handle: DAT_RMR_HANDLE,
    lmr_triplet: *const DAT_LMR_TRIPLET,
    mem_priv: DAT_MEM_PRIV_FLAGS,
    ep_handle: DAT_EP_HANDLE,
    user_cookie: DAT_RMR_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
    context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN {
    foreign!(rmr_handle.rmr_bind_func(
        rmr_handle,
        lmr_triplet,
        mem_priv,
        ep_handle,
        user_cookie,
        completion_flags,
        context
    ));
    posting("dat_rmr_bind", on("rmr", rmr_handle), || {
        let bind = rmr::Bind {
            lmr_triplet,
            triplet_at: Subtype::InvalidArg2,
            mem_priv,
            privileges_at: Subtype::InvalidArg3,
            ep_handle,
            user_cookie,
            completion_flags,
            context,
            context_at: Subtype::InvalidArg7,
        };
        // SAFETY: the contract of `exports`.
        unsafe { rmr::bind(rmr_handle, &bind) }
    })
}
