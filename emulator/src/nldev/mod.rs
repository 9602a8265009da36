//! RDMA netlink (`NETLINK_RDMA`): the requests by which libibverbs finds devices and
//! `rdma`(8) shows them (`drivers/infiniband/core/nldev.c`).
//!
//! A request is bytes and so are its replies; [`crate::preload`] moves them. Devices,
//! ports, their counters, character devices and the settings of the subsystem can be read.
//! Nothing can be changed. Objects (`rdma resource`) are shown in `resources`.
//!
//! Decision: `docs/decisions/068-netlink-from-user-sockets.md`

mod message;
mod resources;
mod statistic;

use libc::{EINVAL, EOPNOTSUPP};

use self::message::{HEADER, Message, Request};
use self::resources::LISTINGS;
pub(crate) use self::resources::report;
use crate::config::{Config, Face};
use crate::fabric::counters::Row;
use crate::fork::first_index;
use crate::log;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::{Link, PortAddress, Result};
use crate::sysfs::{
    DEVICE_MAJOR, FIRMWARE, FIRST_MINOR, RDMA_CM, RDMA_CM_ABI, RDMA_CM_NAME, device_file,
    device_name, interface_index,
};

/// `NLMSG_ERROR`, `NLMSG_DONE` and the flags of a message (<linux/netlink.h>).
const ERROR: u16 = 2;
const DONE: u16 = 3;
const FLAG_REQUEST: u16 = 1;
const FLAG_MULTI: u16 = 2;
const FLAG_ACK: u16 = 4;
const FLAG_DUMP: u16 = 0x300;

/// `RDMA_NL_NLDEV`, and its commands (<rdma/rdma_netlink.h>).
const CLIENT: u16 = 5;
const GET: u16 = 1;
const PORT_GET: u16 = 5;
const SYS_GET: u16 = 6;
const RES_GET: u16 = 9;
const GET_CHARDEV: u16 = 15;
const STAT_GET: u16 = 17;
/// `RDMA_NLDEV_NUM_OPS` of Linux 6.1.
const COMMANDS: u16 = 25;

/// `RDMA_NLDEV_ATTR_*`.
mod attribute {
    pub(super) const DEV_INDEX: u16 = 1;
    pub(super) const DEV_NAME: u16 = 2;
    pub(super) const PORT_INDEX: u16 = 3;
    pub(super) const CAP_FLAGS: u16 = 4;
    pub(super) const FW_VERSION: u16 = 5;
    pub(super) const NODE_GUID: u16 = 6;
    pub(super) const SYS_IMAGE_GUID: u16 = 7;
    pub(super) const SUBNET_PREFIX: u16 = 8;
    pub(super) const LID: u16 = 9;
    pub(super) const SM_LID: u16 = 10;
    pub(super) const LMC: u16 = 11;
    pub(super) const PORT_STATE: u16 = 12;
    pub(super) const PORT_PHYS_STATE: u16 = 13;
    pub(super) const DEV_NODE_TYPE: u16 = 14;
    pub(super) const RES_SUMMARY: u16 = 15;
    pub(super) const RES_SUMMARY_ENTRY: u16 = 16;
    pub(super) const RES_SUMMARY_ENTRY_NAME: u16 = 17;
    pub(super) const RES_SUMMARY_ENTRY_CURR: u16 = 18;
    pub(super) const RES_PID: u16 = 28;
    pub(super) const RES_SRC_ADDR: u16 = 33;
    pub(super) const RES_DST_ADDR: u16 = 34;
    pub(super) const NDEV_INDEX: u16 = 50;
    pub(super) const NDEV_NAME: u16 = 51;
    pub(super) const SYS_NETNS_MODE: u16 = 66;
    pub(super) const DEV_PROTOCOL: u16 = 67;
    pub(super) const CHARDEV_TYPE: u16 = 69;
    pub(super) const CHARDEV_NAME: u16 = 70;
    pub(super) const CHARDEV_ABI: u16 = 71;
    pub(super) const CHARDEV: u16 = 72;
    pub(super) const UVERBS_DRIVER_ID: u16 = 73;
    pub(super) const STAT_MODE: u16 = 74;
    pub(super) const STAT_RES: u16 = 75;
    pub(super) const STAT_HWCOUNTERS: u16 = 80;
    pub(super) const STAT_HWCOUNTER_ENTRY: u16 = 81;
    pub(super) const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
    pub(super) const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
    pub(super) const DEV_DIM: u16 = 84;
    pub(super) const MIN_RANGE: u16 = 91;
    pub(super) const MAX_RANGE: u16 = 92;
    pub(super) const SYS_COPY_ON_FORK: u16 = 93;
}

/// `RDMA_NODE_IB_CA` and `RDMA_DRIVER_MLX5`.
const NODE_CA: u8 = 1;
const DRIVER_MLX5: u32 = 1;

