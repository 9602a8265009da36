//! The name of a fabric, and the addresses derived from it. Processes with the
//! same fabric name compute the same GUIDs, GIDs and LIDs without communicating.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use crate::spec::Link;
use crate::spec::gid::{Gid, GidTable, GidType, gid_of_mac, mac_of_address, mapped};

/// A valid fabric name. It is used as a directory name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FabricName(String);

/// A name that does not follow [`FabricName::RULE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", FabricName::RULE)]
pub struct BadFabricName;

impl FabricName {
    /// The names that are accepted.
    pub const RULE: &'static str =
        "1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit";

    /// Checks a name.
    ///
    /// # Errors
    /// Returns an error if the name does not follow [`RULE`](Self::RULE). Other
    /// names could leave the fabric's directory.
    pub fn new(name: &str) -> Result<Self, BadFabricName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let starts_valid = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if starts_valid && name.len() <= 64 && name.bytes().all(allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(BadFabricName)
        }
    }

    /// Returns the name of the fabric of an IP address of this host. The network namespace is
    /// part of it: an address is there once in each, and two may share `/dev/shm`.
    #[must_use]
    pub(crate) fn of_address(address: IpAddr) -> Self {
        let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |it| it.ino());
        let address = address.to_string().replace(':', "-");
        Self(format!("udp-{namespace}-{address}"))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for FabricName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for FabricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bit of an Ethernet address that no manufacturer has given out.
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// The addresses of a device. They are equal in all processes of its fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Node GUID, and GUID of port 1, in network byte order.
    pub guid: [u8; 8],
    /// On the UDP wire, the network interface of its port.
    interface: Option<InterfaceNames>,
}

/// Number of IP addresses of a port.
pub const IP_GIDS: usize = 3;

/// What a network interface of this host gives to the port of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceNames {
    /// Index of the interface.
    pub index: u32,
    /// Its Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// The largest path MTU that fits, as `enum ibv_mtu`.
    pub mtu: u8,
    /// Whether it has the link-local address of its Ethernet address.
    pub has_link_local: bool,
    /// GIDs of its addresses.
    pub ips: [Option<[u8; 16]>; IP_GIDS],
}

/// The addresses of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortNames {
    /// The GID on an InfiniBand link: the link-local prefix `fe80::/64` and
    /// the port's GUID.
    pub gid: [u8; 16],
    /// LID on an InfiniBand link.
    pub lid: u16,
    /// Ethernet address on a RoCE link.
    pub mac: [u8; 6],
    /// The link-local GID on a RoCE link: the prefix and the EUI-64 of the Ethernet
    /// address.
    pub ethernet_gid: [u8; 16],
    /// Whether packets from and to that GID arrive: on the UDP wire, whether the network
    /// interface has the address.
    pub has_ethernet_gid: bool,
    /// The other GIDs on a RoCE link, of IP addresses: on the local wire one
    /// IPv4-mapped address of the loopback network, on the UDP wire those of the
    /// network interface.
    pub ip_gids: [Option<[u8; 16]>; IP_GIDS],
    /// The largest path MTU, as `enum ibv_mtu`.
    pub mtu: u8,
    /// Index of the network interface on the UDP wire.
    pub interface: Option<u32>,
}

impl DeviceIdentity {
    /// Returns the identity of device number `device` on a fabric.
    #[must_use]
    pub fn derive(fabric: &FabricName, device: u8) -> Self {
        // FNV-1a. The "locally administered" bit of the EUI-64 is set and the
        // group bit clear, so that no GUID equals one of real hardware.
        let hash = fabric
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let mut guid = hash.to_be_bytes();
        guid[0] = (guid[0] | 0x02) & !0x01;
        guid[7] = device;
        Self {
            guid,
            interface: None,
        }
    }

    /// Returns the identity of device number `device` on a network interface. Its GUID is
    /// the EUI-64 of the Ethernet address, as on a ConnectX.
    #[must_use]
    pub fn of_interface(mut interface: InterfaceNames, device: u8) -> Self {
        if interface.mac == [0; 6] {
            // A tunnel, or loopback: as for an address, locally administered.
            let ip = interface.ips[0].unwrap_or_default();
            interface.mac = [LOCALLY_ADMINISTERED, device, ip[12], ip[13], ip[14], ip[15]];
        }
        let mut guid = [0; 8];
        guid.copy_from_slice(&gid_of_mac(interface.mac)[8..]);
        Self {
            guid,
            interface: Some(interface),
        }
    }

    /// Returns the addresses of a port, counted from 1.
    #[must_use]
    pub fn port(&self, port: u8) -> PortNames {
        /// Larger than the maximum number of devices.
        const LIDS_OF_A_PORT: u16 = 0x40;
        /// 4096 bytes.
        const MTU: u8 = 5;
        if let Some(interface) = self.interface {
            let ethernet_gid = gid_of_mac(interface.mac);
            return PortNames {
                gid: ethernet_gid,
                lid: 0,
                mac: interface.mac,
                ethernet_gid,
                has_ethernet_gid: interface.has_link_local,
                ip_gids: interface.ips.map(|ip| ip.filter(|ip| *ip != ethernet_gid)),
                mtu: interface.mtu,
                interface: Some(interface.index),
            };
        }
        let device = self.guid[7];
        let further = port.saturating_sub(1);
        let mut guid = self.guid;
        guid[6] = guid[6].wrapping_add(further);
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[8..].copy_from_slice(&guid);
        // Locally administered too.
        let [a, b, c, d, e, ..] = self.guid;
        let mac = [a, b, c, d, e.wrapping_add(further), device];
        PortNames {
            gid,
            lid: u16::from(device) + 1 + u16::from(further) * LIDS_OF_A_PORT,
            mac,
            ethernet_gid: gid_of_mac(mac),
            has_ethernet_gid: true,
            // Differs between fabrics, and is not used otherwise.
            ip_gids: [
                Some(mapped([127, b | 0x40, c, 0x20 * further + device + 1])),
                None,
                None,
            ],
            mtu: MTU,
            interface: None,
        }
    }
}

