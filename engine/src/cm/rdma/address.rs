//! The device of an address, as the kernel's connection manager finds it: binding
//! an id to an address returns the device behind the address. For iWARP devices
//! there is no other way to find their network interface: they have no GIDs, and
//! siw has no parent device.
//!
//! Decision: `docs/decisions/036-iwarp-connects-in-the-kernel.md`

use super::id::{Channel, Id};
use crate::cm::local::is_usable;
use mio::Token;
use std::net::IpAddr;
use std::sync::Arc;

/// An address, and the device and port that it belongs to, if any.
type Owned = (IpAddr, Option<(String, u8)>);

/// Returns the addresses of a device's port that other hosts may reach.
pub(super) fn addresses_of(channel: &Arc<Channel>, device: &str, port: u8) -> Vec<IpAddr> {
    of_port(owners(channel), device, port)
}

/// Does [`addresses_of`] without a manager. Returns none if the kernel has no
/// rdma_cm.
pub(in crate::cm) fn own_addresses(device: &str, port: u8) -> Vec<IpAddr> {
    match Channel::open() {
        Ok(channel) => addresses_of(&channel, device, port),
        Err(_) => Vec::new(),
    }
}

/// Returns why a port has no address, with the devices that have the host's
/// addresses.
pub(in crate::cm) fn no_address(device: &str, port: u8) -> String {
    let owners = Channel::open().map(|channel| owners(&channel));
    explain(device, port, &owners.unwrap_or_default())
}

fn explain(device: &str, port: u8, owners: &[Owned]) -> String {
    let mut text = format!("{device} port {port} has no IP address that rdma_cm serves");
    let others = owners.iter().filter_map(|(address, owner)| {
        let (name, number) = owner.as_ref()?;
        Some(format!("{address} is that of {name} port {number}"))
    });
    let others: Vec<String> = others.collect();
    if !others.is_empty() {
        text += &format!(
            ": {} (of devices on one network interface the kernel takes the first)",
            others.join(", ")
        );
    }
    text
}

fn of_port(owners: Vec<Owned>, device: &str, port: u8) -> Vec<IpAddr> {
    owners
        .into_iter()
        .filter(|(_, owner)| {
            owner
                .as_ref()
                .is_some_and(|(name, number)| name == device && *number == port)
        })
        .map(|(address, _)| address)
        .collect()
}

fn owners(channel: &Arc<Channel>) -> Vec<Owned> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let addresses = all.iter().map(if_addrs::Interface::ip);
    addresses
        .filter(|address| is_usable(*address))
        .map(|address| (address, owner(channel, address)))
        .collect()
}

/// Does [`owner`] without a manager.
pub(in crate::cm) fn device_at(address: IpAddr) -> Option<(String, u8)> {
    owner(&Channel::open().ok()?, address)
}

fn owner(channel: &Arc<Channel>, address: IpAddr) -> Option<(String, u8)> {
    // An id that is only bound gets no event except the removal of its device.
    let id = Id::create(channel, Token(0)).ok()?;
    id.bind((address, 0).into()).ok()?;
    id.device()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_ports_are_left_out() {
        let owned = |address: &str, owner: Option<(&str, u8)>| {
            let owner = owner.map(|(name, port)| (name.to_owned(), port));
            (address.parse().expect("an address"), owner)
        };
        let all = vec![
            owned("10.0.0.1", Some(("siw0", 1))),
            owned("10.0.0.2", Some(("rxe0", 1))),
            owned("10.0.0.3", Some(("siw0", 2))),
            owned("10.0.0.4", None),
            owned("2001:db8::7", Some(("siw0", 1))),
        ];
        let own: Vec<String> = of_port(all, "siw0", 1)
            .iter()
            .map(IpAddr::to_string)
            .collect();
        assert_eq!(own, ["10.0.0.1", "2001:db8::7"]);
    }

    #[test]
    fn a_port_without_an_address_is_reported_with_the_owners_of_the_others() {
        let none = explain("siw0", 1, &[]);
        assert!(none.starts_with("siw0 port 1 has no IP address"), "{none}");
        let owner = Some(("rxe0".to_owned(), 1));
        let other = explain(
            "siw0",
            1,
            &[("10.0.0.2".parse().expect("an address"), owner)],
        );
        assert!(other.contains("10.0.0.2 is that of rxe0 port 1"), "{other}");
    }
}
