//! The device's events, as asynchronous events of DAT.

use dat_api::handle::Handle;
use dat_api::object::evd::Evd;
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::types::{AsyncKind, AsyncReason, ConnectionKind, EvdFlags, EventData};

use crate::fixture::{self, Fixture, TIMEOUT};
use crate::setup::{close, lock_device, request};

/// Makes the second endpoint of a pair refuse a write of the first; returns the second.
fn refuse_a_write(fixture: &Fixture) -> Handle {
    let pair = fixture.pair();
    let mut nowhere = fixture.memory.remote(0, 8);
    nowhere.context ^= 0x00ff_ff00;
    fixture::write(&pair.eps[0], &[fixture.memory.local(0, 8)], 1, &nowhere).expect("posted");
    let broken = pair.eps[1].handle();
    // The service thread breaks the connection of the endpoint that was written to.
    fixture::until("the break", || {
        matches!(
            fixture::next(&pair.evds[1]),
            EventData::Connection {
                kind: ConnectionKind::Broken,
                ..
            }
        )
    });
    broken
}

#[test]
fn a_refused_access_is_reported_with_the_endpoint() {
    let _lock = lock_device();
    let fixture = Fixture::new();
    let ep = refuse_a_write(&fixture);
    let event = fixture.async_event(TIMEOUT).expect("an event");
    assert_eq!(event, (AsyncKind::EpBroken, ep, AsyncReason::Failed));
}

#[test]
fn events_go_to_a_given_evd_or_to_another_adapters() {
    let _lock = lock_device();
    for elsewhere in [false, true] {
        let mut fixture = Fixture::new();
        let own = fixture.events;
        let async_evd = if elsewhere {
            AsyncEvd::Elsewhere
        } else {
            AsyncEvd::Existing(own)
        };
        let asked = OpenRequest {
            async_evd,
            ..request("mlx5_0")
        };
        let (guest, made) = Ia::open(&asked).expect("the adapter opens");
        assert_eq!(made, None);
        assert_eq!(guest.async_evd(), if elsewhere { None } else { Some(own) });
        let first = std::mem::replace(&mut fixture, Fixture::on(guest, own));
        let ep = refuse_a_write(&fixture);
        let event = first.async_event(TIMEOUT).expect("an event");
        assert_eq!(event, (AsyncKind::EpBroken, ep, AsyncReason::Failed));
    }
}

#[test]
fn without_any_evd_events_are_only_logged() {
    let _lock = lock_device();
    let asked = OpenRequest {
        async_evd: AsyncEvd::Elsewhere,
        ..request("mlx5_0")
    };
    let (ia, made) = Ia::open(&asked).expect("the adapter opens");
    assert_eq!((made, ia.async_evd()), (None, None));
    let no_evd = Handle::from_bits(8).expect("not null");
    let fixture = Fixture::on(ia, no_evd);
    // The thread that found no EVD goes on: it breaks the next connection too.
    for _ in 0..2 {
        refuse_a_write(&fixture);
    }
    assert_eq!(fixture.ia.async_evd(), None);
}

#[test]
fn an_evd_of_the_consumer_can_take_another_adapters_events() {
    let _lock = lock_device();
    let owner = Fixture::new();
    let evd = Evd::create(&owner.ia, 8, EvdFlags::ASYNC, None).expect("an EVD");
    let asked = OpenRequest {
        async_evd: AsyncEvd::Existing(evd.handle()),
        ..request("mlx5_0")
    };
    let (guest, _) = Ia::open(&asked).expect("the adapter opens");
    assert!(Evd::free(evd.handle()).is_err(), "the guest uses it");
    close(guest);
    Evd::free(evd.handle()).expect("not in use any more");
}
