//! Tests with known bytes and texts, and with garbage.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    bytes_of_hex(text).expect("hex in a test")
}

#[test]
fn hex_is_read_in_every_common_grouping() {
    let expected = [0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11];
    for text in [
        "0a0b0c0d0e0f1011",
        "0a0b0c0d 0e0f1011",
        "0A:0B:0C:0D:0E:0F:10:11",
        "0x0a0b0c0d, 0x0e0f1011",
        "0a 0b 0c 0d\n0e 0f 10 11\n",
        "[0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11]",
    ] {
        assert_eq!(bytes_of_hex(text).as_deref(), Ok(&expected[..]), "{text}");
    }
}

#[test]
fn text_that_is_not_hex_is_refused_with_a_reason() {
    assert_eq!(bytes_of_hex("0a0g"), Err(HexError::Digit('g')));
    assert_eq!(bytes_of_hex("0a0"), Err(HexError::Odd("0a0".into())));
    assert_eq!(bytes_of_hex("0x"), Err(HexError::Odd("0x".into())));
    assert_eq!(bytes_of_hex(" : "), Err(HexError::Empty));
    let message = bytes_of_argument("no-such-file".as_ref())
        .expect_err("neither")
        .to_string();
    assert!(message.contains("neither a file nor hex"), "{message}");
}

#[test]
fn a_file_may_contain_bytes_or_hex() {
    let path = std::env::temp_dir().join(format!("mlx5-text-{}", std::process::id()));
    let argument = path.as_os_str();
    std::fs::write(&path, [0xff, 0x00, 0x80]).expect("writable");
    assert_eq!(
        bytes_of_argument(argument).expect("bytes"),
        [0xff, 0x00, 0x80]
    );
    std::fs::write(&path, "ff 00 80\n").expect("writable");
    assert_eq!(
        bytes_of_argument(argument).expect("hex"),
        [0xff, 0x00, 0x80]
    );
    std::fs::remove_file(&path).expect("removable");
}

#[test]
fn a_send_with_inline_data() {
    let bytes = hex("0000110b 01234502 0000008a 01020304  80000005 68656c6c 6f000000 00000000");
    assert_eq!(
        send_wqe(&bytes).expect("a WQE"),
        "  ctrl    SEND_IMM (opcode 0x0b), index 17, QPN 0x012345, 2 units, signalled, solicited, \
         fence, immediate 0x01020304\n  inline  5 bytes: 68 65 6c 6c 6f |hello|\n"
    );
}

#[test]
fn a_write_with_two_data_segments() {
    let bytes = hex(
        "00ffff08 00004104 00000000 00000000  00007f00 12345000 00001234 00000000
                     00001000 00005678 00000000 deadbe00  00000000 00005678 00000000 deadbe00",
    );
    assert_eq!(
        send_wqe(&bytes).expect("a WQE"),
        "  ctrl    RDMA_WRITE (opcode 0x08), index 65535, QPN 0x000041, 4 units, CQE on error only\n  \
         raddr   address 0x00007f0012345000, rkey 0x00001234\n  \
         data    address 0x00000000deadbe00, lkey 0x00005678, 4096 bytes\n  \
         data    address 0x00000000deadbe00, lkey 0x00005678, 2147483648 bytes\n"
    );
}

#[test]
fn a_datagram_with_its_address_vector() {
    let bytes = hex(
        "0000000a 00004105 00000008 00000000  11111111 00000000 80010002 05000001
                     00000000 02112233 44550740 4010abcd fe800000 00000000 00000000 00000007
                     00000008 00005678 00000000 deadbe00",
    );
    assert_eq!(
        datagram_wqe(&bytes).expect("a WQE"),
        "  ctrl    SEND (opcode 0x0a), index 0, QPN 0x000041, 5 units, signalled\n  \
         av      QPN 0x010002, Q_Key 0x11111111, LID 0x0001, rate and SL 0x05, \
         GRH, GID fe80::7, source GID 1, flow 0x0abcd, class 0x07, 64 hops, \
         MAC 02:11:22:33:44:55\n  \
         data    address 0x00000000deadbe00, lkey 0x00005678, 8 bytes\n"
    );
    let short = datagram_wqe(&hex("0000000a 00004101 00000008 00000000"));
    assert!(
        short
            .expect("a WQE, if a bad one")
            .contains("missing: 16 or 48 bytes")
    );
}

#[test]
fn a_ring_is_decoded_wqe_by_wqe() {
    let mut ring = vec![0; 256];
    ring[..16].copy_from_slice(&hex("0000000a 00004101 00000008 00000000"));
    ring[128..144].copy_from_slice(&hex("00000200 00004101 00000008 00000000"));
    let text = send_wqes(&ring, Form::Connected).expect("two WQEs");
    assert_eq!(text.matches("ctrl").count(), 2, "{text}");
    assert!(text.contains("NOP (opcode 0x00), index 2"), "{text}");
}

