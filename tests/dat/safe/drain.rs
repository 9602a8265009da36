//! Safe types: several events by one call.

use dat_api::safe::{Adapter, EndpointOptions};
use dat_api::types::{CompletionFlags, EvdFlags, Event, EventData, MemPrivileges};

use super::connected;
use crate::support::{Fixture, device};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Returns the cookie of a completion, or the value of a software event.
fn number(event: &Event) -> u64 {
    match event.data {
        EventData::Dto { cookie, .. } => cookie,
        EventData::Software { pointer } => pointer as u64,
        other => panic!("{other:?}"),
    }
}

#[test]
fn drain_takes_what_dequeue_takes_in_the_same_order() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let streams = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let made = || {
        let events = adapter
            .create_dispatcher(64, streams)
            .expect("a dispatcher");
        let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
        (endpoint.expect("an endpoint"), events)
    };
    let [(mut one, _ones), (mut other, others)] = connected(&adapter, [made(), made()]);
    let memory = zone.allocate(256, MemPrivileges::all()).expect("memory");
    let segment = || [memory.segment(0..64)];

    for cookie in 0..5 {
        other.post_recv(&segment(), cookie, NONE).expect("posted");
    }
    for cookie in 0..5 {
        one.post_send(&segment(), cookie, NONE).expect("posted");
    }
    let mut all = Vec::new();
    while all.len() < 5 {
        fixture.run();
        let mut room = [Event::default(); 2];
        let some = || Some(others.drain(&mut room).expect("not waited on")).filter(|&it| it > 0);
        let taken = device::comes(some).expect("events");
        assert!(room[..taken].iter().all(|it| it.evd == others.handle()));
        assert!(room[taken..].iter().all(|it| *it == Event::default()));
        all.extend(room[..taken].iter().map(number));
    }
    assert_eq!(all, [0, 1, 2, 3, 4]);

    let mut room = [Event::default(); 4];
    assert_eq!(others.drain(&mut room), Ok(0));
    assert_eq!(room, [Event::default(); 4]);
    for value in 10..13 {
        others.post(value).expect("posted");
    }
    assert_eq!(others.drain(&mut []), Ok(0));
    assert_eq!(others.drain(&mut room[..1]), Ok(1));
    let next = others.dequeue().expect("not waited on").expect("an event");
    assert_eq!(number(&next), 11);
    assert_eq!(others.drain(&mut room[1..]), Ok(1));
    assert_eq!(room[..2].iter().map(number).collect::<Vec<_>>(), [10, 12]);
}

#[test]
fn the_iterator_ends_when_no_event_is_there_and_after_an_error() {
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let events = adapter
        .create_dispatcher(8, EvdFlags::SOFTWARE)
        .expect("a dispatcher");
    let mut all = events.events();
    assert!(all.next().is_none());
    for value in 1..4 {
        events.post(value).expect("posted");
    }
    let taken: Result<Vec<_>, _> = all.by_ref().collect();
    assert_eq!(
        taken
            .expect("not waited on")
            .iter()
            .map(number)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    events.post(4).expect("posted");
    let mut others = 0;
    for event in &events {
        assert_eq!(number(&event.expect("not waited on")), 4);
        others += 1;
    }
    assert_eq!(others, 1);
    // The dispatcher of a closed adapter fails each call; a loop over its events must end.
    events.post(5).expect("posted");
    // SAFETY: no endpoint of the adapter is posted to.
    unsafe { dat_api::object::ia::Ia::close(adapter.handle(), false) }.expect("closed");
    assert!(all.next().expect("an error").is_err());
    assert!(all.next().is_none());
}
