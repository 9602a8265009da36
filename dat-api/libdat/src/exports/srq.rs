//! Shared receive queues, but for posts.

use dat_api::Subtype;
use dat_api::handle::Pinned;
use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;
use dat_api::object::srq::Srq;
use dat_api::types::SrqAttributes;

use crate::abi::*;
use crate::face::attributes::count;
use crate::face::call::{Named, call};
use crate::face::frame::require;
use crate::face::handles::{bare, pin};
use crate::face::output::Out;
use crate::version;

call!(
    dat_srq_create,
    |ia: Pinned<Ia>,
     pz_handle: DAT_PZ_HANDLE,
     srq_attr: *mut DAT_SRQ_ATTR,
     srq_handle: Out<DAT_SRQ_HANDLE>| {
        let pz = pin::<Pz>(pz_handle)?;
        require(
            !srq_attr.is_null(),
            Subtype::InvalidArg3,
            "the attributes are null: expected a DAT_SRQ_ATTR",
        )?;
        // SAFETY: not null, so readable by the contract of `exports`.
        let attr = unsafe { srq_attr.read_unaligned() };
        let place = srq_handle.required(Subtype::InvalidArg4)?;
        let attributes = SrqAttributes {
            max_recv_dtos: attr.max_recv_dtos,
            max_recv_iov: attr.max_recv_iov,
            low_watermark: attr.low_watermark,
        };
        let srq = Srq::create(&ia.to_arc(), &pz.to_arc(), &attributes)?;
        place.set_new(srq.handle(), Srq::free)
    }
);

call!(dat_srq_free, ending, |srq: Named<Srq>| Srq::free(srq.0));

call!(
    dat_srq_query,
    |srq: Pinned<Srq>, mask: DAT_SRQ_PARAM_MASK, param: Out<DAT_SRQ_PARAM>| {
        param.answer(mask, DAT_SRQ_FIELD_ALL, || {
            let info = srq.query();
            DAT_SRQ_PARAM {
                ia_handle: bare(info.ia),
                srq_state: version::srq_state(info.state),
                pz_handle: bare(info.pz),
                max_recv_dtos: info.attributes.max_recv_dtos,
                max_recv_iov: info.attributes.max_recv_iov,
                low_watermark: info.attributes.low_watermark,
                available_dto_count: count(info.available),
                outstanding_dto_count: count(info.outstanding),
            }
        })
    }
);

call!(
    dat_srq_resize,
    |srq: Pinned<Srq>, srq_max_recv_dto: DAT_COUNT| {
        // SAFETY: the contract of `exports`: calls on one queue take turns.
        unsafe { srq.resize(srq_max_recv_dto) }
    }
);

call!(
    dat_srq_set_lw,
    |srq: Pinned<Srq>, low_watermark: DAT_COUNT| srq.set_low_watermark(low_watermark)
);
