//! Commands that create, modify, query and destroy objects, and their errors.

use libc::{EBADF, EBUSY, EFAULT, EINVAL, EIO, ENOENT, EOPNOTSUPP};
use zerocopy::{FromZeros, IntoBytes};

use super::fixtures::*;
use crate::spec::{Access, AsyncEvent, AsyncObject, Errno, EventSink, Service};
use crate::uverbs::abi::{
    DestroyCqResp, Mlx5CreateCq, Mlx5CreateQp, ModifyQp, ModifySrq, QpCap, QueryQpResp, RegMr,
    RegMrResp, ReregMr, ReregMrResp, UHW_OUT, method, object, request, write_command,
};
use crate::uverbs::files;

#[test]
fn uar_pages_are_mapped_one_by_one_and_reused() {
    let app = Application::new();
    let second = alloc_uar(&app.file).unwrap();
    let offset: u64 = request(&second.output(0x1002));
    assert_eq!(offset, u64::from(second.u32(0x1004)) * 4096);
    assert_eq!(
        app.file.check_page_mapping(offset, 4096).map(|it| it.page),
        Ok(second.u32(0x1004))
    );
    assert_eq!(
        app.file.check_page_mapping(offset, 8192),
        Err(Errno(EINVAL))
    );
    assert_eq!(
        app.file.check_page_mapping(0, 4096),
        Err(Errno(EINVAL)),
        "page 0 is never allocated"
    );
    assert_eq!(
        app.file.check_page_mapping(offset + 4096, 4096),
        Err(Errno(EINVAL))
    );
    let handle = second.id(0x1000);
    let destroy = || Command::new(object::MLX5_UAR, method::UAR_DESTROY).id(0x1000, handle);
    assert_eq!(errno(destroy().send(&app.file)), None);
    assert_eq!(
        app.recorder.calls.lock().removed_pages,
        [second.u32(0x1004)]
    );
    assert_eq!(errno(destroy().send(&app.file)), Some(ENOENT));
    assert_eq!(
        app.file.check_page_mapping(offset, 4096),
        Err(Errno(EINVAL))
    );
    assert_eq!(
        alloc_uar(&app.file).unwrap().u32(0x1004),
        second.u32(0x1004),
        "reused"
    );
}

#[test]
fn a_cq_is_created_with_the_requested_attributes() {
    let app = Application::new();
    let channel = app.channel();
    let command = app
        .cq_command(100, &app.cq_driver())
        .id(3, channel.cast_unsigned());
    let response = command.send(&app.file).unwrap();
    assert_eq!(
        response.u32(6),
        127,
        "the number of CQEs is rounded up to a power of two, minus 1"
    );
    let spec = app.recorder.calls.lock().cq.unwrap();
    assert_eq!(
        (spec.buf, spec.cqe_count, spec.cqe_size),
        (app.buffer(), 128, 64)
    );
    assert_eq!((spec.user_handle, spec.uar.page), (0xc0de, app.page));
    assert_eq!(spec.channel, files().events(channel).ok());
    files().closed(channel);
    // SAFETY: the descriptor belongs to this test only.
    unsafe { libc::close(channel) };
}

#[test]
fn invalid_cq_attributes_are_refused() {
    let app = Application::new();
    let with = |change: fn(&mut Mlx5CreateCq)| {
        let mut driver = app.cq_driver();
        change(&mut driver);
        errno(app.cq_command(63, &driver).send(&app.file))
    };
    assert_eq!(with(|_| ()), None);
    assert_eq!(with(|it| it.cqe_size = 32), Some(EINVAL));
    assert_eq!(with(|it| it.flags |= 8), Some(EINVAL));
    assert_eq!(with(|it| it.reserved1 = 1), Some(EINVAL));
    assert_eq!(with(|it| it.cqe_comp_en = 1), Some(EOPNOTSUPP));
    assert_eq!(with(|it| it.uar_page_index = 4000), Some(EINVAL));
    assert_eq!(with(|it| it.buf_addr = 0x1000), Some(EFAULT));
    assert_eq!(with(|it| it.buf_addr += 8), Some(EINVAL));
    assert_eq!(with(|it| it.db_addr = 0), Some(EFAULT));
    let driver = app.cq_driver();
    assert_eq!(
        errno(app.cq_command(1 << 22, &driver).send(&app.file)),
        Some(EINVAL)
    );
    let command = app.cq_command(63, &driver).id(3, 0);
    assert_eq!(
        errno(command.send(&app.file)),
        Some(EBADF),
        "not a completion channel"
    );
    let command = app.cq_command(63, &driver).input(5, &4_u32.to_ne_bytes());
    assert_eq!(
        errno(command.send(&app.file)),
        Some(EINVAL),
        "unknown creation flag"
    );
}

