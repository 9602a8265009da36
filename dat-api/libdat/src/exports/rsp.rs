//! Reserved service points.

use dat_api::handle::Pinned;
use dat_api::object::ep::Ep;
use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::object::rsp::Rsp;
use dat_api::{Kind, Subtype};

use crate::abi::{
    DAT_CONN_QUAL, DAT_EP_HANDLE, DAT_EVD_HANDLE, DAT_HANDLE_NULL, DAT_IA_HANDLE, DAT_RETURN,
    DAT_RSP_FIELD_ALL, DAT_RSP_HANDLE, DAT_RSP_PARAM, DAT_RSP_PARAM_MASK,
};
use crate::face::frame::control;
use crate::face::handles::{bare, named, pin, pin_or_null};
use crate::face::output::{Output, query_output};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

/// If no endpoint is given, each request arrives with a new one.
#[unsafe(export_name = symbol!("dat_rsp_create"))]
pub unsafe extern "C" fn dat_rsp_create(
    ia_handle: DAT_IA_HANDLE,
    conn_qual: DAT_CONN_QUAL,
    ep_handle: DAT_EP_HANDLE,
    evd_handle: DAT_EVD_HANDLE,
    rsp_handle: *mut DAT_RSP_HANDLE,
) -> DAT_RETURN {
    foreign!(ia_handle.rsp_create_func(ia_handle, conn_qual, ep_handle, evd_handle, rsp_handle));
    control("dat_rsp_create", on("ia", ia_handle), || {
        let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        let ep = pin_or_null::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let evd = pin::<Evd>(evd_handle, Subtype::InvalidHandleEvdCr)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(rsp_handle, Subtype::InvalidArg5) }?;
        let ep = ep.as_ref().map(Pinned::to_arc);
        let rsp = Rsp::create(&ia.to_arc(), conn_qual, ep.as_ref(), &evd.to_arc())?;
        place.set_handle(rsp.handle());
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_rsp_query"))]
pub unsafe extern "C" fn dat_rsp_query(
    rsp_handle: DAT_RSP_HANDLE,
    rsp_param_mask: DAT_RSP_PARAM_MASK,
    rsp_param: *mut DAT_RSP_PARAM,
) -> DAT_RETURN {
    foreign!(rsp_handle.rsp_query_func(rsp_handle, rsp_param_mask, rsp_param));
    control("dat_rsp_query", on("rsp", rsp_handle), || {
        let rsp = pin::<Rsp>(rsp_handle, Subtype::InvalidHandleRsp)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(rsp_param_mask, DAT_RSP_FIELD_ALL, rsp_param) }?;
        let info = rsp.query();
        place.set(DAT_RSP_PARAM {
            ia_handle: bare(info.ia),
            conn_qual: info.qualifier,
            evd_handle: bare(info.evd),
            ep_handle: info.ep.map_or(DAT_HANDLE_NULL, bare),
        });
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_rsp_free"))]
pub unsafe extern "C" fn dat_rsp_free(rsp_handle: DAT_RSP_HANDLE) -> DAT_RETURN {
    foreign!(rsp_handle.rsp_free_func(rsp_handle));
    control("dat_rsp_free", on("rsp", rsp_handle), || {
        Rsp::free(named(rsp_handle, Kind::Rsp, Subtype::InvalidHandleRsp)?)
    })
}
