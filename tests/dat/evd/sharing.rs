//! Which streams may share one EVD: the flags it is created with, and the matrix.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::Evd;
use crate::support::{
    End, Fixture, ServicePoint, Shape, abilities, accept, c_name, dto, expect, fails, fails_with,
    nothing_on, ok, srq, take,
};

const NO: DAT_HANDLE = DAT_HANDLE_NULL;

/// In the order of the matrix.
const STREAMS: [DAT_EVD_FLAGS; 6] = [
    DAT_EVD_SOFTWARE_FLAG,
    DAT_EVD_CR_FLAG,
    DAT_EVD_DTO_FLAG,
    DAT_EVD_CONNECTION_FLAG,
    DAT_EVD_RMR_BIND_FLAG,
    DAT_EVD_ASYNC_FLAG,
];

/// Creates an endpoint with the EVD in one role and frees it again. Returns the
/// code.
fn endpoint(fixture: &Fixture, role: usize, evd: DAT_EVD_HANDLE) -> DAT_RETURN {
    let mut evds = [NO; 3];
    evds[role] = evd;
    let mut attributes = Shape::default().attributes();
    attributes.max_recv_dtos *= DAT_COUNT::from(role == 0);
    attributes.max_request_dtos *= DAT_COUNT::from(role == 1);
    let mut ep = ptr::null_mut();
    let [recv, request, connect] = evds;
    let (ia, pz) = (fixture.ia, fixture.pz);
    let attributes = &raw const attributes;
    // SAFETY: live handles or null, and a place for the result.
    unsafe {
        let answer = dat_ep_create(ia, pz, recv, request, connect, attributes, &raw mut ep);
        if answer == DAT_SUCCESS {
            ok(dat_ep_free(ep));
        }
        answer
    }
}

fn shared_service_point(fixture: &Fixture, evd: DAT_EVD_HANDLE) -> DAT_RETURN {
    let (mut qualifier, mut psp) = (0, ptr::null_mut());
    let flags = DAT_PSP_CONSUMER_FLAG;
    // SAFETY: live handles, and places for the results.
    unsafe {
        let answer = dat_psp_create_any(fixture.ia, &raw mut qualifier, evd, flags, &raw mut psp);
        if answer == DAT_SUCCESS {
            ok(dat_psp_free(psp));
        }
        answer
    }
}

/// Opens the adapter once more, with this EVD for its errors.
fn open(evd: DAT_EVD_HANDLE) -> DAT_RETURN {
    let (mut evd, mut ia) = (evd, ptr::null_mut());
    let name = c_name();
    let name = name.as_ptr().cast_mut();
    // SAFETY: every pointer leads to what the call expects.
    unsafe {
        let answer = dat_ia_openv(name, 8, &raw mut evd, &raw mut ia, 1, 2, DAT_FALSE);
        if answer == DAT_SUCCESS {
            ok(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
        }
        answer
    }
}

/// Every EVD in every role: it is accepted if it was created for that stream, and
/// otherwise refused with the role's subtype.
#[test]
fn evd_s01_an_evd_carries_the_streams_it_was_created_for() {
    let fixture = Fixture::new();
    for flags in STREAMS {
        let evd = fixture.evd(8, flags);
        let handle = |subtype| (DAT_INVALID_HANDLE, subtype);
        type Role<'b> = &'b dyn Fn() -> DAT_RETURN;
        let roles: [(
            &str,
            DAT_EVD_FLAGS,
            (DAT_RETURN, DAT_RETURN_SUBTYPE),
            Role<'_>,
        ); 6] = [
            (
                "recv",
                DAT_EVD_DTO_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_RECV),
                &|| endpoint(&fixture, 0, evd),
            ),
            (
                "request",
                DAT_EVD_DTO_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_REQUEST),
                &|| endpoint(&fixture, 1, evd),
            ),
            (
                "connect",
                DAT_EVD_CONNECTION_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_CONN),
                &|| endpoint(&fixture, 2, evd),
            ),
            (
                "service point",
                DAT_EVD_CR_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_CR),
                &|| shared_service_point(&fixture, evd),
            ),
            (
                "IA",
                DAT_EVD_ASYNC_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_ASYNC),
                &|| open(evd),
            ),
            (
                "post_se",
                DAT_EVD_SOFTWARE_FLAG,
                (DAT_INVALID_PARAMETER, DAT_INVALID_ARG1),
                &|| Evd(evd).try_post(1),
            ),
        ];
        for (role, wanted, (kind, subtype), call) in roles {
            println!("{role} on an EVD of flags {flags:#x}");
            match flags == wanted {
                true => ok(call()),
                false => fails_with(call(), kind, subtype),
            }
        }
    }
}

