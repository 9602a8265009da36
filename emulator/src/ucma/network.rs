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

use super::address::Address;
use crate::cm::Path;
use crate::config::Config;
use crate::fabric::iba::network::Route;
use crate::fabric::name::{DeviceIdentity, FabricName, PortNames};
use crate::spec::gid::ipv4_of_gid;
use crate::spec::{self, Link, PortAddress, Qpn, network};

/// Path MTU of the ports: 4096 bytes, as `enum ibv_mtu`.
const MTU: u8 = 5;
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
    fabric: FabricName,
    link: Link,
    devices: u8,
    ports: u8,
}

impl Network {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            fabric: config.fabric.clone(),
            link: config.link,
            devices: config.devices,
            ports: config.ports,
        }
    }

    /// Returns whether this is an Ethernet link.
    pub(super) fn is_roce(&self) -> bool {
        self.link == Link::Roce
    }

    /// Returns the node GUID of a device.
    pub(super) fn guid(&self, device: u8) -> [u8; 8] {
        DeviceIdentity::derive(&self.fabric, device).guid
    }

    /// Returns the GID of a port that connections use.
    pub(super) fn gid(&self, port: PortAddress) -> [u8; 16] {
        let names = self.names(port);
        match self.link {
            Link::Ib => names.gid,
            Link::Roce => names.ip_gid,
        }
    }

    /// Returns the index of that GID in the port's table, on Ethernet as RoCE v2
    /// (`CMA_PREFERRED_ROCE_GID_TYPE` of the kernel).
    pub(super) fn gid_index(&self) -> u8 {
        match self.link {
            Link::Ib => 0,
            Link::Roce => 3,
        }
    }

    /// Returns the port of a host address.
    pub(super) fn port_of(&self, ip: IpAddr) -> PortAddress {
        self.port_with_ip(ip)
            .unwrap_or(PortAddress { device: 0, port: 1 })
    }

    pub(super) fn port_of_gid(&self, gid: &[u8; 16]) -> Option<PortAddress> {
        self.all().find(|&port| {
            let names = self.names(port);
            match self.link {
                Link::Ib => names.gid == *gid,
                Link::Roce => [names.ip_gid, names.ethernet_gid].contains(gid),
            }
        })
    }

    /// Returns whether an address stands for all addresses. As in the kernel
    /// (`cma_any_addr`), that includes loopback addresses, except those of ports.
    pub(super) fn is_any(&self, address: &Address) -> bool {
        let is_of_port = || address.ip().and_then(|ip| self.port_with_ip(ip)).is_some();
        address.is_unspecified() || address.is_loopback() && !is_of_port()
    }

    /// Returns the path from one port to another.
    pub(super) fn path(&self, from: PortAddress, to: PortAddress) -> Path {
        let lid = |port| match self.link {
            Link::Ib => self.names(port).lid,
            Link::Roce => 0,
        };
        Path {
            sgid: self.gid(from),
            dgid: self.gid(to),
            slid: lid(from),
            dlid: lid(to),
            pkey: PKEY,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: if self.is_roce() { HOP_LIMIT } else { 0 },
            sl: 0,
            mtu: MTU,
            rate: RATE,
            packet_life_time: PACKET_LIFE_TIME,
        }
    }

    /// Returns how messages between managers are addressed, on the path of their connection
    /// if it has one.
    pub(super) fn route(&self, path: Option<&Path>) -> Route {
        let path = spec::Path {
            sgid_index: self.gid_index(),
            flow_label: path.map_or(0, |path| path.flow_label),
            traffic_class: path.map_or(0, |path| path.traffic_class),
            hop_limit: HOP_LIMIT,
            ..spec::Path::default()
        };
        // Without a flow label, datagrams have the first port.
        Route::of(&path, Qpn(0), Qpn(0))
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
        DeviceIdentity::derive(&self.fabric, port.device).port(port.port)
    }

    fn port_with_ip(&self, ip: IpAddr) -> Option<PortAddress> {
        let IpAddr::V4(ip) = ip else { return None };
        self.all()
            .find(|&port| ipv4_of_gid(&self.names(port).ip_gid) == Some(ip.octets()))
    }

    fn all(&self) -> impl Iterator<Item = PortAddress> + '_ {
        (0..self.devices)
            .flat_map(|device| (1..=self.ports).map(move |port| PortAddress { device, port }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(link: Link) -> Network {
        Network::new(&Config {
            link,
            devices: 2,
            ports: 2,
            ..Config::default()
        })
    }

    #[test]
    fn every_port_has_an_address_and_other_addresses_belong_to_the_first() {
        for link in [Link::Ib, Link::Roce] {
            let network = network(link);
            for port in network.all() {
                let ip = ipv4_of_gid(&network.names(port).ip_gid).unwrap();
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
    fn a_path_has_lids_on_infiniband_and_ip_gids_on_ethernet() {
        let [from, to] = [1, 2].map(|port| PortAddress { device: 1, port });
        let ib = network(Link::Ib).path(from, to);
        assert!(ib.slid != 0 && ib.dlid != 0 && ib.slid != ib.dlid && ib.hop_limit == 0);
        let roce = network(Link::Roce).path(from, to);
        assert_eq!((roce.slid, roce.dlid, roce.hop_limit), (0, 0, 64));
        assert!(ipv4_of_gid(&roce.dgid).is_some());
    }
}
