//! The sockets of RDMA netlink, and the interposed calls that send on them.
//!
//! The application's socket is a netlink socket of the family for user programs
//! (`NETLINK_USERSOCK`), so that binding, polling and receiving need no emulation. What
//! the application sends is not sent: a second socket of this process sends the replies
//! of [`crate::nldev`] to it. If the host has no such sockets, the application has no
//! RDMA netlink, and libibverbs reads sysfs.
//!
//! Decision: `docs/decisions/068-netlink-from-user-sockets.md`
#![allow(clippy::missing_safety_doc)] // each is libc's function, with its contract

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use libc::{EINVAL, EMSGSIZE, EPROTONOSUPPORT};

use super::calls::{Call, emulated, errno, run_call};
use super::session;
use crate::emulator::Emulator;
use crate::fabric::ports;
use crate::fork;
use crate::hidden::HiddenFile;
use crate::nldev::Nldev;
use crate::real;
use crate::runner::SignalsBlocked;
use crate::spec::{Errno, Result};
use crate::uverbs::{EmulatedFile, files};

/// All interposed functions of this file.
pub(super) const ALL: &[fn() -> Call] = &[|| send as Call, || sendto as Call, || sendmsg as Call];

/// `NETLINK_USERSOCK`.
const USER_SOCKETS: c_int = 2;
/// Maximum length of a request in bytes.
const MAX_REQUEST: usize = 65_536;

/// Opens a socket of RDMA netlink; `kind` is the type, with flags.
///
/// # Errors
/// `EPROTONOSUPPORT` if the host does not support it, as in a kernel without RDMA.
pub(super) fn open(kind: c_int) -> Result<RawFd> {
    if fork::is_outsider() {
        return Err(Errno(EPROTONOSUPPORT));
    }
    session::start_log();
    let application = new_socket(kind)?;
    let responder = new_socket(libc::SOCK_RAW | libc::SOCK_CLOEXEC)?;
    bind(responder.as_raw_fd())?;
    files().publish_netlink(application, Arc::new(HiddenFile::new(responder)))
}

