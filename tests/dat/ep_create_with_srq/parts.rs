//! The EVDs, zones and handles that an endpoint is created with.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Call, DEFAULT, send};
use crate::support::{
    End, Fixture, Pair, ServicePoint, Shape, abilities, c_name, ep_info, expect, fails, fails_with,
    nothing_on, ok, post_srq, reaches, refused_access, srq, srq_in, srq_info, state_of,
};

#[test]
fn ep_create_with_srq_e02_every_evd_may_be_null() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 8);
    for which in 0..8 {
        let mut call = Call::new(&fixture, queue);
        for (bit, evd) in [&mut call.recv, &mut call.request, &mut call.connect]
            .into_iter()
            .enumerate()
        {
            if which & 1 << bit != 0 {
                *evd = DAT_HANDLE_NULL;
            }
        }
        let end = call.make();
        let info = ep_info(end.ep);
        assert_eq!(
            (
                info.recv_evd_handle,
                info.request_evd_handle,
                info.connect_evd_handle
            ),
            (call.recv, call.request, call.connect)
        );
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_free(end.ep) });
    }
}

/// More events than any queue of the endpoint holds, in both directions.
#[test]
fn ep_create_with_srq_e02_without_an_evd_there_are_no_events_and_no_queue_fills() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 4);
    let mut call = Call::new(&fixture, queue);
    let unused = (call.recv, call.request);
    call.recv = DAT_HANDLE_NULL;
    call.request = DAT_HANDLE_NULL;
    let deaf = call.make();
    let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), deaf);
    let peer = pair.active;
    for tag in 0..100 {
        ok(post_srq(queue, &[memory.segment(1024, 8)], tag));
        send(&fixture, &peer, &mut memory, tag);
        assert_eq!(peer.requested().status, DAT_DTO_SUCCESS);
        ok(peer.post_recv(&[memory.segment(2048, 8)], tag));
        send(&fixture, &deaf, &mut memory, !tag);
        assert_eq!(peer.received().cookie, tag);
        assert_eq!(memory.read(2048, 8), (!tag).to_ne_bytes());
    }
    nothing_on(unused.0);
    nothing_on(unused.1);
    nothing_on(fixture.async_evd);
    assert_eq!(srq_info(queue).outstanding_dto_count, 0);
}

/// Without events the application sees the data in memory.
#[test]
fn ep_create_with_srq_e02_without_events_the_data_arrive() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(8192);
    let queue = srq(&fixture, 4);
    let mut call = Call::new(&fixture, queue);
    call.recv = DAT_HANDLE_NULL;
    call.request = DAT_HANDLE_NULL;
    let deaf = call.make();
    let peer = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), deaf).active;
    for length in [1000, 65, 64, 33, 32, 8, 1] {
        memory.write(0, &vec![length as u8; length]);
        memory.write(4096, &[0; 1001]);
        ok(post_srq(queue, &[memory.segment(4096, 1024)], 1));
        ok(peer.post_send(&[memory.segment(0, length)], 1, DEFAULT));
        fixture.run();
        assert_eq!(peer.requested().status, DAT_DTO_SUCCESS);
        assert_eq!(memory.read(4096, length), vec![length as u8; length]);
        assert_eq!(memory.read(4096 + length, 1), [0], "{length} bytes");
    }
}

