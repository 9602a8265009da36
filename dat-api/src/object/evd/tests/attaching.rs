//! Which streams may share an EVD, and how much room they get.

use core::sync::atomic::Ordering;

use super::fixture::{FakeEp, Fixture, code, number};
use crate::object::evd::{DtoConfig, DtoRole, DtoStream, StreamKind};
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EvdFlags};

const NONE: CompletionFlags = CompletionFlags::empty();
const UNSIGNALLED: CompletionFlags = CompletionFlags::UNSIGNALLED;
const SOLICITED: CompletionFlags = CompletionFlags::SOLICITED_WAIT;
const THRESHOLD: CompletionFlags = CompletionFlags::EVD_THRESHOLD;
const MISMATCH: (ReturnType, Subtype) = (ReturnType::InvalidParameter, Subtype::NoSubtype);

const RECV: DtoRole = DtoRole::Recv { depth: 4 };
const REQUEST: DtoRole = DtoRole::Request { depth: 4 };

fn everything() -> Fixture {
    Fixture::new(4, EvdFlags::all() - EvdFlags::SOFTWARE)
}

#[test]
fn evd_e12_dto_streams_of_one_evd_must_have_one_attribute() {
    let kinds = [NONE, UNSIGNALLED, SOLICITED, THRESHOLD];
    for (first, old) in [(RECV, false), (REQUEST, true)]
        .into_iter()
        .flat_map(|(role, request)| kinds.map(|kind| ((role, request), kind)))
    {
        let fixture = everything();
        let (first_role, first_is_request) = first;
        let attached = fixture.evd.attach_dto(first_role, old, &[]);
        if first_is_request && old == SOLICITED {
            assert_eq!(code(attached), MISMATCH);
            continue;
        }
        let _first = attached.expect("alone");
        for (role, is_request) in [(RECV, false), (REQUEST, true)] {
            for new in kinds {
                let good = new == old && !(is_request && new == SOLICITED);
                match fixture.evd.attach_dto(role, new, &[]) {
                    Ok(_) => assert!(good, "{old:?} then {new:?}"),
                    Err(error) => {
                        assert!(!good, "{old:?} then {new:?}: {error}");
                        assert_eq!(code::<()>(Err(error)), MISMATCH);
                    }
                }
            }
        }
    }
}

/// Streams that mix, of endpoints with a receive queue of their own, and streams that do not.
#[test]
fn evd_e12_streams_that_mix_may_have_different_attributes() {
    use crate::object::evd::streams::Attribute;
    let mixing = |flags| DtoConfig { flags, mixes: true };
    let kinds = [NONE, UNSIGNALLED, THRESHOLD];
    for (one, other) in kinds
        .iter()
        .flat_map(|one| kinds.map(|other| (*one, other)))
    {
        if one == other {
            continue;
        }
        let fixture = everything();
        let attribute = || fixture.evd.state.attribute();
        let first = fixture
            .evd
            .attach_dto(RECV, mixing(one), &[])
            .expect("alone");
        let alone = attribute();
        let second = fixture.evd.attach_dto(REQUEST, mixing(other), &[]);
        let second = second.unwrap_or_else(|error| panic!("{one:?} and {other:?}: {error}"));
        let expected = match one == UNSIGNALLED || other == UNSIGNALLED {
            true => Attribute::Unsignalled,
            false => Attribute::Threshold,
        };
        assert_eq!(attribute(), Some(expected), "{one:?} and {other:?}");
        // A stream that does not mix cannot join, whatever its flags.
        for flags in kinds {
            assert_eq!(code(fixture.evd.attach_dto(RECV, flags, &[])), MISMATCH);
        }
        assert_eq!(
            code(fixture.evd.attach_dto(RECV, mixing(SOLICITED), &[])),
            MISMATCH
        );
        drop(second);
        assert_eq!(attribute(), alone);
        // Beside one that does not mix, all must be alike.
        let page = fixture.evd.attach_dto(RECV, one, &[]).expect("alike");
        assert_eq!(
            code(fixture.evd.attach_dto(REQUEST, mixing(other), &[])),
            MISMATCH
        );
        drop(first);
        assert_eq!(
            code(fixture.evd.attach_dto(REQUEST, mixing(other), &[])),
            MISMATCH
        );
        drop(page);
        assert!(fixture.evd.attach_dto(REQUEST, mixing(other), &[]).is_ok());
    }
    let fixture = everything();
    let solicited = fixture
        .evd
        .attach_dto(RECV, mixing(SOLICITED), &[])
        .expect("alone");
    for flags in kinds {
        assert_eq!(
            code(fixture.evd.attach_dto(REQUEST, mixing(flags), &[])),
            MISMATCH
        );
    }
    drop(solicited);
    assert_eq!(fixture.evd.state.attribute(), None);
}

