//! The GID table of a port.

use std::net::Ipv6Addr;

use super::name::PortNames;
use crate::config::Link;

/// The protocol of the packets that are sent with a GID, as the kernel reports it
/// (`IB_UVERBS_GID_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GidType {
    /// InfiniBand.
    Ib = 0,
    /// RoCE v1: InfiniBand's network header behind the Ethernet header.
    RoceV1 = 1,
    /// RoCE v2: UDP over IP.
    RoceV2 = 2,
}

/// An entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The identifier, in network byte order.
    pub raw: [u8; 16],
    /// Its type.
    pub kind: GidType,
}

impl Gid {
    /// Returns the IPv4 address of an IPv4-mapped GID.
    #[must_use]
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        ipv4_of_gid(&self.raw)
    }
}

/// The used entries of a port's GID table, by their index.
pub type GidTable = [Option<Gid>; 4];

impl PortNames {
    /// Returns the port's GID table. On RoCE it is that of a ConnectX whose network
    /// interface has a link-local and an IPv4 address: each address is in it as RoCE v1
    /// and then as RoCE v2, in the order of `roce_gid_mgmt.c` of the kernel.
    #[must_use]
    pub fn gids(&self, link: Link) -> GidTable {
        let entry = |raw, kind| Some(Gid { raw, kind });
        match link {
            Link::Ib => [entry(self.gid, GidType::Ib), None, None, None],
            Link::Roce => [
                entry(self.ethernet_gid, GidType::RoceV1),
                entry(self.ethernet_gid, GidType::RoceV2),
                entry(self.ip_gid, GidType::RoceV1),
                entry(self.ip_gid, GidType::RoceV2),
            ],
        }
    }
}

/// The bit of a MAC address that an EUI-64 has inverted.
const LOCAL: u8 = 0x02;

/// Returns the link-local GID of a MAC address (RFC 4291, appendix A).
pub(super) fn gid_of_mac(mac: [u8; 6]) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&[a ^ LOCAL, b, c, 0xff, 0xfe, d, e, f]);
    gid
}

/// Returns the GID of an IPv4 address.
pub(super) fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

/// Returns the IPv4 address of an IPv4-mapped GID.
#[must_use]
pub fn ipv4_of_gid(gid: &[u8; 16]) -> Option<[u8; 4]> {
    let address = Ipv6Addr::from(*gid).to_ipv4_mapped()?;
    Some(address.octets())
}

/// Returns whether a GID is link-local, as the kernel's `rdma_link_local_addr` does.
#[must_use]
pub fn is_link_local(gid: &[u8; 16]) -> bool {
    gid[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0]
}

/// Returns the MAC address in a link-local GID (`rdma_get_ll_mac` of the kernel).
#[must_use]
pub fn mac_of_link_local(gid: &[u8; 16]) -> Option<[u8; 6]> {
    let mac = [gid[8] ^ LOCAL, gid[9], gid[10], gid[13], gid[14], gid[15]];
    is_link_local(gid).then_some(mac)
}

/// Returns the MAC address of a multicast GID (`ip_eth_mc_map` and `ipv6_eth_mc_map` of
/// the kernel).
#[must_use]
pub fn mac_of_multicast(gid: &[u8; 16]) -> Option<[u8; 6]> {
    match ipv4_of_gid(gid) {
        Some([224..=239, b, c, d]) => Some([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
        _ if gid[0] == 0xff => Some([0x33, 0x33, gid[12], gid[13], gid[14], gid[15]]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::{DeviceIdentity, FabricName};
    use super::*;

    #[test]
    fn link_local_gids_convert_to_mac_and_mapped_gids_to_ipv4() {
        let port = DeviceIdentity::derive(&FabricName::default(), 5).port(2);
        assert_eq!(port.mac[0] & 0x03, 0x02);
        assert_eq!(port.ethernet_gid[11..13], [0xff, 0xfe]);
        assert_eq!(mac_of_link_local(&port.ethernet_gid), Some(port.mac));
        assert_eq!(ipv4_of_gid(&port.ip_gid).map(|it| it[0]), Some(127));
        assert_eq!(ipv4_of_gid(&port.ethernet_gid), None);
        assert_eq!(mac_of_link_local(&port.ip_gid), None);
        let mut other = port.ethernet_gid;
        other[2] = 1;
        assert_eq!(mac_of_link_local(&other), None, "not link-local");
        assert_eq!(mac_of_multicast(&other), None);
        let group = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(mac_of_multicast(&group), Some([0x33, 0x33, 0, 0, 0, 1]));
        let group = mapped([239, 0x81, 2, 3]);
        assert_eq!(mac_of_multicast(&group), Some([0x01, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac_of_multicast(&port.ip_gid), None);
    }

    #[test]
    fn a_roce_port_has_each_address_as_v1_and_then_as_v2() {
        let port = DeviceIdentity::derive(&FabricName::default(), 0).port(1);
        let shown = port
            .gids(Link::Roce)
            .map(|gid| gid.map(|it| (it.raw, it.kind)));
        let expected = [
            (port.ethernet_gid, GidType::RoceV1),
            (port.ethernet_gid, GidType::RoceV2),
            (port.ip_gid, GidType::RoceV1),
            (port.ip_gid, GidType::RoceV2),
        ];
        assert_eq!(shown, expected.map(Some));
        let ib = port.gids(Link::Ib);
        assert_eq!(
            ib[0].map(|it| (it.raw, it.kind)),
            Some((port.gid, GidType::Ib))
        );
        assert_eq!(ib[1..], [None; 3]);
    }
}
