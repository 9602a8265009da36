//! The global route header (GRH) that receivers of datagrams find before the payload
//! (IBA 8.3). With RoCE v2 it is the IPv6 or IPv4 header.

use crate::decode::address::AddressVector;
use crate::fabric::iba::icrc;
use crate::fabric::iba::network::{GRH, Global};
use crate::spec::gid::{Gid, GidType};

/// Returns the GRH of a datagram from the GID `source` to the destination `to`, with
/// `transport` bytes of transport headers and `length` bytes of data.
pub(super) fn encode(source: Gid, to: &AddressVector, transport: usize, length: u32) -> [u8; GRH] {
    let global = Global {
        source: source.raw,
        destination: to.gid,
        traffic_class: to.traffic_class,
        flow_label: to.flow_label,
        hop_limit: to.hop_limit,
    };
    let behind = transport + (length as usize).next_multiple_of(4) + icrc::LEN;
    global.encode(source.kind == GidType::RoceV2, behind)
}
#[cfg(test)]
mod tests {
    use super::*;

    /// Base and datagram transport headers.
    const TRANSPORT: usize = 12 + 8;

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
        let bytes = encode(gid([7; 16], GidType::Ib), &to, TRANSPORT, 5);
        assert_eq!(bytes[..8], [0x6a, 0xbc, 0xde, 0xad, 0, 32, 0x1b, 64]);
        assert_eq!((&bytes[8..24], &bytes[24..]), (&[7; 16][..], &[9; 16][..]));
        let v2 = gid([7; 16], GidType::RoceV2);
        assert_eq!(encode(v2, &to, TRANSPORT, 5)[4..7], [0, 40, 17]);
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
        let bytes = encode(gid(source, GidType::RoceV2), &to, TRANSPORT, 5);
        assert_eq!(bytes[..20], [0; 20]);
        let header = &bytes[20..];
        assert_eq!(header[..10], [0x45, 0xab, 0, 60, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(header[12..], [127, 4, 5, 6, 127, 1, 2, 3]);
        let words = header
            .chunks(2)
            .map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
        assert_eq!(words.sum::<u32>() % 0xffff, 0, "including its own checksum");
        // From an IPv6 address it is an IPv6 header.
        let ipv6 = gid([7; 16], GidType::RoceV2);
        assert_eq!(encode(ipv6, &to, TRANSPORT, 5)[0] >> 4, 6);
        // RoCE v1 has InfiniBand's header also between IPv4 addresses.
        let bytes = encode(gid(source, GidType::RoceV1), &to, TRANSPORT, 5);
        assert_eq!((bytes[0] >> 4, bytes[6]), (6, 0x1b));
        assert_eq!(bytes[8..24], source);
    }
}
