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
    /// The kind of the first handle, or what the call takes instead of one kind.
    pub(crate) kind: Result<Kind, &'static str>,
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
        "dat_ia_query", Ok(Kind::Ia), InvalidHandleIa: |h| dat_ia_query(h, n(), 0, n(), 0, n());
        "dat_ia_close", Ok(Kind::Ia), InvalidHandleIa: |h| dat_ia_close(h, 1);
        "dat_set_consumer_context", Err("an object"), InvalidHandle1: |h| dat_set_consumer_context(h, NO_CONTEXT);
        "dat_get_consumer_context", Err("an object"), InvalidHandle1: |h| dat_get_consumer_context(h, n());
        "dat_get_handle_type", Err("an object"), InvalidHandle1: |h| dat_get_handle_type(h, n());
        "dat_counters_query", Err("an IA, EVD, CNO, EP or SRQ"), InvalidHandle1: |h| dat_counters_query(h, n());
        "dat_cno_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_cno_create(h, NO_AGENT, n());
        "dat_cno_modify_agent", Ok(Kind::Cno), InvalidHandleCno: |h| dat_cno_modify_agent(h, NO_AGENT);
        "dat_cno_query", Ok(Kind::Cno), InvalidHandleCno: |h| dat_cno_query(h, 0, n());
        "dat_cno_free", Ok(Kind::Cno), InvalidHandleCno: |h| dat_cno_free(h);
        "dat_cno_fd_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_cno_fd_create(h, n(), n());
        "dat_cno_trigger", Ok(Kind::Cno), InvalidHandleCno: |h| dat_cno_trigger(h, n());
        "dat_cno_fd_arm", Ok(Kind::Cno), InvalidHandleCno: |h| dat_cno_fd_arm(h);
        "dat_cno_wait", Ok(Kind::Cno), InvalidHandleCno: |h| dat_cno_wait(h, 0, n());
        "dat_cr_query", Ok(Kind::Cr), InvalidHandleCr: |h| dat_cr_query(h, 0, n());
        "dat_cr_accept", Ok(Kind::Cr), InvalidHandleCr: |h| dat_cr_accept(h, n(), 0, n());
        "dat_cr_reject", Ok(Kind::Cr), InvalidHandleCr: |h| dat_cr_reject(h);
        "dat_cr_handoff", Ok(Kind::Cr), InvalidHandleCr: |h| dat_cr_handoff(h, 1);
        "dat_evd_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_evd_create(h, 1, n(), 0, n());
        "dat_evd_query", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_query(h, 0, n());
        "dat_evd_modify_cno", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_modify_cno(h, n());
        "dat_evd_enable", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_enable(h);
        "dat_evd_disable", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_disable(h);
        "dat_evd_wait", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_wait(h, 0, 1, n(), n());
        "dat_evd_resize", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_resize(h, 1);
        "dat_evd_post_se", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_post_se(h, n());
        "dat_evd_dequeue", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_dequeue(h, n());
        "dat_evd_dequeue_timestamped", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_dequeue_timestamped(h, n(), n());
        "dat_evd_wait_timestamped", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_wait_timestamped(h, 0, 1, n(), n(), n());
        "dat_evd_free", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_free(h);
        "dat_evd_set_unwaitable", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_set_unwaitable(h);
        "dat_evd_clear_unwaitable", Ok(Kind::Evd), InvalidHandleEvdRequest: |h| dat_evd_clear_unwaitable(h);
        "dat_ep_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_ep_create(h, n(), n(), n(), n(), n(), n());
        "dat_ep_create_with_srq", Ok(Kind::Ia), InvalidHandleIa: |h| dat_ep_create_with_srq(h, n(), n(), n(), n(), n(), n(), n());
        "dat_ep_query", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_query(h, 0, n());
        "dat_ep_modify", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_modify(h, 0, n());
        "dat_ep_connect", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_connect(h, n(), 0, 0, 0, n(), 0, 0);
        "dat_ep_dup_connect", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_dup_connect(h, n(), 0, 0, n(), 0);
        "dat_ep_disconnect", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_disconnect(h, 0);
        "dat_ep_post_send", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_send(h, 0, n(), NO_CONTEXT, 0);
        "dat_ep_post_recv", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_recv(h, 0, n(), NO_CONTEXT, 0);
        "dat_ep_post_rdma_read", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_rdma_read(h, 0, n(), NO_CONTEXT, n(), 0);
        "dat_ep_post_rdma_write", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_post_rdma_write(h, 0, n(), NO_CONTEXT, n(), 0);
        "dat_ep_get_status", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_get_status(h, n(), n(), n());
        "dat_ep_recv_query", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_recv_query(h, n(), n());
        "dat_ep_set_watermark", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_set_watermark(h, 0, 0);
        "dat_ep_reset", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_reset(h);
        "dat_ep_free", Ok(Kind::Ep), InvalidHandleEp: |h| dat_ep_free(h);
        "dat_lmr_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_lmr_create(h, 0, NO_REGION, 0, n(), 0, n(), n(), n(), n(), n());
        "dat_lmr_query", Ok(Kind::Lmr), InvalidHandleLmr: |h| dat_lmr_query(h, 0, n());
        "dat_lmr_free", Ok(Kind::Lmr), InvalidHandleLmr: |h| dat_lmr_free(h);
        "dat_lmr_sync_rdma_read", Ok(Kind::Ia), InvalidHandleIa: |h| dat_lmr_sync_rdma_read(h, n(), 0);
        "dat_lmr_sync_rdma_write", Ok(Kind::Ia), InvalidHandleIa: |h| dat_lmr_sync_rdma_write(h, n(), 0);
        "dat_rmr_create", Ok(Kind::Pz), InvalidHandlePz: |h| dat_rmr_create(h, n());
        "dat_rmr_query", Ok(Kind::Rmr), InvalidHandleRmr: |h| dat_rmr_query(h, 0, n());
        "dat_rmr_bind", Ok(Kind::Rmr), InvalidHandleRmr: |h| dat_rmr_bind(h, n(), 0, n(), NO_CONTEXT, 0, n());
        "dat_rmr_free", Ok(Kind::Rmr), InvalidHandleRmr: |h| dat_rmr_free(h);
        "dat_psp_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_psp_create(h, 1, n(), 0, n());
        "dat_psp_create_any", Ok(Kind::Ia), InvalidHandleIa: |h| dat_psp_create_any(h, n(), n(), 0, n());
        "dat_psp_query", Ok(Kind::Psp), InvalidHandlePsp: |h| dat_psp_query(h, 0, n());
        "dat_psp_free", Ok(Kind::Psp), InvalidHandlePsp: |h| dat_psp_free(h);
        "dat_rsp_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_rsp_create(h, 1, n(), n(), n());
        "dat_rsp_query", Ok(Kind::Rsp), InvalidHandleRsp: |h| dat_rsp_query(h, 0, n());
        "dat_rsp_free", Ok(Kind::Rsp), InvalidHandleRsp: |h| dat_rsp_free(h);
        "dat_pz_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_pz_create(h, n());
        "dat_pz_query", Ok(Kind::Pz), InvalidHandlePz: |h| dat_pz_query(h, 0, n());
        "dat_pz_free", Ok(Kind::Pz), InvalidHandlePz: |h| dat_pz_free(h);
        "dat_srq_create", Ok(Kind::Ia), InvalidHandleIa: |h| dat_srq_create(h, n(), n(), n());
        "dat_srq_free", Ok(Kind::Srq), InvalidHandleSrq: |h| dat_srq_free(h);
        "dat_srq_post_recv", Ok(Kind::Srq), InvalidHandleSrq: |h| dat_srq_post_recv(h, 0, n(), NO_CONTEXT);
        "dat_srq_query", Ok(Kind::Srq), InvalidHandleSrq: |h| dat_srq_query(h, 0, n());
        "dat_srq_resize", Ok(Kind::Srq), InvalidHandleSrq: |h| dat_srq_resize(h, 1);
        "dat_srq_set_lw", Ok(Kind::Srq), InvalidHandleSrq: |h| dat_srq_set_lw(h, 0);
    }
}
