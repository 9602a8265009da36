//! Commands by plain `write`, and the registers that go with them.

use std::sync::Arc;

use libc::{EFAULT, EINVAL, ENODEV, ENOSPC, ENOTTY, EOPNOTSUPP};
use zerocopy::{FromZeros, IntoBytes};

use super::backend::Recorder;
use super::sender::{Command, context_request, context_structure, open_on};
use crate::config::{Face, Link};
use crate::nic::spec::{Errno, Result};
use crate::uverbs::abi::{
    CreateCq, CreateCqResp, CreateQp, CreateQpResp, ExQueryDeviceResp, ExWriteHeader,
    GetContextResp, HandleOnly, HandleRequest, Mlx5AllocUcontextResp, Mlx5CreateCq,
    Mlx5CreateCqResp, Mlx5CreateQp, Mlx5CreateQpResp, QueryPort, QueryPortResp, WriteHeader,
    request, write_command,
};
use crate::uverbs::{DeviceFile, FILES};

/// A command with its parts, as libibverbs lays them out.
#[derive(Clone)]
struct Write {
    header: WriteHeader,
    extended: Option<ExWriteHeader>,
    body: Vec<u8>,
    room: Vec<u8>,
}

impl Write {
    /// A command whose structure `core` begins with the address of a reply of
    /// `room` bytes, unless there is no reply.
    fn new(command: u32, core: &[u8], driver: &[u8], room: usize) -> Self {
        let body = [core, driver].concat();
        Self {
            header: WriteHeader {
                command,
                in_words: u16::try_from((8 + body.len()) / 4).unwrap(),
                out_words: u16::try_from(room / 4).unwrap(),
            },
            extended: None,
            body,
            room: vec![0xee; room],
        }
    }

