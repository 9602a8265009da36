//! The counters of a port: every one that can move is moved by its event, and no other.

use super::fixtures::*;
use crate::fabric::packet::{Operation, Packet, PacketFlags};
use crate::nic::counters::{Name, PORT, hardware, value};
use crate::spec::Link;
use crate::spec::*;

const FETCH_ADD: u8 = 0x12;
const AT: PortAddress = PortAddress { device: 0, port: 1 };
/// The ack timeout for the encoded value 14.
const TIMEOUT: u64 = 4096 << 14;
/// The RNR timer for the encoded value 12.
const RNR_TIME: u64 = 640_000;
/// Octets of the local route header, the base transport header and the invariant CRC.
const HEADERS: u64 = 8 + 12 + 4;

fn moved(peer: &Peer, names: &[Name]) -> Vec<(&'static str, u64)> {
    let row = peer.host.nic.counters().row(AT);
    let values = names.iter().map(|&name| (name.0, value(&row, name)));
    values.filter(|(_, value)| *value > 0).collect()
}

/// Checks which `hw_counters` have moved.
fn check(peer: &Peer, expected: &[(&'static str, u64)]) {
    assert_eq!(moved(peer, hardware(Link::Roce)), expected);
}

/// Drops the first packet that `is_lost` selects.
fn drop_one(pair: &mut Pair, is_lost: impl Fn(&Packet) -> bool + 'static) {
    let mut dropped = false;
    pair.wire.delivery_of = Box::new(move |packet| {
        if !dropped && is_lost(packet) {
            dropped = true;
            return Delivery::Drop;
        }
        Delivery::Deliver
    });
}

fn request(pair: &mut Pair, opcode: u8, length: u32) {
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, length)];
    pair.a.post(opcode, SIGNALLED, &segments);
}

fn post_receive(peer: &mut Peer, length: u32) {
    let receive = peer.data_segment(0, length);
    peer.qp.post_receive(&[receive]);
}

fn send(pair: &mut Pair, length: u32) {
    let data = pair.a.data_segment(0, length);
    pair.a.post(SEND, SIGNALLED, &[data]);
}

#[test]
fn packets_and_their_octets_are_counted_on_both_ports() {
    let mut pair = Pair::new();
    request(&mut pair, WRITE, 2499);
    pair.run_until_idle();
    // Three packets, of which the first names the target; the data is padded.
    let sent = (3 * HEADERS + 16 + 2500) / 4;
    let ack = (HEADERS + 4) / 4;
    let expected = |sent, sent_packets, received, received_packets| {
        [
            ("port_xmit_data", sent),
            ("port_rcv_data", received),
            ("port_xmit_packets", sent_packets),
            ("port_rcv_packets", received_packets),
            ("unicast_rcv_packets", received_packets),
            ("unicast_xmit_packets", sent_packets),
        ]
    };
    assert_eq!(moved(&pair.a, PORT), expected(sent, 3, ack, 1));
    assert_eq!(moved(&pair.b, PORT), expected(ack, 1, sent, 3));
    let words = |pair: &Pair| moved(&pair.a, PORT)[0].1;
    let before = words(&pair);
    request(&mut pair, READ, 8);
    pair.run_until_idle();
    assert_eq!((words(&pair) - before) * 4, HEADERS + 16);
}

#[test]
fn octets_include_the_headers_of_the_service_and_the_link() {
    let mut packet = crate::fabric::tests::packet(1, 2, 0, &[0; 42]);
    assert_eq!(packet.octets() as u64, HEADERS + 44);
    packet.header.service = Service::Ud;
    assert_eq!(packet.octets() as u64, HEADERS + 8 + 44);
    packet.header.source_lid = 0;
    packet.header.flags |= PacketFlags::GRH;
    for (kind, header) in [
        (network::IPV6, 48),
        (network::IPV4, 28),
        (network::ROCE_V1, 40),
    ] {
        packet.header.service_level = kind;
        let headers = HEADERS as usize - 8 + header;
        // A datagram has the network header in its payload.
        assert_eq!(packet.octets(), headers + 8 + 4);
        let mut connected = packet.clone();
        connected.header.service = Service::Rc;
        connected.header.flags -= PacketFlags::GRH;
        assert_eq!(connected.octets(), headers + 44);
    }
    packet.header.service = Service::Rc;
    packet.header.flags -= PacketFlags::GRH;
    packet.header.operation = Operation::AtomicRequest;
    packet.header.service_level = network::IPV4;
    assert_eq!(packet.octets(), 20 + 8 + 16 + 28 + 44);
}

#[test]
fn executed_requests_are_counted_by_kind() {
    let mut pair = Pair::with_attributes(QpAttr {
        access: ALL_ACCESS | Access::REMOTE_ATOMIC,
        ..attributes()
    });
    let access = ALL_ACCESS | Access::REMOTE_ATOMIC;
    let peer = &mut pair.b;
    peer.key = peer
        .host
        .register_buffer(&peer.memory, MEMORY_SIZE as u64, access);
    for _ in 0..3 {
        request(&mut pair, WRITE, 2500);
    }
    request(&mut pair, READ, 2500);
    request(&mut pair, READ, 1);
    let operands = vec![0; 16];
    let segments = [pair.b.raddr_segment(0), operands, pair.a.data_segment(0, 8)];
    pair.a.post(FETCH_ADD, SIGNALLED, &segments);
    pair.run_until_idle();
    let expected = [
        ("rx_write_requests", 3),
        ("rx_read_requests", 2),
        ("rx_atomic_requests", 1),
    ];
    check(&pair.b, &expected);
    check(&pair.a, &[]);
}

