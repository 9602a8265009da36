//! `dat_srq_*`: rows of the table of the calls that `srq_set_lw.rs`,
//! `ep_create_with_srq` and `bad_input` do not cover, and all of
//! `dat_srq_resize`.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, Shape, abilities, device, evd_info, fails, fails_with, ok, post_srq, srq,
    srq_info, take_dto,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

fn resize(srq: DAT_SRQ_HANDLE, receives: DAT_COUNT) -> DAT_RETURN {
    // SAFETY: the call validates its handles.
    unsafe { dat_srq_resize(srq, receives) }
}

/// Create, free, query: handles, masks and pointers.
#[test]
fn srq_create_free_query_row_by_row() {
    let fixture = Fixture::new();
    let ih = DAT_INVALID_HANDLE;
    let queue = srq(&fixture, 4);
    let mut attr = DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: DAT_SRQ_LW_DEFAULT,
    };
    let mut made = ptr::null_mut();
    // SAFETY: the calls validate their handles; null pointers are under test.
    unsafe {
        for bad in [ptr::null_mut(), fixture.pz, queue] {
            let answer = dat_srq_create(bad, fixture.pz, &raw mut attr, &raw mut made);
            fails_with(answer, ih, DAT_INVALID_HANDLE_IA);
        }
        for bad in [ptr::null_mut(), fixture.ia, queue] {
            let answer = dat_srq_create(fixture.ia, bad, &raw mut attr, &raw mut made);
            fails_with(answer, ih, DAT_INVALID_HANDLE_PZ);
        }
        let ip = DAT_INVALID_PARAMETER;
        let answer = dat_srq_create(fixture.ia, fixture.pz, ptr::null_mut(), &raw mut made);
        fails_with(answer, ip, DAT_INVALID_ARG3);
        let answer = dat_srq_create(fixture.ia, fixture.pz, &raw mut attr, ptr::null_mut());
        fails_with(answer, ip, DAT_INVALID_ARG4);
        attr.low_watermark = 1;
        let answer = dat_srq_create(fixture.ia, fixture.pz, &raw mut attr, &raw mut made);
        fails_with(answer, ip, DAT_INVALID_ARG3);
        let mut info = mem::zeroed();
        for bad in [ptr::null_mut(), fixture.ia, fixture.pz] {
            fails_with(dat_srq_free(bad), ih, DAT_INVALID_HANDLE_SRQ);
            let answer = dat_srq_query(bad, DAT_SRQ_FIELD_ALL, &raw mut info);
            fails_with(answer, ih, DAT_INVALID_HANDLE_SRQ);
            fails_with(resize(bad, 4), ih, DAT_INVALID_HANDLE_SRQ);
        }
        fails_with(
            dat_srq_query(queue, !0, &raw mut info),
            ip,
            DAT_INVALID_ARG2,
        );
        let answer = dat_srq_query(queue, DAT_SRQ_FIELD_ALL, ptr::null_mut());
        fails_with(answer, ip, DAT_INVALID_ARG3);
        let end = End::on_srq(&fixture, &Shape::default(), queue);
        let answer = dat_srq_free(queue);
        fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
        ok(dat_ep_free(end.ep));
        ok(dat_srq_free(queue));
        fails_with(dat_srq_free(queue), ih, DAT_INVALID_HANDLE_SRQ);
    }
}

/// Like posting to an endpoint, with the queue's zone.
#[test]
fn srq_post_recv_row_by_row() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 4);
    let memory = fixture.memory(64);
    let foreign = fixture.memory_in(fixture.pz(), 64, DAT_MEM_PRIV_ALL_FLAG);
    let unwritable = fixture.memory_in(fixture.pz, 64, DAT_MEM_PRIV_LOCAL_READ_FLAG);
    let good = memory.segment(0, 64);
    let outside = DAT_LMR_TRIPLET {
        segment_length: 65,
        ..good
    };
    fails(post_srq(ptr::null_mut(), &[good], 1), DAT_INVALID_HANDLE);
    fails(post_srq(queue, &[good; 32], 1), DAT_INVALID_PARAMETER);
    for (bad, kind) in [
        (outside, DAT_INVALID_PARAMETER),
        (foreign.segment(0, 8), DAT_PROTECTION_VIOLATION),
        (unwritable.segment(0, 8), DAT_PRIVILEGES_VIOLATION),
    ] {
        fails(post_srq(queue, &[bad], 1), kind);
        fails(post_srq(queue, &[good, bad], 1), kind);
    }
    let most = srq_info(queue).max_recv_dtos;
    for tag in 0..most {
        ok(post_srq(queue, &[good], tag as u64));
    }
    fails(post_srq(queue, &[good], 1), DAT_INSUFFICIENT_RESOURCES);
    let info = srq_info(queue);
    assert_eq!(
        (info.available_dto_count, info.outstanding_dto_count),
        (most, most)
    );
}

