//! Devices that can do less: what they tell, and what they refuse with which
//! error, by ioctl and by the write interface.

use libc::{EINVAL, EOPNOTSUPP, EPROTONOSUPPORT};
use zerocopy::{FromZeros, IntoBytes};

use super::objects::{Application, errno};
use super::sender::{Command, context_request, open_as};
use crate::config::{Face, Link};
use crate::limits::Limits;
use crate::nic::spec::Result;
use crate::uverbs::DeviceConfig;
use crate::uverbs::abi::{
    AllocMw, CreateQp, CreateQpResp, CreateSrq, ExQueryDeviceResp, Mlx5AllocUcontextResp,
    Mlx5CreateSrq, Mlx5ResizeCq, ModifyQp, QpCap, QueryDeviceResp, RegMr, ReregMr, ResizeCq,
    UHW_IN, UHW_OUT, request, write_command,
};

/// An application on a device with these limits.
fn limited(text: &str) -> Application {
    let limits: Limits = text.parse().unwrap();
    let (file, recorder) = open_as(DeviceConfig {
        link: Link::Ib,
        devices: 1,
        ports: 1,
        face: Face::Ioctl,
        cqe_version: 1,
        limits,
    });
    let context = context_request(0, 3).send(&file).unwrap();
    let reply: Mlx5AllocUcontextResp = request(&context.output(UHW_OUT));
    assert_eq!(reply.max_srq_recv_wr, limits.max_srq_wr);
    Application::with((file, recorder))
}

fn query(app: &Application) -> QueryDeviceResp {
    let command = Command::write(write_command::QUERY_DEVICE, &[0; 8], 176);
    let told: QueryDeviceResp = request(&command.send(&app.file).unwrap().output(1));
    let command = Command::write(write_command::EX_QUERY_DEVICE, &[0; 8], 304).output(UHW_OUT, 8);
    let answer = command.send(&app.file).unwrap();
    let extended: ExQueryDeviceResp = request(&answer.output(1));
    assert_eq!(extended.base.as_bytes(), told.as_bytes());
    assert_eq!(extended.device_cap_flags_ex, told.device_cap_flags.into());
    told
}

#[test]
fn a_device_tells_its_limits() {
    let told = query(&limited(
        "max_qp=10,max_qp_wr=11,max_sge=12,max_sge_rd=2,max_cq=13,max_cqe=14,max_mr=15,\
         max_mr_size=16,max_pd=17,max_qp_rd_atom=3,max_qp_init_rd_atom=4,max_mw=18,max_srq=19,\
         max_srq_wr=20,max_srq_sge=21,max_inline=22",
    ));
    let queues = [told.max_qp, told.max_qp_wr, told.max_sge, told.max_sge_rd];
    assert_eq!(queues, [10, 11, 12, 2]);
    assert_eq!([told.max_cq, told.max_cqe, told.max_mr], [13, 14, 15]);
    assert_eq!((told.max_mr_size, told.max_pd), (16, 17));
    assert_eq!([told.max_qp_rd_atom, told.max_qp_init_rd_atom], [3, 4]);
    assert_eq!(told.max_res_rd_atom, 30);
    let shared = [told.max_srq, told.max_srq_wr, told.max_srq_sge];
    assert_eq!((told.max_mw, shared), (18, [19, 20, 21]));
    assert_eq!(told.atomic_cap, 1);

    let told = query(&limited("max_mw=0,no_srq,no_atomics,max_sge=3"));
    let shared = [told.max_srq, told.max_srq_wr, told.max_srq_sge];
    assert_eq!((told.max_mw, shared, told.atomic_cap), (0, [0; 3], 0));
    let windows = 1 << 17 | 1 << 24;
    assert_eq!(told.device_cap_flags & windows, 0);
    assert_eq!((told.max_sge, told.max_sge_rd), (3, 3));
    let own = query(&limited("max_inline=0"));
    assert_eq!(own.device_cap_flags & windows, windows);
    assert_eq!(own.device_cap_flags & !windows, told.device_cap_flags);
}

/// Creates a QP with these capabilities by ioctl and by the write interface;
/// answers the capabilities that it has.
fn create(app: &Application, pd: u32, cq: u32, cap: QpCap) -> Result<QpCap> {
    let driver = app.qp_driver();
    let by_ioctl = app
        .qp_command(pd, cq, 2, &driver)
        .replace(8, cap.as_bytes());
    let by_ioctl = by_ioctl
        .send(&app.file)
        .map(|answer| request::<QpCap>(&answer.output(13)));
    let mut core = CreateQp::new_zeroed();
    (core.pd_handle, core.send_cq_handle, core.recv_cq_handle) = (pd, cq, cq);
    (core.cap, core.qp_type) = (cap, 2);
    let by_write = Command::write(write_command::CREATE_QP, core.as_bytes(), 32)
        .input(UHW_IN, driver.as_bytes())
        .output(UHW_OUT, 40)
        .send(&app.file)
        .map(|answer| request::<CreateQpResp>(&answer.output(1)).cap);
    let bytes = |cap: &Result<QpCap>| cap.as_ref().map(|cap| cap.as_bytes().to_vec()).ok();
    assert_eq!(bytes(&by_ioctl), bytes(&by_write));
    by_ioctl
}