#[test]
fn a_send_without_a_receive_is_out_of_buffer_and_a_retry() {
    let mut pair = Pair::new();
    send(&mut pair, 8);
    pair.run_until_idle();
    check(&pair.b, &[("out_of_buffer", 1)]);
    check(&pair.a, &[("rnr_nak_retry_err", 1)]);
    post_receive(&mut pair.b, 8);
    pair.advance(RNR_TIME * 2, RNR_TIME / 2);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    check(&pair.a, &[("rnr_nak_retry_err", 1)]);
}

#[test]
fn an_rnr_nak_beyond_the_retries_is_an_error_and_no_retry() {
    let mut pair = Pair::with_attributes(QpAttr {
        rnr_retry: 0,
        ..attributes()
    });
    send(&mut pair, 8);
    pair.run_until_idle();
    check(&pair.a, &[("req_cqe_error", 1)]);
}

#[test]
fn a_lost_packet_makes_the_next_ones_out_of_sequence() {
    let mut pair = Pair::new();
    drop_one(&mut pair, |packet| {
        packet.header.operation == Operation::Write
    });
    request(&mut pair, WRITE, 2500);
    pair.run_until_idle();
    let expected = [("rx_write_requests", 1), ("out_of_sequence", 2)];
    check(&pair.b, &expected);
    check(&pair.a, &[("packet_seq_err", 1)]);
}

#[test]
fn a_lost_ack_is_a_timeout_and_then_a_duplicate() {
    let mut pair = Pair::new();
    drop_one(&mut pair, |packet| {
        packet.header.operation == Operation::Acknowledge
    });
    request(&mut pair, WRITE, 8);
    pair.advance(TIMEOUT * 2, TIMEOUT / 4);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    check(&pair.a, &[("local_ack_timeout_err", 1)]);
    let expected = [("rx_write_requests", 1), ("duplicate_request", 1)];
    check(&pair.b, &expected);
}

#[test]
fn a_timeout_beyond_the_retries_is_an_error_and_no_retry() {
    let mut pair = Pair::with_attributes(QpAttr {
        retry_count: 2,
        ..attributes()
    });
    pair.wire.delivery_of = Box::new(|_| Delivery::Drop);
    request(&mut pair, WRITE, 8);
    pair.advance(TIMEOUT * 5, TIMEOUT / 4);
    let expected = [("local_ack_timeout_err", 2), ("req_cqe_error", 1)];
    check(&pair.a, &expected);
}

#[test]
fn a_response_that_an_ack_overtakes_is_an_implied_nak() {
    let mut pair = Pair::new();
    drop_one(&mut pair, |packet| {
        packet.header.operation == Operation::ReadResponse
    });
    request(&mut pair, READ, 8);
    request(&mut pair, WRITE, 8);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0), (OK, 1)]);
    check(&pair.a, &[("implied_nak_seq_err", 1)]);
}

#[test]
fn a_receive_that_is_too_short_fails_both_sides() {
    let mut pair = Pair::new();
    post_receive(&mut pair.b, 7);
    post_receive(&mut pair.b, 7);
    send(&mut pair, 8);
    send(&mut pair, 8);
    pair.run_until_idle();
    let expected = [
        ("resp_local_length_error", 1),
        ("resp_cqe_error", 2),
        ("resp_cqe_flush_error", 1),
    ];
    // The second send arrives at a queue pair in error.
    check(&pair.b, &expected);
    let expected = [
        ("req_cqe_error", 2),
        ("req_remote_invalid_request", 1),
        ("req_cqe_flush_error", 1),
    ];
    check(&pair.a, &expected);
}

#[test]
fn a_refused_access_is_counted_on_both_sides() {
    for opcode in [WRITE, READ] {
        let mut pair = Pair::new();
        let target = raddr_segment(pair.b.memory.at(), pair.b.key ^ 0x10);
        let data = pair.a.data_segment(0, 8);
        pair.a.post(opcode, SIGNALLED, &[target, data]);
        pair.run_until_idle();
        check(&pair.b, &[("resp_remote_access_errors", 1)]);
        let expected = [("req_cqe_error", 1), ("req_remote_access_errors", 1)];
        check(&pair.a, &expected);
    }
}

#[test]
fn a_port_that_goes_down_discards_packets() {
    let mut pair = Pair::new();
    pair.a.host.nic.set_port(AT, false);
    request(&mut pair, WRITE, 2500);
    pair.run_until_idle();
    let expected = [("link_downed", 1), ("port_xmit_discards", 3)];
    assert_eq!(moved(&pair.a, PORT), expected);
    pair.a.host.nic.set_port(AT, true);
    pair.advance(TIMEOUT * 2, TIMEOUT / 4);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, 0)]);
    pair.b.host.nic.set_port(AT, false);
    let before = moved(&pair.b, PORT);
    request(&mut pair, WRITE, 8);
    pair.run_until_idle();
    assert_eq!(
        moved(&pair.b, PORT),
        before,
        "a port that is down counts nothing"
    );
}

#[test]
fn unreliable_messages_without_a_receive_are_out_of_buffer() {
    let end = |slot| peer(Host::new(slot), |spec| spec.service = Service::Uc);
    let mut pair = Pair::connect(end(1), end(2), attributes());
    send(&mut pair, 8);
    request(&mut pair, WRITE, 8);
    pair.run_until_idle();
    let expected = [("rx_write_requests", 1), ("out_of_buffer", 1)];
    check(&pair.b, &expected);
}
