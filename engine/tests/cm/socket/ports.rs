//! The TCP port of a qualifier, and conflicts over it.

use crate::cm::support::{
    Events, Host, Requests, connect, local, loopback, parameters, start, target,
};
use dat_engine::cm::{CmError, ConnectionEvent, ListenOn, Local, ManagerOptions, port_of};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;

/// Returns qualifiers longer than 16 bits whose port is free now.
fn free_qualifier() -> u64 {
    let seed = u64::from(std::process::id()) << 32;
    let free = |qualifier: &u64| TcpListener::bind(("0.0.0.0", port_of(*qualifier))).is_ok();
    (seed..).step_by(101).find(free).unwrap()
}

/// Returns another qualifier with the same port.
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
    requests.assert_no_event();
}

#[test]
fn the_second_listener_on_a_port_is_refused_as_in_use() {
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
    // The port is free as soon as the drop has returned.
    let _again = two
        .listen(&local(), sibling(qualifier), Arc::new(Requests::default()))
        .unwrap();
}

#[test]
fn a_port_of_another_program_is_in_use() {
    let foreign = TcpListener::bind(loopback()).unwrap();
    let port = foreign.local_addr().unwrap().port();
    let error = start()
        .listen(&local(), port.into(), Arc::new(Requests::default()))
        .unwrap_err();
    assert!(matches!(error, CmError::InUse), "{error}");
}

/// Uses a loopback address that other programs rarely use. A local port of a
/// connection can also be that of another program's connection, and stays occupied
/// for a minute after it was closed; on a host with many tests that is every port
/// of 127.0.0.1.
#[test]
fn connections_do_not_prevent_listening_on_their_port() {
    let here = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    };
    let host = Host::on(ListenOn::One(here), ManagerOptions::default());
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
    // The listener's port, while the connections live and after they have ended.
    drop(listen(qualifier).unwrap());
    // A local port of the connections; any one, since some may be in use by other
    // programs.
    assert!(from.into_iter().any(|port| listen(port).is_ok()));
    drop(alive);
    drop(listen(qualifier).unwrap());
}

#[test]
fn a_listener_on_one_address_is_reached_by_that_address_only() {
    let only = "127.0.0.2".parse().unwrap();
    let host = Host::on(ListenOn::One(only), ManagerOptions::default());
    let (_connection, events) = host.connect();
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    let elsewhere = Local {
        listen_on: ListenOn::One("203.0.113.7".parse().unwrap()),
        ..local()
    };
    let error = start()
        .listen_any(&elsewhere, Arc::new(Requests::default()))
        .unwrap_err();
    assert!(matches!(error, CmError::Address(_)), "{error}");
}

/// Returns the result of a request to this address, on which the host listens or
/// not.
fn request_to(host: &Host, address: IpAddr, listens: bool) -> Result<ConnectionEvent, CmError> {
    let events = Arc::new(Events::default());
    let _connection = host.manager.connect(
        &local(),
        target((address, 0).into(), host.qualifier, None),
        parameters(1),
        b"",
        events.clone(),
    )?;
    if listens {
        host.requests
            .next()
            .reject(&[])
            .expect("short private data");
    }
    Ok(events.next())
}

#[test]
fn loopback_means_both_loopback_addresses_and_no_other() {
    let host = Host::on(ListenOn::Loopback, ManagerOptions::default());
    for address in ["127.0.0.1", "::1"] {
        match request_to(&host, address.parse().unwrap(), true) {
            Ok(event) => assert_eq!(
                event,
                ConnectionEvent::PeerRejected {
                    private_data: Vec::new()
                },
                "{address}"
            ),
            // The error on a host without IPv6.
            Err(error) => assert!(address == "::1", "{error}"),
        }
    }
    let others = if_addrs::get_if_addrs().unwrap();
    let others = others.iter().map(if_addrs::Interface::ip);
    let others = others.filter(|ip| ip.is_ipv4() && !ip.is_loopback());
    for address in others.chain(["127.0.0.2".parse().unwrap()]) {
        let refused = request_to(&host, address, false).unwrap();
        assert_eq!(refused, ConnectionEvent::NonPeerRejected, "{address}");
    }
    // A port that is free on one of the addresses only is in use.
    let taken = (Ipv6Addr::LOCALHOST, 0);
    let Ok(foreign) = TcpListener::bind(taken) else {
        return;
    };
    let qualifier = foreign.local_addr().unwrap().port().into();
    let on = Local {
        listen_on: ListenOn::Loopback,
        ..local()
    };
    let error = start()
        .listen(&on, qualifier, Arc::new(Requests::default()))
        .unwrap_err();
    assert!(matches!(error, CmError::InUse), "{error}");
}

#[test]
fn dropping_a_listener_frees_both_loopback_addresses() {
    let host = Host::on(ListenOn::Loopback, ManagerOptions::default());
    let port = port_of(host.qualifier);
    drop(host.listener);
    for address in [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        match TcpListener::bind((address, port)) {
            Ok(_) => (),
            Err(error) => assert_ne!(error.kind(), ErrorKind::AddrInUse, "{address}"),
        }
    }
}
