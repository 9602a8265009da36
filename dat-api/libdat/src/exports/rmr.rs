//! Remote memory regions. There are none yet: the calls check their
//! arguments.

use dat_api::object::ep::Ep;
use dat_api::object::pz::Pz;
use dat_api::{Kind, ReturnType, Subtype};

use crate::abi::{
    DAT_COMPLETION_FLAGS, DAT_EP_HANDLE, DAT_LMR_TRIPLET, DAT_MEM_PRIV_FLAGS, DAT_PZ_HANDLE,
    DAT_RETURN, DAT_RMR_CONTEXT, DAT_RMR_COOKIE, DAT_RMR_FIELD_ALL, DAT_RMR_HANDLE, DAT_RMR_PARAM,
    DAT_RMR_PARAM_MASK,
};
use crate::face::answer::{control, not_yet};
use crate::face::handles::{named, pin};
use crate::face::output::{Output, queried};
use crate::providers::dispatch::foreign;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rmr_create(
    pz_handle: DAT_PZ_HANDLE,
    rmr_handle: *mut DAT_RMR_HANDLE,
) -> DAT_RETURN {
    foreign!(pz_handle.rmr_create_func(pz_handle, rmr_handle));
    control("dat_rmr_create", || {
        let _pz = pin::<Pz>(pz_handle, Subtype::InvalidHandlePz)?;
        // SAFETY: the contract of `exports`.
        let _place = unsafe { Output::new(rmr_handle, Subtype::InvalidArg2) }?;
        Err(not_yet(ReturnType::ModelNotSupported))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rmr_query(
    rmr_handle: DAT_RMR_HANDLE,
    rmr_param_mask: DAT_RMR_PARAM_MASK,
    rmr_param: *mut DAT_RMR_PARAM,
) -> DAT_RETURN {
    foreign!(rmr_handle.rmr_query_func(rmr_handle, rmr_param_mask, rmr_param));
    control("dat_rmr_query", || {
        named(rmr_handle, Kind::Rmr, Subtype::InvalidHandleRmr)?;
        // SAFETY: the contract of `exports`.
        let _place = unsafe { queried(rmr_param_mask, DAT_RMR_FIELD_ALL, rmr_param) }?;
        Err(not_yet(ReturnType::ModelNotSupported))
    })
}

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
    control("dat_rmr_bind", || {
        named(rmr_handle, Kind::Rmr, Subtype::InvalidHandleRmr)?;
        let _ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        Err(not_yet(ReturnType::ModelNotSupported))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rmr_free(rmr_handle: DAT_RMR_HANDLE) -> DAT_RETURN {
    foreign!(rmr_handle.rmr_free_func(rmr_handle));
    control("dat_rmr_free", || {
        named(rmr_handle, Kind::Rmr, Subtype::InvalidHandleRmr)?;
        Err(not_yet(ReturnType::ModelNotSupported))
    })
}
