//! EVDs with several completion queues, and how many endpoints share one queue.

use std::sync::Arc;

use dat_engine::{Arrival, Status};

use super::fake::Ring;
use super::fixture::{FakeEp, Fixture, number};
use crate::object::evd::{DtoRole, DtoStream};
use crate::types::{CompletionFlags, EvdFlags, EventData};

/// How a test takes events.
#[derive(Clone, Copy, Debug)]
enum Taking {
    Dequeue,
    Wait,
    /// A wait that counts all events first.
    WaitForAll,
    /// A control call that stages the completions first.
    Drain,
}

const ALL: [Taking; 4] = [
    Taking::Dequeue,
    Taking::Wait,
    Taking::WaitForAll,
    Taking::Drain,
];

/// Takes `count` events; returns their numbers.
fn take(fixture: &Fixture, taking: Taking, count: usize) -> Vec<u64> {
    let next = |rest: usize| match taking {
        Taking::Dequeue => fixture.dequeue(),
        Taking::Wait => fixture.poll(1).result.map(|event| event.data),
        Taking::WaitForAll => fixture.poll(rest as i32).result.map(|event| event.data),
        Taking::Drain => {
            fixture.evd.drain();
            fixture.dequeue()
        }
    };
    (0..count)
        .map(|taken| number(next(count - taken).expect("an event")))
        .collect()
}

/// Returns an EVD with three queues, one for each stream: none has room for two.
fn three_queues() -> (Fixture, [DtoStream; 3], [Arc<Ring>; 3]) {
    let fixture = Fixture::new(1, EvdFlags::DTO);
    let streams = [20, 30, 60].map(|depth| {
        let role = DtoRole::Recv { depth };
        let flags = CompletionFlags::EVD_THRESHOLD;
        fixture.evd.attach_dto(role, flags, &[]).expect("a stream")
    });
    let rings: [Arc<Ring>; 3] = fixture.ia.rings().try_into().expect("three queues");
    (fixture, streams, rings)
}

#[test]
fn evd_completions_of_several_queues_come_in_order_of_time() {
    for taking in ALL {
        let (fixture, _streams, rings) = three_queues();
        let ep = FakeEp::new();
        // The number of a completion is its place.
        for (place, queue) in [2, 0, 0, 1, 2, 1, 1, 0, 2, 2, 0, 1].into_iter().enumerate() {
            let stamp = Arrival::At(1000 + 7 * place as u64);
            rings[queue].complete_at(ep.received(place as u64), stamp);
        }
        let expected: Vec<u64> = (0..12).collect();
        assert_eq!(take(&fixture, taking, 12), expected, "{taking:?}");
    }
}

#[test]
fn evd_an_error_without_a_time_follows_its_predecessor() {
    for taking in ALL {
        let (fixture, _streams, rings) = three_queues();
        let ep = FakeEp::new();
        let failed = |number| dat_engine::Completion {
            status: Status::WrFlush,
            ..ep.received(number)
        };
        rings[0].complete_at(ep.received(0), Arrival::At(50));
        rings[1].complete_at(ep.received(1), Arrival::At(60));
        rings[1].complete_at(failed(2), Arrival::Unknown);
        rings[1].complete_at(failed(3), Arrival::Unknown);
        rings[0].complete_at(ep.received(4), Arrival::At(70));
        rings[2].complete_at(ep.received(5), Arrival::At(80));
        assert_eq!(take(&fixture, taking, 6), [0, 1, 2, 3, 4, 5], "{taking:?}");
    }
}

#[test]
fn evd_completions_of_one_tick_keep_the_order_of_their_queues() {
    for taking in ALL {
        let (fixture, _streams, rings) = three_queues();
        let ep = FakeEp::new();
        for round in 0..18 {
            let stamp = Arrival::At(9 + round / 6);
            rings[round as usize % 3].complete_at(ep.received(round), stamp);
        }
        let taken = take(&fixture, taking, 18);
        for queue in 0..3 {
            let of_queue = taken.iter().filter(|&&place| place % 3 == queue);
            assert!(of_queue.is_sorted(), "{taking:?}: {taken:?}");
        }
        let ticks = taken.iter().map(|place| place / 6);
        assert!(ticks.is_sorted(), "{taking:?}: {taken:?}");
    }
}

/// The room of 16 endpoints with default attributes is in the first queue, whatever the length of
/// the EVD; queries report the length without that room.
#[test]
fn evd_sixteen_default_endpoints_share_one_queue() {
    for length in [1, 16, 500, 5000] {
        let fixture = Fixture::new(length, EvdFlags::DTO);
        fixture.ia.make_first_queue_long();
        let attach = |role| {
            let flags = CompletionFlags::EVD_THRESHOLD;
            fixture.evd.attach_dto(role, flags, &[]).expect("a stream")
        };
        let mut streams = Vec::new();
        for endpoints in 1..=16 {
            streams.push(attach(DtoRole::Recv { depth: 128 }));
            streams.push(attach(DtoRole::Request { depth: 128 }));
            assert_eq!(fixture.ia.rings().len(), 1, "{endpoints} in {length}");
            let needed = 256 * endpoints;
            assert_eq!(fixture.evd.queue_length(), needed.max(length as u32));
        }
        // Each at its limit: `Ring::complete` panics at an overflow.
        let ring = &fixture.ia.rings()[0];
        let ep = FakeEp::new();
        for place in 0..16 * 256 {
            ring.complete(ep.received(place));
        }
        let first = fixture.poll(1).result.map(|event| event.data);
        assert!(matches!(first, Ok(EventData::Dto { cookie: 0, .. })));
        let rest = take(&fixture, Taking::Dequeue, 16 * 256 - 1);
        assert!(rest.into_iter().eq(1..16 * 256));
    }
}
