//! Which events wake a waiter. An event that is queued when a wait begins ends
//! the wait in any case, so each test lets the waiter sleep first.

use std::thread;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, LONG, MessagePair, SOON, joined, stays};
use crate::support::{
    End, Fixture, Pair, Shape, expect, held, nothing_on, ok, refused_access, state_of, take_dto,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;
const SOLICITED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SOLICITED_WAIT_FLAG;

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

/// A post with one completion on the request EVD.
type Post = fn(&MessagePair<'_>, u64, DAT_COMPLETION_FLAGS) -> DAT_RETURN;

const POSTS: [Post; 3] = [
    |messages, tag, flags| {
        messages.post_recvs(0..1);
        let segment = messages.memory.segment(0, 8);
        messages.pair.active.post_send(&[segment], tag, flags)
    },
    |messages, tag, flags| {
        let (here, there) = (
            messages.memory.segment(0, 8),
            messages.memory.remote(2048, 8),
        );
        messages.pair.active.post_write(&[here], &there, tag, flags)
    },
    |messages, tag, flags| {
        let (here, there) = (
            messages.memory.segment(0, 8),
            messages.memory.remote(2048, 8),
        );
        messages.pair.active.post_read(&[here], &there, tag, flags)
    },
];

#[test]
fn evd_wait_w21_by_default_every_receive_notifies() {
    let fixture = Fixture::new();
    for configured in [DEFAULT, DAT_COMPLETION_EVD_THRESHOLD_FLAG] {
        let messages = message_pair(&fixture, configured, DEFAULT);
        for flags in [DEFAULT, SOLICITED, DAT_COMPLETION_SUPPRESS_FLAG] {
            messages.post_recvs(1..2);
            thread::scope(|scope| {
                let waiter = messages.recv().asleep(scope, 1);
                messages.send(5, flags);
                assert_eq!(joined(waiter).soon().tag(), (1, 0));
            });
            if flags != DAT_COMPLETION_SUPPRESS_FLAG {
                assert_eq!(take_dto(messages.request().0).cookie, 5);
            }
            nothing_on(messages.request().0);
        }
    }
}

#[test]
fn evd_wait_w21_by_default_every_request_notifies() {
    let fixture = Fixture::new();
    for configured in [DEFAULT, DAT_COMPLETION_EVD_THRESHOLD_FLAG] {
        let messages = message_pair(&fixture, DEFAULT, configured);
        for (tag, post) in POSTS.into_iter().enumerate() {
            thread::scope(|scope| {
                let waiter = messages.request().asleep(scope, 1);
                ok(post(&messages, tag as u64, DEFAULT));
                fixture.run();
                assert_eq!(joined(waiter).soon().tag(), (tag as u64, 0));
            });
        }
    }
}

#[test]
fn evd_wait_w21_connection_and_software_events_notify() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, DEFAULT, DEFAULT);
    let software = Evd::software(&fixture, 2);
    let connect = Evd(messages.pair.passive.connect);
    thread::scope(|scope| {
        let waiter = software.asleep(scope, 1);
        software.post(3);
        assert_eq!(joined(waiter).soon().number(), (3, 0));
        let waiter = connect.asleep(scope, 1);
        // SAFETY: a live endpoint.
        ok(unsafe { dat_ep_disconnect(messages.pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
        let waited = joined(waiter).soon();
        ok(waited.answer);
        assert_eq!(waited.event.event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    });
}

#[test]
fn evd_wait_w21_unsignalled_receives_are_queued_and_do_not_wake() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, UNSIGNALLED, DEFAULT);
    let recv = messages.recv();
    for notifying in 1..4 {
        for tag in 0..notifying {
            messages.post_recv_with(tag, UNSIGNALLED);
        }
        messages.post_recv_with(notifying, DEFAULT);
        thread::scope(|scope| {
            let waiter = recv.asleep(scope, 1);
            for _ in 0..notifying {
                messages.deliver();
                stays(&waiter, recv);
            }
            messages.deliver();
            // In order: the completions without notification first.
            assert_eq!(joined(waiter).soon().tag(), (0, notifying as DAT_COUNT));
        });
        for tag in 1..=notifying {
            assert_eq!(take_dto(recv.0).cookie, tag);
        }
        nothing_on(recv.0);
    }
}

#[test]
fn evd_wait_w21_unsignalled_requests_are_queued_and_do_not_wake() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, DEFAULT, UNSIGNALLED);
    let request = messages.request();
    for unsignalled in POSTS {
        for notifying in POSTS {
            thread::scope(|scope| {
                let waiter = request.asleep(scope, 1);
                ok(unsignalled(&messages, 1, UNSIGNALLED));
                fixture.run();
                stays(&waiter, request);
                ok(notifying(&messages, 2, DEFAULT));
                fixture.run();
                assert_eq!(joined(waiter).soon().tag(), (1, 1));
            });
            assert_eq!(take_dto(request.0).cookie, 2);
            while crate::support::dequeue(messages.recv().0).is_ok() {}
        }
    }
}

