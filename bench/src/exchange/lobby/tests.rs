//! A server's port with clients and other programs, over sockets of this host.

use std::thread;

use super::*;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

fn options(size: &str) -> Options {
    [("-o", "send"), ("-s", size)].into_iter().collect()
}

/// A server for clients with `-s 2`, and its port.
fn lobby(patience: Duration) -> (Lobby, u16) {
    let door = Door::open(ListenOn::Loopback, 0).unwrap();
    let port = door.port().unwrap();
    (Lobby::new(door, options("2"), patience), port)
}

/// A connection that sends these bytes.
fn stranger(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// A client with this message size.
fn client(port: u16, size: &'static str) -> thread::JoinHandle<Result<Peer, Failure>> {
    thread::spawn(move || {
        let mut peer = Peer::connect("127.0.0.1", port, LONG)?;
        peer.agree(&options(size)).map(|()| peer)
    })
}

/// Waits for a client. Returns it and the reports about other connections.
fn wait(lobby: &mut Lobby, limit: Option<Duration>) -> (Option<Peer>, Vec<String>) {
    let mut told = Vec::new();
    let peer = lobby.wait(limit, &mut |said| {
        told.push(said.to_owned());
        Ok(())
    });
    (peer.unwrap(), told)
}

#[test]
fn a_silent_connection_delays_no_client() {
    let (mut lobby, port) = lobby(LONG);
    let _silent = stranger(port, b"");
    let _slow = stranger(port, b"DATB");
    let came = client(port, "2");
    let start = Instant::now();
    let (peer, told) = wait(&mut lobby, None);
    assert!(
        start.elapsed() < LONG,
        "the client waited for the silent connection"
    );
    let (mut here, mut there) = (peer.unwrap(), came.join().unwrap().unwrap());
    assert!(told.is_empty(), "{told:?}");
    // The connection carries the messages after the hello.
    there.say_ready().unwrap();
    here.await_ready().unwrap();
}

#[test]
fn other_programs_and_other_options_are_reported_and_the_client_is_found() {
    let (mut lobby, port) = lobby(LONG);
    // The listen queue is in order, so these are accepted before the client.
    let _web = stranger(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _other_version = stranger(
        port,
        b"DATB\x00\x63\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00",
    );
    drop(stranger(port, b""));
    let typo = client(port, "64");
    let typo = thread::spawn(move || typo.join().unwrap());
    let mut told = Vec::new();
    while told.len() < 4 {
        // Returns after the limit: there is no client with the same options yet.
        let (peer, more) = wait(&mut lobby, Some(SHORT));
        assert!(peer.is_none());
        told.extend(more);
    }
    for cause in [
        "not dat-bench's protocol",
        "version 99",
        "closed",
        "-s: here 2, there 64",
    ] {
        assert!(
            told.iter().any(|said| said.contains(cause)),
            "{cause}: {told:?}"
        );
    }
    let refused = typo.join().unwrap().err().unwrap();
    assert_eq!(refused.status(), 1);
    let came = client(port, "2");
    assert!(wait(&mut lobby, None).0.is_some());
    came.join().unwrap().unwrap();
}

#[test]
fn a_silent_connection_is_closed_after_the_timeout() {
    let (mut lobby, port) = lobby(SHORT);
    let mut silent = stranger(port, b"");
    let mut told = Vec::new();
    while told.is_empty() {
        let (peer, more) = wait(&mut lobby, Some(SHORT));
        assert!(peer.is_none());
        told.extend(more);
    }
    assert!(told[0].contains("no complete hello"), "{told:?}");
    // The server's hello, then the end of the stream.
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).unwrap();
    assert!(heard.starts_with(b"DATB"));
}

#[test]
fn too_many_connections_close_the_oldest() {
    let (mut lobby, port) = lobby(LONG);
    let crowd: Vec<_> = (0..MOST_GUESTS + 3).map(|_| stranger(port, b"")).collect();
    let came = client(port, "2");
    let (peer, told) = wait(&mut lobby, None);
    assert!(peer.is_some());
    came.join().unwrap().unwrap();
    assert!(told.len() >= 3, "{told:?}");
    assert!(told.iter().all(|said| said.contains("too many")));
    drop(crowd);
}

#[test]
fn messages_after_the_hello_are_not_lost() {
    let (mut lobby, port) = lobby(LONG);
    let (kind, payload) = Message::Hello(options("2")).encode();
    let mut bytes = frame::encode(kind, &payload);
    let (kind, payload) = Message::Done { messages: 7 }.encode();
    bytes.extend(frame::encode(kind, &payload));
    let _client = stranger(port, &bytes);
    let mut peer = wait(&mut lobby, None).0.unwrap();
    assert_eq!(peer.await_done(LONG).unwrap(), 7);
}

#[test]
fn without_a_client_the_wait_ends_after_its_limit() {
    assert!(wait(&mut lobby(LONG).0, Some(SHORT)).0.is_none());
}

#[test]
fn a_port_on_loopback_is_on_no_other_address() {
    let door = Door::open(ListenOn::Loopback, 0).unwrap();
    for listener in &door.listeners {
        assert!(listener.local_addr().unwrap().ip().is_loopback());
    }
    let one = Door::open(ListenOn::One("127.0.0.2".parse().unwrap()), 0).unwrap();
    let port = one.port().unwrap();
    assert!(TcpStream::connect(("127.0.0.2", port)).is_ok());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn an_address_of_another_host_is_refused_with_a_remedy() {
    // Reserved for documentation (RFC 5737): no host has it.
    let failure = Door::open(ListenOn::One("192.0.2.1".parse().unwrap()), 0)
        .err()
        .unwrap();
    assert_eq!(failure.status(), 2);
    assert!(failure.to_string().contains("--listen"), "{failure}");
}

#[test]
fn a_taken_port_is_an_environment_failure() {
    for listen in [ListenOn::All, ListenOn::Loopback] {
        let door = Door::open(listen, 0).unwrap();
        let failure = Door::open(listen, door.port().unwrap()).err().unwrap();
        assert_eq!(failure.status(), 2);
        assert!(failure.to_string().contains("-p"), "{failure}");
    }
}
