//! Conversion between `SocketAddr` and C's `sockaddr`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A `sockaddr_in` or `sockaddr_in6`.
pub(crate) union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Address {
    pub(crate) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*v4.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(v6) => Self {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                },
            },
        }
    }

    pub(crate) fn pointer(&mut self) -> *mut libc::sockaddr {
        (&raw mut *self).cast()
    }
}

/// Converts a `sockaddr`; `None` if it is null or not an IP address.
///
/// # Safety
/// `address` is null, or points to a `sockaddr` of the length of its family.
pub(crate) unsafe fn read_address(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and every `sockaddr` has a family.
    let family = i32::from(unsafe { (*address).sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is this structure.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is this structure.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some((ip, u16::from_be(v6.sin6_port)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_same_after_conversion_to_c_and_back() {
        for text in ["10.1.2.3:258", "[fe80::1%3]:7", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut c = Address::new(address);
            // SAFETY: `c` has the length of its family.
            let back = unsafe { read_address(c.pointer()) }.unwrap();
            assert_eq!((back.ip(), back.port()), (address.ip(), address.port()));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read_address(core::ptr::null()) }, None);
    }
}
