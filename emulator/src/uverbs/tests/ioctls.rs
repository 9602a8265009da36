//! The ioctl interface: headers, attributes, contexts and queries.

use libc::{EFAULT, EINVAL, ENODATA, ENOSPC, ENOTTY, EOPNOTSUPP, EPROTONOSUPPORT};

use super::fixtures::*;
use crate::spec::Errno;
use crate::uverbs::abi::{
    ATTR_F_VALID_OUTPUT, ExQueryDeviceResp, GidEntry, Mlx5AllocUcontextResp, Mlx5QueryDeviceResp,
    QueryPortRespEx, RDMA_VERBS_IOCTL, UHW_OUT, method, object, request, write_command,
};

fn query_port(port: u64) -> Command {
    Command::new(object::DEVICE, method::DEVICE_QUERY_PORT)
        .input(0, &port.to_ne_bytes())
        .output(1, 48)
}

#[test]
fn the_probe_for_wrapped_write_commands_returns_enospc() {
    let (file, _) = open();
    // libibverbs' has_ioctl_write sends QUERY_DEVICE without a request.
    let probe = Command::new(object::DEVICE, method::DEVICE_INVOKE_WRITE)
        .input(2, &u64::from(write_command::QUERY_DEVICE).to_ne_bytes());
    assert_eq!(probe.send(&file).err(), Some(Errno(ENOSPC)));
}

#[test]
fn inconsistent_headers_are_refused() {
    let (file, _) = open_context();
    assert_eq!(
        file.ioctl(0x5401, 0),
        Err(Errno(ENOTTY)),
        "not a verbs ioctl"
    );
    assert_eq!(file.ioctl(RDMA_VERBS_IOCTL, 0x10), Err(Errno(EFAULT)));
    let refused = |command: Command| command.send(&file).err().map(|errno| errno.0);
    assert_eq!(
        refused(query_port(1).header(|it| it.length = 1)),
        Some(EINVAL)
    );
    assert_eq!(
        refused(query_port(1).header(|it| it.num_attrs = 1)),
        Some(EINVAL)
    );
    assert_eq!(
        refused(query_port(1).header(|it| it.reserved1 = 1)),
        Some(EPROTONOSUPPORT)
    );
    assert_eq!(
        refused(query_port(1).header(|it| it.driver_id = 2)),
        Some(EINVAL)
    );
    assert_eq!(
        refused(query_port(1).header(|it| it.method_id = 77)),
        Some(EPROTONOSUPPORT)
    );
    assert_eq!(
        refused(query_port(1).header(|it| it.object_id = 77)),
        Some(EPROTONOSUPPORT)
    );
}

#[test]
fn attributes_are_checked_as_in_the_kernel() {
    let (file, _) = open_context();
    let refused = |command: Command| command.send(&file).err().map(|errno| errno.0);
    assert_eq!(
        refused(query_port(1).id(77, 0)),
        Some(EPROTONOSUPPORT),
        "unknown, mandatory"
    );
    assert_eq!(
        refused(query_port(1).id(77, 0).flags(0)),
        None,
        "unknown, optional"
    );
    assert_eq!(
        refused(query_port(1).input(0, &[1; 8])),
        Some(EINVAL),
        "a duplicate"
    );
    assert_eq!(
        refused(query_port(1).flags(4)),
        Some(EINVAL),
        "unknown flag"
    );
    let query = || Command::new(object::DEVICE, method::DEVICE_QUERY_PORT);
    assert_eq!(
        refused(query().output(1, 48)),
        Some(EINVAL),
        "the port attribute is missing"
    );
    assert_eq!(
        refused(query().input(0, &[1; 9]).output(1, 48)),
        Some(EINVAL),
        "too long"
    );
    assert_eq!(
        refused(query().input(0, &[1]).output(1, 48)),
        Some(EINVAL),
        "too short"
    );
    assert_eq!(
        refused(query().input(0, &1_u64.to_ne_bytes()).output(1, 39)),
        Some(EINVAL),
        "the output buffer is too short"
    );
    let unmapped_output = query()
        .input(0, &1_u64.to_ne_bytes())
        .attribute(1, 48, 0x10);
    assert_eq!(refused(unmapped_output), Some(EFAULT));
}