/// The devices that netlink shows.
pub(crate) struct Nldev<'a> {
    pub(crate) config: &'a Config,
    pub(crate) port_is_up: &'a dyn Fn(PortAddress) -> bool,
    pub(crate) counters: &'a dyn Fn(PortAddress) -> Row,
    /// Returns what the running processes report of their objects.
    pub(crate) reports: &'a dyn Fn() -> Vec<Vec<u8>>,
}

impl Nldev<'_> {
    /// Returns the replies to a datagram of requests from the socket with address
    /// `port_id`, each a datagram.
    pub(crate) fn reply(&self, mut requests: &[u8], port_id: u32) -> Vec<Vec<u8>> {
        let mut replies = Vec::new();
        while let Some(request) = Request::parse(requests) {
            replies.extend(self.reply_to(&request, port_id));
            let next = request.bytes.len().next_multiple_of(4);
            requests = requests.get(next..).unwrap_or(&[]);
        }
        replies
    }

    fn reply_to(&self, request: &Request, port_id: u32) -> Vec<Vec<u8>> {
        let flags = request.flags();
        if flags & FLAG_REQUEST == 0 {
            return Vec::new();
        }
        let dumps = flags & FLAG_DUMP != 0;
        let of_replies = if dumps { FLAG_MULTI } else { 0 };
        let begin = |kind| Message::new(kind, of_replies, request.sequence(), port_id);
        let done = log::observed("netlink", || {
            log::name(|| name(request.kind()));
            let messages = self.run(request, dumps, &|| begin(request.kind()))?;
            log::reply(|| format!("replies: {}", messages.len()));
            Ok(messages)
        });
        match done {
            Err(errno) => vec![error(request, -errno.0, port_id)],
            Ok(mut messages) => {
                if dumps {
                    messages.push(begin(DONE).bytes(&0_i32.to_ne_bytes()));
                }
                let mut replies: Vec<_> = messages.into_iter().map(Message::finish).collect();
                if !dumps && flags & FLAG_ACK != 0 {
                    replies.push(error(request, 0, port_id));
                }
                replies
            }
        }
    }

    fn run(
        &self,
        request: &Request,
        dumps: bool,
        begin: &dyn Fn() -> Message,
    ) -> Result<Vec<Message>> {
        let (client, command) = (request.kind() >> 10, request.kind() & 0x3ff);
        refuse_if(
            client != CLIENT || !(1..COMMANDS).contains(&command),
            EINVAL,
            "RDMA netlink has no request of this number here",
        )?;
        // Kernels without ioctls have no such requests either.
        let is_current = self.config.face == Face::Ioctl;
        let listing = LISTINGS.iter().find(|it| it.command == command);
        if let Some(listing) = listing.filter(|_| is_current) {
            return self.resources(listing, request, dumps, begin);
        }
        match command {
            GET if dumps => {
                let devices = 0..self.config.devices;
                Ok(devices.map(|it| self.device(it, begin())).collect())
            }
            GET => Ok(vec![self.device(self.named_device(request)?, begin())]),
            PORT_GET if dumps => {
                let device = self.named_device(request)?;
                let ports = 1..=self.config.ports;
                Ok(ports.map(|it| self.port(device, it, begin())).collect())
            }
            PORT_GET => {
                let PortAddress { device, port } = self.named_port(request)?;
                Ok(vec![self.port(device, port, begin())])
            }
            STAT_GET if is_current => self.statistic(request, dumps, begin),
            RES_GET => self.resource_counts(request, dumps, begin),
            SYS_GET if is_current => Ok(vec![
                // Devices are in all network namespaces. A fork copies pages that the
                // device accesses: it accesses them as the process does.
                begin()
                    .u8(attribute::SYS_NETNS_MODE, 1)
                    .u8(attribute::SYS_COPY_ON_FORK, 1),
            ]),
            GET_CHARDEV if is_current => self.character_device(request, begin()),
            SYS_GET | GET_CHARDEV | STAT_GET => Err(refuse(
                EINVAL,
                "kernels before Linux 4.20, as with --face write, do not have this request",
            )),
            _ => Err(refuse(
                EOPNOTSUPP,
                "the emulated RDMA netlink changes nothing, and does not show this",
            )),
        }
    }

    /// Returns the device that a request names by its index.
    fn named_device(&self, request: &Request) -> Result<u8> {
        let index = request.number(attribute::DEV_INDEX)?;
        let device = index.checked_sub(first_index());
        let device = device.and_then(|device| u8::try_from(device).ok());
        let device = device.filter(|device| *device < self.config.devices);
        device.or_refuse(EINVAL, "there is no device with this index")
    }

    /// Returns the port that a request names by its device and number.
    fn named_port(&self, request: &Request) -> Result<PortAddress> {
        let device = self.named_device(request)?;
        let port = u8::try_from(request.number(attribute::PORT_INDEX)?).ok();
        let port = port.filter(|port| (1..=self.config.ports).contains(port));
        let port = port.or_refuse(EINVAL, "the device has no port of this number")?;
        Ok(PortAddress { device, port })
    }

    /// Fills `fill_dev_info` of the kernel.
    fn device(&self, device: u8, message: Message) -> Message {
        let identity = self.config.identity(device);
        let guid = u64::from_be_bytes(identity.guid);
        let protocol = match self.config.link {
            Link::Ib => "ib",
            Link::Roce => "roce",
        };
        named(message, device)
            .u32(attribute::PORT_INDEX, self.config.ports.into())
            .u64(
                attribute::CAP_FLAGS,
                self.config.limits.capabilities().into(),
            )
            .string(attribute::FW_VERSION, FIRMWARE)
            .u64(attribute::NODE_GUID, guid)
            .u64(attribute::SYS_IMAGE_GUID, guid)
            .u8(attribute::DEV_NODE_TYPE, NODE_CA)
            .u8(attribute::DEV_DIM, 0)
            .string(attribute::DEV_PROTOCOL, protocol)
    }

    /// Fills `fill_port_info` of the kernel.
    fn port(&self, device: u8, port: u8, message: Message) -> Message {
        let identity = self.config.identity(device);
        let names = identity.port(port);
        let link = self.config.link;
        let mut message = named(message, device).u32(attribute::PORT_INDEX, port.into());
        if link == Link::Ib {
            let mut prefix = [0; 8];
            prefix.copy_from_slice(&names.gid[..8]);
            message = message
                .u64(attribute::CAP_FLAGS, link.port_capabilities().into())
                .u64(attribute::SUBNET_PREFIX, u64::from_be_bytes(prefix))
                .u32(attribute::LID, names.lid.into())
                .u32(attribute::SM_LID, 1)
                .u8(attribute::LMC, 0);
        }
        // Active and LinkUp; Down and Polling.
        let (state, physical) = match (self.port_is_up)(PortAddress { device, port }) {
            true => (4, 5),
            false => (1, 2),
        };
        message = message
            .u8(attribute::PORT_STATE, state)
            .u8(attribute::PORT_PHYS_STATE, physical);
        if link == Link::Roce {
            message = message
                .u32(
                    attribute::NDEV_INDEX,
                    names.interface.unwrap_or_else(interface_index),
                )
                .string(attribute::NDEV_NAME, self.config.interface_name(device));
        }
        message
    }

    /// Returns the device file of a device (`nldev_get_chardev`).
    fn character_device(&self, request: &Request, message: Message) -> Result<Vec<Message>> {
        let kind = request.attribute(attribute::CHARDEV_TYPE);
        let kind = kind.or_refuse(EINVAL, "the request names no type of character device")?;
        let kind = kind.strip_suffix(&[0]).unwrap_or(kind);
        let has_device = request.attribute(attribute::DEV_INDEX).is_some();
        let (message, (major, minor), abi, name) = if kind == b"uverbs" && has_device {
            let device = self.named_device(request)?;
            let number = (DEVICE_MAJOR, FIRST_MINOR + u32::from(device));
            let message = message.u32(attribute::UVERBS_DRIVER_ID, DRIVER_MLX5);
            (message, number, 1, device_file(device))
        } else if kind == RDMA_CM_NAME.as_bytes() && !has_device && self.config.rdma_cm {
            (message, RDMA_CM, RDMA_CM_ABI, RDMA_CM_NAME.into())
        } else {
            return Err(refuse(
                EOPNOTSUPP,
                "there are no character devices of this type; rdma_cm is not emulated (--no-rdma-cm)",
            ));
        };
        Ok(vec![
            message
                .u64(attribute::CHARDEV, u64::from(major << 8 | minor))
                .u64(attribute::CHARDEV_ABI, abi.into())
                .string(attribute::CHARDEV_NAME, &name),
        ])
    }
}

