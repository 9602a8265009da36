//! Which streams may meet on one EVD: the flags it is made with, and the matrix.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::Evd;
use crate::support::{Bed, Shape, abilities, c_name, fails, fails_with, ok};

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

/// Makes an endpoint with the EVD in one role, and answers; it is freed again.
fn endpoint(bed: &Bed, role: usize, evd: DAT_EVD_HANDLE) -> DAT_RETURN {
    let mut evds = [NO; 3];
    evds[role] = evd;
    let mut attributes = Shape::default().attributes();
    attributes.max_recv_dtos *= DAT_COUNT::from(role == 0);
    attributes.max_request_dtos *= DAT_COUNT::from(role == 1);
    let mut ep = ptr::null_mut();
    let [recv, request, connect] = evds;
    let (ia, pz) = (bed.ia, bed.pz);
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

fn service_point(bed: &Bed, evd: DAT_EVD_HANDLE) -> DAT_RETURN {
    let (mut qualifier, mut psp) = (0, ptr::null_mut());
    let flags = DAT_PSP_CONSUMER_FLAG;
    // SAFETY: live handles, and places for the results.
    unsafe {
        let answer = dat_psp_create_any(bed.ia, &raw mut qualifier, evd, flags, &raw mut psp);
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

/// Every EVD in every role: it goes if the EVD was made for that stream, and is
/// refused by the name of the role else.
#[test]
fn evd_s01_an_evd_carries_the_streams_it_was_made_for() {
    let bed = Bed::new();
    for flags in STREAMS {
        let evd = bed.evd(8, flags);
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
                &|| endpoint(&bed, 0, evd),
            ),
            (
                "request",
                DAT_EVD_DTO_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_REQUEST),
                &|| endpoint(&bed, 1, evd),
            ),
            (
                "connect",
                DAT_EVD_CONNECTION_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_CONN),
                &|| endpoint(&bed, 2, evd),
            ),
            (
                "service point",
                DAT_EVD_CR_FLAG,
                handle(DAT_INVALID_HANDLE_EVD_CR),
                &|| service_point(&bed, evd),
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
fn evd_s02_the_matrix_is_symmetric_and_what_it_allows_is_made() {
    let bed = Bed::new();
    let matrix = abilities(&bed).1.evd_stream_merging_supported;
    for (row, one) in STREAMS.into_iter().enumerate() {
        assert_eq!(matrix[row][row], DAT_TRUE, "row {row}");
        for (column, other) in STREAMS.into_iter().enumerate() {
            let allowed = matrix[row][column];
            assert_eq!(allowed, matrix[column][row], "{row}, {column}");
            let mut evd = ptr::null_mut();
            // SAFETY: live handles, and a place for the result.
            let answer = unsafe { dat_evd_create(bed.ia, 4, NO, one | other, &raw mut evd) };
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
    // All at once, as pages want it.
    let all = STREAMS.into_iter().fold(0, |all, one| all | one);
    let evd = bed.evd(4, all);
    ok(endpoint(&bed, 2, evd));
    ok(service_point(&bed, evd));
    ok(open(evd));
    ok(Evd(evd).try_post(1));
    // And none that there is not.
    let mut made = ptr::null_mut();
    // SAFETY: live handles, and a place for the result.
    let answer = unsafe { dat_evd_create(bed.ia, 4, NO, 1 << 20, &raw mut made) };
    fails(answer, DAT_INVALID_PARAMETER);
}
