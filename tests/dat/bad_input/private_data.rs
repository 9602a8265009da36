//! Private data: too long, too short, or missing.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, ServicePoint, Shape, abilities, expect, fails_with, ok, state_of,
};

fn accept(
    request: DAT_CR_HANDLE,
    ep: DAT_EP_HANDLE,
    size: DAT_COUNT,
    data: *const u8,
) -> DAT_RETURN {
    // SAFETY: `data` has as many bytes as the library may read.
    unsafe { dat_cr_accept(request, ep, size, data.cast_mut().cast()) }
}

#[test]
fn private_data_that_is_too_long_is_refused_and_what_fits_arrives_whole() {
    let fixture = Fixture::new();
    let most = abilities(&fixture).1.max_private_data_size;
    // The length that rdma_cm carries.
    assert!(most >= 56, "{most}");
    let data: Vec<u8> = (0..=most as usize).map(|at| at as u8 ^ 0x5a).collect();
    let (active, passive) = (
        End::new(&fixture, &Shape::default()),
        End::new(&fixture, &Shape::default()),
    );
    let service_point = ServicePoint::new(&fixture);
    fails_with(
        service_point.connect(active.ep, &data),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG5,
    );
    assert_eq!(state_of(active.ep), DAT_EP_STATE_UNCONNECTED);
    ok(service_point.connect(active.ep, &data[..most as usize]));
    let request = service_point.take_request();
    // SAFETY: integers and pointers, for which zero is valid; the result is
    // writable; the data live as long as the request.
    unsafe {
        let mut info: DAT_CR_PARAM = std::mem::zeroed();
        ok(dat_cr_query(request, DAT_CR_FIELD_ALL, &raw mut info));
        assert_eq!(info.private_data_size, most);
        let got = std::slice::from_raw_parts(info.private_data.cast::<u8>(), most as usize);
        assert_eq!(got, &data[..most as usize]);
    }
    // The request stays valid after refusals.
    for (size, from, subtype) in [
        (most + 1, data.as_ptr(), DAT_INVALID_ARG3),
        (DAT_COUNT::MAX, data.as_ptr(), DAT_INVALID_ARG3),
        (-1, data.as_ptr(), DAT_INVALID_ARG3),
        (DAT_COUNT::MIN, data.as_ptr(), DAT_INVALID_ARG3),
        (1, ptr::null(), DAT_INVALID_ARG4),
    ] {
        fails_with(
            accept(request, passive.ep, size, from),
            DAT_INVALID_PARAMETER,
            subtype,
        );
        assert_eq!(state_of(passive.ep), DAT_EP_STATE_UNCONNECTED);
        assert_eq!(state_of(active.ep), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    }
    ok(accept(request, passive.ep, most, data.as_ptr()));
    let event = expect(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    // SAFETY: the event number selects this member; the data live as long as the
    // endpoint is connected.
    unsafe {
        let info = event.event_data.connect_event_data;
        assert_eq!(info.private_data_size, most);
        let got = std::slice::from_raw_parts(info.private_data.cast::<u8>(), most as usize);
        assert_eq!(got, &data[..most as usize]);
    }
    service_point.close();
}

#[test]
fn private_data_of_absurd_sizes_are_refused_unread() {
    let fixture = Fixture::new();
    let end = End::new(&fixture, &Shape::default());
    let mut address = Pair::address();
    let nowhere = ptr::without_provenance_mut(8);
    for (size, data, subtype) in [
        (-1, nowhere, DAT_INVALID_ARG5),
        (DAT_COUNT::MIN, nowhere, DAT_INVALID_ARG5),
        (DAT_COUNT::MAX, nowhere, DAT_INVALID_ARG5),
        (1 << 20, nowhere, DAT_INVALID_ARG5),
        (8, ptr::null_mut(), DAT_INVALID_ARG6),
    ] {
        // SAFETY: the call must not read through the pointer.
        let answer = unsafe {
            dat_ep_connect(
                end.ep,
                (&raw mut address).cast(),
                4711,
                1_000_000,
                size,
                data,
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_DEFAULT_FLAG,
            )
        };
        fails_with(answer, DAT_INVALID_PARAMETER, subtype);
        assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
    }
}
