use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::network::{GRH, Global, Network, Route, UDP_PORT};
use crate::fabric::iba::{Malformed, decode, encode, icrc, transport};
use crate::fabric::packet::{Header, Operation, Packet, PacketFlags};
use crate::fabric::tests::packet;
use crate::spec::{PortAddress, Qpn, Service};

const V4: ([u8; 4], [u8; 4]) = ([192, 0, 2, 1], [192, 0, 2, 77]);

fn mapped(ip: [u8; 4]) -> [u8; 16] {
    crate::spec::gid::mapped(ip)
}

fn global(source: [u8; 16], destination: [u8; 16]) -> Global {
    Global {
        source,
        destination,
        traffic_class: 0x6a,
        flow_label: 0x1_2345,
        hop_limit: 64,
    }
}

fn ipv4() -> Network {
    let mut global = global(mapped(V4.0), mapped(V4.1));
    global.flow_label = 0;
    Network::RoceV2 {
        global,
        source_port: 0xc123,
    }
}

fn ipv6() -> Network {
    Network::RoceV2 {
        global: global([7; 16], [9; 16]),
        source_port: 0xffff,
    }
}

fn networks() -> [Network; 5] {
    let lids = |global| Network::InfiniBand {
        source: 0x17,
        destination: 0x1234,
        service_level: 5,
        global,
    };
    let here = global([1; 16], [2; 16]);
    [
        ipv4(),
        ipv6(),
        Network::RoceV1(here),
        lids(None),
        lids(Some(here)),
    ]
}

const FIRST: PacketFlags = PacketFlags::FIRST;
const LAST: PacketFlags = PacketFlags::LAST;

/// The services, operations and flags of all packets that the NIC makes.
pub(crate) fn kinds() -> Vec<(Service, Operation, PacketFlags)> {
    use Operation as O;
    let none = PacketFlags::empty();
    let both = FIRST | LAST;
    let mut kinds = vec![
        (Service::Rc, O::ReadRequest, both),
        (Service::Rc, O::AtomicRequest, both),
        (Service::Rc, O::Acknowledge, none),
        (Service::Rc, O::Notification, none),
        (Service::Rc, O::AtomicResponse, none),
        (Service::Rc, O::Send, LAST | PacketFlags::INVALIDATE),
        (Service::Rc, O::Send, both | PacketFlags::INVALIDATE),
        (Service::Ud, O::Send, both),
        (Service::Ud, O::Send, both | PacketFlags::IMMEDIATE),
        (Service::Ud, O::Management, both),
    ];
    for position in [none, FIRST, LAST, both] {
        kinds.push((Service::Rc, O::ReadResponse, position));
        for (service, operation) in [Service::Rc, Service::Uc]
            .into_iter()
            .flat_map(|service| [(service, O::Send), (service, O::Write)])
        {
            kinds.push((service, operation, position));
            if position.contains(LAST) {
                kinds.push((service, operation, position | PacketFlags::IMMEDIATE));
            }
        }
    }
    kinds
}

