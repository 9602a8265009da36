//! Commands on ids: addresses, ports, events.

use std::sync::Arc;

use libc::{EACCES, EADDRNOTAVAIL, EAGAIN, EINVAL, ENETUNREACH, ENODEV, ENOENT, ENOSPC, ETIMEDOUT};

use super::*;

const IN_USE: Result<()> = Err(Errno(libc::EADDRINUSE));

#[test]
fn ids_have_the_lowest_free_numbers() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    let create = || channel.create(TCP, UID).unwrap();
    assert_eq!([create(), create(), create()], [0, 1, 2]);
    assert_eq!(channel.destroy(1), Ok(0));
    assert_eq!(channel.destroy(1), Err(Errno(ENOENT)));
    assert_eq!([create(), create()], [1, 3]);
    assert_eq!(channel.create(0x9999, UID), Err(Errno(EINVAL)));
    let other = world.open(1);
    assert_eq!(
        other.destroy(0),
        Err(Errno(EINVAL)),
        "an id of another file"
    );
}

#[test]
fn addresses_are_those_of_the_host() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    let bind = |to: &Address| {
        let id = channel.create(TCP, UID).unwrap();
        let done = channel.bind(id, to);
        let reply = channel.addresses(id, query::ADDR).unwrap();
        (done, reply)
    };
    let (done, reply) = bind(&at(HOST.octets(), 5000));
    assert_eq!((done, reply.port_num, reply.pkey), (Ok(()), 1, 0xffff));
    assert_eq!(reply.src_addr[..16], at(HOST.octets(), 5000).bytes());
    assert_eq!((reply.src_size, reply.dst_size), (16, 16));
    assert_ne!(reply.node_guid, [0; 8]);
    let (done, reply) = bind(&at([0; 4], 5001));
    assert_eq!((done, reply.port_num, reply.node_guid), (Ok(()), 0, [0; 8]));
    let (done, reply) = bind(&at(FOREIGN.octets(), 5002));
    assert_eq!((done, reply.src_size), (Err(Errno(EADDRNOTAVAIL)), 0));
    assert_eq!(bind(&at([0; 4], 1023)).0, Err(Errno(EACCES)));
    assert_eq!(bind(&at(HOST.octets(), 5000)).0, IN_USE);
    let mut link_local = Address::unspecified(Family::V6);
    if let Address::V6 { ip, .. } = &mut link_local {
        *ip = "fe80::1".parse().unwrap();
    }
    assert_eq!(
        bind(&link_local).0,
        Err(Errno(EINVAL)),
        "without an interface"
    );
    // A kernel gives it no device, before it connects.
    for (ip, port) in [([127, 0, 0, 1], 5004), ([127, 0, 0, 9], 5005)] {
        let (done, reply) = bind(&at(ip, port));
        assert_eq!((done, reply.port_num, reply.ibdev_index), (Ok(()), 1, 0));
        assert_ne!(reply.node_guid, [0; 8]);
    }
    // Every port of every device has an address of its own.
    let second = crate::fabric::name::DeviceIdentity::derive(&Config::default().fabric, 1);
    let ip = crate::spec::gid::ipv4_of_gid(&second.port(1).ip_gid()).unwrap();
    let (done, reply) = bind(&at(ip, 5003));
    assert_eq!(
        (done, reply.node_guid, reply.ibdev_index),
        (Ok(()), second.guid, 1)
    );
}

#[test]
fn librdmacms_probe_for_infiniband_addresses_succeeds() {
    let world = World::new(Link::Roce);
    let channel = world.open(1);
    let id = channel.create(0x13f, UID).unwrap();
    let any = Address::Ib {
        pkey: 0,
        flow: [0; 4],
        gid: [0; 16],
        sid: 0x0106_0000,
        mask: !0xffff,
        scope: 0,
    };
    channel.bind(id, &any).unwrap();
    let reply = channel.addresses(id, query::ADDR).unwrap();
    assert_eq!(reply.src_size, 48);
    let found = Address::parse(&reply.src_addr).unwrap();
    assert!((40_000..41_000).contains(&found.port()), "{found:?}");
    assert_eq!(channel.destroy(id), Ok(0));
}

#[test]
fn two_processes_cannot_listen_on_one_port() {
    let world = World::new(Link::Ib);
    let (one, two) = (world.open(1), world.open(2));
    let listener = one.listener(TCP, 7471);
    let other = two.create(TCP, UID).unwrap();
    assert_eq!(
        two.bind(other, &at([0; 4], 7471)),
        Err(Errno(EADDRNOTAVAIL))
    );
    assert_eq!(
        two.bind(other, &at(HOST.octets(), 7471)),
        Err(Errno(EADDRNOTAVAIL))
    );
    let udp = two.create(UDP, UID).unwrap();
    two.bind(udp, &at([0; 4], 7471)).unwrap();
    one.destroy(listener).unwrap();
    two.bind(other, &at([0; 4], 7471)).unwrap();
}

