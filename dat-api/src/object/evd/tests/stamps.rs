//! Time stamps of events.

use std::sync::Arc;
use std::thread;

use dat_engine::{Arrival, Completion, Status};

use super::fake::Ring;
use super::fixture::{FakeEp, Fixture, number};
use crate::object::evd::{DtoRole, Timeout, dequeue_stamped, own, wait_stamped};
use crate::status::ReturnType;
use crate::types::{CompletionFlags, EvdFlags, Event};

/// Takes the next event; returns its number, and its stamp in nanoseconds.
fn next(fixture: &Fixture) -> Option<(u64, Option<u64>)> {
    match dequeue_stamped(own(fixture.handle()).expect("free")) {
        Ok(taken) => Some((number(taken.event.data), taken.nanoseconds)),
        Err(error) => {
            assert!(error.code().is(ReturnType::QueueEmpty), "{error}");
            None
        }
    }
}

/// Takes events until there is none.
fn all(fixture: &Fixture) -> Vec<(u64, Option<u64>)> {
    std::iter::from_fn(|| next(fixture)).collect()
}

/// Waits for `threshold` events without blocking, and takes the first.
fn waited(fixture: &Fixture, threshold: i32) -> (u64, Option<u64>) {
    let mut owned = own(fixture.handle()).expect("free");
    let waited = wait_stamped(&mut owned, Timeout::Micros(0), threshold).expect("a clock");
    let event: Event = waited.event.result.expect("an event");
    (number(event.data), waited.nanoseconds)
}

fn complete(ring: &Ring, ep: &FakeEp, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        ring.complete_at(ep.received(number), Arrival::At(100 + number));
    }
}

#[test]
fn evd_events_have_the_stamps_of_their_completions() {
    let (fixture, _stream, ring) = Fixture::receiving(16, CompletionFlags::empty());
    let ep = FakeEp::new();
    assert_eq!(next(&fixture), None);
    complete(&ring, &ep, 1..4);
    assert_eq!(next(&fixture), Some((1, Some(1010))));
    // Staged before and after the event that is taken.
    complete(&ring, &ep, 4..5);
    assert_eq!(waited(&fixture, 2), (2, Some(1020)));
    assert_eq!(all(&fixture), [(3, Some(1030)), (4, Some(1040))]);
    complete(&ring, &ep, 5..8);
    assert_eq!(waited(&fixture, 3), (5, Some(1050)));
    assert_eq!(all(&fixture), [(6, Some(1060)), (7, Some(1070))]);
}

/// Events that other calls take do not shift the stamps of those behind them.
#[test]
fn evd_calls_without_stamps_may_be_mixed_with_those_that_have_them() {
    let (fixture, _stream, ring) = Fixture::receiving(16, CompletionFlags::empty());
    let ep = FakeEp::new();
    assert_eq!(next(&fixture), None);
    complete(&ring, &ep, 0..12);
    assert_eq!(fixture.dequeue().map(number), Ok(0));
    assert_eq!(next(&fixture), Some((1, Some(1010))));
    assert_eq!(fixture.dequeue().map(number), Ok(2));
    assert_eq!(fixture.dequeue().map(number), Ok(3));
    assert_eq!(waited(&fixture, 1), (4, Some(1040)));
    assert_eq!(
        fixture.poll(4).result.map(|event| number(event.data)),
        Ok(5)
    );
    assert_eq!(next(&fixture), Some((6, Some(1060))));
    fixture.evd.drain();
    assert_eq!(next(&fixture), Some((7, Some(1070))));
    complete(&ring, &ep, 12..14);
    let rest = (8..14).map(|number| (number, Some(1000 + 10 * number)));
    assert_eq!(all(&fixture), rest.collect::<Vec<_>>());
    assert_eq!(fixture.dequeue().map(number).ok(), None);
}

#[test]
fn evd_events_that_are_no_completions_have_no_stamp() {
    let fixture = Fixture::new(16, EvdFlags::DTO | EvdFlags::SOFTWARE);
    let role = DtoRole::Recv { depth: 8 };
    let flags = CompletionFlags::empty();
    let _stream = fixture.evd.attach_dto(role, flags, &[]).expect("attached");
    let ring = fixture.ia.rings().pop().expect("a queue");
    let ep = FakeEp::new();
    assert_eq!(next(&fixture), None);
    complete(&ring, &ep, 1..3);
    fixture.post(7);
    fixture.post(8);
    assert_eq!(next(&fixture), Some((1, Some(1010))));
    complete(&ring, &ep, 3..4);
    let rest = [(2, Some(1020)), (7, None), (8, None), (3, Some(1030))];
    assert_eq!(all(&fixture), rest);
}

