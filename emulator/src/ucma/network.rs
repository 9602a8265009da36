//! Which port of which emulated device an address belongs to.
//!
//! - The IPv4 address of a port in the loopback network (its second GID on RoCE)
//!   belongs to that port.
//! - All other addresses of the host, also 127.0.0.1 and ::1, belong to the first
//!   port of the first device, where a kernel also resolves loopback addresses.
//!
//! Paths use the GIDs of the ports, not the addresses: the GID tables of the
//! devices do not contain the addresses of the host.

use std::net::IpAddr;
use std::sync::Arc;

use super::address::Address;
use crate::cm::Path;
use crate::config::Config;
use crate::fabric::hosts::Hosts;
use crate::fabric::iba::network::Route;
use crate::fabric::name::PortNames;
use crate::spec::gid::{gid_of_ip, index_of, ip_of_gid, ipv4_of_gid, is_link_local};
use crate::spec::{self, Link, PortAddress, Qpn, network};

/// Rate of the ports: 100 Gb/s, as `enum ibv_rate`.
const RATE: u8 = 16;
/// Packet lifetime: 4.096 µs · 2^16, the kernel's `CMA_IBOE_PACKET_LIFETIME`.
const PACKET_LIFE_TIME: u8 = 16;
/// Partition key of all ports.
const PKEY: u16 = 0xffff;
/// Hop limit of routed packets, the default of Linux.
const HOP_LIMIT: u8 = 64;

/// The ports of the emulated devices.
#[derive(Clone, Debug)]
pub(super) struct Network {
    config: Config,
    link: Link,
    hosts: Arc<Hosts>,
}

impl Network {
    pub(super) fn new(config: &Config, hosts: Arc<Hosts>) -> Self {
        Self {
            hosts,
            config: config.clone(),
            link: config.link,
        }
    }

    /// Returns whether this is an Ethernet link.
    pub(super) fn is_roce(&self) -> bool {
        self.link == Link::Roce
    }

    /// Returns the node GUID of a device.
    pub(super) fn guid(&self, device: u8) -> [u8; 8] {
        self.config.identity(device).guid
    }

    /// Returns whether there are other hosts.
    pub(super) fn reaches_others(&self) -> bool {
        !self.config.interfaces.is_empty()
    }

    /// Returns whether an address is that of another host on the UDP wire. Loopback addresses
    /// are this host's, unless it has been given one of them.
    pub(super) fn is_elsewhere(&self, ip: IpAddr) -> bool {
        let given = self.config.interfaces.iter().flat_map(|it| &it.addresses);
        let may_be = !ip.is_loopback() || given.clone().any(IpAddr::is_loopback);
        self.reaches_others() && may_be && !given.clone().any(|own| *own == ip)
    }

    /// Returns the port and its address that send to another host: those of the route, which
    /// begins at `source`, or of any device with an address of the same family.
    pub(super) fn source_toward(
        &self,
        to: IpAddr,
        source: IpAddr,
    ) -> Option<(PortAddress, IpAddr)> {
        let of = |ip: IpAddr| Some((self.port_with_ip(ip)?, ip));
        let given = self.config.interfaces.iter().flat_map(|it| &it.addresses);
        let mut fitting = given.filter(|ip| ip.is_ipv4() == to.is_ipv4());
        of(source).or_else(|| of(*fitting.next()?))
    }

    /// Returns the port of another host.
    pub(super) fn host(&self, ip: IpAddr) -> Option<PortAddress> {
        self.hosts.add(ip)
    }

    /// Returns the GID of a port that connections use.
    pub(super) fn gid(&self, port: PortAddress) -> [u8; 16] {
        if let Some(ip) = self.hosts.address(port) {
            return gid_of_ip(ip);
        }
        let names = self.names(port);
        match self.link {
            Link::Ib => names.gid,
            Link::Roce => names.ip_gid(),
        }
    }

