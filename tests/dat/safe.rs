//! The safe types: objects may be dropped in any order, and nothing is left
//! behind.

mod asynchronous;
mod connections;
mod data_in_order;
mod drain;
mod extended;
mod lists;
mod memory;
mod window;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dat_api::safe::{
    Adapter, ConnectionRequest, Endpoint, EndpointOptions, EventDispatcher, ProtectionZone,
};
use dat_api::types::{
    AsyncKind, AsyncReason, CompletionFlags, ConnectionKind, DtoStatus, EpState, EvdFlags,
    EventData, MemPrivileges,
};
use dat_api::{Kind, ReturnType};

use crate::support::{Fixture, device};

const SOON: Option<Duration> = Some(Duration::from_secs(60));

fn kind(events: &EventDispatcher) -> ConnectionKind {
    match events.wait(SOON).expect("an event").data {
        EventData::Connection { kind, .. } => kind,
        other => panic!("{other:?}"),
    }
}

/// Two connected endpoints and their event dispatchers: active, passive.
fn pair(adapter: &Adapter) -> [(Endpoint, EventDispatcher); 2] {
    pair_in(adapter, &adapter.create_zone().expect("a zone"))
}

/// As [`pair`], in a zone of the adapter.
fn pair_in(adapter: &Adapter, zone: &ProtectionZone) -> [(Endpoint, EventDispatcher); 2] {
    let made = || {
        let events = adapter
            .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
            .expect("a dispatcher");
        let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
        (endpoint.expect("an endpoint"), events)
    };
    connected(adapter, [made(), made()])
}

/// Connects the first to the second.
fn connected(
    adapter: &Adapter,
    [mut active, mut passive]: [(Endpoint, EventDispatcher); 2],
) -> [(Endpoint, EventDispatcher); 2] {
    let requests = adapter
        .create_dispatcher(8, EvdFlags::CR)
        .expect("a dispatcher");
    let point = adapter.listen_any(&requests).expect("a service point");
    let here = adapter.address();
    active
        .0
        .connect(here, point.qualifier(), SOON, b"hello")
        .expect("begun");
    let event = requests.wait(SOON).expect("a request");
    let request = ConnectionRequest::from_event(&event).expect("a request");
    assert_eq!(request.private_data(), b"hello");
    request.accept(&mut passive.0, b"").expect("accepted");
    assert_eq!(kind(&active.1), ConnectionKind::Established);
    assert_eq!(kind(&passive.1), ConnectionKind::Established);
    [active, passive]
}

#[test]
fn messages_go_both_ways_and_objects_are_dropped_in_any_order() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let [(mut one, ones), (mut other, others)] = pair(&adapter);
    let zone = adapter.create_zone().expect("a zone of its own");
    // The endpoints are in another zone.
    let foreign = zone.allocate(64, MemPrivileges::all()).expect("memory");
    let refused = one.post_recv(&[foreign.segment(0..64)], 0, CompletionFlags::empty());
    let refused = refused.expect_err("of another zone");
    assert!(refused.code().is(ReturnType::ProtectionViolation));
    let [its, needed] = [Some(zone.handle()), one.query().pz].map(|pz| pz.expect("a zone").bits());
    let cause = refused.to_string();
    assert!(
        cause.starts_with("segment 0: the LMR with the context "),
        "{cause}"
    );
    assert!(cause.contains(&format!("is in PZ {its:#x}, ")), "{cause}");
    assert!(
        cause.contains(&format!("in PZ {needed:#x}: create both")),
        "{cause}"
    );
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
    fixture.run();
    let received = device::comes(|| others.dequeue().expect("not waited on"));
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
    // Objects keep their adapter open. Here the endpoint is dropped first, there
    // last.
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
        "the zone is dropped as well"
    );
}

#[test]
fn memory_stays_mapped_while_receives_refer_to_it() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let events = adapter
        .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
        .expect("a dispatcher");
    let mut endpoint = zone
        .create_endpoint(&EndpointOptions::new(&events))
        .expect("an endpoint");
    // Large, so that memory that other threads map meanwhile does not land on its
    // first page.
    let memory = zone
        .allocate(1 << 20, MemPrivileges::all())
        .expect("memory");
    endpoint
        .post_recv(&[memory.segment(0..4096)], 1, CompletionFlags::empty())
        .expect("posted");
    let at = memory.as_ptr().addr();
    drop(memory);
    assert!(is_mapped(at), "a receive still refers to it");
    drop(endpoint);
    fixture.run();
    assert!(!is_mapped(at), "no request refers to it");
}

