//! Section 4.2: values that `dat_ep_modify` refuses without changing anything.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{End, Fixture, Shape, abilities, ep_info, fails_with, ok, srq};

type Set = fn(&mut DAT_EP_ATTR, u64);
type SetEvd = fn(&mut DAT_EP_PARAM, DAT_EVD_HANDLE);

fn modify(ep: DAT_EP_HANDLE, fields: DAT_EP_PARAM_MASK, to: &DAT_EP_PARAM) -> DAT_RETURN {
    // SAFETY: a live endpoint; the values are local.
    unsafe { dat_ep_modify(ep, fields, ptr::from_ref(to)) }
}

/// Checks that the change is refused as a bad value, and has no effect.
#[track_caller]
fn refuses(end: &End, fields: DAT_EP_PARAM_MASK, to: &DAT_EP_PARAM) {
    let before = ep_info(end.ep);
    fails_with(
        modify(end.ep, fields, to),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG3,
    );
    let after = ep_info(end.ep);
    let known = |info: &DAT_EP_PARAM| {
        let attr = &info.ep_attr;
        (
            [
                info.recv_evd_handle,
                info.request_evd_handle,
                info.connect_evd_handle,
                info.pz_handle,
            ],
            [attr.max_message_size, attr.max_rdma_size],
            [
                attr.max_recv_dtos,
                attr.max_request_dtos,
                attr.max_recv_iov,
                attr.max_request_iov,
                attr.max_rdma_read_in,
                attr.max_rdma_read_out,
                attr.max_rdma_read_iov,
                attr.max_rdma_write_iov,
            ],
            [attr.recv_completion_flags, attr.request_completion_flags],
        )
    };
    assert_eq!(known(&after), known(&before));
}

/// Receive limits (DTOs and segments) of an endpoint with an SRQ.
#[test]
fn an_srq_endpoint_has_no_limits_of_receives() {
    let fixture = Fixture::new();
    let end = End::on_srq(&fixture, &Shape::default(), srq(&fixture, 8));
    let mut to = ep_info(end.ep);
    to.ep_attr.max_recv_dtos = 4;
    to.ep_attr.max_recv_iov = 1;
    for field in [
        DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS,
        DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV,
    ] {
        refuses(&end, field, &to);
    }
    to.ep_attr.max_request_dtos = 5;
    ok(modify(end.ep, DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS, &to));
}

/// A DTO count needs its EVD: neither can the EVD be removed while the count is
/// set, nor the count be set without the EVD. Both can change together.
#[test]
fn counts_need_their_evds() {
    let fixture = Fixture::new();
    let ways: [(DAT_EP_PARAM_MASK, DAT_EP_PARAM_MASK, SetEvd, Set); 2] = [
        (
            DAT_EP_FIELD_RECV_EVD_HANDLE,
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS,
            |to, evd| to.recv_evd_handle = evd,
            |attr, count| attr.max_recv_dtos = count as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_REQUEST_EVD_HANDLE,
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS,
            |to, evd| to.request_evd_handle = evd,
            |attr, count| attr.max_request_dtos = count as DAT_COUNT,
        ),
    ];
    for (evd, count, set_evd, set_count) in ways {
        let end = End::new(&fixture, &Shape::default());
        let mut to = ep_info(end.ep);
        set_evd(&mut to, ptr::null_mut());
        refuses(&end, evd, &to);
        set_count(&mut to.ep_attr, 0);
        refuses(&end, count, &to);
        ok(modify(end.ep, evd | count, &to));
        set_count(&mut to.ep_attr, 4);
        refuses(&end, count, &to);
        refuses(&end, evd | count, &to);
        set_evd(&mut to, fixture.evd(16, DAT_EVD_DTO_FLAG));
        ok(modify(end.ep, evd | count, &to));
    }
}

/// Completion flags that are valid for receives or requests, and others.
#[test]
fn flags_row_by_row() {
    for is_strict in [false, true] {
        flags(is_strict);
    }
}

