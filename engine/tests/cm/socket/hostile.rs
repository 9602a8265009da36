//! Peers with another protocol, or with incomplete messages.

use crate::cm::support::{
    Events, Host, TIMEOUT, assert_event, connect, loopback, parameters, start,
};
use dat_engine::cm::{ConnectionEvent, ManagerOptions};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = *b"dCM\x17";
const READY: u8 = 4;
const DISCONNECT: u8 = 6;
const FAREWELL: u8 = 7;

fn word(kind: u8) -> Vec<u8> {
    [&MAGIC[..], &[1, kind, 0, 0]].concat()
}

/// A peer without a manager: a raw stream.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    fn new(host: &Host) -> Self {
        let stream = TcpStream::connect(host.raw_address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(stream)
    }

    /// Sends a valid request.
    pub(crate) fn requesting(host: &Host) -> Self {
        let mut raw = Self::new(host);
        raw.send(&request_for(host.qualifier));
        raw
    }

    /// Sends `ready` once the request is accepted. Leaves the acceptance unread, so
    /// that closing resets the stream.
    pub(crate) fn send_ready(&mut self) {
        self.await_answer();
        self.send(&word(READY));
    }

    fn await_answer(&mut self) {
        assert_eq!(self.0.peek(&mut [0]).unwrap(), 1);
    }

    /// Sends bytes; the other side may have closed the stream already.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Reads everything until the other side closes the stream.
    pub(crate) fn read_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut part = [0; 512];
        loop {
            match self.0.read(&mut part) {
                Ok(0) => return all,
                Ok(count) => all.extend_from_slice(&part[..count]),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
                    return all;
                }
            }
        }
    }
}

/// Returns the bytes that a manager sends to request a connection.
pub(crate) fn request_for(qualifier: u64) -> Vec<u8> {
    let listener = TcpListener::bind(loopback()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (connection, _events) = connect(&start(), port.into(), None);
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = vec![0; 8];
    stream.read_exact(&mut bytes).unwrap();
    bytes.resize(8 + usize::from(u16::from_be_bytes([bytes[6], bytes[7]])), 0);
    stream.read_exact(&mut bytes[8..]).unwrap();
    drop(connection);
    bytes[8..16].copy_from_slice(&qualifier.to_be_bytes());
    bytes
}

#[test]
fn another_version_is_rejected_with_the_reason() {
    let host = Host::new();
    let mut raw = Raw::new(&host);
    let mut request = request_for(host.qualifier);
    request[4] = 2;
    raw.send(&request);
    assert_eq!(raw.read_all(), [&MAGIC[..], &[1, 3, 0, 1, 3]].concat());
    host.requests.assert_no_event();
}

#[test]
fn an_answer_in_another_protocol_is_a_non_peer_rejection() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let manager = start();
    let later_version = [&MAGIC[..], &[2, 3, 0, 1, 3]].concat();
    let accept_of_later_version = [&MAGIC[..], &[2, 2, 0, 0]].concat();
    let answers: [&[u8]; 7] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        &later_version,
        &accept_of_later_version,
        &word(READY),
        &word(DISCONNECT),
        &[0xff; 4096],
    ];
    for answer in answers {
        let (_connection, events) = connect(&manager, port.into(), None);
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(answer).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            events.next(),
            ConnectionEvent::NonPeerRejected,
            "{answer:?}"
        );
        events.assert_no_event();
    }
}

