//! Commands of any bytes, and valid ones that are damaged.

#[path = "fixtures/mod.rs"]
#[allow(dead_code, reason = "the other fixtures are for the tests")]
mod fixtures;

use std::sync::Arc;

use self::fixtures::*;
use crate::config::Face;
use crate::fuzz_bytes::Bytes;
use crate::spec::Link;
use crate::uverbs::abi::{RDMA_VERBS_IOCTL, UHW_IN, UHW_OUT, method, object, write_command};
use crate::uverbs::{DeviceFile, files};

/// Descriptors that a run may open, and that are closed after it.
const DESCRIPTORS: i32 = 256;
/// The longest reply that a command by `write()` can ask for, in bytes.
const ROOM: usize = 16 * u16::MAX as usize;

/// Sends commands by ioctl or by `write()`: random ones, and those that create objects, of which
/// bytes are changed.
pub fn uverbs(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let form = bytes.u8();
    let lowest = lowest_free();
    match form & 1 {
        0 => by_ioctl(form, &mut bytes),
        _ => by_write(&mut bytes),
    }
    for fd in lowest..lowest + DESCRIPTORS {
        // SAFETY: fcntl(2) of any number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0 {
            files().closed(fd);
            // SAFETY: opened by a command of this run, for the application.
            unsafe { libc::close(fd) };
        }
    }
}

/// Returns the lowest number that no descriptor has.
fn lowest_free() -> i32 {
    // SAFETY: a new descriptor of standard error, closed at once.
    unsafe {
        let lowest = libc::dup(2);
        libc::close(lowest);
        lowest
    }
}

fn by_ioctl(form: u8, bytes: &mut Bytes<'_>) {
    let link = if form & 2 == 0 { Link::Ib } else { Link::Roce };
    let application = Application::with_link(link);
    let file = Arc::clone(&application.file);
    let (pd, cq) = (application.pd(), application.cq());
    let mut commands = 0;
    while !bytes.is_empty() && commands < 64 {
        commands += 1;
        let kind = bytes.u8() % 12;
        let mut command = match kind {
            0 => {
                let mut raw = bytes.take(200).to_vec();
                raw.resize(raw.len().max(24), 0);
                let _ = file.ioctl(RDMA_VERBS_IOCTL, raw.as_mut_ptr() as u64);
                continue;
            }
            1 => {
                let [object, method] = bytes.array();
                let high = if object & 0x80 == 0 { 0 } else { 0x1000 };
                let object = high | u16::from(object & 0x1f);
                let high = if method & 0x80 == 0 { 0 } else { 0x1000 };
                let mut command = Command::new(object, high | u16::from(method & 0x0f));
                for _ in 0..bytes.u8() % 16 {
                    command = attribute(command, bytes);
                }
                command
            }
            2 | 3 => {
                let number = u32::from(bytes.u8());
                let number = number & 0x3f | (number & 0x80) << 24;
                let [core, driver, reply] = bytes.array();
                let core = bytes.take(core.into());
                Command::write(number, core, reply.into())
                    .input(UHW_IN, bytes.take(driver.into()))
                    .output(UHW_OUT, 40)
            }
            4 => application.cq_command(bytes.u32(), &application.cq_driver()),
            5 => application.srq_command(pd, bytes.u32(), bytes.u8().into()),
            6 => application.qp_command(pd, cq, bytes.u8().into(), &application.qp_driver()),
            7 => Command::write(write_command::REG_MR, bytes.take(48), 12),
            8 => Command::write(write_command::MODIFY_QP, bytes.take(112), 0),
            9 => context_request(bytes.u32(), bytes.u64()),
            10 => {
                let id = bytes.u8();
                let object = [object::CQ, object::QP, object::SRQ, object::PD][usize::from(id & 3)];
                Command::new(object, method::QP_DESTROY)
                    .id(0, (id >> 2).into())
                    .output(1, 8)
            }
            _ => Command::new(object::ASYNC_EVENT, method::ASYNC_EVENT_ALLOC).id(0, 0),
        };
        for _ in 0..bytes.u8() % 5 {
            command.damage(bytes.array());
        }
        let _ = command.send(&file);
    }
}

/// Adds an attribute: a number or a handle, an input, or room for an output.
fn attribute(command: Command, bytes: &mut Bytes<'_>) -> Command {
    let [id, kind, len] = bytes.array();
    let id = u16::from(id & 0x1f) | if id & 0x80 == 0 { 0 } else { 0x1000 };
    let command = match kind % 4 {
        0 => command.id(id, bytes.u8().into()),
        1 => command.input(id, bytes.take(len.into())),
        2 => command.output(id, len.into()),
        _ => command.attribute(id, (len % 9).into(), bytes.u64()),
    };
    match kind & 0x80 {
        0 => command,
        _ => command.flags(bytes.u16()),
    }
}

fn by_write(bytes: &mut Bytes<'_>) {
    let (file, _recorder) = open_with(Link::Ib, Face::Write);
    let mut room = vec![0_u8; ROOM];
    let _ = send(&file, 0, &context(), &mut room);
    let mut commands = 0;
    while !bytes.is_empty() && commands < 64 {
        commands += 1;
        let [number, form, len, out] = bytes.array();
        let number = u32::from(number) & 0x3f | u32::from(number & 0x80) << 24;
        let body = bytes.take(usize::from(len) * 2);
        let mut whole = number.to_ne_bytes().to_vec();
        let is_extended = number >> 31 != 0;
        let unit = if is_extended { 8 } else { 4 };
        let head = if is_extended { 8 } else { 0 };
        let words = (8 + body.len() - head.min(8 + body.len())) / unit;
        let words = if form & 1 == 0 {
            words
        } else {
            bytes.u8().into()
        };
        whole.extend((words as u16).to_ne_bytes());
        whole.extend(u16::from(out).to_ne_bytes());
        whole.extend(body);
        // The reply: at the beginning of a structure, or in the second header.
        let address = (room.as_mut_ptr() as u64).to_ne_bytes();
        if let Some(place) = whole.get_mut(8..16).filter(|_| form & 2 == 0) {
            place.copy_from_slice(&address);
        }
        let _ = file.write(whole.as_ptr() as u64, whole.len());
    }
}

/// Returns the context request of libmlx5.
fn context() -> Vec<u8> {
    use zerocopy::IntoBytes;
    context_structure(0, 3).as_bytes().to_vec()
}

/// Sends a command with only a driver's part besides the address of the reply.
fn send(file: &Arc<DeviceFile>, number: u32, driver: &[u8], room: &mut [u8]) -> bool {
    let mut whole = number.to_ne_bytes().to_vec();
    let words = (16 + driver.len()) / 4;
    whole.extend((words as u16).to_ne_bytes());
    whole.extend(20_u16.to_ne_bytes());
    whole.extend((room.as_mut_ptr() as u64).to_ne_bytes());
    whole.extend(driver);
    file.write(whole.as_ptr() as u64, whole.len()).is_ok()
}
