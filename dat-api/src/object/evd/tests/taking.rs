//! Dequeuing: the fields of events, and the counters.

use core::sync::atomic::Ordering;

use dat_engine::{Completion, CompletionOp};

use super::fixture::{FakeEp, Fixture, code, number};
use crate::object::evd::DtoRole;
use crate::status::{ReturnType, Subtype};
use crate::types::{
    CompletionFlags, DtoOperation, DtoStatus, EvdFlags, EventData, ExtendedOperation,
};

const EMPTY: (ReturnType, Subtype) = (ReturnType::QueueEmpty, Subtype::NoSubtype);

#[test]
fn evd_dequeue_takes_the_first_event_or_reports_an_empty_queue() {
    let fixture = Fixture::software(4);
    assert_eq!(code(fixture.dequeue()), EMPTY);
    for pointer in [5, 0, usize::MAX] {
        fixture.post(pointer);
    }
    for pointer in [5, 0, usize::MAX] {
        assert_eq!(fixture.dequeue(), Ok(EventData::Software { pointer }));
    }
    assert_eq!(code(fixture.dequeue()), EMPTY);
}

#[test]
fn evd_dequeue_works_when_unwaitable_and_disabled() {
    let fixture = Fixture::software(1);
    fixture.evd.set_unwaitable();
    fixture.evd.disable();
    fixture.post(3);
    assert_eq!(fixture.dequeue().map(number), Ok(3));
}

/// The fast path makes them of the CQE, the verbs path of a completion.
#[test]
fn evd_w01_extended_events_are_the_same_on_both_paths() {
    let ep = FakeEp::new();
    let immediate = |op| Completion {
        op,
        imm: 0x0102_0304,
        flags: dat_engine::CompletionFlags::WITH_IMM,
        ..ep.received(1)
    };
    let request = |op| Completion { op, ..ep.sent(8) };
    let requests = CompletionOp::ALL
        .into_iter()
        .filter(|&op| op == CompletionOp::WriteImm || op.is_atomic());
    let data = u32::from_ne_bytes([1, 2, 3, 4]);
    let received = [CompletionOp::Recv, CompletionOp::RecvWriteImm];
    let received = received.map(|op| (immediate(op), ExtendedOperation::of(op, true), 1, 11, data));
    let requests = requests.map(|op| (request(op), ExtendedOperation::of(op, false), 8, 8, 0));
    let (completions, expected): (Vec<_>, Vec<_>) = received
        .into_iter()
        .chain(requests)
        .map(|(completion, operation, cookie, length, immediate)| {
            let event = EventData::ExtendedDto {
                ep: ep.handle(),
                cookie,
                status: DtoStatus::Success,
                length,
                operation: operation.expect("it is extended"),
                immediate,
            };
            (completion, event)
        })
        .unzip();
    for (is_direct, waits) in [(true, false), (true, true), (false, false), (false, true)] {
        let fixture = Fixture::new(8, EvdFlags::DTO);
        fixture.ia.choose_path(is_direct);
        let (role, flags) = (DtoRole::Recv { depth: 8 }, CompletionFlags::empty());
        let _stream = fixture.evd.attach_dto(role, flags, &[]).expect("room");
        let ring = fixture.ia.rings().pop().expect("a queue");
        for &completion in &completions {
            ring.complete(completion);
        }
        for (at, &event) in expected.iter().enumerate() {
            let taken = if waits {
                let waited = fixture.poll(1);
                assert_eq!(waited.nmore as usize, expected.len() - 1 - at);
                waited.result.map(|event| event.data)
            } else {
                fixture.dequeue()
            };
            assert_eq!(taken, Ok(event), "direct: {is_direct}, waits: {waits}");
        }
        assert_eq!(code(fixture.dequeue()), EMPTY);
    }
}

#[test]
fn evd_w01_completions_become_events_with_every_field() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    let ep = FakeEp::new();
    ring.complete(ep.received(u64::from(u32::MAX) << 20));
    ring.complete(ep.sent(77));
    ring.complete(Completion {
        imm: 5 | (1 << 31),
        ..ep.sent(78)
    });
    ring.complete(Completion {
        op: CompletionOp::Write,
        ..ep.sent(79)
    });
    ring.complete(Completion {
        op: CompletionOp::Read,
        ..ep.sent(80)
    });
    let event = |cookie, length, operation| {
        Ok(EventData::Dto {
            ep: ep.handle(),
            cookie,
            status: DtoStatus::Success,
            length,
            operation,
        })
    };
    let cookie = u64::from(u32::MAX) << 20;
    assert_eq!(
        fixture.dequeue(),
        event(cookie, u64::from(cookie as u32 + 10), DtoOperation::Receive)
    );
    assert_eq!(fixture.dequeue(), event(77, 77, DtoOperation::Send));
    assert_eq!(fixture.dequeue(), event(78, 5, DtoOperation::Send));
    assert_eq!(fixture.dequeue(), event(79, 79, DtoOperation::RdmaWrite));
    assert_eq!(fixture.dequeue(), event(80, 80, DtoOperation::RdmaRead));
    assert_eq!(code(fixture.dequeue()), EMPTY);
}

