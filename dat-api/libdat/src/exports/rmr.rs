//! Remote memory regions.

use dat_api::object::ep::Ep;
use dat_api::object::pz::Pz;
use dat_api::object::rmr::Rmr;
use dat_api::types::{CompletionFlags, LmrSegment, MemPrivileges};
use dat_api::{DatError, Kind, Subtype};

use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_EP_HANDLE, DAT_LMR_TRIPLET, DAT_MEM_PRIV_FLAGS, DAT_PZ_HANDLE,
    DAT_RETURN, DAT_RMR_CONTEXT, DAT_RMR_COOKIE, DAT_RMR_FIELD_ALL, DAT_RMR_HANDLE, DAT_RMR_PARAM,
    DAT_RMR_PARAM_MASK,
};
use crate::face::frame::{bad_argument, control, posting, require};
use crate::face::handles::{bare, named, pin};
use crate::face::output::{Output, query_output};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

#[unsafe(no_mangle)]
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
#[unsafe(no_mangle)]
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
        place.set(DAT_RMR_PARAM {
            ia_handle: bare(info.ia),
            pz_handle: bare(info.pz),
            lmr_triplet: DAT_LMR_TRIPLET {
                lmr_context: bound.segment.context,
                pad: 0,
                virtual_address: bound.segment.address,
                segment_length: bound.segment.length,
            },
            mem_priv: bound.privileges.bits(),
            rmr_context: bound.context,
        });
        Ok(())
    })
}

/// Binds, or unbinds if the segment has length 0. An unbind ignores the segment's
/// other fields, and its `context` pointer may be null. Does not allocate.
#[unsafe(no_mangle)]
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
        let rmr = pin::<Rmr>(rmr_handle, Subtype::InvalidHandleRmr)?;
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        require(
            !lmr_triplet.is_null(),
            Subtype::InvalidArg2,
            "the segment is null; to unbind, pass a segment of length 0",
        )?;
        // SAFETY: not null, so readable by the contract of `exports`.
        let triplet = unsafe { lmr_triplet.read_unaligned() };
        let segment = LmrSegment {
            context: triplet.lmr_context,
            address: triplet.virtual_address,
            length: triplet.segment_length,
        };
        let privileges = MemPrivileges::from_bits(mem_priv).ok_or_else(|| {
            bad_argument(
                Subtype::InvalidArg3,
                format!(
                    "the privileges {mem_priv:#x} have unknown bits: expected bits of {:#x}, \
                     DAT_MEM_PRIV_ALL_FLAG",
                    MemPrivileges::all().bits()
                ),
            )
        })?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::optional(context) };
        require(
            place.is_some() || segment.length == 0,
            Subtype::InvalidArg7,
            "the pointer for the context is null: expected the address of a DAT_RMR_CONTEXT, \
             except for an unbind (a segment of length 0)",
        )?;
        let flags = CompletionFlags::from_bits_retain(completion_flags);
        // SAFETY: any 64 bits are a cookie.
        let cookie = unsafe { user_cookie.as_64 };
        // SAFETY: the contract of `exports`: calls on one endpoint take turns.
        let bound = unsafe { rmr.bind(&ep, segment, privileges, cookie, flags) };
        let bound = bound.map_err(|code| {
            // SAFETY: as for the bind.
            let cause = unsafe { rmr.why_bind_refused(&ep, &segment, privileges, flags, code) };
            DatError::explained(code, cause)
        })?;
        if let Some(place) = place {
            place.set(bound);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rmr_free(rmr_handle: DAT_RMR_HANDLE) -> DAT_RETURN {
    foreign!(rmr_handle.rmr_free_func(rmr_handle));
    control("dat_rmr_free", on("rmr", rmr_handle), || {
        Rmr::free(named(rmr_handle, Kind::Rmr, Subtype::InvalidHandleRmr)?)
    })
}
