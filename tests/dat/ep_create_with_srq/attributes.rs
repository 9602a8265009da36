//! The attributes that are requested, and those of the endpoint.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Call, DEFAULT};
use crate::support::{
    End, Fixture, Pair, Shape, abilities, ep_info, expect, fails, fails_with, nothing_on, ok,
    post_srq, srq, srq_info,
};

const BAD: (DAT_RETURN, DAT_RETURN_SUBTYPE) = (DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);

/// A change to the attributes.
type Change = fn(&mut DAT_EP_ATTR, i64);

#[test]
fn ep_create_with_srq_e07_attributes_must_be_given() {
    let fixture = Fixture::new();
    let call = Call::new(&fixture, srq(&fixture, 8));
    let mut ep = ptr::without_provenance_mut(0x77);
    // SAFETY: null is under test; the result is writable.
    let answer = unsafe {
        dat_ep_create_with_srq(
            call.ia,
            call.pz,
            call.recv,
            call.request,
            call.connect,
            call.srq,
            ptr::null(),
            &raw mut ep,
        )
    };
    fails_with(answer, BAD.0, BAD.1);
    assert_eq!(ep.addr(), 0x77);
    // SAFETY: null is under test.
    let answer = unsafe {
        dat_ep_create_with_srq(
            call.ia,
            call.pz,
            call.recv,
            call.request,
            call.connect,
            call.srq,
            &raw const call.attributes,
            ptr::null_mut(),
        )
    };
    fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG8);
}

/// All attributes zero: every value is left to the library.
#[test]
fn ep_create_with_srq_e07_attributes_of_0_get_defaults_that_work() {
    let fixture = Fixture::new();
    let limits = abilities(&fixture).0;
    let queue = srq(&fixture, 8);
    let mut call = Call::new(&fixture, queue);
    // SAFETY: integers and pointers, for which zero is valid.
    call.attributes = unsafe { mem::zeroed() };
    let end = call.make();
    let attr = ep_info(end.ep).ep_attr;
    assert_eq!(attr.service_type, DAT_SERVICE_TYPE_RC);
    assert_eq!(attr.max_message_size, limits.max_message_size);
    assert_eq!(attr.max_rdma_size, limits.max_rdma_size);
    assert!((1..=limits.max_dto_per_ep).contains(&attr.max_request_dtos));
    assert!((1..=limits.max_iov_segments_per_dto).contains(&attr.max_request_iov));
    assert!((1..=limits.max_iov_segments_per_rdma_read).contains(&attr.max_rdma_read_iov));
    assert!((1..=limits.max_iov_segments_per_rdma_write).contains(&attr.max_rdma_write_iov));
    assert_eq!((attr.max_rdma_read_in, attr.max_rdma_read_out), (0, 0));
    let memory = fixture.memory(4096);
    let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), end);
    ok(pair.active.post_recv(&[memory.segment(1024, 8)], 1));
    ok(post_srq(queue, &[memory.segment(1024, 8)], 2));
    for (from, to) in [(pair.active, end), (end, pair.active)] {
        ok(from.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
        fixture.run();
        assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
        assert_eq!(to.received().status, DAT_DTO_SUCCESS);
    }
}

