//! The addresses of this host, as the kernel sees them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

/// What rdma_cm asks of the network of the host. Tests implement it with a table.
pub(crate) trait Host: Send {
    /// Returns whether the host has this address. `scope` is the interface of a
    /// link-local address.
    fn has(&self, ip: IpAddr, scope: u32) -> bool;
    /// Returns the address from which the host sends to `to`.
    ///
    /// # Errors
    /// Returns the error number, for example `ENETUNREACH`.
    fn source_for(&self, to: IpAddr, scope: u32) -> Result<IpAddr, i32>;
    /// Returns the ports that are assigned automatically.
    fn ephemeral_ports(&self) -> (u16, u16);
    /// Returns whether the program may bind to ports below 1024.
    fn may_use_low_ports(&self) -> bool;
    /// Returns whether an IPv6 address of all zeros means IPv6 only.
    fn is_ipv6_only(&self) -> bool;
}

/// The host that the process runs on.
///
/// A UDP socket that is bound or connected sends nothing, and needs no rights:
/// binding finds out whether an address is the host's, connecting which source
/// address the routing table selects.
#[derive(Debug)]
pub(crate) struct SystemHost;

impl Host for SystemHost {
    fn has(&self, ip: IpAddr, scope: u32) -> bool {
        UdpSocket::bind(address(ip, 0, scope)).is_ok()
    }

    fn source_for(&self, to: IpAddr, scope: u32) -> Result<IpAddr, i32> {
        // Any port will do: nothing is sent.
        const PORT: u16 = 9;
        let any: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let route = || {
            let socket = UdpSocket::bind(address(any, 0, 0))?;
            socket.connect(address(to, PORT, scope))?;
            socket.local_addr()
        };
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::ENETUNREACH);
        route().map(|address| address.ip()).map_err(errno)
    }

    fn ephemeral_ports(&self) -> (u16, u16) {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let range = text.ok().and_then(|text| {
            let mut numbers = text.split_whitespace().map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        });
        range
            .filter(|(low, high)| low <= high)
            .unwrap_or((32768, 60999))
    }

    fn may_use_low_ports(&self) -> bool {
        const NET_BIND_SERVICE: u32 = 10;
        let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        effective.is_some_and(|bits| bits & 1 << NET_BIND_SERVICE != 0)
    }

    fn is_ipv6_only(&self) -> bool {
        std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only").is_ok_and(|it| it.trim() == "1")
    }
}

fn address(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(ip) => (ip, port).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_the_hosts_and_a_reserved_address_is_not() {
        let host = SystemHost;
        assert!(host.has(Ipv4Addr::LOCALHOST.into(), 0));
        assert!(!host.has([240, 0, 0, 1].into(), 0));
        let source = host.source_for([127, 0, 0, 9].into(), 0);
        assert_eq!(source.map(|ip| ip.is_loopback()), Ok(true));
        let (low, high) = host.ephemeral_ports();
        assert!(low <= high && low >= 1024);
    }
}