    /// Returns the GID of a port from which it connects to another GID: one of the same
    /// family.
    fn gid_toward(&self, port: PortAddress, to: &[u8; 16]) -> [u8; 16] {
        let family = |gid: &[u8; 16]| (ipv4_of_gid(gid).is_some(), is_link_local(gid));
        let names = self.names(port);
        let mut gids = names.roce_gids().filter(|gid| family(gid) == family(to));
        match self.link {
            Link::Ib => names.gid,
            Link::Roce => gids.next().unwrap_or_else(|| names.ip_gid()),
        }
    }

    /// Returns the index of a GID in the table of a port, on Ethernet as RoCE v2
    /// (`CMA_PREFERRED_ROCE_GID_TYPE` of the kernel).
    pub(super) fn gid_index(&self, port: PortAddress, gid: &[u8; 16]) -> u8 {
        index_of(&self.names(port).gids(self.link), gid).unwrap_or(0)
    }

    /// Returns the port of a host address.
    pub(super) fn port_of(&self, ip: IpAddr) -> PortAddress {
        self.port_with_ip(ip)
            .unwrap_or(PortAddress { device: 0, port: 1 })
    }

    /// Returns the port of this host, or of another one, with a GID.
    pub(super) fn port_of_any(&self, gid: &[u8; 16]) -> Option<PortAddress> {
        let own = self.port_of_gid(gid);
        own.or_else(|| {
            self.reaches_others()
                .then(|| self.host(ip_of_gid(gid)))
                .flatten()
        })
    }

    /// Returns the port of this host with a GID.
    pub(super) fn port_of_gid(&self, gid: &[u8; 16]) -> Option<PortAddress> {
        self.all().find(|&port| {
            let names = self.names(port);
            match self.link {
                Link::Ib => names.gid == *gid,
                Link::Roce => names.roce_gids().any(|it| it == *gid),
            }
        })
    }

    /// Returns whether an address stands for all addresses. As in the kernel
    /// (`cma_any_addr`), that includes loopback addresses, except those of ports.
    pub(super) fn is_any(&self, address: &Address) -> bool {
        let is_of_port = || {
            let ip = address.ip();
            ip.is_some_and(|ip| self.port_with_ip(ip).is_some() || self.is_elsewhere(ip))
        };
        address.is_unspecified() || address.is_loopback() && !is_of_port()
    }

    /// Returns the path from one port to another.
    pub(super) fn path(&self, from: PortAddress, to: PortAddress) -> Path {
        let lid = |port| match self.link {
            Link::Ib => self.names(port).lid,
            Link::Roce => 0,
        };
        let dgid = self.gid(to);
        Path {
            sgid: self.gid_toward(from, &dgid),
            dgid,
            slid: lid(from),
            dlid: lid(to),
            pkey: PKEY,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: if self.is_roce() { HOP_LIMIT } else { 0 },
            sl: 0,
            mtu: self.names(from).mtu,
            rate: RATE,
            packet_life_time: PACKET_LIFE_TIME,
        }
    }

    /// Returns how messages from one port to another, or to that of another host, are addressed,
    /// on the path of their connection if it has one.
    pub(super) fn route(&self, from: PortAddress, to: PortAddress, path: Option<&Path>) -> Route {
        let named = path.map(|path| path.sgid);
        let named = named.filter(|gid| self.has_gid(from, gid));
        let own = named.unwrap_or_else(|| self.gid_toward(from, &self.gid(to)));
        let path = spec::Path {
            sgid_index: self.gid_index(from, &own),
            flow_label: path.map_or(0, |path| path.flow_label),
            traffic_class: path.map_or(0, |path| path.traffic_class),
            hop_limit: HOP_LIMIT,
            ..spec::Path::default()
        };
        // Without a flow label, datagrams have the first port.
        Route::of(&path, Qpn(0), Qpn(0))
    }

    /// Returns whether a port on Ethernet has a GID.
    pub(super) fn has_gid(&self, port: PortAddress, gid: &[u8; 16]) -> bool {
        self.is_roce() && self.names(port).roce_gids().any(|it| it == *gid)
    }