#[test]
fn evd_a_time_that_is_not_known_is_not_made_up() {
    let (fixture, _stream, ring) = Fixture::receiving(16, CompletionFlags::empty());
    let ep = FakeEp::new();
    complete(&ring, &ep, 0..3);
    // Staged before the EVD was asked: it did not look at their stamps.
    fixture.evd.drain();
    let staged = fixture.poll(3).result.map(|event| number(event.data));
    assert_eq!(staged, Ok(0));
    assert_eq!(next(&fixture), Some((1, None)));
    let failed = Completion {
        status: Status::WrFlush,
        ..ep.received(3)
    };
    ring.complete_at(failed, Arrival::Unknown);
    // The clock cannot convert this one.
    ring.complete_at(ep.received(4), Arrival::At(5000));
    complete(&ring, &ep, 5..6);
    let rest = [(2, None), (3, None), (4, None), (5, Some(1050))];
    assert_eq!(all(&fixture), rest);
}

#[test]
fn evd_stamps_of_several_queues_come_in_order_with_their_events() {
    let fixture = Fixture::new(1, EvdFlags::DTO);
    let ep = FakeEp::new();
    assert_eq!(next(&fixture), None);
    let _streams = [20, 30, 60].map(|depth| {
        let role = DtoRole::Recv { depth };
        let flags = CompletionFlags::EVD_THRESHOLD;
        fixture.evd.attach_dto(role, flags, &[]).expect("a stream")
    });
    let rings: Vec<Arc<Ring>> = fixture.ia.rings();
    assert_eq!(rings.len(), 3);
    for (place, queue) in [2, 0, 0, 1, 2, 1, 1, 0, 2].into_iter().enumerate() {
        complete(&rings[queue], &ep, [place as u64]);
    }
    let expected: Vec<_> = (0..9)
        .map(|place| (place, Some(1000 + 10 * place)))
        .collect();
    assert_eq!(all(&fixture), expected);
}

/// An endpoint is attached, and one is purged, while stamped events are staged.
#[test]
fn evd_stamps_stay_with_their_events_when_others_are_removed() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    let eps = [FakeEp::new(), FakeEp::new()];
    assert_eq!(next(&fixture), None);
    for number in 0..8 {
        complete(&ring, &eps[number as usize % 2], [number]);
    }
    assert_eq!(next(&fixture), Some((0, Some(1000))));
    fixture.dequeue().expect("the second");
    let role = DtoRole::Recv { depth: 100 };
    let flags = CompletionFlags::empty();
    let _more = fixture.evd.attach_dto(role, flags, &[]).expect("attached");
    fixture.evd.purge(eps[1].handle());
    let left = [2, 4, 6].map(|number| (number, Some(1000 + 10 * number)));
    assert_eq!(all(&fixture), left);
}

#[test]
fn evd_a_wait_that_blocks_returns_the_stamp_of_its_event() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    let ep = FakeEp::new();
    let ns = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut owned = own(fixture.handle()).expect("free");
            wait_stamped(&mut owned, Timeout::Infinite, 1).expect("a clock")
        });
        fixture.until_blocked();
        complete(&ring, &ep, 1..2);
        waiting.join().expect("no panic").nanoseconds
    });
    assert_eq!(ns, Some(1010));
    let mut owned = own(fixture.handle()).expect("free");
    let over = wait_stamped(&mut owned, Timeout::Micros(0), 1).expect("a clock");
    assert!(over.event.result.is_err());
    assert_eq!(over.nanoseconds, None, "not that of the event before");
}

#[test]
fn evd_without_a_clock_refuses_and_takes_nothing() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    fixture.ia.remove_clock();
    complete(&ring, &FakeEp::new(), 1..2);
    let refused = dequeue_stamped(own(fixture.handle()).expect("free")).expect_err("no clock");
    assert!(
        refused.code().is(ReturnType::ModelNotSupported),
        "{refused}"
    );
    let mut owned = own(fixture.handle()).expect("free");
    let refused = wait_stamped(&mut owned, Timeout::Infinite, 1).expect_err("no clock");
    assert!(
        refused.code().is(ReturnType::ModelNotSupported),
        "{refused}"
    );
    drop(owned);
    assert_eq!(fixture.dequeue().map(number), Ok(1));
}
