//! The headers before the transport: the local route header of InfiniBand (LRH, IBA 7.7),
//! the global one (GRH, IBA 8.3), which RoCE v1 has too, and IP and UDP of RoCE v2.

use crate::spec::gid::ipv4_of_gid;
use crate::spec::{Path, Qpn};

/// Size of a GRH in bytes, which receivers of datagrams find before the payload.
pub const GRH: usize = 40;
/// The UDP port of RoCE v2.
pub const UDP_PORT: u16 = 4791;

pub(super) const LRH: usize = 8;
const IPV4: usize = 20;
const UDP: usize = 8;
/// The smallest source port of RoCE v2.
const FIRST_SOURCE_PORT: u16 = 0xc000;
const FLOW_LABEL: u32 = 0xf_ffff;
/// Next header: InfiniBand transport, or UDP.
const NEXT_IBA: u8 = 0x1b;
const NEXT_UDP: u8 = 17;

/// How the sender addresses a packet, apart from the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Index of the source GID in the table of the sending port.
    pub source_gid: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Whether packets of a connection have a GRH on InfiniBand.
    pub is_global: bool,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Source port of RoCE v2.
    pub source_port: u16,
}

impl Route {
    /// Returns the route of a connection.
    #[must_use]
    pub fn of(path: &Path, own: Qpn, peer: Qpn) -> Self {
        Self {
            source_gid: path.sgid_index,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            is_global: path.is_global,
            flow_label: path.flow_label & FLOW_LABEL,
            source_port: source_port(path.flow_label, own, peer),
        }
    }
}

/// Returns the UDP source port of a connection, which spreads connections over the paths
/// of a network (`rdma_get_udp_sport` of the kernel).
fn source_port(flow_label: u32, own: Qpn, peer: Qpn) -> u16 {
    let mut label = u64::from(flow_label & FLOW_LABEL);
    if label == 0 {
        label = u64::from(own.0) * u64::from(peer.0);
        label ^= label >> 20;
        label ^= label >> 40;
    }
    let label = label as u32 & FLOW_LABEL;
    (label & 0x3fff ^ label >> 14) as u16 | FIRST_SOURCE_PORT
}

/// The global addresses of a packet. Those of RoCE v2 are IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Global {
    /// Source GID.
    pub source: [u8; 16],
    /// Destination GID.
    pub destination: [u8; 16],
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits; IPv4 has none.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Global {
    /// Returns the network header as receivers of datagrams find it: a GRH or, of RoCE v2
    /// (`is_udp`), an IPv6 header, or an IPv4 header in the second half (annex A17).
    /// `transport` is the number of bytes from the base transport header to the invariant
    /// CRC.
    #[must_use]
    pub fn encode(&self, is_udp: bool, transport: usize) -> [u8; GRH] {
        let (next, length) = match is_udp {
            true => (NEXT_UDP, transport + UDP),
            false => (NEXT_IBA, transport),
        };
        let mut bytes = [0; GRH];
        if let Some((source, destination)) = self.ipv4().filter(|_| is_udp) {
            /// Version 4, five words; do not fragment.
            const VERSION: u8 = 0x45;
            const DO_NOT_FRAGMENT: u8 = 0x40;
            let header = &mut bytes[GRH - IPV4..];
            (header[0], header[1]) = (VERSION, self.traffic_class);
            header[2..4].copy_from_slice(&((length + IPV4) as u16).to_be_bytes());
            header[6] = DO_NOT_FRAGMENT;
            (header[8], header[9]) = (self.hop_limit, next);
            header[12..16].copy_from_slice(&source);
            header[16..].copy_from_slice(&destination);
            let sum = check_sum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            return bytes;
        }
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL;
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        (bytes[6], bytes[7]) = (next, self.hop_limit);
        bytes[8..24].copy_from_slice(&self.source);
        bytes[24..].copy_from_slice(&self.destination);
        bytes
    }

    /// Returns the addresses of a network header as receivers of datagrams find it.
    #[must_use]
    pub fn decode(bytes: &[u8; GRH]) -> Self {
        let mapped = |at: usize| {
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            gid[12..].copy_from_slice(&bytes[at..at + 4]);
            gid
        };
        if bytes[0] >> 4 != 6 {
            return Self {
                source: mapped(32),
                destination: mapped(36),
                traffic_class: bytes[21],
                flow_label: 0,
                hop_limit: bytes[28],
            };
        }
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let gid = |at: usize| core::array::from_fn(|index| bytes[at + index]);
        Self {
            source: gid(8),
            destination: gid(24),
            traffic_class: (first >> 20) as u8,
            flow_label: first & FLOW_LABEL,
            hop_limit: bytes[7],
        }
    }

    /// Returns the addresses if both are IPv4 addresses.
    fn ipv4(&self) -> Option<([u8; 4], [u8; 4])> {
        Some((ipv4_of_gid(&self.source)?, ipv4_of_gid(&self.destination)?))
    }
}