/// The number that the query returns is exact: that many requests can be
/// outstanding and that many segments gathered, and no more.
#[test]
fn ep_create_with_srq_e08_requests_and_segments_are_at_least_as_requested() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    for (dtos, iov) in [(1, 1), (5, 3), (17, 2), (64, 4)] {
        let mut call = Call::new(&fixture, srq(&fixture, 8));
        call.attributes.max_request_dtos = dtos;
        call.attributes.max_request_iov = iov;
        let end = call.make();
        let attr = ep_info(end.ep).ep_attr;
        assert!(attr.max_request_dtos >= dtos, "{}", attr.max_request_dtos);
        assert!(attr.max_request_iov >= iov, "{}", attr.max_request_iov);
        let shape = Shape {
            recvs: 128,
            ..Shape::default()
        };
        let pair = Pair::connect(&fixture, End::new(&fixture, &shape), end);
        let segments: Vec<_> = (0..=attr.max_request_iov as usize)
            .map(|at| memory.segment(16 * at, 8))
            .collect();
        let (extra, most) = segments.split_last().expect("two at least");
        for tag in 0..attr.max_request_dtos as u64 {
            ok(pair.active.post_recv(&[memory.segment(1024, 64)], tag));
            ok(end.post_send(most, tag, DEFAULT));
        }
        fails(
            end.post_send(&[*extra], 1, DEFAULT),
            DAT_INSUFFICIENT_RESOURCES,
        );
        fixture.run();
        for tag in 0..attr.max_request_dtos as u64 {
            let sent = end.requested();
            assert_eq!((sent.cookie, sent.status), (tag, DAT_DTO_SUCCESS));
            assert_eq!(pair.active.received().length, 8 * most.len() as u64);
        }
        fails(end.post_send(&segments, 1, DEFAULT), DAT_INVALID_PARAMETER);
        nothing_on(end.request);
    }
}

#[test]
fn ep_create_with_srq_e09_the_exact_attributes_are_exact() {
    let fixture = Fixture::new();
    let mut call = Call::new(&fixture, srq(&fixture, 8));
    for (recvs, soft) in [
        (DAT_HW_DEFAULT, DAT_HW_DEFAULT),
        (5, 3),
        (7, DAT_HW_DEFAULT),
    ] {
        call.attributes.max_recv_dtos = recvs;
        call.attributes.srq_soft_hw = soft;
        call.attributes.max_message_size = 12_345;
        call.attributes.max_rdma_size = 54_321;
        call.attributes.max_rdma_read_in = 3;
        call.attributes.max_rdma_read_out = 2;
        call.attributes.recv_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
        call.attributes.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
        let end = call.make();
        let attr = ep_info(end.ep).ep_attr;
        assert_eq!((attr.max_recv_dtos, attr.srq_soft_hw), (recvs, soft));
        assert_eq!(
            (attr.max_message_size, attr.max_rdma_size),
            (12_345, 54_321)
        );
        assert_eq!((attr.max_rdma_read_in, attr.max_rdma_read_out), (3, 2));
        assert_eq!(
            (attr.recv_completion_flags, attr.request_completion_flags),
            (
                DAT_COMPLETION_EVD_THRESHOLD_FLAG,
                DAT_COMPLETION_UNSIGNALLED_FLAG
            )
        );
        assert_eq!((attr.service_type, attr.qos), (0, 0));
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_free(end.ep) });
    }
}

/// Sends a message of the maximum size, and one a byte longer.
#[test]
fn ep_create_with_srq_e09_the_sizes_hold() {
    let fixture = Fixture::new();
    let memory = fixture.memory(8192);
    let mut call = Call::new(&fixture, srq(&fixture, 8));
    call.attributes.max_message_size = 100;
    call.attributes.max_rdma_size = 200;
    let end = call.make();
    let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), end);
    ok(pair.active.post_recv(&[memory.segment(4096, 4096)], 1));
    ok(end.post_send(&[memory.segment(0, 100)], 1, DEFAULT));
    fails(
        end.post_send(&[memory.segment(0, 101)], 2, DEFAULT),
        DAT_INVALID_PARAMETER,
    );
    ok(end.post_write(
        &[memory.segment(0, 200)],
        &memory.remote(4096, 200),
        3,
        DEFAULT,
    ));
    let remote = memory.remote(4096, 201);
    for answer in [
        end.post_write(&[memory.segment(0, 201)], &remote, 4, DEFAULT),
        end.post_read(&[memory.segment(0, 201)], &remote, 5, DEFAULT),
    ] {
        assert_ne!(answer, DAT_SUCCESS);
    }
    fixture.run();
    for tag in [1, 3] {
        let sent = end.requested();
        assert_eq!((sent.cookie, sent.status), (tag, DAT_DTO_SUCCESS));
    }
}

