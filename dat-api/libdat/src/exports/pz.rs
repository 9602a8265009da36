//! Protection zones.

use dat_api::Subtype;
use dat_api::handle::Pinned;
use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;

use crate::abi::*;
use crate::face::call::{Named, call};
use crate::face::handles::bare;
use crate::face::output::Out;

call!(
    dat_pz_create,
    |ia: Pinned<Ia>, pz_handle: Out<DAT_PZ_HANDLE>| {
        let place = pz_handle.required(Subtype::InvalidArg2)?;
        place.set_new(Pz::create(&ia.to_arc())?.handle(), Pz::free)
    }
);

call!(
    dat_pz_query,
    |pz: Pinned<Pz>, mask: DAT_PZ_PARAM_MASK, param: Out<DAT_PZ_PARAM>| {
        param.answer(mask, DAT_PZ_FIELD_ALL, || DAT_PZ_PARAM {
            ia_handle: bare(pz.ia().handle()),
        })
    }
);

call!(dat_pz_free, ending, |pz: Named<Pz>| Pz::free(pz.0));