#[test]
fn evd_e12_controlled_notification_excludes_other_kinds_of_streams() {
    for (flags, tolerant) in [
        (NONE, true),
        (THRESHOLD, true),
        (UNSIGNALLED, false),
        (SOLICITED, false),
    ] {
        for kind in [StreamKind::Cr, StreamKind::Connection, StreamKind::Async] {
            let fixture = everything();
            let dto = fixture.evd.attach_dto(RECV, flags, &[]).expect("alone");
            assert_eq!(
                fixture.evd.attach(kind).is_ok(),
                tolerant,
                "{flags:?} {kind:?}"
            );
            drop(dto);
            let other = fixture.evd.attach(kind).expect("alone again");
            assert_eq!(fixture.evd.attach_dto(RECV, flags, &[]).is_ok(), tolerant);
            drop(other);
            assert!(fixture.evd.attach_dto(RECV, flags, &[]).is_ok());
        }
        // Software events notify only when the consumer posts them.
        let fixture = Fixture::new(4, EvdFlags::DTO | EvdFlags::SOFTWARE);
        assert!(
            fixture.evd.attach_dto(RECV, flags, &[]).is_ok(),
            "{flags:?}"
        );
    }
}

#[test]
fn evd_e12_a_refused_stream_changes_nothing() {
    let fixture = everything();
    let first = fixture.evd.attach_dto(RECV, THRESHOLD, &[]).expect("alone");
    let both = THRESHOLD | UNSIGNALLED;
    for flags in [NONE, UNSIGNALLED, SOLICITED, both] {
        let big = DtoRole::Recv { depth: 5000 };
        assert_eq!(code(fixture.evd.attach_dto(big, flags, &[])), MISMATCH);
    }
    assert_eq!(fixture.evd.queue_length(), 4);
    assert_eq!(fixture.ia.rings().len(), 1);
    drop(first);
    assert!(fixture.evd.attach_dto(RECV, UNSIGNALLED, &[]).is_ok());
}

#[test]
fn evd_streams_need_the_flag_of_their_kind() {
    for (kind, subtype) in [
        (StreamKind::Cr, Subtype::InvalidHandleEvdCr),
        (StreamKind::Connection, Subtype::InvalidHandleEvdConn),
        (StreamKind::Async, Subtype::InvalidHandleEvdAsync),
    ] {
        let fixture = Fixture::new(1, EvdFlags::all() - kind.flag());
        assert_eq!(
            code(fixture.evd.attach(kind)),
            (ReturnType::InvalidHandle, subtype)
        );
        let fixture = Fixture::new(1, kind.flag());
        assert!(fixture.evd.attach(kind).is_ok());
        for (role, subtype) in [
            (RECV, Subtype::InvalidHandleEvdRecv),
            (REQUEST, Subtype::InvalidHandleEvdRequest),
        ] {
            assert_eq!(
                code(fixture.evd.attach_dto(role, NONE, &[])),
                (ReturnType::InvalidHandle, subtype)
            );
        }
    }
}

