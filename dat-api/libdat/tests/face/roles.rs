//! Handles after the first argument: each is checked by its role.

use core::ptr::null_mut;

use dat::abi::*;
use dat::exports::*;
use dat_api::{Kind, ReturnType, Subtype};

use crate::face::common::{expect, success, wrong};
use crate::face::fixture::{Fixture, attributes, dirty};
use crate::face::launcher::on_a_device;

struct Role {
    what: &'static str,
    kind: Kind,
    /// Null means none.
    optional: bool,
    subtype: Subtype,
    /// The call, with good arguments except this handle; the last argument is the
    /// place for the object's handle.
    call: unsafe fn(&Fixture, DAT_HANDLE, *mut DAT_HANDLE) -> DAT_RETURN,
}

const NO: DAT_HANDLE = DAT_HANDLE_NULL;

/// Calls `dat_lmr_create`, whose handle may be in the description of the memory.
unsafe fn lmr(
    ia: DAT_IA_HANDLE,
    pz: DAT_PZ_HANDLE,
    kind: DAT_MEM_TYPE,
    of: DAT_PVOID,
    place: *mut DAT_LMR_HANDLE,
) -> DAT_RETURN {
    let region = DAT_REGION_DESCRIPTION { for_va: of };
    let no = null_mut();
    // SAFETY: required of the caller; other results are null.
    unsafe {
        dat_lmr_create(
            ia,
            kind,
            region,
            64,
            pz,
            1,
            place,
            null_mut(),
            null_mut(),
            null_mut(),
            no,
        )
    }
}

macro_rules! roles {
    ($($what:literal, $kind:expr, $optional:literal, $subtype:ident:
        |$w:ident, $h:ident, $attr:ident, $place:ident| $call:expr;)*) => {
        vec![$(Role {
            what: $what,
            kind: $kind,
            optional: $optional,
            subtype: Subtype::$subtype,
            call: {
                unsafe fn call($w: &Fixture, $h: DAT_HANDLE, $place: *mut DAT_HANDLE) -> DAT_RETURN {
                    let attributes = attributes();
                    let $attr = &raw const attributes;
                    let _ = ($attr, $place);
                    // SAFETY: valid arguments, except the handle, which the call
                    // validates.
                    unsafe { $call }
                }
                call
            },
        }),*]
    };
}

#[rustfmt::skip]
fn roles() -> Vec<Role> {
    roles! {
        "ep_create PZ", Kind::Pz, true, InvalidHandlePz: |w, h, attr, place| dat_ep_create(w.ia, h, NO, NO, NO, attr, place);
        "ep_create recv", Kind::Evd, true, InvalidHandleEvdRecv: |w, h, attr, place| dat_ep_create(w.ia, w.pz, h, NO, NO, attr, place);
        "ep_create request", Kind::Evd, true, InvalidHandleEvdRequest: |w, h, attr, place| dat_ep_create(w.ia, w.pz, NO, h, NO, attr, place);
        "ep_create connect", Kind::Evd, true, InvalidHandleEvdConn: |w, h, attr, place| dat_ep_create(w.ia, w.pz, NO, NO, h, attr, place);
        "with_srq PZ", Kind::Pz, true, InvalidHandlePz: |w, h, attr, place| dat_ep_create_with_srq(w.ia, h, NO, NO, NO, w.srq, attr, place);
        "with_srq recv", Kind::Evd, true, InvalidHandleEvdRecv: |w, h, attr, place| dat_ep_create_with_srq(w.ia, w.pz, h, NO, NO, w.srq, attr, place);
        "with_srq request", Kind::Evd, true, InvalidHandleEvdRequest: |w, h, attr, place| dat_ep_create_with_srq(w.ia, w.pz, NO, h, NO, w.srq, attr, place);
        "with_srq connect", Kind::Evd, true, InvalidHandleEvdConn: |w, h, attr, place| dat_ep_create_with_srq(w.ia, w.pz, NO, NO, h, w.srq, attr, place);
        "with_srq SRQ", Kind::Srq, false, InvalidHandleSrq: |w, h, attr, place| dat_ep_create_with_srq(w.ia, w.pz, NO, NO, NO, h, attr, place);
        "srq_create PZ", Kind::Pz, false, InvalidHandlePz: |w, h, attr, place| dat_srq_create(w.ia, h, &raw mut *Box::new(srq_attributes()), place);
        "lmr_create PZ", Kind::Pz, false, InvalidHandlePz: |w, h, attr, place| lmr(w.ia, h, DAT_MEM_TYPE_VIRTUAL, w.memory.cast(), place);
        "lmr_create LMR", Kind::Lmr, false, InvalidHandleLmr: |w, h, attr, place| lmr(w.ia, w.pz, DAT_MEM_TYPE_LMR, h, place);
        "psp_create EVD", Kind::Evd, false, InvalidHandleEvdCr: |w, h, attr, place| dat_psp_create(w.ia, 7000, h, 0, place);
        "psp_create_any EVD", Kind::Evd, false, InvalidHandleEvdCr: |w, h, attr, place| dat_psp_create_any(w.ia, &raw mut *Box::new(0), h, 0, place);
        "rsp_create EP", Kind::Ep, true, InvalidHandleEp: |w, h, attr, place| dat_rsp_create(w.ia, 7000, h, w.cr_evd, place);
        "rsp_create EVD", Kind::Evd, false, InvalidHandleEvdCr: |w, h, attr, place| dat_rsp_create(w.ia, 7000, w.ep, h, place);
        "dup_connect model", Kind::Ep, false, InvalidHandleEp: |w, h, attr, place| dat_ep_dup_connect(w.ep, h, 1, 0, null_mut(), 0);
        "evd_create CNO", Kind::Cno, true, InvalidHandleCno: |w, h, attr, place| dat_evd_create(w.ia, 8, h, DAT_EVD_DTO_FLAG, place);
        "evd_modify_cno CNO", Kind::Cno, true, InvalidHandleCno: |w, h, attr, place| dat_evd_modify_cno(w.evd, h);
    }
}

