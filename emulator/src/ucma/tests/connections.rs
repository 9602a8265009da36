//! Connections between two processes.

use super::*;
use crate::cm::{self, Body};

/// A peer still knows the numbers of a host that vanished without a word.
#[test]
fn a_later_process_in_a_slot_begins_with_another_number() {
    let datagrams = cm::tests::garbage::datagrams();
    let messages = datagrams.iter().filter_map(|it| cm::decode(it));
    let mut requests = messages.filter_map(|it| match it.body {
        Body::Req(req) => Some(*req),
        _ => None,
    });
    let request = requests.next().unwrap();
    let [first, later] = [5, 6].map(|seed| {
        let access = Access {
            slot: 1,
            shared: Arc::default(),
        };
        let mut process = process(&Config::default(), access, Duration::ZERO, seed);
        process.cm.connect(None, request.clone())
    });
    assert_ne!(first, later);
    assert_eq!((first.slot(), later.slot()), (1, 1));
}

#[test]
fn a_connection_is_established_and_ended_with_the_kernels_events() {
    for link in [Link::Ib, Link::Roce] {
        let mut world = World::new(link);
        let (client, server) = (world.open(1), world.open(2));
        server.listener(TCP, 7471);
        let active = client.routed(TCP, 7471);
        client
            .connect(active, parameters(0x10005, b"hello"))
            .unwrap();
        world.carry();
        assert!(server.is_readable() && !client.is_readable());
        let request = server.expect(event::CONNECT_REQUEST, UID);
        let passive = request.id;
        let param = connection_of(&request);
        // All of the 92 bytes of a REQ that the addresses leave.
        assert_eq!(param.private_data_len, 56);
        assert_eq!(param.private_data[..6], *b"hello\0");
        assert_eq!((param.responder_resources, param.initiator_depth), (4, 3));
        assert_eq!((param.retry_count, param.rnr_retry_count), (7, 6));
        assert_eq!((request.ece.vendor_id, request.ece.attr_mod), (5, 6));
        // librdmacm moves the queue pair before it accepts.
        let theirs = server.attributes(passive, 2).unwrap();
        server
            .accept(passive, PASSIVE_UID, parameters(0x20007, b"welcome"))
            .unwrap();
        world.carry();
        let response = client.expect(event::CONNECT_RESPONSE, UID);
        let param = connection_of(&response);
        assert_eq!(param.private_data_len, 196);
        assert_eq!(param.private_data[..8], *b"welcome\0");
        assert_eq!(param.qp_num, 0x20007);
        let ours = client.attributes(active, 2).unwrap();
        assert_eq!((ours.dest_qp_num, theirs.dest_qp_num), (0x20007, 0x10005));
        client.accept(active, 0, ConnParam::new_zeroed()).unwrap();
        world.carry();
        server.expect(event::ESTABLISHED, PASSIVE_UID);
        let rts = [client.attributes(active, 3), server.attributes(passive, 3)];
        let [ours_rts, theirs_rts] = rts.map(Result::unwrap);
        assert_eq!(ours_rts.sq_psn, theirs.rq_psn);
        assert_eq!(theirs_rts.sq_psn, ours.rq_psn);
        let is_global = u8::from(link == Link::Roce);
        assert_eq!(ours.ah_attr.is_global, is_global);
        assert_eq!(ours.ah_attr.dlid != 0, link == Link::Ib);
        // RoCE v2 of the IPv4 address.
        assert_eq!(ours.ah_attr.sgid_index, 3 * is_global);

        client.disconnect(active).unwrap();
        world.carry();
        server.expect(event::DISCONNECTED, PASSIVE_UID);
        server.disconnect(passive).unwrap();
        world.carry();
        client.expect(event::DISCONNECTED, UID);
        world.advance(5 * SECOND);
        client.expect(event::TIMEWAIT_EXIT, UID);
        server.expect(event::TIMEWAIT_EXIT, PASSIVE_UID);
        assert_eq!(client.destroy(active), Ok(5));
        // ESTABLISHED, DISCONNECTED and TIMEWAIT_EXIT: the request was an event
        // of the listener.
        assert_eq!(server.destroy(passive), Ok(3));
        assert!(!client.is_readable() && !server.is_readable());
    }
}

