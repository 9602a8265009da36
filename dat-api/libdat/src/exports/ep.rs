//! Endpoints: creating and freeing.

use std::sync::Arc;

use dat_api::handle::{Object, Pinned};
use dat_api::object::ep::Ep;
use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;
use dat_api::object::srq::Srq;
use dat_api::types::EpAttributes;
use dat_api::{Result, Subtype};

use crate::abi::*;
use crate::face::attributes;
use crate::face::call::{Named, call};
use crate::face::frame::{bad_argument, require_with};
use crate::face::handles::{pin, pin_or_null};
use crate::face::output::Out;

/// The parent objects that both create calls take beside the adapter.
struct Parents {
    pz: Option<Pinned<Pz>>,
    recv: Option<Pinned<Evd>>,
    request: Option<Pinned<Evd>>,
    connect: Option<Pinned<Evd>>,
}

impl Parents {
    fn find(
        pz: DAT_PZ_HANDLE,
        recv: DAT_EVD_HANDLE,
        request: DAT_EVD_HANDLE,
        connect: DAT_EVD_HANDLE,
    ) -> Result<Self> {
        let pz = pin_or_null(pz, Subtype::InvalidHandlePz)?;
        // Checked in the same order as existing providers do.
        let connect = pin_or_null(connect, Subtype::InvalidHandleEvdConn)?;
        let recv = pin_or_null(recv, Subtype::InvalidHandleEvdRecv)?;
        let request = pin_or_null(request, Subtype::InvalidHandleEvdRequest)?;
        Ok(Self {
            pz,
            recv,
            request,
            connect,
        })
    }
}

fn arc<T: Object>(pinned: &Option<Pinned<T>>) -> Option<Arc<T>> {
    pinned.as_ref().map(Pinned::to_arc)
}

/// Converts the endpoint attributes of an argument. Returns `None` if the pointer
/// is null.
///
/// # Safety
/// The pointer is null or readable.
unsafe fn attributes(from: *const DAT_EP_ATTR, argument: Subtype) -> Result<Option<EpAttributes>> {
    if from.is_null() {
        return Ok(None);
    }
    require_with(from.is_aligned(), argument, || {
        format!(
            "the attributes at {from:p} are not aligned: expected a multiple of {} bytes",
            align_of::<DAT_EP_ATTR>()
        )
    })?;
    // SAFETY: the pointer is neither null nor misaligned, so it is readable by
    // this function's contract.
    attributes::endpoint(unsafe { &*from }, argument).map(Some)
}

call!(
    dat_ep_create,
    |ia: Pinned<Ia>,
     pz_handle: DAT_PZ_HANDLE,
     recv_evd_handle: DAT_EVD_HANDLE,
     request_evd_handle: DAT_EVD_HANDLE,
     connect_evd_handle: DAT_EVD_HANDLE,
     ep_attributes: *const DAT_EP_ATTR,
     ep_handle: Out<DAT_EP_HANDLE>| {
        let of = Parents::find(
            pz_handle,
            recv_evd_handle,
            request_evd_handle,
            connect_evd_handle,
        )?;
        let place = ep_handle.required(Subtype::InvalidArg7)?;
        // SAFETY: the contract of `exports`.
        let attributes = unsafe { attributes(ep_attributes, Subtype::InvalidArg6) }?;
        let ep = Ep::create(
            &ia.to_arc(),
            arc(&of.pz).as_ref(),
            arc(&of.recv).as_ref(),
            arc(&of.request).as_ref(),
            arc(&of.connect).as_ref(),
            attributes.as_ref(),
        )?;
        // SAFETY: the program has no handle of it yet.
        place.set_new(ep.handle(), |ep| unsafe { Ep::free(ep) })
    }
);

call!(
    dat_ep_create_with_srq,
    |ia: Pinned<Ia>,
     pz_handle: DAT_PZ_HANDLE,
     recv_evd_handle: DAT_EVD_HANDLE,
     request_evd_handle: DAT_EVD_HANDLE,
     connect_evd_handle: DAT_EVD_HANDLE,
     srq_handle: DAT_SRQ_HANDLE,
     ep_attributes: *const DAT_EP_ATTR,
     ep_handle: Out<DAT_EP_HANDLE>| {
        let of = Parents::find(
            pz_handle,
            recv_evd_handle,
            request_evd_handle,
            connect_evd_handle,
        )?;
        // Checked before the queue's handle: without support for SRQs no such
        // handle can be valid.
        ia.require_srqs()?;
        let srq = pin::<Srq>(srq_handle)?;
        let place = ep_handle.required(Subtype::InvalidArg8)?;
        // SAFETY: the contract of `exports`.
        let attributes = unsafe { attributes(ep_attributes, Subtype::InvalidArg7) }?;
        let attributes = attributes.ok_or_else(|| {
            bad_argument(
                Subtype::InvalidArg7,
                "the attributes are null: expected a DAT_EP_ATTR, which an endpoint on a shared \
             receive queue needs",
            )
        })?;
        let ep = Ep::create_with_srq(
            &ia.to_arc(),
            arc(&of.pz).as_ref(),
            arc(&of.recv).as_ref(),
            arc(&of.request).as_ref(),
            arc(&of.connect).as_ref(),
            &srq.to_arc(),
            &attributes,
        )?;
        // SAFETY: the program has no handle of it yet.
        place.set_new(ep.handle(), |ep| unsafe { Ep::free(ep) })
    }
);

call!(dat_ep_free, ending, |ep: Named<Ep>| {
    // SAFETY: the contract of `exports`: calls on one endpoint take turns.
    unsafe { Ep::free(ep.0) }
});
