//! Bad arguments of calls whose handle is good.

use core::mem::zeroed;
use core::ptr::{null, null_mut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat::abi::*;
use dat::exports::*;
use dat_api::{Kind, ReturnType, Subtype};

use crate::face::common::{live, stale};
use crate::face::fixture::{Fixture, attributes, dirty};
use crate::refusals::printing::{printed, printing, refused};

const BAD: ReturnType = ReturnType::InvalidParameter;
const NO: DAT_HANDLE = DAT_HANDLE_NULL;

/// Returns a null pointer.
fn no<T>() -> *mut T {
    null_mut()
}

/// Calls with a wrong argument, or in a wrong state: the first handle with its
/// label, the subtype of the code, and what the line must contain. All rows run,
/// also after one that fails.
macro_rules! rows {
    ($kind:expr; $($call:ident($label:literal $handle:expr $(, $argument:expr)*)
        => $subtype:ident, $expected:expr;)*) => {
        let rows = [$(
            catch_unwind(AssertUnwindSafe(|| refused(
                (stringify!($call), $label, $handle),
                ($kind, Subtype::$subtype),
                &$expected,
                // SAFETY: each pointer is valid or null.
                || unsafe { $call($handle $(, $argument)*) },
            ))),
        )*];
        let failed = rows.iter().filter(|row| row.is_err()).count();
        assert_eq!(failed, 0, "rows");
    };
}

#[test]
fn a_bad_argument_is_named_with_its_value_and_what_was_expected() {
    let name = "arguments::a_bad_argument_is_named_with_its_value_and_what_was_expected";
    printing(name, || {
        let w = Fixture::new();
        let (ia, pz, evd, ep, srq) = (w.ia, w.pz, w.evd, w.ep, w.srq);
        let attr = attributes();
        let at = &raw const attr;
        let mut specific = attr;
        specific.ep_transport_specific_count = 2;
        let mut long = attr;
        long.max_recv_dtos = i32::MAX;
        let srq_attr = |receives, mark| DAT_SRQ_ATTR {
            max_recv_dtos: receives,
            max_recv_iov: 1,
            low_watermark: mark,
        };
        let (mut empty, mut marked) = (srq_attr(0, 0), srq_attr(4, 3));
        let mut made = NO;
        let place = &raw mut made;
        let (mut fd, cno) = (-1, live(Kind::Cno));
        let fd = &raw mut fd;
        let mut qualifier = 0;
        let qualifier = &raw mut qualifier;
        let mut event = dirty::<DAT_EVENT>();
        let event = event.as_mut_ptr();
        let mut more = 0;
        let more = &raw mut more;
        let mut stamp = 0;
        let stamp = &raw mut stamp;
        let mut param = dirty::<DAT_EP_PARAM>();
        let param = param.as_mut_ptr();
        let bytes: DAT_PVOID = w.memory.cast();
        let region = DAT_REGION_DESCRIPTION { for_va: bytes };
        let agent = DAT_OS_WAIT_PROXY_AGENT {
            instance_data: core::ptr::without_provenance_mut(0x77),
            proxy_agent_func: None,
        };
        let outside = DAT_LMR_TRIPLET {
            segment_length: 5000,
            ..w.segment(0)
        };
        let outside = &raw const outside;
        // SAFETY: numbers, for which 0 is a value.
        let mut to: libc::sockaddr_in = unsafe { zeroed() };
        to.sin_family = libc::AF_INET as libc::sa_family_t;
        to.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
        let to: DAT_IA_ADDRESS_PTR = (&raw mut to).cast();
        let beyond = [
            "has bits that name no field",
            "0x80000000",
            "expected bits of",
        ];
        let null_place = ["null", "expected"];
        rows! {
            BAD;
            dat_ia_query("ia" ia, no(), 1 << 40, no(), 0, no()) => InvalidArg3, ["0x10000000000", "expected bits of"];
            dat_ia_query("ia" ia, no(), 0, no(), 1 << 31, no()) => InvalidArg5, beyond;
            dat_ia_query("ia" ia, no(), 1, no(), 0, no()) => InvalidArg4, null_place;
            dat_ia_close("ia" ia, 9) => InvalidArg2, ["flags 0x9", "expected DAT_CLOSE_ABRUPT_FLAG"];
            dat_get_consumer_context("handle" ep, no()) => InvalidArg2, null_place;
            dat_get_handle_type("handle" ep, no()) => InvalidArg2, null_place;
            dat_counters_query("handle" ep, no()) => InvalidArg2, null_place;
            dat_cno_create("ia" ia, agent, place) => InvalidArg2, ["0x77", "no function"];
            dat_cno_fd_create("ia" ia, no(), place) => InvalidArg2, null_place;
            dat_cno_fd_create("ia" ia, fd, no()) => InvalidArg3, null_place;
            dat_cno_trigger("cno" cno, no()) => InvalidArg2, null_place;
            dat_cno_create("ia" ia, agent, no()) => InvalidArg3, null_place;
            dat_evd_create("ia" ia, -5, NO, 0x20, place) => InvalidArg2, ["-5", "expected 1 or more"];
            dat_evd_create("ia" ia, 8, NO, 0x1000, place) => InvalidArg4, ["0x1000", "expected"];
            dat_evd_create("ia" ia, 8, NO, 0x20, no()) => InvalidArg5, null_place;
            dat_evd_query("evd" evd, 1 << 31, no()) => InvalidArg2, beyond;
            dat_evd_query("evd" evd, 1, no()) => InvalidArg3, null_place;
            dat_evd_resize("evd" evd, 0) => InvalidArg2, ["length 0", "expected 1 to"];
            dat_evd_post_se("evd" evd, null()) => InvalidArg2, null_place;
            dat_evd_post_se("evd" w.cr_evd, &SOFTWARE) => InvalidArg1, ["0x10", "DAT_EVD_SOFTWARE_FLAG"];
            dat_evd_dequeue("evd" evd, no()) => InvalidArg2, null_place;
            dat_evd_wait("evd" evd, 0, 1, no(), more) => InvalidArg4, null_place;
            dat_evd_wait("evd" evd, 0, 1, event, no()) => InvalidArg5, null_place;
            dat_evd_wait("evd" evd, 0, -4, event, more) => InvalidArg3, ["threshold -4", "expected 1 to"];
            dat_evd_dequeue_timestamped("evd" evd, no(), stamp) => InvalidArg2, null_place;
            dat_evd_dequeue_timestamped("evd" evd, event, no()) => InvalidArg3, null_place;
            dat_evd_wait_timestamped("evd" evd, 0, 1, no(), more, stamp) => InvalidArg4, null_place;
            dat_evd_wait_timestamped("evd" evd, 0, 1, event, no(), stamp) => InvalidArg5, null_place;
            dat_evd_wait_timestamped("evd" evd, 0, 1, event, more, no()) => InvalidArg6, null_place;
            dat_evd_wait_timestamped("evd" evd, 0, -4, event, more, stamp) => InvalidArg3, ["threshold -4", "expected 1 to"];
            dat_ep_create("ia" ia, pz, NO, NO, NO, at, no()) => InvalidArg7, null_place;
            dat_ep_create("ia" ia, pz, NO, NO, NO, at.wrapping_byte_add(1), place) => InvalidArg6, ["not aligned", "expected"];
            dat_ep_create("ia" ia, pz, evd, NO, NO, &raw const specific, place) => InvalidArg6, ["2 transport-specific", "expected 0"];
            dat_ep_create("ia" ia, pz, evd, NO, NO, &raw const long, place) => InvalidArg6, ["2147483647", "max_recv_dtos"];
            dat_ep_create_with_srq("ia" ia, pz, NO, NO, NO, srq, at, no()) => InvalidArg8, null_place;
            dat_ep_create_with_srq("ia" ia, pz, NO, NO, NO, srq, null(), place) => InvalidArg7, null_place;
            dat_ep_query("ep" ep, 1 << 31, no()) => InvalidArg2, ["0x80000000", "expected bits of"];
            dat_ep_query("ep" ep, 1, no()) => InvalidArg3, null_place;
            dat_ep_modify("ep" ep, 1 << 31, param) => InvalidArg2, ["0x80000000", "expected bits of"];
            dat_ep_modify("ep" ep, 1, param) => InvalidArg2, ["0x1", "cannot be changed"];
            dat_ep_modify("ep" ep, DAT_EP_FIELD_PZ_HANDLE, null()) => InvalidArg3, null_place;
            dat_ep_connect("ep" ep, no(), 1, 1, 0, no(), 0, 0) => InvalidArg2, null_place;
            dat_ep_connect("ep" ep, to, 1, 0, 0, no(), 0, 0) => InvalidArg4, ["timeout is 0", "expected 1 microsecond"];
            dat_ep_connect("ep" ep, to, 1, 1, -8, bytes, 0, 0) => InvalidArg5, ["-8 bytes", "expected 0 or more"];
            dat_ep_connect("ep" ep, to, 1, 1, 100_000, bytes, 0, 0) => InvalidArg5, ["100000 bytes", "expected at most"];
            dat_ep_connect("ep" ep, to, 1, 1, 8, no(), 0, 0) => InvalidArg6, ["null", "8 bytes", "expected"];
            dat_ep_dup_connect("ep" ep, ep, 0, 0, no(), 0) => InvalidArg3, ["timeout is 0", "expected"];
            dat_ep_dup_connect("ep" ep, ep, 1, -1, no(), 0) => InvalidArg4, ["-1 bytes", "expected"];
            dat_ep_disconnect("ep" ep, 3) => InvalidArg2, ["flags 0x3", "expected"];
            dat_ep_set_watermark("ep" w.srq_ep, -2, 1) => InvalidArg2, ["watermark -2", "expected 0 or more"];
            dat_ep_set_watermark("ep" w.srq_ep, 1, -3) => InvalidArg3, ["watermark -3", "expected 0 or more"];
            dat_lmr_create("ia" ia, 3, region, 64, pz, 1, no(), no(), no(), no(), no()) => InvalidArg2, ["memory type 3", "expected"];
            dat_lmr_create("ia" ia, 0, region, 64, pz, 0x4, no(), no(), no(), no(), no()) => InvalidArg6, ["0x4", "expected bits of 0x33"];
            dat_lmr_query("lmr" w.lmr, 1 << 31, no()) => InvalidArg2, beyond;
            dat_lmr_query("lmr" w.lmr, 1, no()) => InvalidArg3, null_place;
            dat_lmr_sync_rdma_read("ia" ia, null(), 2) => InvalidArg2, ["null", "there are 2"];
            dat_lmr_sync_rdma_read("ia" ia, outside, 1) => InvalidArg2, ["segment 0, 5000 bytes", "expected"];
            dat_lmr_sync_rdma_write("ia" ia, outside, 1) => InvalidArg2, ["segment 0, 5000 bytes", "expected"];
            dat_rmr_create("pz" pz, no()) => InvalidArg2, null_place;
            dat_psp_create("ia" ia, 7000, w.cr_evd, 0, no()) => InvalidArg5, null_place;
            dat_psp_create("ia" ia, 7000, w.cr_evd, 5, place) => InvalidArg4, ["flags 0x5", "expected DAT_PSP_CONSUMER_FLAG"];
            dat_psp_create("ia" ia, 0, w.cr_evd, 0, place) => InvalidArg2, ["qualifier 0", "use 1 or more"];
            dat_psp_create_any("ia" ia, no(), w.cr_evd, 0, place) => InvalidArg2, null_place;
            dat_psp_create_any("ia" ia, qualifier, w.cr_evd, 5, place) => InvalidArg4, ["flags 0x5", "expected"];
            dat_psp_create_any("ia" ia, qualifier, w.cr_evd, 0, no()) => InvalidArg5, null_place;
            dat_psp_query("psp" w.psp, 1 << 31, no()) => InvalidArg2, beyond;
            dat_psp_query("psp" w.psp, 1, no()) => InvalidArg3, null_place;
            dat_rsp_create("ia" ia, 7000, ep, w.cr_evd, no()) => InvalidArg5, null_place;
            dat_rsp_create("ia" ia, 0, NO, w.cr_evd, place) => InvalidArg2, ["qualifier 0", "use 1 or more"];
            dat_pz_create("ia" ia, no()) => InvalidArg2, null_place;
            dat_pz_query("pz" pz, 1 << 31, no()) => InvalidArg2, beyond;
            dat_pz_query("pz" pz, 1, no()) => InvalidArg3, null_place;
            dat_srq_create("ia" ia, pz, no(), place) => InvalidArg3, null_place;
            dat_srq_create("ia" ia, pz, &raw mut empty, place) => InvalidArg3, ["max_recv_dtos is 0", "expected 1 to"];
            dat_srq_create("ia" ia, pz, &raw mut marked, place) => InvalidArg3, ["low_watermark is 3", "expected"];
            dat_srq_create("ia" ia, pz, &raw mut empty, no()) => InvalidArg4, null_place;
            dat_srq_query("srq" srq, 1 << 31, no()) => InvalidArg2, beyond;
            dat_srq_query("srq" srq, 1, no()) => InvalidArg3, null_place;
            dat_srq_resize("srq" srq, 0) => InvalidArg2, ["max_recv_dtos is 0", "expected 1 to"];
            dat_srq_set_lw("srq" srq, -9) => InvalidArg2, ["watermark -9", "expected 0 to"];
        }
        assert_eq!(made, NO, "untouched");
    });
}

const SOFTWARE: DAT_EVENT = {
    // SAFETY: numbers and pointers, for which 0 is a value.
    let mut event: DAT_EVENT = unsafe { zeroed() };
    event.event_number = DAT_SOFTWARE_EVENT;
    event
};

#[test]
fn states_and_objects_in_use_are_named_with_a_remedy() {
    printing(
        "arguments::states_and_objects_in_use_are_named_with_a_remedy",
        || {
            let w = Fixture::new();
            let state = ReturnType::InvalidState;
            let mut event = dirty::<DAT_EVENT>();
            let mut more = 0;
            // SAFETY: a live handle.
            assert_eq!(unsafe { dat_evd_set_unwaitable(w.cr_evd) }, 0);
            rows! {
                state;
                dat_ep_disconnect("ep" w.ep, 0) => InvalidStateEpUnconnected, ["Unconnected", "expected", "Connected"];
                dat_pz_free("pz" w.pz) => InvalidStatePzInUse, ["free them first"];
                dat_evd_free("evd" w.evd) => InvalidStateEvdInUse, ["free them first"];
                dat_srq_free("srq" w.srq) => InvalidStateSrqInUse, ["1 endpoints", "free them first"];
                dat_ia_close("ia" w.ia, 1) => InvalidStateIaInUse, ["2 Ep"];
                dat_evd_wait("evd" w.cr_evd, 0, 1, event.as_mut_ptr(), &raw mut more) => InvalidStateEvdUnwaitable, ["unwaitable", "dat_evd_clear_unwaitable"];
            }
            let bad = ReturnType::InvalidHandle;
            let gone = stale(dat_api::Kind::Pz);
            let cause = format!("handle {:#x} is not a PZ", gone.addr());
            let attr = attributes();
            let mut made = NO;
            refused(
                ("dat_ep_create", "ia", w.ia),
                (bad, Subtype::InvalidHandlePz),
                &[&cause],
                // SAFETY: the call validates its handles.
                || unsafe { dat_ep_create(w.ia, gone, NO, NO, NO, &raw const attr, &raw mut made) },
            );
            refused(
                ("dat_psp_create", "ia", w.ia),
                (bad, Subtype::InvalidHandleEvdCr),
                &[
                    &format!("EVD {:#x} has the flags 0x21", w.evd.addr()),
                    "0x10",
                    "create it with",
                ],
                // SAFETY: as above.
                || unsafe { dat_psp_create(w.ia, 7000, w.evd, 0, &raw mut made) },
            );
        },
    );
}

#[test]
fn what_is_no_refusal_prints_nothing() {
    printing("arguments::what_is_no_refusal_prints_nothing", || {
        let w = Fixture::new();
        let mut event = dirty::<DAT_EVENT>();
        let event = event.as_mut_ptr();
        let (mut more, mut cno, mut found) = (0, NO, NO);
        let none = DAT_OS_WAIT_PROXY_AGENT {
            instance_data: null_mut(),
            proxy_agent_func: None,
        };
        // SAFETY: live handles, and room for all results.
        let (codes, text) = printed(|| unsafe {
            [
                dat_evd_dequeue(w.evd, event),
                dat_evd_dequeue(w.connect_evd, event),
                dat_evd_wait(w.evd, 0, 1, event, &raw mut more),
                dat_evd_wait(w.evd, 1000, 1, event, &raw mut more),
                dat_cno_create(w.ia, none, &raw mut cno),
                dat_cno_wait(cno, 0, &raw mut found),
                dat_cno_wait(cno, 1000, &raw mut found),
            ]
        });
        let kinds = codes.map(|code| dat_api::DatReturn::from_bits(code).kind());
        let [empty, expired, success] = [
            ReturnType::QueueEmpty,
            ReturnType::TimeoutExpired,
            ReturnType::Success,
        ]
        .map(Some);
        assert_eq!(
            kinds,
            [empty, empty, expired, expired, success, empty, empty]
        );
        assert_eq!(text, "");
        refused(
            ("dat_cno_wait", "cno", cno),
            (BAD, Subtype::InvalidArg3),
            &["null", "expected"],
            // SAFETY: null is checked.
            || unsafe { dat_cno_wait(cno, 0, null_mut()) },
        );
    });
}