#[test]
fn an_accept_that_is_refused_rejects_the_request_and_has_its_own_reason() {
    let mut world = World::new(Link::Ib);
    let (client, server) = (world.open(1), world.open(2));
    server.listener(TCP, 7471);
    let active = client.routed(TCP, 7471);
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    let request = server.expect(event::CONNECT_REQUEST, UID);
    let accept = server.accept(request.id, PASSIVE_UID, parameters(2, &[1; 197]));
    let reason = crate::refusal::reason(accept.unwrap_err());
    assert!(
        reason.starts_with("the private data are longer"),
        "{reason}"
    );
    world.carry();
    client.expect(event::REJECTED, UID);
}

#[test]
fn a_refusal_carries_private_data() {
    let mut world = World::new(Link::Ib);
    let (client, server, passive) = request(&mut world);
    assert_eq!(server.reject(passive, &[1; 149]), Err(Errno(libc::EINVAL)));
    server.reject(passive, b"no").unwrap();
    world.carry();
    let refusal = client.expect(event::REJECTED, UID);
    let param = connection_of(&refusal);
    assert_eq!((refusal.status, param.private_data_len), (28, 148));
    assert_eq!(param.private_data[..3], *b"no\0");
    assert_eq!(server.destroy(passive), Ok(0));
}

#[test]
fn without_a_listener_the_request_is_rejected_with_the_kernels_reason() {
    let mut world = World::new(Link::Ib);
    let client = world.open(1);
    let active = client.routed(TCP, 7471);
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    assert_eq!(client.expect(event::REJECTED, UID).status, 8);
}

#[test]
fn a_process_can_connect_to_itself() {
    let mut world = World::new(Link::Roce);
    let channel = world.open(1);
    channel.listener(TCP, 7471);
    let active = channel.create(TCP, UID + 1).unwrap();
    channel.resolve(active, &at([127, 0, 0, 1], 7471)).unwrap();
    channel.expect(event::ADDR_RESOLVED, UID + 1);
    channel.resolve_route(active).unwrap();
    channel.expect(event::ROUTE_RESOLVED, UID + 1);
    channel.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    let passive = channel.expect(event::CONNECT_REQUEST, UID).id;
    channel
        .accept(passive, PASSIVE_UID, parameters(2, b""))
        .unwrap();
    world.carry();
    channel.expect(event::CONNECT_RESPONSE, UID + 1);
}

#[test]
fn a_listener_on_a_loopback_address_gets_the_requests_to_all_addresses() {
    let mut world = World::new(Link::Ib);
    let (client, server) = (world.open(1), world.open(2));
    let listener = server.create(TCP, UID).unwrap();
    server.bind(listener, &at([127, 0, 0, 1], 7471)).unwrap();
    server.listen(listener, 4).unwrap();
    for ip in [HOST.octets(), [127, 0, 0, 1]] {
        let active = client.create(TCP, UID).unwrap();
        client.resolve(active, &at(ip, 7471)).unwrap();
        client.expect(event::ADDR_RESOLVED, UID);
        client.resolve_route(active).unwrap();
        client.expect(event::ROUTE_RESOLVED, UID);
        client.connect(active, parameters(1, b"")).unwrap();
        world.carry();
        server.expect(event::CONNECT_REQUEST, UID);
    }
}

#[test]
fn the_backlog_limits_waiting_requests_and_later_ones_are_repeated() {
    let mut world = World::new(Link::Ib);
    let (client, server) = (world.open(1), world.open(2));
    let listener = server.create(TCP, UID).unwrap();
    server.bind(listener, &at([0; 4], 7471)).unwrap();
    server.listen(listener, 2).unwrap();
    for _ in 0..3 {
        let active = client.routed(TCP, 7471);
        client.connect(active, parameters(1, b"")).unwrap();
    }
    world.carry();
    server.expect(event::CONNECT_REQUEST, UID);
    server.expect(event::CONNECT_REQUEST, UID);
    assert!(!server.is_readable());
    world.advance(6 * SECOND);
    server.expect(event::CONNECT_REQUEST, UID);
}