#[test]
fn destroying_a_cq_returns_the_number_of_events_that_were_read() {
    let app = Application::new();
    let cq = app.cq();
    let spec = app.recorder.calls.lock().cq.unwrap();
    let object = AsyncObject::Cq(0xc0de);
    app.recorder
        .events
        .asynchronous(spec.context, AsyncEvent::CqErr, object);
    let mut record = [0_u8; 16];
    // SAFETY: `record` has the size of one event.
    let len = unsafe { libc::read(app.async_fd, record.as_mut_ptr().cast(), 16) };
    assert_eq!(len, 16);
    app.recorder
        .events
        .asynchronous(spec.context, AsyncEvent::CqErr, object);
    let response = app.destroy(object::CQ, method::CQ_DESTROY, cq, 8).unwrap();
    let reply: DestroyCqResp = request(&response.output(1));
    assert_eq!(
        (reply.comp_events_reported, reply.async_events_reported),
        (0, 1)
    );
}

#[test]
fn every_command_of_a_failed_device_returns_eio() {
    let app = Application::new();
    let (cq, other) = (app.cq(), Application::new());
    let context = app.recorder.calls.lock().cq.unwrap().context;
    let object = AsyncObject::Device;
    let fatal = AsyncEvent::DeviceFatal;
    app.recorder.events.asynchronous(context, fatal, object);
    let alloc = |app: &Application| {
        let alloc_pd = 3;
        errno(Command::write(alloc_pd, &[0; 8], 4).send(&app.file))
    };
    assert_eq!(alloc(&app), Some(EIO));
    let destroyed = app.destroy(object::CQ, method::CQ_DESTROY, cq, 8);
    assert_eq!(errno(destroyed), Some(EIO));
    assert_eq!(app.file.write(0x1000, 64), Err(Errno(EIO)));
    assert_ne!(alloc(&other), Some(EIO), "another device");
}

#[test]
fn a_qp_is_created_with_the_requested_attributes() {
    let app = Application::new();
    let (pd, cq) = (app.pd(), app.cq());
    let driver = app.qp_driver();
    let response = app.qp_command(pd, cq, 2, &driver).send(&app.file).unwrap();
    assert_eq!(
        request::<QpCap>(&response.output(13)).max_inline_data,
        64,
        "returned unchanged"
    );
    assert_eq!(
        response.u32(UHW_OUT),
        app.page,
        "the page of the doorbell register is returned"
    );
    let spec = app.recorder.calls.lock().qp.unwrap();
    assert_eq!(spec.service, Service::Rc);
    assert_eq!(
        (spec.rq_buf, spec.rq_wqe_count, spec.rq_stride_log2),
        (app.buffer(), 16, 5)
    );
    assert_eq!(
        (spec.sq_buf, spec.sq_wqebb_count),
        (app.buffer() + 16 * 32, 64)
    );
    assert_eq!(
        (spec.user_index, spec.cqe_version, spec.register.page.page),
        (9, 1, app.page)
    );
    assert!(spec.scatter_to_cqe && !spec.wq_signature && !spec.scatter_responses);
    let scatters_to_cqes = |flags: u32, signal_all: bool| {
        let mut driver = app.qp_driver();
        driver.flags |= flags;
        let mut command = app.qp_command(pd, cq, 2, &driver);
        if signal_all {
            command = command.input(10, &(1_u64 << 12).to_ne_bytes());
        }
        command.send(&app.file).unwrap();
        let qp = app.recorder.calls.lock().qp;
        qp.unwrap().scatter_responses
    };
    assert!(scatters_to_cqes(0, true), "all requests are signalled");
    assert!(
        scatters_to_cqes(1 << 8, false),
        "the driver has set the flag"
    );
}

