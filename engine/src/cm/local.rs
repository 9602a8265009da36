//! The address of this host that others are to connect to.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

/// The best address to publish for a device: of its own network interface, or
/// else the one that the host uses towards others, or else loopback.
pub(super) fn address_for(device: &str) -> IpAddr {
    let interfaces = interfaces_of(device);
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let own = all.iter().filter(|one| interfaces.contains(&one.name));
    best(own.map(if_addrs::Interface::ip))
        .or_else(towards_others)
        .or_else(|| best(all.iter().map(if_addrs::Interface::ip)))
        .unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// IPv4 before IPv6: every host of a cluster has it, and it needs no scope.
fn best(addresses: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let usable = addresses.filter(|address| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    });
    usable.min_by_key(IpAddr::is_ipv6)
}

/// The source address of the route to others. Asks the routing table with a
/// socket that never sends: the targets are addresses for documentation.
fn towards_others() -> Option<IpAddr> {
    let targets: [(IpAddr, IpAddr); 2] = [
        (
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(203, 0, 113, 1).into(),
        ),
        (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ),
    ];
    best(targets.into_iter().filter_map(|(from, to)| {
        let socket = UdpSocket::bind((from, 0)).ok()?;
        socket.connect((to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }))
}

/// The network interfaces of an RDMA device, by name.
fn interfaces_of(device: &str) -> BTreeSet<String> {
    if device.is_empty() || device.contains('/') || device.starts_with('.') {
        return BTreeSet::new();
    }
    let root = Path::new("/sys/class/infiniband").join(device);
    // What the kernel says of the first GID knows of bonds; the device's own
    // list names their members, which have no address.
    let of_gid = fs::read_to_string(root.join("ports/1/gid_attrs/ndevs/0"));
    let of_device = fs::read_dir(root.join("device/net")).into_iter().flatten();
    of_device
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .chain(of_gid.ok().map(|name| name.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_comes_first_and_what_no_other_host_reaches_is_left_out() {
        let parse = |text: &str| text.parse::<IpAddr>().expect("an address");
        let all = [
            "127.0.0.1",
            "::1",
            "fe80::1",
            "169.254.0.1",
            "2001:db8::7",
            "10.1.2.3",
        ];
        assert_eq!(best(all.into_iter().map(parse)), Some(parse("10.1.2.3")));
        assert_eq!(
            best(all[..5].iter().copied().map(parse)),
            Some(parse("2001:db8::7"))
        );
        assert_eq!(best(all[..4].iter().copied().map(parse)), None);
    }

    #[test]
    fn names_that_leave_the_directory_are_no_devices() {
        for name in ["", "..", ".", "../net/lo", "/etc"] {
            assert!(interfaces_of(name).is_empty(), "{name}");
        }
    }
}