/// Appends the index and the name of a device (`fill_nldev_handle`).
fn named(message: Message, device: u8) -> Message {
    message
        .u32(attribute::DEV_INDEX, first_index() + u32::from(device))
        .string(attribute::DEV_NAME, &device_name(device))
}

/// Returns the name of a request.
fn name(kind: u16) -> String {
    match (kind >> 10, kind & 0x3ff) {
        (CLIENT, GET) => "NLDEV_GET".into(),
        (CLIENT, PORT_GET) => "NLDEV_PORT_GET".into(),
        (CLIENT, SYS_GET) => "NLDEV_SYS_GET".into(),
        (CLIENT, GET_CHARDEV) => "NLDEV_GET_CHARDEV".into(),
        (CLIENT, STAT_GET) => "NLDEV_STAT_GET".into(),
        (CLIENT, RES_GET) => "NLDEV_RES_GET".into(),
        (client, command) => format!("request {command} of client {client}"),
    }
}

/// Returns an acknowledgement, or an error with the whole request.
fn error(request: &Request, code: i32, port_id: u32) -> Vec<u8> {
    let shown = if code == 0 {
        &request.bytes[..HEADER]
    } else {
        request.bytes
    };
    Message::new(ERROR, 0, request.sequence(), port_id)
        .bytes(&code.to_ne_bytes())
        .bytes(shown)
        .finish()
}

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