fn new_socket(kind: c_int) -> Result<OwnedFd> {
    // SAFETY: numbers only.
    let fd = unsafe { real::socket(libc::AF_NETLINK, kind, USER_SOCKETS) };
    if fd < 0 {
        return Err(Errno(EPROTONOSUPPORT));
    }
    // SAFETY: the call above has just returned this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the address of a netlink socket: a number.
fn address(port_id: u32) -> libc::sockaddr_nl {
    // SAFETY: plain data, for which zeros are valid.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_pid = port_id;
    address
}

const ADDRESS_LEN: libc::socklen_t = size_of::<libc::sockaddr_nl>() as libc::socklen_t;

/// Gives a socket an address that the kernel chooses.
fn bind(fd: RawFd) -> Result<()> {
    let any = address(0);
    // SAFETY: an address of the given length.
    let status = unsafe { libc::bind(fd, (&raw const any).cast(), ADDRESS_LEN) };
    if status == 0 {
        Ok(())
    } else {
        Err(Errno(EPROTONOSUPPORT))
    }
}

/// Returns the address of the application's socket, which sending would bind.
fn port_id_of(fd: RawFd) -> Result<u32> {
    let read = || {
        let (mut own, mut len) = (address(0), ADDRESS_LEN);
        // SAFETY: room for an address, and its length.
        let status = unsafe { libc::getsockname(fd, (&raw mut own).cast(), &raw mut len) };
        if status == 0 {
            Ok(own.nl_pid)
        } else {
            Err(Errno(EINVAL))
        }
    };
    match read()? {
        0 => bind(fd).and_then(|()| read()),
        bound => Ok(bound),
    }
}

/// Handles what the application sends on a socket of RDMA netlink. Returns `None` for
/// other descriptors.
pub(super) fn take(fd: RawFd, request: impl FnOnce() -> Result<Vec<u8>>) -> Option<isize> {
    let responder = match emulated(fd)? {
        Ok(EmulatedFile::Netlink(responder)) => responder,
        Ok(EmulatedFile::Device(_) | EmulatedFile::Events(_) | EmulatedFile::Cm(_)) => return None,
        Err(error) => return Some(run_call(-1, || Err(error))),
    };
    Some(run_call(-1, || {
        let request = request()?;
        let config = session::config().ok_or(Errno(EINVAL))?;
        let port_id = port_id_of(fd)?;
        let backend = session::started();
        let nldev = Nldev {
            config,
            port_is_up: &|port| match &backend {
                Some(backend) => backend.port_is_up(port),
                None => !ports::switched_off(&config.fabric).contains(port),
            },
            counters: &|port| Emulator::counters(config, port),
            reports: &|| Emulator::reports(config),
        };
        let mut replies = VecDeque::from(nldev.reply(&request, port_id));
        while let Some(reply) = replies.front() {
            if !send_reply(&responder, port_id, reply, libc::MSG_DONTWAIT) {
                send_later(responder, port_id, replies);
                break;
            }
            replies.pop_front();
        }
        isize::try_from(request.len()).map_err(|_| Errno(EINVAL))
    }))
}

/// Sends a reply to the application's socket. Returns `false` if that is full.
fn send_reply(responder: &HiddenFile, port_id: u32, reply: &[u8], flags: c_int) -> bool {
    let to = address(port_id);
    // SAFETY: the reply and an address, with their lengths.
    let sent = unsafe {
        real::sendto(
            responder.as_raw_fd(),
            reply.as_ptr().cast(),
            reply.len(),
            flags,
            (&raw const to).cast(),
            ADDRESS_LEN,
        )
    };
    sent >= 0 || errno() != libc::EAGAIN
}

/// Sends the rest of a long list from a thread, as the application receives it. A kernel
/// makes the next part of a list when the application has received the one before.
fn send_later(responder: Arc<HiddenFile>, port_id: u32, replies: VecDeque<Vec<u8>>) {
    let _blocked = SignalsBlocked::new();
    let thread = std::thread::Builder::new().name("mlx5emu-netlink".into());
    // Without a thread, the rest is lost, and the application waits for it.
    let _ = thread.spawn(move || {
        // Ends early if the application closes its socket.
        for reply in replies {
            send_reply(&responder, port_id, &reply, 0);
        }
    });
}

/// Copies the buffers that the application sends.
///
/// # Safety
/// The buffers can be read.
unsafe fn gather(buffers: &[libc::iovec]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for buffer in buffers {
        if buffer.iov_len > MAX_REQUEST - bytes.len() {
            return Err(Errno(EMSGSIZE));
        }
        if buffer.iov_len > 0 {
            // SAFETY: the buffers are readable.
            bytes.extend(unsafe {
                std::slice::from_raw_parts(buffer.iov_base.cast::<u8>(), buffer.iov_len)
            });
        }
    }
    Ok(bytes)
}

/// Handles one buffer that the application sends; see [`take`].
///
/// # Safety
/// The buffer can be read.
pub(super) unsafe fn take_buffer(fd: RawFd, from: *const c_void, len: usize) -> Option<isize> {
    let buffer = libc::iovec {
        iov_base: from.cast_mut(),
        iov_len: len,
    };
    // SAFETY: the buffers are readable.
    take(fd, || unsafe { gather(&[buffer]) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the application's arguments.
    unsafe { take_buffer(fd, from, len).unwrap_or_else(|| real::send(fd, from, len, flags)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_len: libc::socklen_t,
) -> isize {
    // SAFETY: the application's arguments.
    unsafe {
        take_buffer(fd, from, len).unwrap_or_else(|| real::sendto(fd, from, len, flags, to, to_len))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    let request = || {
        // SAFETY: the application's argument, whose buffers it provides.
        unsafe {
            let message = message.as_ref().ok_or(Errno(libc::EFAULT))?;
            match message.msg_iovlen {
                0 => Ok(Vec::new()),
                count => gather(std::slice::from_raw_parts(message.msg_iov, count)),
            }
        }
    };
    // SAFETY: the application's arguments.
    take(fd, request).unwrap_or_else(|| unsafe { real::sendmsg(fd, message, flags) })
}