#[test]
fn huge_pages_carry_a_message_or_are_refused_with_a_cause() {
    const BYTES: usize = 100_000;
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let memory = match zone.allocate_huge(2 * BYTES, MemPrivileges::all()) {
        Ok(memory) => memory,
        Err(error) => {
            eprintln!("SKIPPED: a message on huge pages: this system has none to spare");
            let code = error.code();
            assert!(code.is(ReturnType::InsufficientResources), "{error}");
            assert!(error.cause().contains("huge pages"), "{error}");
            return;
        }
    };
    assert!(memory.len() >= 2 * BYTES);
    let [(mut one, _ones), (mut other, others)] = pair_in(&adapter, &zone);
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    memory.write(0, &bytes);
    let place = memory.len() - BYTES;
    other
        .post_recv(
            &[memory.segment(place..memory.len())],
            1,
            CompletionFlags::empty(),
        )
        .expect("posted");
    one.post_send(&[memory.segment(0..BYTES)], 2, CompletionFlags::empty())
        .expect("posted");
    fixture.run();
    let received = device::comes(|| others.dequeue().expect("not waited on"));
    assert!(matches!(
        received.expect("an event").data,
        EventData::Dto {
            cookie: 1,
            status: DtoStatus::Success,
            ..
        }
    ));
    let mut got = vec![0; BYTES];
    memory.read(place, &mut got);
    assert!(got == bytes);
}

/// On an adapter that is not threadsafe, a shared queue nevertheless is.
#[test]
fn several_threads_post_receives_to_a_shared_queue() {
    const THREADS: u64 = 4;
    const EACH: u64 = 100;
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let queue = zone.create_shared_receive_queue(512, 1).expect("a queue");
    let memories = [(); 2].map(|()| zone.allocate(64, MemPrivileges::all()).expect("memory"));
    thread::scope(|scope| {
        for first in (0..THREADS).map(|thread| thread * EACH) {
            let (queue, memories) = (queue.clone(), &memories);
            scope.spawn(move || {
                for cookie in first..first + EACH {
                    let memory = &memories[cookie as usize % 2];
                    let posted = queue.post_recv(&[memory.segment(0..64)], cookie);
                    posted.expect("room");
                }
            });
        }
    });
    assert_eq!(u64::from(queue.query().outstanding), THREADS * EACH);
    let ends = [None, Some(&queue)].map(|shared| {
        let events = adapter
            .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
            .expect("a dispatcher");
        let mut options = EndpointOptions::new(&events);
        if let Some(queue) = shared {
            options = options.shared(queue);
        }
        let endpoint = zone.create_endpoint(&options);
        (endpoint.expect("an endpoint"), events)
    });
    let [(mut one, ones), (_other, others)] = connected(&adapter, ends);
    let mut cookies = Vec::new();
    for number in 0..THREADS * EACH {
        one.post_send(&[], number, CompletionFlags::empty())
            .expect("room");
        fixture.run();
        for events in [&ones, &others] {
            let event = device::comes(|| events.dequeue().expect("not waited on"));
            match event.expect("an event").data {
                EventData::Dto {
                    ep,
                    cookie,
                    status: DtoStatus::Success,
                    ..
                } if ep == one.handle() => assert_eq!(cookie, number),
                EventData::Dto {
                    cookie,
                    status: DtoStatus::Success,
                    ..
                } => cookies.push(cookie),
                other => panic!("{other:?}"),
            }
        }
    }
    cookies.sort_unstable();
    assert!(cookies.into_iter().eq(0..THREADS * EACH), "each once");
}

