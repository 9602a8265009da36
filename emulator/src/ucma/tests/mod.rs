//! Two processes of a host, whose packets the test carries.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod connections;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
#[cfg(test)]
mod garbage;
#[cfg(test)]
mod options;
#[cfg(test)]
mod resolving;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::abi::*;
use super::address::{Address, Family};
use super::agent::Ucma;
use super::file::CmFile;
use super::host::Host;
use super::network::Network;
use super::ports::{HostLocks, Ports};
use super::rdma_cm::{Parts, RdmaCm};
use super::services::Directory;
use crate::cm::Agent;
use crate::config::Config;
use crate::fabric::packet::{Destination, Packet, Transmit};
use crate::fabric::registry::Service;
use crate::spec::{Errno, Link, Nanos, Result};
use crate::sync::Mutex;

/// The address of the host besides its loopback addresses.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// An address of another host.
const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// An address without a route.
const UNROUTED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SECOND: Nanos = 1_000_000_000;

struct TestHost;

impl Host for TestHost {
    fn has(&self, ip: IpAddr, _scope: u32) -> bool {
        ip == HOST || ip.is_loopback()
    }

    fn source_for(&self, to: IpAddr, _scope: u32) -> std::result::Result<IpAddr, i32> {
        if to == UNROUTED {
            return Err(libc::ENETUNREACH);
        }
        Ok(HOST.into())
    }

    fn ephemeral_ports(&self) -> (u16, u16) {
        (40_000, 40_999)
    }

    fn may_use_low_ports(&self) -> bool {
        false
    }

    fn is_ipv6_only(&self) -> bool {
        false
    }
}

/// What the processes share.
#[derive(Default)]
struct Shared {
    services: HashMap<u8, Vec<Service>>,
    locks: Vec<(u8, Range<i64>, bool)>,
}

#[derive(Clone)]
struct Access {
    slot: u8,
    shared: Arc<Mutex<Shared>>,
}

impl Directory for Access {
    fn publish(&mut self, services: &[Service]) -> Result<()> {
        self.shared
            .lock()
            .services
            .insert(self.slot, services.to_vec());
        Ok(())
    }

    fn others(&self) -> Vec<(u8, Vec<Service>)> {
        let shared = self.shared.lock();
        let others = shared
            .services
            .iter()
            .filter(|(slot, _)| **slot != self.slot);
        others.map(|(slot, all)| (*slot, all.clone())).collect()
    }
}

impl HostLocks for Access {
    fn lock(&mut self, range: &Range<i64>, is_shared: bool) -> Result<Option<i64>> {
        let mut shared = self.shared.lock();
        let conflict = shared.locks.iter().find(|(slot, other, other_shared)| {
            let overlaps = other.start < range.end && range.start < other.end;
            *slot != self.slot && overlaps && !(is_shared && *other_shared)
        });
        let len = conflict.map(|(_, other, _)| other.end - other.start);
        if len.is_none() {
            shared.locks.push((self.slot, range.clone(), is_shared));
        }
        Ok(len)
    }

    fn unlock(&mut self, range: &Range<i64>) {
        let slot = self.slot;
        let is_same = |lock: &(u8, Range<i64>, bool)| lock.0 == slot && lock.1 == *range;
        self.shared.lock().locks.retain(|lock| !is_same(lock));
    }
}

/// The fabric.
#[derive(Default)]
struct Wire {
    queues: HashMap<u8, VecDeque<Packet>>,
    dead: Vec<u8>,
    /// Number of packets to lose from now on.
    lose: usize,
}

impl Transmit for Wire {
    fn has_room(&mut self, _: Destination) -> bool {
        true
    }

    fn send(&mut self, packet: Packet) -> std::result::Result<(), Packet> {
        if self.lose > 0 {
            self.lose -= 1;
            return Ok(());
        }
        let to = (packet.header.destination_qpn.0 >> 16) as u8;
        self.queues.entry(to).or_default().push_back(packet);
        Ok(())
    }

    fn generation_of(&mut self, slot: u8) -> Option<u32> {
        (slot != 0 && !self.dead.contains(&slot)).then_some(7)
    }
}

/// Two processes.
struct World {
    processes: Vec<Arc<Ucma>>,
    wire: Wire,
    now: Nanos,
}

/// An open file of one of them.
struct Channel {
    file: CmFile,
    fd: OwnedFd,
}

fn process(config: &Config, access: Access, resolve_time: Duration, seed: u64) -> RdmaCm {
    RdmaCm::new(Parts {
        slot: access.slot,
        network: Network::new(config, Arc::default()),
        host: Box::new(TestHost),
        ports: Ports::new(Box::new(access.clone()), (40_000, 40_999), seed),
        directory: Box::new(access),
        resolve_time,
        seed,
    })
}

impl World {
    fn new(link: Link) -> Self {
        Self::with(link, false, Duration::ZERO)
    }

