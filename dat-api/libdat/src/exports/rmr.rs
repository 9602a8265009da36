//! Remote memory regions.

use dat_api::handle::Pinned;
use dat_api::object::ep::Ep;
use dat_api::object::pz::Pz;
use dat_api::object::rmr::Rmr;
use dat_api::types::{CompletionFlags, MemPrivileges};
use dat_api::{DatError, DatReturn, Result, ReturnType, Subtype};

use super::lmr::privileges;
use crate::abi::*;
use crate::face::call::{Named, call};
use crate::face::frame::require;
use crate::face::handles::{bare, pin};
use crate::face::output::Out;
use crate::version;

call!(
    dat_rmr_create,
    |pz: Pinned<Pz>, rmr_handle: Out<DAT_RMR_HANDLE>| {
        let place = rmr_handle.required(Subtype::InvalidArg2)?;
        place.set_new(Rmr::create(&pz.to_arc())?.handle(), Rmr::free)
    }
);

// Values that an unbound RMR does not have are returned as 0.
call!(
    dat_rmr_query,
    |rmr: Pinned<Rmr>, mask: DAT_RMR_PARAM_MASK, param: Out<DAT_RMR_PARAM>| {
        param.answer(mask, DAT_RMR_FIELD_ALL, || {
            let info = rmr.query();
            let bound = info.bound.unwrap_or_default();
            #[allow(clippy::needless_update, reason = "a later version has more members")]
            DAT_RMR_PARAM {
                ia_handle: bare(info.ia),
                pz_handle: bare(info.pz),
                lmr_triplet: version::triplet(&bound.segment),
                mem_priv: bound.privileges.bits(),
                rmr_context: bound.context,
                ..version::rmr_param()
            }
        })
    }
);

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
    pub(crate) context: Out<DAT_RMR_CONTEXT>,
    pub(crate) context_at: Subtype,
}

/// Binds, or unbinds if the segment has length 0. An unbind ignores the segment's
/// other fields, and its `context` pointer may be null. Does not allocate.
///
/// # Safety
/// The contract of `exports`.
pub(crate) unsafe fn bind(rmr: &Rmr, bind: &Bind) -> Result<()> {
    let ep = pin::<Ep>(bind.ep_handle)?;
    require(
        !bind.lmr_triplet.is_null(),
        bind.triplet_at,
        "the segment is null; to unbind, pass a segment of length 0",
    )?;
    // SAFETY: not null, so readable by the contract of `exports`.
    let segment = unsafe { version::local_segments(bind.lmr_triplet)(0) };
    let privileges = privileges(bind.mem_priv, IN_WINDOWS, bind.privileges_at)?;
    let place = bind.context.optional();
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

call!(dat_rmr_free, ending, |rmr: Named<Rmr>| Rmr::free(rmr.0));