#[test]
fn invalid_qp_attributes_are_refused() {
    let app = Application::new();
    let (pd, cq) = (app.pd(), app.cq());
    let with = |change: fn(&mut Mlx5CreateQp)| {
        let mut driver = app.qp_driver();
        change(&mut driver);
        errno(app.qp_command(pd, cq, 2, &driver).send(&app.file))
    };
    assert_eq!(with(|it| it.sq_wqe_count = 48), Some(EINVAL));
    assert_eq!(with(|it| it.sq_wqe_count = 1 << 16), Some(EINVAL));
    assert_eq!(with(|it| it.rq_wqe_shift = 10), Some(EINVAL));
    assert_eq!(with(|it| it.rq_wqe_shift = 40), Some(EINVAL));
    assert_eq!(with(|it| it.rq_wqe_shift = 3), Some(EINVAL));
    assert_eq!(with(|it| it.bfreg_index = 0), Some(EINVAL));
    assert_eq!(with(|it| it.flags = 0), Some(EINVAL));
    assert_eq!(with(|it| it.flags |= 1 << 4), Some(EINVAL), "DC");
    assert_eq!(with(|it| it.buf_addr = 0x1000), Some(EFAULT));
    let driver = app.qp_driver();
    let refused = |command: Command| errno(command.send(&app.file));
    assert_eq!(
        refused(app.qp_command(77, cq, 2, &driver)),
        Some(ENOENT),
        "no such PD"
    );
    assert_eq!(
        refused(app.qp_command(cq, cq, 2, &driver)),
        Some(EINVAL),
        "a CQ's handle is not a PD"
    );
    assert_eq!(
        refused(app.qp_command(pd, 77, 2, &driver)),
        Some(ENOENT),
        "no such CQ"
    );
    assert_eq!(
        refused(app.qp_command(pd, cq, 9, &driver)),
        Some(EOPNOTSUPP),
        "XRC"
    );
    // Multicast loopback blocking, stripping of VLANs, padding of writes.
    for (kind, flag, expected) in [
        (2, 1_u32 << 1, Some(EINVAL)),
        (4, 1 << 1, None),
        (4, 1 << 9, Some(EINVAL)),
        (4, 1 << 11, Some(EOPNOTSUPP)),
    ] {
        let command = app.qp_command(pd, cq, kind, &driver);
        let flags = command.input(10, &flag.to_ne_bytes());
        assert_eq!(refused(flags), expected, "creation flag {flag} of {kind}");
    }
}

#[test]
fn objects_in_use_cannot_be_destroyed() {
    let app = Application::new();
    let (pd, cq) = (app.pd(), app.cq());
    let qp = app.qp(pd, cq);
    assert_eq!(errno(app.dealloc_pd(pd)), Some(EBUSY));
    assert_eq!(
        errno(app.destroy(object::CQ, method::CQ_DESTROY, cq, 8)),
        Some(EBUSY)
    );
    assert_eq!(
        errno(app.destroy(object::QP, method::QP_DESTROY, qp, 4)),
        None
    );
    assert_eq!(
        errno(app.destroy(object::QP, method::QP_DESTROY, qp, 4)),
        Some(ENOENT)
    );
    assert_eq!(
        errno(app.destroy(object::CQ, method::CQ_DESTROY, pd, 8)),
        Some(EINVAL)
    );
    assert_eq!(
        errno(app.destroy(object::CQ, method::CQ_DESTROY, cq, 8)),
        None
    );
    assert_eq!(errno(app.dealloc_pd(pd)), None);
}