/// Concurrent writes of two threads mix by whole bytes; each aligned word is from
/// one of them.
#[test]
fn memory_is_written_and_read_by_several_threads_at_once() {
    const BYTES: usize = 200;
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let memory = zone.allocate(BYTES, MemPrivileges::all()).expect("memory");
    thread::scope(|scope| {
        for value in [0x11, 0xee] {
            let memory = &memory;
            scope.spawn(move || {
                for round in 0..2_000 {
                    let at = round % 11;
                    memory.write(at, &[value; BYTES - 16][..BYTES - 16 - at]);
                }
            });
        }
        for _ in 0..2_000 {
            let mut seen = [0; BYTES];
            memory.read(0, &mut seen);
            assert!(seen.iter().all(|byte| [0, 0x11, 0xee].contains(byte)));
            let word = memory.load_u64(96).to_ne_bytes();
            assert!(word.iter().all(|&byte| byte == word[0]), "{word:x?}");
        }
    });
    let mut last = [0; 8];
    memory.read(BYTES - 8, &mut last);
    assert_eq!(last, [0; 8], "after the written bytes");
}

/// The polling thread copies payloads of short messages into memory while another
/// thread reads and a third sends the same bytes.
#[test]
fn memory_is_read_and_sent_while_a_poll_places_payloads_in_it() {
    const MESSAGES: u64 = 200;
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    let [sent, memory] = [(); 2].map(|()| zone.allocate(64, MemPrivileges::all()).expect("memory"));
    let ends = [(); 2].map(|()| {
        let events = adapter
            .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
            .expect("a dispatcher");
        let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
        (endpoint.expect("an endpoint"), events)
    });
    let [(mut one, ones), (mut other, others)] = connected(&adapter, ends);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let mut seen = [0; 16];
                memory.read(0, &mut seen);
                assert!(seen.iter().all(|byte| [0, 0x11, 0xee].contains(byte)));
                thread::yield_now();
            }
        });
        let _ends = Ends(&over);
        for number in 0..MESSAGES {
            let value = if number % 2 == 0 { 0x11 } else { 0xee };
            sent.write(0, &[value; 16]);
            let flags = CompletionFlags::empty();
            let place = memory.segment(0..16);
            other.post_recv(&[place], number, flags).expect("room");
            one.post_send(&[sent.segment(0..16)], number, flags)
                .expect("room");
            fixture.run();
            for events in [&ones, &others] {
                let event = device::comes(|| events.dequeue().expect("not waited on"));
                assert!(matches!(
                    event.expect("an event").data,
                    EventData::Dto { status: DtoStatus::Success, cookie, .. } if cookie == number
                ));
            }
            let mut seen = [0; 16];
            memory.read(0, &mut seen);
            assert_eq!(seen, [value; 16]);
        }
    });
}

/// Sets a flag when dropped, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_adapter_closes_when_nothing_is_made_of_it() {
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let [one, other] = pair(&adapter);
    let refused = adapter.close().expect_err("endpoints live");
    assert!(refused.code().is(ReturnType::InvalidState), "{refused}");
    drop((one, other));
    let watermarks = adapter.async_events();
    thread::scope(|scope| {
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
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let events = adapter
        .create_dispatcher(4, EvdFlags::SOFTWARE)
        .expect("a dispatcher");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| events.wait(None));
        std::thread::sleep(Duration::from_millis(20));
        events.set_unwaitable().expect("the adapter is open");
        let ended = waiter.join().expect("no panic").expect_err("no event");
        assert!(ended.is(ReturnType::InvalidState), "{ended}");
    });
    events.post(5).expect("room");
    assert!(events.wait(SOON).is_err());
    events.clear_unwaitable().expect("the adapter is open");
    let event = events.wait(SOON).expect("the event that was posted");
    assert_eq!(event.data, EventData::Software { pointer: 5 });
}

/// Returns an endpoint, and a dispatcher for all its events.
fn one(adapter: &Adapter) -> (Endpoint, EventDispatcher) {
    let zone = adapter.create_zone().expect("a zone");
    let events = adapter
        .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
        .expect("a dispatcher");
    let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
    (endpoint.expect("an endpoint"), events)
}

