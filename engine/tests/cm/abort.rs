//! Ends without further events.

use super::support::{EventQueue, Events, Held, Host, kind, local, own, parameters, start, target};
use dat_engine::cm::{
    Connection, ConnectionEvent, ConnectionSink, ListenSink, Manager, ManagerKind, Request,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn an_aborting_side_gets_no_event_and_its_peer_a_disconnect() {
    let host = Host::new();
    for from_active in [true, false] {
        let pair = host.connected();
        let (there, here) = if from_active {
            pair.active.abort();
            (&pair.passive_events, &pair.active_events)
        } else {
            pair.passive.abort();
            (&pair.active_events, &pair.passive_events)
        };
        assert_eq!(there.next(), ConnectionEvent::Disconnected);
        here.assert_no_event();
        there.assert_no_event();
        let pair = host.connected();
        drop(pair.passive);
        assert_eq!(pair.active_events.next(), ConnectionEvent::Disconnected);
        pair.passive_events.assert_no_event();
    }
}

#[test]
fn a_failing_side_gets_no_event_and_its_peer_the_failure() {
    let host = Host::new();
    // Messages of rdma_cm carry no reason.
    let expected = match kind() {
        ManagerKind::Socket => ConnectionEvent::Broken,
        ManagerKind::Rdma => ConnectionEvent::Disconnected,
    };
    for from_active in [true, false] {
        let pair = host.connected();
        let (here, there, notified, silent) = match from_active {
            true => (
                &pair.active,
                &pair.passive,
                &pair.passive_events,
                &pair.active_events,
            ),
            false => (
                &pair.passive,
                &pair.active,
                &pair.active_events,
                &pair.passive_events,
            ),
        };
        here.fail();
        assert_eq!(notified.next(), expected);
        // Both sides know the end already.
        there.fail();
        here.fail();
        silent.assert_no_event();
        notified.assert_no_event();
    }
}

/// The peer may disconnect at any time, and the failing side then gets that event
/// first. So the service thread is blocked until both calls are made: no disconnect
/// arrives between them, however busy the machine is.
#[test]
fn a_failure_that_crosses_a_disconnect_completes_it() {
    let host = Host::new();
    let pair = host.connected();
    let held = Held::new(&host.manager);
    pair.active.disconnect();
    pair.passive.fail();
    drop(held);
    assert_eq!(pair.active_events.next(), ConnectionEvent::Disconnected);
    pair.passive_events.assert_no_event();
}

#[test]
fn a_request_of_an_aborted_requester_is_not_alive() {
    let host = Host::new();
    let (active, active_events) = host.connect();
    let request = host.requests.next();
    drop(active);
    let events = Arc::new(Events::default());
    let _passive = request.accept(parameters(2), b"", events.clone()).unwrap();
    assert_eq!(events.next(), ConnectionEvent::AcceptFailed);
    active_events.assert_no_event();
}

/// A sink that ends its own connection at a certain event.
struct AbortOnEvent {
    connection: Mutex<Option<Connection>>,
    drops: bool,
    seen: EventQueue<ConnectionEvent>,
}

impl ConnectionSink for AbortOnEvent {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        if self.drops {
            drop(self.connection.lock().unwrap().take());
        } else if let Some(connection) = &*self.connection.lock().unwrap() {
            connection.abort();
        }
        self.seen.put(event);
        Ok(())
    }
}

#[test]
fn a_sink_ends_its_own_connection() {
    let host = Host::new();
    for drops in [true, false] {
        let sink = Arc::new(AbortOnEvent {
            connection: Mutex::new(None),
            drops,
            seen: EventQueue::default(),
        });
        let (_active, active_events) = {
            // The acceptance comes after the handle was stored.
            let made = host.manager.connect(
                &local(),
                target(own(), host.qualifier, None),
                parameters(1),
                b"",
                sink.clone(),
            );
            *sink.connection.lock().unwrap() = Some(made.unwrap());
            ((), sink)
        };
        let passive_events = Arc::new(Events::default());
        let request = host.requests.next();
        let _passive = request
            .accept(parameters(2), b"", passive_events.clone())
            .unwrap();
        let event = active_events.seen.next();
        assert!(
            matches!(event, ConnectionEvent::Accepted { .. }),
            "{event:?}"
        );
        assert_eq!(passive_events.next(), ConnectionEvent::AcceptFailed);
        assert_eq!(active_events.seen.within(Duration::from_millis(50)), None);
    }
}

/// A sink whose callback takes long.
struct Slow {
    begun: EventQueue<()>,
    done: AtomicBool,
}

impl ConnectionSink for Slow {
    fn event(&self, _: ConnectionEvent) -> Result<(), ()> {
        self.begun.put(());
        std::thread::sleep(Duration::from_millis(200));
        self.done.store(true, Ordering::Release);
        Ok(())
    }
}

#[test]
fn abort_waits_for_a_callback_in_progress() {
    let host = Host::new();
    let (_active, active_events) = host.connect();
    let slow = Arc::new(Slow {
        begun: EventQueue::default(),
        done: AtomicBool::new(false),
    });
    let request = host.requests.next();
    let passive = request.accept(parameters(2), b"", slow.clone()).unwrap();
    slow.begun.next();
    passive.abort();
    assert!(slow.done.load(Ordering::Acquire));
    active_events.assert_accepted();
    assert_eq!(active_events.next(), ConnectionEvent::Disconnected);
}

/// A sink that panics, as applications may.
struct Panics;

impl ConnectionSink for Panics {
    fn event(&self, _: ConnectionEvent) -> Result<(), ()> {
        panic!("a sink that panics, on purpose")
    }
}

impl ListenSink for Panics {
    fn request(&self, _: Request) {
        panic!("a sink that panics, on purpose")
    }
}

#[test]
fn a_panicking_sink_harms_no_other_connection() {
    let host = Host::new();
    let made = host.manager.connect(
        &local(),
        target(own(), host.qualifier, None),
        parameters(1),
        b"",
        Arc::new(Panics),
    );
    let events = Arc::new(Events::default());
    let _passive = host
        .requests
        .next()
        .accept(parameters(2), b"", events.clone())
        .unwrap();
    assert_eq!(events.next(), ConnectionEvent::AcceptFailed);
    let (_listener, qualifier) = host.manager.listen_any(&local(), Arc::new(Panics)).unwrap();
    let (_request, events) = super::support::connect(&host.manager, qualifier, None);
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    host.connected();
    drop(made);
}

/// A sink that keeps the manager, and drops everything it has in its callback.
struct Last(
    Mutex<Option<(Manager, dat_engine::cm::Listener)>>,
    EventQueue<()>,
);

impl ListenSink for Last {
    fn request(&self, request: Request) {
        drop(self.0.lock().unwrap().take());
        drop(request);
        self.1.put(());
    }
}

#[test]
fn the_last_handle_may_be_dropped_in_a_callback() {
    let last = Arc::new(Last(Mutex::new(None), EventQueue::default()));
    let manager = start();
    let (listener, qualifier) = manager.listen_any(&local(), last.clone()).unwrap();
    *last.0.lock().unwrap() = Some((manager, listener));
    let (_connection, events) = super::support::connect(&start(), qualifier, None);
    last.1.next();
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
}
