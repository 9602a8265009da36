use std::net::TcpListener;
use std::thread;

use proptest::prelude::*;

use super::*;

fn test(is_client: bool) -> Test {
    Test {
        verb: Verb::Send,
        is_ping_pong: true,
        is_client,
        with_gid: false,
        exposed: 64,
        size: 2,
        messages: 100,
    }
}

/// One side, and the raw socket at its other end.
fn side(test: Test, timeout: Duration) -> (Perftest, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let raw = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = listener.accept().unwrap().0;
    (Perftest::new(stream, timeout, "peer", test), raw)
}

const LONG: Duration = Duration::from_secs(20);

fn address(ethernet: bool) -> Address {
    Address {
        qpn: 0x01_0203,
        psn: 0xff_ffff,
        lid: 7,
        gid_index: 3,
        mtu: 5,
        ethernet,
        gid: *b"0123456789abcdef",
        buffer: 0xffff_0000_0000,
        rkey: 0xdead_beef,
        length: 1 << 24,
    }
}

/// What perftest writes before its key.
const GREETING: &[u8] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\x403\0";

#[test]
fn a_key_is_perftest_s_text_and_decodes_to_what_was_encoded() {
    let key = encode(&address(false), 0xffff_0000_0040, false);
    let said = "0007:0010:010203:ffffff:deadbeef:0000ffff00000040:00000000\0";
    assert_eq!(String::from_utf8_lossy(&key), said);
    let key = encode(&address(true), 0xffff_0000_0040, true);
    let gid = "30:31:32:33:34:35:36:37:38:39:61:62:63:64:65:66";
    let said = format!("0007:0010:010203:ffffff:deadbeef:0000ffff00000040:{gid}:00000000:\0");
    assert_eq!(String::from_utf8_lossy(&key), said);
    let read = decode(&key, true).unwrap();
    let expected = Address {
        buffer: 0xffff_0000_0040,
        ethernet: false,
        mtu: 0,
        gid_index: 0,
        length: 0,
        ..address(true)
    };
    assert_eq!(read, expected);
    assert!(decode(&key, false).is_none(), "a GID is too much");
}

#[test]
fn two_sides_have_the_addresses_of_each_other_and_the_smaller_mtu() {
    for ethernet in [false, true] {
        let (mut server, raw) = side(test(false), LONG);
        let small = Address {
            mtu: 3,
            ..address(ethernet)
        };
        let other = thread::spawn(move || {
            let mut client = Perftest::new(raw, LONG, "peer", test(true));
            let theirs = client.addresses(&small);
            client.barrier().and_then(|()| client.prepared()).unwrap();
            client.end(LONG).unwrap();
            theirs
        });
        let theirs = server.addresses(&address(ethernet)).unwrap();
        server.barrier().and_then(|()| server.prepared()).unwrap();
        assert_eq!(server.end(LONG).unwrap().messages, 100);
        assert_eq!((theirs.mtu, theirs.qpn), (3, 0x01_0203));
        // Both add and subtract the offset of what the other side accesses.
        assert_eq!(theirs.buffer, address(ethernet).buffer);
        assert_eq!(other.join().unwrap().unwrap().mtu, 3);
    }
}

#[test]
fn what_is_no_perftest_is_refused_by_its_kind() {
    let last = |greeting: &[u8]| [GREETING, greeting].concat();
    let key = encode(&address(true), 0, true);
    for (bytes, named) in [
        (
            b"DATB\0\x05\0\0\0\0\0\0\0\0\0\0".to_vec(),
            "leave out --peer perftest",
        ),
        (
            b"GET / HTTP/1.1\r\n".to_vec(),
            "something else than a version",
        ),
        (
            b"5.60\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
            "needs version 5.7",
        ),
        (
            b"NaN\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
            "needs version 5.7",
        ),
        (
            b"6.28\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
            "or later, except 6.28",
        ),
        (GREETING[..20].to_vec(), "closed the connection"),
        (
            [&GREETING[..16], &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 64]].concat(),
            "in turns; this side has 65536",
        ),
        (last(&[0; 59]), "perftest's format"),
        (last(&[b':'; 59]), "perftest's format"),
        (last(&key[..59]), "with -x on one side"),
        (last(b"00:"), "closed the connection"),
    ] {
        let (mut server, mut raw) = side(test(false), LONG);
        raw.write_all(&bytes).unwrap();
        raw.shutdown(std::net::Shutdown::Write).unwrap();
        let failure = server.addresses(&address(false)).unwrap_err();
        assert_eq!(failure.status(), 3);
        assert!(failure.to_string().contains(named), "{failure}: {named}");
    }
}

#[test]
fn a_silent_side_and_a_slow_one_time_out() {
    for bytes in [&b""[..], &GREETING[..3]] {
        let (mut server, mut raw) = side(test(false), Duration::from_millis(50));
        raw.write_all(bytes).unwrap();
        let failure = server.addresses(&address(false)).unwrap_err().to_string();
        let said = format!("sent {} of 16 expected bytes within 0.05 s", bytes.len());
        assert!(failure.contains(&said), "{failure}");
    }
}

#[test]
fn the_report_of_a_client_names_what_differs() {
    let report = |size: u64, messages: u64| {
        let (mut server, mut raw) = side(
            Test {
                verb: Verb::Write,
                is_ping_pong: false,
                ..test(false)
            },
            LONG,
        );
        server.keys.push(encode(&address(false), 0, false));
        let key = [b'0'; 59];
        let figures = [size, messages, 0, 0, 0].map(u64::to_be_bytes).concat();
        raw.write_all(&[&key[..], &figures, &key].concat()).unwrap();
        server.end(LONG).map_err(|failure| failure.to_string())
    };
    assert_eq!(report(2, 100).unwrap().messages, 100);
    assert!(report(4, 100).unwrap_err().contains("the same -s"));
    assert!(report(2, 99).unwrap_err().contains("exchanged 99 messages"));
}

proptest! {
    #[test]
    fn any_bytes_are_a_key_or_refused(bytes in proptest::collection::vec(any::<u8>(), 59..109), gid: bool) {
        let _ = decode(&bytes, gid);
    }

    #[test]
    fn a_changed_byte_of_a_key_is_a_number_in_range_or_refused(at in 0..108usize, byte: u8) {
        let mut key = encode(&address(true), 5, true);
        key[at] = byte;
        if let Some(read) = decode(&key, true) {
            prop_assert!(read.qpn.max(read.psn) <= 0xff_ffff);
        }
    }
}
