//! The commands of `write()`: decoding, checks, replies.
//!
//! The kernel reads a command's structure whatever length the header gives. Here
//! a command that is shorter than its structure is `EINVAL`.

use std::os::fd::RawFd;

use libc::{EAGAIN, EBADF, EINTR, EINVAL, EIO, ENOENT, ENOSPC, ENOSYS, EOPNOTSUPP};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{self, command, query};
use super::address::Address;
use super::agent::Ucma;
use super::connect::Parameters;
use super::events::Content;
use super::ports::Space;
use super::query::SHORT_REPLY;
use super::rdma_cm::RdmaCm;
use super::text;
use crate::cm::RejReason;
use crate::log;
use crate::real;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::{Errno, Result};
use crate::user::{copy_in, copy_out};

/// The longest value of an option that is read. The kernel allows megabytes.
const LONGEST_OPTION: u32 = 64 << 10;

const CLOSED: &str = "the event channel was closed";
const SHORT: &str = "the command is shorter than its structure";
const UNKNOWN: &str = "there is no command of this number";
const RESERVED: &str = "a reserved field is not 0";

/// A command, and where its file is.
pub(super) struct Call<'a> {
    pub(super) ucma: &'a Ucma,
    pub(super) file: u64,
    /// The descriptor to wait on for events.
    pub(super) fd: RawFd,
    /// The length of the application's buffer for the reply.
    pub(super) room: usize,
    pub(super) body: Vec<u8>,
    /// Finds the file behind another descriptor.
    pub(super) find_file: &'a dyn Fn(RawFd) -> Result<u64>,
}

/// Executes the command at an address of the application. Returns the number of
/// bytes that were taken: all.
pub(super) fn execute(
    ucma: &Ucma,
    file: u64,
    fd: RawFd,
    (address, len): (u64, usize),
    find_file: &dyn Fn(RawFd) -> Result<u64>,
) -> Result<usize> {
    const HEADER: usize = size_of::<abi::Header>();
    log::observed("rdma_cm", || {
        refuse_if(len < HEADER, EINVAL, SHORT)?;
        let header: abi::Header = parse(&copy_in(address, HEADER)?)?;
        log::name(|| text::name(header.command));
        let in_len = usize::from(header.in_len);
        refuse_if(header.command > command::WRITE_CM_EVENT, EINVAL, UNKNOWN)?;
        refuse_if(
            in_len + HEADER > len,
            EINVAL,
            "the length in the header of the command is above that of the command",
        )?;
        let call = Call {
            ucma,
            file,
            fd,
            room: header.out_len.into(),
            body: copy_in(address + HEADER as u64, in_len)?,
            find_file,
        };
        log::request(|| text::request(header.command, &call.body));
        call.run(header.command)?;
        Ok(len)
    })
}