#[test]
fn a_killed_peer_disconnects_and_its_port_is_free() {
    let mut world = World::new(Link::Ib);
    let ends = establish(&mut world);
    world.kill(2);
    world.advance(SECOND);
    let (client, active) = ends.active;
    client.expect(event::DISCONNECTED, UID);
    client.disconnect(active).unwrap();
    world.advance(5 * SECOND);
    client.expect(event::TIMEWAIT_EXIT, UID);
}

#[test]
fn the_last_message_of_a_process_arrives_after_its_death() {
    let mut world = World::new(Link::Ib);
    let (client, server, passive) = request(&mut world);
    server.reject(passive, b"full").unwrap();
    world.processes[1].work(world.now, &mut Vec::new(), &mut world.wire);
    world.kill(2);
    world.advance(SECOND);
    let refusal = connection_of(&client.expect(event::REJECTED, UID));
    assert_eq!(refusal.private_data[..4], *b"full");
    assert!(!client.is_readable(), "the death is no second event");
}

#[test]
fn closing_a_file_ends_its_connections() {
    let mut world = World::new(Link::Ib);
    let ends = establish(&mut world);
    drop(ends.active);
    world.carry();
    let (server, passive) = ends.passive;
    server.expect(event::DISCONNECTED, PASSIVE_UID);
    assert_eq!(server.destroy(passive), Ok(2));
    assert_eq!(server.destroy(ends.listener), Ok(1));
}

#[test]
fn destroying_a_listener_refuses_the_requests_that_wait() {
    let mut world = World::new(Link::Ib);
    let (client, server) = (world.open(1), world.open(2));
    let listener = server.listener(TCP, 7471);
    let active = client.routed(TCP, 7471);
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    assert!(server.is_readable());
    assert_eq!(server.destroy(listener), Ok(0));
    assert!(!server.is_readable());
    world.carry();
    assert_eq!(client.expect(event::REJECTED, UID).status, 28);
    // The port is free again, also for the other process.
    client.listener(TCP, 7471);
}

#[test]
fn a_listener_that_dies_meanwhile_is_no_listener() {
    let mut world = World::new(Link::Ib);
    let (client, server) = (world.open(1), world.open(2));
    server.listener(TCP, 7471);
    let active = client.routed(TCP, 7471);
    world.wire.lose = 1;
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    world.kill(2);
    world.advance(SECOND);
    assert_eq!(client.expect(event::REJECTED, UID).status, 8);
}

#[test]
fn a_peer_that_never_answers_is_unreachable() {
    let mut world = World::new(Link::Ib);
    let (client, server) = (world.open(1), world.open(2));
    server.listener(TCP, 7471);
    let active = client.routed(TCP, 7471);
    world.wire.lose = usize::MAX;
    client.connect(active, parameters(1, b"")).unwrap();
    world.advance(70 * SECOND);
    assert!(!client.is_readable());
    world.advance(20 * SECOND);
    let event = client.expect(event::UNREACHABLE, UID);
    assert_eq!(event.status.cast_signed(), -libc::ETIMEDOUT);
}

