//! Endpoints: queries and changes.

use dat_api::object::ep::{Ep, EpChange, EpFields};
use dat_api::{Handle, Kind, Result, Subtype};

use crate::abi::{
    DAT_BOOLEAN, DAT_COUNT, DAT_EP_FIELD_ALL, DAT_EP_HANDLE, DAT_EP_PARAM, DAT_EP_PARAM_MASK,
    DAT_EP_STATE, DAT_HANDLE, DAT_RETURN,
};
use crate::face::attributes::{self, count};
use crate::face::frame::{bad_argument, control, require};
use crate::face::handles::{named_or_null, pin};
use crate::face::output::{Output, query_output};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;
use crate::version;

#[unsafe(export_name = symbol!("dat_ep_query"))]
pub unsafe extern "C" fn dat_ep_query(
    ep_handle: DAT_EP_HANDLE,
    ep_param_mask: DAT_EP_PARAM_MASK,
    ep_param: *mut DAT_EP_PARAM,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_query_func(ep_handle, ep_param_mask, ep_param));
    control("dat_ep_query", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(ep_param_mask, DAT_EP_FIELD_ALL, ep_param) }?;
        place.set(attributes::endpoint_info(&ep.query()));
        Ok(())
    })
}

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
    named_or_null(handle, kind, Subtype::InvalidArg3)
        .map_err(|error| bad_argument(Subtype::InvalidArg3, error.cause().into_owned()))
}

#[unsafe(export_name = symbol!("dat_ep_modify"))]
pub unsafe extern "C" fn dat_ep_modify(
    ep_handle: DAT_EP_HANDLE,
    ep_param_mask: DAT_EP_PARAM_MASK,
    ep_param: *const DAT_EP_PARAM,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_modify_func(ep_handle, ep_param_mask, ep_param));
    control("dat_ep_modify", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let fields = version::ep_fields(ep_param_mask)?;
        require(
            !ep_param.is_null(),
            Subtype::InvalidArg3,
            "the new values are null: expected a DAT_EP_PARAM",
        )?;
        // SAFETY: not null, so readable by the contract of `exports`.
        let from = unsafe { ep_param.read_unaligned() };
        let attributes = attributes::changed_endpoint(&from.ep_attr, fields)?;
        let change = EpChange {
            pz: changed(fields, EpFields::PZ, from.pz_handle, Kind::Pz)?,
            recv_evd: changed(fields, EpFields::RECV_EVD, from.recv_evd_handle, Kind::Evd)?,
            request_evd: changed(
                fields,
                EpFields::REQUEST_EVD,
                from.request_evd_handle,
                Kind::Evd,
            )?,
            connect_evd: changed(
                fields,
                EpFields::CONNECT_EVD,
                from.connect_evd_handle,
                Kind::Evd,
            )?,
            attributes,
        };
        // SAFETY: the contract of `exports`: calls on one endpoint take turns.
        unsafe { ep.modify(fields, &change) }
    })
}

/// Each result pointer may be null.
#[unsafe(export_name = symbol!("dat_ep_get_status"))]
pub unsafe extern "C" fn dat_ep_get_status(
    ep_handle: DAT_EP_HANDLE,
    ep_state: *mut DAT_EP_STATE,
    recv_idle: *mut DAT_BOOLEAN,
    request_idle: *mut DAT_BOOLEAN,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_get_status_func(ep_handle, ep_state, recv_idle, request_idle));
    control("dat_ep_get_status", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let status = ep.status();
        // SAFETY: the contract of `exports`.
        let places = unsafe {
            (
                Output::optional(ep_state),
                Output::optional(recv_idle),
                Output::optional(request_idle),
            )
        };
        if let Some(place) = places.0 {
            // `EpState` has the numbers of the header.
            place.set(status.state as DAT_EP_STATE);
        }
        if let Some(place) = places.1 {
            place.set(status.recv_idle.into());
        }
        if let Some(place) = places.2 {
            place.set(status.request_idle.into());
        }
        Ok(())
    })
}

/// Each result pointer may be null.
#[unsafe(export_name = symbol!("dat_ep_recv_query"))]
pub unsafe extern "C" fn dat_ep_recv_query(
    ep_handle: DAT_EP_HANDLE,
    nbufs_allocated: *mut DAT_COUNT,
    bufs_alloc_span: *mut DAT_COUNT,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_recv_query_func(ep_handle, nbufs_allocated, bufs_alloc_span));
    control("dat_ep_recv_query", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let query = ep.recv_query();
        // SAFETY: the contract of `exports`.
        let places = unsafe {
            (
                Output::optional(nbufs_allocated),
                Output::optional(bufs_alloc_span),
            )
        };
        if let Some(place) = places.0 {
            place.set(count(query.allocated));
        }
        if let Some(place) = places.1 {
            place.set(count(query.span));
        }
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_ep_set_watermark"))]
pub unsafe extern "C" fn dat_ep_set_watermark(
    ep_handle: DAT_EP_HANDLE,
    soft_high_watermark: DAT_COUNT,
    hard_high_watermark: DAT_COUNT,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_set_watermark_func(ep_handle, soft_high_watermark, hard_high_watermark));
    control("dat_ep_set_watermark", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        // `DAT_WATERMARK_INFINITE` is the number that turns a watermark off.
        ep.set_watermarks(soft_high_watermark, hard_high_watermark)
    })
}

#[unsafe(export_name = symbol!("dat_ep_reset"))]
pub unsafe extern "C" fn dat_ep_reset(ep_handle: DAT_EP_HANDLE) -> DAT_RETURN {
    foreign!(ep_handle.ep_reset_func(ep_handle));
    control("dat_ep_reset", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        // SAFETY: the contract of `exports`: calls on one endpoint take turns.
        unsafe { ep.reset() }
    })
}