impl Call<'_> {
    fn run(&self, number: u32) -> Result<()> {
        match number {
            command::CREATE_ID => self.create_id(),
            command::DESTROY_ID => self.destroy_id(),
            command::BIND_IP => self.bind_ip(),
            command::BIND => self.bind(),
            command::RESOLVE_IP => self.resolve_ip(),
            command::RESOLVE_ADDR => self.resolve_addr(),
            command::RESOLVE_ROUTE => self.resolve_route(),
            command::QUERY_ROUTE => self.query_route(),
            command::QUERY => self.query(),
            command::CONNECT => self.connect(),
            command::LISTEN => self.listen(),
            command::ACCEPT => self.accept(),
            command::REJECT => self.reject(),
            command::DISCONNECT => self.disconnect(),
            command::INIT_QP_ATTR => self.init_qp_attr(),
            command::GET_EVENT => self.get_event(),
            command::SET_OPTION => self.set_option(),
            command::NOTIFY => self.notify(),
            command::MIGRATE_ID => self.migrate_id(),
            command::WRITE_CM_EVENT => self.write_event(),
            command::JOIN_IP_MCAST | command::JOIN_MCAST | command::LEAVE_MCAST => {
                Err(refuse(EOPNOTSUPP, "the emulated rdma_cm has no multicast"))
            }
            command::RESOLVE_IB_SERVICE => Err(refuse(
                EOPNOTSUPP,
                "there is no subnet manager that knows services",
            )),
            command::GET_OPTION => Err(refuse(ENOSYS, "no kernel has this command")),
            _ => Err(refuse(EINVAL, UNKNOWN)),
        }
    }

    fn request<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T> {
        parse(&self.body)
    }

    fn need_room(&self, len: usize) -> Result<()> {
        refuse_if(self.room < len, ENOSPC, SHORT_REPLY)
    }

    /// Writes a reply, as much of it as the application has room for.
    fn reply(&self, address: u64, reply: &[u8]) -> Result<()> {
        copy_out(address, &reply[..reply.len().min(self.room)])
    }

    fn with<T>(&self, work: impl FnOnce(&mut RdmaCm) -> Result<T>) -> Result<T> {
        self.ucma.with(work)
    }

    fn create_id(&self) -> Result<()> {
        self.need_room(size_of::<u32>())?;
        let request: abi::CreateId = self.request()?;
        let space = Space::from_number(request.ps).or_refuse(
            EINVAL,
            "the port space is none of RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB and RDMA_PS_IB",
        )?;
        let qp_type = match space {
            Space::Tcp => abi::qp_type::RC,
            Space::Udp | Space::Ipoib => abi::qp_type::UD,
            Space::Ib => request.qp_type,
        };
        let number = self.with(|state| {
            let id = state.new_id(self.file, request.uid, space, qp_type);
            Ok(state.add_id(id))
        })?;
        log::reply(|| format!("id {number}"));
        let done = self.reply(request.response, number.as_bytes());
        if done.is_err() {
            self.with(|state| Ok(state.destroy(number)))?;
        }
        done
    }

    fn destroy_id(&self) -> Result<()> {
        self.need_room(size_of::<u32>())?;
        let request: abi::DestroyId = self.request()?;
        let reported = self.with(|state| {
            state.owned(self.file, request.id)?;
            Ok(state.destroy(request.id))
        })?;
        log::reply(|| text::reported(reported));
        self.reply(request.response, reported.as_bytes())
    }

    fn bind_ip(&self) -> Result<()> {
        let request: abi::BindIp = self.request()?;
        let address = ip_address(&request.addr)?;
        self.bind_to(request.id, address)
    }

    fn bind(&self) -> Result<()> {
        let request: abi::Bind = self.request()?;
        refuse_if(request.reserved != 0, EINVAL, RESERVED)?;
        let address = sized_address(&request.addr, request.addr_size)?;
        self.bind_to(request.id, address)
    }

    fn bind_to(&self, id: u32, address: Address) -> Result<()> {
        self.with(|state| {
            state.id(self.file, id)?;
            state.bind(id, address)
        })
    }

    fn resolve_ip(&self) -> Result<()> {
        let request: abi::ResolveIp = self.request()?;
        let to = ip_address(&request.dst_addr)?;
        let from = match request.src_addr {
            [0, 0, ..] => None,
            ref given => Some(ip_address(given)?),
        };
        self.resolve(request.id, from, to, request.timeout_ms)
    }

    fn resolve_addr(&self) -> Result<()> {
        let request: abi::ResolveAddr = self.request()?;
        refuse_if(request.reserved != 0, EINVAL, RESERVED)?;
        let to = sized_address(&request.dst_addr, request.dst_size)?;
        let from = match request.src_size {
            0 => None,
            size => Some(sized_address(&request.src_addr, size)?),
        };
        self.resolve(request.id, from, to, request.timeout_ms)
    }

    fn resolve(&self, id: u32, from: Option<Address>, to: Address, timeout: u32) -> Result<()> {
        self.with(|state| {
            state.id(self.file, id)?;
            state.resolve_address(id, from, to, timeout)
        })
    }

    fn resolve_route(&self) -> Result<()> {
        let request: abi::ResolveRoute = self.request()?;
        self.with(|state| {
            state.id_with_port(self.file, request.id)?;
            state.resolve_route(request.id, request.timeout_ms)
        })
    }

    fn query_route(&self) -> Result<()> {
        let request: abi::Query = self.request()?;
        let reply = self.with(|state| state.query_route(self.file, request.id, self.room))?;
        self.reply(request.response, &reply)
    }

    fn query(&self) -> Result<()> {
        let request: abi::Query = self.request()?;
        let reply = self.with(|state| {
            state.id(self.file, request.id)?;
            match request.option {
                query::ADDR => state.query_addresses(self.file, request.id, self.room),
                query::PATH => state.query_paths(self.file, request.id, self.room),
                query::GID => state.query_gids(self.file, request.id, self.room),
                _ => Err(refuse(ENOSYS, "no kernel has a query of this number")),
            }
        })?;
        log::reply(|| text::queried(request.option, &reply));
        self.reply(request.response, &reply)
    }

    fn connect(&self) -> Result<()> {
        let request: abi::Connect = parse_without_ece(&self.body)?;
        refuse_if(
            request.conn_param.valid == 0,
            EINVAL,
            "the parameters of the connection are not marked as valid",
        )?;
        let with = Parameters::new(request.conn_param, request.ece);
        self.with(|state| {
            state.id_with_port(self.file, request.id)?;
            state.connect(request.id, &with)
        })
    }

    fn listen(&self) -> Result<()> {
        let request: abi::Listen = self.request()?;
        self.with(|state| {
            state.id(self.file, request.id)?;
            state.listen(request.id, request.backlog)
        })
    }

    fn accept(&self) -> Result<()> {
        let request: abi::Accept = parse_without_ece(&self.body)?;
        let with = Parameters::new(request.conn_param, request.ece);
        let with = (request.conn_param.valid != 0).then_some(&with);
        self.with(|state| {
            state.id_with_port(self.file, request.id)?;
            state.accept(request.id, request.uid, with)
        })
    }

    fn reject(&self) -> Result<()> {
        let request: abi::Reject = self.request()?;
        let reason = match u16::from(request.reason) {
            0 => RejReason::CONSUMER_DEFINED,
            reason => RejReason(reason),
        };
        let allowed = [
            RejReason::CONSUMER_DEFINED,
            RejReason::VENDOR_OPTION_NOT_SUPPORTED,
        ];
        refuse_if(
            !allowed.contains(&reason),
            EINVAL,
            "a program can give two reasons: consumer reject, and vendor option not supported",
        )?;
        let data = &request.private_data[..request.private_data_len.into()];
        self.with(|state| {
            state.id_with_port(self.file, request.id)?;
            state.reject(request.id, reason, data)
        })
    }

    fn disconnect(&self) -> Result<()> {
        let request: abi::IdOnly = self.request()?;
        self.with(|state| {
            state.id_with_port(self.file, request.id)?;
            state.disconnect(request.id)
        })
    }

    fn init_qp_attr(&self) -> Result<()> {
        self.need_room(size_of::<abi::QpAttr>())?;
        let request: abi::InitQpAttr = self.request()?;
        let attr = self
            .with(|state| state.queue_pair_attributes(self.file, request.id, request.qp_state))?;
        log::reply(|| format!("{attr:?}"));
        self.reply(request.response, attr.as_bytes())
    }

    fn notify(&self) -> Result<()> {
        let request: abi::Listen = self.request()?;
        self.with(|state| {
            state.id_with_port(self.file, request.id)?;
            state.notify_of_queue_pair(request.id, request.backlog)
        })
    }

    fn set_option(&self) -> Result<()> {
        let request: abi::SetOption = self.request()?;
        refuse_if(
            request.len > LONGEST_OPTION,
            EINVAL,
            "the value of the option is longer than 64 KiB",
        )?;
        self.with(|state| state.id(self.file, request.id).map(drop))?;
        let value = copy_in(request.value, request.len as usize)?;
        self.with(|state| state.set_option(self.file, &request, &value))
    }

    fn migrate_id(&self) -> Result<()> {
        let request: abi::MigrateId = self.request()?;
        let from = (self.find_file)(request.fd)?;
        let reported = self.with(|state| state.migrate(request.id, from, self.file))?;
        log::reply(|| text::reported(reported));
        self.reply(request.response, reported.as_bytes())
    }

    fn write_event(&self) -> Result<()> {
        let request: abi::WriteEvent = self.request()?;
        refuse_if(
            ![abi::event::USER, abi::event::INTERNAL].contains(&request.event),
            EINVAL,
            "a program can write RDMA_CM_EVENT_USER and RDMA_CM_EVENT_INTERNAL only",
        )?;
        self.with(|state| {
            state.id(self.file, request.id)?;
            let content = Content::Argument(request.argument);
            let status = request.status.cast_signed();
            state.notify(request.id, request.event, status, &content);
            Ok(())
        })
    }

    /// Waits for an event, unless the descriptor is non-blocking.
    fn get_event(&self) -> Result<()> {
        self.need_room(abi::SHORT_EVENT)?;
        let request: abi::GetEvent = self.request()?;
        loop {
            let taken = self.with(|state| {
                let queue = state.files.get(&self.file).or_refuse(EBADF, CLOSED)?;
                let Some(event) = queue.front() else {
                    return Ok(false);
                };
                log::reply(|| text::event(&event.reply));
                self.reply(request.response, event.reply.as_bytes())?;
                state.take_event(self.file);
                Ok(true)
            })?;
            if taken {
                return Ok(());
            }
            self.wait_for_byte()?;
        }
    }

    /// Reads a byte of the file's pipe, which there is for each event. A signal
    /// interrupts or restarts this as it does the kernel's wait.
    fn wait_for_byte(&self) -> Result<()> {
        let mut byte = 0u8;
        // SAFETY: room for one byte.
        let got = unsafe { real::read(self.fd, (&raw mut byte).cast(), 1) };
        match got {
            1 => self.with(|state| {
                if let Some(queue) = state.files.get_mut(&self.file) {
                    queue.byte_was_read();
                }
                Ok(())
            }),
            0 => Err(refuse(EBADF, CLOSED)),
            _ => {
                let error = std::io::Error::last_os_error();
                Err(match error.raw_os_error().unwrap_or(EIO) {
                    code @ EAGAIN => refuse(code, "no event is waiting"),
                    code @ EINTR => refuse(code, "a signal interrupted the wait for an event"),
                    code => Errno(code),
                })
            }
        }
    }
}

