//! DevX: the two queries that `ibv_query_qp_data_in_order` needs, and the refusal of all
//! else.

use libc::{EINVAL, EOPNOTSUPP, EPROTONOSUPPORT};

use super::fixtures::*;
use crate::config::{Config, DataInOrder, Face};
use crate::spec::Errno;
use crate::uverbs::abi::{method, object};
use crate::uverbs::context::DeviceConfig;

/// Flags of `GET_CONTEXT`: `MLX5_IB_ALLOC_UCTX_DEVX`.
const DEVX: u32 = 1;

fn device(data_in_order: DataInOrder, face: Face) -> DeviceConfig {
    DeviceConfig::from(&Config {
        data_in_order,
        face,
        ..Config::default()
    })
}

/// Opens a device that gives this answer, with DevX.
fn application(answer: DataInOrder) -> Application {
    let (file, recorder) = open_with_config(device(answer, Face::Ioctl));
    context_request(DEVX, 3).send(&file).unwrap();
    Application::from_file((file, recorder))
}

/// Returns a command of the device: opcode, `op_mod`, and the word with a number.
fn command(opcode: u16, op_mod: u16, number: u32) -> Vec<u8> {
    let words = [u32::from(opcode) << 16, op_mod.into(), number, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn other(opcode: u16, op_mod: u16) -> Command {
    Command::new(object::DEVX, method::DEVX_OTHER)
        .input(0x1000, &command(opcode, op_mod, 0))
        .output(0x1001, 4112)
}

fn query(handle: u32, opcode: u16, number: u32) -> Command {
    Command::new(object::DEVX_OBJ, method::DEVX_OBJ_QUERY)
        .id(0x1000, handle)
        .input(0x1001, &command(opcode, 0, number))
        .output(0x1002, 272)
}

/// Returns the bytes of a reply that are not 0, with their places.
fn marks(reply: &[u8]) -> Vec<(usize, u8)> {
    let places = reply.iter().copied().enumerate();
    places.filter(|&(_, byte)| byte != 0).collect()
}

#[test]
fn a_device_says_of_each_queue_pair_whether_its_data_are_in_order() {
    for (answer, expected) in [
        (DataInOrder::Yes, &[(35, 0x20)][..]),
        (DataInOrder::No, &[][..]),
    ] {
        let app = application(answer);
        // qp_data_in_order: bit 29 of the fourth word of the capabilities, which begin at
        // byte 16.
        for op_mod in [0, 1] {
            let reply = other(0x100, op_mod).send(&app.file).unwrap().output(0x1001);
            assert_eq!(marks(&reply), [(28, 0x20)]);
        }
        // The device has none of the other capabilities: flow tables, device memory.
        for op_mod in [7 << 1 | 1, 15 << 1 | 1] {
            let reply = other(0x100, op_mod).send(&app.file).unwrap().output(0x1001);
            assert_eq!(marks(&reply), []);
        }
        let (pd, cq) = (app.pd(), app.cq());
        let created = app.qp_command(pd, cq, 2, &app.qp_driver());
        let created = created.send(&app.file).unwrap();
        let (handle, qpn) = (created.id(0), created.u32(14));
        // data_in_order: bit 5 of the third word of the context, which begins at byte 24.
        let reply = query(handle, 0x50b, qpn).send(&app.file).unwrap();
        assert_eq!(marks(&reply.output(0x1002)), expected);
        let refused = |command: Command| command.send(&app.file).err();
        assert_eq!(
            refused(query(handle, 0x50b, qpn + 1)),
            Some(Errno(EINVAL)),
            "the number of another queue pair"
        );
        assert_eq!(
            refused(query(pd, 0x50b, qpn)),
            Some(Errno(EINVAL)),
            "a protection domain"
        );
        assert_eq!(
            refused(query(handle, 0x50a, qpn)),
            Some(Errno(EOPNOTSUPP)),
            "2RST_QP"
        );
    }
}

#[test]
fn all_else_of_devx_is_refused() {
    let app = application(DataInOrder::Yes);
    let refused = |command: Command| command.send(&app.file).err();
    for (opcode, op_mod) in [(0x101, 1), (0x500, 0), (0, 0)] {
        assert_eq!(
            refused(other(opcode, op_mod)),
            Some(Errno(EOPNOTSUPP)),
            "{opcode:#x} {op_mod:#x}"
        );
    }
    let short = Command::new(object::DEVX, method::DEVX_OTHER)
        .input(0x1000, &command(0x100, 1, 0)[..15])
        .output(0x1001, 4112);
    assert_eq!(refused(short), Some(Errno(EINVAL)));
    // Other methods of DevX, and its other objects: memory, commands, events.
    for (object, method) in [
        (object::DEVX, 0x1001),
        (object::DEVX, 0x1002),
        (object::DEVX, 0x1003),
        (object::DEVX_OBJ, 0x1000),
        (object::DEVX_OBJ, 0x1001),
        (object::DEVX_OBJ, 0x1002),
        (object::DEVX_OBJ, 0x1004),
        (0x1002, 0x1000),
        (0x1004, 0x1000),
        (0x1005, 0x1000),
    ] {
        assert_eq!(
            refused(Command::new(object, method)),
            Some(Errno(EPROTONOSUPPORT)),
            "{object:#x} {method:#x}"
        );
    }
}

#[test]
fn a_context_without_devx_has_no_queries() {
    let (file, _) = open_context();
    assert_eq!(other(0x100, 1).send(&file).err(), Some(Errno(EINVAL)));
}

#[test]
fn a_device_without_devx_refuses_it_in_the_context_and_has_no_methods() {
    for config in [
        device(DataInOrder::Unknown, Face::Ioctl),
        device(DataInOrder::Yes, Face::Write),
    ] {
        let (file, _) = open_with_config(config);
        if config.face == Face::Ioctl {
            let refused = context_request(DEVX, 3).send(&file).err();
            assert_eq!(refused, Some(Errno(EOPNOTSUPP)));
            context_request(0, 3).send(&file).unwrap();
            let refused = other(0x100, 1).send(&file).err();
            assert_eq!(refused, Some(Errno(EPROTONOSUPPORT)));
        }
        assert!(!file.has_devx());
    }
}

#[test]
fn a_device_that_writes_payload_in_parts_does_not_promise_order() {
    let of = |data_in_order, nasty: &str| {
        DeviceConfig::from(&Config {
            data_in_order,
            nasty: nasty.parse().unwrap(),
            ..Config::default()
        })
        .data_in_order
    };
    assert_eq!(of(DataInOrder::Yes, "srq"), DataInOrder::Yes);
    assert_eq!(of(DataInOrder::Yes, "parts"), DataInOrder::No);
    assert_eq!(of(DataInOrder::Unknown, "parts"), DataInOrder::Unknown);
}
