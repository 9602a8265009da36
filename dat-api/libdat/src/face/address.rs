//! Conversion of `sockaddr`.

use core::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use dat_api::{DatError, Result, ReturnType, Subtype};

use super::frame::bad_argument;
use crate::abi::DAT_IA_ADDRESS_PTR;

/// Reads the address that an argument points to.
///
/// # Errors
/// The pointer is null, or the family is neither IPv4 nor IPv6.
///
/// # Safety
/// The pointer is null or leads to a readable `sockaddr` of the size that its
/// family has. It need not be aligned.
pub(crate) unsafe fn read(address: DAT_IA_ADDRESS_PTR, argument: Subtype) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(bad_argument(
            argument,
            "the address is null: expected a sockaddr_in or sockaddr_in6",
        ));
    }
    // SAFETY: every `sockaddr` begins with its family.
    let family = unsafe {
        address
            .byte_add(offset_of!(libc::sockaddr, sa_family))
            .cast::<libc::sa_family_t>()
            .read_unaligned()
    };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that the structure is a `sockaddr_in`.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the structure is a `sockaddr_in6`.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        other => Err(DatError::new(
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
            format!("invalid address family {other}: expected AF_INET or AF_INET6"),
        )),
    }
}
