//! Every call that takes a handle, with null for all its other arguments.

use core::ptr::{null, null_mut};

use dat::abi::*;
use dat::exports::*;
use dat_api::{Kind, Subtype};

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

/// A call that takes a handle.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// The kind of the first handle; `None` if the call takes any kind.
    pub(crate) kind: Option<Kind>,
    /// The subtype for a bad handle.
    pub(crate) subtype: Subtype,
    /// The call, with null for all other arguments.
    pub(crate) call: unsafe fn(DAT_HANDLE) -> DAT_RETURN,
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

/// Returns the calls.
#[rustfmt::skip]
pub(crate) fn calls() -> Vec<Call> {
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
        "dat_evd_dequeue_timestamped", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_dequeue_timestamped(h, n(), n());
        "dat_evd_wait_timestamped", Some(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_wait_timestamped(h, 0, 1, n(), n(), n());
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