#[test]
fn ep_create_with_srq_e09_the_segments_of_receives_are_ignored() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    for ignored in [0, -1, 1, DAT_COUNT::MIN, 1 << 20, DAT_COUNT::MAX] {
        let mut call = Call::new(&fixture, queue);
        call.attributes.max_recv_iov = ignored;
        let end = call.make();
        let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), end);
        // The queue's own limit counts.
        let iov = [0, 1, 2, 3].map(|at: usize| memory.segment(1024 + 8 * at, 4));
        ok(post_srq(queue, &iov, 1));
        ok(pair.active.post_send(&[memory.segment(0, 16)], 1, DEFAULT));
        fixture.run();
        let received = end.received();
        assert_eq!((received.status, received.length), (DAT_DTO_SUCCESS, 16));
    }
}

#[test]
fn ep_create_with_srq_e09_attributes_that_cannot_be_met_fail_the_call() {
    let fixture = Fixture::new();
    let limits = abilities(&fixture).0;
    let good = Call::new(&fixture, srq(&fixture, 8));
    // The largest allowed value, and whether 0 or -1 selects the default.
    let attributes: [(&str, Change, i64, i64); 10] = [
        (
            "max_message_size",
            |attr, value| attr.max_message_size = value.cast_unsigned(),
            limits.max_message_size.cast_signed(),
            0,
        ),
        (
            "max_rdma_size",
            |attr, value| attr.max_rdma_size = value.cast_unsigned(),
            limits.max_rdma_size.cast_signed(),
            0,
        ),
        (
            "max_recv_dtos",
            |attr, value| attr.max_recv_dtos = value as DAT_COUNT,
            limits.max_recv_per_srq.into(),
            -1,
        ),
        (
            "max_request_dtos",
            |attr, value| attr.max_request_dtos = value as DAT_COUNT,
            limits.max_dto_per_ep.into(),
            0,
        ),
        (
            "max_request_iov",
            |attr, value| attr.max_request_iov = value as DAT_COUNT,
            limits.max_iov_segments_per_dto.into(),
            0,
        ),
        (
            "max_rdma_read_in",
            |attr, value| attr.max_rdma_read_in = value as DAT_COUNT,
            limits.max_rdma_read_per_ep_in.into(),
            -1,
        ),
        (
            "max_rdma_read_out",
            |attr, value| attr.max_rdma_read_out = value as DAT_COUNT,
            limits.max_rdma_read_per_ep_out.into(),
            -1,
        ),
        (
            "srq_soft_hw",
            |attr, value| attr.srq_soft_hw = value as DAT_COUNT,
            limits.max_recv_per_srq.into(),
            -1,
        ),
        (
            "max_rdma_read_iov",
            |attr, value| attr.max_rdma_read_iov = value as DAT_COUNT,
            limits.max_iov_segments_per_rdma_read.into(),
            0,
        ),
        (
            "max_rdma_write_iov",
            |attr, value| attr.max_rdma_write_iov = value as DAT_COUNT,
            limits.max_iov_segments_per_rdma_write.into(),
            0,
        ),
    ];
    for (name, change, most, open) in attributes {
        let mut call = good;
        for fits in [most, open, 1] {
            // Segments and requests cannot both be at their maximum: the device
            // has room for one of them.
            call.attributes = good.attributes;
            change(&mut call.attributes, fits);
            if name != "max_request_dtos" || fits != most {
                let (answer, ep) = call.call();
                assert_eq!(answer, DAT_SUCCESS, "{name} {fits}");
                // SAFETY: a live handle.
                ok(unsafe { dat_ep_free(ep) });
            }
        }
        let mut bad = vec![most + 1];
        if !name.ends_with("size") {
            bad.extend([open - 1, i32::MIN.into(), i32::MAX.into()]);
        } else {
            bad.push(i64::MAX);
            bad.push(-1);
        }
        for bad in bad {
            call.attributes = good.attributes;
            change(&mut call.attributes, bad);
            let (answer, ep) = call.call();
            assert_eq!(answer & 0xffff, BAD.1, "{name} {bad}: {answer:#x}");
            fails_with(answer, BAD.0, BAD.1);
            assert_eq!(ep.addr(), 0x77);
        }
    }
}

