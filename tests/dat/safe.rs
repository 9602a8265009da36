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
    connected(adapter, [made(), made()])
}

/// Connects the first to the second.
fn connected(
    adapter: &Adapter,
    [mut active, mut passive]: [(Endpoint, EventDispatcher); 2],
) -> [(Endpoint, EventDispatcher); 2] {
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

/// A window keeps its memory, and closes when it goes; the order of the others
/// does not matter.
#[test]
fn a_window_opens_memory_and_keeps_it_registered() {
    let bed = Bed::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.zone().expect("a zone");
    let made = || {
        let flags = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::RMR_BIND;
        let events = adapter.dispatcher(64, flags).expect("a dispatcher");
        let endpoint = zone.endpoint(&EndpointOptions::new(&events));
        (endpoint.expect("an endpoint"), events)
    };
    let [(mut one, ones), (mut other, others)] = connected(&adapter, [made(), made()]);
    let local = zone.memory(64, MemPrivileges::all()).expect("memory");
    let region = zone.memory(64, MemPrivileges::all()).expect("memory");
    local.write(0, &[9; 64]);
    let mut window = zone.window().expect("a window");
    let (rights, none) = (MemPrivileges::REMOTE_WRITE, CompletionFlags::empty());
    let remote = other
        .bind(&mut window, region.segment(8..24), rights, 31, none)
        .expect("posted");
    let next = |events: &EventDispatcher| {
        bed.run();
        device::comes(|| events.next().expect("not waited on")).expect("an event")
    };
    let bound = EventData::RmrBind {
        rmr: window.handle(),
        cookie: 31,
        status: DtoStatus::Success,
    };
    assert_eq!(next(&others).data, bound);
    one.post_rdma_write(&[local.segment(0..16)], 32, remote, none)
        .expect("posted");
    assert!(matches!(
        next(&ones).data,
        EventData::Dto {
            cookie: 32,
            status: DtoStatus::Success,
            ..
        }
    ));
    let mut bytes = [0; 32];
    region.read(0, &mut bytes);
    assert_eq!(bytes[8..24], [9; 16]);
    assert_eq!(bytes[..8], [0; 8]);
    // The window has it still.
    let bound = window.query().bound.expect("bound");
    assert_eq!((bound.context, bound.privileges), (remote.context, rights));
    drop(region);
    one.post_rdma_write(&[local.segment(0..16)], 33, remote, none)
        .expect("posted");
    assert!(matches!(
        next(&ones).data,
        EventData::Dto {
            status: DtoStatus::Success,
            ..
        }
    ));
    other.unbind(&mut window, 34, none).expect("posted");
    assert!(matches!(
        next(&others).data,
        EventData::RmrBind { cookie: 34, .. }
    ));
    assert_eq!(window.query().bound, None);
    let handle = window.handle();
    drop(window);
    assert_eq!(handle.kind(), None);
}
