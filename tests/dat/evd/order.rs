//! Order: what W15 and W22 do not cover.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, Shape, device, ep_info, expect, nothing_on, ok, reaches, take, take_dto,
    within_seconds,
};

/// Creates a pair whose passive end has one EVD for everything.
fn with_one_evd(fixture: &Fixture) -> Pair {
    let shape = Shape {
        recv_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        request_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        ..Shape::default()
    };
    let evd = fixture.evd(64, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
    let mut end = End {
        ep: ptr::null_mut(),
        recv: evd,
        request: evd,
        connect: evd,
    };
    let attributes = shape.attributes();
    // SAFETY: live handles, and a place for the result.
    ok(unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            evd,
            evd,
            evd,
            &raw const attributes,
            &raw mut end.ep,
        )
    });
    Pair::connect(fixture, End::new(fixture, &shape), end)
}

/// Receives filled before the disconnect come before its event; the others come
/// as flushed.
#[test]
fn evd_o04_completions_come_before_the_disconnection() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    for round in 0..8 {
        // The peer or this end disconnects.
        let flags = [DAT_CLOSE_GRACEFUL_FLAG, DAT_CLOSE_ABRUPT_FLAG][round % 2];
        let pair = with_one_evd(&fixture);
        for tag in 0..6 {
            ok(pair.passive.post_recv(&[memory.segment(1024, 8)], tag));
        }
        for _ in 0..4 {
            let segment = [memory.segment(0, 8)];
            ok(pair
                .active
                .post_send(&segment, 9, DAT_COMPLETION_DEFAULT_FLAG));
        }
        fixture.run();
        for _ in 0..4 {
            take_dto(pair.active.request);
        }
        // SAFETY: a live handle.
        ok(unsafe {
            match flags {
                DAT_CLOSE_GRACEFUL_FLAG => dat_ep_disconnect(pair.active.ep, flags),
                _ => dat_ep_disconnect(pair.passive.ep, flags),
            }
        });
        // The connection event has arrived, and no call has polled the
        // completions: unlike `dat_ep_get_status`, this query does not poll.
        let is_over = || {
            let state = ep_info(pair.passive.ep).ep_state;
            (state == DAT_EP_STATE_DISCONNECTED).then_some(())
        };
        within_seconds(is_over).expect("disconnected");
        fixture.run();
        let mut taken = Vec::new();
        while taken.len() < 7 {
            let event = take(pair.passive.recv, "event");
            taken.push(match event.event_number {
                DAT_DTO_COMPLETION_EVENT => {
                    let dto = crate::support::dto(&event);
                    (dto.cookie, dto.status)
                }
                DAT_CONNECTION_EVENT_DISCONNECTED => (u64::MAX, 0),
                other => panic!("event {other:#x}"),
            });
        }
        let end = taken.iter().position(|&(tag, _)| tag == u64::MAX);
        let end = end.expect("it was disconnected");
        let done: Vec<_> = taken.iter().filter(|&&(tag, _)| tag != u64::MAX).collect();
        for (tag, &&(cookie, status)) in done.iter().enumerate() {
            assert_eq!(cookie, tag as u64, "in the order of their posts");
            let wanted = match tag < 4 {
                true => DAT_DTO_SUCCESS,
                false => DAT_DTO_ERR_FLUSHED,
            };
            assert_eq!(status, wanted, "round {round}, receive {tag}");
        }
        assert!(end >= 4, "round {round}: {taken:?}");
    }
}

