//! A server's port with clients and other programs, over sockets of this host.

use std::io::Read;
use std::thread;

use super::*;
use crate::exchange::Done;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

fn options(size: &str) -> Options {
    let mut options = Options::default();
    options.set("-o", "send");
    options.set("-s", size);
    options
}

/// A server for clients with `-s 2`, and its port.
fn server(timeout: Duration) -> (ClientListener, u16) {
    let control_port = ControlPort::open(ListenOn::Loopback, 0).unwrap();
    let port = control_port.port().unwrap();
    (
        ClientListener::new(control_port, options("2"), timeout),
        port,
    )
}

/// A connection that sends these bytes.
fn raw_connection(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// The hello of a client with the same options.
fn hello() -> Vec<u8> {
    Message::Hello(options("2")).encode()
}

/// A client with this message size.
fn client(port: u16, size: &'static str) -> thread::JoinHandle<Result<Peer, Failure>> {
    thread::spawn(move || {
        let mut peer = Peer::connect("127.0.0.1", port, LONG)?;
        peer.agree(&options(size)).map(|()| peer)
    })
}

/// Waits for a client. Returns it and the reports about other connections.
fn wait(listener: &mut ClientListener, limit: Option<Duration>) -> (Option<Peer>, Vec<String>) {
    let mut reports = Vec::new();
    let peer = listener.wait(limit, &mut |said| {
        reports.push(said.to_owned());
        Ok(())
    });
    (peer.unwrap(), reports)
}

#[test]
fn a_silent_connection_delays_no_client() {
    let (mut listener, port) = server(LONG);
    let _silent = raw_connection(port, b"");
    let _slow = raw_connection(port, b"DATB");
    let came = client(port, "2");
    let start = Instant::now();
    let (peer, reports) = wait(&mut listener, None);
    assert!(
        start.elapsed() < LONG,
        "the client waited for the silent connection"
    );
    let (mut here, mut there) = (peer.unwrap(), came.join().unwrap().unwrap());
    assert!(reports.is_empty(), "{reports:?}");
    // The connection carries the messages after the hello.
    there.send_ready().unwrap();
    here.await_ready().unwrap();
}

#[test]
fn a_connection_that_is_silent_after_its_hello_delays_no_client() {
    let (mut listener, port) = server(LONG);
    let _greeted = raw_connection(port, &hello());
    // The listen queue is in order, so the silent connection is accepted before the client.
    let came = client(port, "2");
    let start = Instant::now();
    let (mut here, mut there) = (
        wait(&mut listener, None).0.unwrap(),
        came.join().unwrap().unwrap(),
    );
    there.begin(2).unwrap();
    here.await_begin(2).unwrap();
    assert!(start.elapsed() < LONG, "the server served the silent one");
}

#[test]
fn other_programs_and_other_options_are_reported_and_the_client_is_found() {
    let (mut listener, port) = server(LONG);
    // The listen queue is in order, so these are accepted before the client.
    let _web = raw_connection(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _other_version = raw_connection(
        port,
        b"DATB\x00\x63\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00",
    );
    drop(raw_connection(port, b""));
    let typo = client(port, "64");
    let typo = thread::spawn(move || typo.join().unwrap());
    let mut reports = Vec::new();
    while reports.len() < 4 {
        // Returns after the limit: there is no client with the same options yet.
        let (peer, more) = wait(&mut listener, Some(SHORT));
        assert!(peer.is_none());
        reports.extend(more);
    }
    for cause in [
        "not dat-bench's protocol",
        "version 99",
        "closed",
        "-s: here 2, there 64",
    ] {
        assert!(
            reports.iter().any(|said| said.contains(cause)),
            "{cause}: {reports:?}"
        );
    }
    let refused = typo.join().unwrap().err().unwrap();
    assert_eq!(refused.status(), 1);
    let came = client(port, "2");
    assert!(wait(&mut listener, None).0.is_some());
    came.join().unwrap().unwrap();
}

#[test]
fn a_silent_connection_is_closed_after_the_timeout() {
    for (bytes, cause) in [
        (Vec::new(), "no complete hello"),
        (hello(), "silent after its hello"),
    ] {
        let (mut listener, port) = server(SHORT);
        let mut silent = raw_connection(port, &bytes);
        let mut reports = Vec::new();
        while reports.is_empty() {
            let (peer, more) = wait(&mut listener, Some(SHORT));
            assert!(peer.is_none());
            reports.extend(more);
        }
        assert!(reports[0].contains(cause), "{reports:?}");
        // The server's hello, then the end of the stream.
        let mut received = Vec::new();
        silent.read_to_end(&mut received).unwrap();
        assert!(received.starts_with(b"DATB"));
    }
}

#[test]
fn too_many_connections_close_the_oldest() {
    let (mut listener, port) = server(LONG);
    let crowd: Vec<_> = (0..MAX_PENDING + 3)
        .map(|_| raw_connection(port, b""))
        .collect();
    let came = client(port, "2");
    let (peer, reports) = wait(&mut listener, None);
    assert!(peer.is_some());
    came.join().unwrap().unwrap();
    assert!(reports.len() >= 3, "{reports:?}");
    assert!(reports.iter().all(|said| said.contains("too many")));
    drop(crowd);
}

#[test]
fn messages_after_the_greeting_are_not_lost() {
    let (mut listener, port) = server(LONG);
    let done = Done {
        messages: 7,
        ..Done::default()
    };
    let mut bytes = hello();
    bytes.extend(Message::Ready.encode());
    bytes.extend(Message::Done(done).encode());
    let _client = raw_connection(port, &bytes);
    let mut peer = wait(&mut listener, None).0.unwrap();
    assert_eq!(peer.await_done(LONG).unwrap(), done);
}

#[test]
fn without_a_client_the_wait_ends_after_its_limit() {
    assert!(wait(&mut server(LONG).0, Some(SHORT)).0.is_none());
}

#[test]
fn a_port_on_loopback_is_on_no_other_address() {
    let control_port = ControlPort::open(ListenOn::Loopback, 0).unwrap();
    for socket in &control_port.listeners {
        assert!(socket.local_addr().unwrap().ip().is_loopback());
    }
    let one = ControlPort::open(ListenOn::One("127.0.0.2".parse().unwrap()), 0).unwrap();
    let port = one.port().unwrap();
    assert!(TcpStream::connect(("127.0.0.2", port)).is_ok());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn an_address_of_another_host_is_refused_with_a_remedy() {
    // Reserved for documentation (RFC 5737): no host has it.
    let failure = ControlPort::open(ListenOn::One("192.0.2.1".parse().unwrap()), 0)
        .err()
        .unwrap();
    assert_eq!(failure.status(), 2);
    assert!(failure.to_string().contains("--listen"), "{failure}");
}

#[test]
fn a_taken_port_is_an_environment_failure() {
    for listen in [ListenOn::All, ListenOn::Loopback] {
        let control_port = ControlPort::open(listen, 0).unwrap();
        let failure = ControlPort::open(listen, control_port.port().unwrap())
            .err()
            .unwrap();
        assert_eq!(failure.status(), 2);
        assert!(failure.to_string().contains("-p"), "{failure}");
    }
}
