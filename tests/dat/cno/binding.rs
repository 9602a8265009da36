//! Events that trigger a CNO, and events that do not.

use std::thread;

use dat::abi::*;
use dat::exports::*;

use super::{Cno, Evd, SECOND, joined, stays};
use crate::counters::counters;
use crate::support::{
    End, Fixture, MessagePair, Pair, ServicePoint, Shape, dequeue, expect, fails, nothing_on, ok,
    post_srq, srq, take, take_dto,
};

const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;
const SOLICITED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const SUPPRESS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG;

#[test]
fn cno_n09_a_disabled_evd_does_not_trigger() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    for _ in 0..2 {
        // Each call twice: the second has no effect.
        for call in [dat_evd_disable, dat_evd_disable] {
            evd.calls(call);
        }
        evd.post(1);
        cno.finds_nothing();
        assert_eq!(evd.drain(), [1]);
        for call in [dat_evd_enable, dat_evd_enable] {
            evd.calls(call);
        }
        cno.finds_nothing();
        evd.post(2);
        assert_eq!(cno.wait(SECOND), Ok(evd.0));
        assert_eq!(evd.drain(), [2]);
    }
}

/// Events that came while the EVD was disabled, and are still queued, trigger
/// when it is enabled, and wake a waiter.
#[test]
fn cno_n09_enabling_triggers_for_earlier_events() {
    let fixture = Fixture::strict();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    thread::scope(|scope| {
        let waiter = cno.asleep(scope);
        evd.calls(dat_evd_disable);
        evd.post(1);
        stays(&waiter);
        evd.calls(dat_evd_enable);
        assert_eq!(joined(waiter), Ok(evd));
    });
    cno.finds_nothing();
}

/// The same for completions of the device, on an EVD that is switched under a
/// sleeping waiter.
#[test]
fn cno_n09_completions_of_a_disabled_evd_trigger_once_it_is_enabled() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, DEFAULT, DEFAULT);
    cno.bind(messages.recv().0);
    messages.post_recvs(0..3);
    thread::scope(|scope| {
        let waiter = cno.asleep(scope);
        messages.recv().calls(dat_evd_disable);
        messages.deliver_suppressed(DEFAULT);
        stays(&waiter);
        assert_eq!(messages.received_tag(), 0);
        messages.deliver_suppressed(DEFAULT);
        stays(&waiter);
        messages.recv().calls(dat_evd_enable);
        assert_eq!(joined(waiter), Ok(messages.recv()));
        // The device's event, which nothing takes meanwhile, wakes the waiter once.
        let spurious = counters(cno.handle()).spurious;
        assert!(spurious <= 4, "{spurious} spurious wake-ups");
        assert_eq!(messages.received_tag(), 1);
        let waiter = cno.asleep(scope);
        messages.deliver_suppressed(DEFAULT);
        assert_eq!(joined(waiter), Ok(messages.recv()));
    });
}

/// A thread that waits on the EVD itself takes the EVD from its CNO, even while a
/// thread sleeps on the CNO. When the wait ends, the EVD triggers the CNO again.
#[test]
fn cno_n10_a_direct_waiter_takes_the_evd_and_releases_it() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, DEFAULT, DEFAULT);
    let recv = messages.recv();
    cno.bind(recv.0);
    messages.post_recvs(0..6);
    thread::scope(|scope| {
        for round in 0..2 {
            let waiter = cno.asleep(scope);
            let direct = scope.spawn(move || {
                let (answer, event, _) = crate::support::wait(recv.handle(), super::LONG, 1);
                ok(answer);
                crate::support::dto(&event).cookie
            });
            // The waiter owns the EVD as soon as other calls are refused.
            while !matches!(dequeue(recv.0), Err(answer) if answer & 0x3fff_0000 == DAT_INVALID_STATE)
            {
                thread::yield_now();
            }
            messages.deliver_suppressed(DEFAULT);
            assert_eq!(direct.join().expect("no panic"), 3 * round);
            stays(&waiter);
            // The device's notification is armed for the CNO; the waiter on the
            // EVD is woken all the same.
            messages.deliver_suppressed(DEFAULT);
            assert_eq!(joined(waiter), Ok(recv));
            assert_eq!(messages.received_tag(), 3 * round + 1);
            // A wait that times out releases the EVD as well.
            let waiter = cno.asleep(scope);
            let (answer, _, _) = crate::support::wait(recv.0, 10_000, 1);
            fails(answer, DAT_TIMEOUT_EXPIRED);
            stays(&waiter);
            messages.deliver_suppressed(DEFAULT);
            assert_eq!(joined(waiter), Ok(recv));
            assert_eq!(messages.received_tag(), 3 * round + 2);
        }
    });
}

