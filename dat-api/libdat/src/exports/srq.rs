//! Shared receive queues.

use dat_api::handle::peek_at;
use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;
use dat_api::object::srq::Srq;
use dat_api::types::SrqAttributes;
use dat_api::{Kind, Subtype};

use crate::abi::{
    DAT_COUNT, DAT_DTO_COOKIE, DAT_IA_HANDLE, DAT_LMR_TRIPLET, DAT_PZ_HANDLE, DAT_RETURN,
    DAT_SRQ_ATTR, DAT_SRQ_FIELD_ALL, DAT_SRQ_HANDLE, DAT_SRQ_PARAM, DAT_SRQ_PARAM_MASK,
};
use crate::face::attributes::count;
use crate::face::frame::{control, require};
use crate::face::handles::{bare, named, pin};
use crate::face::output::{Output, query_output};
use crate::face::refused::{Codes, no_segments};
use crate::face::segments::local;
use crate::face::subject::on;
use crate::providers::dispatch::foreign;
use crate::providers::hot;
use crate::version;

#[unsafe(export_name = symbol!("dat_srq_create"))]
pub unsafe extern "C" fn dat_srq_create(
    ia_handle: DAT_IA_HANDLE,
    pz_handle: DAT_PZ_HANDLE,
    srq_attr: *mut DAT_SRQ_ATTR,
    srq_handle: *mut DAT_SRQ_HANDLE,
) -> DAT_RETURN {
    foreign!(ia_handle.srq_create_func(ia_handle, pz_handle, srq_attr, srq_handle));
    control("dat_srq_create", on("ia", ia_handle), || {
        let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        let pz = pin::<Pz>(pz_handle, Subtype::InvalidHandlePz)?;
        require(
            !srq_attr.is_null(),
            Subtype::InvalidArg3,
            "the attributes are null: expected a DAT_SRQ_ATTR",
        )?;
        // SAFETY: not null, so readable by the contract of `exports`.
        let attr = unsafe { srq_attr.read_unaligned() };
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(srq_handle, Subtype::InvalidArg4) }?;
        let attributes = SrqAttributes {
            max_recv_dtos: attr.max_recv_dtos,
            max_recv_iov: attr.max_recv_iov,
            low_watermark: attr.low_watermark,
        };
        place.set_handle(Srq::create(&ia.to_arc(), &pz.to_arc(), &attributes)?.handle());
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_srq_free"))]
pub unsafe extern "C" fn dat_srq_free(srq_handle: DAT_SRQ_HANDLE) -> DAT_RETURN {
    foreign!(srq_handle.srq_free_func(srq_handle));
    control("dat_srq_free", on("srq", srq_handle), || {
        Srq::free(named(srq_handle, Kind::Srq, Subtype::InvalidHandleSrq)?)
    })
}

/// Like the posts of endpoints, neither allocates, locks, prints nor unwinds, unless
/// it is refused.
#[unsafe(export_name = symbol!("dat_srq_post_recv"))]
pub unsafe extern "C" fn dat_srq_post_recv(
    srq_handle: DAT_SRQ_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
) -> DAT_RETURN {
    // SAFETY: by the contract of `exports` no thread frees the queue during the
    // call.
    let Some(srq) = (unsafe { peek_at::<Srq>(srq_handle) }) else {
        // SAFETY: the caller has the same contract.
        return unsafe { hot::srq_post_recv(srq_handle, num_segments, local_iov, user_cookie) };
    };
    // SAFETY: by the contract of `exports` one thread at a time posts, and the
    // memory and the segment list stay valid; any 64 bits are a cookie.
    unsafe {
        let Some((count, segment)) = local(num_segments, local_iov) else {
            return no_segments(srq.handle(), num_segments, "dat_srq_post_recv");
        };
        srq.post_recv_with::<Codes>(count, segment, user_cookie.as_64)
            .bits()
    }
}

#[unsafe(export_name = symbol!("dat_srq_query"))]
pub unsafe extern "C" fn dat_srq_query(
    srq_handle: DAT_SRQ_HANDLE,
    srq_param_mask: DAT_SRQ_PARAM_MASK,
    srq_param: *mut DAT_SRQ_PARAM,
) -> DAT_RETURN {
    foreign!(srq_handle.srq_query_func(srq_handle, srq_param_mask, srq_param));
    control("dat_srq_query", on("srq", srq_handle), || {
        let srq = pin::<Srq>(srq_handle, Subtype::InvalidHandleSrq)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(srq_param_mask, DAT_SRQ_FIELD_ALL, srq_param) }?;
        let info = srq.query();
        place.set(DAT_SRQ_PARAM {
            ia_handle: bare(info.ia),
            srq_state: version::srq_state(info.state),
            pz_handle: bare(info.pz),
            max_recv_dtos: info.attributes.max_recv_dtos,
            max_recv_iov: info.attributes.max_recv_iov,
            low_watermark: info.attributes.low_watermark,
            available_dto_count: count(info.available),
            outstanding_dto_count: count(info.outstanding),
        });
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_srq_resize"))]
pub unsafe extern "C" fn dat_srq_resize(
    srq_handle: DAT_SRQ_HANDLE,
    srq_max_recv_dto: DAT_COUNT,
) -> DAT_RETURN {
    foreign!(srq_handle.srq_resize_func(srq_handle, srq_max_recv_dto));
    control("dat_srq_resize", on("srq", srq_handle), || {
        let srq = pin::<Srq>(srq_handle, Subtype::InvalidHandleSrq)?;
        // SAFETY: the contract of `exports`: calls on one queue take turns.
        unsafe { srq.resize(srq_max_recv_dto) }
    })
}

#[unsafe(export_name = symbol!("dat_srq_set_lw"))]
pub unsafe extern "C" fn dat_srq_set_lw(
    srq_handle: DAT_SRQ_HANDLE,
    low_watermark: DAT_COUNT,
) -> DAT_RETURN {
    foreign!(srq_handle.srq_set_lw_func(srq_handle, low_watermark));
    control("dat_srq_set_lw", on("srq", srq_handle), || {
        pin::<Srq>(srq_handle, Subtype::InvalidHandleSrq)?.set_low_watermark(low_watermark)
    })
}