/// All headers that the NIC makes, with their fields as they arrive.
fn headers() -> impl Strategy<Value = Header> {
    use Operation as O;
    let both = FIRST | LAST;
    let number = || 0_u32..1 << 24;
    let words = any::<([u8; 4], u64, u32, u32, u8, [u64; 2])>();
    let bits = any::<[bool; 3]>();
    (
        select(kinds()),
        bits,
        [number(), number(), number(), number()],
        words,
    )
        .prop_map(
            move |((service, operation, mut flags), bits, numbers, words)| {
                let [source, destination, psn, msn] = numbers;
                let (immediate, remote_address, key, length, syndrome, atomic) = words;
                flags.set(PacketFlags::SOLICITED, bits[0]);
                flags.set(PacketFlags::ACK_REQUEST, bits[1]);
                let is_datagram = service == Service::Ud;
                let is_atomic = operation == O::AtomicRequest;
                let is_write = operation == O::Write && flags.contains(FIRST);
                let is_rdma = is_write || operation == O::ReadRequest;
                let is_end = flags.intersects(both);
                let acknowledges = match operation {
                    O::ReadResponse => is_end,
                    operation => operation.is_response(),
                };
                let valid = |is_there: bool, value: u32| if is_there { value } else { 0 };
                let has_immediate = PacketFlags::IMMEDIATE | PacketFlags::INVALIDATE;
                Header {
                    source_qpn: match operation {
                        O::Management => Qpn(1),
                        _ => Qpn(valid(is_datagram, source)),
                    },
                    destination_qpn: match operation {
                        O::Management => Qpn(1),
                        _ => Qpn(destination.max(2)),
                    },
                    service,
                    operation,
                    flags,
                    psn,
                    immediate: match flags.intersects(has_immediate) {
                        true => immediate,
                        false => [0; 4],
                    },
                    remote_address: if is_rdma || is_atomic {
                        remote_address
                    } else {
                        0
                    },
                    key: valid(is_datagram || is_rdma || is_atomic, key),
                    length: if is_atomic { 8 } else { valid(is_rdma, length) },
                    syndrome: valid(acknowledges, syndrome.into()) as u8,
                    msn: valid(acknowledges, msn),
                    atomic: match operation {
                        O::AtomicRequest => atomic,
                        O::AtomicResponse => [atomic[0], 0],
                        _ => [0; 2],
                    },
                    atomic_compare: is_atomic && bits[2],
                    source: PortAddress { device: 0, port: 0 },
                    destination: PortAddress { device: 0, port: 0 },
                    source_lid: 0,
                    service_level: 0,
                    route: Route::default(),
                }
            },
        )
}

fn packets() -> impl Strategy<Value = (Packet, Network)> {
    let parts = (
        headers(),
        select(networks().to_vec()),
        0..=4096_usize,
        any::<u8>(),
    );
    parts.prop_map(|(mut header, network, len, byte)| {
        let limit = match header.operation {
            Operation::Send | Operation::Write | Operation::ReadResponse => 4096,
            Operation::Management => 256,
            _ => 0,
        };
        let data = vec![byte; len.min(limit)];
        let mut payload = Vec::new();
        if header.service == Service::Ud && header.operation != Operation::Management {
            let transport = transport::len(&header) + data.len().next_multiple_of(4);
            let found = network.in_payload(transport + icrc::LEN);
            header.flags.set(PacketFlags::GRH, found.is_some());
            payload.extend(found.iter().flatten());
        }
        payload.extend(data);
        (Packet { header, payload }, network)
    })
}

fn encoded(packet: &Packet, network: &Network) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = vec![];
    encode(packet, network, &mut bytes);
    let headers = network.headers(0).bytes().len();
    let behind = bytes.split_off(headers);
    (bytes, behind)
}