impl RdmaCm {
    /// Moves an id to another file. Returns the number of its events that the
    /// application has taken.
    fn migrate(&mut self, number: u32, from: u64, to: u64) -> Result<u32> {
        let id = self.id(from, number)?;
        id.file = to;
        let reported = id.events_reported;
        let events = match self.files.get_mut(&from) {
            Some(queue) => queue.take_events_of(number),
            None => Vec::new(),
        };
        if let Some(queue) = self.files.get_mut(&to) {
            events.into_iter().for_each(|event| queue.push(event));
        }
        Ok(reported)
    }
}

/// Returns the file behind a descriptor that is not one of rdma_cm.
///
/// # Errors
/// `ENOENT` if it is not open, otherwise `EINVAL`, as the kernel's `MIGRATE_ID`.
pub(super) fn not_a_file(fd: RawFd) -> Errno {
    // SAFETY: a plain call on any number.
    let is_open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    if is_open {
        refuse(
            EINVAL,
            "the file descriptor is not that of an event channel",
        )
    } else {
        refuse(ENOENT, "the file descriptor is not open")
    }
}

/// Reads an address in the room of a `sockaddr_in6`.
fn ip_address(bytes: &[u8; 28]) -> Result<Address> {
    let address = Address::parse(bytes).filter(|address| address.ip().is_some());
    address.or_refuse(EINVAL, "the address is neither IPv4 nor IPv6")
}

/// Reads an address whose size is given, and must be that of its family.
fn sized_address(bytes: &[u8; abi::STORAGE], size: u16) -> Result<Address> {
    let address = Address::parse(bytes);
    let address = address.or_refuse(EINVAL, "the address is none of IPv4, IPv6 and AF_IB")?;
    refuse_if(
        address.size() != usize::from(size),
        EINVAL,
        "the size of the address is not that of its family",
    )?;
    Ok(address)
}

/// Reads a structure from the beginning of a command.
///
/// # Errors
/// `EINVAL` if the command is too short.
pub(super) fn parse<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<T> {
    let read = T::read_from_prefix(bytes).or_refuse(EINVAL, SHORT)?;
    Ok(read.0)
}

/// Reads a command that ends in ECE, which old librdmacm does not send.
pub(super) fn parse_without_ece<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<T> {
    let mut bytes = bytes.to_vec();
    let least = size_of::<T>() - abi::ECE_LEN;
    refuse_if(bytes.len() < least, EINVAL, SHORT)?;
    if bytes.len() < size_of::<T>() {
        bytes.truncate(least);
        bytes.resize(size_of::<T>(), 0);
    }
    parse(&bytes)
}