#[test]
fn cno_n11_modify_cno_moves_the_triggers() {
    let fixture = Fixture::strict();
    let [one, two] = [(); 2].map(|()| Cno::new(&fixture));
    let messages = message_pair(&fixture, DEFAULT, DEFAULT);
    let recv = messages.recv();
    messages.post_recvs(0..6);
    one.bind(recv.0);
    messages.deliver_suppressed(DEFAULT);
    assert_eq!(one.wait(SECOND), Ok(recv.0));
    two.bind(recv.0);
    one.finds_nothing();
    // Events still queued count for the new CNO.
    assert_eq!(two.wait(SECOND), Ok(recv.0));
    two.finds_nothing();
    assert_eq!(messages.received_tag(), 0);
    thread::scope(|scope| {
        let old = two.asleep(scope);
        let new = one.asleep(scope);
        one.bind(recv.0);
        messages.deliver_suppressed(DEFAULT);
        assert_eq!(joined(new), Ok(recv));
        stays(&old);
        assert_eq!(messages.received_tag(), 1);
        // Disabled meanwhile, as the page advises: the old CNO is not triggered.
        recv.calls(dat_evd_disable);
        messages.deliver_suppressed(DEFAULT);
        two.bind(recv.0);
        stays(&old);
        recv.calls(dat_evd_enable);
        assert_eq!(joined(old), Ok(recv));
    });
    one.finds_nothing();
    assert_eq!(messages.received_tag(), 2);
    // No CNO at all. SAFETY: live handles.
    ok(unsafe { dat_evd_modify_cno(recv.0, DAT_HANDLE_NULL) });
    messages.deliver_suppressed(DEFAULT);
    one.finds_nothing();
    two.finds_nothing();
    assert_eq!(messages.received_tag(), 3);
}

/// A pair of endpoints with these completion flags.
fn message_pair(
    fixture: &Fixture,
    recv: DAT_COMPLETION_FLAGS,
    request: DAT_COMPLETION_FLAGS,
) -> MessagePair<'_> {
    let shape = Shape {
        recv_flags: recv,
        request_flags: request,
        ..Shape::default()
    };
    MessagePair::new(fixture, &shape)
}

#[test]
fn cno_n12_unsignalled_receives_do_not_trigger() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, UNSIGNALLED, DEFAULT);
    cno.bind(messages.recv().0);
    messages.post_recv_with(0, UNSIGNALLED);
    messages.post_recv_with(1, UNSIGNALLED);
    messages.post_recvs(2..3);
    thread::scope(|scope| {
        let waiter = cno.asleep(scope);
        messages.deliver_suppressed(DEFAULT);
        stays(&waiter);
        messages.deliver_suppressed(DEFAULT);
        stays(&waiter);
        // A notifying completion makes the earlier ones visible too.
        messages.deliver_suppressed(DEFAULT);
        assert_eq!(joined(waiter), Ok(messages.recv()));
    });
    assert_eq!([(); 3].map(|()| messages.received_tag()), [0, 1, 2]);
}

#[test]
fn cno_n12_unsignalled_requests_do_not_trigger() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, DEFAULT, UNSIGNALLED);
    cno.bind(messages.request().0);
    messages.post_recvs(0..3);
    thread::scope(|scope| {
        let waiter = cno.asleep(scope);
        messages.send(u64::MAX, UNSIGNALLED);
        stays(&waiter);
        messages.send(u64::MAX, SUPPRESS);
        stays(&waiter);
        messages.send(u64::MAX, DEFAULT);
        assert_eq!(joined(waiter), Ok(messages.request()));
    });
    let statuses = [(); 2].map(|()| take_dto(messages.request().0).status);
    assert_eq!(
        statuses, [DAT_DTO_SUCCESS; 2],
        "a suppressed request has no event"
    );
    nothing_on(messages.request().0);
}