#[test]
fn an_address_of_another_host_times_out_and_one_without_a_route_fails() {
    let mut world = World::new(Link::Ib);
    let channel = world.open(1);
    let id = channel.create(TCP, UID).unwrap();
    let unrouted = at(UNROUTED.octets(), 1);
    assert_eq!(channel.resolve(id, &unrouted), Err(Errno(ENETUNREACH)));
    channel.resolve(id, &at(FOREIGN.octets(), 1)).unwrap();
    world.advance(SECOND);
    assert!(!channel.is_readable());
    world.advance(SECOND);
    let event = channel.expect(event::ADDR_ERROR, UID);
    assert_eq!(event.status.cast_signed(), -ETIMEDOUT);
    // The id can be used again.
    channel.resolve(id, &at(HOST.octets(), 1)).unwrap();
    channel.expect(event::ADDR_RESOLVED, UID);
    assert_eq!(
        channel.resolve(id, &at(HOST.octets(), 1)),
        Err(Errno(EINVAL))
    );
}

#[test]
fn a_route_has_the_gids_of_the_ports_in_all_answers() {
    for link in [Link::Ib, Link::Roce] {
        let world = World::new(link);
        let channel = world.open(1);
        let id = channel.routed(TCP, 7471);
        let gids = channel.addresses(id, query::GID).unwrap();
        let route: RouteReply = channel
            .ask(command::QUERY_ROUTE, |response| Query {
                response,
                id,
                option: 0,
            })
            .unwrap();
        let path = route.path[0];
        assert_eq!((route.num_paths, route.port_num), (1, 1));
        assert_eq!((path.sgid, path.dgid), (path.dgid, path.sgid), "one port");
        assert_eq!(gids.src_addr[8..24], path.sgid);
        assert_eq!(gids.dst_addr[8..24], path.dgid);
        #[derive(FromBytes, IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
        #[repr(C)]
        struct Paths {
            header: PathReply,
            // librdmacm has room for six.
            paths: [PathData; 6],
        }
        let reply: Paths = channel
            .ask(command::QUERY, |response| Query {
                response,
                id,
                option: query::PATH,
            })
            .unwrap();
        assert_eq!(
            (reply.header.num_paths, reply.paths[0].flags),
            (1, PATH_FLAGS)
        );
        assert_eq!(reply.paths[0].record[24..40], path.sgid);
    }
}

#[test]
fn events_wait_in_order_and_a_full_reply_is_needed() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    assert_eq!(channel.get_event().map(|it| it.event), Err(Errno(EAGAIN)));
    let id = channel.create(TCP, UID).unwrap();
    channel.resolve(id, &at(HOST.octets(), 1)).unwrap();
    channel.resolve_route(id).unwrap();
    let mut reply = EventReply::new_zeroed();
    let get = GetEvent {
        response: reply.as_mut_bytes().as_mut_ptr() as u64,
    };
    let short = channel.command(command::GET_EVENT, get.as_bytes(), SHORT_EVENT - 1);
    assert_eq!(short, Err(Errno(ENOSPC)));
    let nowhere = GetEvent { response: 8 };
    let bad = channel.command(command::GET_EVENT, nowhere.as_bytes(), 336);
    assert_eq!(bad, Err(Errno(libc::EFAULT)));
    assert!(channel.is_readable(), "the event is still there");
    channel.expect(event::ADDR_RESOLVED, UID);
    assert!(channel.is_readable());
    channel.expect(event::ROUTE_RESOLVED, UID);
    assert!(!channel.is_readable());
    assert_eq!(channel.destroy(id), Ok(2));
}

#[test]
fn a_thread_that_waits_gets_the_event() {
    let mut world = World::new(Link::Ib);
    let channel = world.open(1);
    // SAFETY: a plain call on a descriptor we own.
    unsafe { libc::fcntl(channel.fd.as_raw_fd(), libc::F_SETFL, 0) };
    let id = channel.create(TCP, UID).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| channel.expect(event::ADDR_ERROR, UID).id);
        channel.resolve(id, &at(FOREIGN.octets(), 1)).unwrap();
        world.advance(3 * SECOND);
        assert_eq!(waiting.join().unwrap(), id);
    });
    assert!(!channel.is_readable());
}

/// As in the kernel, where the call holds the file: rping's server closes the
/// descriptor that its other thread is about to wait on.
#[test]
fn a_thread_that_waits_keeps_the_file_of_a_descriptor_that_is_closed() {
    let mut world = World::new(Link::Ib);
    let channel = world.open(1);
    let id = channel.create(TCP, UID).unwrap();
    let other = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: plain calls on descriptors we own. The second closes the file's.
    unsafe {
        libc::fcntl(channel.fd.as_raw_fd(), libc::F_SETFL, 0);
        libc::dup2(other.as_raw_fd(), channel.fd.as_raw_fd());
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| channel.expect(event::ADDR_ERROR, UID).id);
        channel.resolve(id, &at(FOREIGN.octets(), 1)).unwrap();
        world.advance(3 * SECOND);
        assert_eq!(waiting.join().unwrap(), id);
    });
}

#[test]
fn infiniband_addresses_need_an_infiniband_link() {
    for link in [Link::Ib, Link::Roce] {
        let world = World::new(link);
        let channel = world.open(1);
        let port = crate::spec::PortAddress { device: 1, port: 1 };
        let config = Config {
            link,
            devices: 2,
            ..Config::default()
        };
        let address = Address::Ib {
            pkey: 0,
            flow: [0; 4],
            gid: Network::new(&config, Arc::default()).gid(port),
            sid: 0x0106_1234,
            mask: u64::MAX,
            scope: 0,
        };
        let id = channel.create(0x13f, UID).unwrap();
        let bound = channel.bind(id, &address);
        let expected = if link == Link::Ib {
            Ok(())
        } else {
            Err(Errno(ENODEV))
        };
        assert_eq!(bound, expected);
    }
}
