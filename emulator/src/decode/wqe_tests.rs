use super::*;

fn control(opcode: u8, segments: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0x12, 0x34, opcode, 0x01, 0x00, 0x07, segments];
    bytes.extend([0, 0, 0, 0x8a, 1, 2, 3, 4]);
    bytes
}

fn data(length: u32, key: u32, address: u64) -> Vec<u8> {
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(key.to_be_bytes());
    bytes.extend(address.to_be_bytes());
    bytes
}

#[test]
fn the_control_segment_has_its_layout() {
    let bytes: [u8; 16] = control(0x0b, 3).try_into().unwrap();
    let parsed = Control::parse(&bytes);
    assert_eq!(
        (parsed.index, parsed.opcode, parsed.qpn),
        (0x1234, 0x0b, 0x01_0007)
    );
    assert_eq!(
        (parsed.segments, parsed.wqebbs(), parsed.immediate),
        (3, 1, [1, 2, 3, 4])
    );
    assert!(parsed.signalled() && parsed.solicited());
    assert_eq!(parsed.fence(), Fence::Reads);
}

#[test]
fn the_remote_address_of_a_write_precedes_its_data() {
    let mut wqe = control(0x08, 4);
    wqe.extend(0x1122_3344_5566_7788_u64.to_be_bytes());
    wqe.extend(0xaabb_ccdd_u32.to_be_bytes());
    wqe.extend([0; 4]);
    wqe.extend(data(100, 7, 0x1000));
    wqe.extend(data(0, 8, 0x2000));
    let (_, body) = parse_connected(&wqe).unwrap();
    assert_eq!(
        body.remote,
        RemoteAddress {
            address: 0x1122_3344_5566_7788,
            key: 0xaabb_ccdd
        }
    );
    let list: Vec<_> = body.data.map(Result::unwrap).collect();
    let pointer = |length, key, address| Data::Pointer {
        length,
        key,
        address,
    };
    assert_eq!(list, [pointer(100, 7, 0x1000), pointer(1 << 31, 8, 0x2000)]);
}

#[test]
fn the_address_vector_of_a_datagram_precedes_its_data() {
    let mut wqe = control(0x0a, 5);
    wqe.extend(0x8111_1111_u32.to_be_bytes());
    wqe.extend([0; 4]);
    wqe.extend(0x8001_0002_u32.to_be_bytes());
    wqe.extend([0x35, 0x81, 0, 7, 0, 0, 0, 0]);
    wqe.extend([2, 3, 4, 5, 6, 7, 0x20, 63]);
    wqe.extend((1 << 30 | 4 << 20 | 0xf_1234_u32).to_be_bytes());
    wqe.extend([0xab; 16]);
    wqe.extend(data(100, 7, 0x1000));
    let (_, body) = parse_datagram(&wqe).unwrap();
    let expected = AddressVector {
        qkey: 0x8111_1111,
        qpn: 0x1_0002,
        rate_and_level: 0x35,
        path_bits: 1,
        lid: 7,
        mac: [2, 3, 4, 5, 6, 7],
        traffic_class: 0x20,
        hop_limit: 63,
        has_grh: true,
        source_gid: 4,
        flow_label: 0xf_1234,
        gid: [0xab; 16],
    };
    assert_eq!((body.address, body.data.count()), (Some(expected), 1));
    // The short form ends after the LID.
    wqe[24] = 0;
    let (_, body) = parse_datagram(&wqe[..48]).unwrap();
    let address = body.address.unwrap();
    assert_eq!(
        (address.lid, address.has_grh, body.data.count()),
        (7, false, 1)
    );
    for len in [16, 31] {
        assert_eq!(
            parse_datagram(&wqe[..len]).unwrap_err(),
            Malformed::Truncated
        );
    }
    wqe[24] = 0x80;
    assert_eq!(
        parse_datagram(&wqe[..48]).unwrap_err(),
        Malformed::Truncated
    );
}

#[test]
fn inline_data_and_their_header_are_padded_together() {
    let mut wqe = control(0x0a, 4);
    wqe.extend((INLINE | 13).to_be_bytes());
    wqe.extend([0xee; 28]);
    wqe.extend(data(5, 9, 0x3000));
    let (_, body) = parse_connected(&wqe).unwrap();
    let list: Vec<_> = body.data.map(Result::unwrap).collect();
    assert_eq!(
        list[0],
        Data::Inline {
            offset: 20,
            length: 13
        }
    );
    assert_eq!(
        list[1],
        Data::Pointer {
            length: 5,
            key: 9,
            address: 0x3000
        }
    );
}

#[test]
fn malformed_bytes_are_reported() {
    assert_eq!(parse_connected(&[0; 8]).unwrap_err(), Malformed::Truncated);
    assert_eq!(
        parse_connected(&control(0x77, 1)).unwrap_err(),
        Malformed::Opcode(0x77)
    );
    assert_eq!(
        parse_connected(&control(0x10, 1)).unwrap_err(),
        Malformed::Truncated
    );
    let mut wqe = control(0x0a, 2);
    wqe.extend((INLINE | 13).to_be_bytes());
    wqe.extend([0; 12]);
    let (_, mut body) = parse_connected(&wqe).unwrap();
    assert_eq!(body.data.next(), Some(Err(Malformed::InlineTooLong(13))));
    assert_eq!(body.data.next(), None, "iteration ends after an error");
}

#[test]
fn a_receive_list_ends_at_its_terminator_or_with_the_wqe() {
    let mut wqe = data(64, 3, 0x10);
    wqe.extend(data(0, INVALID_LKEY, 0));
    wqe.extend(data(9, 9, 9));
    assert_eq!(ReceiveSegments::of_rq(&wqe, false).count(), 1);
    assert_eq!(ReceiveSegments::of_rq(&wqe, true).count(), 0);
    wqe[16..20].copy_from_slice(&7_u32.to_be_bytes());
    assert_eq!(ReceiveSegments::of_rq(&wqe, false).count(), 3);
    assert_eq!(ReceiveSegments::of_srq(&wqe).count(), 2);
}