/// After one transfer of a direction has failed, all later ones fail too.
#[test]
fn evd_o05_after_the_first_failure_all_fail() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    // Rounds in which some transfers of a direction failed and others did not.
    let mut mixed = [0; 2];
    for steps in 0..12 {
        let pair = Pair::new(&fixture, &Shape::default());
        for tag in 0..8 {
            ok(pair.passive.post_recv(&[memory.segment(1024, 8)], tag));
        }
        for tag in 0..8 {
            let segment = [memory.segment(0, 8)];
            ok(pair
                .active
                .post_send(&segment, tag, DAT_COMPLETION_DEFAULT_FLAG));
        }
        // Somewhere between the first and the last.
        fixture.steps(steps);
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
        reaches(pair.passive.ep, DAT_EP_STATE_DISCONNECTED);
        reaches(pair.active.ep, DAT_EP_STATE_DISCONNECTED);
        fixture.run();
        let directions = [pair.active.request, pair.passive.recv];
        for (evd, mixed) in directions.into_iter().zip(&mut mixed) {
            let done = [(); 8].map(|()| take_dto(evd));
            let cookies = done.map(|dto| dto.cookie);
            assert_eq!(cookies, [0, 1, 2, 3, 4, 5, 6, 7]);
            let failed = done.iter().position(|dto| dto.status != DAT_DTO_SUCCESS);
            let rest = &done[failed.unwrap_or(8)..];
            assert!(
                rest.iter().all(|dto| dto.status != DAT_DTO_SUCCESS),
                "{done:?}"
            );
            *mixed += u32::from((1..8).contains(&failed.unwrap_or(8)));
            nothing_on(evd);
        }
    }
    // On a device that works on its own this depends on timing.
    if fixture.is_stepped() {
        assert!(mixed.into_iter().all(|rounds| rounds > 0), "{mixed:?}");
    }
}

/// The completion of a post to a disconnected endpoint comes after all others.
#[test]
fn evd_o08_a_post_after_the_disconnect_completes_last() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    for tag in 0..6 {
        ok(pair.passive.post_recv(&[memory.segment(1024, 8)], tag));
    }
    for tag in 0..3 {
        let segment = [memory.segment(0, 8)];
        ok(pair
            .active
            .post_send(&segment, tag, DAT_COMPLETION_DEFAULT_FLAG));
    }
    fixture.run();
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_GRACEFUL_FLAG) });
    fixture.run();
    for end in [pair.active, pair.passive] {
        expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        reaches(end.ep, DAT_EP_STATE_DISCONNECTED);
    }
    ok(pair.passive.post_recv(&[memory.segment(1024, 8)], 99));
    let segment = [memory.segment(0, 8)];
    ok(pair
        .active
        .post_send(&segment, 98, DAT_COMPLETION_DEFAULT_FLAG));
    fixture.run();
    let cookies = |evd, count| {
        device::all(count, || {
            crate::support::dequeue(evd)
                .ok()
                .map(|event| crate::support::dto(&event).cookie)
        })
    };
    assert_eq!(cookies(pair.passive.recv, 7), [0, 1, 2, 3, 4, 5, 99]);
    assert_eq!(cookies(pair.active.request, 4), [0, 1, 2, 98]);
}

/// An endpoint is reset many times, and no call dequeues the events that each
/// connection leaves. They are removed with the connection, and never fill a
/// queue of the device.
#[test]
fn evd_events_of_earlier_connections_do_not_pile_up() {
    let fixture = Fixture::new();
    let shape = Shape::default();
    let memory = fixture.memory(4096);
    let ends = [End::new(&fixture, &shape), End::new(&fixture, &shape)];
    let lengths = || {
        ends.map(|end| {
            // SAFETY: integers and pointers, for which zero is valid.
            let mut info: DAT_EVD_PARAM = unsafe { std::mem::zeroed() };
            // SAFETY: a live handle; the result is writable.
            ok(unsafe { dat_evd_query(end.recv, DAT_EVD_FIELD_EVD_QLEN, &raw mut info) });
            info.evd_qlen
        })
    };
    let before = lengths();
    for life in 0..20 {
        Pair::connect(&fixture, ends[0], ends[1]);
        for end in &ends {
            for tag in 0..16 {
                ok(end.post_recv(&[memory.segment(0, 8)], tag));
            }
        }
        ok(ends[0].post_send(&[memory.segment(64, 8)], 77, DAT_COMPLETION_DEFAULT_FLAG));
        fixture.run();
        if life == 19 {
            break;
        }
        for end in &ends {
            // SAFETY: a live handle.
            ok(unsafe { dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG) });
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        }
        for end in &ends {
            // SAFETY: a live handle.
            ok(unsafe { dat_ep_reset(end.ep) });
        }
    }
    let event = ends[1].received();
    assert_eq!((event.cookie, event.status), (0, DAT_DTO_SUCCESS));
    assert_eq!(ends[0].requested().cookie, 77);
    assert_eq!(lengths(), before);
    nothing_on(fixture.async_evd);
}
