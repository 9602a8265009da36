//! Endpoints: queries and changes.

use dat_api::handle::Pinned;
use dat_api::object::ep::{Ep, EpChange, EpFields};
use dat_api::{Handle, Kind, Result, Subtype};

use crate::abi::*;
use crate::face::attributes::{self, count};
use crate::face::call::call;
use crate::face::frame::{bad_argument, require};
use crate::face::handles::named_or_null;
use crate::face::output::Out;
use crate::version;

call!(
    dat_ep_query,
    |ep: Pinned<Ep>, mask: DAT_EP_PARAM_MASK, param: Out<DAT_EP_PARAM>| {
        param.answer(mask, DAT_EP_FIELD_ALL, || {
            attributes::endpoint_info(&ep.query())
        })
    }
);

/// Checks the handle in a field of the structure if the mask selects that field.
fn changed(
    fields: EpFields,
    field: EpFields,
    handle: DAT_HANDLE,
    kind: Kind,
) -> Result<Option<Handle>> {
    if !fields.contains(field) {
        return Ok(None);
    }
    // A bad handle inside the structure is a bad argument, not a bad handle.
    named_or_null(handle, kind)
        .map_err(|error| bad_argument(Subtype::InvalidArg3, error.cause().into_owned()))
}

call!(
    dat_ep_modify,
    |ep: Pinned<Ep>, mask: DAT_EP_PARAM_MASK, param: *const DAT_EP_PARAM| {
        let fields = version::ep_fields(mask)?;
        require(
            !param.is_null(),
            Subtype::InvalidArg3,
            "the new values are null: expected a DAT_EP_PARAM",
        )?;
        // SAFETY: not null, so readable by the contract of `exports`.
        let from = unsafe { param.read_unaligned() };
        let evd = |field, handle| changed(fields, field, handle, Kind::Evd);
        let attributes = attributes::changed_endpoint(&from.ep_attr, fields)?;
        let change = EpChange {
            pz: changed(fields, EpFields::PZ, from.pz_handle, Kind::Pz)?,
            recv_evd: evd(EpFields::RECV_EVD, from.recv_evd_handle)?,
            request_evd: evd(EpFields::REQUEST_EVD, from.request_evd_handle)?,
            connect_evd: evd(EpFields::CONNECT_EVD, from.connect_evd_handle)?,
            attributes,
        };
        // SAFETY: the contract of `exports`: calls on one endpoint take turns.
        unsafe { ep.modify(fields, &change) }
    }
);

// Each result pointer may be null.
call!(
    dat_ep_get_status,
    |ep: Pinned<Ep>,
     ep_state: Out<DAT_EP_STATE>,
     recv_idle: Out<DAT_BOOLEAN>,
     request_idle: Out<DAT_BOOLEAN>| {
        let status = ep.status();
        // `EpState` has the numbers of the header.
        ep_state.set(status.state as DAT_EP_STATE);
        recv_idle.set(status.recv_idle.into());
        request_idle.set(status.request_idle.into());
        Ok(())
    }
);

// Each result pointer may be null.
call!(
    dat_ep_recv_query,
    |ep: Pinned<Ep>, allocated: Out<DAT_COUNT>, span: Out<DAT_COUNT>| {
        let query = ep.recv_query();
        allocated.set(count(query.allocated));
        span.set(count(query.span));
        Ok(())
    }
);

// `DAT_WATERMARK_INFINITE` is the number that turns a watermark off.
call!(
    dat_ep_set_watermark,
    |ep: Pinned<Ep>, soft: DAT_COUNT, hard: DAT_COUNT| ep.set_watermarks(soft, hard)
);

call!(dat_ep_reset, ending, |ep: Pinned<Ep>| {
    // SAFETY: the contract of `exports`: calls on one endpoint take turns.
    unsafe { ep.reset() }
});
