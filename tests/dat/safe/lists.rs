//! Safe types: lists of requests.

use dat_api::ReturnType;
use dat_api::safe::{
    Adapter, Endpoint, EndpointOptions, EventDispatcher, ListError, Memory, Message,
    ProtectionZone, Segment,
};
use dat_api::types::{CompletionFlags, DtoStatus, EvdFlags, Event, EventData, MemPrivileges};

use super::connected;
use crate::support::{Fixture, device};

const NONE: CompletionFlags = CompletionFlags::empty();
/// More than the verbs path passes to libibverbs at once.
const COUNT: usize = 20;
/// The bytes of a receive.
const ROOM: usize = 128;

/// An open adapter and a zone.
fn adapter() -> (Adapter, ProtectionZone) {
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let zone = adapter.create_zone().expect("a zone");
    (adapter, zone)
}

/// An endpoint, and its dispatcher with room for more than its requests.
fn end(adapter: &Adapter, zone: &ProtectionZone) -> (Endpoint, EventDispatcher) {
    let streams = EvdFlags::DTO | EvdFlags::CONNECTION;
    let events = adapter
        .create_dispatcher(2048, streams)
        .expect("a dispatcher");
    let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
    (endpoint.expect("an endpoint"), events)
}

/// Messages with these segments, whose cookies are their positions.
fn messages<'a>(segments: &[Segment<'a>]) -> Vec<Message<'a>> {
    let numbered = segments.iter().zip(0..);
    numbered
        .map(|(&segment, cookie)| Message { segment, cookie })
        .collect()
}

/// Takes this many completions; returns their cookies and lengths.
fn completions(fixture: &Fixture, events: &EventDispatcher, count: usize) -> Vec<(u64, u64)> {
    let completion = |event: Event| match event.data {
        EventData::Dto {
            status: DtoStatus::Success,
            cookie,
            length,
            ..
        } => (cookie, length),
        other => panic!("{other:?}"),
    };
    let one = |_| {
        fixture.run();
        let event = device::comes(|| events.dequeue().expect("not waited on"));
        completion(event.expect("an event"))
    };
    (0..count).map(one).collect()
}

/// The bytes of a send: inline and not, and none, which takes the slow path.
fn length(number: usize) -> usize {
    [8, 64, 65, 100, 0, 1][number % 6]
}

/// The piece of this length at a place in memory.
fn segment((memory, at): (&Memory, usize), length: usize) -> Segment<'_> {
    memory.segment(at..at + length)
}