/// A later wait finds them, as does the end of the current one.
#[test]
fn evd_wait_w21_unsignalled_completions_are_found_by_later_waits() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, UNSIGNALLED, DEFAULT);
    let recv = messages.recv();
    for tag in 0..5 {
        messages.post_recv_with(tag, UNSIGNALLED);
    }
    messages.deliver();
    assert_eq!(recv.wait(0, 1).tag(), (0, 0));
    messages.deliver();
    assert_eq!(recv.wait(LONG, 1).soon().tag(), (1, 0));
    messages.deliver();
    assert_eq!(take_dto(recv.0).cookie, 2);
    thread::scope(|scope| {
        let waiter = recv.in_thread(scope, 300_000, 1);
        messages.deliver();
        messages.deliver();
        let waited = joined(waiter);
        assert_eq!(waited.tag(), (3, 1));
    });
    assert_eq!(take_dto(recv.0).cookie, 4);
}

#[test]
fn evd_wait_w21_what_goes_wrong_notifies_however_it_was_posted() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, UNSIGNALLED, UNSIGNALLED);
    let (recv, request) = (messages.recv(), messages.request());
    messages.post_recv_with(1, UNSIGNALLED);
    let mut nowhere = messages.memory.remote(2048, 8);
    nowhere.rmr_context ^= 0x5500;
    let here = messages.memory.segment(0, 8);
    thread::scope(|scope| {
        let waiters = [request.asleep(scope, 1), recv.asleep(scope, 1)];
        ok(messages
            .pair
            .active
            .post_write(&[here], &nowhere, 2, UNSIGNALLED));
        fixture.run();
        let [sent, received] = waiters.map(|waiter| {
            // The connection manager notifies the passive end, and afterwards the
            // device flushes its receives.
            while !waiter.is_finished() {
                fixture.run();
                thread::yield_now();
            }
            joined(waiter).soon().dto().0
        });
        assert_eq!(sent.cookie, 2);
        refused_access(sent.status);
        assert_eq!((received.cookie, received.status), (1, DAT_DTO_ERR_FLUSHED));
    });
}

/// A suppressed request that succeeds has no event, and counts for no threshold.
#[test]
fn evd_wait_w21_suppressed_requests_make_no_event() {
    let fixture = Fixture::new();
    for configured in [DEFAULT, UNSIGNALLED] {
        let messages = message_pair(&fixture, DEFAULT, configured);
        let request = messages.request();
        for post in POSTS {
            thread::scope(|scope| {
                let waiter = request.asleep(scope, 1);
                ok(post(&messages, 1, DAT_COMPLETION_SUPPRESS_FLAG));
                fixture.run();
                stays(&waiter, request);
                ok(post(&messages, 2, DEFAULT));
                fixture.run();
                assert_eq!(joined(waiter).soon().tag(), (2, 0));
            });
            while crate::support::dequeue(messages.recv().0).is_ok() {}
        }
        nothing_on(request.0);
    }
}

#[test]
fn evd_wait_w21_only_solicited_receives_wake_where_so_configured() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, SOLICITED, DEFAULT);
    let recv = messages.recv();
    for round in 0..3 {
        messages.post_recvs(0..4);
        thread::scope(|scope| {
            let waiter = recv.asleep(scope, 1);
            for _ in 0..round {
                messages.deliver();
                stays(&waiter, recv);
            }
            messages.deliver_with(SOLICITED);
            assert_eq!(joined(waiter).soon().tag(), (0, round as DAT_COUNT));
        });
        for _ in round + 1..4 {
            messages.deliver();
        }
        for tag in 1..4 {
            assert_eq!(take_dto(recv.0).cookie, tag);
        }
    }
}

