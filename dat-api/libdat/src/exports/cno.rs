//! Notification objects. There are none yet: the calls check their arguments.

use dat_api::object::ia::Ia;
use dat_api::{Kind, Result, ReturnType, Subtype};

use crate::abi::{
    DAT_CNO_FIELD_ALL, DAT_CNO_HANDLE, DAT_CNO_PARAM, DAT_CNO_PARAM_MASK, DAT_EVD_HANDLE,
    DAT_IA_HANDLE, DAT_OS_WAIT_PROXY_AGENT, DAT_RETURN, DAT_TIMEOUT,
};
use crate::face::answer::{control, not_yet};
use crate::face::handles::{named, pin};
use crate::face::output::{Output, queried};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_cno_create(
    ia_handle: DAT_IA_HANDLE,
    _agent: DAT_OS_WAIT_PROXY_AGENT,
    cno_handle: *mut DAT_CNO_HANDLE,
) -> DAT_RETURN {
    control("dat_cno_create", || {
        let _ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        // SAFETY: the contract of `exports`.
        let _place = unsafe { Output::new(cno_handle, Subtype::InvalidArg3) }?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}

fn cno(handle: DAT_CNO_HANDLE) -> Result<dat_api::Handle> {
    named(handle, Kind::Cno, Subtype::InvalidHandleCno)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_cno_modify_agent(
    cno_handle: DAT_CNO_HANDLE,
    _agent: DAT_OS_WAIT_PROXY_AGENT,
) -> DAT_RETURN {
    control("dat_cno_modify_agent", || {
        cno(cno_handle)?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_cno_query(
    cno_handle: DAT_CNO_HANDLE,
    cno_param_mask: DAT_CNO_PARAM_MASK,
    cno_param: *mut DAT_CNO_PARAM,
) -> DAT_RETURN {
    control("dat_cno_query", || {
        cno(cno_handle)?;
        // SAFETY: the contract of `exports`.
        let _place = unsafe { queried(cno_param_mask, DAT_CNO_FIELD_ALL, cno_param) }?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_cno_free(cno_handle: DAT_CNO_HANDLE) -> DAT_RETURN {
    control("dat_cno_free", || {
        cno(cno_handle)?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_cno_wait(
    cno_handle: DAT_CNO_HANDLE,
    _timeout: DAT_TIMEOUT,
    evd_handle: *mut DAT_EVD_HANDLE,
) -> DAT_RETURN {
    control("dat_cno_wait", || {
        cno(cno_handle)?;
        // SAFETY: the contract of `exports`.
        let _place = unsafe { Output::new(evd_handle, Subtype::InvalidArg3) }?;
        Err(not_yet(ReturnType::NotImplemented))
    })
}
