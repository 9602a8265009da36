//! The safe types: objects may go in any order, and nothing is left behind.

use std::time::Duration;

use dat_api::safe::{Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};
use dat_api::{Kind, ReturnType};

use crate::support::{Bed, device};

const SOON: Option<Duration> = Some(Duration::from_secs(10));

fn kind(events: &EventDispatcher) -> ConnectionKind {
    match events.wait(SOON).expect("an event").data {
        EventData::Connection { kind, .. } => kind,
        other => panic!("{other:?}"),
    }
}

/// Two connected endpoints and where their events come: active, passive.
fn pair(adapter: &Adapter) -> [(Endpoint, EventDispatcher); 2] {
    let zone = adapter.zone().expect("a zone");
    let made = || {
        let events = adapter
            .dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
            .expect("a dispatcher");
        let endpoint = zone.endpoint(&EndpointOptions::new(&events));
        (endpoint.expect("an endpoint"), events)
    };
    let (mut active, mut passive) = (made(), made());
    let requests = adapter.dispatcher(8, EvdFlags::CR).expect("a dispatcher");
    let point = adapter.listen_anywhere(&requests).expect("a service point");
    let here = adapter.address();
    active
        .0
        .connect(here, point.qualifier(), SOON, b"hello")
        .expect("begun");
    let event = requests.wait(SOON).expect("a request");
    let mut request = ConnectionRequest::from_event(&event).expect("a request");
    assert_eq!(request.private_data(), b"hello");
    request.accept(&mut passive.0, b"").expect("accepted");
    assert_eq!(kind(&active.1), ConnectionKind::Established);
    assert_eq!(kind(&passive.1), ConnectionKind::Established);
    [active, passive]
}

#[test]
fn messages_go_both_ways_and_objects_go_in_any_order() {
    let bed = Bed::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let [(mut one, ones), (mut other, others)] = pair(&adapter);
    let zone = adapter.zone().expect("a zone of its own");
    // The endpoints are of another zone.
    let foreign = zone.memory(64, MemPrivileges::all()).expect("memory");
    let refused = one.post_recv(&[foreign.segment(0..64)], 0, CompletionFlags::empty());
    assert!(refused.is_err_and(|error| error.is(ReturnType::ProtectionViolation)));
    drop((zone, foreign));

    let zone = one.query().pz;
    assert_eq!(zone.and_then(dat_api::Handle::kind), Some(Kind::Pz));
    drop((adapter, ones.clone()));
    let none: [dat_api::safe::Segment<'_>; 0] = [];
    other
        .post_recv(&none, 7, CompletionFlags::empty())
        .expect("posted");
    one.post_send(&none, 8, CompletionFlags::empty())
        .expect("posted");
    bed.run();
    let received = device::comes(|| others.next().expect("not waited on"));
    let received = received.expect("an event");
    assert!(matches!(
        received.data,
        EventData::Dto {
            cookie: 7,
            status: DtoStatus::Success,
            length: 0,
            ..
        }
    ));
    // The adapter is kept by what is made of it; the endpoint goes first here,
    // last there.
    drop(one);
    assert_eq!(kind(&others), ConnectionKind::Disconnected);
    drop((others, ones));
    let handle = other.handle();
    assert_eq!(handle.kind(), Some(Kind::Ep));
    drop(other);
    assert_eq!(handle.kind(), None);
    assert_eq!(
        zone.and_then(dat_api::Handle::kind),
        None,
        "the zone as well"
    );
}

#[test]
fn memory_outlives_its_name_while_messages_may_come() {
    let bed = Bed::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.zone().expect("a zone");
    let events = adapter
        .dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
        .expect("a dispatcher");
    let mut endpoint = zone
        .endpoint(&EndpointOptions::new(&events))
        .expect("an endpoint");
    // Long, so that what other threads map meanwhile does not come to lie on
    // its first page.
    let memory = zone.memory(1 << 20, MemPrivileges::all()).expect("memory");
    endpoint
        .post_recv(&[memory.segment(0..4096)], 1, CompletionFlags::empty())
        .expect("posted");
    let at = memory.as_ptr().addr();
    drop(memory);
    assert!(is_mapped(at), "a receive still names it");
    drop(endpoint);
    bed.run();
    assert!(!is_mapped(at), "nothing names it");
}

#[test]
fn an_adapter_closes_when_nothing_is_made_of_it() {
    let _bed = Bed::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let [one, other] = pair(&adapter);
    let refused = adapter.close().expect_err("endpoints live");
    assert!(refused.code().is(ReturnType::InvalidState), "{refused}");
    drop((one, other));
    let watermarks = adapter.async_events();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| watermarks.wait(None));
        std::thread::sleep(Duration::from_millis(20));
        adapter.close().expect("nothing is left");
        let ended = waiter.join().expect("no panic").expect_err("no event");
        let expected = ended.is(ReturnType::Abort) || ended.is(ReturnType::InvalidHandle);
        assert!(expected, "{ended}");
    });
    assert!(adapter.close().is_err(), "once");
}

#[test]
fn a_wait_can_be_ended_and_allowed_again() {
    let _bed = Bed::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let events = adapter
        .dispatcher(4, EvdFlags::SOFTWARE)
        .expect("a dispatcher");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| events.wait(None));
        std::thread::sleep(Duration::from_millis(20));
        events.end_waiting().expect("it lives");
        let ended = waiter.join().expect("no panic").expect_err("no event");
        assert!(ended.is(ReturnType::InvalidState), "{ended}");
    });
    events.post(5).expect("room");
    assert!(events.wait(SOON).is_err());
    events.allow_waiting().expect("it lives");
    let event = events.wait(SOON).expect("the event that was posted");
    assert_eq!(event.data, EventData::Software { pointer: 5 });
}

/// Whether a page is mapped: `mincore` knows.
fn is_mapped(at: usize) -> bool {
    let mut resident = 0;
    // SAFETY: mincore(2) writes one byte for one page, and reads no memory.
    let status = unsafe {
        libc::mincore(
            std::ptr::with_exposed_provenance_mut(at),
            1,
            &raw mut resident,
        )
    };
    status == 0
}
