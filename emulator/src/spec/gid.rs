//! GIDs, and the addresses that they are made of.

use std::net::{IpAddr, Ipv6Addr};

use crate::limits::GID_TABLE;

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
pub type GidTable = [Option<Gid>; GID_TABLE as usize];

/// Returns the index of a GID in a table, on Ethernet as RoCE v2.
#[must_use]
pub fn index_of(table: &GidTable, raw: &[u8; 16]) -> Option<u8> {
    let is_it = |gid: &Gid| gid.raw == *raw && gid.kind != GidType::RoceV1;
    let found = (0..)
        .zip(table)
        .find(|(_, gid)| gid.as_ref().is_some_and(is_it));
    found.map(|(index, _)| index)
}

/// The bit of a MAC address that an EUI-64 has inverted.
const LOCAL: u8 = 0x02;

/// Returns the link-local GID of a MAC address (RFC 4291, appendix A).
pub(crate) fn gid_of_mac(mac: [u8; 6]) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&[a ^ LOCAL, b, c, 0xff, 0xfe, d, e, f]);
    gid
}

/// Returns the GID of an IPv4 address.
pub(crate) fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

/// Returns the GID of an IP address.
#[must_use]
pub fn gid_of_ip(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => mapped(ip.octets()),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Returns the IP address that a GID is.
#[must_use]
pub fn ip_of_gid(gid: &[u8; 16]) -> IpAddr {
    Ipv6Addr::from(*gid).to_canonical()
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

/// Returns an Ethernet address for the IP address of another host, whose own is not known: of
/// the packets on the UDP wire, the kernel writes Ethernet's header.
#[must_use]
pub fn mac_of_address(gid: &[u8; 16]) -> [u8; 6] {
    let own = || [LOCAL, 0, gid[12], gid[13], gid[14], gid[15]];
    mac_of_link_local(gid).unwrap_or_else(own)
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
