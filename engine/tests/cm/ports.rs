//! Qualifiers and their listeners.

use super::support::{Events, Host, Requests, connect, local, parameters, start};
use dat_engine::cm::ConnectionEvent;
use std::sync::Arc;

#[test]
fn a_qualifier_of_64_bits_is_delivered_unchanged() {
    let manager = start();
    let requests = Arc::new(Requests::default());
    // Longer than 16 bits, and different in every run.
    let qualifier = (u64::from(std::process::id()) << 32) + 77;
    let listener = manager
        .listen(&local(), qualifier, requests.clone())
        .unwrap();
    assert_eq!(listener.qualifier(), qualifier);
    let (_connection, events) = connect(&manager, qualifier, None);
    let request = requests.next();
    assert_eq!(request.qualifier(), qualifier);
    request.reject(&[]).expect("short private data");
    assert_eq!(
        events.next(),
        ConnectionEvent::PeerRejected {
            private_data: Vec::new()
        }
    );
}

#[test]
fn listeners_on_any_qualifier_get_different_ones() {
    let manager = start();
    let listeners: Vec<_> = (0..20)
        .map(|_| {
            manager
                .listen_any(&local(), Arc::new(Requests::default()))
                .unwrap()
        })
        .collect();
    let mut qualifiers: Vec<_> = listeners.iter().map(|(_, qualifier)| *qualifier).collect();
    qualifiers.sort_unstable();
    qualifiers.dedup();
    assert_eq!(qualifiers.len(), 20);
}

#[test]
fn a_request_outlives_its_listener() {
    let Host {
        manager,
        listener,
        qualifier,
        requests,
    } = Host::new();
    let (_active, active_events) = connect(&manager, qualifier, None);
    let request = requests.next();
    drop(listener);
    let (_late, late_events) = connect(&manager, qualifier, None);
    assert_eq!(late_events.next(), ConnectionEvent::NonPeerRejected);
    let passive_events = Arc::new(Events::default());
    let _passive = request
        .accept(parameters(2), b"", passive_events.clone())
        .unwrap();
    active_events.assert_accepted();
    assert_eq!(passive_events.next(), ConnectionEvent::Established);
    requests.assert_no_event();
}