/// Refused resizes, which change nothing.
#[test]
fn srq_resize_row_by_row() {
    let fixture = Fixture::new();
    let (adapter, _) = abilities(&fixture);
    let queue = srq(&fixture, 16);
    let memory = fixture.memory(64);
    let before = srq_info(queue).max_recv_dtos;
    let (ip, argument) = (DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    for size in [0, -1, i32::MIN] {
        fails_with(resize(queue, size), ip, argument);
    }
    if adapter.max_recv_per_srq < i32::MAX {
        fails_with(resize(queue, adapter.max_recv_per_srq + 1), ip, argument);
        fails_with(resize(queue, i32::MAX), ip, argument);
    }
    for tag in 0..8 {
        ok(post_srq(queue, &[memory.segment(0, 64)], tag));
    }
    let (state, none) = (DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    fails_with(resize(queue, 7), state, none);
    fails_with(resize(queue, 1), state, none);
    ok(resize(queue, 8));
    // SAFETY: a live handle.
    ok(unsafe { dat_srq_set_lw(queue, 10) });
    fails_with(resize(queue, 9), state, none);
    ok(resize(queue, 10));
    ok(resize(queue, before));
    // The queue has its buffers and its capacity as before.
    let info = srq_info(queue);
    assert_eq!(
        (info.max_recv_dtos, info.outstanding_dto_count),
        (before, 8)
    );
    assert_eq!(info.low_watermark, 10);
    for tag in 8..before {
        ok(post_srq(queue, &[memory.segment(0, 64)], tag as u64));
    }
    fails(
        post_srq(queue, &[memory.segment(0, 64)], 1),
        DAT_INSUFFICIENT_RESOURCES,
    );
}

/// Grows while receives are outstanding, taken, and completed but not polled: all
/// of them complete, in order. A device that cannot resize (mlx5) returns an
/// error, and no receive is lost either.
#[test]
fn srq_resize_loses_nothing() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 8);
    let before = srq_info(queue).max_recv_dtos;
    let memory = fixture.memory(4096);
    let shape = Shape {
        evd_qlen: 512,
        ..Shape::default()
    };
    let to = End::on_srq(&fixture, &shape, queue);
    let pair = Pair::connect(&fixture, End::new(&fixture, &shape), to);
    let post = |tag: DAT_COUNT| post_srq(queue, &[memory.segment(0, 64)], tag as u64);
    for tag in 0..before {
        ok(post(tag));
    }
    fails(post(99), DAT_INSUFFICIENT_RESOURCES);
    let send = || {
        ok(pair.active.post_send(&[memory.segment(64, 8)], 1, DEFAULT));
        fixture.run();
        assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
    };
    // Taken by messages, and not polled.
    send();
    send();
    let larger = before * 8;
    let answer = resize(queue, larger);
    let now = if device::name().starts_with("mlx5") {
        fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
        before
    } else {
        ok(answer);
        larger
    };
    assert_eq!(srq_info(queue).max_recv_dtos, now);
    // The two places that became free, and the new ones.
    for tag in before..now + 2 {
        ok(post(tag));
    }
    fails(post(99), DAT_INSUFFICIENT_RESOURCES);
    for tag in 0..now + 2 {
        if tag >= 2 {
            send();
        }
        let received = take_dto(to.recv);
        assert_eq!(
            (received.cookie, received.status),
            (tag as u64, DAT_DTO_SUCCESS)
        );
    }
    assert_eq!(srq_info(queue).outstanding_dto_count, 0);
}

/// The EVD for the completions needs room for them. On a device that resizes shared
/// queues (Soft-RoCE) its completion queue is resized first. On mlx5 the EVD has no
/// room on the direct path, and the queue itself stays as it is on both.
#[test]
fn srq_resize_needs_room_where_receives_are_reported() {
    let fixture = Fixture::new();
    let asked = 60_000.min(abilities(&fixture).0.max_recv_per_srq);
    let lone = srq(&fixture, 8);
    let grows = resize(lone, asked) == DAT_SUCCESS;
    // SAFETY: a live handle.
    ok(unsafe { dat_srq_free(lone) });
    assert!(!(grows && fixture.is_stepped()), "mlx5 resizes none");
    let queue = srq(&fixture, 8);
    let before = srq_info(queue);
    let end = End::on_srq(&fixture, &Shape::default(), queue);
    let answer = resize(queue, asked);
    let now = srq_info(queue).max_recv_dtos;
    if grows {
        ok(answer);
        assert!(now >= asked, "{now}");
        assert!(evd_info(end.recv).evd_qlen >= asked);
    } else {
        fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
        assert_eq!(now, before.max_recv_dtos);
    }
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(end.ep));
        ok(dat_srq_free(queue));
    }
}
