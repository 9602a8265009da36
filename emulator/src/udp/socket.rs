//! UDP sockets of one address.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{c_int, c_void};

use crate::fabric::interfaces::Interface;
use crate::hidden::HiddenFile;
use crate::real;

/// What the kernel is asked to keep until the gateway takes it, in bytes. Without
/// `CAP_NET_ADMIN` it keeps `net.core.rmem_max`.
const RECEIVE_BUFFER: c_int = 8 << 20;

/// A socket that is bound to an address.
#[derive(Debug)]
pub(crate) struct Socket {
    file: HiddenFile,
    address: IpAddr,
    /// The interface, for link-local addresses.
    scope: u32,
    port: u16,
    traffic_class: u8,
}

/// What the kernel says about a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) len: usize,
    pub(crate) from: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

impl Socket {
    /// Binds a socket to a port of an address; 0 selects a free one.
    pub(crate) fn bind(interface: &Interface, address: IpAddr, port: u16) -> io::Result<Self> {
        let scope = interface.index;
        let socket = UdpSocket::bind(socket_address(address, port, scope))?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let socket = Self {
            file: HiddenFile::new(socket),
            address,
            scope,
            port,
            traffic_class: 0,
        };
        // Packets are not fragmented: then the identification of IPv4 is 0, which the
        // invariant CRC covers.
        match address {
            IpAddr::V4(_) => {
                socket.set(
                    libc::IPPROTO_IP,
                    libc::IP_MTU_DISCOVER,
                    libc::IP_PMTUDISC_DO,
                )?;
                socket.set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
                socket.set(libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
            }
            IpAddr::V6(_) => {
                let level = libc::IPPROTO_IPV6;
                socket.set(level, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
                socket.set(level, libc::IPV6_RECVTCLASS, 1)?;
                socket.set(level, libc::IPV6_RECVHOPLIMIT, 1)?;
                // RoCE has no UDP checksum.
                socket.set(libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
            }
        }
        Ok(socket)
    }

    /// Asks the kernel for a large receive buffer.
    pub(crate) fn enlarge_buffer(&self) {
        if self
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)
            .is_err()
        {
            let _ = self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER);
        }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Sends a datagram.
    pub(crate) fn send(
        &mut self,
        bytes: &[u8],
        to: IpAddr,
        port: u16,
        traffic_class: u8,
    ) -> io::Result<()> {
        if traffic_class != self.traffic_class {
            let (level, name) = match self.address {
                IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            self.set(level, name, traffic_class.into())?;
            self.traffic_class = traffic_class;
        }
        let (to, len) = raw_address(to, port, self.scope);
        // SAFETY: the bytes and an address of that length.
        let sent = unsafe {
            real::sendto(
                self.file.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                (&raw const to).cast(),
                len,
            )
        };
        match sent {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes the next datagram; `None` if there is none. A longer one than `into` is cut off.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<Option<Received>> {
        // SAFETY: all-zero socket addresses and message headers are valid.
        let (mut from, mut message) = unsafe {
            (
                std::mem::zeroed::<libc::sockaddr_storage>(),
                std::mem::zeroed::<libc::msghdr>(),
            )
        };
        let mut control = [0_u64; 16];
        let mut vector = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as libc::socklen_t;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message describes buffers that live through the call.
        let len =
            unsafe { libc::recvmsg(self.file.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(len) = usize::try_from(len) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        let (mut traffic_class, mut hop_limit) = (0, 0);
        // SAFETY: the kernel has filled in the message, and control messages are read within
        // its length.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(header) = next.as_ref() {
                let data = libc::CMSG_DATA(next);
                match (header.cmsg_level, header.cmsg_type) {
                    // One byte, unlike the others.
                    (libc::IPPROTO_IP, libc::IP_TOS) => traffic_class = *data,
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        traffic_class = data.cast::<c_int>().read_unaligned() as u8;
                    }
                    (libc::IPPROTO_IP, libc::IP_TTL)
                    | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                        hop_limit = data.cast::<c_int>().read_unaligned() as u8;
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(&raw const message, next);
            }
        }
        // SAFETY: the kernel has stored an address of this family.
        let (from, source_port) = unsafe {
            match self.address {
                IpAddr::V4(_) => {
                    let from = &*(&raw const from).cast::<libc::sockaddr_in>();
                    let ip = u32::from_be(from.sin_addr.s_addr);
                    (IpAddr::V4(ip.into()), u16::from_be(from.sin_port))
                }
                IpAddr::V6(_) => {
                    let from = &*(&raw const from).cast::<libc::sockaddr_in6>();
                    let ip = from.sin6_addr.s6_addr;
                    (IpAddr::V6(ip.into()), u16::from_be(from.sin6_port))
                }
            }
        };
        Ok(Some(Received {
            len,
            from,
            source_port,
            traffic_class,
            hop_limit,
        }))
    }

    fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        let len = size_of_val(&value) as libc::socklen_t;
        let value = (&raw const value).cast::<c_void>();
        // SAFETY: a value of this length.
        match unsafe { libc::setsockopt(self.file.as_raw_fd(), level, name, value, len) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// `UDP_NO_CHECK6_RX`.
const UDP_NO_CHECK6_RX: c_int = 102;

fn socket_address(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(ip) => (ip, port).into(),
        IpAddr::V6(ip) => {
            let scope = if ip.is_unicast_link_local() { scope } else { 0 };
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
    }
}

fn raw_address(ip: IpAddr, port: u16, scope: u32) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: an all-zero address is valid, and has room for one of either family.
    let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match socket_address(ip, port, scope) {
        SocketAddr::V4(address) => {
            // SAFETY: as above.
            let to = unsafe { &mut *(&raw mut raw).cast::<libc::sockaddr_in>() };
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_port = port.to_be();
            to.sin_addr.s_addr = u32::from(*address.ip()).to_be();
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            // SAFETY: as above.
            let to = unsafe { &mut *(&raw mut raw).cast::<libc::sockaddr_in6>() };
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_port = port.to_be();
            to.sin6_addr.s6_addr = address.ip().octets();
            to.sin6_scope_id = address.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    (raw, len as libc::socklen_t)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_datagram_arrives_with_its_traffic_class_and_source() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let interface = Interface::loopback();
            let Ok(receiver) = Socket::bind(&interface, address, 0) else {
                eprintln!("SKIPPED: this host has no {address}");
                continue;
            };
            receiver.enlarge_buffer();
            let mut sender = Socket::bind(&interface, address, 0).unwrap();
            let mut into = [0; 16];
            assert_eq!(receiver.receive(&mut into).unwrap(), None);
            for class in [0, 0xa2, 2] {
                sender
                    .send(b"abc", address, receiver.port(), class)
                    .unwrap();
                let end = Instant::now() + Duration::from_secs(10);
                let received = loop {
                    match receiver.receive(&mut into).unwrap() {
                        Some(received) => break received,
                        None => assert!(Instant::now() < end, "nothing arrives"),
                    }
                };
                assert_eq!(&into[..received.len], b"abc");
                assert_eq!(
                    (received.from, received.source_port),
                    (address, sender.port())
                );
                assert_eq!(received.traffic_class, class);
                assert!(received.hop_limit > 0);
            }
        }
    }
}
