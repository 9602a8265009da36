//! Commands that no librdmacm sends.

use proptest::prelude::*;

use super::*;

#[test]
fn a_command_that_is_shorter_than_its_structure_is_refused() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    // The lengths of the structures, without ECE.
    let lengths = [
        (command::CREATE_ID, 24),
        (command::DESTROY_ID, 16),
        (command::BIND_IP, 40),
        (command::RESOLVE_IP, 64),
        (command::RESOLVE_ROUTE, 8),
        (command::QUERY_ROUTE, 16),
        (command::CONNECT, 280),
        (command::LISTEN, 8),
        (command::ACCEPT, 288),
        (command::REJECT, 264),
        (command::DISCONNECT, 4),
        (command::INIT_QP_ATTR, 16),
        (command::GET_EVENT, 8),
        (command::SET_OPTION, 24),
        (command::NOTIFY, 8),
        (command::MIGRATE_ID, 16),
        (command::QUERY, 16),
        (command::BIND, 136),
        (command::RESOLVE_ADDR, 272),
        (command::WRITE_CM_EVENT, 24),
    ];
    for (number, len) in lengths {
        for short in 0..len {
            let refused = channel.command(number, &vec![0; short], 1000);
            assert_eq!(
                refused,
                Err(Errno(libc::EINVAL)),
                "command {number}, {short} bytes"
            );
        }
    }
}

#[test]
fn the_header_must_be_whole_and_not_promise_more_than_there_is() {
    let world = World::new(Link::Ib);
    let channel = world.open(1);
    let write = |address: u64, len| channel.file.write((address, len), &|_| None);
    let mut bytes = [0u8; 64];
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(write(bytes.as_ptr() as u64, 7), invalid);
    assert_eq!(write(8, 64), Err(Errno(libc::EFAULT)));
    bytes[4] = 57;
    assert_eq!(write(bytes.as_ptr() as u64, 64), invalid);
    bytes = [0; 64];
    bytes[0] = 25;
    assert_eq!(write(bytes.as_ptr() as u64, 64), invalid);
}

proptest! {
    /// Random commands with random contents return, and leave the process usable.
    #[test]
    fn random_commands_are_harmless(
        commands in proptest::collection::vec(
            (0u32..26, proptest::collection::vec(any::<u8>(), 0..300), 0usize..400, 0u8..4),
            1..40,
        ),
    ) {
        let mut world = World::new(Link::Roce);
        let ends = establish(&mut world);
        let mut room = vec![0u8; 512];
        let mut value = [0u8; 64];
        for (number, mut body, reply, id) in commands {
            // Replies go to memory of the test, ids are mostly those there are.
            let address = (room.as_mut_ptr() as u64).to_ne_bytes();
            let options = (value.as_mut_ptr() as u64).to_ne_bytes();
            let (at, pointer) = match number {
                command::CREATE_ID => (8, address),
                command::SET_OPTION => (0, options),
                _ => (0, address),
            };
            if body.len() >= at + 12 {
                let carries_pointer = matches!(
                    number,
                    command::CREATE_ID
                        | command::DESTROY_ID
                        | command::QUERY_ROUTE
                        | command::INIT_QP_ATTR
                        | command::GET_EVENT
                        | command::SET_OPTION
                        | command::MIGRATE_ID
                        | command::QUERY
                );
                if carries_pointer {
                    body[at..at + 8].copy_from_slice(&pointer);
                    body[at + 8..at + 12].copy_from_slice(&[id, 0, 0, 0]);
                } else {
                    body[..4].copy_from_slice(&[id, 0, 0, 0]);
                }
                if number == command::SET_OPTION && body.len() >= 24 {
                    body[12] &= 1;
                    body[13..16].fill(0);
                    let len = body[20] % 64;
                    body[20..24].copy_from_slice(&[len, 0, 0, 0]);
                }
            }
            let _ = ends.passive.0.command(number, &body, reply);
            world.carry();
        }
        world.advance(SECOND);
        let other = world.open(2);
        prop_assert!(other.create(TCP, UID).is_ok());
    }
}
