//! The control connection against peers that misbehave, over real sockets on
//! this host. Limits are short where a timeout is the point, long where an
//! answer is.

use std::net::TcpListener;
use std::thread;

use proptest::prelude::*;

use super::*;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

/// A served peer and the raw socket at its other end.
fn pair(patience: Duration) -> (Peer, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let raw = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (
        Peer::new(listener.accept().unwrap().0, patience).unwrap(),
        raw,
    )
}

fn both() -> (Peer, Peer) {
    let (peer, raw) = pair(LONG);
    (peer, Peer::new(raw, LONG).unwrap())
}

fn options(size: &str) -> Options {
    [("-o", "send"), ("-s", size)].into_iter().collect()
}

#[test]
fn equal_options_are_agreed_on() {
    let (mut one, mut two) = both();
    let other = thread::spawn(move || two.agree(&options("2")));
    one.agree(&options("2")).unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn both_sides_refuse_a_different_size_by_its_name() {
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
fn a_peer_that_never_answers_is_given_up() {
    let (mut peer, _raw) = pair(SHORT);
    let failure = peer.agree(&options("2")).unwrap_err();
    assert_eq!(failure.status(), 3);
    assert!(failure.to_string().contains("said nothing"), "{failure}");
}

#[test]
fn a_peer_that_drips_bytes_is_given_up() {
    let (mut peer, mut raw) = pair(Duration::from_millis(200));
    let dripping = thread::spawn(move || {
        // Ends when the other side closes; far more bytes than the limit leaves time for.
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
fn a_peer_that_goes_away_is_noticed() {
    let (mut peer, raw) = pair(LONG);
    assert!(!peer.has_news());
    drop(raw);
    let failure = peer.await_ready().unwrap_err();
    assert!(peer.has_news());
    assert_eq!(failure.status(), 3);
    assert!(failure.to_string().contains("closed"), "{failure}");
}

#[test]
fn a_reason_for_giving_up_arrives() {
    let (mut one, mut two) = both();
    two.abort("no device");
    drop(two);
    let failure = one.agree(&options("2")).unwrap_err();
    assert!(
        failure.to_string().contains("gave up: no device"),
        "{failure}"
    );
}

#[test]
fn another_version_is_refused_as_such() {
    let (mut peer, mut raw) = pair(LONG);
    raw.write_all(b"DATB\x00\x63\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00")
        .unwrap();
    let failure = peer.agree(&options("2")).unwrap_err();
    assert_eq!(failure.status(), 2);
    assert!(failure.to_string().contains("version 99"), "{failure}");
}

#[test]
fn a_message_out_of_turn_is_refused() {
    let (mut one, mut two) = both();
    two.done(3).unwrap();
    let failure = one.await_ready().unwrap_err();
    assert!(
        failure.to_string().contains("'done' where 'ready'"),
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
    fn garbage_is_an_error_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut peer, mut raw) = pair(LONG);
        raw.write_all(&bytes).unwrap();
        drop(raw);
        prop_assert_eq!(peer.agree(&options("2")).unwrap_err().status(), 3);
    }

    #[test]
    fn garbage_after_our_magic_is_an_error_and_no_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut peer, mut raw) = pair(LONG);
        raw.write_all(b"DATB\x00\x01").unwrap();
        raw.write_all(&bytes).unwrap();
        drop(raw);
        prop_assert_eq!(peer.agree(&options("2")).unwrap_err().status(), 3);
    }
}
