//! Devices with lower limits: the reported limits, and the errors for requests that exceed
//! them, by the ioctl and the write interface.

use libc::{EINVAL, EOPNOTSUPP, EPROTONOSUPPORT};
use zerocopy::{FromZeros, IntoBytes};

use super::fixtures::*;
use crate::config::{DataInOrder, Face};
use crate::limits::Limits;
use crate::spec::{Link, Result};
use crate::uverbs::DeviceConfig;
use crate::uverbs::abi::{
    AllocMw, CreateQp, CreateQpResp, CreateSrq, ExQueryDeviceResp, Mlx5AllocUcontextResp,
    Mlx5CreateSrq, Mlx5ResizeCq, ModifyQp, QpCap, QueryDeviceResp, RegMr, ReregMr, ResizeCq,
    UHW_IN, UHW_OUT, request, write_command,
};

/// Returns an application on a device with these limits.
fn application_with_limits(text: &str) -> Application {
    let limits: Limits = text.parse().unwrap();
    let (file, recorder) = open_with_config(DeviceConfig {
        link: Link::Ib,
        devices: 1,
        ports: 1,
        face: Face::Ioctl,
        cqe_version: 1,
        limits,
        blue_flame: true,
        reaches_others: false,
        data_in_order: DataInOrder::Yes,
    });
    let context = context_request(0, 3).send(&file).unwrap();
    let reply: Mlx5AllocUcontextResp = request(&context.output(UHW_OUT));
    assert_eq!(reply.max_srq_recv_wr, limits.max_srq_wr);
    Application::from_file((file, recorder))
}

fn query(app: &Application) -> QueryDeviceResp {
    let command = Command::write(write_command::QUERY_DEVICE, &[0; 8], 176);
    let reported: QueryDeviceResp = request(&command.send(&app.file).unwrap().output(1));
    let command = Command::write(write_command::EX_QUERY_DEVICE, &[0; 8], 304).output(UHW_OUT, 8);
    let response = command.send(&app.file).unwrap();
    let extended: ExQueryDeviceResp = request(&response.output(1));
    assert_eq!(extended.base.as_bytes(), reported.as_bytes());
    assert_eq!(
        extended.device_cap_flags_ex,
        reported.device_cap_flags.into()
    );
    reported
}

#[test]
fn query_device_reports_the_limits() {
    let reported = query(&application_with_limits(
        "max_qp=10,max_qp_wr=11,max_sge=12,max_sge_rd=2,max_cq=13,max_cqe=14,max_mr=15,\
         max_mr_size=16,max_pd=17,max_qp_rd_atom=3,max_qp_init_rd_atom=4,max_mw=18,max_srq=19,\
         max_srq_wr=20,max_srq_sge=21,max_inline=22",
    ));
    let queues = [
        reported.max_qp,
        reported.max_qp_wr,
        reported.max_sge,
        reported.max_sge_rd,
    ];
    assert_eq!(queues, [10, 11, 12, 2]);
    assert_eq!(
        [reported.max_cq, reported.max_cqe, reported.max_mr],
        [13, 14, 15]
    );
    assert_eq!((reported.max_mr_size, reported.max_pd), (16, 17));
    assert_eq!(
        [reported.max_qp_rd_atom, reported.max_qp_init_rd_atom],
        [3, 4]
    );
    assert_eq!(reported.max_res_rd_atom, 30);
    let shared = [reported.max_srq, reported.max_srq_wr, reported.max_srq_sge];
    assert_eq!((reported.max_mw, shared), (18, [19, 20, 21]));
    assert_eq!(reported.atomic_cap, 1);

    let reported = query(&application_with_limits(
        "max_mw=0,no_srq,no_atomics,max_sge=3",
    ));
    let shared = [reported.max_srq, reported.max_srq_wr, reported.max_srq_sge];
    assert_eq!(
        (reported.max_mw, shared, reported.atomic_cap),
        (0, [0; 3], 0)
    );
    let windows = 1 << 17 | 1 << 24;
    assert_eq!(reported.device_cap_flags & windows, 0);
    assert_eq!((reported.max_sge, reported.max_sge_rd), (3, 3));
    let no_inline = query(&application_with_limits("max_inline=0"));
    assert_eq!(no_inline.device_cap_flags & windows, windows);
    assert_eq!(
        no_inline.device_cap_flags & !windows,
        reported.device_cap_flags
    );
}