proptest! {
    #[test]
    fn decode_inverts_encode_for_all_that_the_nic_makes((packet, network) in packets()) {
        let (_, bytes) = encoded(&packet, &network);
        prop_assert_eq!(bytes.len() % 4, 0);
        let mut payload = vec![1, 2, 3];
        let header = decode(&network, &bytes, &mut payload);
        prop_assert_eq!(header, Ok(packet.header));
        prop_assert_eq!(payload, packet.payload);
    }

    #[test]
    fn the_size_on_the_link_is_what_the_counters_count((mut packet, network) in packets()) {
        use crate::spec::network::{IPV4, IPV6, ROCE_V1};
        (packet.header.source_lid, packet.header.service_level) = match network {
            Network::InfiniBand { .. } => (1, 0),
            Network::RoceV1(_) => (0, ROCE_V1),
            Network::RoceV2 { .. } => (0, if network.is_ipv4() { IPV4 } else { IPV6 }),
        };
        let (before, behind) = encoded(&packet, &network);
        // Those of InfiniBand leave out the GRH of connections.
        let is_global = matches!(network, Network::InfiniBand { global: Some(_), .. });
        let is_connected = !packet.header.flags.contains(PacketFlags::GRH);
        let uncounted = if is_global && is_connected { GRH } else { 0 };
        prop_assert_eq!(packet.octets(), before.len() + behind.len() - uncounted);
    }

    #[test]
    fn a_damaged_packet_is_refused((packet, network) in packets(), at: Index, bit in 0..8_u8) {
        // An unknown identification makes the check weaker.
        let network = if network.is_ipv4() { ipv6() } else { network };
        let (_, mut bytes) = encoded(&packet, &network);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let mut payload = Vec::new();
        let found = decode(&network, &bytes, &mut payload);
        // Routers may change the fifth byte of the base transport header.
        let expected = if at == 4 { Ok(packet.header) } else { Err(Malformed::Icrc) };
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        network in select(networks().to_vec()),
        code in 0_u8..0x20, service in select(vec![0_u8, 0x20, 0x40, 0x60, 0x80]),
    ) {
        let mut payload = Vec::new();
        let _ = decode(&network, &bytes, &mut payload);
        // The same with a right checksum, and mostly with a known operation.
        if bytes.len() > 4 {
            (bytes[0], bytes[1]) = (service | code, bytes[1] & 0xf0);
            bytes[2..4].copy_from_slice(&[0xff; 2]);
        }
        bytes.extend(icrc::of(&network, &bytes));
        if let Ok(header) = decode(&network, &bytes, &mut payload) {
            let (_, again) = encoded(&Packet { header, payload }, &network);
            prop_assert_eq!(&again[5..again.len() - 4].len(), &bytes[5..bytes.len() - 4].len());
        }
    }

    #[test]
    fn an_unknown_identification_is_found((packet, _) in packets(), identification: u16) {
        let network = ipv4();
        let (mut headers, mut bytes) = encoded(&packet, &network);
        headers[4..6].copy_from_slice(&identification.to_be_bytes());
        let len = bytes.len() - icrc::LEN;
        let crc = reference(&headers, 0, &bytes[..len]);
        bytes[len..].copy_from_slice(&crc);
        prop_assert_eq!(icrc::identification(&network, &bytes), Some(identification));
        // Other networks have none.
        let other = ipv6();
        let mut bytes = encoded(&packet, &other).1;
        prop_assert_eq!(icrc::identification(&other, &bytes), Some(0));
        bytes[len] ^= 1;
        prop_assert_eq!(icrc::identification(&other, &bytes), None);
    }

    #[test]
    fn every_header_has_the_crc_of_the_specification((packet, network) in packets()) {
        let (headers, bytes) = encoded(&packet, &network);
        let lrh = if matches!(network, Network::InfiniBand { .. }) { 8 } else { 0 };
        let (transport, crc) = bytes.split_at(bytes.len() - icrc::LEN);
        prop_assert_eq!(reference(&headers, lrh, transport), crc);
    }
}

/// The invariant CRC once more, bit by bit, from the bytes on a link. `lrh` is the size of
/// the local route header among the network headers.
fn reference(headers: &[u8], lrh: usize, transport: &[u8]) -> [u8; 4] {
    let mut headers = headers.to_vec();
    if lrh == 0 {
        headers.splice(0..0, [0xff; 8]);
    } else if headers.len() == lrh {
        headers[0] |= 0xf0;
    } else {
        headers[..lrh].fill(0xff);
    }
    let mask: &[(usize, u8)] = match headers.get(8).map(|first| first >> 4) {
        Some(4) => &[
            (9, 0xff),
            (16, 0xff),
            (18, 0xff),
            (19, 0xff),
            (34, 0xff),
            (35, 0xff),
        ],
        Some(6) if headers[14] == 17 => &[
            (8, 15),
            (9, 255),
            (10, 255),
            (11, 255),
            (15, 255),
            (54, 255),
            (55, 255),
        ],
        Some(6) => &[(8, 15), (9, 255), (10, 255), (11, 255), (15, 255)],
        _ => &[],
    };
    for &(at, bits) in mask {
        headers[at] |= bits;
    }
    let mut transport = transport.to_vec();
    transport[4] = 0xff;
    let mut crc = u32::MAX;
    for byte in headers.into_iter().chain(transport) {
        for bit in 0..8 {
            let feedback = (crc ^ u32::from(byte >> bit)) & 1;
            crc = (crc >> 1) ^ (feedback * 0xedb8_8320);
        }
    }
    (!crc).to_le_bytes()
}

