//! Commands by `write()`, and the doorbell registers that the kernel assigns.

use std::sync::Arc;

use libc::{EFAULT, EINVAL, ENODEV, ENOSPC, ENOTTY, EOPNOTSUPP};
use zerocopy::{FromZeros, IntoBytes};

use super::fixtures::*;
use crate::config::Face;
use crate::refusal;
use crate::spec::{Errno, Link, Result};
use crate::uverbs::abi::{
    CreateCq, CreateCqResp, CreateQp, CreateQpResp, ExQueryDeviceResp, ExWriteHeader,
    GetContextResp, HandleOnly, HandleRequest, Mlx5AllocUcontextResp, Mlx5CreateCq,
    Mlx5CreateCqResp, Mlx5CreateQp, Mlx5CreateQpResp, QueryPort, QueryPortResp, WriteHeader,
    request, write_command,
};
use crate::uverbs::{DeviceFile, files};

/// A command of the write interface, in the parts that libibverbs sends.
#[derive(Clone)]
struct WriteRequest {
    header: WriteHeader,
    extended: Option<ExWriteHeader>,
    body: Vec<u8>,
    reply: Vec<u8>,
}

impl WriteRequest {
    /// Returns a command. Its structure `core` begins with the address of the reply
    /// buffer, unless `reply_len` is 0.
    fn new(command: u32, core: &[u8], driver: &[u8], reply_len: usize) -> Self {
        let body = [core, driver].concat();
        Self {
            header: WriteHeader {
                command,
                in_words: u16::try_from((8 + body.len()) / 4).unwrap(),
                out_words: u16::try_from(reply_len / 4).unwrap(),
            },
            extended: None,
            body,
            reply: vec![0xee; reply_len],
        }
    }

