//! Sending to other hosts, and what this process needs to receive from them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::receiver;
use super::socket::Socket;
use crate::addressing::identifier;
use crate::cm::{MANAGEMENT_QPN, Message, Origin, management};
use crate::config::Config;
use crate::fabric::hosts::Hosts;
use crate::fabric::iba;
use crate::fabric::iba::network::{Global, Network, Route, UDP_PORT};
use crate::fabric::interfaces::Interface;
use crate::fabric::packet::{Destination, Dropped, Header, OtherHosts, Packet};
use crate::log::warn;
use crate::nic::Identify;
use crate::spec::PortAddress;
use crate::spec::gid::{gid_of_ip, index_of, ip_of_gid};

/// Sockets of an address, among which the connections are divided. Their ports are the source
/// ports of the packets, by which networks choose among paths.
const FLOWS: u16 = 8;

/// The other hosts, and the sockets by which this process sends to them.
pub(crate) struct UdpNetwork {
    hosts: Arc<Hosts>,
    interfaces: Vec<Interface>,
    identify: Identify,
    sockets: BTreeMap<(IpAddr, u16), Socket>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for UdpNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpNetwork")
            .field("sockets", &self.sockets)
            .finish_non_exhaustive()
    }
}

impl UdpNetwork {
    pub(crate) fn new(config: &Config, hosts: Arc<Hosts>) -> Self {
        Self {
            hosts,
            interfaces: config.interfaces.clone(),
            identify: identifier(config),
            sockets: BTreeMap::new(),
            bytes: Vec::new(),
        }
    }

    /// Sends a message of the communication manager to the sender of another one, from the
    /// address that it came to.
    pub(crate) fn answer(&mut self, request: &Header, own: IpAddr, message: &Message) {
        let names = (self.identify)(request.destination);
        let Some(source_gid) = index_of(&names.gids, &gid_of_ip(own)) else {
            return;
        };
        let route = Route {
            source_gid,
            hop_limit: 64,
            ..Route::default()
        };
        let to = Destination {
            port: Some(request.source),
            qpn: MANAGEMENT_QPN,
        };
        let from = Origin {
            port: request.destination,
            qpn: MANAGEMENT_QPN,
            local: (0, request.service_level),
            route,
        };
        self.send(&management(from, to, message));
    }

    /// Returns the address of a host's port.
    pub(crate) fn host_of(&self, port: PortAddress) -> Option<IpAddr> {
        self.hosts.address(port)
    }

    /// Returns the port of a host.
    pub(crate) fn admit(&self, host: IpAddr) -> Option<PortAddress> {
        self.hosts.admit(host)
    }

    /// Forgets the hosts that have sent something.
    pub(crate) fn forget_hosts(&self) {
        self.hosts.clear();
    }

    fn try_send(&mut self, packet: &Packet) -> io::Result<()> {
        let header = &packet.header;
        let Some(host) = self.hosts.address(header.destination) else {
            return Ok(());
        };
        let route = &header.route;
        let own = (self.identify)(header.source).gid(route.source_gid);
        let Some(own) = own.map(|gid| ip_of_gid(&gid.raw)) else {
            return Ok(());
        };
        let flow = route.source_port % FLOWS;
        let socket = match self.sockets.entry((own, flow)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let interface = &self.interfaces[usize::from(header.source.device)];
                entry.insert(Socket::bind(interface, own, 0)?)
            }
        };
        let network = Network::RoceV2 {
            global: Global {
                source: gid_of_ip(own),
                destination: gid_of_ip(host),
                traffic_class: header.roce_v2_class(),
                flow_label: 0,
                hop_limit: route.hop_limit,
            },
            source_port: socket.port(),
        };
        self.bytes.clear();
        iba::encode_behind(packet, &network, &mut self.bytes);
        socket.send(&self.bytes, host, UDP_PORT, header.roce_v2_class())
    }
}

impl OtherHosts for UdpNetwork {
    /// Sends a packet. The first reason why one cannot be sent is written to standard error.
    fn send(&mut self, packet: &Packet) {
        let Err(error) = self.try_send(packet) else {
            return;
        };
        let remedy = match error.raw_os_error() {
            // The buffer of the socket is full.
            Some(libc::EAGAIN | libc::ENOBUFS) => return,
            Some(libc::EMSGSIZE) => {
                "; the path has a smaller MTU than the network interface: use a smaller path \
                 MTU (perftest: -m)"
            }
            Some(libc::EADDRNOTAVAIL) => {
                "; the network interface does not have the address of this GID index (any more): \
                 use another index (ibv_devinfo -v)"
            }
            Some(libc::EPERM) => "; a firewall of this host forbids it: permit UDP port 4791",
            _ => "",
        };
        let text = format!("packets to another host are lost: {error}{remedy}");
        warn("udp wire", &text);
    }

    fn decode(&self, bytes: &[u8], payload: &mut Vec<u8>) -> Result<Header, Dropped> {
        receiver::decode(bytes, &self.hosts, &self.interfaces, payload)
    }
}