#[test]
fn a_datagram_service_answers_with_its_queue_pair() {
    for link in [Link::Ib, Link::Roce] {
        let mut world = World::new(link);
        let (client, server) = (world.open(1), world.open(2));
        server.listener(UDP, 7174);
        let asking = client.routed(UDP, 7174);
        let init = client.attributes(asking, 1).unwrap();
        assert_eq!(
            (init.qkey, init.qp_attr_mask),
            (UDP_QKEY, 1 | 0x10 | 0x20 | 0x40)
        );
        client
            .connect(asking, parameters(0x10005, b"where?"))
            .unwrap();
        world.carry();
        let request = server.expect(event::CONNECT_REQUEST, UID);
        let param = datagram_of(&request);
        assert_eq!(
            (param.private_data_len, &param.private_data[..7]),
            (180, &b"where?\0"[..])
        );
        server
            .accept(request.id, PASSIVE_UID, parameters(0x20007, b"here"))
            .unwrap();
        world.carry();
        assert!(!server.is_readable(), "an answer is no connection");
        let answer = datagram_of(&client.expect(event::ESTABLISHED, UID));
        assert_eq!((answer.qp_num, answer.qkey), (0x20007, UDP_QKEY));
        assert_eq!(
            (answer.private_data_len, &answer.private_data[..5]),
            (136, &b"here\0"[..])
        );
        assert_eq!(answer.ah_attr.port_num, 1);
        let refused = client.routed(UDP, 7174);
        client.connect(refused, parameters(0x10005, b"")).unwrap();
        world.carry();
        let request = server.expect(event::CONNECT_REQUEST, UID);
        server.reject(request.id, b"no").unwrap();
        world.carry();
        assert_eq!(client.expect(event::UNREACHABLE, UID).status, 2);
        let nowhere = client.routed(UDP, 7175);
        client.connect(nowhere, parameters(0x10005, b"")).unwrap();
        world.carry();
        assert_eq!(client.expect(event::UNREACHABLE, UID).status, 1);
    }
}

#[test]
fn a_removed_device_ends_its_ids() {
    let mut world = World::new(Link::Ib);
    let ends = establish(&mut world);
    world.processes[0].device_failed(0);
    let (client, active) = ends.active;
    client.expect(event::DEVICE_REMOVAL, UID);
    assert_eq!(client.disconnect(active), Err(Errno(libc::ENXIO)));
    assert_eq!(client.destroy(active), Ok(4));
    world.carry();
    ends.passive.0.expect(event::DISCONNECTED, PASSIVE_UID);
}

#[test]
fn a_process_that_exits_disconnects_and_does_not_end_waits() {
    let mut world = World::new(Link::Ib);
    let ends = establish(&mut world);
    world.processes[0].stop();
    world.carry();
    ends.passive.0.expect(event::DISCONNECTED, PASSIVE_UID);
    // A thread that waits sleeps on: the file is not at its end.
    let again = ends.active.0.get_event();
    assert_eq!(again.err(), Some(Errno(libc::EAGAIN)));
}

/// The rejection is written after the other side has taken the packets of a round, and before it
/// checks whether the process is alive.
#[test]
fn the_last_message_of_a_process_counts_before_its_end() {
    let mut world = World::new(Link::Ib);
    let (client, server) = (world.open(1), world.open(2));
    server.listener(TCP, 7471);
    let active = client.routed(TCP, 7471);
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    let request = server.expect(event::CONNECT_REQUEST, UID);
    server.reject(request.id, b"no").unwrap();
    world.processes[1].work(world.now, &mut Vec::new(), &mut world.wire);
    world.kill(2);
    let late = world.wire.queues.remove(&1);
    world.now += SECOND;
    world.processes[0].work(world.now, &mut Vec::new(), &mut world.wire);
    world.wire.queues.extend(late.map(|late| (1, late)));
    world.carry();
    let rejected = client.expect(event::REJECTED, UID);
    assert_eq!(rejected.status, 28);
    assert_eq!(connection_of(&rejected).private_data[..2], *b"no");
}

#[test]
fn in_stepped_mode_a_process_connects_to_itself_without_packets() {
    let world = World::with(Link::Ib, true, Duration::ZERO);
    let channel = world.open(1);
    let listener = channel.listener(TCP, 7471);
    let active = channel.routed(TCP, 7471);
    channel.connect(active, parameters(1, b"")).unwrap();
    let passive = channel.expect(event::CONNECT_REQUEST, UID).id;
    channel
        .accept(passive, PASSIVE_UID, parameters(2, b""))
        .unwrap();
    channel.expect(event::CONNECT_RESPONSE, UID);
    channel.accept(active, 0, ConnParam::new_zeroed()).unwrap();
    channel.expect(event::ESTABLISHED, PASSIVE_UID);
    channel.disconnect(active).unwrap();
    channel.expect(event::DISCONNECTED, PASSIVE_UID);
    assert_eq!(channel.destroy(passive), Ok(2));
    channel.expect(event::DISCONNECTED, UID);
    assert_eq!(channel.destroy(listener), Ok(1));
}
