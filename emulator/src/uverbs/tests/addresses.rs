//! Paths, address handles, and port attributes on InfiniBand and RoCE.

use std::time::{Duration, Instant};

use libc::{EBUSY, EINVAL, ENETUNREACH, ENODATA, ENOENT, EOPNOTSUPP, ETIMEDOUT};
use zerocopy::{FromZeros, IntoBytes};

use super::fixtures::*;
use crate::abi::AhAttr;
use crate::config::{DataInOrder, Face};
use crate::fabric::name::{DeviceIdentity, FabricName, PortNames};
use crate::limits::Limits;
use crate::spec::{Link, Result, Service};
use crate::uverbs::DeviceConfig;
use crate::uverbs::abi::{
    CreateAh, GidEntry, Mlx5AllocUcontextResp, Mlx5CreateAhResp, ModifyQp, QueryPortRespEx,
    UHW_OUT, method, object, request, write_command,
};

fn identity() -> PortNames {
    DeviceIdentity::derive(&FabricName::default(), 0).port(1)
}

/// Returns a global address and a LID address.
fn addresses() -> (AhAttr, AhAttr) {
    let mut local = AhAttr::new_zeroed();
    local.port_num = 1;
    local.dlid = 1;
    let mut global = local;
    global.is_global = 1;
    global.dgid = identity().ethernet_gid;
    (global, local)
}

fn create(app: &Application, pd: u32, attr: AhAttr, reply_len: usize) -> Result<Response> {
    let mut core = CreateAh::new_zeroed();
    core.pd_handle = pd;
    core.attr = attr;
    Command::write(write_command::CREATE_AH, core.as_bytes(), 4)
        .output(UHW_OUT, reply_len)
        .send(&app.file)
}

fn destroy(app: &Application, handle: u32) -> Result<Response> {
    Command::new(object::AH, method::AH_DESTROY)
        .id(0, handle)
        .send(&app.file)
}

#[test]
fn on_roce_create_ah_returns_the_destination_mac() {
    let app = Application::with_link(Link::Roce);
    let pd = app.pd();
    let (global, local) = addresses();
    let response = create(&app, pd, global, 16).unwrap();
    let reply: Mlx5CreateAhResp = request(&response.output(UHW_OUT));
    assert_eq!((reply.response_length, reply.dmac), (16, identity().mac));
    assert_eq!(errno(app.dealloc_pd(pd)), Some(EBUSY));
    let handle = response.u32(1);
    assert_eq!(
        errno(destroy(&app, pd)),
        Some(EINVAL),
        "the handle of another kind of object"
    );
    assert_eq!(errno(destroy(&app, handle)), None);
    assert_eq!(errno(destroy(&app, handle)), Some(ENOENT));

    let refused = |attr, reply_len| errno(create(&app, pd, attr, reply_len));
    assert_eq!(refused(local, 16), Some(EINVAL), "not a global address");
    assert_eq!(refused(global, 8), Some(EINVAL), "too short for the MAC");
    let mut empty = global;
    empty.sgid_index = 4;
    assert_eq!(refused(empty, 16), Some(ENODATA), "no such source GID");
    empty.sgid_index = 8;
    assert_eq!(refused(empty, 16), Some(EINVAL), "behind the table");
    let mut mapped = global;
    mapped.dgid = identity().ip_gid();
    for index in [2, 3] {
        mapped.sgid_index = index;
        let response = create(&app, pd, mapped, 16).unwrap();
        let reply: Mlx5CreateAhResp = request(&response.output(UHW_OUT));
        assert_eq!(reply.dmac, identity().mac);
        assert_eq!(errno(destroy(&app, response.u32(1))), None);
    }
    let mut other = global;
    other.port_num = 2;
    assert_eq!(refused(other, 16), Some(EINVAL), "no such port");
    assert_eq!(
        errno(create(&app, 77, global, 16)),
        Some(EINVAL),
        "no such PD"
    );
    assert_eq!(errno(app.dealloc_pd(pd)), None, "no AH is left");
}

#[test]
fn on_infiniband_create_ah_returns_a_handle_only() {
    let app = Application::with_link(Link::Ib);
    let pd = app.pd();
    let (mut global, local) = addresses();
    assert_eq!(errno(create(&app, pd, global, 0)), None);
    assert_eq!(errno(create(&app, pd, local, 0)), None);
    global.sgid_index = 1;
    assert_eq!(errno(create(&app, pd, global, 0)), Some(ENODATA));
}

