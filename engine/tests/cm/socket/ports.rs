//! Which port a qualifier means, and who else has it.

use crate::cm::support::{
    Events, Host, Requests, connect, local, loopback, parameters, start, target,
};
use dat_engine::cm::{CmError, ConnectionEvent, Manager, ManagerKind, ManagerOptions, port_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;

/// Qualifiers beyond 16 bits whose port nobody listens on now.
fn free_qualifier() -> u64 {
    let seed = u64::from(std::process::id()) << 32;
    let free = |qualifier: &u64| TcpListener::bind(("0.0.0.0", port_of(*qualifier))).is_ok();
    (seed..).step_by(101).find(free).unwrap()
}

/// Another qualifier of the same port.
fn sibling(qualifier: u64) -> u64 {
    let same = |other: &u64| port_of(*other) == port_of(qualifier);
    (qualifier + 1..).find(same).unwrap()
}

#[test]
fn a_request_for_another_qualifier_of_the_port_is_not_delivered() {
    let manager = start();
    let requests = Arc::new(Requests::default());
    let qualifier = free_qualifier();
    let _listener = manager
        .listen(&local(), qualifier, requests.clone())
        .unwrap();
    let low = u64::from(port_of(qualifier));
    for other in [sibling(qualifier), low] {
        let (_connection, events) = connect(&manager, other, None);
        assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    }
    requests.assert_quiet();
}

#[test]
fn who_comes_second_is_told_that_it_is_in_use() {
    let (one, two) = (start(), start());
    let qualifier = free_qualifier();
    let listener = one
        .listen(&local(), qualifier, Arc::new(Requests::default()))
        .unwrap();
    for (manager, wanted) in [
        (&one, qualifier),
        (&two, qualifier),
        (&two, sibling(qualifier)),
        (&one, port_of(qualifier).into()),
    ] {
        let error = manager
            .listen(&local(), wanted, Arc::new(Requests::default()))
            .unwrap_err();
        assert!(matches!(error, CmError::InUse), "{error}");
    }
    drop(listener);
    // At once: the port is free when the drop has returned.
    let _again = two
        .listen(&local(), sibling(qualifier), Arc::new(Requests::default()))
        .unwrap();
}

#[test]
fn a_port_of_any_other_program_is_in_use() {
    let foreign = TcpListener::bind(loopback()).unwrap();
    let port = foreign.local_addr().unwrap().port();
    let error = start()
        .listen(&local(), port.into(), Arc::new(Requests::default()))
        .unwrap_err();
    assert!(matches!(error, CmError::InUse), "{error}");
}

/// Over an address that hardly anybody else uses: a port that a connection came
/// from can be that of one of another program as well, and stay so for a minute
/// after it was closed. On a host that tests much, that is every port of
/// 127.0.0.1.
#[test]
fn connections_do_not_keep_anybody_from_listening_on_their_port() {
    let here = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    };
    let host = Host::with(ManagerOptions {
        listen_on: Some(here),
        ..ManagerOptions::default()
    });
    let mut alive = Vec::new();
    let mut from = Vec::new();
    for _ in 0..50 {
        let events = Arc::new(Events::default());
        let active = host.manager.connect(
            &local(),
            target((here, 0).into(), host.qualifier, None),
            parameters(1),
            b"",
            events.clone(),
        );
        alive.push(active.unwrap());
        let request = host.requests.next();
        from.push(request.remote_port());
        let sink = Arc::new(Events::default());
        alive.push(request.accept(parameters(2), b"", sink).unwrap());
        events.assert_accepted();
    }
    let Host {
        manager,
        listener,
        qualifier,
        ..
    } = host;
    drop(listener);
    let listen = |port| manager.listen(&local(), port, Arc::new(Requests::default()));
    // The port that they came to, while they live and when they are gone.
    drop(listen(qualifier).unwrap());
    // A port that they came from. Not each of them: one may still be somebody
    // else's.
    assert!(from.into_iter().any(|port| listen(port).is_ok()));
    drop(alive);
    drop(listen(qualifier).unwrap());
}

#[test]
fn one_address_to_listen_on_is_the_only_one() {
    let options = ManagerOptions {
        listen_on: Some("127.0.0.2".parse().unwrap()),
        ..ManagerOptions::default()
    };
    let host = Host::with(options);
    let (_connection, events) = host.connect();
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    let elsewhere = ManagerOptions {
        listen_on: Some("203.0.113.7".parse().unwrap()),
        ..ManagerOptions::default()
    };
    let manager = Manager::start(ManagerKind::Socket, elsewhere).unwrap();
    let error = manager
        .listen_any(&local(), Arc::new(Requests::default()))
        .unwrap_err();
    assert!(matches!(error, CmError::Address(_)), "{error}");
}