#[test]
fn ep_create_with_srq_e02_without_a_connect_evd_it_cannot_connect() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 4);
    let mut call = Call::new(&fixture, queue);
    let connect = call.connect;
    call.connect = DAT_HANDLE_NULL;
    let end = call.make();
    let service_point = ServicePoint::new(&fixture);
    fails_with(
        service_point.connect(end.ep, &[]),
        DAT_INVALID_HANDLE,
        DAT_INVALID_HANDLE_EVD_CONN,
    );
    assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
    // As the page says, it can be set later.
    let mut change = ep_info(end.ep);
    change.connect_evd_handle = connect;
    // SAFETY: a live handle; the values are readable.
    ok(unsafe { dat_ep_modify(end.ep, DAT_EP_FIELD_CONNECT_EVD_HANDLE, &raw const change) });
    ok(service_point.connect(end.ep, &[]));
    let request = service_point.take_request();
    let mut call = Call::new(&fixture, queue);
    call.connect = DAT_HANDLE_NULL;
    let passive = call.make();
    // SAFETY: live handles.
    unsafe {
        fails_with(
            dat_cr_accept(request, passive.ep, 0, ptr::null_mut()),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        );
        ok(dat_cr_reject(request));
    }
    expect(connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
    service_point.close();
}

#[test]
fn ep_create_with_srq_e04_each_zone_protects_its_own_memory() {
    let fixture = Fixture::new();
    let differ = abilities(&fixture).1.srq_ep_pz_difference_supported;
    let of_queue = fixture.pz();
    let mut memory = fixture.memory(4096);
    let mut buffers = fixture.memory_in(of_queue, 4096, DAT_MEM_PRIV_ALL_FLAG);
    let queue = srq_in(&fixture, of_queue, 8);
    let call = Call::new(&fixture, queue);
    if differ != DAT_TRUE {
        assert!(!fixture.is_stepped(), "mlx5 devices support it");
        call.fails(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        return;
    }
    let end = call.make();
    assert_eq!(ep_info(end.ep).pz_handle, fixture.pz);
    assert_eq!(srq_info(queue).pz_handle, of_queue);
    let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), end);
    let peer = pair.active;
    // Buffers: only the queue's zone counts.
    fails(
        post_srq(queue, &[memory.segment(0, 8)], 1),
        DAT_PROTECTION_VIOLATION,
    );
    ok(post_srq(queue, &[buffers.segment(0, 8)], 2));
    send(&fixture, &peer, &mut memory, 77);
    assert_eq!(peer.requested().status, DAT_DTO_SUCCESS);
    let received = end.received();
    assert_eq!((received.cookie, received.status), (2, DAT_DTO_SUCCESS));
    assert_eq!(buffers.read(0, 8), 77_u64.to_ne_bytes());
    // Requests: only the endpoint's zone counts.
    let remote = memory.remote(64, 8);
    for answer in [
        end.post_send(&[buffers.segment(0, 8)], 3, DEFAULT),
        end.post_write(&[buffers.segment(0, 8)], &remote, 3, DEFAULT),
        end.post_read(&[buffers.segment(0, 8)], &remote, 3, DEFAULT),
    ] {
        fails(answer, DAT_PROTECTION_VIOLATION);
    }
    ok(end.post_write(&[memory.segment(0, 8)], &remote, 4, DEFAULT));
    fixture.run();
    assert_eq!(end.requested().status, DAT_DTO_SUCCESS);
    // Access by the peer: only the endpoint's zone counts.
    ok(peer.post_write(&[memory.segment(0, 8)], &memory.remote(128, 8), 5, DEFAULT));
    fixture.run();
    assert_eq!(peer.requested().status, DAT_DTO_SUCCESS);
    buffers.write(0, &[0; 8]);
    ok(peer.post_write(&[memory.segment(0, 8)], &buffers.remote(0, 8), 6, DEFAULT));
    fixture.run();
    let reported = refused_access(peer.requested().status);
    assert_eq!(buffers.read(0, 8), [0; 8]);
    if reported {
        expect(peer.connect, DAT_CONNECTION_EVENT_BROKEN);
    }
    reaches(end.ep, DAT_EP_STATE_DISCONNECTED);
}

