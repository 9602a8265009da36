//! The addresses of a request, which rdma_cm puts before the private data of the
//! application (IBA vol. 1, annex A11; the kernel's `struct cma_hdr`).

use super::address::Address;

/// Size of the header in bytes.
pub(super) const HEADER: usize = 36;
/// Version of the header.
const VERSION: u8 = 0;

/// Encodes the addresses of a request that goes from `from` to `to`.
pub(super) fn encode(from: &Address, to: &Address) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = VERSION;
    header[2..4].copy_from_slice(&from.port().to_be_bytes());
    // An IPv4 address is in the last 4 of its 16 bytes.
    let (version, at) = match from {
        Address::V4 { .. } => (4, 12),
        _ => (6, 0),
    };
    header[1] = version << 4;
    let len = 16 - at;
    header[4 + at..20].copy_from_slice(&from.octets()[..len]);
    header[20 + at..].copy_from_slice(&to.octets()[..len]);
    header
}

/// Decodes the addresses of a request, as the receiver sees them: its own, with
/// the port of the service, and the sender's. Returns `None` if the private data
/// do not begin with addresses.
pub(super) fn decode(data: &[u8], service_id: u64) -> Option<(Address, Address)> {
    let header = data.first_chunk::<HEADER>()?;
    if header[0] != VERSION {
        return None;
    }
    let port = u16::from_be_bytes([header[2], header[3]]);
    let service_port = service_id as u16;
    let address = |at: usize, port| match header[1] >> 4 {
        4 => Some(Address::V4 {
            ip: <[u8; 4]>::try_from(&header[at + 12..at + 16]).ok()?.into(),
            port,
        }),
        6 => Some(Address::V6 {
            ip: <[u8; 16]>::try_from(&header[at..at + 16]).ok()?.into(),
            port,
            flow: [0; 4],
            scope: 0,
        }),
        _ => None,
    };
    Some((address(20, service_port)?, address(4, port)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_arrive_as_the_receiver_sees_them() {
        let v4 = |last, port| Address::V4 {
            ip: [10, 0, 0, last].into(),
            port,
        };
        let bytes = encode(&v4(1, 500), &v4(2, 600));
        assert_eq!(decode(&bytes, 0x0106_0258), Some((v4(2, 600), v4(1, 500))));
        let v6 = |last, port| Address::V6 {
            ip: [0xfd00, 0, 0, 0, 0, 0, 0, last].into(),
            port,
            flow: [0; 4],
            scope: 0,
        };
        let bytes = encode(&v6(1, 500), &v6(2, 600));
        assert_eq!(decode(&bytes, 0x0106_0258), Some((v6(2, 600), v6(1, 500))));
        assert_eq!(decode(&bytes[1..], 600), None);
        assert_eq!(decode(&[0; HEADER], 600), None);
    }
}
