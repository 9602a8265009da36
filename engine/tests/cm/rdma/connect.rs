//! What travels, and where to.

use super::{ends, host};
use crate::cm::support::{Events, Mailbox, QUIET, connect, local, own, parameters, start, target};
use dat_engine::cm::{ConnectionEvent, ConnectionSink, Local, Parameters};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn private_data_of_every_length_that_leaves_room_for_it_comes_back_as_it_was() {
    let host = host();
    for length in 0..=host.manager.max_private_data(local().transport) {
        // Zeroes at the end are data like any other.
        let mut data = vec![length as u8 + 1; length];
        data.iter_mut().skip(length / 2).for_each(|byte| *byte = 0);
        let (events, sink) = (Arc::new(Events::default()), Arc::new(Events::default()));
        let to = target(own(), host.qualifier, None);
        let made = host
            .manager
            .connect(&local(), to, parameters(1), &data, events.clone());
        let _active = made.unwrap();
        let request = host.requests.next();
        if (53..56).contains(&length) {
            let mut padded = data.clone();
            padded.resize(56, 0);
            assert_eq!(request.private_data(), padded, "{length}");
        } else {
            assert_eq!(request.private_data(), data, "{length}");
        }
        let _passive = request.accept(parameters(2), &data, sink).unwrap();
        match events.next() {
            ConnectionEvent::Accepted { private_data, .. } => assert_eq!(private_data, data),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn each_side_hears_how_many_reads_it_may_have_in_flight() {
    let host = host();
    let with = |end: Parameters, reads_served, reads_asked| Parameters {
        reads_served,
        reads_asked,
        ..end
    };
    let (active, passive) = ends();
    let (active, passive) = (with(active, 3, 5), with(passive, 4, 6));
    let events = Arc::new(Events::default());
    let to = target(own(), host.qualifier, None);
    let made = host
        .manager
        .connect(&local(), to, active, b"", events.clone());
    let _active = made.unwrap();
    let request = host.requests.next();
    let peer = request.parameters();
    assert_eq!((peer.reads_served, peer.reads_asked), (3, 5));
    let sink = Arc::new(Events::default());
    let _passive = request.accept(passive, b"", sink).unwrap();
    match events.next() {
        // Of six that were asked for, the three that are served.
        ConnectionEvent::Accepted { peer, .. } => {
            assert_eq!((peer.reads_served, peer.reads_asked), (4, 3));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn ipv6_reaches_the_same_listener() {
    let host = host();
    let all = if_addrs::get_if_addrs().unwrap();
    let ours = all.iter().find(|one| one.ip() == own().ip()).unwrap();
    let v6 = |one: &&if_addrs::Interface| match one.ip() {
        std::net::IpAddr::V6(ip) => one.name == ours.name && !ip.is_unicast_link_local(),
        std::net::IpAddr::V4(_) => false,
    };
    let ip = all.iter().find(v6).expect("an IPv6 address").ip();
    for from in [own().ip(), ip] {
        let from = Local {
            address: from,
            ..local()
        };
        let events = Arc::new(Events::default());
        let to = target(SocketAddr::new(ip, 4711), host.qualifier, None);
        let made = host
            .manager
            .connect(&from, to, parameters(1), b"v6", events.clone());
        let _active = made.unwrap();
        let request = host.requests.next();
        assert!(request.peer().is_ipv6(), "{}", request.peer());
        assert_eq!(request.private_data(), b"v6");
        request.reject();
        assert_eq!(events.next(), ConnectionEvent::PeerRejected);
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_host_without_a_way_is_unreachable_and_a_silent_one_times_out() {
    let host = host();
    let connect = |to: &str, timeout| {
        let events = Arc::new(Events::default());
        let to = target(to.parse().unwrap(), 4711, timeout);
        let made = host
            .manager
            .connect(&local(), to, parameters(1), b"", events.clone());
        (made.unwrap(), events)
    };
    let begun = Instant::now();
    // An address for documentation, which nothing routes. (Of the family of
    // our own address, the kernel would take it for a neighbour.)
    let (_connection, events) = connect("[2001:db8::9]:0", None);
    assert_eq!(events.next(), ConnectionEvent::Unreachable);
    assert!(begun.elapsed() < Duration::from_secs(6));
    // On the own network, but nobody's.
    let silent = match own().ip() {
        std::net::IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            SocketAddr::from(([a, b, c, d ^ 0x55], 0))
        }
        std::net::IpAddr::V6(_) => panic!("the device's address is an IPv6 one"),
    };
    let begun = Instant::now();
    let time = Duration::from_millis(300);
    let (_connection, events) = connect(&silent.to_string(), Some(time));
    assert_eq!(events.next(), ConnectionEvent::TimedOut);
    assert!(begun.elapsed() >= time && begun.elapsed() < Duration::from_secs(4));
    events.assert_quiet();
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn who_is_of_another_device_or_port_neither_connects_nor_hears_of_requests() {
    let host = host();
    let others = [
        Local {
            device: "mlx5_77".into(),
            ..local()
        },
        Local { port: 2, ..local() },
    ];
    for other in others {
        let events = Arc::new(Events::default());
        let to = target(own(), host.qualifier, None);
        let made = host
            .manager
            .connect(&other, to, parameters(1), b"", events.clone());
        let _connection = made.unwrap();
        assert_eq!(events.next(), ConnectionEvent::Unreachable);
        let requests = Arc::new(crate::cm::support::Requests::default());
        let (_listener, qualifier) = host.manager.listen_any(&other, requests.clone()).unwrap();
        let (_connection, events) = connect(&host.manager, qualifier, None);
        assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
        requests.assert_quiet();
    }
    assert!(host.requests.0.within(QUIET).is_none());
}

/// The requester's word is late: he is still busy with the answer. A message of
/// his stands for it.
#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_message_stands_for_the_word_of_the_requester() {
    let host = host();
    // A service thread of its own, which the sink keeps busy.
    let other = start();
    let busy = Arc::new(Busy::default());
    let to = target(own(), host.qualifier, None);
    let made = other.connect(&local(), to, parameters(1), b"", busy.clone());
    let _active = made.unwrap();
    let sink = Arc::new(Events::default());
    let request = host.requests.next();
    let passive = request.accept(parameters(2), b"", sink.clone()).unwrap();
    busy.asked.next();
    sink.assert_quiet();
    passive.heard();
    assert_eq!(sink.next(), ConnectionEvent::Established);
    // His word comes after all, and says nothing new.
    busy.go.put(());
    sink.assert_quiet();
    passive.heard();
    sink.assert_quiet();
    passive.disconnect();
    assert_eq!(sink.next(), ConnectionEvent::Disconnected);
}

/// Takes its time with the answer.
#[derive(Default)]
struct Busy {
    asked: Mailbox<()>,
    go: Mailbox<()>,
}

impl ConnectionSink for Busy {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        if matches!(event, ConnectionEvent::Accepted { .. }) {
            self.asked.put(());
            self.go.next();
        }
        Ok(())
    }
}