    fn extended(command: u32, core: &[u8], room: usize, driver_room: usize) -> Self {
        let words = |bytes: usize| u16::try_from(bytes / 8).unwrap();
        Self {
            header: WriteHeader {
                command,
                in_words: words(core.len()),
                out_words: words(room),
            },
            extended: Some(ExWriteHeader {
                response: 0,
                provider_in_words: 0,
                provider_out_words: words(driver_room),
                reserved: 0,
            }),
            body: core.to_vec(),
            room: vec![0xee; room + driver_room],
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sends it; answers the reply.
    fn send(mut self, file: &Arc<DeviceFile>) -> Result<Vec<u8>> {
        let response = self.room.as_mut_ptr() as u64;
        match &mut self.extended {
            Some(extended) => extended.response = response,
            None if !self.room.is_empty() => {
                self.body[..8].copy_from_slice(&response.to_ne_bytes());
            }
            None => {}
        }
        self.send_as_it_is(file)
    }

    fn send_as_it_is(self, file: &Arc<DeviceFile>) -> Result<Vec<u8>> {
        let mut bytes = self.header.as_bytes().to_vec();
        bytes.extend(self.extended.as_ref().map_or(&[][..], IntoBytes::as_bytes));
        bytes.extend(&self.body);
        let written = file.write(bytes.as_ptr() as u64, bytes.len())?;
        assert_eq!(written, bytes.len());
        Ok(self.room)
    }
}

fn get_context(room: usize) -> Write {
    let driver = context_structure(0, 3);
    Write::new(write_command::GET_CONTEXT, &[0; 8], driver.as_bytes(), room)
}

/// A device of a kernel without ioctls, with its context.
struct Client {
    file: Arc<DeviceFile>,
    recorder: Arc<Recorder>,
    context: Mlx5AllocUcontextResp,
    asynchronous: i32,
    ring: Vec<[u64; 8]>,
}

impl Client {
    fn new() -> Self {
        let (file, recorder) = open_on(Link::Ib, Face::Write);
        let reply = get_context(8 + 72).send(&file).unwrap();
        let core: GetContextResp = request(&reply);
        assert_eq!(core.num_comp_vectors, 1);
        assert!(FILES.events(core.async_fd).is_ok());
        Self {
            file,
            recorder,
            context: request(&reply[8..]),
            asynchronous: core.async_fd,
            ring: vec![[0; 8]; 4097],
        }
    }

    fn buffer(&self) -> u64 {
        (self.ring.as_ptr() as u64).next_multiple_of(64)
    }

    fn pd(&self) -> u32 {
        let alloc = Write::new(write_command::ALLOC_PD, &[0; 8], &[], 8);
        request(&alloc.send(&self.file).unwrap())
    }

    fn cq_command(&self) -> Write {
        let mut core = CreateCq::new_zeroed();
        core.cqe = 63;
        core.comp_channel = -1;
        let mut driver = Mlx5CreateCq::new_zeroed();
        driver.buf_addr = self.buffer();
        driver.db_addr = self.buffer();
        driver.cqe_size = 64;
        Write::new(
            write_command::CREATE_CQ,
            core.as_bytes(),
            driver.as_bytes(),
            16,
        )
    }

    fn qp_command(&self, pd: u32, cq: u32, change: impl FnOnce(&mut Mlx5CreateQp)) -> Write {
        let mut core = CreateQp::new_zeroed();
        (core.pd_handle, core.send_cq_handle, core.recv_cq_handle) = (pd, cq, cq);
        core.qp_type = 2;
        let mut driver = Mlx5CreateQp::new_zeroed();
        driver.buf_addr = self.buffer();
        driver.db_addr = self.buffer();
        driver.sq_wqe_count = 64;
        change(&mut driver);
        Write::new(
            write_command::CREATE_QP,
            core.as_bytes(),
            driver.as_bytes(),
            32 + 40,
        )
    }

    /// {handle, number of the register} of a new QP.
    fn qp(&self, pd: u32, cq: u32) -> (u32, u32) {
        let reply = self.qp_command(pd, cq, |_| ()).send(&self.file).unwrap();
        let core: CreateQpResp = request(&reply);
        let driver: Mlx5CreateQpResp = request(&reply[32..]);
        (core.qp_handle, driver.bfreg_index)
    }

    fn destroy(&self, command: u32, handle: u32, room: usize) -> Option<i32> {
        let mut core = HandleRequest::new_zeroed();
        core.handle = handle;
        errno(Write::new(command, core.as_bytes(), &[], room).send(&self.file))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        FILES.closed(self.asynchronous);
        // SAFETY: the descriptor was answered to this client alone.
        unsafe { libc::close(self.asynchronous) };
    }
}

fn errno<T>(result: Result<T>) -> Option<i32> {
    result.err().map(|errno| errno.0)
}

fn query_port(port_num: u8) -> Write {
    let mut core = QueryPort::new_zeroed();
    core.port_num = port_num;
    Write::new(write_command::QUERY_PORT, core.as_bytes(), &[], 40)
}

#[test]
fn a_context_by_write_comes_with_registers_and_an_event_file() {
    let client = Client::new();
    let context = &client.context;
    assert_eq!((context.tot_bfregs, context.num_dyn_bfregs), (16, 512));
    assert_eq!((context.log_uar_size, context.num_uars_per_page), (12, 1));
    assert_eq!(
        errno(get_context(80).send(&client.file)),
        Some(EINVAL),
        "once"
    );
}

#[test]
fn a_context_that_cannot_be_leaves_nothing() {
    let (file, recorder) = open_on(Link::Ib, Face::Write);
    let nowhere = get_context(80).change(|it| it.body[..8].fill(0));
    assert_eq!(errno(nowhere.send_as_it_is(&file)), Some(EFAULT));
    assert_eq!(recorder.seen.lock().unwrap().closed.len(), 1);
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
    assert_eq!(with(2, 1), None, "the file is as good as new");
}

#[test]
fn a_kernel_without_ioctls_knows_none() {
    let client = Client::new();
    let ioctl = Command::new(0, 2).input(0, &[1; 8]).output(1, 48);
    assert_eq!(errno(ioctl.send(&client.file)), Some(ENOTTY));
    assert_eq!(
        errno(context_request(0, 3).send(&client.file)),
        Some(ENOTTY)
    );
}

#[test]
fn a_kernel_with_ioctls_takes_writes_as_well() {
    let (file, _) = open_on(Link::Ib, Face::Ioctl);
    let reply = get_context(80).send(&file).unwrap();
    let context: Mlx5AllocUcontextResp = request(&reply[8..]);
    assert_eq!(context.tot_bfregs, 0, "libmlx5 asks for its pages");
    let port: QueryPortResp = request(&query_port(1).send(&file).unwrap());
    assert_eq!(port.lid, 1);
    let fd: i32 = request(&reply);
    FILES.closed(fd);
    // SAFETY: the descriptor was answered to this test alone.
    unsafe { libc::close(fd) };
}

#[test]
fn lengths_that_lie_are_refused() {
    let client = Client::new();
    let refused = |change: fn(&mut Write)| errno(query_port(1).change(change).send(&client.file));
    assert_eq!(refused(|_| ()), None);
    assert_eq!(refused(|it| it.header.in_words -= 1), Some(EINVAL));
    assert_eq!(refused(|it| it.header.in_words += 1), Some(EINVAL));
    assert_eq!(
        refused(|it| it.header.out_words = 9),
        Some(ENOSPC),
        "reply cut"
    );
    let short = |it: &mut Write| {
        it.body.truncate(8);
        it.header.in_words = 4;
    };
    assert_eq!(refused(short), Some(ENOSPC), "request cut");
    let file = &client.file;
    let header = query_port(1).header;
    let address = header.as_bytes().as_ptr() as u64;
    assert_eq!(file.write(address, 7), Err(Errno(EINVAL)));
    assert_eq!(file.write(0x10, 8), Err(Errno(EFAULT)));
    assert_eq!(file.write(u64::MAX - 7, 24), Err(Errno(EFAULT)));
    let nowhere = query_port(1).send_as_it_is(file);
    assert_eq!(errno(nowhere), Some(EFAULT), "no address for the reply");
}

#[test]
fn commands_that_are_not_there_are_refused_as_by_a_kernel() {
    let client = Client::new();
    let answer = |command, room| errno(Write::new(command, &[0; 16], &[], room).send(&client.file));
    for absent in [6, 7, 10, 12, 21, 23, 28, 30, 37, 40] {
        assert_eq!(answer(absent, 8), Some(EOPNOTSUPP), "{absent}");
    }
    for impossible in [41, 255, 1 << 8, 1 << 24, 1 << 30] {
        assert_eq!(answer(impossible, 8), Some(EINVAL), "{impossible:#x}");
    }
    let extended = |command| errno(Write::extended(command, &[0; 8], 8, 0).send(&client.file));
    // Judged by the plain header, whose words are shorter.
    assert_eq!(extended(1 << 31 | 50), Some(EINVAL));
    assert_eq!(extended(1 << 31 | 58), Some(EOPNOTSUPP));
}

#[test]
fn extended_commands_have_a_second_header() {
    let client = Client::new();
    let query =
        |room, driver| Write::extended(write_command::EX_QUERY_DEVICE, &[0; 8], room, driver);
    let reply = query(304, 104).send(&client.file).unwrap();
    let device: ExQueryDeviceResp = request(&reply);
    assert_eq!(device.response_length, 304);
    let driver_length: u32 = request(&reply[304 + 4..]);
    assert!((8..=104).contains(&driver_length), "{driver_length}");
    let refused = |change: fn(&mut Write)| errno(query(304, 104).change(change).send(&client.file));
    let more = |it: &mut Write| it.extended.as_mut().unwrap().reserved = 1;
    assert_eq!(refused(more), Some(EINVAL));
    assert_eq!(refused(|it| it.header.in_words = 2), Some(EINVAL));
    let cut = |it: &mut Write| {
        it.header.in_words = 0;
        it.body.clear();
    };
    assert_eq!(refused(cut), Some(ENOSPC));
    assert_eq!(errno(query(64, 0).send(&client.file)), Some(ENOSPC));
    assert_eq!(
        errno(query(304, 0).send_as_it_is(&client.file)),
        Some(EINVAL),
        "no address"
    );
    assert_eq!(
        errno(query(0, 0).send(&client.file)),
        Some(EINVAL),
        "no room"
    );
    let bare = query(304, 104).header;
    let address = bare.as_bytes().as_ptr() as u64;
    assert_eq!(client.file.write(address, 8), Err(Errno(EINVAL)));
}

#[test]
fn nothing_is_done_or_mapped_before_the_context() {
    let (file, _) = open_on(Link::Ib, Face::Write);
    assert_eq!(errno(query_port(1).send(&file)), Some(EINVAL));
    assert_eq!(file.check_mapping(0, 4096), Err(Errno(ENODEV)));
}

#[test]
fn objects_live_and_die_by_write() {
    let client = Client::new();
    let pd = client.pd();
    let reply = client.cq_command().send(&client.file).unwrap();
    let (cq, driver): (CreateCqResp, Mlx5CreateCqResp) = (request(&reply), request(&reply[8..]));
    assert_eq!(cq.cqe, 63);
    let seen = client.recorder.seen.lock().unwrap().cq.unwrap();
    assert_eq!(seen.uar.page, 0, "armed on the first page");
    assert_ne!(driver.cqn, 0);
    let (qp, _) = client.qp(pd, cq.cq_handle);
    assert_eq!(
        client.destroy(write_command::DESTROY_CQ, cq.cq_handle, 8),
        Some(libc::EBUSY)
    );
    assert_eq!(client.destroy(write_command::DESTROY_QP, qp, 4), None);
    assert_eq!(
        client.destroy(write_command::DESTROY_CQ, cq.cq_handle, 8),
        None
    );
    let dealloc = |handle| {
        let core = HandleOnly { handle };
        errno(Write::new(write_command::DEALLOC_PD, core.as_bytes(), &[], 0).send(&client.file))
    };
    assert_eq!(dealloc(pd), None);
    assert_eq!(dealloc(pd), Some(libc::ENOENT));
}

#[test]
fn qps_are_told_their_registers_and_give_them_back() {
    let client = Client::new();
    let (pd, cq) = (client.pd(), client.cq_command().send(&client.file).unwrap());
    let cq = request(&cq);
    let made: Vec<_> = (0..6).map(|_| client.qp(pd, cq)).collect();
    let numbers: Vec<_> = made.iter().map(|qp| qp.1).collect();
    assert_eq!(numbers, [24, 25, 28, 29, 1, 4], "12 to 15, then 1 and 2");
    let seen = client.recorder.seen.lock().unwrap().qp.unwrap();
    assert_eq!((seen.register.page.page, seen.register.offset), (1, 0x800));
    assert_eq!(
        client.destroy(write_command::DESTROY_QP, made[1].0, 4),
        None
    );
    assert_eq!(client.qp(pd, cq).1, 25);
    // One that cannot be made keeps none.
    let refused = client.qp_command(pd, cq, |it| it.buf_addr = 64);
    assert_eq!(errno(refused.send(&client.file)), Some(EFAULT));
    assert_eq!(client.qp(pd, cq).1, 5, "register 3 is next");
}

#[test]
fn further_registers_come_by_mapping_their_page() {
    let client = Client::new();
    let (pd, cq) = (client.pd(), client.cq_command().send(&client.file).unwrap());
    let on = |register| {
        let command = client.qp_command(pd, request(&cq), |driver| {
            driver.flags = 1 << 3;
            driver.bfreg_index = register;
        });
        command.send(&client.file)
    };
    assert_eq!(errno(on(0)), Some(EINVAL), "its page is not mapped");
    let mapped = |place: u64| {
        client
            .file
            .check_mapping(place * 4096, 4096)
            .map(|it| it.page)
    };
    assert_eq!(mapped(6 << 8), Ok(8));
    let reply = on(1).unwrap();
    let driver: Mlx5CreateQpResp = request(&reply[32..]);
    assert_eq!(driver.bfreg_index, 1 << 31);
    let seen = client.recorder.seen.lock().unwrap().qp.unwrap();
    assert_eq!((seen.register.page.page, seen.register.offset), (8, 0xa00));
    assert_eq!(mapped(7), Ok(7));
    assert_eq!(mapped(3 << 8 | 7), Ok(7), "the same page, not cached");
    assert_eq!(mapped(8), Err(Errno(EINVAL)));
}

#[test]
fn a_library_that_asks_for_no_pages_gets_registers_by_ioctl_too() {
    let (file, _) = open_on(Link::Ib, Face::Ioctl);
    let answer = context_request(0, 1).send(&file).unwrap();
    let context: Mlx5AllocUcontextResp = request(&answer.output(0x1001));
    assert_eq!(context.tot_bfregs, 16);
    assert_eq!(file.check_mapping(0, 4096).map(|it| it.page), Ok(0));
}

mod any_bytes {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{Client, Write};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn are_answered(bytes in vec(any::<u8>(), 0..300)) {
            let client = Client::new();
            let _ = client.file.write(bytes.as_ptr() as u64, bytes.len());
        }

        #[test]
        fn in_real_commands_are_answered(
            number in 0..42_u32,
            core in vec(any::<u8>(), 8..160),
            room in 0..200_usize,
        ) {
            let client = Client::new();
            let words = core.len() / 4 * 4;
            let _ = Write::new(number, &core[..words], &[], room / 4 * 4).send(&client.file);
        }

        #[test]
        fn in_real_extended_commands_are_answered(
            number in prop_oneof![Just(1_u32), Just(18), Just(24), Just(26)],
            core in vec(any::<u8>(), 8..160),
            room in (0..400_usize, 0..120_usize),
        ) {
            let client = Client::new();
            let words = core.len() / 8 * 8;
            let (room, driver) = (room.0 / 8 * 8, room.1 / 8 * 8);
            let _ = Write::extended(1 << 31 | number, &core[..words], room, driver).send(&client.file);
        }
    }
}