#[test]
fn ep_create_with_srq_e10_bad_handles_are_reported_by_role() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 8);
    let good = Call::new(&fixture, queue);
    let freed = fixture.evd(4, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
    let gone = srq(&fixture, 4);
    // SAFETY: live handles.
    unsafe {
        ok(dat_evd_free(freed));
        ok(dat_srq_free(gone));
    }
    let mut not_a_handle = [0usize; 8];
    let garbage = [
        ptr::without_provenance_mut(0xdead_beef),
        ptr::without_provenance_mut(usize::MAX),
        (&raw mut not_a_handle).cast(),
        queue.wrapping_byte_add(8),
    ];
    type Role = (
        fn(&mut Call) -> &mut DAT_HANDLE,
        DAT_RETURN_SUBTYPE,
        // Handles of another kind, and stale handles.
        [DAT_HANDLE; 2],
    );
    let conn = fixture.evd(4, DAT_EVD_CONNECTION_FLAG);
    let dto = fixture.evd(4, DAT_EVD_DTO_FLAG);
    let roles: [Role; 6] = [
        (
            |call| &mut call.ia,
            DAT_INVALID_HANDLE_IA,
            [queue, fixture.pz],
        ),
        (
            |call| &mut call.pz,
            DAT_INVALID_HANDLE_PZ,
            [queue, fixture.ia],
        ),
        (
            |call| &mut call.recv,
            DAT_INVALID_HANDLE_EVD_RECV,
            [freed, conn],
        ),
        (
            |call| &mut call.request,
            DAT_INVALID_HANDLE_EVD_REQUEST,
            [freed, conn],
        ),
        (
            |call| &mut call.connect,
            DAT_INVALID_HANDLE_EVD_CONN,
            [freed, dto],
        ),
        (
            |call| &mut call.srq,
            DAT_INVALID_HANDLE_SRQ,
            [gone, fixture.pz],
        ),
    ];
    for (role, subtype, others) in roles {
        for bad in garbage.into_iter().chain(others) {
            let mut call = good;
            *role(&mut call) = bad;
            call.fails(DAT_INVALID_HANDLE, subtype);
        }
    }
    for role in [0, 5] {
        let mut call = good;
        *roles[role].0(&mut call) = DAT_HANDLE_NULL;
        call.fails(DAT_INVALID_HANDLE, roles[role].1);
    }
    // The failed calls have left nothing attached.
    let end = good.make();
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(end.ep));
        for evd in [good.recv, good.request, good.connect, conn, dto] {
            ok(dat_evd_free(evd));
        }
        ok(dat_srq_free(queue));
    }
}

/// Objects of another adapter are refused.
#[test]
fn ep_create_with_srq_e10_parts_of_another_adapter_are_refused() {
    let fixture = Fixture::new();
    let queue = srq(&fixture, 8);
    let good = Call::new(&fixture, queue);
    let (mut ia, mut async_evd, mut pz, mut evd, mut other) = (
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
    );
    let mut attr = DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    // SAFETY: every pointer leads to what the call expects.
    unsafe {
        ok(dat_ia_openv(
            c_name().as_ptr().cast_mut(),
            4,
            &raw mut async_evd,
            &raw mut ia,
            1,
            2,
            DAT_FALSE,
        ));
        ok(dat_pz_create(ia, &raw mut pz));
        let flags = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG;
        ok(dat_evd_create(ia, 4, ptr::null_mut(), flags, &raw mut evd));
        ok(dat_srq_create(ia, pz, &raw mut attr, &raw mut other));
    }
    for (call, subtype) in [
        (Call { pz, ..good }, DAT_INVALID_HANDLE_PZ),
        (Call { recv: evd, ..good }, DAT_INVALID_HANDLE_EVD_RECV),
        (
            Call {
                request: evd,
                ..good
            },
            DAT_INVALID_HANDLE_EVD_REQUEST,
        ),
        (
            Call {
                connect: evd,
                ..good
            },
            DAT_INVALID_HANDLE_EVD_CONN,
        ),
        (Call { srq: other, ..good }, DAT_INVALID_HANDLE_SRQ),
    ] {
        call.fails(DAT_INVALID_HANDLE, subtype);
    }
    // SAFETY: a live handle.
    ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
}
