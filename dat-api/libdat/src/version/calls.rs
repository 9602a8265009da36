//! The exported functions whose parameters differ between versions, and those that
//! only this version has. The contract is that of `exports`.

use dat_api::Subtype;
use dat_api::handle::Pinned;
use dat_api::object::cno::Cno;
use dat_api::object::cr::Cr;
use dat_api::object::ia::Ia;
use dat_api::object::rmr::Rmr;

pub use super::counters::*;
use crate::abi::*;
use crate::exports::{cno, lmr, rmr};
use crate::face::call::{Named, call, own_call};
use crate::face::output::Out;

call!(dat_cr_reject, ending, |cr: Named<Cr>| Cr::reject(cr.0, &[]));

own_call!(
    dat_cno_fd_create,
    control,
    |ia: Pinned<Ia>, fd: Out<DAT_FD>, cno: Out<DAT_CNO_HANDLE>| cno::create_with_fd(&ia, fd, cno)
);

own_call!(
    dat_cno_trigger,
    forwarding,
    |cno: Pinned<Cno>, evd: Out<DAT_EVD_HANDLE>| cno::trigger(&cno, evd)
);

// Every result pointer may be null.
call!(
    dat_lmr_create,
    |ia: Pinned<Ia>,
     mem_type: DAT_MEM_TYPE,
     region_description: DAT_REGION_DESCRIPTION,
     length: DAT_VLEN,
     pz_handle: DAT_PZ_HANDLE,
     privileges: DAT_MEM_PRIV_FLAGS,
     lmr_handle: Out<DAT_LMR_HANDLE>,
     lmr_context: Out<DAT_LMR_CONTEXT>,
     rmr_context: Out<DAT_RMR_CONTEXT>,
     registered_length: Out<DAT_VLEN>,
     registered_address: Out<DAT_VADDR>| {
        let created = lmr::Created {
            lmr_handle,
            lmr_context,
            rmr_context,
            registered_length,
            registered_address,
        };
        // SAFETY: the contract of `exports`.
        unsafe {
            lmr::create(
                &ia,
                mem_type,
                region_description,
                length,
                pz_handle,
                privileges,
                &created,
            )
        }
    }
);

call!(
    dat_rmr_bind,
    posting,
    |rmr: Pinned<Rmr>,
     lmr_triplet: *const DAT_LMR_TRIPLET,
     mem_priv: DAT_MEM_PRIV_FLAGS,
     ep_handle: DAT_EP_HANDLE,
     user_cookie: DAT_RMR_COOKIE,
     completion_flags: DAT_COMPLETION_FLAGS,
     context: Out<DAT_RMR_CONTEXT>| {
        let bind = rmr::Bind {
            lmr_triplet,
            triplet_at: Subtype::InvalidArg2,
            mem_priv,
            privileges_at: Subtype::InvalidArg3,
            ep_handle,
            user_cookie,
            completion_flags,
            context,
            context_at: Subtype::InvalidArg7,
        };
        // SAFETY: the contract of `exports`.
        unsafe { rmr::bind(&rmr, &bind) }
    }
);