/// The send WQE that libmlx5 asks for, given the inline bytes of an RC QP.
fn cap(inline_room: u32) -> QpCap {
    QpCap {
        max_send_wr: 8,
        max_recv_wr: 9,
        max_send_sge: 2,
        max_recv_sge: 3,
        max_inline_data: inline_room,
    }
}

#[test]
fn queue_pairs_above_the_limits_are_refused() {
    let app = limited("max_qp_wr=9,max_sge=3");
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
fn a_queue_pair_has_no_more_inline_data_than_the_device() {
    for (limit, room, granted) in [
        // Room that two segments make in any case.
        (0, 60, Some(0)),
        (100, 60, Some(60)),
        // 61 to 124 bytes were asked for.
        (0, 124, None),
        (60, 124, None),
        (61, 124, Some(61)),
        (100, 124, Some(100)),
        (124, 124, Some(124)),
        (124, 188, None),
        (125, 188, Some(125)),
        // No segments and no inline data, as libmlx5 counts it.
        (16, 0xffff_fffc, Some(16)),
        (1004, 1004, Some(1004)),
    ] {
        let app = limited(&format!("max_inline={limit}"));
        let mut cap = cap(room);
        if room > 1 << 30 {
            cap.max_send_sge = 0;
        }
        let made = create(&app, app.pd(), app.cq(), cap);
        match granted {
            Some(granted) => {
                let made = made.unwrap_or_else(|errno| panic!("{limit}, {room}: {errno:?}"));
                assert_eq!(made.max_inline_data, granted, "{limit}, {room}");
                assert_eq!(made.max_send_sge, cap.max_send_sge);
            }
            None => assert_eq!(errno(made), Some(EINVAL), "{limit}, {room}"),
        }
    }
    // Five segments after 192 bytes make room for 124 inline bytes.
    let app = limited("max_inline=0");
    let (pd, cq) = (app.pd(), app.cq());
    let five = |room| QpCap {
        max_send_sge: 5,
        ..cap(room)
    };
    assert_eq!(create(&app, pd, cq, five(124)).unwrap().max_inline_data, 0);
    assert_eq!(errno(create(&app, pd, cq, five(188))), Some(EINVAL));
}

#[test]
fn what_a_device_does_not_have_is_not_supported() {
    let app = limited("max_srq=0,max_mw=0,no_cq_resize,no_atomics");
    let (pd, cq) = (app.pd(), app.cq());
    // The kernel has no such method then, and libibverbs tries the command.
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
    let wanted = ResizeCq {
        response: 0,
        cq_handle,
        cqe,
    };
    let mut driver = Mlx5ResizeCq::new_zeroed();
    (driver.buf_addr, driver.cqe_size) = (app.buffer(), 64);
    let command = Command::write(write_command::RESIZE_CQ, wanted.as_bytes(), 8);
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
fn reads_above_the_limits_are_refused_by_side() {
    let app = limited("max_qp_rd_atom=0,max_qp_init_rd_atom=4");
    let qp = app.qp(app.pd(), app.cq());
    let depths = |mask, initiated, served| {
        modify(&app, qp, |it| {
            it.attr_mask = mask;
            (it.max_rd_atomic, it.max_dest_rd_atomic) = (initiated, served);
        })
    };
    let (initiator, target) = (1 << 13, 1 << 17);
    assert_eq!(depths(initiator, 4, 16), None, "the mask leaves one out");
    assert_eq!(depths(initiator, 5, 0), Some(EINVAL));
    assert_eq!(depths(target, 16, 0), None);
    assert_eq!(depths(target, 0, 1), Some(EINVAL));
}

#[test]
fn rings_are_refused_by_their_size_as_libmlx5_rounds_it() {
    let app = limited("max_cqe=100,max_srq_wr=20,max_srq_sge=2");
    let cq = |cqe| errno(app.cq_command(cqe, &app.cq_driver()).send(&app.file));
    assert_eq!((cq(127), cq(128)), (None, Some(EINVAL)));
    let ring = app.cq();
    assert_eq!(errno(resize(&app, ring, 127)), None);
    assert_eq!(errno(resize(&app, ring, 128)), Some(EINVAL));
    let pd = app.pd();
    let srq = |wr, sge| errno(app.srq_command(pd, wr, sge).send(&app.file));
    assert_eq!((srq(31, 3), srq(31, 4)), (None, Some(EINVAL)));
    assert_eq!(srq(32, 2), Some(EINVAL));
    // What is granted is no more than the limit.
    let granted = |sge| {
        let made = app.srq_command(pd, 31, sge).send(&app.file).unwrap();
        made.u32(12)
    };
    assert_eq!((granted(1), granted(3)), (1, 2));
}

#[test]
fn regions_above_the_limit_are_refused() {
    let app = limited("max_mr_size=64");
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
