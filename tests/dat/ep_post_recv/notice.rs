//! Which EVD reports a received message, and what wakes a waiter.

use std::thread;
use std::time::Duration;

use dat::abi::*;

use super::{DEFAULT, post};
use crate::support::{
    End, Fixture, Memory, Pair, Shape, Waiter, fails, held, joined, nothing_on, ok, take_dto, wait,
};

/// Long enough for a waiter to fall asleep or to wake.
const MOMENT: Duration = Duration::from_millis(60);

const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;
const SOLICITED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SOLICITED_WAIT_FLAG;

fn configured(recv_flags: DAT_COMPLETION_FLAGS) -> Shape {
    Shape {
        recv_flags,
        ..Shape::default()
    }
}

fn send(fixture: &Fixture, from: &End, memory: &Memory, flags: DAT_COMPLETION_FLAGS) {
    ok(from.post_send(&[memory.segment(0, 8)], 0, flags));
    fixture.run();
    assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
}

#[test]
fn ep_post_recv_r04_the_completion_comes_later_and_on_the_recv_evd_alone() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    ok(to.post_recv(&[memory.segment(1024, 8)], 1));
    fixture.run();
    nothing_on(to.recv);
    ok(from.post_send(&[memory.segment(0, 8)], 2, DEFAULT));
    if fixture.is_stepped() {
        nothing_on(to.recv);
    }
    fixture.run();
    nothing_on(to.request);
    nothing_on(to.connect);
    nothing_on(from.recv);
    assert_eq!(to.received().cookie, 1);
    nothing_on(to.recv);
    assert_eq!(from.requested().cookie, 2);
    nothing_on(fixture.async_evd);
}

/// Several endpoints report to one EVD, and each event names its endpoint.
#[test]
fn ep_post_recv_r04_the_event_names_the_endpoint() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let shape = Shape::default();
    let recv = fixture.evd(64, DAT_EVD_DTO_FLAG);
    let pairs = [(); 3].map(|()| {
        let mut end = End::without_ep(&fixture, &shape);
        end.recv = recv;
        let attributes = shape.attributes();
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat::exports::dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                &raw const attributes,
                &raw mut end.ep,
            )
        });
        Pair::connect(&fixture, End::new(&fixture, &shape), end)
    });
    for at in [2, 0, 1, 1, 2] {
        let pair = &pairs[at];
        ok(pair
            .passive
            .post_recv(&[memory.segment(1024, 8)], at as u64));
        send(&fixture, &pair.active, &memory, DEFAULT);
        let received = take_dto(recv);
        assert_eq!((received.ep, received.cookie), (pair.passive.ep, at as u64));
    }
}

/// The flags of the endpoint and of the send decide whether a waiter is woken.
/// The event is queued in any case.
#[test]
fn ep_post_recv_r04_solicited_endpoints_are_woken_by_solicited_sends_only() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::connect(
        &fixture,
        End::new(&fixture, &Shape::default()),
        End::new(&fixture, &configured(SOLICITED)),
    );
    let (from, to) = (pair.active, pair.passive);
    for tag in 0..4 {
        ok(to.post_recv(&[memory.segment(1024, 8)], tag));
    }
    thread::scope(|scope| {
        let waiter = Waiter::spawn(scope, move || {
            let to = to;
            let (answer, event, nmore) = wait(to.recv, 60_000_000, 1);
            ok(answer);
            (crate::support::dto(&event).cookie, nmore)
        });
        waiter.until_asleep();
        for _ in 0..2 {
            send(&fixture, &from, &memory, DEFAULT);
            thread::sleep(MOMENT);
            assert!(!waiter.is_finished(), "an unsolicited send woke the waiter");
        }
        send(&fixture, &from, &memory, SOLICITED);
        assert_eq!(joined(waiter), (0, 2));
    });
    assert_eq!(to.received().cookie, 1);
    assert_eq!(to.received().cookie, 2);
    // A polling thread gets all of them.
    send(&fixture, &from, &memory, DEFAULT);
    assert_eq!(to.received().cookie, 3);
}

