//! Ports of the emulated devices: their link, their addresses, and sets of them.

use super::gid::{Gid, GidTable, GidType};
use crate::limits::{MAX_DEVICES, MAX_PORTS};

/// Link layer of every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// InfiniBand: ports have LIDs.
    Ib,
    /// Ethernet with RoCE: ports have GIDs only.
    Roce,
}

impl Link {
    /// Returns the capability mask of a port (`IB_PORT_*_SUP`): system image GUID and
    /// extended speeds; on Ethernet a communication manager, and GIDs that are IP
    /// addresses.
    #[must_use]
    pub fn port_capabilities(self) -> u32 {
        match self {
            Self::Ib => 1 << 11 | 1 << 14,
            Self::Roce => 1 << 16 | 1 << 26,
        }
    }
}

/// The address of a port on the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortAddress {
    /// Device index on the fabric, from 0.
    pub device: u8,
    /// Port number, from 1.
    pub port: u8,
}

impl PortAddress {
    /// Another host that has no number.
    pub const UNKNOWN: Self = Self {
        device: u8::MAX,
        port: u8::MAX,
    };
    /// The bit of a device index that marks the port of another host.
    const OTHER_HOST: u8 = 0x80;

    /// Returns the address for the port of another host by its number in this process; `None`
    /// beyond 32,766.
    #[must_use]
    pub fn of_host(number: u16) -> Option<Self> {
        let [high, port] = number.to_be_bytes();
        let device = high | Self::OTHER_HOST;
        let address = Self { device, port };
        (high < Self::OTHER_HOST && address != Self::UNKNOWN).then_some(address)
    }

    /// Returns the number of the host, if the port is not of this one.
    #[must_use]
    pub fn host(self) -> Option<u16> {
        let is_other = self.device & Self::OTHER_HOST != 0;
        is_other.then(|| u16::from_be_bytes([self.device & !Self::OTHER_HOST, self.port]))
    }
}

/// The addresses of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortIdentity {
    /// LID; 0 on an Ethernet link.
    pub lid: u16,
    /// The GID table.
    pub gids: GidTable,
    /// Whether the link is Ethernet. Datagrams are then addressed by GID, and every
    /// packet has a network header.
    pub ethernet: bool,
    /// The largest path MTU, as `enum ibv_mtu`.
    pub mtu: u8,
}

impl PortIdentity {
    /// Returns the GID at an index of the port's table.
    #[must_use]
    pub fn gid(&self, index: u8) -> Option<Gid> {
        *self.gids.get(usize::from(index))?
    }

    /// Returns the type of the network header of packets sent with the GID at an
    /// index.
    #[must_use]
    pub fn network(&self, index: u8) -> u8 {
        match self.gid(index) {
            Some(gid) if gid.kind == GidType::RoceV2 && gid.ipv4().is_some() => network::IPV4,
            Some(gid) if gid.kind == GidType::RoceV2 => network::IPV6,
            _ => network::ROCE_V1,
        }
    }
}

/// Types of network headers on Ethernet, as a ConnectX reports them
/// (`MLX5_CQE_ROCE_L3_HEADER_TYPE_*`).
pub mod network {
    /// InfiniBand's GRH: RoCE v1.
    pub const ROCE_V1: u8 = 0;
    /// IPv6: RoCE v2.
    pub const IPV6: u8 = 1;
    /// IPv4: RoCE v2.
    pub const IPV4: u8 = 2;

    /// Returns the type of RoCE v2 between addresses of this kind.
    pub(crate) fn of_ip(address: std::net::IpAddr) -> u8 {
        match address.is_ipv4() {
            true => IPV4,
            false => IPV6,
        }
    }
}

/// A set of ports of the emulated devices, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSet(u32);

const _: () = assert!(MAX_DEVICES as u32 * MAX_PORTS as u32 <= u32::BITS);

impl PortSet {
    /// Returns the set of these bits: see [`bits`](Self::bits).
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits, two for each device, the lowest for port 1 of device 0.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a port is in the set.
    #[must_use]
    pub fn contains(self, port: PortAddress) -> bool {
        self.0 & bit(port) != 0
    }

    /// Returns the set with a port, or without it.
    #[must_use]
    pub fn with(self, port: PortAddress, contained: bool) -> Self {
        match contained {
            true => Self(self.0 | bit(port)),
            false => Self(self.0 & !bit(port)),
        }
    }

    /// Returns the ports that are in one of the sets only.
    pub fn differences(self, other: Self) -> impl Iterator<Item = PortAddress> {
        let ports = |device| (1..=MAX_PORTS).map(move |port| PortAddress { device, port });
        let all = (0..MAX_DEVICES).flat_map(ports);
        all.filter(move |&port| self.contains(port) != other.contains(port))
    }
}

/// Returns no bit for a port that no device has.
fn bit(port: PortAddress) -> u32 {
    let PortAddress { device, port } = port;
    if device < MAX_DEVICES && (1..=MAX_PORTS).contains(&port) {
        1 << (device * MAX_PORTS + port - 1)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_a_bit_of_its_own_and_others_have_none() {
        let all = PortSet::from_bits(u32::MAX);
        let ports: Vec<_> = PortSet::default().differences(all).collect();
        assert_eq!(ports.len(), 32);
        let mut set = PortSet::default();
        for (count, &port) in (1..).zip(&ports) {
            assert!(!set.contains(port));
            set = set.with(port, true);
            assert!(set.contains(port));
            assert_eq!(set.bits().count_ones(), count);
        }
        for (device, port) in [(0, 0), (0, 3), (16, 1), (255, 255)] {
            let none = PortAddress { device, port };
            assert!(!all.contains(none));
            assert_eq!(PortSet::default().with(none, true), PortSet::default());
        }
        let last = ports[31];
        assert_eq!(set.with(last, false).differences(set).next(), Some(last));
    }
}
