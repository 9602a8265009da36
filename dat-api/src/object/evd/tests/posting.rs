//! Posting to a full EVD, and what is reported.

use super::fixture::{FakeEp, Fixture, code, number};
use crate::object::evd::pending::Overflow;
use crate::status::{ReturnType, Subtype};
use crate::types::{AsyncKind, AsyncReason, ConnectionKind, EvdFlags};

#[test]
fn evd_post_se_fills_an_evd_to_its_length() {
    let fixture = Fixture::software(3);
    let full = (ReturnType::QueueFull, Subtype::NoSubtype);
    for round in 0..5 {
        for pointer in 0..3 {
            fixture.post(round + pointer);
        }
        assert_eq!(code(fixture.evd.post_software(9)), full);
        // A wait that counts them does not make room either.
        assert_eq!(fixture.poll(3).nmore, 2);
        fixture.post(99);
        assert_eq!(code(fixture.evd.post_software(9)), full);
        let mut left = vec![];
        while let Ok(data) = fixture.dequeue() {
            left.push(number(data));
        }
        assert_eq!(left, [round as u64 + 1, round as u64 + 2, 99]);
    }
    assert!(
        fixture.ia.reports().is_empty(),
        "a refused software event is not an overflow"
    );
}

#[test]
fn evd_post_se_needs_the_software_flag() {
    let fixture = Fixture::new(3, EvdFlags::all() - EvdFlags::SOFTWARE);
    let wrong = (ReturnType::InvalidParameter, Subtype::InvalidArg1);
    assert_eq!(code(fixture.evd.post_software(1)), wrong);
    assert_eq!(code(fixture.dequeue()).0, ReturnType::QueueEmpty);
}

#[test]
fn evd_claims_reserve_room_until_they_are_filled_or_dropped() {
    let fixture = Fixture::new(2, EvdFlags::CONNECTION | EvdFlags::SOFTWARE);
    let event = FakeEp::new().connection(ConnectionKind::Disconnected);
    let (first, second) = (fixture.evd.claim(), fixture.evd.claim());
    assert!(first.is_some() && second.is_some() && fixture.evd.claim().is_none());
    assert_eq!(code(fixture.evd.post_software(8)).0, ReturnType::QueueFull);
    assert_eq!(
        code(fixture.dequeue()).0,
        ReturnType::QueueEmpty,
        "a claim is not an event"
    );
    drop(first);
    fixture.post(7);
    assert!(fixture.evd.claim().is_none());
    if let Some(room) = second {
        room.fill(event);
    }
    assert_eq!(fixture.dequeue().map(number), Ok(7));
    assert!(
        fixture.evd.claim().is_some(),
        "the place of the event that was taken"
    );
    assert_eq!(fixture.dequeue(), Ok(event));
    assert!(
        fixture.ia.reports().is_empty(),
        "a refused software event is not an overflow"
    );
}

/// What a resize to a smaller length calls after counting: events may have arrived since.
#[test]
fn evd_length_is_not_lowered_below_the_held_events() {
    let fixture = Fixture::software(9);
    for pointer in 0..3 {
        fixture.post(pointer);
    }
    let lower = |limit, completions| fixture.evd.lower_length(limit, completions);
    assert!(!lower(2, 0) && !lower(3, 1) && !lower(10, 0));
    assert_eq!(fixture.evd.queue_length(), 9);
    assert!(lower(4, 1));
    assert_eq!(fixture.evd.queue_length(), 4);
    assert!(!lower(5, 0), "5 is above the present length");
    assert!(lower(3, 0));
    assert_eq!(code(fixture.evd.post_software(9)).0, ReturnType::QueueFull);
    let room = fixture.dequeue().map(number).map(|_| fixture.evd.claim());
    assert!(room.is_ok_and(|room| room.is_some() && !lower(2, 0)));
    assert!(lower(2, 0), "the claim was dropped");
}

#[test]
fn evd_each_overflow_is_reported_once_and_the_event_refused() {
    let fixture = Fixture::new(2, EvdFlags::CONNECTION | EvdFlags::SOFTWARE);
    let ep = FakeEp::new();
    let event = ep.connection(ConnectionKind::Disconnected);
    let report = (
        AsyncKind::EvdOverflow,
        fixture.handle(),
        AsyncReason::Failed,
    );
    assert!(fixture.evd.post_or_report(event));
    fixture.post(7);
    for _ in 0..3 {
        assert!(!fixture.evd.post_or_report(event));
    }
    assert_eq!(fixture.ia.reports(), [report]);
    // The consumer's own posts do not change that.
    assert_eq!(code(fixture.evd.post_software(8)).0, ReturnType::QueueFull);
    assert!(!fixture.evd.post_or_report(event));
    assert_eq!(fixture.ia.reports(), [report]);
    assert_eq!(fixture.dequeue(), Ok(event));
    assert!(fixture.evd.post_or_report(event));
    assert!(!fixture.evd.post_or_report(event));
    assert_eq!(fixture.ia.reports(), [report, report]);
    assert_eq!(fixture.evd.post(event), Err(Overflow { first: false }));
    assert_eq!(fixture.dequeue().map(number), Ok(7));
    assert_eq!(fixture.dequeue(), Ok(event));
    assert_eq!(code(fixture.dequeue()).0, ReturnType::QueueEmpty);
}
