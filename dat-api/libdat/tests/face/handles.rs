//! Every call that takes a handle, with every value that is not such a handle
//! (W17, L06, Q07, R13, E10). No device is needed, because a call validates the
//! handle first.

use core::ptr::{null, null_mut};
use std::collections::BTreeSet;

use dat::abi::*;
use dat::exports::*;
use dat_api::{Kind, ReturnType, Subtype};

use crate::common::{expect, garbage, live, stale, success, wrong};

const EXPORTS: &str = include_str!("../../exports.txt");
const NO_CONTEXT: DAT_CONTEXT = DAT_CONTEXT { as_64: 0 };
const NO_REGION: DAT_REGION_DESCRIPTION = DAT_REGION_DESCRIPTION { for_va: null_mut() };
const NO_AGENT: DAT_OS_WAIT_PROXY_AGENT = DAT_OS_WAIT_PROXY_AGENT {
    instance_data: null_mut(),
    proxy_agent_func: None,
};

/// A null pointer of the type that a call expects.
trait Null {
    const NULL: Self;
}

impl<T> Null for *mut T {
    const NULL: Self = null_mut();
}

impl<T> Null for *const T {
    const NULL: Self = null();
}

fn n<T: Null>() -> T {
    T::NULL
}

struct Call {
    name: &'static str,
    /// The kind of the first handle; `None` if the call takes any kind.
    kind: Option<Kind>,
    /// The subtype for a bad handle.
    subtype: Subtype,
    /// The call, with null for all other arguments.
    call: unsafe fn(DAT_HANDLE) -> DAT_RETURN,
}

macro_rules! calls {
    ($($name:literal, $kind:expr, $subtype:ident: |$h:ident| $call:expr;)*) => {
        vec![$(Call {
            name: $name,
            kind: $kind,
            subtype: Subtype::$subtype,
            call: {
                unsafe fn call($h: DAT_HANDLE) -> DAT_RETURN {
                    // SAFETY: all pointers are null, which every call checks.
                    unsafe { $call }
                }
                call
            },
        }),*]
    };
}