#[test]
fn receive_wqes() {
    let segment = "00000040 00000007 00000000 00001000";
    let end = "00000000 00000100 00000000 00000000";
    let text = receive_wqe(&hex(&format!("{segment}{end}"))).expect("a WQE");
    assert_eq!(
        text,
        "  data    address 0x0000000000001000, lkey 0x00000007, 64 bytes\n  \
         end     no segments after this\n"
    );
    let shared = shared_receive_wqe(&hex(&format!(
        "00000009 00000000 00000000 00000000{segment}"
    )));
    assert!(
        shared
            .expect("a WQE")
            .starts_with("  next    WQE 9\n  data ")
    );
}

#[test]
fn successful_and_failed_completions() {
    let mut bytes = [0; 64];
    bytes[36..40].copy_from_slice(&[1, 2, 3, 4]);
    bytes[47] = 3;
    bytes[58] = 0x41;
    bytes[61] = 9;
    bytes[63] = 0x37;
    bytes[..3].copy_from_slice(b"abc");
    assert_eq!(
        cqe(&bytes).expect("a CQE"),
        "  RESP_SEND_IMM (opcode 0x3), QPN 0x004100, WQE counter 9, owner 1, solicited\n  \
         3 bytes, SRQ number or user index 0x000000, immediate 0x01020304\n  \
         data in the CQE: 61 62 63 |abc|\n"
    );
    bytes = [0; 64];
    (bytes[54], bytes[55], bytes[56], bytes[63]) = (0x88, 0x13, 0x08, 0xd0);
    let text = cqe(&bytes).expect("a CQE");
    assert!(
        text.contains("REMOTE_ACCESS_ERR (syndrome 0x13), vendor syndrome 0x88"),
        "{text}"
    );
    assert!(text.contains("of RDMA_WRITE"), "{text}");
}

#[test]
fn the_second_half_of_a_large_cqe_is_the_completion() {
    let mut bytes = [0; 128];
    bytes[..40].fill(b'x');
    bytes[64 + 47] = 40;
    bytes[127] = 0x28;
    let text = cqe(&bytes).expect("a CQE");
    assert!(
        text.contains("RESP_SEND") && text.contains("data in the CQE: 78 78"),
        "{text}"
    );
}

#[test]
fn a_dump_of_several_cqes_decodes_each() {
    let mut ring = [0; 256];
    for last in [63, 127, 191, 255] {
        ring[last] = 0x20;
    }
    let count = |size| {
        dump(Kind::Cqe(size), &ring)
            .expect("CQEs")
            .matches("RESP_SEND")
            .count()
    };
    assert_eq!((count(64), count(128)), (4, 2));
    let error = dump(Kind::Cqe(128), &ring[..64])
        .expect_err("half a CQE")
        .to_string();
    assert!(error.contains("128-byte CQE: 64 bytes given"), "{error}");
}

#[test]
fn doorbells_are_decoded_by_their_contents() {
    let send = doorbell(&hex("0000050a 00004104")).expect("a doorbell");
    assert!(
        send.contains("QPN 0x000041, last WQE SEND") && send.contains("index 5"),
        "{send}"
    );
    let arm = doorbell(&hex("31000007 00000003")).expect("an arm");
    assert_eq!(
        arm,
        "  arm     CQN 0x000003 for solicited completions, sequence 3, consumer index 7\n"
    );
    let mut copy = vec![0; 64];
    copy[..16].copy_from_slice(&hex("0000000a 00004101 00000008 00000000"));
    assert!(
        doorbell(&copy)
            .expect("a copy")
            .contains("BlueFlame copy of\n  ctrl    SEND ")
    );
}

#[test]
fn garbage_is_refused_with_a_reason() {
    let refused = |result: Result<String, TextError>| result.expect_err("garbage").to_string();
    assert!(refused(send_wqe(&[0xff; 64])).contains("opcode 0xff"));
    assert!(refused(send_wqe(&[0; 8])).contains("16 bytes, only 8 given"));
    assert!(refused(send_wqe(&[0; 64])).contains("counts 0 units"));
    assert!(refused(send_wqe(&hex("0000000a 00004104 00000008 00000000"))).contains("64 bytes"));
    assert!(refused(cqe(&[0; 63])).contains("64 or 128"));
    assert!(refused(cqe(&[0x70; 64])).contains("opcode 0x7"));
    assert!(refused(doorbell(&[0xff; 8])).contains("opcode 0xff"));
    assert!(refused(doorbell(&[0; 12])).contains("multiple of 64"));
    assert!(refused(receive_wqe(&[])).contains("multiple of 16"));
}