/// A network header of IPv4 with DF.
fn between(source: [u8; 4], destination: [u8; 4], source_port: u16) -> Network {
    Network::RoceV2 {
        global: Global {
            source: mapped(source),
            destination: mapped(destination),
            traffic_class: 0xc2,
            flow_label: 0,
            hop_limit: 64,
        },
        source_port,
    }
}

#[test]
fn packets_of_a_connectx_have_the_right_crc() {
    // A congestion notification of a ConnectX-4 Lx (from the tests of scapy).
    let network = between([10, 0, 17, 1], [10, 0, 18, 1], 0);
    let mut bytes = vec![0x81, 0, 0xff, 0xff, 0x40, 0, 1, 0x18];
    bytes.resize(28, 0);
    bytes.extend([0x82, 0xfd, 0x00, 0x2a]);
    assert_eq!(icrc::identification(&network, &bytes), Some(0x718c));
    let header = decode(&network, &bytes, &mut Vec::new()).unwrap();
    assert_eq!(header.operation, Operation::Notification);
    assert_eq!(header.destination_qpn, Qpn(0x118));
    let mut own = Vec::new();
    let payload = Vec::new();
    super::encode_behind(&Packet { header, payload }, &network, &mut own);
    assert_eq!(own[..28], bytes[..28]);
    bytes[27] ^= 1;
    assert_eq!(icrc::identification(&network, &bytes), None);
    // A SEND of an unreliable connection, likewise.
    let network = between([192, 168, 0, 7], [192, 168, 0, 7], 49152);
    let mut bytes = vec![0x24, 0x60, 0xff, 0xff, 0, 0, 0, 211, 0];
    bytes.extend(&13_571_856_u32.to_be_bytes()[1..]);
    bytes.extend(b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\x00\x00");
    bytes.extend(0x78f3_53f3_u32.to_be_bytes());
    assert_eq!(icrc::identification(&network, &bytes), Some(1144));
    let mut payload = Vec::new();
    let header = decode(&network, &bytes, &mut payload).unwrap();
    assert_eq!(
        (header.service, header.operation),
        (Service::Uc, Operation::Send)
    );
    assert_eq!((header.psn, header.destination_qpn), (13_571_856, Qpn(211)));
    assert_eq!(payload.len(), 18);
}

#[test]
fn the_example_of_the_specification_has_its_crc() {
    // IBA vol. 1, 7.8: a packet in a subnet, of an unreliable connection with pad count 2.
    let network = Network::InfiniBand {
        source: 0x17d2,
        destination: 0x375c,
        service_level: 1,
        global: None,
    };
    let bytes = [
        0x0a, 0x20, 0x24, 0x87, 0x00, 0x87, 0xb1, 0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a,
        0x1c, 0x01, 0x5d, 0x40, 0x02, 0x38, 0xf2, 0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88,
        0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00,
    ];
    let mut headers = network.headers(bytes.len() + icrc::LEN);
    assert_eq!(
        headers.bytes()[1..],
        [0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2]
    );
    headers.bytes_mut()[0] = 0x70;
    assert_eq!(icrc::of(&network, &bytes), [0x96, 0x25, 0xb7, 0x5a]);
}

#[test]
fn network_headers_have_the_layouts_of_their_specifications() {
    let (before, behind) = encoded(&packet(1, 2, 3, b"abcde"), &ipv4());
    let length = 20 + 8 + behind.len();
    assert_eq!(
        before[..10],
        [0x45, 0x6a, 0, length as u8, 0, 0, 0x40, 0, 64, 17]
    );
    assert_eq!(before[12..20], [V4.0, V4.1].concat());
    let udp = [0xc1, 0x23, 0x12, 0xb7, 0, length as u8 - 20, 0, 0];
    assert_eq!((&before[20..], UDP_PORT), (&udp[..], 4791));
    // Version and padding in one byte; the acknowledge bit is not set.
    assert_eq!(behind[..12], [4, 0x70, 0xff, 0xff, 0, 2, 0, 2, 0, 0, 0, 3]);
    assert_eq!(&behind[12..20], b"abcde\0\0\0");

    let (before, behind) = encoded(&packet(1, 2, 3, b"abcde"), &ipv6());
    assert_eq!(
        before[..8],
        [0x66, 0xa1, 0x23, 0x45, 0, 8 + behind.len() as u8, 17, 64]
    );
    assert_eq!(before[8..40], [[7; 16], [9; 16]].concat());

    let [.., ib, global] = networks();
    let (before, behind) = encoded(&packet(1, 2, 3, b"abcde"), &ib);
    let words = (8 + behind.len()) as u8 / 4;
    assert_eq!(before, [0, 0x52, 0x12, 0x34, 0, words, 0, 0x17]);
    let (before, _) = encoded(&packet(1, 2, 3, b"abcde"), &global);
    assert_eq!(before[..8], [0, 0x53, 0x12, 0x34, 0, words + 10, 0, 0x17]);
    assert_eq!(
        before[8..16],
        [0x66, 0xa1, 0x23, 0x45, 0, behind.len() as u8, 0x1b, 64]
    );
}

#[test]
fn each_cause_of_a_refusal_is_named() {
    let network = ipv4();
    let good = encoded(&packet(1, 2, 3, &[5; 12]), &network).1;
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good[..good.len() - icrc::LEN].to_vec();
        change(&mut bytes);
        bytes.extend(icrc::of(&network, &bytes));
        decode(&network, &bytes, &mut Vec::new()).unwrap_err()
    };
    assert_eq!(
        decode(&network, &[], &mut Vec::new()),
        Err(Malformed::Short)
    );
    assert_eq!(refused(&|bytes| bytes.truncate(11)), Malformed::Short);
    // An atomic without its operands.
    assert_eq!(refused(&|bytes| bytes[0] = 0x14), Malformed::Short);
    assert_eq!(refused(&|bytes| bytes[1] |= 1), Malformed::Version);
    assert_eq!(refused(&|bytes| bytes[2] = 0), Malformed::Partition);
    // XRC, and an operation that UC does not have.
    assert_eq!(refused(&|bytes| bytes[0] = 0xa4), Malformed::Opcode);
    assert_eq!(refused(&|bytes| bytes[0] = 0x2c), Malformed::Opcode);
    assert_eq!(refused(&|bytes| bytes.push(0)), Malformed::Padding);
    let short = |bytes: &mut Vec<u8>| {
        bytes.truncate(12);
        bytes[1] |= 0x30;
    };
    assert_eq!(refused(&short), Malformed::Padding);
    assert_eq!(
        refused(&|bytes| bytes.resize(12 + 4100, 0)),
        Malformed::Long
    );
    // An acknowledge with a payload.
    assert_eq!(refused(&|bytes| bytes[0] = 0x11), Malformed::Long);
    // A partition of which the sender is a limited member is the same.
    let mut bytes = good[..good.len() - icrc::LEN].to_vec();
    bytes[2] = 0x7f;
    bytes.extend(icrc::of(&network, &bytes));
    assert!(decode(&network, &bytes, &mut Vec::new()).is_ok());
}

#[test]
fn source_ports_spread_connections() {
    use crate::spec::Path;
    let of = |flow_label, own, peer| {
        let path = Path {
            flow_label,
            ..Path::default()
        };
        Route::of(&path, Qpn(own), Qpn(peer)).source_port
    };
    assert_eq!(of(0x1234, 7, 8), 0xd234);
    assert_eq!(of(0xf_c000, 7, 8), 0xc03f);
    assert_eq!(of(0, 0x1_0001, 0x2_0001), of(0, 0x2_0001, 0x1_0001));
    let ports: std::collections::BTreeSet<u16> =
        (1..65).map(|n| of(0, 0x1_0000 + n, 0x2_0007)).collect();
    assert_eq!(ports.len(), 64);
    assert!(ports.iter().all(|&port| port >= 0xc000));
}
