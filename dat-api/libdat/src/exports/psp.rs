//! Public service points.

use dat_api::handle::Pinned;
use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::object::psp::{EpCreator, Psp};
use dat_api::{Result, Subtype};

use crate::abi::*;
use crate::face::call::{Named, call};
use crate::face::frame::bad_argument;
use crate::face::handles::{bare, pin_as};
use crate::face::output::Out;

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

call!(
    dat_psp_create,
    |ia: Pinned<Ia>,
     conn_qual: DAT_CONN_QUAL,
     evd_handle: DAT_EVD_HANDLE,
     psp_flags: DAT_PSP_FLAGS,
     psp_handle: Out<DAT_PSP_HANDLE>| {
        let evd = pin_as::<Evd>(evd_handle, Subtype::InvalidHandleEvdCr)?;
        let creator = creator(psp_flags)?;
        let place = psp_handle.required(Subtype::InvalidArg5)?;
        let psp = Psp::create(&ia.to_arc(), conn_qual, &evd.to_arc(), creator)?;
        place.set_new(psp.handle(), Psp::free)
    }
);

call!(
    dat_psp_create_any,
    |ia: Pinned<Ia>,
     conn_qual: Out<DAT_CONN_QUAL>,
     evd_handle: DAT_EVD_HANDLE,
     psp_flags: DAT_PSP_FLAGS,
     psp_handle: Out<DAT_PSP_HANDLE>| {
        let evd = pin_as::<Evd>(evd_handle, Subtype::InvalidHandleEvdCr)?;
        let creator = creator(psp_flags)?;
        let qualifier = conn_qual.required(Subtype::InvalidArg2)?;
        let place = psp_handle.required(Subtype::InvalidArg5)?;
        let psp = Psp::create_any(&ia.to_arc(), &evd.to_arc(), creator)?;
        place.set_new(psp.handle(), Psp::free)?;
        qualifier.set(psp.query().qualifier);
        Ok(())
    }
);

call!(
    dat_psp_query,
    |psp: Pinned<Psp>, mask: DAT_PSP_PARAM_MASK, param: Out<DAT_PSP_PARAM>| {
        param.answer(mask, DAT_PSP_FIELD_ALL, || {
            let info = psp.query();
            DAT_PSP_PARAM {
                ia_handle: bare(info.ia),
                conn_qual: info.qualifier,
                evd_handle: bare(info.evd),
                // `EpCreator` has the numbers of the header.
                psp_flags: info.creator as DAT_PSP_FLAGS,
            }
        })
    }
);

call!(dat_psp_free, ending, |psp: Named<Psp>| Psp::free(psp.0));