/// Creates a QP with these capabilities by the ioctl and by the write interface. Returns
/// its capabilities.
fn create(app: &Application, pd: u32, cq: u32, cap: QpCap) -> Result<QpCap> {
    let driver = app.qp_driver();
    let by_ioctl = app
        .qp_command(pd, cq, 2, &driver)
        .replace(8, cap.as_bytes());
    let by_ioctl = by_ioctl
        .send(&app.file)
        .map(|response| request::<QpCap>(&response.output(13)));
    let mut core = CreateQp::new_zeroed();
    (core.pd_handle, core.send_cq_handle, core.recv_cq_handle) = (pd, cq, cq);
    (core.cap, core.qp_type) = (cap, 2);
    let by_write = Command::write(write_command::CREATE_QP, core.as_bytes(), 32)
        .input(UHW_IN, driver.as_bytes())
        .output(UHW_OUT, 40)
        .send(&app.file)
        .map(|response| request::<CreateQpResp>(&response.output(1)).cap);
    let bytes = |cap: &Result<QpCap>| cap.as_ref().map(|cap| cap.as_bytes().to_vec()).ok();
    assert_eq!(bytes(&by_ioctl), bytes(&by_write));
    by_ioctl
}

/// Returns the capabilities that libmlx5 requests for an RC QP with this inline size.
fn cap(inline_len: u32) -> QpCap {
    QpCap {
        max_send_wr: 8,
        max_recv_wr: 9,
        max_send_sge: 2,
        max_recv_sge: 3,
        max_inline_data: inline_len,
    }
}

#[test]
fn qps_above_the_limits_are_refused() {
    let app = application_with_limits("max_qp_wr=9,max_sge=3");
    let (pd, cq) = (app.pd(), app.cq());
    let with = |change: fn(&mut QpCap)| {
        let mut cap = cap(60);
        change(&mut cap);
        errno(create(&app, pd, cq, cap))
    };
    assert_eq!(with(|it| it.max_send_wr = 9), None);
    assert_eq!(with(|it| it.max_send_wr = 10), Some(EINVAL));
    assert_eq!(with(|it| it.max_recv_wr = 10), Some(EINVAL));
    assert_eq!(with(|it| it.max_send_sge = 3), None);
    assert_eq!(with(|it| it.max_send_sge = 4), Some(EINVAL));
    assert_eq!(with(|it| it.max_recv_sge = 4), Some(EINVAL));
}

#[test]
fn a_qp_has_at_most_the_inline_data_of_the_device() {
    for (limit, inline_len, granted) in [
        // The inline size of a WQE for two segments.
        (0, 60, Some(0)),
        (100, 60, Some(60)),
        // 61 to 124 bytes were requested.
        (0, 124, None),
        (60, 124, None),
        (61, 124, Some(61)),
        (100, 124, Some(100)),
        (124, 124, Some(124)),
        (124, 188, None),
        (125, 188, Some(125)),
        // The size that libmlx5 computes for no segments and no inline data.
        (16, 0xffff_fffc, Some(16)),
        (1004, 1004, Some(1004)),
    ] {
        let app = application_with_limits(&format!("max_inline={limit}"));
        let mut cap = cap(inline_len);
        if inline_len > 1 << 30 {
            cap.max_send_sge = 0;
        }
        let made = create(&app, app.pd(), app.cq(), cap);
        match granted {
            Some(granted) => {
                let made = made.unwrap_or_else(|errno| panic!("{limit}, {inline_len}: {errno:?}"));
                assert_eq!(made.max_inline_data, granted, "{limit}, {inline_len}");
                assert_eq!(made.max_send_sge, cap.max_send_sge);
            }
            None => assert_eq!(errno(made), Some(EINVAL), "{limit}, {inline_len}"),
        }
    }
    // A WQE for five segments holds 124 inline bytes.
    let app = application_with_limits("max_inline=0");
    let (pd, cq) = (app.pd(), app.cq());
    let five = |inline_len| QpCap {
        max_send_sge: 5,
        ..cap(inline_len)
    };
    assert_eq!(create(&app, pd, cq, five(124)).unwrap().max_inline_data, 0);
    assert_eq!(errno(create(&app, pd, cq, five(188))), Some(EINVAL));
}