#[test]
fn rc_uc_and_ud_qps_can_be_created() {
    let app = Application::with_link(Link::Ib);
    let (pd, cq) = (app.pd(), app.cq());
    let kinds = [(2, Service::Rc), (3, Service::Uc), (4, Service::Ud)];
    for (kind, service) in kinds {
        let command = app.qp_command(pd, cq, kind, &app.qp_driver());
        assert_eq!(errno(command.send(&app.file)), None);
        let spec = app.recorder.calls.lock().qp.unwrap();
        assert_eq!(spec.service, service);
    }
    for kind in [0, 1, 8, 9, 10, 0xff] {
        let command = app.qp_command(pd, cq, kind, &app.qp_driver());
        assert_eq!(errno(command.send(&app.file)), Some(EOPNOTSUPP), "{kind}");
    }
}

#[test]
fn a_path_is_checked_according_to_the_link_layer() {
    // Link layer, whether the address is global, source GID index, whether the GID is a port's.
    let cases = [
        (Link::Ib, 0, 9, false, None),
        (Link::Ib, 1, 0, false, None),
        (Link::Ib, 1, 1, false, Some(ENODATA)),
        (Link::Ib, 1, 8, false, Some(EINVAL)),
        (Link::Roce, 1, 0, true, None),
        (Link::Roce, 0, 0, true, Some(EINVAL)),
        (Link::Roce, 1, 1, true, None),
        (Link::Roce, 1, 4, true, Some(ENODATA)),
        (Link::Roce, 1, 0, false, Some(ENETUNREACH)),
    ];
    for (link, is_global, sgid_index, is_neighbour, expected) in cases {
        let app = Application::with_link(link);
        let mut modify = ModifyQp::new_zeroed();
        modify.qp_handle = app.qp(app.pd(), app.cq());
        modify.attr_mask = 1 << 7;
        modify.dest.port_num = 1;
        modify.dest.is_global = is_global;
        modify.dest.sgid_index = sgid_index;
        if is_neighbour {
            modify.dest.dgid = identity().ethernet_gid;
        }
        let command = Command::write(write_command::MODIFY_QP, modify.as_bytes(), 0);
        let case = (link, is_global, sgid_index, is_neighbour);
        assert_eq!(errno(command.send(&app.file)), expected, "{case:?}");
    }
}

/// Creates an address handle and moves a QP to a path, from a GID index to a GID. Returns
/// the errors, which are the same (`ib_resolve_eth_dmac`).
fn resolve(app: &Application, sgid_index: u8, dgid: [u8; 16]) -> Option<i32> {
    let pd = app.pd();
    let (mut to, _) = addresses();
    (to.sgid_index, to.dgid) = (sgid_index, dgid);
    let outcome = errno(create(app, pd, to, 16));
    let mut modify = ModifyQp::new_zeroed();
    modify.qp_handle = app.qp(pd, app.cq());
    modify.attr_mask = 1 << 7;
    (modify.dest.port_num, modify.dest.is_global) = (1, 1);
    (modify.dest.sgid_index, modify.dest.dgid) = (sgid_index, dgid);
    let command = Command::write(write_command::MODIFY_QP, modify.as_bytes(), 0);
    assert_eq!(errno(command.send(&app.file)), outcome);
    outcome
}

#[test]
fn a_roce_destination_is_resolved_by_the_version_and_family_of_the_source() {
    let names = identity();
    let (mut stranger, mut global, mut group) = (names.ethernet_gid, [0; 16], [0; 16]);
    stranger[15] = 0x77;
    global[0] = 0x20;
    (group[0], group[1], group[15]) = (0xff, 2, 1);
    // Source GID index, destination GID.
    let cases = [
        (1, names.ethernet_gid, None),
        (3, names.ip_gid(), None),
        // Between link-local GIDs of RoCE v1 no host is asked.
        (0, stranger, None),
        (1, group, None),
        (1, global, Some(ENETUNREACH)),
        (3, names.ethernet_gid, Some(EINVAL)),
        (1, names.ip_gid(), Some(EINVAL)),
    ];
    let app = Application::with_link(Link::Roce);
    for (sgid_index, dgid, expected) in cases {
        let case = (sgid_index, dgid);
        assert_eq!(resolve(&app, sgid_index, dgid), expected, "{case:x?}");
    }
}

