//! Handles of another open adapter on the same device: live and of the right
//! kind, but refused.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, Pair, ServicePoint, Shape, accept, ep_info, established, fails,
    fails_with, ok, on_free_qualifier, srq, srq_in,
};

/// Type and subtype of a return code.
type Refusal = (DAT_RETURN, DAT_RETURN_SUBTYPE);

const fn handle(subtype: DAT_RETURN_SUBTYPE) -> Refusal {
    (DAT_INVALID_HANDLE, subtype)
}

/// Creates a queue in a zone, and frees it again.
fn queue(fixture: &Fixture, pz: DAT_PZ_HANDLE) -> DAT_RETURN {
    let attributes = DAT_SRQ_ATTR {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: DAT_SRQ_LW_DEFAULT,
    };
    let mut srq = ptr::null_mut();
    // SAFETY: live handles; attributes and result are local.
    unsafe {
        let answer = dat_srq_create(
            fixture.ia,
            pz,
            (&raw const attributes).cast_mut(),
            &raw mut srq,
        );
        if answer == DAT_SUCCESS {
            ok(dat_srq_free(srq));
        }
        answer
    }
}

/// Creates an LMR of another LMR, and frees it again.
fn region(fixture: &Fixture, source: DAT_LMR_HANDLE) -> DAT_RETURN {
    let region = DAT_REGION_DESCRIPTION {
        for_lmr_handle: source,
    };
    let (mut lmr, mut context) = (ptr::null_mut(), 0);
    // SAFETY: live handles; results are writable or null.
    unsafe {
        let answer = dat_lmr_create(
            fixture.ia,
            DAT_MEM_TYPE_LMR,
            region,
            64,
            fixture.pz,
            DAT_MEM_PRIV_ALL_FLAG,
            &raw mut lmr,
            &raw mut context,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
        );
        if answer == DAT_SUCCESS {
            ok(dat_lmr_free(lmr));
        }
        answer
    }
}

/// Creates a public service point, and frees it again.
fn public(fixture: &Fixture, requests: DAT_EVD_HANDLE) -> DAT_RETURN {
    let (mut qualifier, mut psp) = (0, ptr::null_mut());
    let flags = DAT_PSP_CONSUMER_FLAG;
    // SAFETY: live handles; results are writable.
    unsafe {
        let answer = dat_psp_create_any(
            fixture.ia,
            &raw mut qualifier,
            requests,
            flags,
            &raw mut psp,
        );
        if answer == DAT_SUCCESS {
            ok(dat_psp_free(psp));
        }
        answer
    }
}

/// Creates a reserved service point, and frees it again.
fn reserved(fixture: &Fixture, ep: DAT_EP_HANDLE, requests: DAT_EVD_HANDLE) -> DAT_RETURN {
    let mut refusal = DAT_SUCCESS;
    on_free_qualifier(|qualifier| {
        let mut rsp = ptr::null_mut();
        // SAFETY: live handles; the result is writable.
        refusal = unsafe { dat_rsp_create(fixture.ia, qualifier, ep, requests, &raw mut rsp) };
        match refusal {
            // SAFETY: a live handle.
            DAT_SUCCESS => ok(unsafe { dat_rsp_free(rsp) }),
            answer if answer & 0x3fff_0000 == DAT_CONN_QUAL_IN_USE => return answer,
            _ => {}
        }
        DAT_SUCCESS
    });
    refusal
}

fn synced(fixture: &Fixture, memory: &Memory) -> [DAT_RETURN; 2] {
    let segment = memory.segment(0, 8);
    // SAFETY: live handles; one segment.
    unsafe {
        [
            dat_lmr_sync_rdma_read(fixture.ia, &raw const segment, 1),
            dat_lmr_sync_rdma_write(fixture.ia, &raw const segment, 1),
        ]
    }
}

/// Sets another zone for an endpoint.
fn moved(ep: DAT_EP_HANDLE, pz: DAT_PZ_HANDLE) -> DAT_RETURN {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut change: DAT_EP_PARAM = unsafe { mem::zeroed() };
    change.pz_handle = pz;
    // SAFETY: live handles; the values are local.
    unsafe { dat_ep_modify(ep, DAT_EP_FIELD_PZ_HANDLE, &raw const change) }
}

/// Each call succeeds with an object of its own adapter, and fails with the same
/// kind of object of another.
#[test]
fn an_object_of_another_adapter_is_refused() {
    let own = Fixture::strict();
    let other = own.beside(ptr::null_mut());
    let requests = [&own, &other].map(|fixture| fixture.evd(4, DAT_EVD_CR_FLAG));
    let memory = [&own, &other].map(|fixture| fixture.memory(64));
    let ends = [&own, &other].map(|fixture| End::new(fixture, &Shape::default()));
    let zones = [own.pz(), other.pz];
    let at = |place: usize| -> [(&str, DAT_RETURN, Refusal); 8] {
        let [read, write] = synced(&own, &memory[place]);
        let (evd, zone) = (
            handle(DAT_INVALID_HANDLE_EVD_CR),
            handle(DAT_INVALID_HANDLE_PZ),
        );
        let bad = |subtype| (DAT_INVALID_PARAMETER, subtype);
        [
            ("EVD of a PSP", public(&own, requests[place]), evd),
            (
                "EVD of an RSP",
                reserved(&own, ends[0].ep, requests[place]),
                evd,
            ),
            (
                "EP of an RSP",
                reserved(&own, ends[place].ep, requests[0]),
                handle(DAT_INVALID_HANDLE_EP),
            ),
            ("PZ of an SRQ", queue(&own, zones[place]), zone),
            (
                "LMR of an LMR",
                region(&own, memory[place].lmr),
                handle(DAT_INVALID_HANDLE_LMR),
            ),
            ("segment before a read", read, bad(DAT_INVALID_ARG2)),
            ("segment after a write", write, bad(DAT_INVALID_ARG2)),
            (
                "PZ of an EP",
                moved(ends[0].ep, zones[place]),
                bad(DAT_INVALID_ARG3),
            ),
        ]
    };
    for (row, answer, _) in at(0) {
        println!("{row}, of its own");
        ok(answer);
    }
    for (row, answer, (kind, subtype)) in at(1) {
        println!("{row}, of another");
        fails_with(answer, kind, subtype);
    }
    // The refused calls have changed nothing.
    assert_eq!(ep_info(ends[0].ep).pz_handle, zones[0]);
    assert_eq!(ep_info(ends[1].ep).ep_state, DAT_EP_STATE_UNCONNECTED);
    for fixture in [&own, &other] {
        // SAFETY: a live handle that only this test uses.
        ok(unsafe { dat_srq_free(srq_in(fixture, fixture.pz, 4)) });
    }
}

