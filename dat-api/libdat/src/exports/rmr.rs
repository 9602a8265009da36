//! Remote memory regions.

use dat_api::object::ep::Ep;
use dat_api::object::pz::Pz;
use dat_api::object::rmr::Rmr;
use dat_api::types::{CompletionFlags, MemPrivileges};
use dat_api::{DatError, DatReturn, Kind, Result, ReturnType, Subtype};

use super::lmr::privileges;
use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_EP_HANDLE, DAT_LMR_TRIPLET, DAT_MEM_PRIV_FLAGS, DAT_PZ_HANDLE,
    DAT_RETURN, DAT_RMR_CONTEXT, DAT_RMR_COOKIE, DAT_RMR_FIELD_ALL, DAT_RMR_HANDLE, DAT_RMR_PARAM,
    DAT_RMR_PARAM_MASK,
};
use crate::face::frame::{control, require};
use crate::face::handles::{bare, named, pin};
use crate::face::output::{Output, query_output};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;
use crate::version;

#[unsafe(export_name = symbol!("dat_rmr_create"))]
pub unsafe extern "C" fn dat_rmr_create(
    pz_handle: DAT_PZ_HANDLE,
    rmr_handle: *mut DAT_RMR_HANDLE,
) -> DAT_RETURN {
    foreign!(pz_handle.rmr_create_func(pz_handle, rmr_handle));
    control("dat_rmr_create", on("pz", pz_handle), || {
        let pz = pin::<Pz>(pz_handle, Subtype::InvalidHandlePz)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(rmr_handle, Subtype::InvalidArg2) }?;
        place.set_handle(Rmr::create(&pz.to_arc())?.handle());
        Ok(())
    })
}

/// Values that an unbound RMR does not have are returned as 0.
#[unsafe(export_name = symbol!("dat_rmr_query"))]
pub unsafe extern "C" fn dat_rmr_query(
    rmr_handle: DAT_RMR_HANDLE,
    rmr_param_mask: DAT_RMR_PARAM_MASK,
    rmr_param: *mut DAT_RMR_PARAM,
) -> DAT_RETURN {
    foreign!(rmr_handle.rmr_query_func(rmr_handle, rmr_param_mask, rmr_param));
    control("dat_rmr_query", on("rmr", rmr_handle), || {
        let rmr = pin::<Rmr>(rmr_handle, Subtype::InvalidHandleRmr)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(rmr_param_mask, DAT_RMR_FIELD_ALL, rmr_param) }?;
        let info = rmr.query();
        let bound = info.bound.unwrap_or_default();
        #[allow(clippy::needless_update, reason = "a later version has more members")]
        place.set(DAT_RMR_PARAM {
            ia_handle: bare(info.ia),
            pz_handle: bare(info.pz),
            lmr_triplet: version::triplet(&bound.segment),
            mem_priv: bound.privileges.bits(),
            rmr_context: bound.context,
            ..version::rmr_param()
        });
        Ok(())
    })
}

/// The privileges that a bind may open: no atomic operations.
const IN_WINDOWS: MemPrivileges = MemPrivileges::all().difference(MemPrivileges::REMOTE_ATOMIC);
const BAD_TRIPLET: DatReturn = DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg2);

/// The arguments of `dat_rmr_bind` after the first. The `_at` members name their
/// positions for error returns, which depend on the version.
pub(crate) struct Bind {
    pub(crate) lmr_triplet: *const DAT_LMR_TRIPLET,
    pub(crate) triplet_at: Subtype,
    pub(crate) mem_priv: DAT_MEM_PRIV_FLAGS,
    pub(crate) privileges_at: Subtype,
    pub(crate) ep_handle: DAT_EP_HANDLE,
    pub(crate) user_cookie: DAT_RMR_COOKIE,
    pub(crate) completion_flags: DAT_COMPLETION_FLAGS,
    pub(crate) context: *mut DAT_RMR_CONTEXT,
    pub(crate) context_at: Subtype,
}

/// Binds, or unbinds if the segment has length 0. An unbind ignores the segment's
/// other fields, and its `context` pointer may be null. Does not allocate.
///
/// # Safety
/// The contract of `exports`.
pub(crate) unsafe fn bind(rmr_handle: DAT_RMR_HANDLE, bind: &Bind) -> Result<()> {
    let rmr = pin::<Rmr>(rmr_handle, Subtype::InvalidHandleRmr)?;
    let ep = pin::<Ep>(bind.ep_handle, Subtype::InvalidHandleEp)?;
    require(
        !bind.lmr_triplet.is_null(),
        bind.triplet_at,
        "the segment is null; to unbind, pass a segment of length 0",
    )?;
    // SAFETY: not null, so readable by the contract of `exports`.
    let segment = unsafe { version::local_segments(bind.lmr_triplet)(0) };
    let privileges = privileges(bind.mem_priv, IN_WINDOWS, bind.privileges_at)?;
    // SAFETY: the contract of `exports`.
    let place = unsafe { Output::optional(bind.context) };
    require(
        place.is_some() || segment.length == 0,
        bind.context_at,
        "the pointer for the context is null: expected the address of a DAT_RMR_CONTEXT, \
         except for an unbind (a segment of length 0)",
    )?;
    let flags = CompletionFlags::from_bits_retain(bind.completion_flags);
    // SAFETY: any 64 bits are a cookie.
    let cookie = unsafe { bind.user_cookie.as_64 };
    // SAFETY: the contract of `exports`: calls on one endpoint take turns.
    let bound = unsafe { rmr.bind(&ep, segment, privileges, cookie, flags) };
    let bound = bound.map_err(|refusal| {
        // The object counts the arguments as uDAPL 1.2 does.
        let code = match refusal.code() {
            BAD_TRIPLET => DatReturn::error(ReturnType::InvalidParameter, bind.triplet_at),
            code => code,
        };
        DatError::from(refusal).with_code(code)
    })?;
    if let Some(place) = place {
        place.set(bound);
    }
    Ok(())
}

#[unsafe(export_name = symbol!("dat_rmr_free"))]
pub unsafe extern "C" fn dat_rmr_free(rmr_handle: DAT_RMR_HANDLE) -> DAT_RETURN {
    foreign!(rmr_handle.rmr_free_func(rmr_handle));
    control("dat_rmr_free", on("rmr", rmr_handle), || {
        Rmr::free(named(rmr_handle, Kind::Rmr, Subtype::InvalidHandleRmr)?)
    })
}