/// The network headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// InfiniBand.
    InfiniBand {
        /// Source LID.
        source: u16,
        /// Destination LID.
        destination: u16,
        /// Service level.
        service_level: u8,
        /// The global route header, if there is one.
        global: Option<Global>,
    },
    /// RoCE v1.
    RoceV1(Global),
    /// RoCE v2.
    RoceV2 {
        /// The IP addresses.
        global: Global,
        /// UDP source port.
        source_port: u16,
    },
}

/// The bytes of the network headers.
pub struct Headers {
    bytes: [u8; LRH + GRH],
    len: usize,
}

impl Headers {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl Network {
    /// Returns the headers before `transport` bytes, which end with the invariant CRC.
    #[must_use]
    pub fn headers(&self, transport: usize) -> Headers {
        let mut out = Headers {
            bytes: [0; LRH + GRH],
            len: 0,
        };
        match self {
            Self::InfiniBand {
                source,
                destination,
                service_level,
                global,
            } => {
                /// The next header: a GRH, or a transport header.
                const GLOBAL: u8 = 3;
                const LOCAL: u8 = 2;
                let (next, len) = match global {
                    Some(_) => (GLOBAL, LRH + GRH + transport),
                    None => (LOCAL, LRH + transport),
                };
                out.push(&[0, service_level << 4 | next]);
                out.push(&destination.to_be_bytes());
                out.push(&((len / 4) as u16).to_be_bytes());
                out.push(&source.to_be_bytes());
                if let Some(global) = global {
                    out.push(&global.encode(false, transport));
                }
            }
            Self::RoceV1(global) => out.push(&global.encode(false, transport)),
            Self::RoceV2 {
                global,
                source_port,
            } => {
                let header = global.encode(true, transport);
                let unused = if global.ipv4().is_some() {
                    GRH - IPV4
                } else {
                    0
                };
                out.push(&header[unused..]);
                out.push(&source_port.to_be_bytes());
                out.push(&UDP_PORT.to_be_bytes());
                out.push(&((transport + UDP) as u16).to_be_bytes());
                // No checksum: the invariant CRC covers more (annex A17).
                out.push(&[0, 0]);
            }
        }
        out
    }

    /// Returns the network header that a receiver of a datagram finds in its payload.
    #[must_use]
    pub(super) fn in_payload(&self, transport: usize) -> Option<[u8; GRH]> {
        match self {
            Self::InfiniBand { global, .. } => global.map(|global| global.encode(false, transport)),
            Self::RoceV1(global) => Some(global.encode(false, transport)),
            Self::RoceV2 { global, .. } => Some(global.encode(true, transport)),
        }
    }

    /// Returns whether the headers are those of IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        matches!(self, Self::RoceV2 { global, .. } if global.ipv4().is_some())
    }
}

/// Returns the IPv4 header checksum (RFC 1071).
fn check_sum(header: &[u8]) -> u16 {
    let words = header
        .chunks_exact(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