    fn extended(command: u32, core: &[u8], reply_len: usize, driver_reply_len: usize) -> Self {
        let words = |bytes: usize| u16::try_from(bytes / 8).unwrap();
        Self {
            header: WriteHeader {
                command,
                in_words: words(core.len()),
                out_words: words(reply_len),
            },
            extended: Some(ExWriteHeader {
                response: 0,
                provider_in_words: 0,
                provider_out_words: words(driver_reply_len),
                reserved: 0,
            }),
            body: core.to_vec(),
            reply: vec![0xee; reply_len + driver_reply_len],
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sends the command. Returns the reply.
    fn send(mut self, file: &Arc<DeviceFile>) -> Result<Vec<u8>> {
        let response = self.reply.as_mut_ptr() as u64;
        match &mut self.extended {
            Some(extended) => extended.response = response,
            None if !self.reply.is_empty() => {
                self.body[..8].copy_from_slice(&response.to_ne_bytes());
            }
            None => {}
        }
        self.send_unchanged(file)
    }

    fn send_unchanged(self, file: &Arc<DeviceFile>) -> Result<Vec<u8>> {
        let mut bytes = self.header.as_bytes().to_vec();
        bytes.extend(self.extended.as_ref().map_or(&[][..], IntoBytes::as_bytes));
        bytes.extend(&self.body);
        let written = file.write(bytes.as_ptr() as u64, bytes.len())?;
        assert_eq!(written, bytes.len());
        Ok(self.reply)
    }
}

fn get_context(reply_len: usize) -> WriteRequest {
    let driver = context_structure(0, 3);
    WriteRequest::new(
        write_command::GET_CONTEXT,
        &[0; 8],
        driver.as_bytes(),
        reply_len,
    )
}

/// An application with a context on a kernel without ioctls.
struct WriteApplication {
    file: Arc<DeviceFile>,
    recorder: Arc<RecordingBackend>,
    context: Mlx5AllocUcontextResp,
    async_fd: i32,
    ring: Vec<[u64; 8]>,
}

impl WriteApplication {
    fn new() -> Self {
        let (file, recorder) = open_with(Link::Ib, Face::Write);
        let reply = get_context(8 + 72).send(&file).unwrap();
        let core: GetContextResp = request(&reply);
        assert_eq!(core.num_comp_vectors, 1);
        assert!(files().events(core.async_fd).is_ok());
        Self {
            file,
            recorder,
            context: request(&reply[8..]),
            async_fd: core.async_fd,
            ring: vec![[0; 8]; 4097],
        }
    }

    fn buffer(&self) -> u64 {
        (self.ring.as_ptr() as u64).next_multiple_of(64)
    }

    fn pd(&self) -> u32 {
        let alloc = WriteRequest::new(write_command::ALLOC_PD, &[0; 8], &[], 8);
        request(&alloc.send(&self.file).unwrap())
    }

    fn cq_command(&self) -> WriteRequest {
        let mut core = CreateCq::new_zeroed();
        core.cqe = 63;
        core.comp_channel = -1;
        let mut driver = Mlx5CreateCq::new_zeroed();
        driver.buf_addr = self.buffer();
        driver.db_addr = self.buffer();
        driver.cqe_size = 64;
        WriteRequest::new(
            write_command::CREATE_CQ,
            core.as_bytes(),
            driver.as_bytes(),
            16,
        )
    }

    fn qp_command(&self, pd: u32, cq: u32, change: impl FnOnce(&mut Mlx5CreateQp)) -> WriteRequest {
        let mut core = CreateQp::new_zeroed();
        (core.pd_handle, core.send_cq_handle, core.recv_cq_handle) = (pd, cq, cq);
        core.qp_type = 2;
        let mut driver = Mlx5CreateQp::new_zeroed();
        driver.buf_addr = self.buffer();
        driver.db_addr = self.buffer();
        driver.sq_wqe_count = 64;
        change(&mut driver);
        WriteRequest::new(
            write_command::CREATE_QP,
            core.as_bytes(),
            driver.as_bytes(),
            32 + 40,
        )
    }

    /// Creates a QP. Returns its handle and the number of its doorbell register.
    fn qp(&self, pd: u32, cq: u32) -> (u32, u32) {
        let reply = self.qp_command(pd, cq, |_| ()).send(&self.file).unwrap();
        let core: CreateQpResp = request(&reply);
        let driver: Mlx5CreateQpResp = request(&reply[32..]);
        (core.qp_handle, driver.bfreg_index)
    }

    fn destroy(&self, command: u32, handle: u32, reply_len: usize) -> Option<i32> {
        let mut core = HandleRequest::new_zeroed();
        core.handle = handle;
        errno(WriteRequest::new(command, core.as_bytes(), &[], reply_len).send(&self.file))
    }
}

impl Drop for WriteApplication {
    fn drop(&mut self) {
        files().closed(self.async_fd);
        // SAFETY: the descriptor belongs to this application only.
        unsafe { libc::close(self.async_fd) };
    }
}

fn errno<T>(result: Result<T>) -> Option<i32> {
    result.err().map(|errno| errno.0)
}

fn query_port(port_num: u8) -> WriteRequest {
    let mut core = QueryPort::new_zeroed();
    core.port_num = port_num;
    WriteRequest::new(write_command::QUERY_PORT, core.as_bytes(), &[], 40)
}

#[test]
fn a_context_by_write_has_doorbell_registers_and_an_event_file() {
    let app = WriteApplication::new();
    let context = &app.context;
    assert_eq!((context.tot_bfregs, context.num_dyn_bfregs), (16, 512));
    assert_eq!((context.log_uar_size, context.num_uars_per_page), (12, 1));
    assert_eq!(
        errno(get_context(80).send(&app.file)),
        Some(EINVAL),
        "a second context"
    );
}

#[test]
fn a_failed_context_leaves_nothing() {
    let (file, recorder) = open_with(Link::Ib, Face::Write);
    let no_reply_address = get_context(80).change(|it| it.body[..8].fill(0));
    assert_eq!(errno(no_reply_address.send_unchanged(&file)), Some(EFAULT));
    assert_eq!(recorder.calls.lock().closed.len(), 1);
    let with = |registers: u32, low_latency: u32| {
        let command = get_context(80).change(|it| {
            it.body[8..12].copy_from_slice(&registers.to_ne_bytes());
            it.body[12..16].copy_from_slice(&low_latency.to_ne_bytes());
        });
        errno(command.send(&file))
    };
    assert_eq!(with(0, 0), Some(EINVAL));
    assert_eq!(with(16, 16), Some(EINVAL));
    assert_eq!(with(514, 4), Some(libc::ENOMEM));
    assert_eq!(with(2, 1), None, "the file accepts a new context");
}

#[test]
fn a_kernel_without_ioctls_refuses_all_ioctls() {
    let app = WriteApplication::new();
    let ioctl = Command::new(0, 2).input(0, &[1; 8]).output(1, 48);
    assert_eq!(errno(ioctl.send(&app.file)), Some(ENOTTY));
    assert_eq!(errno(context_request(0, 3).send(&app.file)), Some(ENOTTY));
}

#[test]
fn a_kernel_with_ioctls_accepts_write_commands() {
    let (file, _) = open_with(Link::Ib, Face::Ioctl);
    let reply = get_context(80).send(&file).unwrap();
    let context: Mlx5AllocUcontextResp = request(&reply[8..]);
    assert_eq!(
        context.tot_bfregs, 0,
        "libmlx5 allocates its UAR pages itself"
    );
    let port: QueryPortResp = request(&query_port(1).send(&file).unwrap());
    assert_eq!(port.lid, 1);
    let fd: i32 = request(&reply);
    files().closed(fd);
    // SAFETY: the descriptor belongs to this test only.
    unsafe { libc::close(fd) };
}

#[test]
fn inconsistent_lengths_are_refused() {
    let app = WriteApplication::new();
    let refused =
        |change: fn(&mut WriteRequest)| errno(query_port(1).change(change).send(&app.file));
    assert_eq!(refused(|_| ()), None);
    assert_eq!(refused(|it| it.header.in_words -= 1), Some(EINVAL));
    assert_eq!(refused(|it| it.header.in_words += 1), Some(EINVAL));
    assert_eq!(
        refused(|it| it.header.out_words = 9),
        Some(ENOSPC),
        "the reply is too short"
    );
    let short = |it: &mut WriteRequest| {
        it.body.truncate(8);
        it.header.in_words = 4;
    };
    assert_eq!(refused(short), Some(ENOSPC), "the request is too short");
    let file = &app.file;
    let header = query_port(1).header;
    let address = header.as_bytes().as_ptr() as u64;
    assert_eq!(file.write(address, 7), Err(Errno(EINVAL)));
    assert_eq!(file.write(0x10, 8), Err(Errno(EFAULT)));
    assert_eq!(file.write(u64::MAX - 7, 24), Err(Errno(EFAULT)));
    let no_reply_address = query_port(1).send_unchanged(file);
    assert_eq!(errno(no_reply_address), Some(EFAULT), "no reply address");
}

#[test]
fn unsupported_commands_are_refused_as_in_the_kernel() {
    let app = WriteApplication::new();
    let error = |command, reply_len| {
        errno(WriteRequest::new(command, &[0; 16], &[], reply_len).send(&app.file))
    };
    for absent in [6, 7, 10, 12, 21, 23, 28, 30, 37, 40] {
        assert_eq!(error(absent, 8), Some(EOPNOTSUPP), "{absent}");
    }
    assert_eq!(
        (error(30, 8), refusal::reason(Errno(EOPNOTSUPP))),
        (Some(EOPNOTSUPP), "multicast is not emulated")
    );
    for impossible in [41, 255, 1 << 8, 1 << 24, 1 << 30] {
        assert_eq!(error(impossible, 8), Some(EINVAL), "{impossible:#x}");
    }
    let extended = |command| errno(WriteRequest::extended(command, &[0; 8], 8, 0).send(&app.file));
    // The length is checked as a plain header's, in shorter words.
    assert_eq!(extended(1 << 31 | 50), Some(EINVAL));
    assert_eq!(extended(1 << 31 | 58), Some(EOPNOTSUPP));
}

#[test]
fn extended_commands_have_a_second_header() {
    let app = WriteApplication::new();
    let query = |reply_len, driver| {
        WriteRequest::extended(write_command::EX_QUERY_DEVICE, &[0; 8], reply_len, driver)
    };
    let reply = query(304, 104).send(&app.file).unwrap();
    let device: ExQueryDeviceResp = request(&reply);
    assert_eq!(device.response_length, 304);
    let driver_length: u32 = request(&reply[304 + 4..]);
    assert!((8..=104).contains(&driver_length), "{driver_length}");
    let refused =
        |change: fn(&mut WriteRequest)| errno(query(304, 104).change(change).send(&app.file));
    let more = |it: &mut WriteRequest| it.extended.as_mut().unwrap().reserved = 1;
    assert_eq!(refused(more), Some(EINVAL));
    assert_eq!(refused(|it| it.header.in_words = 2), Some(EINVAL));
    let cut = |it: &mut WriteRequest| {
        it.header.in_words = 0;
        it.body.clear();
    };
    assert_eq!(refused(cut), Some(ENOSPC));
    assert_eq!(errno(query(64, 0).send(&app.file)), Some(ENOSPC));
    assert_eq!(
        errno(query(304, 0).send_unchanged(&app.file)),
        Some(EINVAL),
        "no reply address"
    );
    assert_eq!(
        errno(query(0, 0).send(&app.file)),
        Some(EINVAL),
        "the reply buffer is too short"
    );
    let bare = query(304, 104).header;
    let address = bare.as_bytes().as_ptr() as u64;
    assert_eq!(app.file.write(address, 8), Err(Errno(EINVAL)));
}

#[test]
fn commands_and_mappings_before_the_context_are_refused() {
    let (file, _) = open_with(Link::Ib, Face::Write);
    assert_eq!(errno(query_port(1).send(&file)), Some(EINVAL));
    assert_eq!(file.check_page_mapping(0, 4096), Err(Errno(ENODEV)));
}

#[test]
fn objects_are_created_and_destroyed_by_write() {
    let app = WriteApplication::new();
    let pd = app.pd();
    let reply = app.cq_command().send(&app.file).unwrap();
    let (cq, driver): (CreateCqResp, Mlx5CreateCqResp) = (request(&reply), request(&reply[8..]));
    assert_eq!(cq.cqe, 63);
    let calls = app.recorder.calls.lock().cq.unwrap();
    assert_eq!(calls.uar.page, 0, "the arm doorbell is on the first page");
    assert_ne!(driver.cqn, 0);
    let (qp, _) = app.qp(pd, cq.cq_handle);
    assert_eq!(
        app.destroy(write_command::DESTROY_CQ, cq.cq_handle, 8),
        Some(libc::EBUSY)
    );
    assert_eq!(app.destroy(write_command::DESTROY_QP, qp, 4), None);
    assert_eq!(
        app.destroy(write_command::DESTROY_CQ, cq.cq_handle, 8),
        None
    );
    let dealloc = |handle| {
        let core = HandleOnly { handle };
        errno(WriteRequest::new(write_command::DEALLOC_PD, core.as_bytes(), &[], 0).send(&app.file))
    };
    assert_eq!(dealloc(pd), None);
    assert_eq!(dealloc(pd), Some(libc::ENOENT));
}

#[test]
fn qps_are_assigned_registers_and_release_them() {
    let app = WriteApplication::new();
    let (pd, cq) = (app.pd(), app.cq_command().send(&app.file).unwrap());
    let cq = request(&cq);
    let made: Vec<_> = (0..6).map(|_| app.qp(pd, cq)).collect();
    let numbers: Vec<_> = made.iter().map(|qp| qp.1).collect();
    assert_eq!(numbers, [24, 25, 28, 29, 1, 4], "12 to 15, then 1 and 2");
    let calls = app.recorder.calls.lock().qp.unwrap();
    assert_eq!(
        (calls.register.page.page, calls.register.offset),
        (1, 0x800)
    );
    assert_eq!(app.destroy(write_command::DESTROY_QP, made[1].0, 4), None);
    assert_eq!(app.qp(pd, cq).1, 25);
    // A QP that cannot be created keeps no register.
    let refused = app.qp_command(pd, cq, |it| it.buf_addr = 64);
    assert_eq!(errno(refused.send(&app.file)), Some(EFAULT));
    assert_eq!(app.qp(pd, cq).1, 5, "register 3 is next");
}

#[test]
fn additional_registers_are_available_after_mapping_their_page() {
    let app = WriteApplication::new();
    let (pd, cq) = (app.pd(), app.cq_command().send(&app.file).unwrap());
    let on = |register| {
        let command = app.qp_command(pd, request(&cq), |driver| {
            driver.flags = 1 << 3;
            driver.bfreg_index = register;
        });
        command.send(&app.file)
    };
    assert_eq!(errno(on(0)), Some(EINVAL), "its page is not mapped");
    let mapped = |place: u64| {
        app.file
            .check_page_mapping(place * 4096, 4096)
            .map(|it| it.page)
    };
    assert_eq!(mapped(6 << 8), Ok(8));
    let reply = on(1).unwrap();
    let driver: Mlx5CreateQpResp = request(&reply[32..]);
    assert_eq!(driver.bfreg_index, 1 << 31);
    let calls = app.recorder.calls.lock().qp.unwrap();
    assert_eq!(
        (calls.register.page.page, calls.register.offset),
        (8, 0xa00)
    );
    assert_eq!(mapped(7), Ok(7));
    assert_eq!(mapped(3 << 8 | 7), Ok(7), "the same page, mapped uncached");
    assert_eq!(mapped(8), Err(Errno(EINVAL)));
}

#[test]
fn a_library_without_uar_allocation_is_assigned_registers_by_ioctl_too() {
    let (file, _) = open_with(Link::Ib, Face::Ioctl);
    let response = context_request(0, 1).send(&file).unwrap();
    let context: Mlx5AllocUcontextResp = request(&response.output(0x1001));
    assert_eq!(context.tot_bfregs, 16);
    assert_eq!(file.check_page_mapping(0, 4096).map(|it| it.page), Ok(0));
}

mod random_bytes {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{WriteApplication, WriteRequest};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn do_not_panic(bytes in vec(any::<u8>(), 0..300)) {
            let app = WriteApplication::new();
            let _ = app.file.write(bytes.as_ptr() as u64, bytes.len());
        }

        #[test]
        fn in_existing_commands_do_not_panic(
            number in 0..42_u32,
            core in vec(any::<u8>(), 8..160),
            reply_len in 0..200_usize,
        ) {
            let app = WriteApplication::new();
            let words = core.len() / 4 * 4;
            let _ = WriteRequest::new(number, &core[..words], &[], reply_len / 4 * 4).send(&app.file);
        }

        #[test]
        fn in_existing_extended_commands_do_not_panic(
            number in prop_oneof![Just(1_u32), Just(18), Just(24), Just(26)],
            core in vec(any::<u8>(), 8..160),
            reply_len in (0..400_usize, 0..120_usize),
        ) {
            let app = WriteApplication::new();
            let words = core.len() / 8 * 8;
            let (reply_len, driver) = (reply_len.0 / 8 * 8, reply_len.1 / 8 * 8);
            let _ = WriteRequest::extended(1 << 31 | number, &core[..words], reply_len, driver).send(&app.file);
        }
    }
}
