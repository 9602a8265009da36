//! The global route header (GRH) that receivers of datagrams find before the payload
//! (IBA 8.3). With RoCE v2 it is the IPv6 or IPv4 header.

use crate::decode::address::AddressVector;
use crate::spec::gid::{Gid, GidType, ipv4_of_gid};

/// Size of the header in bytes.
pub(super) const BYTES: usize = 40;

/// Next header: InfiniBand transport, or UDP.
const NEXT_IBA: u8 = 0x1b;
const NEXT_UDP: u8 = 17;
/// Bytes around the payload of a datagram: base and datagram transport headers, and
/// the checksum at the end.
const TRANSPORT: usize = 12 + 8 + 4;
const UDP: usize = 8;

/// Returns the GRH of a datagram of `length` bytes from the GID `source` to the
/// destination `to`.
pub(super) fn encode(source: Gid, to: &AddressVector, length: u32) -> [u8; BYTES] {
    let is_udp = source.kind == GidType::RoceV2;
    let (next, outer) = if is_udp {
        (NEXT_UDP, UDP)
    } else {
        (NEXT_IBA, 0)
    };
    let payload = (length as usize).next_multiple_of(4) + TRANSPORT + outer;
    if is_udp && let (Some(from), Some(to_ip)) = (source.ipv4(), ipv4_of_gid(&to.gid)) {
        return ipv4(from, to_ip, to, payload);
    }
    let first = 6 << 28 | u32::from(to.traffic_class) << 20 | to.flow_label;
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&first.to_be_bytes());
    bytes[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    bytes[6] = next;
    bytes[7] = to.hop_limit;
    bytes[8..24].copy_from_slice(&source.raw);
    bytes[24..].copy_from_slice(&to.gid);
    bytes
}

/// Returns a GRH with an IPv4 header in the second half (IBA annex A17). The first
/// half is undefined.
fn ipv4(from: [u8; 4], to_ip: [u8; 4], to: &AddressVector, payload: usize) -> [u8; BYTES] {
    const HEADER: usize = 20;
    /// Version 4, five words; do not fragment.
    const VERSION: u8 = 0x45;
    const DO_NOT_FRAGMENT: u8 = 0x40;
    let mut bytes = [0; BYTES];
    let header = &mut bytes[BYTES - HEADER..];
    (header[0], header[1]) = (VERSION, to.traffic_class);
    header[2..4].copy_from_slice(&((payload + HEADER) as u16).to_be_bytes());
    header[6] = DO_NOT_FRAGMENT;
    (header[8], header[9]) = (to.hop_limit, NEXT_UDP);
    header[12..16].copy_from_slice(&from);
    header[16..].copy_from_slice(&to_ip);
    let sum = check_sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
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

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(raw: [u8; 16], kind: GidType) -> Gid {
        Gid { raw, kind }
    }

    #[test]
    fn the_header_has_the_layout_of_ipv6() {
        let mut wqe = [0; 48];
        wqe[8] = 0x80;
        wqe[26] = 0xab;
        wqe[27] = 64;
        wqe[28..32].copy_from_slice(&(1 << 30 | 0x000c_dead_u32).to_be_bytes());
        wqe[32..].copy_from_slice(&[9; 16]);
        let to = AddressVector::parse(&wqe).unwrap().0;
        let bytes = encode(gid([7; 16], GidType::Ib), &to, 5);
        assert_eq!(bytes[..8], [0x6a, 0xbc, 0xde, 0xad, 0, 32, 0x1b, 64]);
        assert_eq!((&bytes[8..24], &bytes[24..]), (&[7; 16][..], &[9; 16][..]));
        let v2 = gid([7; 16], GidType::RoceV2);
        assert_eq!(encode(v2, &to, 5)[4..7], [0, 40, 17]);
    }

    #[test]
    fn between_ipv4_addresses_the_second_half_is_an_ipv4_header() {
        let mut wqe = [0; 48];
        wqe[8] = 0x80;
        wqe[26] = 0xab;
        wqe[27] = 64;
        wqe[28] = 0x40;
        wqe[42..].copy_from_slice(&[0xff, 0xff, 127, 1, 2, 3]);
        let to = AddressVector::parse(&wqe).unwrap().0;
        let mut source = [0; 16];
        source[10..].copy_from_slice(&[0xff, 0xff, 127, 4, 5, 6]);
        let bytes = encode(gid(source, GidType::RoceV2), &to, 5);
        assert_eq!(bytes[..20], [0; 20]);
        let header = &bytes[20..];
        assert_eq!(header[..10], [0x45, 0xab, 0, 60, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(header[12..], [127, 4, 5, 6, 127, 1, 2, 3]);
        assert_eq!(check_sum(header), 0, "including its own checksum");
        // From an IPv6 address it is an IPv6 header.
        let ipv6 = gid([7; 16], GidType::RoceV2);
        assert_eq!(encode(ipv6, &to, 5)[0] >> 4, 6);
        // RoCE v1 has InfiniBand's header also between IPv4 addresses.
        let bytes = encode(gid(source, GidType::RoceV1), &to, 5);
        assert_eq!((bytes[0] >> 4, bytes[6]), (6, NEXT_IBA));
        assert_eq!(bytes[8..24], source);
    }
}