#[test]
fn evd_s02_the_matrix_is_symmetric_and_allowed_pairs_are_created() {
    let fixture = Fixture::new();
    let matrix = abilities(&fixture).1.evd_stream_merging_supported;
    for (row, one) in STREAMS.into_iter().enumerate() {
        assert_eq!(matrix[row][row], DAT_TRUE, "row {row}");
        for (column, other) in STREAMS.into_iter().enumerate() {
            let allowed = matrix[row][column];
            assert_eq!(allowed, matrix[column][row], "{row}, {column}");
            let mut evd = ptr::null_mut();
            // SAFETY: live handles, and a place for the result.
            let answer = unsafe { dat_evd_create(fixture.ia, 4, NO, one | other, &raw mut evd) };
            match allowed {
                DAT_FALSE => fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG4),
                _ => {
                    ok(answer);
                    assert_eq!(Evd(evd).query().evd_flags, one | other);
                    Evd(evd).calls(dat_evd_free);
                }
            }
        }
    }
    // All flags at once, as the pages allow.
    let all = STREAMS.into_iter().fold(0, |all, one| all | one);
    let evd = fixture.evd(4, all);
    ok(endpoint(&fixture, 2, evd));
    ok(shared_service_point(&fixture, evd));
    ok(open(evd));
    ok(Evd(evd).try_post(1));
    // And an unknown flag.
    let mut made = ptr::null_mut();
    // SAFETY: live handles, and a place for the result.
    let answer = unsafe { dat_evd_create(fixture.ia, 4, NO, 1 << 20, &raw mut made) };
    fails(answer, DAT_INVALID_PARAMETER);
}

/// If every completion notifies (the default flag), an endpoint's streams may
/// share an EVD with requests, connections and asynchronous errors, as streams
/// with the threshold flag may. All events come, in their order.
#[test]
fn evd_s03_streams_that_always_notify_share_with_every_other() {
    for flags in [
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    ] {
        println!("completion flags {flags:#x}");
        let fixture = Fixture::new();
        let kinds = DAT_EVD_DTO_FLAG
            | DAT_EVD_CONNECTION_FLAG
            | DAT_EVD_CR_FLAG
            | DAT_EVD_ASYNC_FLAG
            | DAT_EVD_RMR_BIND_FLAG;
        let evd = fixture.evd(32, kinds);
        let guest = fixture.beside(evd);
        assert_eq!(guest.async_evd, evd);
        let (mut qualifier, mut psp) = (0, ptr::null_mut());
        let point = DAT_PSP_CONSUMER_FLAG;
        let attributes = Shape {
            recv_flags: flags,
            request_flags: flags,
            ..Shape::default()
        }
        .attributes();
        let mut ep = ptr::null_mut();
        let of_ep = &raw const attributes;
        // SAFETY: live handles; results are writable.
        unsafe {
            ok(dat_psp_create_any(
                fixture.ia,
                &raw mut qualifier,
                evd,
                point,
                &raw mut psp,
            ));
            ok(dat_ep_create(
                fixture.ia,
                fixture.pz,
                evd,
                evd,
                evd,
                of_ep,
                &raw mut ep,
            ));
        }
        let end = End {
            ep,
            recv: evd,
            request: evd,
            connect: evd,
        };
        let service_point = ServicePoint {
            psp,
            qualifier,
            requests: evd,
        };
        let peer = End::new(&fixture, &Shape::default());
        ok(service_point.connect(peer.ep, &[]));
        ok(accept(service_point.take_request(), ep));
        expect(evd, DAT_CONNECTION_EVENT_ESTABLISHED);
        expect(peer.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
        let memory = fixture.memory(64);
        for one in [&end, &peer] {
            ok(one.post_recv(&[memory.segment(0, 8)], 1));
        }
        for one in [&end, &peer] {
            ok(one.post_send(&[memory.segment(32, 8)], 2, DAT_COMPLETION_DEFAULT_FLAG));
        }
        fixture.run();
        let mut done = [(); 2].map(|()| {
            let done = dto(&take(evd, "completion"));
            (done.cookie, done.status)
        });
        done.sort_unstable();
        assert_eq!(done, [(1, DAT_DTO_SUCCESS), (2, DAT_DTO_SUCCESS)]);
        // SAFETY: a live handle.
        ok(unsafe { dat_srq_set_lw(srq(&guest, 4), 2) });
        expect(evd, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR);
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_disconnect(peer.ep, DAT_CLOSE_ABRUPT_FLAG) });
        expect(evd, DAT_CONNECTION_EVENT_DISCONNECTED);
        nothing_on(evd);
        // Streams with other flags are refused.
        for other in [
            DAT_COMPLETION_UNSIGNALLED_FLAG,
            DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        ] {
            let mut attributes = attributes;
            attributes.recv_completion_flags = other;
            let apart = End::without_ep(&fixture, &Shape::default());
            let mut made = ptr::null_mut();
            let of_ep = &raw const attributes;
            let mut create = |recv| {
                // SAFETY: live handles, null or not; the result is writable.
                unsafe {
                    dat_ep_create(
                        fixture.ia,
                        fixture.pz,
                        recv,
                        apart.request,
                        apart.connect,
                        of_ep,
                        &raw mut made,
                    )
                }
            };
            fails(create(evd), DAT_INVALID_PARAMETER);
            ok(create(apart.recv));
        }
    }
}