#[test]
fn a_destination_that_no_host_answers_for_fails_after_a_second() {
    let names = identity();
    let (mut stranger, mut other_ip) = (names.ethernet_gid, names.ip_gid());
    (stranger[15], other_ip[15]) = (0x77, 0x77);
    let app = Application::with_link(Link::Roce);
    std::thread::scope(|threads| {
        for (sgid_index, dgid) in [(1, stranger), (2, other_ip), (3, other_ip)] {
            let app = &app;
            threads.spawn(move || {
                let start = Instant::now();
                let outcome = resolve(app, sgid_index, dgid);
                assert_eq!(outcome, Some(ETIMEDOUT), "{sgid_index}");
                assert!(start.elapsed() >= Duration::from_secs(2), "two commands");
            });
        }
    });
}

#[test]
fn on_roce_alternate_paths_are_refused() {
    for (link, expected) in [(Link::Ib, None), (Link::Roce, Some(EINVAL))] {
        let app = Application::with_link(link);
        let mut modify = ModifyQp::new_zeroed();
        modify.qp_handle = app.qp(app.pd(), app.cq());
        (modify.attr_mask, modify.alt_port_num) = (1 << 14, 1);
        (modify.alt_dest.port_num, modify.alt_dest.is_global) = (1, 1);
        modify.alt_dest.dgid = identity().ethernet_gid;
        let command = Command::write(write_command::MODIFY_QP, modify.as_bytes(), 0);
        assert_eq!(errno(command.send(&app.file)), expected, "{link:?}");
    }
}

#[test]
fn a_roce_port_has_gids_and_no_lid() {
    let app = Application::with_link(Link::Roce);
    let port = Command::new(object::DEVICE, method::DEVICE_QUERY_PORT)
        .input(0, &1_u64.to_ne_bytes())
        .output(1, 48);
    let port: QueryPortRespEx = request(&port.send(&app.file).unwrap().output(1));
    let port = port.legacy_resp;
    assert_eq!((port.link_layer, port.lid, port.sm_lid), (2, 0, 0));
    // SAFETY: the argument is a C string.
    let loopback = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
    let (local, ip) = (identity().ethernet_gid, identity().ip_gid());
    for (index, gid, kind) in [(0_u64, local, 1), (1, local, 2), (2, ip, 1), (3, ip, 2)] {
        let entry = Command::new(object::DEVICE, method::DEVICE_QUERY_GID_ENTRY)
            .input(0, &1_u64.to_ne_bytes())
            .input(1, &index.to_ne_bytes())
            .input(2, &[0; 4])
            .output(3, 32);
        let entry: GidEntry = request(&entry.send(&app.file).unwrap().output(3));
        assert_eq!((entry.gid, entry.gid_type), (gid, kind));
        assert_eq!(entry.netdev_ifindex, loopback);
    }
}

#[test]
fn a_second_port_has_its_own_gid_and_lid() {
    for link in [Link::Ib, Link::Roce] {
        let (file, _) = open_with_config(DeviceConfig {
            link,
            devices: 1,
            ports: 2,
            face: Face::Ioctl,
            cqe_version: 1,
            limits: Limits::DEVICE,
            blue_flame: true,
            reaches_others: false,
            data_in_order: DataInOrder::Yes,
        });
        let context = context_request(0, 3).send(&file).unwrap();
        let context: Mlx5AllocUcontextResp = request(&context.output(UHW_OUT));
        assert_eq!(context.num_ports, 2);
        let port = |port: u64| {
            let query = Command::new(object::DEVICE, method::DEVICE_QUERY_PORT)
                .input(0, &port.to_ne_bytes())
                .output(1, 48);
            let response = query.send(&file)?;
            Ok(request::<QueryPortRespEx>(&response.output(1)).legacy_resp)
        };
        let (first, second) = (port(1).unwrap(), port(2).unwrap());
        assert_eq!(first.lid != second.lid, link == Link::Ib);
        assert_eq!(errno(port(3).map(|_| ())), Some(EINVAL));
        let table = Command::new(object::DEVICE, method::DEVICE_QUERY_GID_TABLE)
            .input(0, &32_u64.to_ne_bytes())
            .input(1, &[0; 4])
            .output(2, 8 * 32)
            .output(3, 8)
            .send(&file)
            .unwrap();
        let each = if link == Link::Ib { 1 } else { 4 };
        assert_eq!(table.u32(3), 2 * each);
        let bytes = table.output(2);
        let entries: Vec<GidEntry> = bytes.chunks(32).map(request).collect();
        let places: Vec<_> = entries[..2 * each as usize]
            .iter()
            .map(|entry| (entry.port_num, entry.gid_index))
            .collect();
        let of_port = |port| (0..each).map(move |index| (port, index));
        let expected: Vec<_> = [1, 2].into_iter().flat_map(of_port).collect();
        assert_eq!(places, expected);
        assert_ne!(entries[0].gid, entries[each as usize].gid);
    }
}