#[test]
fn evd_queues_have_room_for_all_attached_streams() {
    let fixture = everything();
    let attach = |role| fixture.evd.attach_dto(role, NONE, &[]).expect("room");
    let mut streams: Vec<DtoStream> = Vec::new();
    for depth in [1, 2, 1, 7, 100, 30, 30, 41] {
        streams.push(attach(DtoRole::Recv { depth }));
    }
    let rings = fixture.ia.rings();
    let room: u32 = rings.iter().map(|ring| ring.capacity).sum();
    let asked = 1 + 2 + 1 + 7 + 100 + 30 + 30 + 41;
    assert!(room >= asked, "{room}");
    assert!(rings.len() <= 4, "few queues: {}", rings.len());
    assert_eq!(fixture.evd.queue_length(), asked);
    // Every stream at its limit: `Ring::complete` panics at an overflow.
    let ep = FakeEp::new();
    let mut cookie = 0;
    for stream in &streams {
        for _ in 0..stream.depth() {
            rings[stream.queue()].complete(ep.received(cookie));
            cookie += 1;
        }
    }
    let waited = fixture.poll(asked as i32);
    assert!(waited.result.is_ok());
    assert_eq!(waited.nmore, asked - 1);
}

#[test]
fn evd_an_srq_is_counted_once() {
    let fixture = everything();
    let srqs = [FakeEp::new(), FakeEp::new()];
    let attach = |which: usize| {
        let role = DtoRole::SharedRecv {
            srq: srqs[which].handle(),
            depth: 40,
        };
        fixture.evd.attach_dto(role, NONE, &[]).expect("room")
    };
    let mut streams: Vec<_> = (0..10).map(|_| attach(0)).collect();
    assert_eq!(fixture.evd.queue_length(), 40);
    assert_eq!(fixture.ia.rings().len(), 1);
    let other = attach(1);
    assert_eq!(fixture.evd.queue_length(), 80);
    assert_eq!(fixture.ia.rings().len(), 2);
    assert_eq!(other.queue(), 1);
    streams.push(attach(0));
    assert_eq!(streams[10].queue(), 0, "the queue of its SRQ");
    // The room is free again when the last of them is dropped, not before.
    drop(streams.drain(1..).collect::<Vec<_>>());
    let big = DtoRole::Recv { depth: 40 };
    assert_eq!(
        fixture
            .evd
            .attach_dto(big, NONE, &[])
            .expect("room")
            .queue(),
        2
    );
    drop(streams);
    assert_eq!(
        fixture
            .evd
            .attach_dto(big, NONE, &[])
            .expect("room")
            .queue(),
        0
    );
}

#[test]
fn evd_room_is_released_only_after_the_queue_was_polled() {
    let fixture = everything();
    let stream = fixture.evd.attach_dto(RECV, NONE, &[]).expect("room");
    let ring = fixture.ia.rings().remove(0);
    let ep = FakeEp::new();
    for cookie in 0..4 {
        ring.complete(ep.received(cookie));
    }
    {
        // A call owns the EVD and does not poll: the room stays reserved.
        let _owned = crate::object::evd::own(fixture.handle()).expect("free");
        drop(stream);
        assert_eq!(ring.len(), 4);
        let next = fixture.evd.attach_dto(RECV, NONE, &[]).expect("room");
        assert_eq!(next.queue(), 1);
    }
    fixture.evd.drain();
    assert_eq!(ring.len(), 0);
    let next = fixture.evd.attach_dto(RECV, NONE, &[]).expect("room");
    assert_eq!(next.queue(), 0);
    for cookie in 4..8 {
        ring.complete(ep.received(cookie));
    }
    for cookie in 0..8 {
        assert_eq!(fixture.dequeue().map(number), Ok(cookie));
    }
}

#[test]
fn evd_too_deep_streams_are_refused() {
    let fixture = everything();
    let role = DtoRole::Recv {
        depth: (1 << 16) + 1,
    };
    assert_eq!(
        code(fixture.evd.attach_dto(role, NONE, &[])),
        (ReturnType::InsufficientResources, Subtype::ResourceMemory)
    );
    assert!(fixture.ia.rings().is_empty());
    assert!(
        fixture.evd.attach_dto(RECV, UNSIGNALLED, &[]).is_ok(),
        "as before"
    );
}