/// Sends a list of messages to the receives of a list; checks events and payload. Of each list, one
/// message is in other memory.
fn list_goes_over(
    fixture: &Fixture,
    one: &mut Endpoint,
    [ones, others]: [&EventDispatcher; 2],
    memories: &[Memory; 2],
    rooms: &[Memory; 2],
    post_receives: impl FnOnce(&[Segment<'_>]) -> Result<(), ListError>,
) {
    let room = |number: usize| (&rooms[usize::from(number == 9)], number * ROOM);
    let place = |number: usize| (&memories[usize::from(number == 7)], number * ROOM);
    let receives: Vec<_> = (0..COUNT).map(|it| segment(room(it), ROOM)).collect();
    let sends: Vec<_> = (0..COUNT)
        .map(|it| segment(place(it), length(it)))
        .collect();
    for (memory, first) in memories.iter().zip([1, 101]) {
        let bytes: Vec<u8> = (0..memory.len()).map(|at| (at / 7 + first) as u8).collect();
        memory.write(0, &bytes);
    }
    post_receives(&receives).expect("posted");
    one.post_send_list(&messages(&sends)).expect("posted");

    let expected: Vec<_> = (0..COUNT)
        .map(|it| (it as u64, length(it) as u64))
        .collect();
    assert_eq!(completions(fixture, others, COUNT), expected);
    assert_eq!(completions(fixture, ones, COUNT), expected);
    for number in 0..COUNT {
        let ((from, sent), (to, received)) = (place(number), room(number));
        let [mut want, mut got] = [(); 2].map(|()| vec![0; length(number)]);
        from.read(sent, &mut want);
        to.read(received, &mut got);
        assert_eq!(got, want, "message {number}");
    }
}

fn memories(zone: &ProtectionZone) -> [Memory; 2] {
    [(); 2].map(|()| {
        let memory = zone.allocate(COUNT * ROOM, MemPrivileges::all());
        memory.expect("memory")
    })
}

#[test]
fn lists_carry_messages_of_all_shapes_in_their_order() {
    let fixture = Fixture::new();
    let (adapter, zone) = adapter();
    let ends = connected(&adapter, [end(&adapter, &zone), end(&adapter, &zone)]);
    let [(mut one, ones), (mut other, others)] = ends;
    let (sent, received) = (memories(&zone), memories(&zone));
    for _ in 0..3 {
        let events = [&ones, &others];
        list_goes_over(&fixture, &mut one, events, &sent, &received, |receives| {
            other.post_recv_list(&messages(receives))
        });
    }
    assert_eq!(one.post_send_list(&[]), Ok(()));
    assert_eq!(other.post_recv_list(&[]), Ok(()));
}

#[test]
fn a_list_of_a_shared_queue_serves_its_endpoints() {
    let fixture = Fixture::new();
    let (adapter, zone) = adapter();
    let queue = zone.create_shared_receive_queue(64, 1).expect("a queue");
    let streams = EvdFlags::DTO | EvdFlags::CONNECTION;
    let others = adapter
        .create_dispatcher(2048, streams)
        .expect("a dispatcher");
    let options = EndpointOptions::new(&others).shared(&queue);
    let other = zone.create_endpoint(&options).expect("an endpoint");
    let ends = connected(&adapter, [end(&adapter, &zone), (other, others)]);
    let [(mut one, ones), (_other, others)] = ends;
    let (sent, received) = (memories(&zone), memories(&zone));
    for _ in 0..3 {
        let events = [&ones, &others];
        list_goes_over(&fixture, &mut one, events, &sent, &received, |receives| {
            queue.post_recv_list(&messages(receives))
        });
    }
}

/// The refusal of the request after `posted` others.
fn refused(answer: Result<(), ListError>, posted: usize, kind: ReturnType) {
    let error = answer.expect_err("refused");
    assert_eq!(error.posted, posted, "{error}");
    assert!(error.refusal.code().is(kind), "{error}");
}

#[test]
fn a_list_ends_at_the_first_request_that_is_refused() {
    let fixture = Fixture::new();
    let (adapter, zone) = adapter();
    let [memory, _] = memories(&zone);
    let (mut alone, _events) = end(&adapter, &zone);
    let good = memory.segment(0..64);
    refused(
        alone.post_send_list(&messages(&[good; 2])),
        0,
        ReturnType::InvalidState,
    );

    let foreign_zone = adapter.create_zone().expect("a zone");
    let [foreign, _] = memories(&foreign_zone);
    let bad = foreign.segment(0..64);
    let ends = connected(&adapter, [end(&adapter, &zone), end(&adapter, &zone)]);
    let [(mut one, ones), (mut other, others)] = ends;
    for at in [0, 1, 7, 8, 9, COUNT - 1] {
        let mut segments = [good; COUNT];
        segments[at] = bad;
        let list = messages(&segments);
        refused(
            other.post_recv_list(&list),
            at,
            ReturnType::ProtectionViolation,
        );
        refused(
            one.post_send_list(&list),
            at,
            ReturnType::ProtectionViolation,
        );
        let expected: Vec<_> = (0..at as u64).map(|cookie| (cookie, 64)).collect();
        assert_eq!(completions(&fixture, &others, at), expected);
        assert_eq!(completions(&fixture, &ones, at), expected);
    }
}

#[test]
fn a_list_fills_the_queue_as_single_posts_do() {
    let fixture = Fixture::new();
    let (adapter, zone) = adapter();
    let [memory, _] = memories(&zone);
    let good = [memory.segment(0..64)];
    let ends = connected(&adapter, [end(&adapter, &zone), end(&adapter, &zone)]);
    let [(mut one, ones), (mut other, others)] = ends;
    let single = |mut post: Box<dyn FnMut() -> bool + '_>| (0..).take_while(|_| post()).count();
    let receives = single(Box::new(|| other.post_recv(&good, 0, NONE).is_ok()));
    let sends = single(Box::new(|| one.post_send(&good, 0, NONE).is_ok()));
    let before = receives.min(sends);
    assert_eq!(completions(&fixture, &others, before).len(), before);
    assert_eq!(completions(&fixture, &ones, before).len(), before);
    assert_eq!(before, sends, "every send has a receive");

    let segments = vec![good[0]; receives.max(sends) + 3];
    let list = messages(&segments);
    let full = ReturnType::InsufficientResources;
    refused(other.post_recv_list(&list), sends, full);
    refused(one.post_send_list(&list), sends, full);
    let expected: Vec<_> = (0..sends as u64).map(|cookie| (cookie, 64)).collect();
    assert_eq!(completions(&fixture, &ones, sends), expected);
    assert_eq!(one.refused_posts(), 2);
}