impl PortNames {
    /// Returns the names of the port of another host with this address: all GIDs are this one.
    #[must_use]
    pub(crate) fn of_host(gid: [u8; 16]) -> Self {
        Self {
            gid,
            lid: 0,
            mac: mac_of_address(&gid),
            ethernet_gid: gid,
            has_ethernet_gid: true,
            ip_gids: [Some(gid); IP_GIDS],
            mtu: 0,
            interface: None,
        }
    }

    /// Returns the port's GID table. On RoCE it is that of a ConnectX whose network
    /// interface has a link-local and an IPv4 address: each address is in it as RoCE v1
    /// and then as RoCE v2, in the order of `roce_gid_mgmt.c` of the kernel.
    #[must_use]
    pub fn gids(&self, link: Link) -> GidTable {
        let mut table = GidTable::default();
        let mut entries = table.iter_mut();
        let mut add = |raw, kind| {
            if let Some(entry) = entries.next() {
                *entry = Some(Gid { raw, kind });
            }
        };
        match link {
            Link::Ib => add(self.gid, GidType::Ib),
            Link::Roce => {
                for raw in self.roce_gids() {
                    add(raw, GidType::RoceV1);
                    add(raw, GidType::RoceV2);
                }
            }
        }
        table
    }

    /// Returns the addresses in the GID table on a RoCE link.
    pub fn roce_gids(&self) -> impl Iterator<Item = [u8; 16]> + use<> {
        let ips = self.ip_gids.into_iter().flatten();
        std::iter::once(self.ethernet_gid).chain(ips)
    }

    /// Returns the GID that connections by rdma_cm use on a RoCE link.
    #[must_use]
    pub fn ip_gid(&self) -> [u8; 16] {
        self.ip_gids[0].unwrap_or(self.ethernet_gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::gid::{ipv4_of_gid, mac_of_link_local, mac_of_multicast};

    #[test]
    fn names_that_could_leave_their_directory_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/a",
            "-a",
            "a b",
            "a\0",
            "ä",
            &"x".repeat(65),
        ] {
            assert_eq!(FabricName::new(bad), Err(BadFabricName), "{bad:?}");
        }
        for good in ["a", "default", "lab-1.x_y", "7", &"x".repeat(64)] {
            assert_eq!(FabricName::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn the_fabric_of_an_address_has_a_valid_name() {
        let longest = "fd09:1111:2222:3333:4444:5555:6666:7777";
        for address in ["127.0.0.1", "::1", longest] {
            let name = FabricName::of_address(address.parse().unwrap());
            assert_eq!(FabricName::new(name.as_str()), Ok(name));
        }
    }

    #[test]
    fn identities_depend_on_fabric_device_and_port_only() {
        let name = |text| FabricName::new(text).unwrap();
        let first = DeviceIdentity::derive(&name("a"), 0);
        assert_eq!(first, DeviceIdentity::derive(&name("a"), 0));
        assert_ne!(first.guid, DeviceIdentity::derive(&name("b"), 0).guid);
        let second = DeviceIdentity::derive(&name("a"), 1);
        assert_ne!(first.guid, second.guid);
        let ports = [first.port(1), first.port(2), second.port(1), second.port(2)];
        assert_eq!(ports.map(|port| port.lid), [1, 0x41, 2, 0x42]);
        for (index, port) in ports.iter().enumerate() {
            for other in &ports[..index] {
                assert_ne!(port.gid, other.gid);
                assert_ne!(port.mac, other.mac);
                assert_ne!(port.ethernet_gid, other.ethernet_gid);
                assert_ne!(port.ip_gid(), other.ip_gid());
            }
        }
        assert_eq!(ports[0].gid[..8], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ports[0].gid[8..], first.guid);
        assert_eq!(first.guid[0] & 0x03, 0x02);
    }

    #[test]
    fn link_local_gids_convert_to_mac_and_mapped_gids_to_ipv4() {
        let port = DeviceIdentity::derive(&FabricName::default(), 5).port(2);
        assert_eq!(port.mac[0] & 0x03, 0x02);
        assert_eq!(port.ethernet_gid[11..13], [0xff, 0xfe]);
        assert_eq!(mac_of_link_local(&port.ethernet_gid), Some(port.mac));
        assert_eq!(ipv4_of_gid(&port.ip_gid()).map(|it| it[0]), Some(127));
        assert_eq!(ipv4_of_gid(&port.ethernet_gid), None);
        assert_eq!(mac_of_link_local(&port.ip_gid()), None);
        let mut other = port.ethernet_gid;
        other[2] = 1;
        assert_eq!(mac_of_link_local(&other), None, "not link-local");
        assert_eq!(mac_of_multicast(&other), None);
        let group = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(mac_of_multicast(&group), Some([0x33, 0x33, 0, 0, 0, 1]));
        let group = mapped([239, 0x81, 2, 3]);
        assert_eq!(mac_of_multicast(&group), Some([0x01, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac_of_multicast(&port.ip_gid()), None);
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
            (port.ip_gid(), GidType::RoceV1),
            (port.ip_gid(), GidType::RoceV2),
        ];
        assert_eq!(shown[..4], expected.map(Some));
        assert_eq!(shown[4..], [None; 4]);
        let ib = port.gids(Link::Ib);
        assert_eq!(
            ib[0].map(|it| (it.raw, it.kind)),
            Some((port.gid, GidType::Ib))
        );
        assert_eq!(ib[1..], [None; 7]);
    }
}
