//! Endpoints: creating and freeing.

use dat_api::handle::Pinned;
use dat_api::object::ep::Ep;
use dat_api::object::evd::Evd;
use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;
use dat_api::object::srq::Srq;
use dat_api::types::EpAttributes;
use dat_api::{Kind, Result, Subtype};

use crate::abi::{
    DAT_EP_ATTR, DAT_EP_HANDLE, DAT_EVD_HANDLE, DAT_IA_HANDLE, DAT_PZ_HANDLE, DAT_RETURN,
    DAT_SRQ_HANDLE,
};
use crate::face::attributes;
use crate::face::frame::{bad_argument, control, require_with};
use crate::face::handles::{named, pin, pin_or_null};
use crate::face::output::Output;
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

/// The parent objects that both create calls take.
struct Parents {
    ia: Pinned<Ia>,
    pz: Option<Pinned<Pz>>,
    recv: Option<Pinned<Evd>>,
    request: Option<Pinned<Evd>>,
    connect: Option<Pinned<Evd>>,
}

impl Parents {
    fn find(
        ia: DAT_IA_HANDLE,
        pz: DAT_PZ_HANDLE,
        recv: DAT_EVD_HANDLE,
        request: DAT_EVD_HANDLE,
        connect: DAT_EVD_HANDLE,
    ) -> Result<Self> {
        let ia = pin(ia, Subtype::InvalidHandleIa)?;
        let pz = pin_or_null(pz, Subtype::InvalidHandlePz)?;
        // Checked in the same order as existing providers do.
        let connect = pin_or_null(connect, Subtype::InvalidHandleEvdConn)?;
        let recv = pin_or_null(recv, Subtype::InvalidHandleEvdRecv)?;
        let request = pin_or_null(request, Subtype::InvalidHandleEvdRequest)?;
        Ok(Self {
            ia,
            pz,
            recv,
            request,
            connect,
        })
    }
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

#[unsafe(export_name = symbol!("dat_ep_create"))]
pub unsafe extern "C" fn dat_ep_create(
    ia_handle: DAT_IA_HANDLE,
    pz_handle: DAT_PZ_HANDLE,
    recv_completion_evd_handle: DAT_EVD_HANDLE,
    request_completion_evd_handle: DAT_EVD_HANDLE,
    connect_evd_handle: DAT_EVD_HANDLE,
    ep_attributes: *const DAT_EP_ATTR,
    ep_handle: *mut DAT_EP_HANDLE,
) -> DAT_RETURN {
    foreign!(ia_handle.ep_create_func(
        ia_handle,
        pz_handle,
        recv_completion_evd_handle,
        request_completion_evd_handle,
        connect_evd_handle,
        ep_attributes,
        ep_handle
    ));
    control("dat_ep_create", on("ia", ia_handle), || {
        let of = Parents::find(
            ia_handle,
            pz_handle,
            recv_completion_evd_handle,
            request_completion_evd_handle,
            connect_evd_handle,
        )?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(ep_handle, Subtype::InvalidArg7) }?;
        // SAFETY: the contract of `exports`.
        let attributes = unsafe { attributes(ep_attributes, Subtype::InvalidArg6) }?;
        let ep = Ep::create(
            &of.ia.to_arc(),
            of.pz.as_ref().map(Pinned::to_arc).as_ref(),
            of.recv.as_ref().map(Pinned::to_arc).as_ref(),
            of.request.as_ref().map(Pinned::to_arc).as_ref(),
            of.connect.as_ref().map(Pinned::to_arc).as_ref(),
            attributes.as_ref(),
        )?;
        place.set_handle(ep.handle());
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_ep_create_with_srq"))]
pub unsafe extern "C" fn dat_ep_create_with_srq(
    ia_handle: DAT_IA_HANDLE,
    pz_handle: DAT_PZ_HANDLE,
    recv_evd_handle: DAT_EVD_HANDLE,
    request_evd_handle: DAT_EVD_HANDLE,
    connect_evd_handle: DAT_EVD_HANDLE,
    srq_handle: DAT_SRQ_HANDLE,
    ep_attributes: *const DAT_EP_ATTR,
    ep_handle: *mut DAT_EP_HANDLE,
) -> DAT_RETURN {
    foreign!(ia_handle.ep_create_with_srq_func(
        ia_handle,
        pz_handle,
        recv_evd_handle,
        request_evd_handle,
        connect_evd_handle,
        srq_handle,
        ep_attributes,
        ep_handle
    ));
    control("dat_ep_create_with_srq", on("ia", ia_handle), || {
        let of = Parents::find(
            ia_handle,
            pz_handle,
            recv_evd_handle,
            request_evd_handle,
            connect_evd_handle,
        )?;
        // Checked before the queue's handle: without support for SRQs no such
        // handle can be valid.
        of.ia.require_srqs()?;
        let srq = pin::<Srq>(srq_handle, Subtype::InvalidHandleSrq)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(ep_handle, Subtype::InvalidArg8) }?;
        // SAFETY: the contract of `exports`.
        let attributes =
            unsafe { attributes(ep_attributes, Subtype::InvalidArg7) }?.ok_or_else(|| {
                bad_argument(
                    Subtype::InvalidArg7,
                    "the attributes are null: expected a DAT_EP_ATTR, which an endpoint on a \
                     shared receive queue needs",
                )
            })?;
        let ep = Ep::create_with_srq(
            &of.ia.to_arc(),
            of.pz.as_ref().map(Pinned::to_arc).as_ref(),
            of.recv.as_ref().map(Pinned::to_arc).as_ref(),
            of.request.as_ref().map(Pinned::to_arc).as_ref(),
            of.connect.as_ref().map(Pinned::to_arc).as_ref(),
            &srq.to_arc(),
            &attributes,
        )?;
        place.set_handle(ep.handle());
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_ep_free"))]
pub unsafe extern "C" fn dat_ep_free(ep_handle: DAT_EP_HANDLE) -> DAT_RETURN {
    foreign!(ep_handle.ep_free_func(ep_handle));
    control("dat_ep_free", on("ep", ep_handle), || {
        let ep = named(ep_handle, Kind::Ep, Subtype::InvalidHandleEp)?;
        // SAFETY: the contract of `exports`: calls on one endpoint take turns.
        unsafe { Ep::free(ep) }
    })
}