#[test]
fn missing_segments_are_reported_in_place() {
    let read_without_address = hex("00000010 00004101 00000008 00000000");
    let text = send_wqe(&read_without_address).expect("a WQE, if a bad one");
    assert!(
        text.contains("raddr   missing: 16 bytes expected, 0 left"),
        "{text}"
    );
    let long_inline =
        hex("0000000a 00004102 00000008 00000000 80000040 00000000 00000000 00000000");
    let text = send_wqe(&long_inline).expect("a WQE, if a bad one");
    assert!(
        text.contains("inline  missing: 64 bytes expected, 12 left"),
        "{text}"
    );
}

#[test]
fn no_bytes_cause_a_panic() {
    let mut seed = 0x1234_5678_u32;
    for _ in 0..20_000 {
        let mut bytes = [0; 192];
        for byte in &mut bytes {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (seed >> 24) as u8;
        }
        bytes[3] = [0x00, 0x08, 0x0a, 0x10, 0x11, 0x25][usize::from(bytes[3] % 6)];
        let len = usize::from(bytes[190]);
        let _ = send_wqes(&bytes[..len.min(192)], Form::Connected);
        let _ = send_wqes(&bytes[..len.min(192)], Form::Datagram);
        let _ = receive_wqe(&bytes[..len.min(192)]);
        let _ = shared_receive_wqe(&bytes[..len.min(192)]);
        let _ = cqe(&bytes[..64]);
        let _ = cqe(&bytes[..128]);
        let _ = doorbell(&bytes[..8]);
        let _ = doorbell(&bytes[..64]);
    }
}

#[test]
fn a_trace_has_a_title_per_event() {
    let (mut out, writer) = std::io::pipe().expect("a pipe");
    let mut trace = TraceWriter::new(Box::new(writer));
    trace.send_wqe(0x41, 5, false, &hex("0000050a 00004101 00000008 00000000"));
    trace.receive_wqe(0x41, 7, true, &hex("00000009 00000000 00000000 00000000"));
    trace.note("link down");
    trace.cqe(3, 1, &[0x70; 64]);
    drop(trace);
    let text = std::io::read_to_string(&mut out).expect("text");
    let titles: Vec<_> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(
        titles,
        [
            "send WQE 5 of QP 0x000041",
            "shared receive WQE 7 by QP 0x000041",
            "note: link down",
            "CQE 1 of CQ 0x000003",
        ]
    );
    assert!(text.contains("  next    WQE 9\n"), "{text}");
    assert!(
        text.contains("  not a CQE: opcode 0x7 in its last byte"),
        "{text}"
    );
}

#[test]
fn a_bind_and_an_invalidate_of_a_window() {
    let mut bind = hex("00000525 0000410c 00000008 00123400");
    bind.extend(hex("b0000000 00040000 00000000 203c6041"));
    bind.resize(64, 0);
    bind.extend(hex(
        "00003000 00004101 00000000 00000000 00007f00 00001000 00000000 00000100",
    ));
    bind.resize(128, 0);
    bind.extend(hex("00000100 00005678 00007f00 00001000"));
    bind.resize(192, 0);
    assert_eq!(
        send_wqe(&bind).expect("a WQE"),
        "  ctrl    UMR (opcode 0x25), index 5, QPN 0x000041, 12 units, signalled, mkey 0x00123400\n  \
         umr     flags 0xb0 (inline, must be free), 4 octowords of translations from 0, \
         mask 0x00000000203c6041 (changes state, key byte, QPN, address, length, local write, \
         remote read, remote write, atomics)\n  \
         mkey    QPN 0x000041, key byte 0x01, remote read, remote write, \
         address 0x00007f0000001000, 256 bytes\n  \
         klm     address 0x00007f0000001000, lkey 0x00005678, 256 bytes\n"
    );
    let mut invalidate = hex("00000825 00004108 00000028 00123401");
    invalidate.extend(hex("98000000 00000000 00000000 20006000"));
    invalidate.resize(64, 0);
    invalidate.extend(hex("40000000 ffffff00 dddddddd"));
    invalidate.resize(128, 0);
    assert_eq!(
        send_wqe(&invalidate).expect("a WQE"),
        "  ctrl    UMR (opcode 0x25), index 8, QPN 0x000041, 8 units, signalled, small fence, \
         mkey 0x00123401\n  \
         umr     flags 0x98 (inline, must be this QP's), 0 octowords of translations from 0, \
         mask 0x0000000020006000 (changes state, key byte, QPN)\n  \
         mkey    free, of no QP, key byte 0x00\n"
    );
}

#[test]
fn the_last_cqe_of_a_resized_ring() {
    let mut bytes = vec![0; 64];
    bytes[63] = 0x51;
    let text = cqe(&bytes).expect("a CQE");
    assert!(text.contains("RESIZE_CQ (opcode 0x5)"), "{text}");
    assert!(
        text.ends_with("  the CQ continues in another ring\n"),
        "{text}"
    );
}
