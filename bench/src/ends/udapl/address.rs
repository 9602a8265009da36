//! Reading C's `sockaddr`.

use std::net::SocketAddr;

use socket2::{SockAddr, SockAddrStorage};

/// Converts a `sockaddr`; `None` if it is null or not an IP address.
///
/// # Safety
/// `address` is null, or points to a `sockaddr` of the length of its family.
pub(crate) unsafe fn read_address(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and every `sockaddr` has a family.
    let length = match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let copy = |storage: *mut SockAddrStorage, room: *mut libc::socklen_t| {
        // SAFETY: the family says that the address has this length, for which every
        // `sockaddr_storage` has room; both are not null.
        unsafe {
            core::ptr::copy_nonoverlapping(address.cast::<u8>(), storage.cast(), length);
            *room = length as libc::socklen_t;
        }
        Ok(())
    };
    // SAFETY: `copy` has written an address, and its length.
    let ((), read) = unsafe { SockAddr::try_init(copy) }.ok()?;
    read.as_socket()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_same_after_conversion_to_c_and_back() {
        for text in ["10.1.2.3:258", "[fe80::1%3]:7", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let c = SockAddr::from(address);
            // SAFETY: `c` has the length of its family.
            let back = unsafe { read_address(c.as_ptr().cast()) };
            assert_eq!(back, Some(address));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read_address(core::ptr::null()) }, None);
    }
}