#[test]
fn ep_create_with_srq_e10_bad_attributes_and_combinations_are_refused() {
    let fixture = Fixture::new();
    let good = Call::new(&fixture, srq(&fixture, 8));
    let changes: [fn(&mut DAT_EP_ATTR); 11] = [
        |attr| attr.service_type = 1,
        |attr| attr.service_type = DAT_SERVICE_TYPE::MAX,
        |attr| attr.qos = DAT_QOS_HIGH_THROUGHPUT,
        |attr| attr.qos = 0x80,
        |attr| attr.recv_completion_flags = DAT_COMPLETION_SUPPRESS_FLAG,
        |attr| attr.recv_completion_flags = 0x4000,
        |attr| attr.request_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        |attr| {
            attr.request_completion_flags =
                DAT_COMPLETION_UNSIGNALLED_FLAG | DAT_COMPLETION_EVD_THRESHOLD_FLAG;
        },
        // A soft watermark above the hard one could never be reported.
        |attr| (attr.max_recv_dtos, attr.srq_soft_hw) = (3, 4),
        |attr| attr.ep_transport_specific_count = 1,
        |attr| attr.ep_provider_specific_count = -1,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut call = good;
        change(&mut call.attributes);
        let (answer, ep) = call.call();
        assert_ne!(answer, DAT_SUCCESS, "change {at}");
        fails_with(answer, BAD.0, BAD.1);
        assert_eq!(ep.addr(), 0x77);
    }
    // The failed calls have left nothing behind.
    let end = good.make();
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(end.ep));
        for evd in [good.recv, good.request, good.connect] {
            ok(dat_evd_free(evd));
        }
    }
}

/// An endpoint may hold as many buffers as its `max_recv_dtos`, the hard high
/// watermark; one more breaks its connection.
#[test]
fn ep_create_with_srq_e09_the_hard_watermark_is_the_one_that_was_asked_for() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let mut call = Call::new(&fixture, queue);
    call.attributes.max_recv_dtos = 3;
    let end = call.make();
    let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), end);
    for tag in 0..6 {
        ok(post_srq(queue, &[memory.segment(1024, 8)], tag));
    }
    let send_one = || {
        ok(pair.active.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
        fixture.run();
        crate::support::held(end.ep).0
    };
    for count in 1..=3 {
        assert_eq!(send_one(), count);
        assert_eq!(crate::support::state_of(end.ep), DAT_EP_STATE_CONNECTED);
    }
    send_one();
    expect(end.connect, DAT_CONNECTION_EVENT_BROKEN);
    for tag in 0..4 {
        assert_eq!(end.received().cookie, tag);
    }
    assert_eq!(srq_info(queue).available_dto_count, 2);
}

/// If the process runs out of descriptors, the error says so, and calls succeed
/// again once descriptors are free.
#[test]
fn ep_create_with_srq_e10_limits_of_the_system_are_reported_as_resources() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 8);
    let call = Call::new(&fixture, queue);
    // SAFETY: numbers; the limit is restored below.
    let answer = unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let none = libc::rlimit {
            rlim_cur: 0,
            ..limit
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
        let answer = call.call();
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        answer
    };
    fails(answer.0, DAT_INSUFFICIENT_RESOURCES);
    assert_eq!(answer.1.addr(), 0x77);
    let end = call.make();
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(end.ep));
        ok(dat_srq_free(queue));
    }
}