/// A request of one adapter cannot be accepted with an endpoint of another, and
/// remains for an endpoint of its own.
#[test]
fn a_request_is_not_accepted_with_an_endpoint_of_another_adapter() {
    let own = Fixture::new();
    let other = own.beside(ptr::null_mut());
    let shape = Shape::default();
    let service_point = ServicePoint::new(&own);
    let (active, passive) = (End::new(&own, &shape), End::new(&own, &shape));
    let foreign = End::new(&other, &shape);
    ok(service_point.connect(active.ep, &[]));
    let cr = service_point.take_request();
    let (kind, subtype) = handle(DAT_INVALID_HANDLE_EP);
    fails_with(accept(cr, foreign.ep), kind, subtype);
    assert_eq!(ep_info(foreign.ep).ep_state, DAT_EP_STATE_UNCONNECTED);
    ok(accept(cr, passive.ep));
    established([&active, &passive]);
}

/// Creates an endpoint of these parts, on the queue if there is one, and frees it
/// again.
fn endpoint(fixture: &Fixture, pz: DAT_PZ_HANDLE, evds: &End, queue: DAT_SRQ_HANDLE) -> DAT_RETURN {
    let mut attributes = Shape::default().attributes();
    let mut ep = ptr::null_mut();
    let End {
        recv,
        request,
        connect,
        ..
    } = *evds;
    // SAFETY: live handles; attributes and result are local.
    unsafe {
        let answer = if queue.is_null() {
            let attributes = &raw const attributes;
            dat_ep_create(
                fixture.ia,
                pz,
                recv,
                request,
                connect,
                attributes,
                &raw mut ep,
            )
        } else {
            attributes.max_recv_dtos = DAT_HW_DEFAULT;
            let attributes = &raw const attributes;
            dat_ep_create_with_srq(
                fixture.ia,
                pz,
                recv,
                request,
                connect,
                queue,
                attributes,
                &raw mut ep,
            )
        };
        if answer == DAT_SUCCESS {
            ok(dat_ep_free(ep));
        }
        answer
    }
}

#[test]
fn an_endpoint_is_not_created_with_parts_of_another_adapter() {
    let own = Fixture::strict();
    let other = own.beside(ptr::null_mut());
    let shape = Shape::default();
    let [evds, theirs] = [&own, &other].map(|fixture| End::without_ep(fixture, &shape));
    let queues = [srq(&own, 4), srq_in(&other, other.pz, 4)];
    let none = DAT_HANDLE_NULL;
    ok(endpoint(&own, own.pz, &evds, none));
    ok(endpoint(&own, own.pz, &evds, queues[0]));
    let rows = [
        (endpoint(&own, other.pz, &evds, none), DAT_INVALID_HANDLE_PZ),
        (
            endpoint(
                &own,
                own.pz,
                &End {
                    recv: theirs.recv,
                    ..evds
                },
                none,
            ),
            DAT_INVALID_HANDLE_EVD_RECV,
        ),
        (
            endpoint(
                &own,
                own.pz,
                &End {
                    request: theirs.request,
                    ..evds
                },
                none,
            ),
            DAT_INVALID_HANDLE_EVD_REQUEST,
        ),
        (
            endpoint(
                &own,
                own.pz,
                &End {
                    connect: theirs.connect,
                    ..evds
                },
                none,
            ),
            DAT_INVALID_HANDLE_EVD_CONN,
        ),
        (
            endpoint(&own, own.pz, &evds, queues[1]),
            DAT_INVALID_HANDLE_SRQ,
        ),
    ];
    for (answer, subtype) in rows {
        fails_with(answer, DAT_INVALID_HANDLE, subtype);
    }
}

/// Neither side of the connection notices.
#[test]
fn memory_of_another_adapter_is_refused_and_messages_pass() {
    let own = Fixture::new();
    let other = own.beside(ptr::null_mut());
    let (memory, theirs) = (own.memory(64), other.memory(64));
    let pair = Pair::new(&own, &Shape::default());
    let segment = [theirs.segment(0, 8)];
    let flags = DAT_COMPLETION_DEFAULT_FLAG;
    fails(
        pair.passive.post_recv(&segment, 1),
        DAT_PROTECTION_VIOLATION,
    );
    fails(
        pair.active.post_send(&segment, 1, flags),
        DAT_PROTECTION_VIOLATION,
    );
    ok(pair.passive.post_recv(&[memory.segment(8, 8)], 2));
    ok(pair.active.post_send(&[memory.segment(0, 8)], 3, flags));
    own.run();
    assert_eq!(pair.passive.received().cookie, 2);
    assert_eq!(pair.active.requested().cookie, 3);
}
