//! The address of this host that peers connect to.

use super::{CmError, rdma};
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

/// Returns the best address to publish for a device: that of its own network
/// interface, else the source address of the host's route to others, else loopback.
pub(super) fn address_for(device: &str) -> IpAddr {
    let interfaces = interfaces_of(device);
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let own = all.iter().filter(|one| interfaces.contains(&one.name));
    best(own.map(if_addrs::Interface::ip))
        .or_else(towards_others)
        .or_else(|| best(all.iter().map(if_addrs::Interface::ip)))
        .unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// Returns the best address of a port's own network interfaces, by which rdma_cm
/// identifies the port: of those that it serves. An interface is preferred to its VLANs. For
/// an iWARP port, whose interface only rdma_cm knows, returns the best of the port's addresses.
#[must_use]
pub fn own_address(device: &str, port: u8) -> Option<IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let is_served = |address: &IpAddr| {
        device_at(*address).is_some_and(|(name, number)| name == device && number == port)
    };
    // The table may have a thousand entries, of which the first suffices.
    let of_interface = interfaces_of_port(device, port).find_map(|name| {
        let own = all.iter().filter(|one| one.name == name);
        let own = own.map(if_addrs::Interface::ip);
        let mut own: Vec<IpAddr> = own.filter(|it| is_usable(*it)).collect();
        own.sort_by_key(IpAddr::is_ipv6);
        // The port may have some of the interface's addresses only. Without any that rdma_cm
        // serves, the best one names the cause.
        let served = own.iter().copied().find(is_served);
        served.or(own.first().copied())
    });
    of_interface.or_else(|| best(rdma::own_addresses(device, port).into_iter()))
}

/// Returns the device and port that rdma_cm binds an address of this host to;
/// `None` if there is no such device, or no rdma_cm.
#[must_use]
pub fn device_at(address: IpAddr) -> Option<(String, u8)> {
    rdma::device_at(address)
}

/// Returns the reason why rdma_cm has no address for a port.
#[must_use]
pub fn why_no_address(device: &str, port: u8) -> String {
    rdma::no_address(device, port)
}

/// Returns the best address of a network interface.
#[must_use]
pub fn interface_address(name: &str) -> Option<IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let own = all.iter().filter(|one| one.name == name);
    best(own.map(if_addrs::Interface::ip))
}

/// Returns whether an interface of this host has the address.
pub(super) fn is_ours(address: IpAddr) -> bool {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.iter().any(|one| one.ip() == address)
}

/// Fails for addresses that are not those of one host.
pub(super) fn require_one_host(address: IpAddr) -> Result<(), CmError> {
    let ip = address.to_canonical();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err(CmError::Address(format!(
            "{ip} is not the address of a single host"
        )));
    }
    Ok(())
}

/// Returns the best address: IPv4 before IPv6, since most clusters have it and it
/// needs no scope.
fn best(addresses: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let usable = addresses.filter(|&address| is_usable(address));
    usable.min_by_key(IpAddr::is_ipv6)
}

/// Returns whether other hosts can reach the address without a scope.
pub(super) fn is_usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// Returns the source address of the route to other hosts. Queries the routing
/// table with a UDP socket that sends nothing: its targets are addresses
/// reserved for documentation.
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

/// Returns the names of the network interfaces of an RDMA device.
fn interfaces_of(device: &str) -> BTreeSet<String> {
    if device.is_empty() || device.contains('/') || device.starts_with('.') {
        return BTreeSet::new();
    }
    let root = Path::new("/sys/class/infiniband").join(device);
    // The entry of the first GID names the bond if there is one; the device's own
    // list names the bond's members, which have no address.
    let of_gid = fs::read_to_string(root.join("ports/1/gid_attrs/ndevs/0"));
    names_in(&root.join("device/net"))
        .chain(of_gid.ok().map(|name| name.trim().to_owned()))
        .collect()
}

/// Returns the network interfaces of a port: those of its GIDs, in GID order, and
/// those of IPoIB, which have no GID of their own.
fn interfaces_of_port(device: &str, port: u8) -> impl Iterator<Item = String> + use<> {
    let plain = !device.is_empty() && !device.contains('/') && !device.starts_with('.');
    let class = Path::new("/sys/class/infiniband");
    // A device name with a path separator would leave the folder; such a device
    // does not exist.
    let root = class.join(if plain { device } else { "\0" });
    let table = root.join(format!("ports/{port}/gid_attrs/ndevs"));
    let mut indices: Vec<u16> = names_in(&table)
        .filter_map(|name| name.parse().ok())
        .collect();
    indices.sort_unstable();
    let of_gids = indices.into_iter().filter_map(move |index| {
        // Unused entries have no interface, and reading them fails.
        let name = fs::read_to_string(table.join(index.to_string())).ok()?;
        Some(name.trim().to_owned())
    });
    let net = root.join("device/net");
    let of_device = names_in(&net).filter(move |name| {
        let number = fs::read_to_string(net.join(name).join("dev_port"));
        number.is_ok_and(|number| number.trim().parse() == Ok(u16::from(port).saturating_sub(1)))
    });
    of_gids.chain(of_device)
}

fn names_in(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_preferred_and_unreachable_addresses_are_left_out() {
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
    fn names_that_leave_the_directory_are_not_devices() {
        for name in ["", "..", ".", "../net/lo", "/etc"] {
            assert!(interfaces_of(name).is_empty(), "{name}");
        }
    }
}