#[test]
fn watermarks_are_reported_and_break_the_connection() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let [(mut one, ones), (mut other, others)] = pair(&adapter);
    assert!(other.set_watermarks(Some(u32::MAX), None).is_err());
    other.set_watermarks(Some(1), Some(2)).expect("counts");
    let none: [dat_api::safe::Segment<'_>; 0] = [];
    for cookie in 0..3 {
        other
            .post_recv(&none, cookie, CompletionFlags::empty())
            .expect("posted");
        one.post_send(&none, cookie, CompletionFlags::empty())
            .expect("posted");
    }
    fixture.run();
    for _ in 0..3 {
        ones.wait(SOON).expect("sent");
    }
    assert_eq!(other.recv_query().allocated, 3);
    let event = adapter
        .async_events()
        .wait(SOON)
        .expect("the event of the soft watermark");
    assert_eq!(
        event.data,
        EventData::Async {
            kind: AsyncKind::ProviderInternalError,
            handle: other.handle(),
            reason: AsyncReason::Watermark,
        }
    );
    assert_eq!(other.query().state, EpState::Disconnected);
    let first = others.wait(SOON).expect("what arrived").data;
    assert!(
        matches!(first, EventData::Dto { cookie: 0, .. }),
        "{first:?}"
    );
}

/// Returns whether a page is mapped, by `mincore`.
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

#[test]
fn a_notification_object_reports_several_dispatchers() {
    let fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let cno = adapter.create_cno().expect("a notification object");
    let [(mut one, ones), (mut other, others)] = pair(&adapter);
    let software = adapter
        .create_dispatcher(4, EvdFlags::SOFTWARE)
        .expect("a bell");
    for events in [&ones, &others, &software, &adapter.async_events()] {
        events.set_cno(Some(&cno)).expect("a bound CNO");
    }
    let zone = adapter.create_zone().expect("a zone of its own");
    drop(zone);
    let refused = cno.wait(Some(Duration::ZERO)).expect_err("nothing");
    assert!(refused.code().is(ReturnType::QueueEmpty));
    // A message without payload: the wait returns the dispatcher whose event
    // comes first.
    other
        .post_recv(&[], 7, CompletionFlags::empty())
        .expect("room");
    one.post_send(&[], 8, CompletionFlags::empty())
        .expect("room");
    let mut woken = Vec::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            [(); 2].map(|()| {
                let woken = cno.wait(SOON).expect("woken").expect("a dispatcher");
                let mut both = [&ones, &others].into_iter();
                let events = both.find(|events| events.handle() == woken);
                let event = events.expect("one of them").dequeue();
                assert!(event.expect("no waiter").is_some());
                woken
            })
        });
        fixture.run();
        woken.extend(waiter.join().expect("no panic"));
    });
    woken.sort_unstable();
    let mut wanted = [ones.handle(), others.handle()];
    wanted.sort_unstable();
    assert_eq!(woken, wanted);
    // Called once, on a thread of the library.
    let (sender, receiver) = std::sync::mpsc::channel();
    cno.set_agent(move |events| sender.send(events).expect("the receiver is alive"))
        .expect("a thread");
    for number in [1, 2] {
        software.post(number).expect("room");
    }
    let called = receiver
        .recv_timeout(Duration::from_secs(8))
        .expect("called");
    assert_eq!(called, Some(software.handle()));
    assert!(
        receiver.recv().is_err(),
        "the agent is dropped with what it captured"
    );
    cno.set_agent(|_| unreachable!("taken back"))
        .expect("a thread");
    cno.clear_agent();
    // Disabled and enabled, resized, and without a notification object.
    assert_eq!(cno.wait(SOON), Ok(Some(software.handle())));
    while software.dequeue().expect("no waiter").is_some() {}
    software.disable().expect("open");
    software.post(3).expect("room");
    assert!(cno.wait(Some(Duration::ZERO)).is_err());
    software.enable().expect("open");
    assert_eq!(cno.wait(SOON), Ok(Some(software.handle())));
    software.resize(64).expect("memory");
    software.resize(1).expect("room for the one");
    assert!(software.post(4).is_err(), "full");
    software.set_cno(None).expect("open");
    assert!(software.dequeue().expect("no waiter").is_some());
    software.post(5).expect("room");
    assert!(cno.wait(Some(Duration::ZERO)).is_err());
    // In any order: dispatchers keep their notification object.
    let handle = cno.handle();
    drop(cno);
    assert_eq!(handle.kind(), Some(Kind::Cno));
    drop((one, other, ones, others));
    drop((software, adapter));
    assert_eq!(handle.kind(), None);
}