/// If the waiter wakes for another reason and finds an event that does not
/// notify, it goes on waiting.
#[test]
fn evd_wait_w21_what_does_not_notify_does_not_end_a_wait_that_finds_it() {
    let fixture = Fixture::new();
    for configured in [SOLICITED, UNSIGNALLED] {
        let messages = message_pair(&fixture, configured, DEFAULT);
        let recv = messages.recv();
        // The receiver's configuration, and the sender's flags.
        let (unsignalled, notifying) = match configured {
            SOLICITED => ([DEFAULT, DEFAULT], [DEFAULT, SOLICITED]),
            _ => ([UNSIGNALLED, DEFAULT], [DEFAULT, DEFAULT]),
        };
        for (tag, [listen, _]) in [unsignalled, unsignalled, notifying]
            .into_iter()
            .enumerate()
        {
            messages.post_recv_with(tag as u64, listen);
        }
        thread::scope(|scope| {
            let waiter = recv.asleep(scope, 1);
            for _ in 0..2 {
                messages.deliver_with(unsignalled[1]);
                // Makes the waiter process its queues.
                let state = state_of(messages.pair.passive.ep);
                assert_eq!(state, DAT_EP_STATE_CONNECTED);
                stays(&waiter, recv);
            }
            messages.deliver_with(notifying[1]);
            assert_eq!(joined(waiter).soon().tag(), (0, 2));
        });
    }
}

#[test]
fn evd_wait_w21_flushed_receives_wake_where_solicited_ones_do() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, SOLICITED, DEFAULT);
    let recv = messages.recv();
    messages.post_recvs(0..2);
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        // SAFETY: a live endpoint.
        ok(unsafe { dat_ep_disconnect(messages.pair.passive.ep, DAT_CLOSE_ABRUPT_FLAG) });
        while !waiter.is_finished() {
            fixture.run();
            thread::yield_now();
        }
        let (dto, _) = joined(waiter).soon().dto();
        assert_eq!((dto.cookie, dto.status), (0, DAT_DTO_ERR_FLUSHED));
    });
    expect(
        messages.pair.passive.connect,
        DAT_CONNECTION_EVENT_DISCONNECTED,
    );
}

/// An EVD for few events gets further completion queues as endpoints are added,
/// the last one during a wait. Events of each queue wake the waiter.
#[test]
fn evd_wait_w21_every_endpoint_of_an_evd_wakes_its_waiter() {
    let fixture = Fixture::new();
    let recv = Evd(fixture.evd(2, DAT_EVD_DTO_FLAG));
    let join = |recvs| {
        let shape = Shape {
            recvs,
            ..Shape::default()
        };
        let mut passive = End::without_ep(&fixture, &shape);
        passive.recv = recv.0;
        let attributes = shape.attributes();
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                passive.recv,
                passive.request,
                passive.connect,
                &raw const attributes,
                &raw mut passive.ep,
            )
        });
        MessagePair::of(
            &fixture,
            Pair::connect(&fixture, End::new(&fixture, &shape), passive),
        )
    };
    let mut message_pairs = vec![join(16), join(64)];
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        message_pairs.push(join(200));
        stays(&waiter, recv);
        message_pairs[2].post_recvs(9..10);
        message_pairs[2].deliver();
        assert_eq!(joined(waiter).soon().tag(), (9, 0));
    });
    for round in 0..12 {
        let messages = &message_pairs[round as usize % 3];
        messages.post_recvs(round..round + 1);
        thread::scope(|scope| {
            let waiter = recv.asleep(scope, 1);
            messages.deliver();
            let (dto, _) = joined(waiter).soon().dto();
            assert_eq!((dto.ep, dto.cookie), (messages.pair.passive.ep, round));
        });
    }
    // The events of all queues count for one threshold.
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 3);
        for messages in &message_pairs {
            stays(&waiter, recv);
            messages.post_recvs(1..2);
            messages.deliver();
        }
        assert_eq!(joined(waiter).soon().tag(), (1, 2));
    });
}

/// The device wakes the sleeping waiter each time, not only the first.
#[test]
fn evd_wait_w21_each_of_many_messages_wakes() {
    let fixture = Fixture::new();
    let messages = message_pair(&fixture, DEFAULT, DEFAULT);
    let recv = messages.recv();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            for tag in 0..150 {
                let waited = recv.wait(LONG, 1).soon();
                assert_eq!(waited.tag(), (tag, 0));
                assert!(waited.took < SOON);
            }
        });
        for tag in 0..150 {
            messages.post_recvs(tag..tag + 1);
            recv.until_waited();
            if tag % 3 == 0 {
                // Long enough for the waiter to sleep.
                thread::sleep(std::time::Duration::from_millis(2));
            }
            messages.deliver();
            // One message at a time: the receive is held until its event and the number of
            // those behind it are known.
            while !waiter.is_finished() && held(messages.pair.passive.ep).0 != 0 {
                thread::yield_now();
            }
        }
        joined(waiter);
    });
}
