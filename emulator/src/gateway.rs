//! Receiving for all processes of this host's addresses.
//!
//! Each launcher has a thread for it. The first one has the UDP ports; the others try to take
//! them over, so when a launcher ends, or is killed, the next one receives. A process may
//! stop or die at any moment without the others noticing.
//!
//! Decision: `docs/decisions/084-one-launcher-receives.md`

mod connections;

use std::io::{self, PipeReader, PipeWriter};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::connections::{Connections, LocalEnd};
use crate::cm::{self, Body, CommId, MANAGEMENT_QKEY, MANAGEMENT_QPN};
use crate::config::Config;
use crate::fabric::attachment::Attachment;
use crate::fabric::iba::network::{Global, UDP_PORT};
use crate::fabric::interfaces::Interface;
use crate::fabric::name::FabricName;
use crate::fabric::packet::{Header, Operation, OtherHosts, Packet};
use crate::fabric::registry::Registry;
use crate::log::warn;
use crate::nldev;
use crate::runner::configure_nic_thread;
use crate::spec::gid::gid_of_ip;
use crate::spec::{Qpn, Service, network};
use crate::ucma::listener_of;
use crate::udp::PREFIX;
use crate::udp::network::UdpNetwork;
use crate::udp::socket::{Received, Socket};

/// Interval at which ports that another launcher has are tried again.
const RETRY: Duration = Duration::from_millis(20);
/// How long another launcher may take to join the fabric after it has the port.
const JOINING: Duration = Duration::from_secs(3);
/// Interval at which it is checked whether a process with connections has been killed.
const CHECK: Duration = Duration::from_millis(250);
/// The longest datagram: the headers, the largest MTU and the checksum.
const LONGEST: usize = 12 + 40 + 4096 + 4;
/// Datagrams of a socket before it is the next one's turn.
const TURN: usize = 64;

/// The sockets that receive, as far as this launcher has them.
struct Gateway {
    fabric: FabricName,
    places: Vec<Place>,
    /// Joined with the first socket.
    joined: Option<Joined>,
    /// For messages of the communication manager, which belong to no queue pair of a process.
    network: UdpNetwork,
    bytes: Vec<u8>,
    /// Closed when the launcher ends.
    end: PipeReader,
}

/// A launcher that receives. When it is dropped, another one does, and connections of
/// processes that were killed end.
#[derive(Debug)]
pub struct Receiving {
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a launcher that receives has of the fabric.
struct Joined {
    attachment: Attachment,
    registry: Registry,
    connections: Connections,
    checked: Instant,
}

/// An address, and its socket if no other launcher has it.
struct Place {
    interface: Interface,
    address: IpAddr,
    socket: Option<Socket>,
    /// Another process of this user has the port.
    is_in_use: bool,
}

/// Begins to receive for the processes on the UDP wire. Does nothing on the local wire.
///
/// # Errors
/// Returns a sentence: another user or the kernel has the port, or there is no thread.
pub fn start(config: &Config) -> Result<Option<Receiving>, String> {
    if config.interfaces.is_empty() {
        return Ok(None);
    }
    let (end, ends) = io::pipe().map_err(|error| format!("cannot create a pipe: {error}"))?;
    let places = config.interfaces.iter().flat_map(|interface| {
        interface.addresses.iter().map(|&address| Place {
            interface: interface.clone(),
            address,
            socket: None,
            is_in_use: false,
        })
    });
    let mut gateway = Gateway {
        fabric: config.fabric.clone(),
        places: places.collect(),
        joined: None,
        network: UdpNetwork::new(config, Arc::default()),
        bytes: vec![0; LONGEST + 1],
        end,
    };
    gateway.begin()?;
    let thread = std::thread::Builder::new().name("mlx5emu-udp".into());
    let run = move || {
        configure_nic_thread();
        gateway.run();
    };
    let thread = thread.spawn(run);
    let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(Some(Receiving {
        end: Some(ends),
        thread: Some(thread),
    }))
}

impl Gateway {
    fn run(mut self) {
        loop {
            let mut fds = vec![readable(self.end.as_raw_fd())];
            let mut timeout = RETRY.as_millis() as i32;
            // Until it has joined, datagrams stay where they are.
            if let Some(joined) = &self.joined {
                let attachment = &joined.attachment;
                let sockets = self.places.iter().filter_map(|it| it.socket.as_ref());
                fds.extend(sockets.map(|socket| readable(socket.fd().as_raw_fd())));
                fds.push(readable(attachment.waker().fd().as_raw_fd()));
                attachment.waker().begin_sleep();
                if attachment.has_pending() {
                    timeout = 0;
                } else if self.places.iter().all(|place| place.socket.is_some()) {
                    timeout = match joined.connections.is_empty() {
                        true => -1,
                        false => CHECK.as_millis() as i32,
                    };
                }
            }
            // SAFETY: descriptors of this process, in a list of this length.
            unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
            for at in 0..self.places.len() {
                self.forward(at);
            }
            let is_over = fds[0].revents != 0;
            self.answer(is_over);
            if is_over {
                return;
            }
            if let Err(reason) = self.take_over() {
                warn("udp gateway", &reason);
            }
        }
    }

