//! Reserved service points. There are none yet: the calls check their
//! arguments.

use dat_api::object::ep::Ep;
use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::{Kind, ReturnType, Subtype};

use crate::abi::{
    DAT_CONN_QUAL, DAT_EP_HANDLE, DAT_EVD_HANDLE, DAT_IA_HANDLE, DAT_RETURN, DAT_RSP_FIELD_ALL,
    DAT_RSP_HANDLE, DAT_RSP_PARAM, DAT_RSP_PARAM_MASK,
};
use crate::face::answer::{control, not_yet};
use crate::face::handles::{named, pin};
use crate::face::output::{Output, queried};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rsp_create(
    ia_handle: DAT_IA_HANDLE,
    _conn_qual: DAT_CONN_QUAL,
    ep_handle: DAT_EP_HANDLE,
    evd_handle: DAT_EVD_HANDLE,
    rsp_handle: *mut DAT_RSP_HANDLE,
) -> DAT_RETURN {
    control("dat_rsp_create", || {
        let _ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        let _ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let _evd = pin::<Evd>(evd_handle, Subtype::InvalidHandleEvdCr)?;
        // SAFETY: the contract of `exports`.
        let _place = unsafe { Output::new(rsp_handle, Subtype::InvalidArg5) }?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rsp_query(
    rsp_handle: DAT_RSP_HANDLE,
    rsp_param_mask: DAT_RSP_PARAM_MASK,
    rsp_param: *mut DAT_RSP_PARAM,
) -> DAT_RETURN {
    control("dat_rsp_query", || {
        named(rsp_handle, Kind::Rsp, Subtype::InvalidHandleRsp)?;
        // SAFETY: the contract of `exports`.
        let _place = unsafe { queried(rsp_param_mask, DAT_RSP_FIELD_ALL, rsp_param) }?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rsp_free(rsp_handle: DAT_RSP_HANDLE) -> DAT_RETURN {
    control("dat_rsp_free", || {
        named(rsp_handle, Kind::Rsp, Subtype::InvalidHandleRsp)?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}
