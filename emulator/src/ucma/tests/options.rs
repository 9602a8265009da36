//! Options, migration, notifications and events of the application.

use std::sync::Arc;

use libc::{EADDRNOTAVAIL, EINVAL, EISCONN, ENOENT, ENOSYS, EOPNOTSUPP};

use super::*;

fn set(channel: &Channel, id: u32, (level, name): (u32, u32), value: &[u8]) -> Result<()> {
    let command = SetOption {
        value: value.as_ptr() as u64,
        id,
        level,
        name,
        len: value.len() as u32,
    };
    channel.command(command::SET_OPTION, command.as_bytes(), 0)
}

const REUSE: (u32, u32) = (option::LEVEL_ID, option::ID_REUSEADDR);
const FAMILY_ONLY: (u32, u32) = (option::LEVEL_ID, option::ID_AFONLY);
const ACK_TIMEOUT: (u32, u32) = (option::LEVEL_ID, option::ID_ACK_TIMEOUT);
const TOS: (u32, u32) = (option::LEVEL_ID, option::ID_TOS);

#[test]
fn a_port_may_be_shared_until_one_id_listens() {
    let world = World::new(Link::Ib);
    let (one, two) = (world.open(1), world.open(2));
    let bind = |channel: &Channel| {
        let id = channel.create(TCP, UID).unwrap();
        set(channel, id, REUSE, &[1, 0, 0, 0]).unwrap();
        channel.bind(id, &at([0; 4], 7471)).unwrap();
        id
    };
    let (first, second) = (bind(&one), bind(&two));
    assert_eq!(one.listen(first, 1), Err(Errno(EADDRNOTAVAIL)));
    two.destroy(second).unwrap();
    one.listen(first, 1).unwrap();
    assert_eq!(set(&one, first, REUSE, &[1, 0, 0, 0]), Err(Errno(EINVAL)));
    assert_eq!(set(&one, first, REUSE, &[1]), Err(Errno(EINVAL)));
}

#[test]
fn ipv4_and_ipv6_share_a_port_if_both_are_limited_to_their_family() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    channel.listener(TCP, 7471);
    let mut v6 = Address::unspecified(Family::V6);
    v6.set_port(7471);
    let id = channel.create(TCP, UID).unwrap();
    assert_eq!(channel.bind(id, &v6), Err(Errno(EADDRNOTAVAIL)));
    set(&channel, id, FAMILY_ONLY, &[1, 0, 0, 0]).unwrap();
    channel.bind(id, &v6).unwrap();
    channel.listen(id, 1).unwrap();
    assert_eq!(set(&channel, id, FAMILY_ONLY, &[0; 4]), Err(Errno(EINVAL)));
}

#[test]
fn an_ack_timeout_reaches_the_queue_pair_and_the_path() {
    let mut world = World::new(Link::Roce);
    let (client, server) = (world.open(1), world.open(2));
    server.listener(TCP, 7471);
    let id = client.create(TCP, UID).unwrap();
    assert_eq!(set(&client, id, ACK_TIMEOUT, &[9, 9]), Err(Errno(EINVAL)));
    set(&client, id, ACK_TIMEOUT, &[9]).unwrap();
    set(&client, id, TOS, &[32]).unwrap();
    client.resolve(id, &at(HOST.octets(), 7471)).unwrap();
    client.resolve_route(id).unwrap();
    client.connect(id, parameters(1, b"")).unwrap();
    world.carry();
    let passive = server.expect(event::CONNECT_REQUEST, UID).id;
    server
        .accept(passive, PASSIVE_UID, parameters(2, b""))
        .unwrap();
    world.carry();
    let rtr = client.attributes(id, 2).unwrap();
    assert_eq!(rtr.ah_attr.traffic_class, 32);
    assert_eq!(client.attributes(id, 3).unwrap().timeout, 9);
    assert_ne!(server.attributes(passive, 3).unwrap().timeout, 9);
    let datagram = client.create(UDP, UID).unwrap();
    assert_eq!(
        set(&client, datagram, ACK_TIMEOUT, &[9]),
        Err(Errno(EINVAL))
    );
}