fn flags(is_strict: bool) {
    const ALL: [DAT_COMPLETION_FLAGS; 6] = [
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_SUPPRESS_FLAG,
        DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        DAT_COMPLETION_UNSIGNALLED_FLAG,
        DAT_COMPLETION_BARRIER_FENCE_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    ];
    /// The first is accepted unless the adapter is strict.
    const OF_REQUESTS: [DAT_COMPLETION_FLAGS; 4] = [
        DAT_COMPLETION_SUPPRESS_FLAG,
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_UNSIGNALLED_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    ];
    let rows: [(DAT_EP_PARAM_MASK, Set, &[DAT_COMPLETION_FLAGS]); 2] = [
        (
            DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS,
            |attr, flags| attr.recv_completion_flags = flags as DAT_COMPLETION_FLAGS,
            &[
                DAT_COMPLETION_DEFAULT_FLAG,
                DAT_COMPLETION_SOLICITED_WAIT_FLAG,
                DAT_COMPLETION_UNSIGNALLED_FLAG,
                DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            ],
        ),
        (
            DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS,
            |attr, flags| attr.request_completion_flags = flags as DAT_COMPLETION_FLAGS,
            if is_strict {
                &OF_REQUESTS[1..]
            } else {
                &OF_REQUESTS
            },
        ),
    ];
    let fixture = Fixture::with_strict(is_strict);
    for (field, set, good) in rows {
        let end = End::new(&fixture, &Shape::default());
        let mut to = ep_info(end.ep);
        for flags in ALL {
            println!("field {field:#x}, flags {flags:#x}");
            set(&mut to.ep_attr, flags.into());
            if good.contains(&flags) {
                ok(modify(end.ep, field, &to));
            } else {
                refuses(&end, field, &to);
            }
        }
    }
}

/// The flags of receives can only be set before the first is posted.
#[test]
fn flags_of_receives_stay_once_one_is_posted() {
    let fixture = Fixture::new();
    let end = End::new(&fixture, &Shape::default());
    let memory = fixture.memory(64);
    ok(end.post_recv(&[memory.segment(0, 8)], 1));
    let mut to = ep_info(end.ep);
    to.ep_attr.recv_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
    fails_with(
        modify(end.ep, DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS, &to),
        DAT_INVALID_STATE,
        DAT_INVALID_STATE_EP_UNCONNECTED,
    );
    assert_eq!(
        ep_info(end.ep).ep_attr.recv_completion_flags,
        DAT_COMPLETION_DEFAULT_FLAG
    );
}

/// Each attribute may be as large as the adapter reports, and no larger.
#[test]
fn limits_of_the_adapter_row_by_row() {
    let fixture = Fixture::new();
    let ia = abilities(&fixture).0;
    let wide = |count: DAT_COUNT| u64::try_from(count).expect("a limit");
    let rows: [(DAT_EP_PARAM_MASK, u64, Set); 10] = [
        (
            DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE,
            ia.max_message_size,
            |attr, to| attr.max_message_size = to,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE,
            ia.max_rdma_size,
            |attr, to| attr.max_rdma_size = to,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS,
            wide(ia.max_dto_per_ep),
            |attr, to| attr.max_recv_dtos = to as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS,
            wide(ia.max_dto_per_ep),
            |attr, to| attr.max_request_dtos = to as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV,
            wide(ia.max_iov_segments_per_dto),
            |attr, to| attr.max_recv_iov = to as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV,
            wide(ia.max_iov_segments_per_dto),
            |attr, to| attr.max_request_iov = to as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN,
            wide(ia.max_rdma_read_per_ep_in),
            |attr, to| attr.max_rdma_read_in = to as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT,
            wide(ia.max_rdma_read_per_ep_out),
            |attr, to| attr.max_rdma_read_out = to as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV,
            wide(ia.max_iov_segments_per_rdma_read),
            |attr, to| attr.max_rdma_read_iov = to as DAT_COUNT,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV,
            wide(ia.max_iov_segments_per_rdma_write),
            |attr, to| attr.max_rdma_write_iov = to as DAT_COUNT,
        ),
    ];
    for (field, most, set) in rows {
        println!("field {field:#x}, at most {most}");
        let end = End::new(&fixture, &Shape::default());
        let mut to = ep_info(end.ep);
        // Other tests cover rings of the greatest depth: rxe reports more than it
        // can create.
        if most <= 1 << 10 || most > i32::MAX as u64 / 2 {
            set(&mut to.ep_attr, most);
            ok(modify(end.ep, field, &to));
        }
        set(&mut to.ep_attr, most + 1);
        refuses(&end, field, &to);
    }
}
