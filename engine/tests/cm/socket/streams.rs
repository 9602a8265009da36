//! Raw streams as peers, and TCP's forms of addresses.

use crate::cm::support::{Events, Host, connect, local, loopback, parameters, start, target};
use dat_engine::cm::{CmError, ConnectionEvent, ManagerOptions};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_host_that_drops_every_packet_times_out() {
    // A full accept queue: the system drops further requests.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&loopback().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let fill = || {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address.into());
        socket
    };
    let _full = [fill(), fill(), fill(), fill()];
    let manager = start();
    let time = Some(Duration::from_millis(200));
    let (_connection, events) = connect(&manager, address.port().into(), time);
    assert_eq!(events.next(), ConnectionEvent::TimedOut);
    events.assert_no_event();
}

#[test]
fn a_listener_that_never_answers_times_out() {
    let silent = TcpListener::bind(loopback()).unwrap();
    let port = silent.local_addr().unwrap().port();
    let manager = start();
    for time in [Duration::ZERO, Duration::from_millis(100)] {
        let (_connection, events) = connect(&manager, port.into(), Some(time));
        assert_eq!(events.next(), ConnectionEvent::TimedOut);
        events.assert_no_event();
    }
    // A timeout beyond the clock's range is none, and must not overflow.
    let (connection, events) = connect(&manager, port.into(), Some(Duration::MAX));
    events.assert_no_event();
    connection.disconnect();
    assert_eq!(events.next(), ConnectionEvent::Disconnected);
}

#[test]
fn ipv6_and_mapped_addresses_reach_the_same_listener() {
    let host = Host::new();
    for address in ["[::1]:1", "[::ffff:127.0.0.1]:0", "127.0.0.1:65535"] {
        let (to, events) = (
            address.parse::<SocketAddr>().unwrap(),
            Arc::new(Events::default()),
        );
        let made = host.manager.connect(
            &local(),
            target(to, host.qualifier, None),
            parameters(1),
            b"",
            events.clone(),
        );
        let _connection = match made {
            Ok(connection) => connection,
            Err(CmError::Address(_)) if to.is_ipv6() => continue,
            Err(error) => panic!("{address}: {error}"),
        };
        let request = host.requests.next();
        assert_eq!(request.peer().ip(), to.ip().to_canonical());
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
fn a_missing_reply_to_a_disconnect_times_out() {
    let host = Host::with(ManagerOptions {
        disconnect_timeout: Duration::from_millis(200),
        ..ManagerOptions::default()
    });
    let mut raw = super::hostile::Raw::requesting(&host);
    let events = Arc::new(Events::default());
    let request = host.requests.next();
    let connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    raw.send_ready();
    assert_eq!(events.next(), ConnectionEvent::Established);
    let begun = Instant::now();
    connection.disconnect();
    assert_eq!(events.next(), ConnectionEvent::Disconnected);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    events.assert_no_event();
}

#[test]
fn an_accepted_peer_that_is_never_ready_fails_in_time() {
    let host = Host::with(ManagerOptions {
        accept_timeout: Duration::from_millis(200),
        ..ManagerOptions::default()
    });
    // A connection that was established in time stays, however long it is idle.
    let pair = host.connected();
    let mut raw = super::hostile::Raw::requesting(&host);
    let events = Arc::new(Events::default());
    let request = host.requests.next();
    let begun = Instant::now();
    let connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    assert_eq!(events.next(), ConnectionEvent::AcceptFailed);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    // The peer gets the acceptance, a disconnect, and the end of the stream.
    let received = raw.read_all();
    assert!(
        received.ends_with(b"dCM\x17\x01\x06\0\0"),
        "{received:02x?}"
    );
    // Its `ready` comes too late.
    connection.disconnect();
    events.assert_no_event();
    pair.active_events.assert_no_event();
    pair.passive_events.assert_no_event();
    pair.active.disconnect();
    assert_eq!(pair.passive_events.next(), ConnectionEvent::Disconnected);
}