#[test]
fn a_slow_request_is_dropped_and_delays_no_other() {
    let host = Host::with(ManagerOptions {
        request_timeout: Duration::from_millis(300),
        ..ManagerOptions::default()
    });
    let begun = Instant::now();
    let mut silent = Raw::new(&host);
    let mut slow = Raw::new(&host);
    let request = request_for(host.qualifier);
    for byte in &request[..5] {
        slow.send(&[*byte]);
        host.connected();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(slow.read_all().is_empty());
    assert!(silent.read_all().is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(begun.elapsed() < Duration::from_secs(5));
    host.requests.assert_no_event();
}

#[test]
fn a_request_in_single_bytes_is_accepted() {
    let host = Host::new();
    let mut raw = Raw::new(&host);
    raw.0.set_nodelay(true).unwrap();
    for byte in request_for(host.qualifier) {
        raw.send(&[byte]);
    }
    assert_event(host.requests.next().parameters(), &parameters(1));
}

#[test]
fn silent_connections_are_dropped_for_requests() {
    crate::cm::load::raise_descriptors(4000);
    let host = Host::new();
    let mut crowd: Vec<_> = (0..1100).map(|_| Raw::new(&host)).collect();
    host.connected();
    // The oldest connection was dropped before its timeout.
    let begun = Instant::now();
    assert!(crowd[0].read_all().is_empty());
    assert!(begun.elapsed() < Duration::from_secs(5));
    crowd.clear();
    host.connected();
}

#[test]
fn junk_after_a_valid_start_ends_only_that_connection() {
    let host = Host::new();
    let bystander = host.connected();

    // While the application has not answered.
    let mut raw = Raw::requesting(&host);
    let request = host.requests.next();
    raw.send(b"junk");
    assert!(raw.read_all().is_empty());
    assert!(!request.is_alive());
    let events = Arc::new(Events::default());
    let _connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    assert_eq!(events.next(), ConnectionEvent::AcceptFailed);

    // After the acceptance, and on an established connection.
    for (ready, end) in [
        (false, ConnectionEvent::AcceptFailed),
        (true, ConnectionEvent::Broken),
    ] {
        let mut raw = Raw::requesting(&host);
        let events = Arc::new(Events::default());
        let request = host.requests.next();
        let _connection = request.accept(parameters(2), b"", events.clone()).unwrap();
        if ready {
            raw.send_ready();
            assert_eq!(events.next(), ConnectionEvent::Established);
        }
        // A valid message in the wrong state.
        raw.send(&request_for(host.qualifier));
        assert_eq!(events.next(), end);
        events.assert_no_event();
        raw.read_all();
    }

    bystander.active.disconnect();
    assert_eq!(
        bystander.active_events.next(),
        ConnectionEvent::Disconnected
    );
}

#[test]
fn a_disconnect_is_answered() {
    let host = Host::new();
    let mut raw = Raw::requesting(&host);
    let events = Arc::new(Events::default());
    let request = host.requests.next();
    let _connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    raw.send_ready();
    raw.send(&word(DISCONNECT));
    assert!(raw.read_all().ends_with(&word(FAREWELL)));
    assert_eq!(events.next(), ConnectionEvent::Established);
    assert_eq!(events.next(), ConnectionEvent::Disconnected);
}

#[test]
fn bytes_after_a_disconnect_in_one_segment_are_ignored() {
    let host = Host::new();
    let mut raw = Raw::requesting(&host);
    let events = Arc::new(Events::default());
    let request = host.requests.next();
    let _connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    raw.await_answer();
    raw.send(
        &[
            word(READY),
            word(DISCONNECT),
            word(DISCONNECT),
            b"junk".to_vec(),
        ]
        .concat(),
    );
    drop(raw);
    assert_eq!(events.next(), ConnectionEvent::Established);
    assert_eq!(events.next(), ConnectionEvent::Disconnected);
    events.assert_no_event();
}

#[test]
fn any_junk_is_survived() {
    let host = Host::new();
    let good = request_for(host.qualifier);
    let mutated = (
        any::<prop::sample::Index>(),
        any::<u8>(),
        any::<prop::sample::Index>(),
    );
    let junk = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..3000),
        mutated.prop_map({
            let good = good.clone();
            move |(place, byte, end)| {
                let mut bytes = good.clone();
                bytes[place.index(good.len())] = byte;
                bytes.truncate(1 + end.index(2 * good.len()));
                bytes
            }
        }),
    ];
    let config = ProptestConfig::with_cases(300);
    proptest!(config, |(junk in junk, close: bool)| {
        let mut raw = Raw::new(&host);
        raw.send(&junk);
        if close {
            raw.0.shutdown(Shutdown::Write).unwrap();
            // Any input is answered or dropped, never left open; only an input that
            // happens to be a valid request reaches the application.
            if let Some(request) = host.requests.0.within(Duration::from_millis(1)) {
                drop(request);
            }
            raw.read_all();
        }
    });
    while host.requests.0.within(Duration::from_millis(100)).is_some() {}
    host.connected();
}
