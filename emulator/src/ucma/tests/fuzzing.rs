//! Commands of any bytes, at the ends of a connection and at new ids.

use super::*;
use crate::fuzz_bytes::Bytes;

/// The commands with the address of a reply, or of an option's value, and where it is.
fn pointer_at(number: u32) -> Option<usize> {
    match number {
        command::CREATE_ID => Some(8),
        command::DESTROY_ID
        | command::QUERY_ROUTE
        | command::INIT_QP_ATTR
        | command::GET_EVENT
        | command::SET_OPTION
        | command::MIGRATE_ID
        | command::QUERY => Some(0),
        _ => None,
    }
}

/// Random commands with random contents return, and leave the process usable.
pub fn rdma_cm(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let form = bytes.u8();
    let link = if form & 1 == 0 { Link::Roce } else { Link::Ib };
    let mut world = World::new(link);
    let ends = (form & 2 == 0).then(|| establish(&mut world));
    let fresh = [world.open(1), world.open(2)];
    let mut room = vec![0_u8; 512];
    let mut value = [0_u8; 256];
    while !bytes.is_empty() {
        let [number, which, id, len, reply] = bytes.array();
        let number = u32::from(number % 32);
        let channel = match (&ends, which & 3) {
            (Some(ends), 0) => &ends.active.0,
            (Some(ends), 1) => &ends.passive.0,
            (_, which) => &fresh[usize::from(which & 1)],
        };
        let mut body = bytes.take(usize::from(len) * 2).to_vec();
        // Replies go to memory of this function, ids are mostly those there are.
        let address = match number {
            command::SET_OPTION => value.as_mut_ptr(),
            _ => room.as_mut_ptr(),
        };
        let id_at = match pointer_at(number) {
            Some(at) => {
                let address = (address as u64).to_ne_bytes();
                if let Some(place) = body.get_mut(at..at + 8) {
                    place.copy_from_slice(&address);
                }
                at + 8
            }
            None => 0,
        };
        if let Some(place) = body.get_mut(id_at..id_at + 4).filter(|_| id < 200) {
            place.copy_from_slice(&[id % 8, 0, 0, 0]);
        }
        if number == command::SET_OPTION && body.len() >= 24 {
            body[21..24].fill(0);
        }
        let room = usize::from(reply) * 2;
        let _ = channel.command(number, &body, room.min(512));
        if which & 8 == 0 {
            world.carry();
        }
        if which & 16 != 0 {
            world.advance(SECOND);
        }
    }
    world.advance(100 * SECOND);
    let other = world.open(2);
    assert!(other.create(TCP, UID).is_ok());
}