    /// Takes over for the first time. The others that receive must be on this fabric.
    fn begin(&mut self) -> Result<(), String> {
        let end = Instant::now() + JOINING;
        loop {
            self.bind()?;
            let mut missing = self.places.iter().filter(|place| place.is_in_use);
            missing
                .clone()
                .try_for_each(|it| refuse_others(it.address))?;
            let stranger = missing.next();
            match stranger.filter(|_| !Attachment::is_living(&self.fabric)) {
                None => return self.join(),
                Some(place) if Instant::now() > end => {
                    let address = place.address;
                    return Err(format!(
                        "UDP port {UDP_PORT} of {address} is in use, by another program or by an \
                         mlx5-emu that has another --wire or another /dev/shm: end it, or choose \
                         another address with --wire udp=ADDRESS"
                    ));
                }
                // Another launcher may have the port, and join at this moment.
                Some(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn take_over(&mut self) -> Result<(), String> {
        self.bind()?;
        self.join()
    }

    /// Binds the addresses that no other launcher of this user receives for.
    fn bind(&mut self) -> Result<(), String> {
        for place in &mut self.places {
            place.is_in_use = false;
            if place.socket.is_some() {
                continue;
            }
            match Socket::bind(&place.interface, place.address, UDP_PORT) {
                Ok(socket) => {
                    socket.enlarge_buffer();
                    place.socket = Some(socket);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    place.is_in_use = true;
                }
                // The address is gone, or not there yet.
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                Err(error) => {
                    let address = place.address;
                    return Err(format!(
                        "cannot receive on UDP port {UDP_PORT} of {address}: {error}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Joins the fabric, with the first socket.
    fn join(&mut self) -> Result<(), String> {
        let has_socket = self.places.iter().any(|place| place.socket.is_some());
        if has_socket && self.joined.is_none() {
            let attachment = Attachment::join(&self.fabric).map_err(|error| error.to_string())?;
            // It has no devices.
            attachment.waker().announce(0, 0);
            let registry = Registry::open(attachment.place()).map_err(|error| {
                format!("cannot read who listens on fabric {}: {error}", self.fabric)
            })?;
            self.joined = Some(Joined {
                attachment,
                registry,
                connections: Connections::default(),
                checked: Instant::now(),
            });
        }
        Ok(())
    }

    /// Passes the datagrams of an address on to the processes.
    fn forward(&mut self, at: usize) {
        let (Some(socket), Some(joined)) = (&self.places[at].socket, &mut self.joined) else {
            return;
        };
        for _ in 0..TURN {
            let Ok(Some(received)) = socket.receive(&mut self.bytes) else {
                break;
            };
            let bytes = &self.bytes[..received.len];
            let Some(qpn) = queue_pair(bytes).filter(|_| received.len <= LONGEST) else {
                continue;
            };
            let whole = [&prefix(socket.address(), &received)[..], bytes].concat();
            let slots = match qpn {
                MANAGEMENT_QPN => joined.receivers(&mut self.network, socket.address(), &whole),
                _ => 1_u64
                    .checked_shl((qpn.0 >> 16).wrapping_sub(1))
                    .unwrap_or(0),
            };
            let attachment = &mut joined.attachment;
            let own = attachment.slot();
            for slot in (1..=64_u8).filter(|slot| slots >> (slot - 1) & 1 == 1 && *slot != own) {
                // Without room it is lost, as on a wire.
                let _ = attachment.send(slot, &Packet::foreign(own, slot, whole.clone()));
            }
        }
        let wakes = joined.attachment.take_wakes();
        joined.attachment.waker().wake(wakes);
    }

    fn answer(&mut self, is_over: bool) {
        if let Some(joined) = &mut self.joined {
            joined.answer();
            if is_over || joined.checked.elapsed() >= CHECK {
                joined.end_dead(&mut self.network);
            }
        }
    }
}

impl Joined {
    /// Takes what other processes send to this one, which has no queue pairs, and answers
    /// requests for a report: it has no objects.
    fn answer(&mut self) {
        let attachment = &mut self.attachment;
        attachment.waker().end_sleep();
        attachment.waker().drain();
        let mut payload = Vec::new();
        let _ = (0..TURN).find(|_| attachment.receive(&mut payload).is_none());
        attachment.served();
        if attachment.waker().take_switched_ports().is_some() {
            attachment.report(&nldev::report(&[]));
        }
    }

    /// Ends the connections of processes that are not alive any more.
    fn end_dead(&mut self, network: &mut UdpNetwork) {
        self.checked = Instant::now();
        if self.connections.is_empty() {
            return;
        }
        let alive: Vec<_> = (0..=64)
            .map(|slot| self.attachment.live_generation(slot))
            .collect();
        let is_alive =
            |end: &LocalEnd| alive.get(usize::from(end.slot)) == Some(&Some(end.generation));
        for (peer, end, message) in self.connections.end_dead(is_alive) {
            network.forget_hosts();
            let Some(source) = network.admit(peer) else {
                continue;
            };
            let from = Header {
                source,
                destination: end.port,
                service_level: network::of_ip(end.address),
                ..Header::empty(Service::Ud, Operation::Management)
            };
            network.answer(&from, end.address, &message);
        }
    }

    /// Returns the processes that a message of the communication manager is for, a bit for
    /// each slot. A request for a service or a connection that no process has is answered.
    fn receivers(&mut self, network: &mut UdpNetwork, own: IpAddr, whole: &[u8]) -> u64 {
        // None is addressed later.
        network.forget_hosts();
        let mut payload = Vec::new();
        let Ok(header) = network.decode(whole, &mut payload) else {
            return 0;
        };
        let is_management = header.operation == Operation::Management;
        let message = cm::decode(&payload);
        let Some(message) = message.filter(|_| is_management && header.key == MANAGEMENT_QKEY)
        else {
            return 0;
        };
        let peer = network.host_of(header.source);
        if let Some(peer) = peer {
            self.connections.forget_ended(peer, &message);
        }
        let listener = match &message.body {
            Body::Req(req) => listener_of(&self.registry, req.service_id, &req.private_data),
            Body::SidrReq(req) => listener_of(&self.registry, req.service_id, &req.private_data),
            // A refusal by a peer that has seen no message of this host: it names its own
            // connection only.
            _ if message.receiver == CommId::NONE => return u64::MAX,
            _ => Some(message.receiver.slot()),
        };
        let attachment = &mut self.attachment;
        let own_slot = attachment.slot();
        let slot = listener.filter(|slot| *slot != own_slot);
        let found = slot.and_then(|slot| Some((slot, attachment.live_generation(slot)?)));
        let Some((slot, generation)) = found else {
            if let Some(answer) = cm::answer_of_none(&message, own_slot) {
                network.answer(&header, own, &answer);
            }
            return 0;
        };
        if let Some(peer) = peer {
            let end = LocalEnd {
                port: header.destination,
                address: own,
                slot,
                generation,
            };
            self.connections.follow(peer, &message, end);
        }
        1_u64
            .checked_shl(u32::from(slot).wrapping_sub(1))
            .unwrap_or(0)
    }
}

fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Returns the queue pair to which a packet goes.
fn queue_pair(bytes: &[u8]) -> Option<Qpn> {
    let number = bytes.get(5..8)?;
    Some(Qpn(u32::from_be_bytes([
        0, number[0], number[1], number[2],
    ])))
}

/// The bytes before a packet in the ring to its process: see [`crate::udp`].
fn prefix(own: IpAddr, received: &Received) -> [u8; PREFIX] {
    let global = Global {
        source: gid_of_ip(received.from),
        destination: gid_of_ip(own),
        traffic_class: received.traffic_class,
        flow_label: 0,
        hop_limit: received.hop_limit,
    };
    let mut prefix = [0; PREFIX];
    let (header, port) = prefix.split_at_mut(PREFIX - 2);
    header.copy_from_slice(&global.encode(true, received.len));
    port.copy_from_slice(&received.source_port.to_be_bytes());
    prefix
}

/// Refuses a port of an address that no launcher of this user has.
fn refuse_others(address: IpAddr) -> Result<(), String> {
    let table = match address {
        IpAddr::V4(_) => "/proc/net/udp",
        IpAddr::V6(_) => "/proc/net/udp6",
    };
    let text = std::fs::read_to_string(table).unwrap_or_default();
    match holder(&text, address) {
        Some(Holder::User(other)) if other != own_user() => Err(format!(
            "user {other} receives on UDP port {UDP_PORT} of {address}, and an address has one: \
             choose another address of this host with --wire udp=ADDRESS, or use a network \
             namespace"
        )),
        Some(Holder::AllAddresses) => Err(format!(
            "UDP port {UDP_PORT} of all addresses is in use, usually by the kernel's Soft-RoCE: \
             remove its devices (rdma link delete), unload rdma_rxe, or use a network namespace"
        )),
        _ => Ok(()),
    }
}

fn own_user() -> u32 {
    // SAFETY: geteuid(2) has no preconditions.
    unsafe { libc::geteuid() }
}

/// Who has a UDP port.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    User(u32),
    AllAddresses,
}

/// Finds the holder of the port of an address in a table of the kernel.
fn holder(table: &str, address: IpAddr) -> Option<Holder> {
    let words: Vec<u32> = match address {
        IpAddr::V4(ip) => vec![u32::from_ne_bytes(ip.octets())],
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            let (words, _) = octets.as_chunks::<4>();
            words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
        }
    };
    let hex = |words: &[u32]| -> String { words.iter().map(|it| format!("{it:08X}")).collect() };
    let (own, any) = (hex(&words), hex(&vec![0; words.len()]));
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (ip, port) = fields.next()?.split_once(':')?;
        if u16::from_str_radix(port, 16).ok()? != UDP_PORT {
            return None;
        }
        match ip {
            _ if ip == any => Some(Holder::AllAddresses),
            // remote address, state, queues, timer, retransmissions, user
            _ if ip == own => fields.nth(5)?.parse().ok().map(Holder::User),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_to_the_slot_of_a_launcher_does_not_wait_there() {
        let name = format!("mlx5emu-gateway-{}", std::process::id());
        let base = std::env::temp_dir().join(name);
        std::fs::create_dir(&base).unwrap();
        let join = || Attachment::join_under(std::slice::from_ref(&base), &FabricName::default());
        let attachment = join().unwrap();
        let registry = Registry::open(attachment.place()).unwrap();
        let mut launcher = Joined {
            attachment,
            registry,
            connections: Connections::default(),
            checked: Instant::now(),
        };
        let mut process = join().unwrap();
        let to = launcher.attachment.slot();
        let packet = Packet::foreign(process.slot(), to, vec![0; 8]);
        process.send(to, &packet).unwrap();
        // A requester whose peer is busy counts no retry.
        assert!(process.peer_is_busy(to));
        launcher.answer();
        assert!(!process.peer_is_busy(to));
        drop((launcher, process));
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_holder_of_a_port_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            12: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1001        0 5 2 0 0\n\
            13: 0200007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 6 2 0 0\n";
        if cfg!(target_endian = "little") {
            assert_eq!(
                holder(table, [127, 0, 0, 1].into()),
                Some(Holder::User(1001))
            );
            assert_eq!(holder(table, [127, 0, 0, 2].into()), None);
        }
        let any = table.replace("0100007F", "00000000");
        assert_eq!(
            holder(&any, [127, 0, 0, 1].into()),
            Some(Holder::AllAddresses)
        );
        assert_eq!(holder("", [127, 0, 0, 1].into()), None);
    }
}