#[test]
fn evd_receives_are_counted_while_they_are_staged() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::empty());
    let ep = FakeEp::new();
    // In the device's queue, and in the EVD.
    let counts = || {
        let staged = ep.counters().recv_staged.load(Ordering::Relaxed);
        (ring.len(), staged)
    };
    ring.complete(ep.received(0));
    ring.complete(ep.sent(1));
    assert_eq!(counts(), (2, 0), "in the queue of the device");
    fixture.dequeue().expect("the receive");
    assert_eq!(counts(), (1, 0));
    fixture.dequeue().expect("the send");
    assert_eq!(counts(), (0, 0));
    for cookie in 2..5 {
        ring.complete(ep.received(cookie));
    }
    ring.complete(ep.sent(5));
    assert_eq!(fixture.poll(8).nmore, 4);
    assert_eq!(counts(), (4, 0), "counted where they are");
    let event = ep.connection(crate::types::ConnectionKind::Disconnected);
    fixture.evd.post(event).expect("room");
    assert_eq!(fixture.dequeue().map(number), Ok(2));
    assert_eq!(counts(), (0, 2), "staged before the connection event");
    fixture.evd.purge(ep.handle());
    assert_eq!(counts(), (0, 0));
    assert_eq!(fixture.dequeue(), Ok(event));
    assert_eq!(code(fixture.dequeue()), EMPTY);
}

#[test]
fn evd_purge_removes_the_completions_of_one_endpoint_only() {
    let (fixture, _stream, ring) = Fixture::receiving(8, CompletionFlags::EVD_THRESHOLD);
    let (one, other) = (FakeEp::new(), FakeEp::new());
    for cookie in 0..3 {
        ring.complete(one.received(cookie));
        ring.complete(other.received(10 + cookie));
    }
    let event = one.connection(crate::types::ConnectionKind::Disconnected);
    fixture.evd.post(event).expect("room");
    assert_eq!(fixture.poll(8).nmore, 7);
    fixture.evd.purge(one.handle());
    for cookie in 10..13 {
        assert_eq!(fixture.dequeue().map(number), Ok(cookie));
    }
    assert_eq!(fixture.dequeue(), Ok(event), "a connection event stays");
    assert_eq!(code(fixture.dequeue()), EMPTY);
}

#[test]
fn evd_no_queue_of_several_starves() {
    let fixture = Fixture::new(1, EvdFlags::DTO);
    let ep = FakeEp::new();
    let role = DtoRole::Recv { depth: 100 };
    let attach = || {
        fixture
            .evd
            .attach_dto(role, CompletionFlags::empty(), &[])
            .expect("a stream")
    };
    let _streams = [attach(), attach()];
    let [busy, idle] = &fixture.ia.rings()[..] else {
        panic!("two queues, since the first is full");
    };
    for cookie in 0..100 {
        busy.complete(ep.received(cookie));
    }
    idle.complete(ep.received(1000));
    let place = (0..101).position(|_| fixture.dequeue().map(number) == Ok(1000));
    assert!(
        place.expect("the completion is handed out") <= 16,
        "{place:?}"
    );
    assert_eq!(
        busy.len() + idle.len(),
        100 - place.expect("the completion is handed out")
    );
}

#[test]
fn evd_drain_stages_completions_and_processes_queue_commands() {
    let (fixture, _stream, ring) = Fixture::receiving(4, CompletionFlags::empty());
    let ep = FakeEp::new();
    ring.complete(ep.received(1));
    ring.complete(ep.received(2));
    let processed = ring.processed.load(Ordering::Relaxed);
    fixture.evd.drain();
    assert_eq!(ring.len(), 0);
    assert!(ring.processed.load(Ordering::Relaxed) > processed);
    assert_eq!(ep.counters().recv_staged.load(Ordering::Relaxed), 2);
    assert_eq!(fixture.dequeue().map(number), Ok(1));
    assert_eq!(fixture.dequeue().map(number), Ok(2));
}

#[test]
fn evd_calls_fail_after_a_queue_has_failed() {
    let fixture = Fixture::software(1);
    fixture.evd.fail();
    let dead = (ReturnType::InvalidState, Subtype::NoSubtype);
    assert_eq!(code(fixture.dequeue()), dead);
    assert_eq!(code(fixture.poll(1).result), dead);
}
