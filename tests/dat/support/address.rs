//! The IP address of the adapter under test.

use std::mem;
use std::net::IpAddr;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use dat::abi::*;
use dat::exports::*;

use super::ok;

// SAFETY: integers, for which zero is valid.
static HERE: Mutex<libc::sockaddr_storage> = Mutex::new(unsafe { mem::zeroed() });

/// Stores the address of an adapter that was opened.
pub fn store_address(ia: DAT_IA_HANDLE) {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut adapter: DAT_IA_ATTR = unsafe { mem::zeroed() };
    // SAFETY: requested results are writable, others are not requested.
    ok(unsafe {
        dat_ia_query(
            ia,
            ptr::null_mut(),
            DAT_IA_FIELD_ALL,
            &raw mut adapter,
            0,
            ptr::null_mut(),
        )
    });
    // SAFETY: integers, for which zero is valid.
    let mut here: libc::sockaddr_storage = unsafe { mem::zeroed() };
    // SAFETY: the adapter is open, and its address has the size that its family
    // says.
    unsafe {
        let from = adapter.ia_address_ptr;
        let len = match libc::c_int::from((*from).sa_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            other => panic!("unexpected address family {other}"),
        };
        ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut here).cast::<u8>(), len);
    }
    *HERE.lock().unwrap_or_else(PoisonError::into_inner) = here;
}

/// Returns the address of the adapter that was opened last.
pub fn here() -> libc::sockaddr_storage {
    *HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`here`], as an IP address.
pub fn here_ip() -> IpAddr {
    let mut here = here();
    ip_at((&raw mut here).cast())
}

/// Converts an address that a query has returned.
#[track_caller]
pub fn ip_at(at: DAT_IA_ADDRESS_PTR) -> IpAddr {
    assert!(!at.is_null());
    // SAFETY: the address has the size that its family says.
    unsafe {
        match libc::c_int::from((*at).sa_family) {
            libc::AF_INET => u32::from_be((*at.cast::<libc::sockaddr_in>()).sin_addr.s_addr)
                .to_be_bytes()
                .into(),
            libc::AF_INET6 => (*at.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr.into(),
            other => panic!("family {other}"),
        }
    }
}
