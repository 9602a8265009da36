//! Invalid counts, pointers and names.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, ServicePoint, Shape, abilities, cookie, dequeue, fails, fails_with, held,
    nothing_on, ok, post_srq, srq, srq_info, state_of,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

#[test]
fn absurd_counts_of_segments_are_refused_unread() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let pair = Pair::new(&fixture, &Shape::default());
    let ep = pair.active.ep;
    let mut iov = [memory.segment(0, 8)];
    let remote = memory.remote(0, 8);
    for count in [-1, DAT_COUNT::MIN, DAT_COUNT::MAX, 1 << 20, 17] {
        for list in [iov.as_mut_ptr(), ptr::without_provenance_mut(8)] {
            let tag = cookie(1);
            // SAFETY: the call must not read through the pointer.
            unsafe {
                for answer in [
                    dat_ep_post_send(ep, count, list, tag, DEFAULT),
                    dat_ep_post_recv(ep, count, list, tag, DEFAULT),
                    dat_ep_post_rdma_read(ep, count, list, tag, &raw const remote, DEFAULT),
                    dat_ep_post_rdma_write(ep, count, list, tag, &raw const remote, DEFAULT),
                    dat_srq_post_recv(queue, count, list, tag),
                ] {
                    fails(answer, DAT_INVALID_PARAMETER);
                }
            }
        }
    }
    fixture.run();
    nothing_on(pair.active.request);
    assert_eq!(held(ep), (0, 0));
    assert_eq!(srq_info(queue).outstanding_dto_count, 0);
    assert_eq!(state_of(ep), DAT_EP_STATE_CONNECTED);
}

#[test]
fn absurd_sizes_of_queues_are_refused() {
    let fixture = Fixture::new();
    let limits = abilities(&fixture).0;
    for qlen in [-1, DAT_COUNT::MIN, DAT_COUNT::MAX, limits.max_evd_qlen + 1] {
        let mut evd = ptr::without_provenance_mut(0x77);
        // SAFETY: a live adapter; the result is writable.
        let answer = unsafe {
            dat_evd_create(
                fixture.ia,
                qlen,
                DAT_HANDLE_NULL,
                DAT_EVD_DTO_FLAG,
                &raw mut evd,
            )
        };
        assert_ne!(answer, DAT_SUCCESS, "{qlen}");
        assert_eq!(evd.addr(), 0x77);
    }
    for (dtos, iov) in [
        (0, 1),
        (-1, 1),
        (DAT_COUNT::MIN, 1),
        (DAT_COUNT::MAX, 1),
        (limits.max_recv_per_srq + 1, 1),
        (8, 0),
        (8, -1),
        (8, DAT_COUNT::MAX),
    ] {
        let mut attr = DAT_SRQ_ATTR {
            max_recv_dtos: dtos,
            max_recv_iov: iov,
            low_watermark: 0,
        };
        let mut queue = ptr::without_provenance_mut(0x77);
        // SAFETY: live handles; attributes and result are local.
        let answer =
            unsafe { dat_srq_create(fixture.ia, fixture.pz, &raw mut attr, &raw mut queue) };
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
        assert_eq!(queue.addr(), 0x77);
    }
    for value in [
        -1,
        DAT_COUNT::MIN,
        DAT_COUNT::MAX,
        limits.max_dto_per_ep + 1,
    ] {
        let end = End::without_ep(&fixture, &Shape::default());
        let changes: [fn(&mut DAT_EP_ATTR, DAT_COUNT); 3] = [
            |attr, value| attr.max_recv_dtos = value,
            |attr, value| attr.max_request_dtos = value,
            |attr, value| attr.max_request_iov = value,
        ];
        for change in changes {
            let mut attr = Shape::default().attributes();
            change(&mut attr, value);
            let mut ep = ptr::without_provenance_mut(0x77);
            // SAFETY: live handles; attributes and result are local.
            let answer = unsafe {
                dat_ep_create(
                    fixture.ia,
                    fixture.pz,
                    end.recv,
                    end.request,
                    end.connect,
                    &raw const attr,
                    &raw mut ep,
                )
            };
            fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
            assert_eq!(ep.addr(), 0x77);
        }
    }
}

