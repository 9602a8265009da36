//! Commands for memory windows, CQ resizing and CQ moderation.

use libc::{EBUSY, EFAULT, EINVAL, ENOENT, EOPNOTSUPP};
use zerocopy::{FromZeros, IntoBytes};

use super::fixtures::*;
use crate::spec::{CqBuffer, Result, WindowType};
use crate::uverbs::abi::{
    AllocMw, AllocMwResp, ExModifyCq, Mlx5AllocMw, Mlx5ResizeCq, ResizeCq, ResizeCqResp, UHW_IN,
    UHW_OUT, method, object, request, write_command,
};

fn alloc_mw(pd_handle: u32, mw_type: u8) -> Command {
    let request = AllocMw {
        response: 0,
        pd_handle,
        mw_type,
        reserved: [0; 3],
    };
    Command::write(write_command::ALLOC_MW, request.as_bytes(), 8)
}

fn destroy_mw(app: &Application, handle: u32) -> Result<Response> {
    let command = Command::new(object::MW, method::MW_DESTROY).id(0, handle);
    command.send(&app.file)
}

#[test]
fn a_window_has_a_pd_a_type_and_a_key() {
    let app = Application::new();
    let pd = app.pd();
    for (code, kind) in [(1, WindowType::One), (2, WindowType::Two)] {
        let response = alloc_mw(pd, code).send(&app.file).unwrap();
        let reply: AllocMwResp = request(&response.output(1));
        let spec = app.recorder.calls.lock().mw.unwrap();
        assert_eq!(spec.kind, kind);
        assert_ne!(reply.rkey, 0);
        assert_eq!(errno(app.dealloc_pd(pd)), Some(EBUSY));
        assert_eq!(errno(destroy_mw(&app, reply.mw_handle)), None);
        assert_eq!(errno(destroy_mw(&app, reply.mw_handle)), Some(ENOENT));
    }
    assert_eq!(errno(destroy_mw(&app, pd)), Some(EINVAL), "not a window");
    let response = alloc_mw(pd, 2).send(&app.file).unwrap();
    let reply: AllocMwResp = request(&response.output(1));
    let dealloc = reply.mw_handle.to_ne_bytes();
    let dealloc = Command::new(object::DEVICE, method::DEVICE_INVOKE_WRITE)
        .input(2, &u64::from(write_command::DEALLOC_MW).to_ne_bytes())
        .input(0, &dealloc);
    assert_eq!(errno(dealloc.send(&app.file)), None);
    assert_eq!(errno(app.dealloc_pd(pd)), None);
}

#[test]
fn invalid_window_attributes_are_refused() {
    let app = Application::new();
    let pd = app.pd();
    let refused = |pd, kind| errno(alloc_mw(pd, kind).send(&app.file));
    assert_eq!(refused(pd, 0), Some(EINVAL));
    assert_eq!(refused(pd, 3), Some(EINVAL));
    assert_eq!(refused(99, 1), Some(EINVAL));
    let with = |change: fn(&mut Mlx5AllocMw)| {
        let mut driver = Mlx5AllocMw::new_zeroed();
        change(&mut driver);
        let command = alloc_mw(pd, 1).input(UHW_IN, driver.as_bytes());
        errno(command.output(UHW_OUT, 8).send(&app.file))
    };
    assert_eq!(with(|_| ()), None);
    assert_eq!(with(|it| it.comp_mask = 1), Some(EOPNOTSUPP));
    assert_eq!(with(|it| it.reserved2 = 1), Some(EOPNOTSUPP));
    assert_eq!(with(|it| it.num_klms = 2), Some(EINVAL));
}

fn resize(app: &Application, cq_handle: u32, cqe: u32, driver: &Mlx5ResizeCq) -> Result<u32> {
    let requested = ResizeCq {
        response: 0,
        cq_handle,
        cqe,
    };
    let command = Command::write(write_command::RESIZE_CQ, requested.as_bytes(), 8);
    let response = command.input(UHW_IN, driver.as_bytes()).send(&app.file)?;
    let reply: ResizeCqResp = request(&response.output(1));
    Ok(reply.cqe)
}

#[test]
fn a_cq_is_resized_to_the_given_ring() {
    let app = Application::new();
    let cq = app.cq();
    let mut driver = Mlx5ResizeCq::new_zeroed();
    driver.buf_addr = app.buffer();
    driver.cqe_size = 64;
    assert_eq!(resize(&app, cq, 40, &driver), Ok(63), "the present size");
    assert_eq!(app.recorder.calls.lock().resized, None);
    assert_eq!(resize(&app, cq, 64, &driver), Ok(127));
    let to = CqBuffer {
        buf: app.buffer(),
        cqe_count: 128,
        cqe_size: 64,
    };
    assert_eq!(app.recorder.calls.lock().resized, Some(to));
    assert_eq!(
        resize(&app, cq, 127, &driver),
        Ok(127),
        "the new maximum is accepted"
    );
    let refused = |cq, cqe, change: fn(&mut Mlx5ResizeCq)| {
        let mut driver = driver;
        change(&mut driver);
        resize(&app, cq, cqe, &driver).err().map(|errno| errno.0)
    };
    assert_eq!(refused(cq, 0, |_| ()), Some(EINVAL));
    assert_eq!(refused(cq, 1 << 22, |_| ()), Some(EINVAL));
    assert_eq!(refused(cq + 1, 7, |_| ()), Some(EINVAL));
    assert_eq!(refused(cq, 7, |it| it.reserved0 = 1), Some(EINVAL));
    assert_eq!(refused(cq, 7, |it| it.cqe_size = 32), Some(EINVAL));
    assert_eq!(refused(cq, 7, |it| it.buf_addr += 4), Some(EINVAL));
    assert_eq!(refused(cq, 7, |it| it.buf_addr = 0x1000), Some(EFAULT));
}

#[test]
fn cq_moderation_is_accepted_within_its_limits() {
    let app = Application::new();
    let cq = app.cq();
    let with = |change: fn(&mut ExModifyCq)| {
        let mut requested = ExModifyCq {
            cq_handle: cq,
            attr_mask: 1,
            cq_count: 16,
            cq_period: 100,
            reserved: 0,
        };
        change(&mut requested);
        let command = Command::new(object::DEVICE, method::DEVICE_INVOKE_WRITE)
            .input(2, &u64::from(write_command::EX_MODIFY_CQ).to_ne_bytes())
            .input(0, requested.as_bytes());
        errno(command.send(&app.file))
    };
    assert_eq!(with(|_| ()), None);
    assert_eq!(with(|it| it.attr_mask = 0), Some(EINVAL));
    assert_eq!(with(|it| it.attr_mask = 2), Some(EOPNOTSUPP));
    assert_eq!(with(|it| it.cq_period = 4096), Some(EINVAL));
    assert_eq!(with(|it| it.reserved = 1), Some(EINVAL));
    assert_eq!(with(|it| it.cq_handle += 1), Some(EINVAL));
}
