//! Requests and their answers.

use super::support::{
    Events, Host, assert_event, connect, local, loopback, own, parameters, start, target,
};
use dat_engine::cm::{
    CmError, Connection, ConnectionEvent, ConnectionSink, Manager, ManagerKind, ManagerOptions,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn parameters_and_private_data_of_every_length_reach_both_sides() {
    let host = Host::new();
    let most = host.manager.max_private_data(local().transport);
    for length in (0..=most).rev().step_by(7).chain([1]) {
        let there: Vec<u8> = (0..length).map(|n| n as u8).collect();
        let back: Vec<u8> = (0..length).map(|n| !n as u8).collect();
        let (active_events, passive_events) = (Arc::new(Events::default()), Arc::default());
        let number = length as u8;
        let (ours, theirs) = (parameters(number), parameters(!number));
        let _active = host
            .manager
            .connect(
                &local(),
                target(own(), host.qualifier, None),
                ours,
                &there,
                active_events.clone(),
            )
            .unwrap();
        let request = host.requests.next();
        assert_eq!(request.private_data(), there);
        assert_event(request.parameters(), &ours);
        assert_eq!(request.qualifier(), host.qualifier);
        assert!(request.is_alive());
        assert_eq!(request.peer().ip(), own().ip());
        assert_eq!(request.remote_port(), u64::from(request.peer().port()));
        assert_ne!(request.remote_port(), 0);
        let sink: Arc<Events> = Arc::clone(&passive_events);
        let _passive = request.accept(theirs, &back, sink).unwrap();
        match active_events.next() {
            ConnectionEvent::Accepted { peer, private_data } => {
                assert_event(&peer, &theirs);
                assert_eq!(private_data, back);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(passive_events.next(), ConnectionEvent::Established);
    }
}

#[test]
fn private_data_that_is_too_long_is_refused_on_both_sides() {
    let host = Host::new();
    let most = host.manager.max_private_data(local().transport);
    let long = vec![0; most + 1];
    let events = Arc::new(Events::default());
    let error = host
        .manager
        .connect(
            &local(),
            target(own(), host.qualifier, None),
            parameters(1),
            &long,
            events.clone(),
        )
        .unwrap_err();
    assert!(
        matches!(error, CmError::TooLong { max } if max == most),
        "{error}"
    );
    assert!(error.to_string().contains(&most.to_string()), "{error}");
    let (_connection, active) = host.connect();
    let request = host.requests.next();
    let error = request
        .accept(parameters(2), &long, events.clone())
        .unwrap_err();
    assert!(matches!(error, CmError::TooLong { .. }), "{error}");
    // The call has consumed the request, so the requester must get an event.
    assert_eq!(active.next(), ConnectionEvent::NonPeerRejected);
    events.assert_no_event();
}

#[test]
fn a_rejection_by_the_application_is_reported_as_such() {
    let host = Host::new();
    let (_connection, events) = host.connect();
    host.requests
        .next()
        .reject(&[])
        .expect("short private data");
    assert_eq!(
        events.next(),
        ConnectionEvent::PeerRejected {
            private_data: Vec::new()
        }
    );
    events.assert_no_event();
}

#[test]
fn a_dropped_request_is_a_non_peer_rejection() {
    let host = Host::new();
    let (_connection, events) = host.connect();
    drop(host.requests.next());
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    events.assert_no_event();
}

#[test]
fn a_port_without_listener_is_a_non_peer_rejection() {
    let manager = start();
    // A port that is bound, so that no other program can take it, but not listened
    // on.
    let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    bound.bind(&loopback().into()).unwrap();
    let port = bound.local_addr().unwrap().as_socket().unwrap().port();
    let (_connection, events) = connect(&manager, port.into(), None);
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    events.assert_no_event();
}

#[test]
fn a_network_without_a_route_is_unreachable() {
    // Link-local addresses exist on every interface except loopback.
    let nowhere = SocketAddr::V6(std::net::SocketAddrV6::new(
        "fe80::1".parse().unwrap(),
        0,
        0,
        1,
    ));
    let events = Arc::new(Events::default());
    let sink = events.clone();
    match start().connect(
        &local(),
        target(nowhere, 2000, None),
        parameters(1),
        b"",
        sink,
    ) {
        Ok(_connection) => assert_eq!(events.next(), ConnectionEvent::Unreachable),
        // The error on a host without IPv6.
        Err(error) => assert!(matches!(error, CmError::Address(_)), "{error}"),
    }
}

#[test]
fn addresses_of_no_host_are_refused_at_once() {
    let manager = start();
    for address in [
        "0.0.0.0:0",
        "[::]:0",
        "224.0.0.1:0",
        "255.255.255.255:0",
        "[ff02::1]:0",
    ] {
        let (to, events) = (address.parse().unwrap(), Arc::new(Events::default()));
        let error = manager
            .connect(
                &local(),
                target(to, 2000, None),
                parameters(1),
                b"",
                events.clone(),
            )
            .unwrap_err();
        assert!(matches!(error, CmError::Address(_)), "{address}: {error}");
        events.assert_no_event();
    }
}

/// Disconnects another connection when its own has timed out.
struct OnTimeout(Mutex<Option<Connection>>);

impl ConnectionSink for OnTimeout {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        assert_eq!(event, ConnectionEvent::TimedOut);
        if let Some(other) = &*self.0.lock().unwrap() {
            other.disconnect();
        }
        Ok(())
    }
}

/// Nothing but the deadline wakes the requester's thread.
#[test]
fn what_a_sink_does_at_a_timeout_is_done_at_once() {
    let (host, manager) = (Host::new(), start());
    let (other, others) = connect(&manager, host.qualifier, None);
    let peer = Arc::new(Events::default());
    let request = host.requests.next();
    let _there = request
        .accept(parameters(2), b"", peer.clone())
        .expect("accepted");
    others.assert_accepted();
    assert_eq!(peer.next(), ConnectionEvent::Established);
    let to = target(own(), host.qualifier, Some(Duration::from_millis(150)));
    let sink = Arc::new(OnTimeout(Mutex::new(Some(other))));
    let _late = manager
        .connect(&local(), to, parameters(3), b"", sink.clone())
        .expect("requested");
    let _request = host.requests.next();
    assert_eq!(peer.next(), ConnectionEvent::Disconnected);
    assert_eq!(others.next(), ConnectionEvent::Disconnected);
}

#[test]
fn a_missing_answer_times_out_and_ends_the_request() {
    let host = Host::new();
    let begun = Instant::now();
    let (_connection, events) = connect(
        &host.manager,
        host.qualifier,
        Some(Duration::from_millis(150)),
    );
    let request = host.requests.next();
    assert_eq!(events.next(), ConnectionEvent::TimedOut);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert!(begun.elapsed() < Duration::from_secs(5));
    while request.is_alive() {
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    let late = Arc::new(Events::default());
    let _passive = request.accept(parameters(2), b"", late.clone()).unwrap();
    assert_eq!(late.next(), ConnectionEvent::AcceptFailed);
    events.assert_no_event();
    late.assert_no_event();
}

#[test]
fn a_sink_that_returns_an_error_fails_the_acceptance() {
    let host = Host::new();
    let refusing = Arc::new(Events {
        refuses: true,
        ..Events::default()
    });
    let sink = refusing.clone();
    let _active = host
        .manager
        .connect(
            &local(),
            target(own(), host.qualifier, None),
            parameters(1),
            b"",
            sink,
        )
        .unwrap();
    let passive_events = Arc::new(Events::default());
    let request = host.requests.next();
    let _passive = request
        .accept(parameters(2), b"", passive_events.clone())
        .unwrap();
    refusing.assert_accepted();
    assert_eq!(passive_events.next(), ConnectionEvent::AcceptFailed);
    refusing.assert_no_event();
    passive_events.assert_no_event();
}

#[test]
fn two_managers_connect_like_one() {
    let (host, other) = (Host::new(), start());
    let (_active, active_events) = connect(&other, host.qualifier, None);
    let passive_events = Arc::new(Events::default());
    let request = host.requests.next();
    let passive = request
        .accept(parameters(2), b"", passive_events.clone())
        .unwrap();
    active_events.assert_accepted();
    assert_eq!(passive_events.next(), ConnectionEvent::Established);
    passive.disconnect();
    assert_eq!(active_events.next(), ConnectionEvent::Disconnected);
    assert_eq!(passive_events.next(), ConnectionEvent::Disconnected);
}

#[test]
fn the_published_address_is_reachable_from_other_hosts() {
    let found = start().local_address("mlx5_0");
    assert!(
        !found.ip().is_unspecified() && !found.ip().is_multicast(),
        "{found}"
    );
    assert_eq!(found.port(), 0);
    let options = ManagerOptions {
        publish: Some("192.0.2.9".parse().unwrap()),
        ..ManagerOptions::default()
    };
    let given = Manager::start(ManagerKind::Socket, options)
        .unwrap()
        .local_address("mlx5_0");
    assert_eq!(given, "192.0.2.9:0".parse().unwrap());
}