/// Passes null for every result pointer.
#[test]
fn null_results_are_refused_and_nothing_is_created() {
    let mut fixture = Fixture::new();
    let (ia, pz) = (fixture.ia, fixture.pz);
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let end = End::new(&fixture, &Shape::default());
    let attr = Shape::default().attributes();
    let requests = fixture.evd(4, DAT_EVD_CR_FLAG);
    let service_point = ServicePoint::new(&fixture);
    ok(service_point.connect(end.ep, &[]));
    let request = service_point.take_request();
    let mut srq_attr = DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let mut psp = ptr::null_mut();
    // SAFETY: null pointers are under test; everything else is live and writable.
    let answers = unsafe {
        [
            dat_pz_create(ia, ptr::null_mut()),
            dat_evd_create(
                ia,
                4,
                DAT_HANDLE_NULL,
                DAT_EVD_SOFTWARE_FLAG,
                ptr::null_mut(),
            ),
            dat_srq_create(ia, pz, &raw mut srq_attr, ptr::null_mut()),
            dat_srq_create(ia, pz, ptr::null_mut(), &raw mut psp),
            dat_ep_create(
                ia,
                pz,
                end.recv,
                end.request,
                end.connect,
                &raw const attr,
                ptr::null_mut(),
            ),
            dat_psp_create(ia, 5555, requests, DAT_PSP_CONSUMER_FLAG, ptr::null_mut()),
            dat_psp_create_any(
                ia,
                ptr::null_mut(),
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            ),
            dat_ep_query(end.ep, DAT_EP_FIELD_ALL, ptr::null_mut()),
            dat_ep_modify(end.ep, DAT_EP_FIELD_PZ_HANDLE, ptr::null()),
            dat_evd_query(end.recv, DAT_EVD_FIELD_ALL, ptr::null_mut()),
            dat_srq_query(queue, DAT_SRQ_FIELD_ALL, ptr::null_mut()),
            dat_pz_query(pz, DAT_PZ_FIELD_ALL, ptr::null_mut()),
            dat_psp_query(service_point.psp, DAT_PSP_FIELD_ALL, ptr::null_mut()),
            dat_cr_query(request, DAT_CR_FIELD_ALL, ptr::null_mut()),
            dat_lmr_query(memory.lmr, DAT_LMR_FIELD_ALL, ptr::null_mut()),
            dat_evd_dequeue(end.recv, ptr::null_mut()),
        ]
    };
    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(
            answer & 0x3fff_0000,
            DAT_INVALID_PARAMETER,
            "call {at}: {answer:#x}"
        );
    }
    // Everything that was created is freed here, so the adapter closes
    // gracefully. SAFETY: live handles.
    unsafe {
        ok(dat_cr_reject(request));
        ok(dat_ep_free(end.ep));
        service_point.close();
        for evd in [end.recv, end.request, end.connect, requests] {
            ok(dat_evd_free(evd));
        }
        ok(dat_srq_free(queue));
        ok(memory.free());
        ok(dat_pz_free(pz));
    }
    ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
}

/// A C structure at an odd address is read where that is harmless, and refused
/// otherwise.
#[test]
fn misaligned_pointers_are_read_or_refused() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    let mut room = [0_u8; 1024];
    let odd = |size: usize| {
        let base = room.as_ptr().addr();
        let at = 1 + base.next_multiple_of(16) - base;
        assert!(at + size < room.len());
        at
    };
    // Segments of posts.
    let at = odd(2 * size_of::<DAT_LMR_TRIPLET>());
    let list: *mut DAT_LMR_TRIPLET = room[at..].as_mut_ptr().cast();
    // SAFETY: in the array, unaligned.
    unsafe {
        list.write_unaligned(memory.segment(0, 8));
        list.add(1).write_unaligned(memory.segment(64, 8));
        ok(dat_ep_post_recv(end.ep, 1, list, cookie(1), DEFAULT));
        ok(dat_ep_post_recv(end.ep, 2, list, cookie(2), DEFAULT));
    }
    assert_eq!(held(end.ep), (2, 2));
    // Attributes.
    let at = {
        let base = room.as_ptr().addr();
        1 + base.next_multiple_of(16) - base
    };
    let attr: *mut DAT_EP_ATTR = room[at..].as_mut_ptr().cast();
    let queue = srq(&fixture, 8);
    let mut ep = ptr::without_provenance_mut(0x77);
    // SAFETY: inside the array; unaligned, which is under test.
    unsafe {
        let mut attributes = Shape::default().attributes();
        attributes.max_recv_dtos = DAT_HW_DEFAULT;
        attr.write_unaligned(attributes);
        let answer = dat_ep_create(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            attr,
            &raw mut ep,
        );
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
        let answer = dat_ep_create_with_srq(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            queue,
            attr,
            &raw mut ep,
        );
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
    }
    assert_eq!(ep.addr(), 0x77);
    // Results.
    let count: *mut DAT_COUNT = room[at..].as_mut_ptr().cast();
    // SAFETY: in the array.
    unsafe {
        ok(dat_ep_recv_query(end.ep, count, count.byte_add(4)));
        assert_eq!(count.read_unaligned(), 2);
    }
}

