//! Reserved service points.

use dat_api::Subtype;
use dat_api::handle::Pinned;
use dat_api::object::ep::Ep;
use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::object::rsp::Rsp;

use crate::abi::*;
use crate::face::call::{Named, call};
use crate::face::handles::{bare, pin_as, pin_or_null};
use crate::face::output::Out;

// If no endpoint is given, each request arrives with a new one.
call!(
    dat_rsp_create,
    |ia: Pinned<Ia>,
     conn_qual: DAT_CONN_QUAL,
     ep_handle: DAT_EP_HANDLE,
     evd_handle: DAT_EVD_HANDLE,
     rsp_handle: Out<DAT_RSP_HANDLE>| {
        let ep = pin_or_null::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let evd = pin_as::<Evd>(evd_handle, Subtype::InvalidHandleEvdCr)?;
        let place = rsp_handle.required(Subtype::InvalidArg5)?;
        let ep = ep.as_ref().map(Pinned::to_arc);
        let rsp = Rsp::create(&ia.to_arc(), conn_qual, ep.as_ref(), &evd.to_arc())?;
        place.set_new(rsp.handle(), Rsp::free)
    }
);

call!(
    dat_rsp_query,
    |rsp: Pinned<Rsp>, mask: DAT_RSP_PARAM_MASK, param: Out<DAT_RSP_PARAM>| {
        param.answer(mask, DAT_RSP_FIELD_ALL, || {
            let info = rsp.query();
            DAT_RSP_PARAM {
                ia_handle: bare(info.ia),
                conn_qual: info.qualifier,
                evd_handle: bare(info.evd),
                ep_handle: info.ep.map_or(DAT_HANDLE_NULL, bare),
            }
        })
    }
);

call!(dat_rsp_free, ending, |rsp: Named<Rsp>| Rsp::free(rsp.0));
