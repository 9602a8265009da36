//! Public service points.

use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::object::psp::{EpCreator, Psp};
use dat_api::{Kind, Result, Subtype};

use crate::abi::{
    DAT_CONN_QUAL, DAT_EVD_HANDLE, DAT_IA_HANDLE, DAT_PSP_CONSUMER_FLAG, DAT_PSP_FIELD_ALL,
    DAT_PSP_FLAGS, DAT_PSP_HANDLE, DAT_PSP_PARAM, DAT_PSP_PARAM_MASK, DAT_PSP_PROVIDER_FLAG,
    DAT_RETURN,
};
use crate::face::frame::{bad_argument, control};
use crate::face::handles::{bare, named, pin};
use crate::face::output::{Output, query_output};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

fn creator(flags: DAT_PSP_FLAGS) -> Result<EpCreator> {
    match flags {
        DAT_PSP_CONSUMER_FLAG => Ok(EpCreator::Consumer),
        DAT_PSP_PROVIDER_FLAG => Ok(EpCreator::Provider),
        _ => Err(bad_argument(
            Subtype::InvalidArg4,
            format!(
                "invalid flags {flags:#x}: expected DAT_PSP_CONSUMER_FLAG \
                 ({DAT_PSP_CONSUMER_FLAG}) or DAT_PSP_PROVIDER_FLAG ({DAT_PSP_PROVIDER_FLAG})"
            ),
        )),
    }
}

#[unsafe(export_name = symbol!("dat_psp_create"))]
pub unsafe extern "C" fn dat_psp_create(
    ia_handle: DAT_IA_HANDLE,
    conn_qual: DAT_CONN_QUAL,
    evd_handle: DAT_EVD_HANDLE,
    psp_flags: DAT_PSP_FLAGS,
    psp_handle: *mut DAT_PSP_HANDLE,
) -> DAT_RETURN {
    foreign!(ia_handle.psp_create_func(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle));
    control("dat_psp_create", on("ia", ia_handle), || {
        let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        let evd = pin::<Evd>(evd_handle, Subtype::InvalidHandleEvdCr)?;
        let creator = creator(psp_flags)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(psp_handle, Subtype::InvalidArg5) }?;
        let psp = Psp::create(&ia.to_arc(), conn_qual, &evd.to_arc(), creator)?;
        place.set_handle(psp.handle());
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_psp_create_any"))]
pub unsafe extern "C" fn dat_psp_create_any(
    ia_handle: DAT_IA_HANDLE,
    conn_qual: *mut DAT_CONN_QUAL,
    evd_handle: DAT_EVD_HANDLE,
    psp_flags: DAT_PSP_FLAGS,
    psp_handle: *mut DAT_PSP_HANDLE,
) -> DAT_RETURN {
    foreign!(
        ia_handle.psp_create_any_func(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle)
    );
    control("dat_psp_create_any", on("ia", ia_handle), || {
        let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        let evd = pin::<Evd>(evd_handle, Subtype::InvalidHandleEvdCr)?;
        let creator = creator(psp_flags)?;
        // SAFETY: the contract of `exports`.
        let qualifier = unsafe { Output::new(conn_qual, Subtype::InvalidArg2) }?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(psp_handle, Subtype::InvalidArg5) }?;
        let psp = Psp::create_any(&ia.to_arc(), &evd.to_arc(), creator)?;
        qualifier.set(psp.query().qualifier);
        place.set_handle(psp.handle());
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_psp_query"))]
pub unsafe extern "C" fn dat_psp_query(
    psp_handle: DAT_PSP_HANDLE,
    psp_param_mask: DAT_PSP_PARAM_MASK,
    psp_param: *mut DAT_PSP_PARAM,
) -> DAT_RETURN {
    foreign!(psp_handle.psp_query_func(psp_handle, psp_param_mask, psp_param));
    control("dat_psp_query", on("psp", psp_handle), || {
        let psp = pin::<Psp>(psp_handle, Subtype::InvalidHandlePsp)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(psp_param_mask, DAT_PSP_FIELD_ALL, psp_param) }?;
        let info = psp.query();
        place.set(DAT_PSP_PARAM {
            ia_handle: bare(info.ia),
            conn_qual: info.qualifier,
            evd_handle: bare(info.evd),
            // `EpCreator` has the numbers of the header.
            psp_flags: info.creator as DAT_PSP_FLAGS,
        });
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_psp_free"))]
pub unsafe extern "C" fn dat_psp_free(psp_handle: DAT_PSP_HANDLE) -> DAT_RETURN {
    foreign!(psp_handle.psp_free_func(psp_handle));
    control("dat_psp_free", on("psp", psp_handle), || {
        Psp::free(named(psp_handle, Kind::Psp, Subtype::InvalidHandlePsp)?)
    })
}