#[rustfmt::skip]
fn calls() -> Vec<Call> {
    calls! {
        "dat_ia_query", Some(Kind::Ia), InvalidHandleIa: |h| dat_ia_query(h, n(), 0, n(), 0, n());
        "dat_ia_close", Some(Kind::Ia), InvalidHandleIa: |h| dat_ia_close(h, 1);
        "dat_set_consumer_context", None, InvalidHandle1: |h| dat_set_consumer_context(h, NO_CONTEXT);
        "dat_get_consumer_context", None, InvalidHandle1: |h| dat_get_consumer_context(h, n());
        "dat_get_handle_type", None, InvalidHandle1: |h| dat_get_handle_type(h, n());
        "dat_counters_query", None, InvalidHandle1: |h| dat_counters_query(h, n());
        "dat_cno_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_cno_create(h, NO_AGENT, n());
        "dat_cno_modify_agent", Some(Kind::Cno), InvalidHandleCno: |h| dat_cno_modify_agent(h, NO_AGENT);
        "dat_cno_query", Some(Kind::Cno), InvalidHandleCno: |h| dat_cno_query(h, 0, n());
        "dat_cno_free", Some(Kind::Cno), InvalidHandleCno: |h| dat_cno_free(h);
        "dat_cno_wait", Some(Kind::Cno), InvalidHandleCno: |h| dat_cno_wait(h, 0, n());
        "dat_cr_query", Some(Kind::Cr), InvalidHandleCr: |h| dat_cr_query(h, 0, n());
        "dat_cr_accept", Some(Kind::Cr), InvalidHandleCr: |h| dat_cr_accept(h, n(), 0, n());
        "dat_cr_reject", Some(Kind::Cr), InvalidHandleCr: |h| dat_cr_reject(h);
        "dat_cr_handoff", Some(Kind::Cr), InvalidHandleCr: |h| dat_cr_handoff(h, 1);
        "dat_evd_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_evd_create(h, 1, n(), 0, n());
        "dat_evd_query", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_query(h, 0, n());
        "dat_evd_modify_cno", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_modify_cno(h, n());
        "dat_evd_enable", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_enable(h);
        "dat_evd_disable", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_disable(h);
        "dat_evd_wait", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_wait(h, 0, 1, n(), n());
        "dat_evd_resize", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_resize(h, 1);
        "dat_evd_post_se", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_post_se(h, n());
        "dat_evd_dequeue", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_dequeue(h, n());
        "dat_evd_free", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_free(h);
        "dat_evd_set_unwaitable", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_set_unwaitable(h);
        "dat_evd_clear_unwaitable", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_clear_unwaitable(h);
        "dat_ep_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_ep_create(h, n(), n(), n(), n(), n(), n());
        "dat_ep_create_with_srq", Some(Kind::Ia), InvalidHandleIa: |h| dat_ep_create_with_srq(h, n(), n(), n(), n(), n(), n(), n());
        "dat_ep_query", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_query(h, 0, n());
        "dat_ep_modify", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_modify(h, 0, n());
        "dat_ep_connect", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_connect(h, n(), 0, 0, 0, n(), 0, 0);
        "dat_ep_dup_connect", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_dup_connect(h, n(), 0, 0, n(), 0);
        "dat_ep_disconnect", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_disconnect(h, 0);
        "dat_ep_post_send", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_send(h, 0, n(), NO_CONTEXT, 0);
        "dat_ep_post_recv", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_recv(h, 0, n(), NO_CONTEXT, 0);
        "dat_ep_post_rdma_read", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_rdma_read(h, 0, n(), NO_CONTEXT, n(), 0);
        "dat_ep_post_rdma_write", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_rdma_write(h, 0, n(), NO_CONTEXT, n(), 0);
        "dat_ep_get_status", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_get_status(h, n(), n(), n());
        "dat_ep_recv_query", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_recv_query(h, n(), n());
        "dat_ep_set_watermark", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_set_watermark(h, 0, 0);
        "dat_ep_reset", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_reset(h);
        "dat_ep_free", Some(Kind::Ep), InvalidHandleEp: |h| dat_ep_free(h);
        "dat_lmr_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_lmr_create(h, 0, NO_REGION, 0, n(), 0, n(), n(), n(), n(), n());
        "dat_lmr_query", Some(Kind::Lmr), InvalidHandleLmr: |h| dat_lmr_query(h, 0, n());
        "dat_lmr_free", Some(Kind::Lmr), InvalidHandleLmr: |h| dat_lmr_free(h);
        "dat_lmr_sync_rdma_read", Some(Kind::Ia), InvalidHandleIa: |h| dat_lmr_sync_rdma_read(h, n(), 0);
        "dat_lmr_sync_rdma_write", Some(Kind::Ia), InvalidHandleIa: |h| dat_lmr_sync_rdma_write(h, n(), 0);
        "dat_rmr_create", Some(Kind::Pz), InvalidHandlePz: |h| dat_rmr_create(h, n());
        "dat_rmr_query", Some(Kind::Rmr), InvalidHandleRmr: |h| dat_rmr_query(h, 0, n());
        "dat_rmr_bind", Some(Kind::Rmr), InvalidHandleRmr: |h| dat_rmr_bind(h, n(), 0, n(), NO_CONTEXT, 0, n());
        "dat_rmr_free", Some(Kind::Rmr), InvalidHandleRmr: |h| dat_rmr_free(h);
        "dat_psp_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_psp_create(h, 1, n(), 0, n());
        "dat_psp_create_any", Some(Kind::Ia), InvalidHandleIa: |h| dat_psp_create_any(h, n(), n(), 0, n());
        "dat_psp_query", Some(Kind::Psp), InvalidHandlePsp: |h| dat_psp_query(h, 0, n());
        "dat_psp_free", Some(Kind::Psp), InvalidHandlePsp: |h| dat_psp_free(h);
        "dat_rsp_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_rsp_create(h, 1, n(), n(), n());
        "dat_rsp_query", Some(Kind::Rsp), InvalidHandleRsp: |h| dat_rsp_query(h, 0, n());
        "dat_rsp_free", Some(Kind::Rsp), InvalidHandleRsp: |h| dat_rsp_free(h);
        "dat_pz_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_pz_create(h, n());
        "dat_pz_query", Some(Kind::Pz), InvalidHandlePz: |h| dat_pz_query(h, 0, n());
        "dat_pz_free", Some(Kind::Pz), InvalidHandlePz: |h| dat_pz_free(h);
        "dat_srq_create", Some(Kind::Ia), InvalidHandleIa: |h| dat_srq_create(h, n(), n(), n());
        "dat_srq_free", Some(Kind::Srq), InvalidHandleSrq: |h| dat_srq_free(h);
        "dat_srq_post_recv", Some(Kind::Srq), InvalidHandleSrq: |h| dat_srq_post_recv(h, 0, n(), NO_CONTEXT);
        "dat_srq_query", Some(Kind::Srq), InvalidHandleSrq: |h| dat_srq_query(h, 0, n());
        "dat_srq_resize", Some(Kind::Srq), InvalidHandleSrq: |h| dat_srq_resize(h, 1);
        "dat_srq_set_lw", Some(Kind::Srq), InvalidHandleSrq: |h| dat_srq_set_lw(h, 0);
    }
}

#[test]
fn the_table_has_every_call_that_takes_a_handle() {
    let without = [
        "dat_ia_openv",
        "dat_strerror",
        "dat_registry_list_providers",
        "dat_registry_add_provider",
        "dat_registry_remove_provider",
        "dat_provider_init",
        "dat_provider_fini",
    ];
    let exported: BTreeSet<_> = EXPORTS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter(|name| !without.contains(name))
        .collect();
    let here: BTreeSet<_> = calls().into_iter().map(|call| call.name).collect();
    assert_eq!(here, exported);
}

