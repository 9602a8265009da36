//! Private data, parameters and addresses over rdma_cm.

use super::{ends, host};
use crate::cm::support::{
    ABSENCE, EventQueue, Events, connect, local, own, parameters, start, target,
};
use dat_engine::cm::{ConnectionEvent, ConnectionSink, Local, Parameters};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn private_data_of_every_length_with_room_for_the_trailer_is_delivered() {
    let host = host();
    for length in 0..=host.manager.max_private_data(local().transport) {
        // Zeroes at the end are part of the data.
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
fn each_side_gets_the_reads_that_it_may_have_in_flight() {
    let host = host();
    let with = |end: Parameters, reads_served, reads_requested| Parameters {
        reads_served,
        reads_requested,
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
    assert_eq!((peer.reads_served, peer.reads_requested), (3, 5));
    let sink = Arc::new(Events::default());
    let _passive = request.accept(passive, b"", sink).unwrap();
    match events.next() {
        // Six were requested, three are served.
        ConnectionEvent::Accepted { peer, .. } => {
            assert_eq!((peer.reads_served, peer.reads_requested), (4, 3));
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
        request.reject(&[]).expect("short private data");
        assert_eq!(
            events.next(),
            ConnectionEvent::PeerRejected {
                private_data: Vec::new()
            }
        );
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_host_without_a_route_is_unreachable_and_a_silent_one_times_out() {
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
    // A documentation address, to which there is no route. An address of the same
    // family as the local one would be taken for a neighbour by the kernel.
    let (_connection, events) = connect("[2001:db8::9]:0", None);
    assert_eq!(events.next(), ConnectionEvent::Unreachable);
    assert!(begun.elapsed() < Duration::from_secs(6));
    // An unused address of the local network.
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
    events.assert_no_event();
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn other_devices_and_ports_neither_connect_nor_get_requests() {
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
        requests.assert_no_event();
    }
    assert!(host.requests.0.within(ABSENCE).is_none());
}

/// The requester's "ready" is late, because its sink is still busy. One of its
/// messages takes its place.
#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn a_message_establishes_the_connection_before_ready() {
    let host = host();
    // A separate service thread, which the sink blocks.
    let other = start();
    let busy = Arc::new(Busy::default());
    let to = target(own(), host.qualifier, None);
    let made = other.connect(&local(), to, parameters(1), b"", busy.clone());
    let _active = made.unwrap();
    let sink = Arc::new(Events::default());
    let request = host.requests.next();
    let passive = request.accept(parameters(2), b"", sink.clone()).unwrap();
    busy.asked.next();
    sink.assert_no_event();
    passive.message_received();
    assert_eq!(sink.next(), ConnectionEvent::Established);
    // The late `ready` causes no further event.
    busy.go.put(());
    sink.assert_no_event();
    passive.message_received();
    sink.assert_no_event();
    passive.disconnect();
    assert_eq!(sink.next(), ConnectionEvent::Disconnected);
}

/// A sink whose answer takes long.
#[derive(Default)]
struct Busy {
    asked: EventQueue<()>,
    go: EventQueue<()>,
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