#[test]
fn evd_attaching_during_a_wait_arms_the_new_queue() {
    let fixture = Fixture::new(4, EvdFlags::DTO | EvdFlags::CONNECTION);
    let ep = FakeEp::new();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| fixture.wait(crate::object::evd::Timeout::Infinite, 1));
        fixture.until_blocked();
        let _first = fixture.evd.attach_dto(RECV, NONE, &[]).expect("room");
        let _second = fixture.evd.attach_dto(RECV, NONE, &[]).expect("room");
        let rings = fixture.ia.rings();
        while rings
            .iter()
            .any(|ring| ring.arms.load(Ordering::Relaxed) == 0)
        {
            std::thread::yield_now();
        }
        rings[1].complete(ep.received(5));
        let waited = waiter.join().expect("no panic");
        assert_eq!(waited.result.map(|event| number(event.data)), Ok(5));
    });
}

/// While an endpoint is recreated, its streams are suspended. The streams that replace them need
/// not match their flags and may use their room, but other streams may not use it. If nothing
/// replaces them, they are resumed.
#[test]
fn evd_streams_of_a_recreated_endpoint_are_suspended() {
    let fixture = Fixture::new(64, EvdFlags::all() - EvdFlags::SOFTWARE);
    let attach = |role, flags, before: &[&DtoStream]| fixture.evd.attach_dto(role, flags, before);
    let mut recv = attach(RECV, THRESHOLD, &[]).expect("alone");
    let capacity = fixture.evd.attachments().queues[0].capacity;
    let rest = DtoRole::Recv {
        depth: capacity - 8,
    };
    let mut request = attach(REQUEST, THRESHOLD, &[]).expect("alike");
    let length = fixture.evd.queue_length();
    recv.suspend();
    request.suspend();
    // Other streams get only the remaining room.
    let other = attach(rest, UNSIGNALLED, &[]).expect("no stream is attached");
    assert_eq!(other.queue(), 0);
    assert_eq!(
        attach(RECV, UNSIGNALLED, &[])
            .expect("in another queue")
            .queue(),
        1
    );
    let before = [&recv, &request];
    let larger = DtoRole::Recv { depth: 5 };
    let [one, two] = [larger, DtoRole::Request { depth: 3 }]
        .map(|role| attach(role, UNSIGNALLED, &before).expect("in their place"));
    assert_eq!((one.queue(), two.queue()), (0, 0));
    assert_eq!(
        attach(RECV, UNSIGNALLED, &before).expect("no more").queue(),
        1
    );
    assert_eq!(fixture.evd.queue_length(), length.max(capacity + 4));
    // Suspended streams exclude no others, but cannot be resumed beside streams that they do not
    // match.
    assert_eq!(code(recv.resume()), MISMATCH);
    drop((one, two, other));
    recv.resume().expect("alone again");
    request.resume().expect("alike");
    assert_eq!(code(attach(RECV, UNSIGNALLED, &[])), MISMATCH);
    drop((recv, request));
    attach(RECV, UNSIGNALLED, &[]).expect("no stream is attached");
    fixture.evd.drain();
    let mut attachments = fixture.evd.attachments();
    attachments.release_detached(|command| fixture.evd.posted.is_done(command));
    assert_eq!(attachments.depth(), 0);
}

/// As above, for a connection stream.
#[test]
fn evd_a_suspended_stream_excludes_no_others_and_resumes() {
    let fixture = everything();
    let mut guard = fixture.evd.attach(StreamKind::Connection).expect("alone");
    assert_eq!(
        code(fixture.evd.attach_dto(RECV, UNSIGNALLED, &[])),
        MISMATCH
    );
    guard.suspend();
    let dto = fixture
        .evd
        .attach_dto(RECV, UNSIGNALLED, &[])
        .expect("alone");
    assert_eq!(code(guard.resume()), MISMATCH);
    drop(dto);
    guard.resume().expect("alone again");
    assert_eq!(
        code(fixture.evd.attach_dto(RECV, UNSIGNALLED, &[])),
        MISMATCH
    );
    drop(guard);
    fixture
        .evd
        .attach_dto(RECV, UNSIGNALLED, &[])
        .expect("alone");
}
