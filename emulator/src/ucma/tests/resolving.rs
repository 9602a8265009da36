//! How long the resolution of a route takes.

use super::*;

const MILLISECOND: Nanos = 1_000_000;
/// The most that a route takes here.
const MOST: Nanos = 50 * MILLISECOND;

fn world() -> World {
    World::with(Link::Ib, false, Duration::from_nanos(MOST))
}

/// Returns an id whose route to this port of the host is being resolved.
fn routing(client: &Channel, port: u16) -> u32 {
    let id = client.create(TCP, UID).unwrap();
    client.resolve(id, &at(HOST.octets(), port)).unwrap();
    client.expect(event::ADDR_RESOLVED, UID);
    client.resolve_route(id).unwrap();
    id
}

#[test]
fn a_route_to_a_listener_is_resolved_at_once() {
    let world = world();
    let (client, server) = (world.open(1), world.open(2));
    server.listener(TCP, 7471);
    routing(&client, 7471);
    client.expect(event::ROUTE_RESOLVED, UID);
}

#[test]
fn a_route_waits_for_a_server_that_listens_again() {
    let mut world = world();
    let (client, server) = (world.open(1), world.open(2));
    let first = server.listener(TCP, 7471);
    server.destroy(first).unwrap();
    let active = routing(&client, 7471);
    let early = client.connect(active, parameters(1, b""));
    assert_eq!(early, Err(Errno(libc::EINVAL)), "there is no route yet");
    world.advance(MOST / 2);
    assert!(!client.is_readable());
    server.listener(TCP, 7471);
    world.advance(2 * MILLISECOND);
    client.expect(event::ROUTE_RESOLVED, UID);
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    server.expect(event::CONNECT_REQUEST, UID);
}

#[test]
fn a_route_without_a_listener_takes_its_time_and_the_request_is_rejected_at_once() {
    let mut world = world();
    let client = world.open(1);
    let active = routing(&client, 7471);
    world.advance(MOST - MILLISECOND);
    assert!(!client.is_readable());
    world.advance(2 * MILLISECOND);
    client.expect(event::ROUTE_RESOLVED, UID);
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    assert_eq!(client.expect(event::REJECTED, UID).status, 8);
}

#[test]
fn the_timeout_of_the_program_is_a_limit_too() {
    let mut world = world();
    let client = world.open(1);
    let id = client.create(TCP, UID).unwrap();
    client.resolve(id, &at(HOST.octets(), 7471)).unwrap();
    client.expect(event::ADDR_RESOLVED, UID);
    let timeout_ms = 5;
    let command = ResolveRoute { id, timeout_ms };
    let resolve = command::RESOLVE_ROUTE;
    client.command(resolve, command.as_bytes(), 0).unwrap();
    world.advance(6 * MILLISECOND);
    client.expect(event::ROUTE_RESOLVED, UID);
}

#[test]
fn an_id_that_is_destroyed_or_loses_its_device_gets_no_route() {
    let mut world = world();
    let client = world.open(1);
    let destroyed = routing(&client, 7471);
    client.destroy(destroyed).unwrap();
    let removed = routing(&client, 7472);
    world.processes[0].device_failed(0);
    client.expect(event::DEVICE_REMOVAL, UID);
    world.advance(2 * MOST);
    assert!(!client.is_readable());
    let late = client.resolve_route(removed);
    assert_eq!(late, Err(Errno(libc::ENXIO)), "the device stays removed");
}
