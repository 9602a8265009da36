//! The order of events from several sources.

use super::fixture::{FakeEp, Fixture, number};
use crate::object::evd::{DtoRole, Timeout};
use crate::types::{CompletionFlags, ConnectionKind, EvdFlags, EventData};

fn is_end(data: &EventData) -> bool {
    matches!(
        data,
        EventData::Connection {
            kind: ConnectionKind::Disconnected,
            ..
        }
    )
}

#[test]
fn evd_w15_one_stream_stays_in_order_however_it_is_taken() {
    let (fixture, _stream, ring) = Fixture::receiving(32, CompletionFlags::EVD_THRESHOLD);
    let ep = FakeEp::new();
    let (mut next_in, mut next_out) = (0u64, 0u64);
    for step in 0u64..400 {
        for _ in 0..step % 3 {
            if next_in - next_out < 32 {
                ring.complete(ep.received(next_in));
                next_in += 1;
            }
        }
        let taken = match step % 4 {
            0 => fixture.dequeue(),
            1 => fixture.poll(1).result.map(|event| event.data),
            2 => fixture.poll(4).result.map(|event| event.data),
            _ => {
                fixture.evd.drain();
                continue;
            }
        };
        if let Ok(data) = taken {
            assert_eq!(number(data), next_out);
            next_out += 1;
        }
    }
    assert!(next_out > 100, "{next_out}");
}

#[test]
fn evd_a_disconnect_comes_after_the_completions_that_were_there_before_it() {
    for by_wait in [false, true] {
        let fixture = Fixture::new(4, EvdFlags::DTO | EvdFlags::CONNECTION);
        let ep = FakeEp::new();
        let flags = CompletionFlags::EVD_THRESHOLD;
        // Two queues, each full.
        let attach = |depth| fixture.evd.attach_dto(DtoRole::Recv { depth }, flags, &[]);
        let _streams = [attach(20).expect("a stream"), attach(30).expect("another")];
        let rings = fixture.ia.rings();
        assert_eq!(rings.len(), 2);
        let mut before = 0;
        for ring in &rings {
            for _ in 0..ring.capacity {
                ring.complete(ep.received(before));
                before += 1;
            }
        }
        fixture
            .evd
            .post(ep.connection(ConnectionKind::Disconnected))
            .expect("room");
        let mut seen = 0;
        loop {
            let event = if by_wait {
                fixture
                    .wait(Timeout::Infinite, 1)
                    .result
                    .expect("there")
                    .data
            } else {
                fixture.dequeue().expect("there")
            };
            if is_end(&event) {
                break;
            }
            seen += 1;
            // Later completions are neither delayed nor do they delay the posted event.
            if rings[0].len() < 20 {
                rings[0].complete(ep.received(1000 + seen));
            }
        }
        assert!(seen >= before, "{seen} of {before}, by_wait {by_wait}");
        let most = before + u64::from(rings[0].capacity) + 1;
        assert!(seen <= most, "{seen}: posted events starve");
    }
}

#[test]
fn evd_software_events_do_not_starve_behind_a_busy_queue() {
    let fixture = Fixture::new(64, EvdFlags::DTO | EvdFlags::SOFTWARE);
    let ep = FakeEp::new();
    let role = DtoRole::Recv { depth: 64 };
    let _stream = fixture
        .evd
        .attach_dto(role, CompletionFlags::empty(), &[])
        .expect("a stream");
    let ring = &fixture.ia.rings()[0];
    for cookie in 0..64 {
        ring.complete(ep.received(cookie));
    }
    fixture.post(7777);
    let place = (0..1000u64).position(|round| {
        let event = fixture.dequeue().expect("never empty");
        if ring.len() < 64 {
            ring.complete(ep.received(round));
        }
        number(event) == 7777
    });
    assert_eq!(
        place,
        Some(64),
        "after the completions that were there, before later ones"
    );
}
