//! The control connection with peers that misbehave, over sockets of this host.
//! Timeouts are short where a test expects a timeout, and long elsewhere.

use std::net::TcpListener;
use std::thread;

use proptest::prelude::*;

use super::*;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

/// A control connection, and the raw socket at its other end.
fn pair(timeout: Duration) -> (Peer, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let raw = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (
        Peer::new(listener.accept().unwrap().0, timeout).unwrap(),
        raw,
    )
}

fn both() -> (Peer, Peer) {
    let (peer, raw) = pair(LONG);
    (peer, Peer::new(raw, LONG).unwrap())
}

fn options(size: &str) -> Options {
    let mut options = Options::default();
    options.set("-o", "send");
    options.set("-s", size);
    options
}

#[test]
fn equal_options_are_accepted_by_both_sides() {
    let (mut one, mut two) = both();
    let other = thread::spawn(move || two.agree(&options("2")).map(|()| two));
    one.agree(&options("2")).unwrap();
    let mut two = other.join().unwrap().unwrap();
    // Each tells the other that it accepts.
    one.await_ready().unwrap();
    two.await_ready().unwrap();
}

#[test]
fn both_sides_refuse_a_different_size_with_the_options_name() {
    let (mut one, mut two) = both();
    let other = thread::spawn(move || two.agree(&options("64")).unwrap_err());
    let here = one.agree(&options("2")).unwrap_err();
    let there = other.join().unwrap();
    assert_eq!((here.status(), there.status()), (1, 1));
    assert!(here.to_string().contains("-s: here 2, there 64"), "{here}");
    assert!(
        there.to_string().contains("-s: here 64, there 2"),
        "{there}"
    );
}

#[test]
fn a_silent_peer_times_out() {
    let (mut peer, _raw) = pair(SHORT);
    let failure = peer.agree(&options("2")).unwrap_err();
    assert_eq!(failure.status(), 3);
    assert!(failure.to_string().contains("sent nothing"), "{failure}");
}

#[test]
fn a_peer_that_sends_single_bytes_slowly_times_out() {
    let (mut peer, mut raw) = pair(Duration::from_millis(200));
    let dripping = thread::spawn(move || {
        // Ends when the other side closes. All bytes would take longer than the timeout.
        for _ in 0..16 {
            if raw.write_all(b"D").is_err() {
                break;
            }
            thread::sleep(SHORT);
        }
    });
    let start = Instant::now();
    assert_eq!(peer.agree(&options("2")).unwrap_err().status(), 3);
    assert!(start.elapsed() < LONG / 4);
    drop(peer);
    dripping.join().unwrap();
}

#[test]
fn a_closed_connection_is_detected() {
    let (mut peer, raw) = pair(LONG);
    assert!(!peer.has_message());
    drop(raw);
    let failure = peer.await_ready().unwrap_err();
    assert!(peer.has_message());
    assert_eq!(failure.status(), 3);
    assert!(failure.to_string().contains("closed"), "{failure}");
}

#[test]
fn the_reason_of_an_abort_is_received() {
    let (mut one, mut two) = both();
    two.abort("no device");
    drop(two);
    let failure = one.agree(&options("2")).unwrap_err();
    assert!(
        failure.to_string().contains("ended the run: no device"),
        "{failure}"
    );
}

#[test]
fn another_version_is_refused_with_its_number() {
    let (mut peer, mut raw) = pair(LONG);
    raw.write_all(b"DATB\x00\x63\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00")
        .unwrap();
    let failure = peer.agree(&options("2")).unwrap_err();
    assert_eq!(failure.status(), 2);
    assert!(failure.to_string().contains("version 99"), "{failure}");
}

#[test]
fn an_unexpected_message_is_refused() {
    let (mut one, mut two) = both();
    two.done(Done::default()).unwrap();
    let failure = one.await_ready().unwrap_err();
    assert!(
        failure.to_string().contains("'done' instead of 'ready'"),
        "{failure}"
    );
}

#[test]
fn an_unresolvable_host_is_an_environment_failure() {
    let failure = Peer::connect("no such host.invalid", 1, LONG)
        .err()
        .unwrap();
    assert_eq!(failure.status(), 2);
    assert!(failure.to_string().contains("cannot resolve"), "{failure}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_bytes_are_an_error_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut peer, mut raw) = pair(LONG);
        raw.write_all(&bytes).unwrap();
        drop(raw);
        prop_assert_eq!(peer.agree(&options("2")).unwrap_err().status(), 3);
    }

    #[test]
    fn arbitrary_bytes_after_the_magic_are_an_error_and_no_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut peer, mut raw) = pair(LONG);
        raw.write_all(b"DATB\x00\x06").unwrap();
        raw.write_all(&bytes).unwrap();
        drop(raw);
        prop_assert_eq!(peer.agree(&options("2")).unwrap_err().status(), 3);
    }
}
