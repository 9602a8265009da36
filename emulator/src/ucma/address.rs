//! Addresses of rdma_cm ids: IPv4, IPv6, and InfiniBand's (`AF_IB`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const AF_IB: u16 = 27;
const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;

/// An address with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `struct sockaddr_in`.
    V4 {
        /// Address.
        ip: Ipv4Addr,
        /// Port.
        port: u16,
    },
    /// `struct sockaddr_in6`.
    V6 {
        /// Address.
        ip: Ipv6Addr,
        /// Port.
        port: u16,
        /// Flow information, as it is in memory.
        flow: [u8; 4],
        /// Interface index of a link-local address.
        scope: u32,
    },
    /// `struct sockaddr_ib`.
    Ib {
        /// Partition key.
        pkey: u16,
        /// Flow information, as it is in memory.
        flow: [u8; 4],
        /// GID.
        gid: [u8; 16],
        /// Service ID; the lower 16 bits are the port.
        sid: u64,
        /// The bits of the service ID that are valid.
        mask: u64,
        /// Scope.
        scope: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
    /// `AF_IB`.
    Ib,
}

impl Address {
    /// Reads a socket address. Returns `None` if its family is not known or the
    /// bytes are too few.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        match u16::from_ne_bytes(from.take()?) {
            AF_INET => {
                let (port, ip) = (from.take()?, from.take::<4>()?);
                let _zero: [u8; 8] = from.take()?;
                Some(Self::V4 {
                    ip: ip.into(),
                    port: u16::from_be_bytes(port),
                })
            }
            AF_INET6 => {
                let (port, flow) = (from.take()?, from.take()?);
                Some(Self::V6 {
                    ip: from.take::<16>()?.into(),
                    port: u16::from_be_bytes(port),
                    flow,
                    scope: u32::from_ne_bytes(from.take()?),
                })
            }
            AF_IB => Some(Self::Ib {
                pkey: u16::from_be_bytes(from.take()?),
                flow: from.take()?,
                gid: from.take()?,
                sid: u64::from_be_bytes(from.take()?),
                mask: u64::from_be_bytes(from.take()?),
                scope: u64::from_ne_bytes(from.take()?),
            }),
            _ => None,
        }
    }

    /// Returns the bytes of the socket address.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        match self {
            Self::V4 { ip, port } => {
                out.extend(AF_INET.to_ne_bytes());
                out.extend(port.to_be_bytes());
                out.extend(ip.octets());
                out.extend([0; 8]);
            }
            Self::V6 {
                ip,
                port,
                flow,
                scope,
            } => {
                out.extend(AF_INET6.to_ne_bytes());
                out.extend(port.to_be_bytes());
                out.extend(flow);
                out.extend(ip.octets());
                out.extend(scope.to_ne_bytes());
            }
            Self::Ib {
                pkey,
                flow,
                gid,
                sid,
                mask,
                scope,
            } => {
                out.extend(AF_IB.to_ne_bytes());
                out.extend(pkey.to_be_bytes());
                out.extend(flow);
                out.extend(gid);
                out.extend(sid.to_be_bytes());
                out.extend(mask.to_be_bytes());
                out.extend(scope.to_ne_bytes());
            }
        }
        out
    }

    /// Returns the length of the socket address in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::V4 { .. } => 16,
            Self::V6 { .. } => 28,
            Self::Ib { .. } => 48,
        }
    }

    pub(crate) fn family(&self) -> Family {
        match self {
            Self::V4 { .. } => Family::V4,
            Self::V6 { .. } => Family::V6,
            Self::Ib { .. } => Family::Ib,
        }
    }

    /// Returns the address of all zeros of a family, without a port.
    pub(crate) fn unspecified(family: Family) -> Self {
        match family {
            Family::V4 => Self::V4 {
                ip: Ipv4Addr::UNSPECIFIED,
                port: 0,
            },
            Family::V6 => Self::V6 {
                ip: Ipv6Addr::UNSPECIFIED,
                port: 0,
                flow: [0; 4],
                scope: 0,
            },
            Family::Ib => Self::Ib {
                pkey: 0,
                flow: [0; 4],
                gid: [0; 16],
                sid: 0,
                mask: 0,
                scope: 0,
            },
        }
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match *self {
            Self::V4 { ip, .. } => Some(ip.into()),
            Self::V6 { ip, .. } => Some(ip.into()),
            Self::Ib { .. } => None,
        }
    }

    /// Replaces the IP address by one of the same family.
    pub(crate) fn with_ip(self, new: IpAddr) -> Self {
        match (self, new) {
            (Self::V4 { port, .. }, IpAddr::V4(ip)) => Self::V4 { ip, port },
            (
                Self::V6 {
                    port, flow, scope, ..
                },
                IpAddr::V6(ip),
            ) => Self::V6 {
                ip,
                port,
                flow,
                scope,
            },
            (unchanged, _) => unchanged,
        }
    }

    /// Returns the address as 16 bytes, an IPv4 address in the first 4.
    pub(crate) fn octets(&self) -> [u8; 16] {
        match self {
            Self::V4 { ip, .. } => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&ip.octets());
                octets
            }
            Self::V6 { ip, .. } => ip.octets(),
            Self::Ib { gid, .. } => *gid,
        }
    }

    /// Returns the port, or the lower 16 bits of the service ID.
    pub(crate) fn port(&self) -> u16 {
        match *self {
            Self::V4 { port, .. } | Self::V6 { port, .. } => port,
            Self::Ib { sid, mask, .. } => (sid & mask) as u16,
        }
    }

    pub(crate) fn set_port(&mut self, new: u16) {
        match self {
            Self::V4 { port, .. } | Self::V6 { port, .. } => *port = new,
            Self::Ib { sid, mask, .. } => {
                *sid = *sid & *mask & !0xffff | u64::from(new);
                *mask = u64::MAX;
            }
        }
    }

    /// Returns whether no address is set (`cma_zero_addr`).
    pub(crate) fn is_unspecified(&self) -> bool {
        match self {
            Self::V4 { ip, .. } => ip.octets()[0] == 0,
            Self::V6 { ip, .. } => ip.is_unspecified(),
            Self::Ib { gid, .. } => *gid == [0; 16],
        }
    }

    /// Returns whether this is an address of the loopback interface.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::V4 { ip, .. } => ip.is_loopback(),
            Self::V6 { ip, .. } => ip.is_loopback(),
            Self::Ib { gid, .. } => *gid == Ipv6Addr::LOCALHOST.octets(),
        }
    }

    /// Returns the interface index of a link-local IPv6 address; `Some(0)` if
    /// one is missing.
    pub(crate) fn link_local_scope(&self) -> Option<u32> {
        match self {
            Self::V6 { ip, scope, .. } if ip.is_unicast_link_local() => Some(*scope),
            _ => None,
        }
    }

    /// Returns whether both have the same address, whatever the port.
    pub(crate) fn same_host(&self, other: &Self) -> bool {
        self.family() == other.family()
            && self.octets() == other.octets()
            && self.link_local_scope() == other.link_local_scope()
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_bytes() {
        let v4 = [
            &AF_INET.to_ne_bytes()[..],
            &[0x1d, 0x2f, 10, 0, 0, 7],
            &[0; 8],
        ]
        .concat();
        let v6 = [
            &AF_INET6.to_ne_bytes()[..],
            &[0x1d, 0x2f, 1, 2, 3, 4],
            &Ipv6Addr::LOCALHOST.octets(),
            &9u32.to_ne_bytes(),
        ]
        .concat();
        let ib = [&AF_IB.to_ne_bytes()[..], &[7; 46]].concat();
        for bytes in [v4, v6, ib] {
            let address = Address::parse(&bytes).expect("valid");
            assert_eq!(address.bytes(), bytes);
            assert_eq!(address.size(), bytes.len());
            assert_eq!(Address::parse(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(Address::parse(&[0xff; 128]), None);
    }

    #[test]
    fn a_port_of_an_ib_address_is_the_end_of_its_service_id() {
        let mut address = Address::unspecified(Family::Ib);
        if let Address::Ib { sid, mask, .. } = &mut address {
            (*sid, *mask) = (0x0106_1234, !0xffff);
        }
        assert_eq!(address.port(), 0);
        address.set_port(0x5678);
        assert_eq!(address.port(), 0x5678);
        assert!(matches!(
            address,
            Address::Ib {
                sid: 0x0106_5678,
                mask: u64::MAX,
                ..
            }
        ));
    }

    #[test]
    fn loopback_and_unspecified_addresses_are_recognised() {
        let v4 = |ip: [u8; 4]| Address::V4 {
            ip: ip.into(),
            port: 1,
        };
        assert!(v4([127, 9, 0, 1]).is_loopback() && !v4([10, 0, 0, 1]).is_loopback());
        assert!(v4([0, 0, 0, 0]).is_unspecified() && !v4([127, 0, 0, 1]).is_unspecified());
        assert!(v4([10, 0, 0, 1]).same_host(&Address::V4 {
            ip: [10, 0, 0, 1].into(),
            port: 2,
        }));
    }
}