#[test]
fn a_path_that_the_application_sets_replaces_the_resolution() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    let id = channel.create(TCP, UID).unwrap();
    channel.resolve(id, &at(HOST.octets(), 1)).unwrap();
    channel.expect(event::ADDR_RESOLVED, UID);
    let port = crate::spec::PortAddress { device: 0, port: 1 };
    let path = Network::new(&Config::default(), Arc::default()).path(port, port);
    let mut data = PathData {
        flags: PATH_FLAGS,
        reserved: 0,
        record: super::super::query::encode_path(&path),
    };
    let option = (option::LEVEL_IB, option::IB_PATH);
    assert_eq!(
        set(&channel, id, option, &data.as_bytes()[1..]),
        Err(Errno(EINVAL))
    );
    data.flags = 1;
    assert_eq!(
        set(&channel, id, option, data.as_bytes()),
        Err(Errno(EINVAL))
    );
    data.flags = PATH_FLAGS;
    set(&channel, id, option, data.as_bytes()).unwrap();
    channel.expect(event::ROUTE_RESOLVED, UID);
    assert_eq!(channel.resolve_route(id), Err(Errno(EINVAL)));
}

#[test]
fn a_migrated_id_takes_its_events_along() {
    let world = World::new(Link::Ib);
    let old = world.open(1);
    let new = world.open(1);
    let old = Channel {
        file: old.file,
        fd: old.fd,
    };
    let id = old.create(TCP, UID).unwrap();
    old.resolve(id, &at(HOST.octets(), 1)).unwrap();
    old.expect(event::ADDR_RESOLVED, UID);
    old.resolve_route(id).unwrap();
    let Channel { file, fd } = old;
    let (file, fd_number) = (Arc::new(file), fd.as_raw_fd());
    let mut reported = 0u32;
    let mut migrate = |fd: i32| {
        let command = MigrateId {
            response: (&raw mut reported) as u64,
            id,
            fd,
        };
        let find = |asked: i32| (asked == fd_number).then(|| Arc::clone(&file));
        new.command_with(command::MIGRATE_ID, command.as_bytes(), 4, &find)
    };
    assert_eq!(migrate(-1), Err(Errno(ENOENT)));
    assert_eq!(migrate(0), Err(Errno(EINVAL)));
    migrate(fd_number).unwrap();
    assert_eq!(reported, 1);
    new.expect(event::ROUTE_RESOLVED, UID);
    assert_eq!(new.destroy(id), Ok(2));
}

#[test]
fn traffic_establishes_a_connection() {
    let mut world = World::new(Link::Ib);
    let (_client, server, passive) = request(&mut world);
    server
        .accept(passive, PASSIVE_UID, parameters(2, b""))
        .unwrap();
    let notify = |event| {
        let command = Listen {
            id: passive,
            backlog: event,
        };
        server.command(command::NOTIFY, command.as_bytes(), 0)
    };
    const COMM_EST: u32 = 4;
    assert_eq!(notify(COMM_EST + 1), Err(Errno(EINVAL)));
    notify(COMM_EST).unwrap();
    server.expect(event::ESTABLISHED, PASSIVE_UID);
    assert_eq!(notify(COMM_EST), Err(Errno(EISCONN)));
}

#[test]
fn an_application_can_queue_events_of_its_own() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    let id = channel.create(TCP, UID).unwrap();
    let mut command = WriteEvent {
        id,
        reserved: 0,
        event: event::USER,
        status: 3,
        argument: 0x1234_5678_9abc,
    };
    channel
        .command(command::WRITE_CM_EVENT, command.as_bytes(), 0)
        .unwrap();
    let got = channel.expect(event::USER, UID);
    assert_eq!(
        (got.status, &got.param[..8]),
        (3, command.argument.as_bytes())
    );
    command.event = event::ESTABLISHED;
    let refused = channel.command(command::WRITE_CM_EVENT, command.as_bytes(), 0);
    assert_eq!(refused, Err(Errno(EINVAL)));
}

#[test]
fn what_is_not_emulated_says_so() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    let id = channel.create(TCP, UID).unwrap();
    for number in [
        command::JOIN_IP_MCAST,
        command::JOIN_MCAST,
        command::LEAVE_MCAST,
        command::RESOLVE_IB_SERVICE,
    ] {
        assert_eq!(
            channel.command(number, &[0; 200], 8),
            Err(Errno(EOPNOTSUPP))
        );
    }
    assert_eq!(
        channel.command(command::GET_OPTION, &[0; 64], 8),
        Err(Errno(ENOSYS))
    );
    assert_eq!(set(&channel, id, (7, 7), &[0]), Err(Errno(ENOSYS)));
    let unknown: Result<AddrReply> = channel.addresses(id, 3);
    assert_eq!(unknown.err(), Some(Errno(ENOSYS)));
}