    /// Returns processes whose messages to themselves may arrive at once, and whose routes
    /// take so long to resolve.
    fn with(link: Link, direct: bool, resolve_time: Duration) -> Self {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let config = Config {
            link,
            devices: 2,
            ..Config::default()
        };
        let process = |slot: u8| {
            let access = Access {
                slot,
                shared: Arc::clone(&shared),
            };
            let process = process(&config, access, resolve_time, slot.into());
            Arc::new(Ucma::new(process, Box::new(|| {}), direct))
        };
        Self {
            processes: vec![process(1), process(2)],
            wire: Wire::default(),
            now: 1,
        }
    }

    /// Opens a file of process 1 or 2, whose descriptor is non-blocking.
    fn open(&self, slot: usize) -> Channel {
        let (file, fd) = CmFile::open(&self.processes[slot - 1]).unwrap();
        // SAFETY: a plain call on a descriptor we own.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        Channel { file, fd }
    }

    /// Carries packets until there are none. Returns the next deadline.
    fn carry(&mut self) -> Option<Nanos> {
        loop {
            let mut next = Vec::new();
            for (index, process) in self.processes.iter().enumerate() {
                let slot = index as u8 + 1;
                if self.wire.dead.contains(&slot) {
                    continue;
                }
                let mut arrived = self.wire.queues.remove(&slot).unwrap_or_default().into();
                let progress = process.work(self.now, &mut arrived, &mut self.wire);
                next.extend(progress.next_deadline);
            }
            if self.wire.queues.values().all(VecDeque::is_empty) {
                return next.into_iter().min();
            }
        }
    }

    fn advance(&mut self, by: Nanos) {
        let end = self.now + by;
        while let Some(due) = self.carry().filter(|&due| due <= end) {
            self.now = due.max(self.now + 1);
        }
        self.now = end;
        self.carry();
    }

    /// Kills a process.
    fn kill(&mut self, slot: u8) {
        self.wire.dead.push(slot);
        self.wire.queues.remove(&slot);
    }
}

/// A handle that librdmacm would pass: an address, never 0.
const UID: u64 = 0x7000;

impl Channel {
    /// Writes a command. `room` is the length of the buffer for the reply.
    fn command(&self, number: u32, body: &[u8], room: usize) -> Result<()> {
        self.command_with(number, body, room, &|_| None)
    }

    fn command_with(
        &self,
        number: u32,
        body: &[u8],
        room: usize,
        find: &dyn Fn(i32) -> Option<Arc<CmFile>>,
    ) -> Result<()> {
        let header = Header {
            command: number,
            in_len: body.len() as u16,
            out_len: room as u16,
        };
        let bytes = [header.as_bytes(), body].concat();
        let at = (bytes.as_ptr() as u64, bytes.len());
        let written = self.file.write(at, find).inspect_err(|errno| {
            let reason = crate::refusal::reason(*errno);
            let is_unknown = reason.starts_with("the host refused");
            assert!(!is_unknown, "no sentence for {errno:?}, command {number}");
        })?;
        assert_eq!(written, bytes.len());
        Ok(())
    }

    /// Writes a command with a reply of type `T`, whose address `fill` puts into
    /// the command.
    fn ask<T: FromBytes + IntoBytes, C: IntoBytes + zerocopy::Immutable>(
        &self,
        number: u32,
        fill: impl FnOnce(u64) -> C,
    ) -> Result<T> {
        let mut reply = T::new_zeroed();
        let command = fill(reply.as_mut_bytes().as_mut_ptr() as u64);
        self.command(number, command.as_bytes(), size_of::<T>())?;
        Ok(reply)
    }

    fn create(&self, space: u16, uid: u64) -> Result<u32> {
        self.ask(command::CREATE_ID, |response| CreateId {
            uid,
            response,
            ps: space,
            qp_type: 2,
            reserved: [0; 5],
        })
    }

    fn destroy(&self, id: u32) -> Result<u32> {
        self.ask(command::DESTROY_ID, |response| DestroyId {
            response,
            id,
            reserved: 0,
        })
    }

    fn bind(&self, id: u32, to: &Address) -> Result<()> {
        let command = Bind {
            id,
            addr_size: to.size() as u16,
            reserved: 0,
            addr: storage(to),
        };
        self.command(command::BIND, command.as_bytes(), 0)
    }

    fn listen(&self, id: u32, backlog: u32) -> Result<()> {
        let command = Listen { id, backlog };
        self.command(command::LISTEN, command.as_bytes(), 0)
    }

    fn resolve(&self, id: u32, to: &Address) -> Result<()> {
        let command = ResolveAddr {
            id,
            timeout_ms: 2000,
            src_size: 0,
            dst_size: to.size() as u16,
            reserved: 0,
            src_addr: [0; STORAGE],
            dst_addr: storage(to),
        };
        self.command(command::RESOLVE_ADDR, command.as_bytes(), 0)
    }

    fn resolve_route(&self, id: u32) -> Result<()> {
        let timeout_ms = 2000;
        let command = ResolveRoute { id, timeout_ms };
        self.command(command::RESOLVE_ROUTE, command.as_bytes(), 0)
    }

    fn connect(&self, id: u32, conn_param: ConnParam) -> Result<()> {
        let command = Connect {
            conn_param,
            id,
            reserved: 0,
            ece: EceParam {
                vendor_id: 5,
                attr_mod: 6,
            },
        };
        self.command(command::CONNECT, command.as_bytes(), 0)
    }