#[test]
fn ep_post_recv_r04_by_default_every_send_wakes() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    for (tag, flags) in [DEFAULT, SOLICITED, DAT_COMPLETION_BARRIER_FENCE_FLAG]
        .into_iter()
        .enumerate()
    {
        ok(to.post_recv(&[memory.segment(1024, 8)], tag as u64));
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let to = to;
                wait(to.recv, 60_000_000, 1).0
            });
            thread::sleep(MOMENT);
            assert!(!waiter.is_finished());
            send(&fixture, &from, &memory, flags);
            ok(waiter.join().expect("no panic"));
        });
    }
}

#[test]
fn ep_post_recv_r05_unsignalled_is_for_endpoints_configured_so() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    for flags in [DEFAULT, SOLICITED, DAT_COMPLETION_EVD_THRESHOLD_FLAG] {
        let end = End::new(&fixture, &configured(flags));
        let mut iov = [memory.segment(0, 8), memory.segment(64, 8)];
        for count in 0..=2 {
            let refused = post(end.ep, count, iov.as_mut_ptr(), 1, UNSIGNALLED);
            fails(refused, DAT_INVALID_PARAMETER);
        }
        assert_eq!(held(end.ep), (0, 0));
        ok(post(end.ep, 1, iov.as_mut_ptr(), 1, DEFAULT));
    }
    // Configured for requests does not mean configured for receives.
    let end = End::new(
        &fixture,
        &Shape {
            request_flags: UNSIGNALLED,
            ..Shape::default()
        },
    );
    let mut iov = [memory.segment(0, 8)];
    fails(
        post(end.ep, 1, iov.as_mut_ptr(), 1, UNSIGNALLED),
        DAT_INVALID_PARAMETER,
    );
    let end = End::new(&fixture, &configured(UNSIGNALLED));
    for flags in [UNSIGNALLED, DEFAULT] {
        ok(post(end.ep, 1, iov.as_mut_ptr(), 1, flags));
    }
    assert_eq!(held(end.ep), (2, 2));
}

#[test]
fn ep_post_recv_r05_no_other_flag_is_for_receives() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let mut iov = [memory.segment(0, 8)];
    for recv_flags in [DEFAULT, UNSIGNALLED] {
        let end = End::new(&fixture, &configured(recv_flags));
        for bit in (0..32).filter(|&bit| 1 << bit != UNSIGNALLED) {
            for flags in [1 << bit, 1 << bit | UNSIGNALLED] {
                let refused = post(end.ep, 1, iov.as_mut_ptr(), 1, flags);
                fails(refused, DAT_INVALID_PARAMETER);
            }
        }
        assert_eq!(held(end.ep), (0, 0), "a refused receive was not posted");
    }
}

#[test]
fn ep_post_recv_r05_unsignalled_receives_do_not_wake_and_the_others_do() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::connect(
        &fixture,
        End::new(&fixture, &Shape::default()),
        End::new(&fixture, &configured(UNSIGNALLED)),
    );
    let (from, to) = (pair.active, pair.passive);
    let mut iov = [memory.segment(1024, 8)];
    for (tag, flags) in [UNSIGNALLED, UNSIGNALLED, DEFAULT, UNSIGNALLED]
        .into_iter()
        .enumerate()
    {
        ok(post(to.ep, 1, iov.as_mut_ptr(), tag as u64, flags));
    }
    thread::scope(|scope| {
        let waiter = Waiter::spawn(scope, move || {
            let to = to;
            let (answer, event, nmore) = wait(to.recv, 60_000_000, 1);
            ok(answer);
            (crate::support::dto(&event).cookie, nmore)
        });
        waiter.until_asleep();
        for _ in 0..2 {
            // Whatever the sender's flag.
            send(&fixture, &from, &memory, SOLICITED);
            thread::sleep(MOMENT);
            assert!(!waiter.is_finished(), "unsignalled");
        }
        send(&fixture, &from, &memory, DEFAULT);
        assert_eq!(joined(waiter), (0, 2));
    });
    send(&fixture, &from, &memory, DEFAULT);
    for tag in 1..4 {
        assert_eq!(to.received().cookie, tag, "every receive has its event");
    }
}
