//! Commands by `write()` on the command descriptor: a header with the lengths of the
//! parts, then the parts.
//!
//! The structure of `ib_user_verbs.h` begins with the address of the reply; an
//! extended command has that address in a second header. The driver's parts of
//! request and reply follow the core parts.

use std::sync::Arc;

use libc::{EFAULT, EINVAL, ENOSPC, EOPNOTSUPP};

use super::abi::{ExWriteHeader, WRITE_COMMAND_MASK, WRITE_EXTENDED, WriteHeader, request};
use super::context::DeviceFile;
use super::names;
use super::write_commands::{Buffer, WriteCommand, absent};
use super::write_table::{CommandSpec, has_driver_part};
use crate::log;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::Result;
use crate::user;

/// The number of commands in each table of the kernel: one more than `OPEN_QP` and
/// `EX_MODIFY_CQ`.
const COMMANDS: u32 = 41;
const EXTENDED_COMMANDS: u32 = 58;

const LENGTHS: &str = "the lengths in the request's header do not add up to its length";
const UNKNOWN: &str = "there is no command of this number";
const SHORT: &str = "the request, or the buffer for the reply, is too short";

impl DeviceFile {
    /// Handles `write(fd, address, count)`. Returns `count`.
    ///
    /// # Errors
    /// As in the kernel's `ib_uverbs_write`: `EINVAL` for inconsistent lengths or an
    /// unknown command, `EOPNOTSUPP` for a command that the device does not support,
    /// `ENOSPC` for a request or a reply buffer that is too short, `EFAULT`, `EIO` if
    /// the device has failed, and the command's own errors.
    pub fn write(self: &Arc<Self>, address: u64, count: usize) -> Result<usize> {
        log::observed("write", || self.write_command(address, count))
    }

    fn write_command(self: &Arc<Self>, address: u64, count: usize) -> Result<usize> {
        refuse_if(count < size_of::<WriteHeader>(), EINVAL, LENGTHS)?;
        self.check_alive()?;
        let header: WriteHeader = request(&user::copy_in(address, size_of::<WriteHeader>())?);
        log::name(|| names::write_name(header.command));
        let entry = known(header.command)?;
        let command = match entry {
            Some(entry) if header.command & WRITE_EXTENDED != 0 => {
                extended(&header, entry, address, count)?
            }
            Some(entry) => plain(&header, entry, address, count)?,
            // The kernel checks the length of these by the plain header.
            None if usize::from(header.in_words) * 4 != count => {
                return Err(refuse(EINVAL, LENGTHS));
            }
            None => return Err(absent(header.command)),
        };
        command.run(self)?;
        Ok(count)
    }
}

/// Returns a command by its number, or `None` if the device does not support it.
fn known(number: u32) -> Result<Option<&'static CommandSpec>> {
    let index = number & WRITE_COMMAND_MASK;
    refuse_if(
        number & !(WRITE_EXTENDED | WRITE_COMMAND_MASK) != 0,
        EINVAL,
        UNKNOWN,
    )?;
    match number & WRITE_EXTENDED != 0 {
        true if index >= EXTENDED_COMMANDS => Err(refuse(EOPNOTSUPP, UNKNOWN)),
        false if index >= COMMANDS => Err(refuse(EINVAL, UNKNOWN)),
        _ => Ok(CommandSpec::find(number)),
    }
}

fn plain(
    header: &WriteHeader,
    entry: &CommandSpec,
    address: u64,
    count: usize,
) -> Result<WriteCommand> {
    let (sent, requested) = (
        usize::from(header.in_words) * 4,
        usize::from(header.out_words) * 4,
    );
    refuse_if(sent != count, EINVAL, LENGTHS)?;
    let body = count - size_of::<WriteHeader>();
    refuse_if(
        body < entry.request || requested < entry.reply,
        ENOSPC,
        SHORT,
    )?;
    let bytes = user::copy_in(offset(address, size_of::<WriteHeader>())?, body)?;
    let udata = has_driver_part(header.command);
    let (core, driver) = bytes.split_at(if udata { entry.request } else { body });
    // Commands without a reply have no reply address either.
    let response = if entry.reply == 0 { 0 } else { request(core) };
    let core_len = if udata { entry.reply } else { requested };
    let driver_len = if entry.reply == 0 {
        0
    } else {
        requested - core_len
    };
    Ok(WriteCommand {
        number: header.command,
        core: core.to_vec(),
        driver: driver.to_vec(),
        core_reply: Buffer {
            address: response,
            len: core_len,
        },
        driver_reply: Buffer {
            address: response.wrapping_add(core_len as u64),
            len: driver_len,
        },
    })
}

fn extended(
    header: &WriteHeader,
    entry: &CommandSpec,
    address: u64,
    count: usize,
) -> Result<WriteCommand> {
    const HEADERS: usize = size_of::<WriteHeader>() + size_of::<ExWriteHeader>();
    refuse_if(count < HEADERS, EINVAL, LENGTHS)?;
    let after = offset(address, size_of::<WriteHeader>())?;
    let more: ExWriteHeader = request(&user::copy_in(after, size_of::<ExWriteHeader>())?);
    let bytes_of = |words: u16| usize::from(words) * 8;
    let (core_len, driver_len) = (bytes_of(header.in_words), bytes_of(more.provider_in_words));
    let core_room = bytes_of(header.out_words);
    let driver_room = bytes_of(more.provider_out_words);
    refuse_if(core_len + driver_len != count - HEADERS, EINVAL, LENGTHS)?;
    refuse_if(core_len < entry.request, ENOSPC, SHORT)?;
    let has_room = core_room + driver_room != 0;
    refuse_if(
        more.reserved != 0 || (more.response != 0) != has_room,
        EINVAL,
        "the reply has an address without a length, or a length without an address",
    )?;
    refuse_if(has_room && core_room < entry.reply, ENOSPC, SHORT)?;
    let mut core = user::copy_in(offset(address, HEADERS)?, core_len + driver_len)?;
    let driver = core.split_off(core_len);
    Ok(WriteCommand {
        number: header.command,
        core,
        driver,
        core_reply: Buffer {
            address: more.response,
            len: core_room,
        },
        driver_reply: Buffer {
            address: more.response.wrapping_add(core_room as u64),
            len: driver_room,
        },
    })
}

fn offset(address: u64, by: usize) -> Result<u64> {
    address.checked_add(by as u64).or_refuse(
        EFAULT,
        "the request does not end before the end of the address space",
    )
}