    fn accept(&self, id: u32, uid: u64, conn_param: ConnParam) -> Result<()> {
        let command = Accept {
            uid,
            conn_param,
            id,
            reserved: 0,
            ece: EceParam::new_zeroed(),
        };
        self.command(command::ACCEPT, command.as_bytes(), 0)
    }

    fn reject(&self, id: u32, data: &[u8]) -> Result<()> {
        let mut command = Reject::new_zeroed();
        command.id = id;
        command.private_data[..data.len()].copy_from_slice(data);
        command.private_data_len = data.len() as u8;
        self.command(command::REJECT, command.as_bytes(), 0)
    }

    fn disconnect(&self, id: u32) -> Result<()> {
        self.command(command::DISCONNECT, id.as_bytes(), 0)
    }

    fn attributes(&self, id: u32, qp_state: u32) -> Result<QpAttr> {
        self.ask(command::INIT_QP_ATTR, |response| InitQpAttr {
            response,
            id,
            qp_state,
        })
    }

    fn addresses(&self, id: u32, option: u32) -> Result<AddrReply> {
        self.ask(command::QUERY, |response| Query {
            response,
            id,
            option,
        })
    }

    fn get_event(&self) -> Result<EventReply> {
        self.ask(command::GET_EVENT, |response| GetEvent { response })
    }

    /// Takes an event, which must be of this kind and for this handle.
    fn expect(&self, event: u32, uid: u64) -> EventReply {
        let reply = self.get_event().expect("an event");
        let got = (reply.event, reply.uid);
        assert_eq!(got, (event, uid), "status {}", reply.status.cast_signed());
        reply
    }

    fn is_readable(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// Returns a listening id on this port of all addresses.
    fn listener(&self, space: u16, port: u16) -> u32 {
        let id = self.create(space, UID).unwrap();
        self.bind(id, &at([0; 4], port)).unwrap();
        self.listen(id, 4).unwrap();
        id
    }

    /// Returns an id with a route to this port of the host.
    fn routed(&self, space: u16, port: u16) -> u32 {
        let id = self.create(space, UID).unwrap();
        self.resolve(id, &at(HOST.octets(), port)).unwrap();
        self.expect(event::ADDR_RESOLVED, UID);
        self.resolve_route(id).unwrap();
        self.expect(event::ROUTE_RESOLVED, UID);
        id
    }
}

const TCP: u16 = 0x106;
const UDP: u16 = 0x111;

fn at(ip: [u8; 4], port: u16) -> Address {
    Address::V4 {
        ip: ip.into(),
        port,
    }
}

fn storage(address: &Address) -> [u8; STORAGE] {
    let mut room = [0; STORAGE];
    room[..address.size()].copy_from_slice(&address.bytes());
    room
}

/// Returns connection parameters with these private data.
fn parameters(qp_num: u32, data: &[u8]) -> ConnParam {
    let mut param = ConnParam::new_zeroed();
    (param.qp_num, param.valid) = (qp_num, 1);
    (param.responder_resources, param.initiator_depth) = (3, 4);
    (param.retry_count, param.rnr_retry_count) = (7, 6);
    param.private_data[..data.len()].copy_from_slice(data);
    param.private_data_len = data.len() as u8;
    param
}

fn connection_of(reply: &EventReply) -> ConnParam {
    ConnParam::read_from_prefix(&reply.param).unwrap().0
}

fn datagram_of(reply: &EventReply) -> UdParam {
    UdParam::read_from_prefix(&reply.param).unwrap().0
}

/// An established connection: the channels and ids of both ends.
struct Established {
    active: (Channel, u32),
    passive: (Channel, u32),
    listener: u32,
}

/// The handle of the passive end.
const PASSIVE_UID: u64 = 0x8000;

/// Requests a connection that the server has not answered: the channels of client and server,
/// and the id of the request.
fn request(world: &mut World) -> (Channel, Channel, u32) {
    let (client, server) = (world.open(1), world.open(2));
    server.listener(TCP, 7471);
    let active = client.routed(TCP, 7471);
    client.connect(active, parameters(1, b"")).unwrap();
    world.carry();
    let passive = server.expect(event::CONNECT_REQUEST, UID).id;
    (client, server, passive)
}

fn establish(world: &mut World) -> Established {
    let (client, server) = (world.open(1), world.open(2));
    let listener = server.listener(TCP, 7471);
    let active = client.routed(TCP, 7471);
    client
        .connect(active, parameters(0x10005, b"hello"))
        .unwrap();
    world.carry();
    let passive = server.expect(event::CONNECT_REQUEST, UID).id;
    server
        .accept(passive, PASSIVE_UID, parameters(0x20007, b"welcome"))
        .unwrap();
    world.carry();
    client.expect(event::CONNECT_RESPONSE, UID);
    client.accept(active, 0, ConnParam::new_zeroed()).unwrap();
    world.carry();
    server.expect(event::ESTABLISHED, PASSIVE_UID);
    Established {
        active: (client, active),
        passive: (server, passive),
        listener,
    }
}
