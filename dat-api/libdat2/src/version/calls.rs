//! The exported functions whose parameters differ between versions, and those that
//! only this version has. The contract is that of `exports`.

use dat_api::handle::Pinned;
use dat_api::object::cno::Cno;
use dat_api::object::cr::Cr;
use dat_api::object::ia::Ia;
use dat_api::object::lmr::Lmr;
use dat_api::object::rmr::Rmr;
use dat_api::{DatError, Result, ReturnType, Subtype};

pub use super::unsupported::*;
use crate::abi::*;
use crate::exports::{cno, lmr, rmr};
use crate::face::call::{First, Named, call, own_call};
use crate::face::frame::{bad_argument, require_with};
use crate::face::handles::pin;
use crate::face::output::Out;
use crate::face::private_data::PrivateData;

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

call!(
    dat_cr_reject,
    ending,
    |cr: Named<Cr>, private_data_size: DAT_COUNT, private_data: PrivateData| {
        let at = [Subtype::InvalidArg2, Subtype::InvalidArg3];
        Cr::reject(cr.0, private_data.of_size(private_data_size, at)?)
    }
);

call!(
    dat_cno_fd_create,
    |ia: Pinned<Ia>, fd: Out<DAT_FD>, cno: Out<DAT_CNO_HANDLE>| cno::create_with_fd(&ia, fd, cno)
);

call!(
    dat_cno_trigger,
    forwarding,
    |cno: Pinned<Cno>, evd: Out<DAT_EVD_HANDLE>| cno::trigger(&cno, evd)
);

// Every result pointer may be null.
call!(
    dat_lmr_create,
    |ia: Pinned<Ia>,
     mem_type: DAT_MEM_TYPE,
     region_description: DAT_REGION_DESCRIPTION,
     length: DAT_VLEN,
     pz_handle: DAT_PZ_HANDLE,
     privileges: DAT_MEM_PRIV_FLAGS,
     va_type: DAT_VA_TYPE,
     lmr_handle: Out<DAT_LMR_HANDLE>,
     lmr_context: Out<DAT_LMR_CONTEXT>,
     rmr_context: Out<DAT_RMR_CONTEXT>,
     registered_length: Out<DAT_VLEN>,
     registered_address: Out<DAT_VADDR>| {
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
                &ia,
                mem_type,
                region_description,
                length,
                pz_handle,
                privileges,
                &created,
            )
        }
    }
);

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
    let context = pin::<Lmr>(lmr_handle)?.query().lmr_context;
    require_with(triplet.lmr_context == context, Subtype::InvalidArg3, || {
        format!(
            "the segment has the context {:#x}, but the LMR has {context:#x}: expected a segment \
             of that LMR",
            triplet.lmr_context
        )
    })
}

call!(
    dat_rmr_bind,
    posting,
    |rmr: Pinned<Rmr>,
     lmr_handle: DAT_LMR_HANDLE,
     lmr_triplet: *const DAT_LMR_TRIPLET,
     mem_priv: DAT_MEM_PRIV_FLAGS,
     va_type: DAT_VA_TYPE,
     ep_handle: DAT_EP_HANDLE,
     user_cookie: DAT_RMR_COOKIE,
     completion_flags: DAT_COMPLETION_FLAGS,
     context: Out<DAT_RMR_CONTEXT>| {
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
        unsafe { rmr::bind(&rmr, &bind) }
    }
);

/// An IA of this library, or of another provider.
struct AnyIa(DAT_IA_HANDLE);

impl First for AnyIa {
    const LABEL: &'static str = "ia";

    fn find(handle: DAT_HANDLE) -> Result<Self> {
        if crate::providers::dispatch::of(handle).is_none() {
            Named::<Ia>::find(handle)?;
        }
        Ok(Self(handle))
    }
}

// Returns the handle by which a provider knows an IA. Handles of this library are no
// numbers of a table: both are the same.
own_call!(dats_get_ia_handle, control, |ia: AnyIa,
                                        provider_handle: Out<
    DAT_IA_HANDLE,
>| {
    provider_handle.required(Subtype::InvalidArg2)?.set(ia.0);
    Ok(())
});