fn srq_attributes() -> DAT_SRQ_ATTR {
    DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 0,
    }
}

#[test]
fn e10_every_role_has_its_own_subtype_for_a_bad_handle() {
    on_a_device(
        "roles::e10_every_role_has_its_own_subtype_for_a_bad_handle",
        || {
            let w = Fixture::new();
            let mut made = DAT_HANDLE_NULL;
            for role in roles() {
                for (which, handle) in wrong(role.kind) {
                    if handle == DAT_HANDLE_NULL && role.optional {
                        continue;
                    }
                    // SAFETY: the call validates its handles.
                    let answer = unsafe { (role.call)(&w, handle, &raw mut made) };
                    let what = format!("{} is {which}", role.what);
                    expect(&what, answer, ReturnType::InvalidHandle, role.subtype);
                }
            }
            assert_eq!(made, DAT_HANDLE_NULL, "untouched");
        },
    );
}

/// The handles are in a structure, so a bad one makes the structure a bad
/// argument.
#[test]
fn bad_handles_in_a_change_are_a_bad_argument() {
    on_a_device("roles::bad_handles_in_a_change_are_a_bad_argument", || {
        let w = Fixture::new();
        let mut param = dirty::<DAT_EP_PARAM>();
        // SAFETY: there is room for the result, which the call then writes.
        let param = unsafe {
            let place = param.as_mut_ptr();
            success("query", dat_ep_query(w.ep, DAT_EP_FIELD_ALL, place));
            param.assume_init()
        };
        let modify = |mask, param: &DAT_EP_PARAM| {
            // SAFETY: a structure whose handles the call validates.
            unsafe { dat_ep_modify(w.ep, mask, &raw const *param) }
        };
        for (which, handle) in wrong(Kind::Evd) {
            if handle == DAT_HANDLE_NULL {
                continue;
            }
            for (mask, changed) in [
                (
                    DAT_EP_FIELD_RECV_EVD_HANDLE,
                    DAT_EP_PARAM {
                        recv_evd_handle: handle,
                        ..param
                    },
                ),
                (
                    DAT_EP_FIELD_REQUEST_EVD_HANDLE,
                    DAT_EP_PARAM {
                        request_evd_handle: handle,
                        ..param
                    },
                ),
                (
                    DAT_EP_FIELD_CONNECT_EVD_HANDLE,
                    DAT_EP_PARAM {
                        connect_evd_handle: handle,
                        ..param
                    },
                ),
            ] {
                let answer = modify(mask, &changed);
                expect(
                    &which,
                    answer,
                    ReturnType::InvalidParameter,
                    Subtype::InvalidArg3,
                );
            }
            // The field is ignored unless the mask names it.
            let unnamed = DAT_EP_PARAM {
                recv_evd_handle: handle,
                ..param
            };
            success("unnamed", modify(DAT_EP_FIELD_REQUEST_EVD_HANDLE, &unnamed));
        }
        for (which, handle) in wrong(Kind::Pz) {
            if handle == DAT_HANDLE_NULL {
                continue;
            }
            let changed = DAT_EP_PARAM {
                pz_handle: handle,
                ..param
            };
            let answer = modify(DAT_EP_FIELD_PZ_HANDLE, &changed);
            expect(
                &which,
                answer,
                ReturnType::InvalidParameter,
                Subtype::InvalidArg3,
            );
        }
    });
}