#[test]
fn commands_of_missing_features_are_not_supported() {
    let app = application_with_limits("max_srq=0,max_mw=0,no_cq_resize,no_atomics");
    let (pd, cq) = (app.pd(), app.cq());
    // The kernel then has no such ioctl method, and libibverbs sends the write command.
    let by_ioctl = app.srq_command(pd, 15, 1).send(&app.file);
    assert_eq!(errno(by_ioctl), Some(EPROTONOSUPPORT));
    let mut core = CreateSrq::new_zeroed();
    (core.pd_handle, core.max_wr, core.max_sge) = (pd, 15, 1);
    let mut driver = Mlx5CreateSrq::new_zeroed();
    (driver.buf_addr, driver.db_addr) = (app.buffer(), app.buffer());
    let by_write = Command::write(write_command::CREATE_SRQ, core.as_bytes(), 16)
        .input(UHW_IN, driver.as_bytes())
        .output(UHW_OUT, 8);
    assert_eq!(errno(by_write.send(&app.file)), Some(EOPNOTSUPP));
    let window = AllocMw {
        response: 0,
        pd_handle: pd,
        mw_type: 1,
        reserved: [0; 3],
    };
    let window = Command::write(write_command::ALLOC_MW, window.as_bytes(), 8);
    assert_eq!(errno(window.send(&app.file)), Some(EOPNOTSUPP));
    assert_eq!(errno(resize(&app, cq, 127)), Some(EOPNOTSUPP));
    let qp = app.qp(pd, cq);
    let access = |flags| {
        modify(&app, qp, |it| {
            it.attr_mask = 1 << 3;
            it.qp_access_flags = flags;
        })
    };
    assert_eq!(access(7), None);
    assert_eq!(access(15), Some(EOPNOTSUPP));
}

fn resize(app: &Application, cq_handle: u32, cqe: u32) -> Result<()> {
    let requested = ResizeCq {
        response: 0,
        cq_handle,
        cqe,
    };
    let mut driver = Mlx5ResizeCq::new_zeroed();
    (driver.buf_addr, driver.cqe_size) = (app.buffer(), 64);
    let command = Command::write(write_command::RESIZE_CQ, requested.as_bytes(), 8);
    let command = command.input(UHW_IN, driver.as_bytes());
    command.send(&app.file).map(drop)
}

fn modify(app: &Application, qp: u32, change: impl FnOnce(&mut ModifyQp)) -> Option<i32> {
    let mut modify = ModifyQp::new_zeroed();
    modify.qp_handle = qp;
    change(&mut modify);
    errno(Command::write(write_command::MODIFY_QP, modify.as_bytes(), 0).send(&app.file))
}

#[test]
fn read_depths_above_the_limits_are_refused_for_each_direction() {
    let app = application_with_limits("max_qp_rd_atom=0,max_qp_init_rd_atom=4");
    let qp = app.qp(app.pd(), app.cq());
    let depths = |mask, initiated, served| {
        modify(&app, qp, |it| {
            it.attr_mask = mask;
            (it.max_rd_atomic, it.max_dest_rd_atomic) = (initiated, served);
        })
    };
    let (initiator, target) = (1 << 13, 1 << 17);
    assert_eq!(
        depths(initiator, 4, 16),
        None,
        "the mask excludes one of the depths"
    );
    assert_eq!(depths(initiator, 5, 0), Some(EINVAL));
    assert_eq!(depths(target, 16, 0), None);
    assert_eq!(depths(target, 0, 1), Some(EINVAL));
}

#[test]
fn rings_are_checked_with_the_sizes_that_libmlx5_rounds_up() {
    let app = application_with_limits("max_cqe=100,max_srq_wr=20,max_srq_sge=2");
    let cq = |cqe| errno(app.cq_command(cqe, &app.cq_driver()).send(&app.file));
    assert_eq!((cq(127), cq(128)), (None, Some(EINVAL)));
    let ring = app.cq();
    assert_eq!(errno(resize(&app, ring, 127)), None);
    assert_eq!(errno(resize(&app, ring, 128)), Some(EINVAL));
    let pd = app.pd();
    let srq = |wr, sge| errno(app.srq_command(pd, wr, sge).send(&app.file));
    assert_eq!((srq(31, 3), srq(31, 4)), (None, Some(EINVAL)));
    assert_eq!(srq(32, 2), Some(EINVAL));
    // The returned size is at most the limit.
    let granted = |sge| {
        let made = app.srq_command(pd, 31, sge).send(&app.file).unwrap();
        made.u32(12)
    };
    assert_eq!((granted(1), granted(3)), (1, 2));
}

#[test]
fn regions_above_the_limit_are_refused() {
    let app = application_with_limits("max_mr_size=64");
    let pd_handle = app.pd();
    let register = |length| {
        let request = RegMr {
            response: 0,
            start: 0x5000,
            length,
            hca_va: 0x5000,
            pd_handle,
            access_flags: 1,
        };
        Command::write(write_command::REG_MR, request.as_bytes(), 12).send(&app.file)
    };
    assert_eq!(errno(register(65)), Some(EINVAL));
    let mr_handle = register(64).unwrap().u32(1);
    let change = |length| {
        let mut request = ReregMr::new_zeroed();
        (request.mr_handle, request.flags) = (mr_handle, 1);
        (request.start, request.hca_va, request.length) = (0x5000, 0x5000, length);
        errno(Command::write(write_command::REREG_MR, request.as_bytes(), 8).send(&app.file))
    };
    assert_eq!((change(64), change(65)), (None, Some(EINVAL)));
}
