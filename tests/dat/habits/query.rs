//! The remote address in `dat_ep_query`.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, ServicePoint, Shape, ep_info, expect, here_ip, ip_at, ok, srq,
};

/// Returns the family of the address of an endpoint, having read all its bytes.
#[track_caller]
fn family_at(at: DAT_IA_ADDRESS_PTR) -> libc::c_int {
    assert!(!at.is_null());
    // SAFETY: the manual promises this many bytes, as long as the endpoint lives.
    let all: [u8; size_of::<libc::sockaddr_in6>()] = unsafe { at.cast::<[u8; 28]>().read() };
    // SAFETY: every address begins with its family.
    let family = libc::c_int::from(unsafe { (*at).sa_family });
    assert!(family != libc::AF_UNSPEC || all == [0; 28], "{all:?}");
    family
}

fn address_of(end: &End) -> DAT_IA_ADDRESS_PTR {
    ep_info(end.ep).remote_ia_address_ptr
}

/// Disconnects both ends.
#[track_caller]
fn part(pair: &Pair) {
    // SAFETY: live endpoints.
    unsafe {
        ok(dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG));
        for end in [pair.active, pair.passive] {
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        }
    }
}

#[test]
fn habit_09_the_remote_address_can_always_be_read() {
    let fixture = Fixture::with_strict(false);
    let shape = Shape::default();
    let queue = srq(&fixture, 8);
    let ends = [
        End::new(&fixture, &shape),
        End::on_srq(&fixture, &shape, queue),
    ];
    let before = ends.map(|end| address_of(&end));
    for at in before {
        assert_eq!(family_at(at), libc::AF_UNSPEC, "no peer yet");
    }
    for round in 0..2 {
        let pair = Pair::connect(&fixture, ends[0], ends[1]);
        let peers = || {
            for (end, at) in ends.iter().zip(before) {
                assert_eq!(address_of(end), at, "it has moved");
                // Also without another query.
                assert_eq!(ip_at(at), here_ip(), "round {round}");
            }
        };
        peers();
        part(&pair);
        peers();
        for end in ends {
            // SAFETY: a live endpoint.
            ok(unsafe { dat_ep_reset(end.ep) });
        }
        peers();
        for end in ends {
            assert_eq!(
                ep_info(end.ep).remote_port_qual,
                0,
                "only the address stays"
            );
        }
    }
}

/// An endpoint without EVDs and zone, one that a service point creates, and one
/// that nobody accepts.
#[test]
fn habit_09_the_remote_address_of_other_endpoints_can_be_read() {
    let fixture = Fixture::with_strict(false);
    let (null, mut ep) = (ptr::null_mut(), ptr::null_mut());
    let (ia, none) = (fixture.ia, ptr::null());
    // SAFETY: a live adapter; the result is writable.
    ok(unsafe { dat_ep_create(ia, null, null, null, null, none, &raw mut ep) });
    assert_eq!(
        family_at(ep_info(ep).remote_ia_address_ptr),
        libc::AF_UNSPEC
    );
    let service_point = ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG);
    let active = End::new(&fixture, &Shape::default());
    ok(service_point.connect(active.ep, &[]));
    let cr = service_point.take_request();
    let brought = crate::support::cr_info(cr).local_ep_handle;
    assert_eq!(ip_at(ep_info(brought).remote_ia_address_ptr), here_ip());
    // SAFETY: a live handle.
    ok(unsafe { dat_cr_reject(cr) });
    expect(active.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
    assert_eq!(ip_at(address_of(&active)), here_ip());
}

#[test]
fn habit_09_strict_the_remote_address_is_null_without_a_peer() {
    let fixture = Fixture::strict();
    let ends = [(); 2].map(|()| End::new(&fixture, &Shape::default()));
    let are_null = || ends.map(|end| address_of(&end).is_null());
    assert_eq!(are_null(), [true; 2]);
    let pair = Pair::connect(&fixture, ends[0], ends[1]);
    assert_eq!(are_null(), [false; 2]);
    part(&pair);
    assert_eq!(are_null(), [true; 2]);
}