#[test]
fn the_device_has_one_active_port() {
    let (file, _) = open_context();
    let response = query_port(1).send(&file).unwrap();
    let port: QueryPortRespEx = request(&response.output(1));
    assert_eq!(
        (
            port.legacy_resp.state,
            port.legacy_resp.link_layer,
            port.legacy_resp.lid
        ),
        (4, 1, 1)
    );
    assert_ne!(response.flags(1) & ATTR_F_VALID_OUTPUT, 0);
    assert_eq!(query_port(0).send(&file).err(), Some(Errno(EINVAL)));
    assert_eq!(query_port(2).send(&file).err(), Some(Errno(EINVAL)));
}

#[test]
fn commands_before_the_context_and_a_second_context_are_refused() {
    let (file, recorder) = open();
    assert_eq!(query_port(1).send(&file).err(), Some(Errno(EINVAL)));
    let response = context_request(0, 3).send(&file).unwrap();
    let context: Mlx5AllocUcontextResp = request(&response.output(UHW_OUT));
    assert_eq!(
        (
            context.tot_bfregs,
            context.cqe_version,
            context.cache_line_size
        ),
        (0, 1, 64)
    );
    assert_eq!(response.u32(0), 1, "completion vectors");
    assert_eq!(context_request(0, 3).send(&file).err(), Some(Errno(EINVAL)));
    drop(file);
    assert_eq!(recorder.calls.lock().closed.len(), 1);
}

#[test]
fn replies_are_truncated_to_the_callers_buffer() {
    let (file, _) = open_context();
    let ask = |core: usize, driver: usize| {
        let command = Command::write(write_command::EX_QUERY_DEVICE, &[0; 8], core);
        command.output(UHW_OUT, driver).send(&file)
    };
    // libibverbs 44, and 64 with its longer driver reply.
    for driver_len in [104, 112] {
        let response = ask(304, driver_len).unwrap();
        let device: ExQueryDeviceResp = request(&response.output(1));
        assert_eq!(device.response_length, 304);
        let driver: Mlx5QueryDeviceResp = request(&response.output(UHW_OUT));
        assert_eq!(driver.response_length, 8);
        assert!(response.output(UHW_OUT)[8..].iter().all(|byte| *byte == 0));
    }
    let response = ask(200, 4).unwrap();
    let device: ExQueryDeviceResp = request(&response.output(1));
    assert_eq!(device.response_length, 200);
    assert_eq!(ask(180, 104).err(), Some(Errno(ENOSPC)));
}

#[test]
fn gid_entries_have_the_callers_entry_size() {
    let (file, _) = open_context();
    let table = |entry_size: u64, table_len: usize| {
        Command::new(object::DEVICE, method::DEVICE_QUERY_GID_TABLE)
            .input(0, &entry_size.to_ne_bytes())
            .input(1, &[0; 4])
            .output(2, table_len)
            .output(3, 8)
            .send(&file)
    };
    let response = table(40, 80).unwrap();
    let entry: GidEntry = request(&response.output(2));
    assert_eq!(
        (entry.gid[0], entry.gid[1], entry.port_num),
        (0xfe, 0x80, 1)
    );
    assert_eq!(response.u32(3), 1);
    assert_eq!(table(0, 80).err(), Some(Errno(EINVAL)));
    assert_eq!(table(32, 16).err(), Some(Errno(EINVAL)));
    assert_eq!(
        table(32, 0).err(),
        Some(Errno(EINVAL)),
        "more GIDs than the table holds"
    );
    let entry = |port: u64, index: u64| {
        Command::new(object::DEVICE, method::DEVICE_QUERY_GID_ENTRY)
            .input(0, &port.to_ne_bytes())
            .input(1, &index.to_ne_bytes())
            .input(2, &[0; 4])
            .output(3, 32)
            .send(&file)
            .err()
    };
    assert_eq!(entry(1, 0), None);
    assert_eq!(entry(1, 1), Some(Errno(ENODATA)), "empty");
    assert_eq!(entry(1, 8), Some(Errno(EINVAL)), "beyond the table");
    assert_eq!(entry(2, 0), Some(Errno(EINVAL)));
}

#[test]
fn unsupported_commands_return_the_kernels_errors() {
    let (file, _) = open_context();
    // QUERY_MR, ATTACH_MCAST, OPEN_XRCD.
    for number in [12_u32, 30, 37, 200] {
        let command = Command::write(number, &[0; 64], 64);
        assert_eq!(
            command.send(&file).err(),
            Some(Errno(EOPNOTSUPP)),
            "write command {number}"
        );
    }
}
