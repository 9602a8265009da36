//! The global route header, as receivers of datagrams find it before the
//! payload (IBA 8.3). On a RoCE v2 link it is the IPv6 header.

use super::spec::PortIdentity;
use crate::decode::address::AddressVector;

/// Bytes of the header.
pub(super) const BYTES: usize = 40;

/// Next header: an InfiniBand transport, or UDP.
const NEXT_IBA: u8 = 0x1b;
const NEXT_UDP: u8 = 17;
/// Bytes around the payload of a datagram: base and datagram transport
/// headers, and the check sum at the end.
const TRANSPORT: usize = 12 + 8 + 4;
const UDP: usize = 8;

/// The header of a datagram of `length` bytes from `source` to where `to` leads.
pub(super) fn encode(source: &PortIdentity, to: &AddressVector, length: u32) -> [u8; BYTES] {
    let (next, outer) = if source.ethernet {
        (NEXT_UDP, UDP)
    } else {
        (NEXT_IBA, 0)
    };
    let payload = (length as usize).next_multiple_of(4) + TRANSPORT + outer;
    let first = 6 << 28 | u32::from(to.traffic_class) << 20 | to.flow_label;
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&first.to_be_bytes());
    bytes[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    bytes[6] = next;
    bytes[7] = to.hop_limit;
    bytes[8..24].copy_from_slice(&source.gid);
    bytes[24..].copy_from_slice(&to.gid);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_lie_where_an_ipv6_header_has_them() {
        let mut wqe = [0; 48];
        wqe[8] = 0x80;
        wqe[26] = 0xab;
        wqe[27] = 64;
        wqe[28..32].copy_from_slice(&(1 << 30 | 0x000c_dead_u32).to_be_bytes());
        wqe[32..].copy_from_slice(&[9; 16]);
        let to = AddressVector::parse(&wqe).unwrap().0;
        let mut source = PortIdentity {
            lid: 1,
            gid: [7; 16],
            ethernet: false,
        };
        let bytes = encode(&source, &to, 5);
        assert_eq!(bytes[..8], [0x6a, 0xbc, 0xde, 0xad, 0, 32, 0x1b, 64]);
        assert_eq!((&bytes[8..24], &bytes[24..]), (&[7; 16][..], &[9; 16][..]));
        source.ethernet = true;
        assert_eq!(encode(&source, &to, 5)[4..7], [0, 40, 17]);
    }
}