#[test]
fn a_qualifier_in_use_is_refused_until_it_is_free_again() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let requests = fixture.evd(4, DAT_EVD_CR_FLAG);
    let create = |qualifier| {
        let mut psp = ptr::without_provenance_mut(0x77);
        // SAFETY: live handles; the result is writable.
        let answer = unsafe {
            dat_psp_create(
                fixture.ia,
                qualifier,
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        };
        (answer, psp)
    };
    for _ in 0..3 {
        let (answer, psp) = create(service_point.qualifier);
        fails(answer, DAT_CONN_QUAL_IN_USE);
        assert_eq!(psp.addr(), 0x77);
    }
    // The first one still listens.
    let end = End::new(&fixture, &Shape::default());
    ok(service_point.connect(end.ep, &[]));
    // SAFETY: live handles.
    unsafe {
        ok(dat_cr_reject(service_point.take_request()));
        service_point.close();
        let (answer, psp) = create(service_point.qualifier);
        ok(answer);
        ok(dat_psp_free(psp));
        // Invalid qualifiers and flags.
        fails_with(create(0).0, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        let mut psp = ptr::null_mut();
        for flags in [2, DAT_PSP_FLAGS::MAX] {
            let answer = dat_psp_create(fixture.ia, 7777, requests, flags, &raw mut psp);
            fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
        }
        // An EVD without the connection-request flag.
        let answer = dat_psp_create(
            fixture.ia,
            7777,
            end.recv,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        );
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
    }
}

/// A port that another program uses is in use for a service point too.
#[test]
fn a_port_of_another_program_is_in_use() {
    let fixture = Fixture::new();
    // This socket conflicts with every address that the library may listen on:
    // from 1024 on, the qualifier is the port.
    let taken = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    assert!(port >= 1024);
    let qualifier = u64::from(port);
    let requests = fixture.evd(4, DAT_EVD_CR_FLAG);
    let mut psp = ptr::null_mut();
    // SAFETY: live handles; the result is writable.
    let answer = unsafe {
        dat_psp_create(
            fixture.ia,
            qualifier,
            requests,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        )
    };
    fails(answer, DAT_CONN_QUAL_IN_USE);
    drop(taken);
}

#[test]
fn bad_arguments_of_connect_are_refused_and_leave_the_endpoint_unconnected() {
    let fixture = Fixture::new();
    let end = End::new(&fixture, &Shape::default());
    let mut address = Pair::address();
    // SAFETY: integers, for which zero is valid.
    let mut strange: libc::sockaddr = unsafe { mem::zeroed() };
    strange.sa_family = libc::AF_UNIX as libc::sa_family_t;
    let good: DAT_IA_ADDRESS_PTR = (&raw mut address).cast();
    let connect = |address, timeout, qos, flags| {
        // SAFETY: an address, or null; no private data.
        unsafe {
            dat_ep_connect(
                end.ep,
                address,
                4711,
                timeout,
                0,
                ptr::null_mut(),
                qos,
                flags,
            )
        }
    };
    let fine = DAT_CONNECT_DEFAULT_FLAG;
    fails_with(
        connect(ptr::null_mut(), 1, 0, fine),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG2,
    );
    fails(connect(&raw mut strange, 1, 0, fine), DAT_INVALID_ADDRESS);
    fails_with(
        connect(good, 0, 0, fine),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG4,
    );
    for qos in [DAT_QOS_PREMIUM, DAT_QOS::MAX] {
        fails(connect(good, 1, qos, fine), DAT_MODEL_NOT_SUPPORTED);
    }
    for flags in [DAT_CONNECT_MULTIPATH_FLAG, 0x8000] {
        fails(connect(good, 1, 0, flags), DAT_MODEL_NOT_SUPPORTED);
    }
    assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
    for flags in [2, DAT_CLOSE_FLAGS::MAX] {
        // SAFETY: a live handle.
        let answer = unsafe { dat_ep_disconnect(end.ep, flags) };
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    }
    nothing_on(end.connect);
}

/// Frees objects twice and while they are in use, and queries with an empty mask.
#[test]
fn objects_are_freed_once_and_not_while_in_use() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let end = End::on_srq(&fixture, &Shape::default(), queue);
    ok(post_srq(queue, &[memory.segment(0, 8)], 1));
    // SAFETY: the calls validate their handles, live or not.
    unsafe {
        for evd in [end.recv, end.request, end.connect] {
            fails(dat_evd_free(evd), DAT_INVALID_STATE);
        }
        fails(dat_pz_free(fixture.pz), DAT_INVALID_STATE);
        fails(dat_srq_free(queue), DAT_INVALID_STATE);
        ok(dat_ep_free(end.ep));
        fails_with(
            dat_ep_free(end.ep),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        );
        for evd in [end.recv, end.request, end.connect] {
            ok(dat_evd_free(evd));
            fails(dat_evd_free(evd), DAT_INVALID_HANDLE);
            assert!(dequeue(evd).is_err());
        }
        ok(dat_srq_free(queue));
        fails(dat_srq_free(queue), DAT_INVALID_HANDLE);
        let mut info = mem::zeroed();
        fails_with(
            dat_pz_query(fixture.pz, 0x8000, &raw mut info),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        );
        fails(dat_ep_reset(end.ep), DAT_INVALID_HANDLE);
        fails(
            dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG),
            DAT_INVALID_HANDLE,
        );
    }
}