    /// Returns the source LID of packets of a port, and their service level or, on
    /// Ethernet, the type of their network header.
    pub(super) fn local_route(&self, port: PortAddress) -> (u16, u8) {
        match self.link {
            Link::Ib => (self.names(port).lid, 0),
            Link::Roce => (0, network::IPV4),
        }
    }

    fn names(&self, port: PortAddress) -> PortNames {
        self.config.identity(port.device).port(port.port)
    }

    /// Returns the port that has this address.
    pub(super) fn port_with_ip(&self, ip: IpAddr) -> Option<PortAddress> {
        let gid = gid_of_ip(ip);
        self.all()
            .find(|&port| self.names(port).ip_gids.contains(&Some(gid)))
    }

    fn all(&self) -> impl Iterator<Item = PortAddress> + '_ {
        (0..self.config.devices).flat_map(|device| {
            (1..=self.config.ports).map(move |port| PortAddress { device, port })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::interfaces::Interface;

    fn network(link: Link) -> Network {
        let config = Config {
            link,
            devices: 2,
            ports: 2,
            ..Config::default()
        };
        Network::new(&config, Arc::default())
    }

    #[test]
    fn every_port_has_an_address_and_other_addresses_belong_to_the_first() {
        for link in [Link::Ib, Link::Roce] {
            let network = network(link);
            for port in network.all() {
                let ip = ipv4_of_gid(&network.names(port).ip_gid()).unwrap();
                assert_eq!(network.port_of(ip.into()), port);
                assert_eq!(network.port_of_gid(&network.gid(port)), Some(port));
                let address = Address::V4 {
                    ip: ip.into(),
                    port: 1,
                };
                assert!(!network.is_any(&address), "the address of a port");
            }
            let first = PortAddress { device: 0, port: 1 };
            assert_eq!(network.port_of([192, 0, 2, 1].into()), first);
            let loopback = Address::V4 {
                ip: [127, 0, 0, 1].into(),
                port: 1,
            };
            assert!(network.is_any(&loopback));
        }
    }

    #[test]
    fn messages_of_a_connection_come_from_its_address_of_the_interface() {
        let addresses: [IpAddr; 3] = [
            [10, 0, 0, 1].into(),
            [10, 0, 0, 11].into(),
            [0xfd; 16].into(),
        ];
        let mut interface = Interface::loopback();
        interface.addresses = addresses.to_vec();
        let config = Config {
            link: Link::Roce,
            interfaces: vec![interface],
            ..Config::default()
        };
        let network = Network::new(&config, Arc::default());
        let from = PortAddress { device: 0, port: 1 };
        let to = network.host([10, 0, 0, 2].into()).unwrap();
        let mut path = network.path(from, to);
        let gid = |ip| gid_of_ip(ip);
        assert_eq!(path.sgid, gid(addresses[0]));
        path.sgid = gid(addresses[1]);
        let index = |gid: &[u8; 16]| network.gid_index(from, gid);
        let route = network.route(from, to, Some(&path));
        assert_eq!(route.source_gid, index(&gid(addresses[1])));
        // Without a connection, or one of another interface: of the same family.
        path.sgid = gid([10, 0, 1, 1].into());
        for path in [None, Some(&path)] {
            assert_eq!(
                network.route(from, to, path).source_gid,
                index(&gid(addresses[0]))
            );
        }
    }

    #[test]
    fn a_path_has_lids_on_infiniband_and_ip_gids_on_ethernet() {
        let [from, to] = [1, 2].map(|port| PortAddress { device: 1, port });
        let ib = network(Link::Ib).path(from, to);
        assert!(ib.slid != 0 && ib.dlid != 0 && ib.slid != ib.dlid && ib.hop_limit == 0);
        let roce = network(Link::Roce).path(from, to);
        assert_eq!((roce.slid, roce.dlid, roce.hop_limit), (0, 0, 64));
        assert!(ipv4_of_gid(&roce.dgid).is_some());
    }
}
