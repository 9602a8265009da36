//! Connection requests. `version::calls` has their rejection.

use dat_api::handle::Pinned;
use dat_api::object::cr::Cr;
use dat_api::{Kind, Subtype};

use crate::abi::*;
use crate::face::attributes::count;
use crate::face::call::{Named, call};
use crate::face::handles::{named_or_null, to_c};
use crate::face::output::Out;
use crate::face::private_data::PrivateData;

call!(
    dat_cr_query,
    |cr: Pinned<Cr>, mask: DAT_CR_PARAM_MASK, param: Out<DAT_CR_PARAM>| {
        param.answer(mask, DAT_CR_FIELD_ALL, || {
            let info = cr.query();
            DAT_CR_PARAM {
                remote_ia_address_ptr: core::ptr::with_exposed_provenance_mut(info.remote_address),
                remote_port_qual: info.remote_port,
                private_data_size: count(info.private_data.len),
                private_data: core::ptr::with_exposed_provenance_mut(info.private_data.address),
                // The service point made the endpoint, so C gets its handle here
                // first.
                local_ep_handle: info.local_ep.map_or(DAT_HANDLE_NULL, to_c),
            }
        })
    }
);

call!(
    dat_cr_accept,
    |cr: Named<Cr>,
     ep_handle: DAT_EP_HANDLE,
     private_data_size: DAT_COUNT,
     private_data: PrivateData| {
        let ep = named_or_null(ep_handle, Kind::Ep)?;
        let at = [Subtype::InvalidArg3, Subtype::InvalidArg4];
        Cr::accept(cr.0, ep, private_data.of_size(private_data_size, at)?)
    }
);

call!(dat_cr_handoff, |cr: Named<Cr>, handoff: DAT_CONN_QUAL| {
    Cr::hand_off(cr.0, handoff)
});