#[test]
fn cno_n12_only_solicited_receives_trigger_where_so_configured() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let messages = message_pair(&fixture, SOLICITED, DEFAULT);
    cno.bind(messages.recv().0);
    for round in 0..2 {
        messages.post_recvs(0..3);
        thread::scope(|scope| {
            let waiter = cno.asleep(scope);
            messages.deliver_suppressed(DEFAULT);
            stays(&waiter);
            messages.deliver_suppressed(DEFAULT);
            stays(&waiter);
            messages.deliver_suppressed(SOLICITED);
            assert_eq!(joined(waiter), Ok(messages.recv()), "round {round}");
        });
        assert_eq!([(); 3].map(|()| messages.received_tag()), [0, 1, 2]);
        cno.finds_nothing();
    }
}

#[test]
fn cno_n12_what_fails_triggers_however_it_was_posted() {
    let fixture = Fixture::new();
    for (recv, flags) in [(UNSIGNALLED, UNSIGNALLED), (SOLICITED, DEFAULT)] {
        let cno = Cno::new(&fixture);
        let messages = message_pair(&fixture, recv, DEFAULT);
        cno.bind(messages.recv().0);
        messages.post_recv_with(0, flags);
        thread::scope(|scope| {
            let waiter = cno.asleep(scope);
            // SAFETY: a live handle.
            ok(unsafe { dat_ep_disconnect(messages.pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
            expect(
                messages.pair.passive.connect,
                DAT_CONNECTION_EVENT_DISCONNECTED,
            );
            fixture.run();
            assert_eq!(joined(waiter), Ok(messages.recv()));
        });
        assert_eq!(take_dto(messages.recv().0).status, DAT_DTO_ERR_FLUSHED);
    }
}

/// Checks that the wait ends with the EVD of each kind of event.
#[test]
fn cno_n13_every_kind_of_event_triggers() {
    let fixture = Fixture::strict();
    let cno = Cno::new(&fixture);
    let service_point = ServicePoint::new(&fixture);
    cno.bind(service_point.requests);
    let [active, passive] = [(); 2].map(|()| End::new(&fixture, &Shape::default()));
    for end in [active, passive] {
        cno.bind(end.connect);
    }
    let wait_for = |evd| {
        // Both ends report the connection, in any order.
        let mut all = vec![cno.wait(10 * SECOND)];
        while !all.contains(&Ok(evd)) {
            all.push(cno.wait(10 * SECOND));
            assert!(all.len() < 4, "{all:?}, not {evd:?}");
        }
    };
    ok(service_point.connect(active.ep, &[]));
    wait_for(service_point.requests);
    // SAFETY: live handles.
    ok(unsafe {
        dat_cr_accept(
            service_point.take_request(),
            passive.ep,
            0,
            std::ptr::null_mut(),
        )
    });
    wait_for(active.connect);
    expect(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let queue = srq(&fixture, 4);
    let memory = fixture.memory(64);
    for evd in [active.request, passive.recv] {
        cno.bind(evd);
    }
    ok(passive.post_recv(&[memory.segment(0, 8)], 1));
    ok(active.post_send(&[memory.segment(8, 8)], 2, DEFAULT));
    fixture.run();
    wait_for(active.request);
    assert_eq!(take_dto(passive.recv).cookie, 1);
    assert_eq!(take_dto(active.request).cookie, 2);
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    wait_for(passive.connect);
    expect(passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    // Asynchronous: the SRQ runs below its watermark.
    cno.bind(fixture.async_evd);
    ok(post_srq(queue, &[memory.segment(0, 8)], 1));
    // SAFETY: a live handle.
    ok(unsafe { dat_srq_set_lw(queue, 3) });
    wait_for(fixture.async_evd);
    take(fixture.async_evd, "watermark");
    // An endpoint that is added to an EVD on whose CNO a thread sleeps adds its
    // completion queue to the wait.
    let late = Cno::new(&fixture);
    let end = End::without_ep(&fixture, &Shape::default());
    late.bind(end.recv);
    thread::scope(|scope| {
        let waiter = late.asleep(scope);
        let mut other = end;
        let attributes = Shape::default().attributes();
        // SAFETY: live handles, and a place for the result.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                &raw const attributes,
                &raw mut other.ep,
            )
        });
        let pair = Pair::connect(&fixture, End::new(&fixture, &Shape::default()), other);
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], 5));
        stays(&waiter);
        ok(pair.active.post_send(&[memory.segment(8, 8)], 6, DEFAULT));
        fixture.run();
        assert_eq!(joined(waiter), Ok(Evd(end.recv)));
    });
    assert_eq!(take_dto(end.recv).cookie, 5);
}
