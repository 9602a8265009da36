//! The name of a fabric, and the addresses derived from it. Processes with the
//! same fabric name compute the same GUIDs, GIDs and LIDs without communicating.

use std::fmt;

use crate::spec::Link;
use crate::spec::gid::{Gid, GidTable, GidType, gid_of_mac, mapped};

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

/// The addresses of a device. They are equal in all processes of its fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Node GUID, and GUID of port 1, in network byte order.
    pub guid: [u8; 8],
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
    /// The other GID on a RoCE link: an IPv4-mapped address of the loopback network,
    /// which the port's network interface has.
    pub ip_gid: [u8; 16],
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
        Self { guid }
    }

    /// Returns the addresses of a port, counted from 1.
    #[must_use]
    pub fn port(&self, port: u8) -> PortNames {
        /// Larger than the maximum number of devices.
        const LIDS_OF_A_PORT: u16 = 0x40;
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
            // Differs between fabrics, and is not used otherwise.
            ip_gid: mapped([127, b | 0x40, c, 0x20 * further + device + 1]),
        }
    }
}

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
                assert_ne!(port.ip_gid, other.ip_gid);
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