#[test]
fn a_qp_is_modified_and_queried() {
    let app = Application::new();
    let qp = app.qp(app.pd(), app.cq());
    let mut modify = ModifyQp::new_zeroed();
    modify.qp_handle = qp;
    modify.attr_mask = 1 | 1 << 5 | 1 << 7;
    modify.qp_state = 1;
    modify.port_num = 1;
    modify.dest.port_num = 1;
    modify.dest.dlid = 7;
    modify.dest_qp_num = 0x1234;
    let send = |request: &ModifyQp| {
        errno(Command::write(write_command::MODIFY_QP, request.as_bytes(), 0).send(&app.file))
    };
    assert_eq!(send(&modify), None);
    let calls = app.recorder.calls.lock().modified.unwrap();
    assert_eq!(
        (calls.mask, calls.state, calls.path.dlid, calls.dest_qpn),
        (0xa1, 1, 7, 0x1234)
    );
    let mut query = [0_u8; 16];
    query[8..12].copy_from_slice(&qp.to_ne_bytes());
    let response = Command::write(write_command::QUERY_QP, &query, 128)
        .send(&app.file)
        .unwrap();
    let reply: QueryQpResp = request(&response.output(1));
    assert_eq!(
        (reply.qp_state, reply.dest.dlid, reply.cap.max_recv_wr),
        (1, 7, 16)
    );

    let with = |change: fn(&mut ModifyQp)| {
        let mut changed = modify;
        change(&mut changed);
        send(&changed)
    };
    assert_eq!(with(|it| it.qp_handle = 99), Some(EINVAL));
    assert_eq!(with(|it| it.port_num = 2), Some(EINVAL));
    assert_eq!(with(|it| it.dest.port_num = 0), Some(EINVAL));
    assert_eq!(with(|it| it.qp_state = 7), Some(EINVAL));
    assert_eq!(
        with(|it| it.attr_mask |= 1 << 25),
        Some(EOPNOTSUPP),
        "rate limit"
    );
    let unknown = |it: &mut ModifyQp| it.qp_access_flags = 1 << 31 | 3 << 8 | 1;
    assert_eq!(with(unknown), None, "unknown flags are ignored");
}

#[test]
fn an_srq_has_a_limit_and_cannot_be_resized() {
    let app = Application::new();
    let pd = app.pd();
    let response = app.srq_command(pd, 100, 3).send(&app.file).unwrap();
    assert_eq!((response.u32(11), response.u32(12)), (127, 3));
    let spec = app.recorder.calls.lock().srq.unwrap();
    assert_eq!(
        (spec.wqe_count, spec.stride_log2, spec.user_index),
        (128, 6, 5)
    );
    let modify = |attr_mask, srq_limit| {
        let request = ModifySrq {
            srq_handle: response.id(0),
            attr_mask,
            max_wr: 500,
            srq_limit,
        };
        errno(Command::write(write_command::MODIFY_SRQ, request.as_bytes(), 0).send(&app.file))
    };
    assert_eq!(modify(1, 0), Some(EINVAL), "resize");
    assert_eq!(modify(3, 10), Some(EINVAL), "resize and limit");
    assert_eq!(modify(2, 128), Some(EINVAL), "limit above the length");
    assert_eq!(modify(2, 10), None);
    assert_eq!(app.recorder.calls.lock().limit, Some(10));
    let refused = |max_wr, max_sge| errno(app.srq_command(pd, max_wr, max_sge).send(&app.file));
    assert_eq!(refused(32_768, 1), Some(EINVAL));
    assert_eq!(refused(16, 32), Some(EINVAL));
    assert_eq!(errno(app.dealloc_pd(pd)), Some(EBUSY));
}

#[test]
fn memory_is_registered_with_the_requested_access() {
    let app = Application::new();
    let register = |hca_va, pd_handle, access_flags| {
        let request = RegMr {
            response: 0,
            start: 0x5008,
            length: 64,
            hca_va,
            pd_handle,
            access_flags,
        };
        Command::write(write_command::REG_MR, request.as_bytes(), 12).send(&app.file)
    };
    let pd = app.pd();
    // Relaxed ordering (1 << 20) and the other optional flags are hints.
    let response = register(0x9008, pd, 7 | 1 << 20 | 1 << 27).unwrap();
    let keys: RegMrResp = request(&response.output(1));
    assert_eq!(keys.lkey, keys.rkey);
    let spec = app.recorder.calls.lock().mr.unwrap();
    assert_eq!((spec.start, spec.length, spec.hca_va), (0x5008, 64, 0x9008));
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    assert_eq!(spec.access, rights);
    assert_eq!(
        errno(register(0x9000, pd, 1)),
        Some(EINVAL),
        "offsets differ"
    );
    assert_eq!(errno(register(0x5008, 55, 1)), Some(EINVAL), "no such PD");
    assert_eq!(
        errno(register(0x5008, pd, 1 << 15)),
        Some(EINVAL),
        "unknown access flag"
    );
    assert_eq!(errno(app.dealloc_pd(pd)), Some(EBUSY));
    let destroy = Command::new(object::MR, method::MR_DESTROY).id(0, keys.mr_handle);
    assert_eq!(errno(destroy.send(&app.file)), None);
    assert_eq!(errno(app.dealloc_pd(pd)), None);
}

