//! Waits for several events.

use std::thread;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, MessagePair, joined, stays};
use crate::support::{End, Fixture, Pair, Shape, fails_with, nothing_on, ok, take_dto};

fn shape(recv: DAT_COMPLETION_FLAGS, request: DAT_COMPLETION_FLAGS) -> Shape {
    Shape {
        recv_flags: recv,
        request_flags: request,
        ..Shape::default()
    }
}

#[test]
fn evd_wait_w10_wakes_at_the_threshold_and_not_before() {
    let fixture = Fixture::new();
    for flags in [
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    ] {
        let messages = MessagePair::new(&fixture, &shape(flags, flags));
        let recv = messages.recv();
        for threshold in [1, 2, 5] {
            messages.post_recvs(0..5);
            thread::scope(|scope| {
                let waiter = recv.asleep(scope, threshold);
                for _ in 1..threshold {
                    messages.deliver();
                    stays(&waiter, recv);
                }
                messages.deliver();
                assert_eq!(joined(waiter).soon().tag(), (0, threshold - 1));
            });
            for _ in threshold..5 {
                messages.deliver();
            }
            assert_eq!([(); 4].map(|()| take_dto(recv.0).cookie), [1, 2, 3, 4]);
        }
    }
}

/// Without a second thread: the result changes exactly at the threshold.
#[test]
fn evd_wait_w10_the_threshold_is_met_by_as_many_and_no_fewer() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    for threshold in 1..=6 {
        messages.post_recvs(0..6);
        for queued in 0..threshold {
            assert_eq!(recv.wait(0, threshold).expired(), queued);
            messages.deliver();
        }
        assert_eq!(recv.wait(0, threshold).tag(), (0, threshold - 1));
        for _ in threshold..6 {
            messages.deliver();
        }
        for tag in 1..6 {
            assert_eq!(take_dto(recv.0).cookie, tag);
        }
    }
}

/// Events of all kinds count together, including those queued before the wait.
#[test]
fn evd_wait_w10_all_streams_of_an_evd_count() {
    let fixture = Fixture::new();
    let shape = Shape::default();
    let all = Evd(fixture.evd(64, DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG));
    let mut passive = End::without_ep(&fixture, &shape);
    (passive.recv, passive.request) = (all.0, all.0);
    let attributes = shape.attributes();
    // SAFETY: live handles; the result is writable.
    ok(unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            all.0,
            all.0,
            passive.connect,
            &raw const attributes,
            &raw mut passive.ep,
        )
    });
    let pair = Pair::connect(&fixture, End::new(&fixture, &shape), passive);
    let messages = MessagePair::of(&fixture, pair);
    messages.post_recvs(1..3);
    all.post(100);
    thread::scope(|scope| {
        let waiter = all.asleep(scope, 4);
        messages.deliver();
        stays(&waiter, all);
        ok(pair
            .active
            .post_recv(&[messages.memory.segment(1024, 64)], 1));
        ok(pair.passive.post_send(&[], 50, DAT_COMPLETION_DEFAULT_FLAG));
        fixture.run();
        stays(&waiter, all);
        all.post(101);
        let waited = joined(waiter).soon();
        assert_eq!(waited.number(), (100, 3));
    });
    assert_eq!(all.wait(0, 3).tag(), (1, 2));
    assert_eq!(all.wait(0, 2).tag(), (50, 1));
    assert_eq!(all.take_number(), 101);
}

#[test]
fn evd_wait_w10_a_full_evd_can_be_waited_for() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    let most = evd.query().evd_qlen;
    assert!(most >= 4);
    thread::scope(|scope| {
        let waiter = evd.asleep(scope, most);
        for number in 1..most as usize {
            evd.post(number);
        }
        stays(&waiter, evd);
        evd.post(most as usize);
        assert_eq!(joined(waiter).soon().number(), (1, most - 1));
    });
}

/// As many receives as the endpoint can have outstanding, all at once.
#[test]
fn evd_wait_w10_all_of_many_events_count() {
    let fixture = Fixture::new();
    let deep = Shape {
        recvs: 64,
        evd_qlen: 8,
        ..Shape::default()
    };
    let messages = MessagePair::new(&fixture, &deep);
    let recv = messages.recv();
    assert!(recv.query().evd_qlen >= 64);
    messages.post_recvs(0..64);
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 64);
        for _ in 0..64 {
            messages.deliver();
        }
        assert_eq!(joined(waiter).soon().tag(), (0, 63));
    });
    for tag in 1..64 {
        assert_eq!(take_dto(recv.0).cookie, tag);
    }
    nothing_on(recv.0);
}

#[test]
fn evd_wait_w11_the_threshold_is_1_to_the_queue_length() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let software = Evd::software(&fixture, 4);
    software.post(1);
    messages.post_recvs(0..1);
    messages.deliver();
    for evd in [software, messages.recv(), Evd(fixture.async_evd)] {
        let most = evd.query().evd_qlen;
        for threshold in [0, -1, DAT_COUNT::MIN, most + 1, DAT_COUNT::MAX] {
            for timeout in [0, DAT_TIMEOUT_INFINITE] {
                let waited = evd.wait(timeout, threshold);
                waited.refused(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
            }
        }
        // The largest threshold is valid, and there are not that many events.
        evd.wait(0, most).expired();
    }
    // No event was taken.
    assert_eq!(software.wait(0, 1).number(), (1, 0));
    assert_eq!(messages.recv().wait(0, 1).tag(), (0, 0));
}

