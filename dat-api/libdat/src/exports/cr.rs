//! Connection requests.

use dat_api::object::cr::Cr;
use dat_api::{Kind, Result, Subtype};

use super::ep_connect::private_data;
use crate::abi::{
    DAT_CONN_QUAL, DAT_COUNT, DAT_CR_FIELD_ALL, DAT_CR_HANDLE, DAT_CR_PARAM, DAT_CR_PARAM_MASK,
    DAT_EP_HANDLE, DAT_HANDLE_NULL, DAT_PVOID, DAT_RETURN,
};
use crate::face::attributes::count;
use crate::face::frame::control;
use crate::face::handles::{named, named_or_null, pin, to_c};
use crate::face::output::query_output;
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

#[unsafe(export_name = symbol!("dat_cr_query"))]
pub unsafe extern "C" fn dat_cr_query(
    cr_handle: DAT_CR_HANDLE,
    cr_param_mask: DAT_CR_PARAM_MASK,
    cr_param: *mut DAT_CR_PARAM,
) -> DAT_RETURN {
    foreign!(cr_handle.cr_query_func(cr_handle, cr_param_mask, cr_param));
    control("dat_cr_query", on("cr", cr_handle), || {
        let cr = pin::<Cr>(cr_handle, Subtype::InvalidHandleCr)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(cr_param_mask, DAT_CR_FIELD_ALL, cr_param) }?;
        let info = cr.query();
        place.set(DAT_CR_PARAM {
            remote_ia_address_ptr: core::ptr::with_exposed_provenance_mut(info.remote_address),
            remote_port_qual: info.remote_port,
            private_data_size: count(info.private_data.len),
            private_data: core::ptr::with_exposed_provenance_mut(info.private_data.address),
            // The service point made the endpoint, so C gets its handle here
            // first.
            local_ep_handle: info.local_ep.map_or(DAT_HANDLE_NULL, to_c),
        });
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_cr_accept"))]
pub unsafe extern "C" fn dat_cr_accept(
    cr_handle: DAT_CR_HANDLE,
    ep_handle: DAT_EP_HANDLE,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
) -> DAT_RETURN {
    foreign!(cr_handle.cr_accept_func(cr_handle, ep_handle, private_data_size, private_data));
    control("dat_cr_accept", on("cr", cr_handle), || {
        let cr = named(cr_handle, Kind::Cr, Subtype::InvalidHandleCr)?;
        let ep = named_or_null(ep_handle, Kind::Ep, Subtype::InvalidHandleEp)?;
        // SAFETY: the contract of `exports`.
        let private_data = unsafe {
            self::private_data(
                private_data_size,
                private_data,
                Subtype::InvalidArg3,
                Subtype::InvalidArg4,
            )
        }?;
        Cr::accept(cr, ep, private_data)
    })
}

/// Rejects a request.
pub(crate) fn reject(cr_handle: DAT_CR_HANDLE, private_data: &[u8]) -> Result<()> {
    let cr = named(cr_handle, Kind::Cr, Subtype::InvalidHandleCr)?;
    Cr::reject(cr, private_data)
}

#[unsafe(export_name = symbol!("dat_cr_handoff"))]
pub unsafe extern "C" fn dat_cr_handoff(
    cr_handle: DAT_CR_HANDLE,
    handoff: DAT_CONN_QUAL,
) -> DAT_RETURN {
    foreign!(cr_handle.cr_handoff_func(cr_handle, handoff));
    control("dat_cr_handoff", on("cr", cr_handle), || {
        Cr::hand_off(
            named(cr_handle, Kind::Cr, Subtype::InvalidHandleCr)?,
            handoff,
        )
    })
}