#[test]
fn on_demand_paging_is_refused() {
    let app = Application::new();
    let mut request = RegMr::new_zeroed();
    (request.start, request.hca_va, request.length) = (0x5000, 0x5000, 64);
    (request.pd_handle, request.access_flags) = (app.pd(), 1 << 6);
    let command = Command::write(write_command::REG_MR, request.as_bytes(), 12);
    assert_eq!(errno(command.send(&app.file)), Some(EOPNOTSUPP));
}

#[test]
fn rereg_mr_changes_the_requested_attributes_and_keeps_the_keys() {
    let app = Application::new();
    let (first, second) = (app.pd(), app.pd());
    let mut request = RegMr::new_zeroed();
    (request.start, request.hca_va, request.length) = (0x5008, 0x9008, 64);
    (request.pd_handle, request.access_flags) = (first, 1);
    let response = Command::write(write_command::REG_MR, request.as_bytes(), 12).send(&app.file);
    let made: RegMrResp = crate::uverbs::abi::request(&response.unwrap().output(1));
    let rereg = |flags, change: &dyn Fn(&mut ReregMr)| {
        let mut request = ReregMr::new_zeroed();
        (request.mr_handle, request.flags) = (made.mr_handle, flags);
        change(&mut request);
        Command::write(write_command::REREG_MR, request.as_bytes(), 8).send(&app.file)
    };
    let refused = |flags, change: &dyn Fn(&mut ReregMr)| errno(rereg(flags, change));
    assert_eq!(refused(0, &|_| ()), Some(EINVAL), "nothing to change");
    assert_eq!(refused(8, &|_| ()), Some(EOPNOTSUPP), "unknown change flag");
    assert_eq!(
        refused(1, &|it| it.start = 1),
        Some(EINVAL),
        "offsets differ"
    );
    assert_eq!(
        refused(2, &|it| it.pd_handle = 77),
        Some(EINVAL),
        "no such PD"
    );
    assert_eq!(refused(4, &|it| it.access_flags = 1 << 15), Some(EINVAL));
    assert_eq!(refused(4, &|it| it.access_flags = 1 << 6), Some(EOPNOTSUPP));
    assert_eq!(refused(4, &|it| it.mr_handle = 99), Some(ENOENT));
    assert_eq!(refused(4, &|it| it.mr_handle = first), Some(EINVAL), "a PD");
    assert!(app.recorder.calls.lock().rereg.is_none());

    let response = rereg(4, &|it| it.access_flags = 7).unwrap();
    let keys: ReregMrResp = crate::uverbs::abi::request(&response.output(1));
    assert_eq!((keys.lkey, keys.rkey), (made.lkey, made.rkey));
    let changed = || app.recorder.calls.lock().rereg.unwrap();
    let (_, spec, moved) = changed();
    assert_eq!((spec.start, spec.length, spec.hca_va), (0x5008, 64, 0x9008));
    assert!(spec.access.contains(Access::REMOTE_READ) && moved);

    assert_eq!(refused(2, &|it| it.pd_handle = second), None);
    assert!(!changed().2, "the pages are unchanged");
    assert_eq!(
        errno(app.dealloc_pd(first)),
        None,
        "the PD has no objects any more"
    );
    assert_eq!(errno(app.dealloc_pd(second)), Some(EBUSY));

    let new_range = |it: &mut ReregMr| (it.start, it.hca_va, it.length) = (0x7010, 0x7010, 8);
    assert_eq!(refused(1, &new_range), None);
    let spec = changed().1;
    assert_eq!((spec.start, spec.length, spec.hca_va), (0x7010, 8, 0x7010));
    assert!(
        spec.access.contains(Access::REMOTE_READ),
        "the attributes of the previous change"
    );
}

#[test]
fn an_object_whose_reply_cannot_be_written_is_destroyed() {
    let app = Application::new();
    let no_reply = Command::new(object::DEVICE, method::DEVICE_INVOKE_WRITE)
        .input(2, &u64::from(write_command::ALLOC_PD).to_ne_bytes())
        .input(0, &[0; 8])
        .attribute(1, 4, 0x10);
    assert_eq!(errno(no_reply.send(&app.file)), Some(EFAULT));
    let (first, second) = (app.pd(), app.pd());
    assert_eq!(second, first + 1, "the handle is reused");
}