#[test]
fn w17_l06_q07_r13_e10_a_bad_handle_is_invalid_whatever_it_is() {
    for Call {
        name,
        kind,
        subtype,
        call,
    } in calls()
    {
        let handles = match kind {
            Some(kind) => wrong(kind),
            None => {
                let mut handles = garbage(Kind::Ep);
                handles.push(("null".into(), DAT_HANDLE_NULL));
                handles
            }
        };
        for (what, handle) in handles {
            // SAFETY: the call validates its handle.
            let answer = unsafe { call(handle) };
            expect(
                &format!("{name} of {what}"),
                answer,
                ReturnType::InvalidHandle,
                subtype,
            );
        }
    }
}

#[test]
fn every_kind_of_object_has_a_context_and_a_type() {
    for kind in Kind::ALL {
        let handle = live(kind);
        let mut context = DAT_CONTEXT { as_64: 1 };
        let mut number = DAT_HANDLE_TYPE::MAX;
        // SAFETY: the results have room.
        unsafe {
            success("get", dat_get_consumer_context(handle, &raw mut context));
            assert_eq!(context.as_64, 0, "zero at first");
            for value in [u64::MAX, 7, 0] {
                let given = DAT_CONTEXT { as_64: value };
                success("set", dat_set_consumer_context(handle, given));
                success("get", dat_get_consumer_context(handle, &raw mut context));
                assert_eq!(context.as_64, value);
            }
            success("type", dat_get_handle_type(handle, &raw mut number));
            assert_eq!(number, kind as DAT_HANDLE_TYPE);
            for answer in [
                dat_get_consumer_context(handle, null_mut()),
                dat_get_handle_type(handle, null_mut()),
            ] {
                expect(
                    "null",
                    answer,
                    ReturnType::InvalidParameter,
                    Subtype::InvalidArg2,
                );
            }
        }
    }
}

#[test]
fn a_context_is_gone_with_its_object() {
    let handle = stale(Kind::Srq);
    let mut context = DAT_CONTEXT { as_64: 5 };
    // SAFETY: the result has room.
    let answer = unsafe { dat_get_consumer_context(handle, &raw mut context) };
    expect(
        "stale",
        answer,
        ReturnType::InvalidHandle,
        Subtype::InvalidHandle1,
    );
    // SAFETY: any 64 bits are a number.
    assert_eq!(unsafe { context.as_64 }, 5, "untouched");
}

#[test]
fn opening_checks_its_pointers_before_it_looks_for_an_adapter() {
    let mut evd = DAT_HANDLE_NULL;
    let mut ia = DAT_HANDLE_NULL;
    let open = |name: *mut core::ffi::c_char, length, evd, ia| {
        // SAFETY: null, or a valid pointer.
        unsafe { dat_ia_openv(name, length, evd, ia, 1, 2, DAT_FALSE) }
    };
    let name = |text: &core::ffi::CStr| text.as_ptr().cast_mut();
    let long = std::ffi::CString::new("x".repeat(256)).expect("no NUL");
    let fits = std::ffi::CString::new("x".repeat(255)).expect("no NUL");
    let (evd, ia) = (&raw mut evd, &raw mut ia);
    let parameter = ReturnType::InvalidParameter;
    for (what, answer, kind, subtype) in [
        (
            "no name",
            open(null_mut(), 1, evd, ia),
            parameter,
            Subtype::InvalidArg1,
        ),
        (
            "long name",
            open(name(&long), 1, evd, ia),
            parameter,
            Subtype::InvalidArg1,
        ),
        (
            "no IA",
            open(name(c"x"), 1, evd, null_mut()),
            ReturnType::InvalidHandle,
            Subtype::InvalidHandleIa,
        ),
        (
            "no EVD",
            open(name(c"x"), 1, null_mut(), ia),
            parameter,
            Subtype::InvalidArg3,
        ),
        (
            "length 0",
            open(name(c"x"), 0, evd, ia),
            parameter,
            Subtype::InvalidArg2,
        ),
        (
            "length -1",
            open(name(c"x"), -1, evd, ia),
            parameter,
            Subtype::InvalidArg2,
        ),
        (
            "not UTF-8",
            open(name(c"\xff"), 1, evd, ia),
            ReturnType::ProviderNotFound,
            Subtype::NameNotRegistered,
        ),
    ] {
        expect(what, answer, kind, subtype);
    }
    let answer = open(name(&fits), 1, evd, ia);
    let kind = dat_api::DatReturn::from_bits(answer).kind();
    assert_eq!(
        kind,
        Some(ReturnType::ProviderNotFound),
        "255 bytes are a name"
    );
    for (what, mut bad) in wrong(Kind::Evd) {
        // Null requests a new EVD; DAT_EVD_ASYNC_EXISTS says that there is one.
        if bad == DAT_HANDLE_NULL || bad == DAT_EVD_ASYNC_EXISTS {
            continue;
        }
        expect(
            &what,
            open(name(c"x"), 1, &raw mut bad, ia),
            ReturnType::InvalidHandle,
            Subtype::InvalidHandleEvdAsync,
        );
    }
}
