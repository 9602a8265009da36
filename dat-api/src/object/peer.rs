//! A peer's address as a C `sockaddr`, at a fixed place in memory.

use core::net::SocketAddr;

/// Room for a `sockaddr_in` or a `sockaddr_in6`. The bytes are those of C: family in host order,
/// port and address in network order.
#[derive(Debug)]
pub(crate) struct PeerAddress(Box<Storage>);

#[derive(Debug)]
#[repr(C, align(8))]
struct Storage([u8; size_of::<libc::sockaddr_in6>()]);

impl PeerAddress {
    /// Returns no address: family 0.
    pub(crate) fn none() -> Self {
        Self(Box::new(Storage([0; _])))
    }

    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut new = Self::none();
        new.set(address);
        new
    }

    /// Returns where the `sockaddr` is, for as long as this lives.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(&*self.0).expose_provenance()
    }

    /// Stores another address in the same place.
    pub(crate) fn set(&mut self, address: SocketAddr) {
        let bytes = &mut self.0.0;
        bytes.fill(0);
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        match address {
            SocketAddr::V4(v4) => {
                put(0, &(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
                put(2, &v4.port().to_be_bytes());
                put(4, &v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                put(0, &(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
                put(2, &v6.port().to_be_bytes());
                put(4, &v6.flowinfo().to_be_bytes());
                put(8, &v6.ip().octets());
                put(24, &v6.scope_id().to_ne_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    #[test]
    fn fields_are_where_c_has_them() {
        use libc::{sockaddr_in, sockaddr_in6};
        assert_eq!(offset_of!(sockaddr_in, sin_family), 0);
        assert_eq!(offset_of!(sockaddr_in, sin_port), 2);
        assert_eq!(offset_of!(sockaddr_in, sin_addr), 4);
        assert_eq!(offset_of!(sockaddr_in6, sin6_port), 2);
        assert_eq!(offset_of!(sockaddr_in6, sin6_flowinfo), 4);
        assert_eq!(offset_of!(sockaddr_in6, sin6_addr), 8);
        assert_eq!(offset_of!(sockaddr_in6, sin6_scope_id), 24);
        let peer = PeerAddress::new("10.1.2.3:258".parse().unwrap());
        assert_eq!(peer.0.0[2..8], [1, 2, 10, 1, 2, 3]);
    }
}
