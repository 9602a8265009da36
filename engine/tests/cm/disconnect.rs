//! Orderly disconnects.

use super::support::{Events, Host, TIMEOUT, connect, parameters};
use dat_engine::cm::{ConnectionEvent, ManagerOptions};
use std::sync::{Arc, Barrier};
use std::time::Duration;

#[test]
fn a_disconnect_by_either_side_is_reported_once_on_both() {
    // The peer's answer ends it: the timeout is longer than the test waits.
    let host = Host::with(ManagerOptions {
        disconnect_timeout: 10 * TIMEOUT,
        ..ManagerOptions::default()
    });
    for from_active in [true, false] {
        let pair = host.connected();
        let connection = if from_active {
            &pair.active
        } else {
            &pair.passive
        };
        connection.disconnect();
        connection.disconnect();
        assert_eq!(pair.active_events.next(), ConnectionEvent::Disconnected);
        assert_eq!(pair.passive_events.next(), ConnectionEvent::Disconnected);
        connection.disconnect();
        pair.active_events.assert_no_event();
        pair.passive_events.assert_no_event();
    }
}

#[test]
fn simultaneous_disconnects_are_reported_once_on_each_side() {
    let (host, other) = (Host::new(), super::support::start());
    for _ in 0..100 {
        let (active, active_events) = connect(&other, host.qualifier, None);
        let passive_events = Arc::new(Events::default());
        let request = host.requests.next();
        let passive = request
            .accept(parameters(2), b"", passive_events.clone())
            .unwrap();
        active_events.assert_accepted();
        assert_eq!(passive_events.next(), ConnectionEvent::Established);
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            for connection in [&active, &passive] {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    connection.disconnect();
                });
            }
        });
        for events in [active_events, passive_events] {
            assert_eq!(events.next(), ConnectionEvent::Disconnected);
            assert_eq!(events.events_seen.within(Duration::from_millis(1)), None);
        }
    }
}

#[test]
fn withdrawing_a_request_ends_both_sides() {
    let host = Host::new();
    let (active, active_events) = host.connect();
    let request = host.requests.next();
    active.disconnect();
    assert_eq!(active_events.next(), ConnectionEvent::Disconnected);
    let passive_events = Arc::new(Events::default());
    let _passive = request
        .accept(parameters(2), b"", passive_events.clone())
        .unwrap();
    assert_eq!(passive_events.next(), ConnectionEvent::AcceptFailed);
    active_events.assert_no_event();
    passive_events.assert_no_event();
}

#[test]
fn withdrawing_an_acceptance_ends_both_sides() {
    let host = Host::new();
    for _ in 0..20 {
        let (_active, active_events) = host.connect();
        let passive_events = Arc::new(Events::default());
        let request = host.requests.next();
        let passive = request
            .accept(parameters(2), b"", passive_events.clone())
            .unwrap();
        passive.disconnect();
        active_events.assert_accepted();
        assert_eq!(active_events.next(), ConnectionEvent::Disconnected);
        let mut last = passive_events.next();
        // The requester may or may not have been faster than the disconnect.
        if last == ConnectionEvent::Established {
            last = passive_events.next();
        }
        assert_eq!(last, ConnectionEvent::Disconnected);
        passive_events.assert_no_event();
    }
}