#[test]
fn evd_wait_w11_the_length_of_the_evd_is_a_valid_threshold() {
    let fixture = Fixture::new();
    for asked in [1, 2, 3, 5, 64, 1000] {
        let evd = Evd::software(&fixture, asked);
        assert_eq!(evd.wait(0, asked).expired(), 0);
        // The limit is the length that the query reports, whatever was requested.
        let most = evd.query().evd_qlen;
        assert!(most >= asked);
        assert_eq!(evd.wait(0, most).expired(), 0);
        evd.wait(0, most + 1)
            .refused(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    }
}

/// Threshold 1 is valid; every other is refused with a subtype for the EVD's
/// state, which says which streams it has.
#[track_caller]
fn takes_1_only(evd: Evd, subtype: DAT_RETURN_SUBTYPE, config: DAT_EVD_STATE) {
    let most = evd.query().evd_qlen;
    for threshold in [2, 3, most] {
        for timeout in [0, DAT_TIMEOUT_INFINITE] {
            evd.wait(timeout, threshold)
                .refused(DAT_INVALID_STATE, subtype);
        }
    }
    evd.wait(0, 0)
        .refused(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    evd.wait(0, most + 1)
        .refused(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    assert_eq!(evd.wait(0, 1).expired(), 0);
    assert_eq!(evd.wait(2000, 1).expired(), 0);
    assert_eq!(
        evd.query().evd_state & DAT_EVD_STATE_CONFIG_THRESHOLD,
        config
    );
}

#[track_caller]
fn takes_any(evd: Evd) {
    for threshold in [1, 2, evd.query().evd_qlen] {
        assert_eq!(evd.wait(0, threshold).expired(), 0);
    }
}

#[test]
fn evd_wait_w12_unsignalled_streams_take_threshold_1_only() {
    let fixture = Fixture::new();
    let unsignalled = DAT_COMPLETION_UNSIGNALLED_FLAG;
    let only_1 = |evd| {
        takes_1_only(
            Evd(evd),
            DAT_INVALID_STATE_EVD_CONFIG_NOTIFY,
            DAT_EVD_STATE_CONFIG_NOTIFY,
        );
    };
    let receiver = End::new(&fixture, &shape(unsignalled, DAT_COMPLETION_DEFAULT_FLAG));
    only_1(receiver.recv);
    takes_any(Evd(receiver.request));
    takes_any(Evd(receiver.connect));
    let requester = End::new(&fixture, &shape(DAT_COMPLETION_DEFAULT_FLAG, unsignalled));
    only_1(requester.request);
    takes_any(Evd(requester.recv));
    // The condition ends when the stream's endpoint is freed.
    for end in [receiver, requester] {
        // SAFETY: a live endpoint.
        ok(unsafe { dat_ep_free(end.ep) });
        takes_any(Evd(end.recv));
        takes_any(Evd(end.request));
    }
}

#[test]
fn evd_wait_w12_solicited_streams_take_threshold_1_only() {
    let fixture = Fixture::new();
    let receiver = End::new(
        &fixture,
        &shape(
            DAT_COMPLETION_SOLICITED_WAIT_FLAG,
            DAT_COMPLETION_DEFAULT_FLAG,
        ),
    );
    takes_1_only(
        Evd(receiver.recv),
        DAT_INVALID_STATE_EVD_CONFIG_SOLICITED,
        DAT_EVD_STATE_CONFIG_SOLICITED,
    );
    takes_any(Evd(receiver.request));
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_free(receiver.ep) });
    takes_any(Evd(receiver.recv));
}

/// Queued events make no difference, and are not taken.
#[test]
fn evd_wait_w12_a_refused_threshold_takes_nothing() {
    let fixture = Fixture::new();
    let unsignalled = DAT_COMPLETION_UNSIGNALLED_FLAG;
    let messages = MessagePair::new(&fixture, &shape(unsignalled, DAT_COMPLETION_DEFAULT_FLAG));
    messages.post_recvs(0..3);
    for _ in 0..3 {
        messages.deliver();
    }
    messages
        .recv()
        .wait(0, 2)
        .refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_CONFIG_NOTIFY);
    for tag in 0..3 {
        assert_eq!(
            messages.recv().wait(0, 1).tag(),
            (tag, 2 - tag as DAT_COUNT)
        );
    }
}

#[test]
fn evd_wait_w12_other_streams_take_any_threshold() {
    let fixture = Fixture::new();
    for flags in [
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    ] {
        let end = End::new(&fixture, &shape(flags, flags));
        takes_any(Evd(end.recv));
        takes_any(Evd(end.request));
    }
}

/// The endpoint is added while a thread waits for two events: that wait goes on,
/// a new one is refused.
#[test]
fn evd_wait_w12_the_threshold_is_checked_when_the_wait_begins() {
    let fixture = Fixture::new();
    let unsignalled = shape(DAT_COMPLETION_UNSIGNALLED_FLAG, DAT_COMPLETION_DEFAULT_FLAG);
    let mut end = End::without_ep(&fixture, &unsignalled);
    let recv = Evd(end.recv);
    let attributes = unsignalled.attributes();
    thread::scope(|scope| {
        let waiter = recv.in_thread(scope, 200_000, 2);
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                &raw const attributes,
                &raw mut end.ep,
            )
        });
        assert_eq!(joined(waiter).expired(), 0);
    });
    let again = recv.wait(0, 2);
    fails_with(
        again.answer,
        DAT_INVALID_STATE,
        DAT_INVALID_STATE_EVD_CONFIG_NOTIFY,
    );
}
