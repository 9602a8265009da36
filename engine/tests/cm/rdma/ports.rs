//! Qualifiers and their listeners.

use super::host;
use crate::cm::support::{Requests, connect, local, start};
use dat_engine::cm::{CmError, ConnectionEvent, ListenOn, Local, ManagerKind, ManagerOptions};
use std::sync::Arc;

/// Returns a qualifier longer than 16 bits; those with the same remainder share a
/// port.
fn qualifier(number: u64) -> u64 {
    let seed = u64::from(std::process::id()) % 30_000;
    32_001 * (1000 + number) + seed
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn the_second_listener_on_a_port_is_refused_as_in_use() {
    super::require_rdma();
    let (one, two) = (start(), start());
    let listen = |manager: &dat_engine::cm::Manager, qualifier| {
        manager.listen(&local(), qualifier, Arc::new(Requests::default()))
    };
    let port = qualifier(0) % 32_001 + 33_534;
    let listener = listen(&one, qualifier(0)).unwrap();
    for (manager, wanted) in [
        (&one, qualifier(0)),
        (&two, qualifier(0)),
        (&two, qualifier(1)),
        (&one, port),
    ] {
        let error = listen(manager, wanted).unwrap_err();
        assert!(matches!(error, CmError::InUse), "{error}");
    }
    drop(listener);
    // The port is free as soon as the drop has returned.
    drop(listen(&two, qualifier(1)).unwrap());
    // TCP's ports are another port space.
    let tcp = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    drop(listen(&two, tcp.local_addr().unwrap().port().into()).unwrap());
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn only_the_port_of_a_qualifier_is_transmitted() {
    let host = host();
    let requests = Arc::new(Requests::default());
    let listener = host
        .manager
        .listen(&local(), qualifier(0), requests.clone());
    let listener = listener.unwrap();
    for asked in [qualifier(0), qualifier(1), qualifier(0) % 32_001 + 33_534] {
        let (_connection, events) = connect(&host.manager, asked, None);
        let request = requests.next();
        assert_eq!(request.qualifier(), qualifier(0));
        request.reject(&[]).expect("short private data");
        assert_eq!(
            events.next(),
            ConnectionEvent::PeerRejected {
                private_data: Vec::new()
            }
        );
    }
    drop(listener);
    let (_connection, events) = connect(&host.manager, qualifier(0), None);
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    requests.assert_no_event();
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_listen_address_must_belong_to_a_device() {
    super::require_rdma();
    let with = |address: std::net::IpAddr| {
        let options = ManagerOptions::default();
        let manager = dat_engine::cm::Manager::start(ManagerKind::Rdma, options).unwrap();
        let on = Local {
            listen_on: ListenOn::One(address),
            ..local()
        };
        manager.listen_any(&on, Arc::new(Requests::default()))
    };
    drop(with(local().address).unwrap());
    let error = with("203.0.113.7".parse().unwrap()).unwrap_err();
    assert!(matches!(error, CmError::Address(_)), "{error}");
}
