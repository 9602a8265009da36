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

use dat_api::object::lmr::Lmr;
use dat_api::{DatError, Result, ReturnType, Subtype};

pub use super::unsupported::*;
use crate::abi::*;
use crate::exports::{cr, ep_connect, lmr, rmr};
use crate::face::frame::{bad_argument, control, posting, require_with};
use crate::face::handles::{named, pin};
use crate::face::output::Output;
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

/// Requires virtual addresses.
fn require_virtual(va_type: DAT_VA_TYPE, argument: Subtype) -> Result<()> {
    match va_type {
        DAT_VA_TYPE_VA => Ok(()),
        DAT_VA_TYPE_ZB => Err(DatError::new(
            ReturnType::ModelNotSupported,
            Subtype::NoSubtype,
            "DAT_VA_TYPE_ZB: addresses that begin with 0 are not supported \
             (DAT_IA_ATTR.zb_supported); pass DAT_VA_TYPE_VA",
        )),
        _ => Err(bad_argument(
            argument,
            format!("invalid address type {va_type}: expected DAT_VA_TYPE_VA ({DAT_VA_TYPE_VA})"),
        )),
    }
}

#[unsafe(export_name = symbol!("dat_cr_reject"))]
pub unsafe extern "C" fn dat_cr_reject(
    cr_handle: DAT_CR_HANDLE,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
) -> DAT_RETURN {
    foreign!(cr_handle.cr_reject_func(cr_handle, private_data_size, private_data));
    control("dat_cr_reject", on("cr", cr_handle), || {
        // SAFETY: the contract of `exports`.
        let private_data = unsafe {
            ep_connect::private_data(
                private_data_size,
                private_data,
                Subtype::InvalidArg2,
                Subtype::InvalidArg3,
            )
        }?;
        cr::reject(cr_handle, private_data)
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
    va_type: DAT_VA_TYPE,
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
        va_type,
        lmr_handle,
        lmr_context,
        rmr_context,
        registered_length,
        registered_address
    ));
    control("dat_lmr_create", on("ia", ia_handle), || {
        // A bad handle is reported before an address type that is not supported.
        named(ia_handle, dat_api::Kind::Ia, Subtype::InvalidHandleIa)?;
        require_virtual(va_type, Subtype::InvalidArg7)?;
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

/// Requires that the LMR of a bind is the one that the segment names.
///
/// # Safety
/// The segment is null or readable.
unsafe fn require_lmr(lmr_handle: DAT_LMR_HANDLE, triplet: *const DAT_LMR_TRIPLET) -> Result<()> {
    if triplet.is_null() {
        return Ok(());
    }
    // SAFETY: not null, so readable.
    let triplet = unsafe { triplet.read_unaligned() };
    if triplet.segment_length == 0 {
        return Ok(());
    }
    let context = pin::<Lmr>(lmr_handle, Subtype::InvalidHandleLmr)?
        .query()
        .lmr_context;
    require_with(triplet.lmr_context == context, Subtype::InvalidArg3, || {
        format!(
            "the segment has the context {:#x}, but the LMR has {context:#x}: expected a segment \
             of that LMR",
            triplet.lmr_context
        )
    })
}

#[unsafe(export_name = symbol!("dat_rmr_bind"))]
pub unsafe extern "C" fn dat_rmr_bind(
    rmr_handle: DAT_RMR_HANDLE,
    lmr_handle: DAT_LMR_HANDLE,
    lmr_triplet: *const DAT_LMR_TRIPLET,
    mem_priv: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    ep_handle: DAT_EP_HANDLE,
    user_cookie: DAT_RMR_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
    context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN {
    foreign!(rmr_handle.rmr_bind_func(
        rmr_handle,
        lmr_handle,
        lmr_triplet,
        mem_priv,
        va_type,
        ep_handle,
        user_cookie,
        completion_flags,
        context
    ));
    posting("dat_rmr_bind", on("rmr", rmr_handle), || {
        named(rmr_handle, dat_api::Kind::Rmr, Subtype::InvalidHandleRmr)?;
        // SAFETY: the contract of `exports`.
        unsafe { require_lmr(lmr_handle, lmr_triplet) }?;
        require_virtual(va_type, Subtype::InvalidArg5)?;
        let bind = rmr::Bind {
            lmr_triplet,
            triplet_at: Subtype::InvalidArg3,
            mem_priv,
            privileges_at: Subtype::InvalidArg4,
            ep_handle,
            user_cookie,
            completion_flags,
            context,
            context_at: Subtype::InvalidArg9,
        };
        // SAFETY: the contract of `exports`.
        unsafe { rmr::bind(rmr_handle, &bind) }
    })
}

/// Returns the handle by which a provider knows an IA. Handles of this library are no
/// numbers of a table: both are the same.
#[unsafe(export_name = symbol!("dats_get_ia_handle"))]
pub unsafe extern "C" fn dats_get_ia_handle(
    ia_handle: DAT_IA_HANDLE,
    provider_handle: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    control("dats_get_ia_handle", on("ia", ia_handle), || {
        if crate::providers::dispatch::of(ia_handle).is_none() {
            named(ia_handle, dat_api::Kind::Ia, Subtype::InvalidHandleIa)?;
        }
        // SAFETY: the contract of `exports`.
        unsafe { Output::new(provider_handle, Subtype::InvalidArg2) }?.set(ia_handle);
        Ok(())
    })
}
