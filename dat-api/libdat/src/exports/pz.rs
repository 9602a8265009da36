//! Protection zones.

use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;
use dat_api::{Kind, Subtype};

use crate::abi::{
    DAT_IA_HANDLE, DAT_PZ_FIELD_ALL, DAT_PZ_HANDLE, DAT_PZ_PARAM, DAT_PZ_PARAM_MASK, DAT_RETURN,
};
use crate::face::frame::control;
use crate::face::handles::{bare, named, pin};
use crate::face::output::{Output, query_output};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

#[unsafe(export_name = symbol!("dat_pz_create"))]
pub unsafe extern "C" fn dat_pz_create(
    ia_handle: DAT_IA_HANDLE,
    pz_handle: *mut DAT_PZ_HANDLE,
) -> DAT_RETURN {
    foreign!(ia_handle.pz_create_func(ia_handle, pz_handle));
    control("dat_pz_create", on("ia", ia_handle), || {
        let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(pz_handle, Subtype::InvalidArg2) }?;
        place.set_handle(Pz::create(&ia.to_arc())?.handle());
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_pz_query"))]
pub unsafe extern "C" fn dat_pz_query(
    pz_handle: DAT_PZ_HANDLE,
    pz_param_mask: DAT_PZ_PARAM_MASK,
    pz_param: *mut DAT_PZ_PARAM,
) -> DAT_RETURN {
    foreign!(pz_handle.pz_query_func(pz_handle, pz_param_mask, pz_param));
    control("dat_pz_query", on("pz", pz_handle), || {
        let pz = pin::<Pz>(pz_handle, Subtype::InvalidHandlePz)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(pz_param_mask, DAT_PZ_FIELD_ALL, pz_param) }?;
        place.set(DAT_PZ_PARAM {
            ia_handle: bare(pz.ia().handle()),
        });
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_pz_free"))]
pub unsafe extern "C" fn dat_pz_free(pz_handle: DAT_PZ_HANDLE) -> DAT_RETURN {
    foreign!(pz_handle.pz_free_func(pz_handle));
    control("dat_pz_free", on("pz", pz_handle), || {
        Pz::free(named(pz_handle, Kind::Pz, Subtype::InvalidHandlePz)?)
    })
}
