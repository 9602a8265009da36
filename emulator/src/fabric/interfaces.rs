//! The network interfaces of this host whose addresses the ports of the devices have.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use crate::fabric::name::{IP_GIDS, InterfaceNames};
use crate::limits::MAX_DEVICES;
use crate::real;
use crate::spec::gid::{gid_of_ip, gid_of_mac, is_link_local};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index in the network namespace.
    pub index: u32,
    /// Its Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// Its addresses. Those that a port has are at most three and the link-local one of its
    /// Ethernet address: IPv4, then IPv6, link-local ones last.
    pub addresses: Vec<IpAddr>,
    is_loopback: bool,
}

impl Interface {
    #[cfg(any(test, fuzzing))]
    pub(crate) fn loopback() -> Self {
        Self {
            name: "lo".into(),
            index: 1,
            mac: [0; 6],
            mtu: 65_536,
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            is_loopback: true,
        }
    }

    /// Returns the names of the port whose interface this is.
    #[must_use]
    pub fn names(&self) -> InterfaceNames {
        let mut ips = [None; IP_GIDS];
        for (place, &address) in ips.iter_mut().zip(&self.addresses) {
            *place = Some(gid_of_ip(address));
        }
        let link_local = gid_of_mac(self.mac);
        let mut gids = self.addresses.iter().map(|it| gid_of_ip(*it));
        InterfaceNames {
            index: self.index,
            mac: self.mac,
            mtu: path_mtu(self.mtu),
            has_link_local: gids.any(|gid| gid == link_local),
            ips,
        }
    }
}

/// The five fields with blanks between, as `parse` reads them.
impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, mtu, .. } = self;
        let (index, [a, b, c, d, e, g]) = (self.index, self.mac);
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, g]);
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        write!(f, "{name} {index} {mac:x} {mtu} {}", addresses.join(","))
    }
}

/// Reads interfaces, with blanks between. `None` if that is not what the text has.
pub(crate) fn parse(text: &str) -> Option<Vec<Interface>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (all, []) = words.as_chunks() else {
        return None;
    };
    let interface = |&[name, index, mac, mtu, addresses]: &[&str; 5]| {
        let [0, 0, mac @ ..] = u64::from_str_radix(mac, 16).ok()?.to_be_bytes() else {
            return None;
        };
        let addresses = addresses.split(',').map(str::parse);
        Some(Interface {
            name: name.into(),
            index: index.parse().ok()?,
            mac,
            mtu: mtu.parse().ok()?,
            addresses: addresses.collect::<Result<_, _>>().ok()?,
            is_loopback: false,
        })
    };
    let all: Option<Vec<_>> = all.iter().map(interface).collect();
    all.filter(|it| (1..=MAX_DEVICES.into()).contains(&it.len()))
}

/// Returns the largest path MTU (`enum ibv_mtu`) for packets on an interface, as
/// `iboe_get_mtu` of the kernel computes it.
fn path_mtu(mtu: u32) -> u8 {
    /// The longest headers and the checksum.
    const OVERHEAD: u32 = 96;
    let fits = |code: &u8| 128 << code <= mtu.saturating_sub(OVERHEAD);
    (1..=5).rev().find(fits).unwrap_or(1)
}

/// Returns the interfaces that devices use, one each: the one that has `address`, with that
/// address alone; or all that are up and have an address, loopback only if there is no other.
///
/// # Errors
/// Returns a sentence: no interface has the address, or none is up.
pub(crate) fn select(address: Option<IpAddr>) -> Result<Vec<Interface>, String> {
    let all = all().map_err(|error| format!("cannot list the network interfaces: {error}"))?;
    choose(all, address)
}

fn choose(all: Vec<Interface>, address: Option<IpAddr>) -> Result<Vec<Interface>, String> {
    if let Some(address) = address {
        let shown: Vec<String> = all
            .iter()
            .flat_map(|it| it.addresses.iter().map(ToString::to_string))
            .collect();
        // All addresses of the loopback network are this host's.
        let is_loopback = matches!(address, IpAddr::V4(ip) if ip.is_loopback());
        let has = |it: &Interface| it.addresses.contains(&address) || is_loopback && it.is_loopback;
        let found = all.into_iter().find(has);
        let found = found.map(|it| Interface {
            addresses: vec![address],
            ..it
        });
        return found.map(|it| vec![it]).ok_or_else(|| {
            format!(
                "no network interface that is up has {address}: choose one of {}",
                shown.join(", ")
            )
        });
    }
    let (loopback, mut others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.is_loopback);
    if others.is_empty() {
        others = loopback;
    }
    others.truncate(MAX_DEVICES.into());
    for interface in &mut others {
        arrange(&mut interface.addresses, interface.mac);
    }
    match others.is_empty() {
        true => Err("no network interface is up and has an address".into()),
        false => Ok(others),
    }
}

/// Returns the interfaces that are up and have an address.
fn all() -> io::Result<Vec<Interface>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut first = std::ptr::null_mut();
    // SAFETY: room for the list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: Vec<Interface> = Vec::new();
    let mut next = first;
    // SAFETY: the entries of the list are valid until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        if !is_up || entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: a C string of the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let own = without_label(name.to_bytes());
        let at = match found.iter().position(|it| it.name.as_bytes() == own) {
            Some(at) => at,
            None => {
                found.push(Interface {
                    name: String::from_utf8_lossy(own).into_owned(),
                    // SAFETY: a C string of the list.
                    index: unsafe { libc::if_nametoindex(entry.ifa_name) },
                    mac: [0; 6],
                    mtu: mtu(&socket, name).unwrap_or(1500),
                    addresses: Vec::new(),
                    is_loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
                });
                found.len() - 1
            }
        };
        let interface = &mut found[at];
        // SAFETY: an address of the list, whose type its family says.
        unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                    interface.addresses.push(ip.into());
                }
                libc::AF_INET6 => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                    interface.addresses.push(ip.into());
                }
                libc::AF_PACKET => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_ll>();
                    if address.sll_halen == 6 {
                        interface.mac.copy_from_slice(&address.sll_addr[..6]);
                    }
                }
                _ => {}
            }
        }
    }
    // SAFETY: the list that getifaddrs returned, of which nothing is used any more.
    unsafe { libc::freeifaddrs(first) };
    found.retain(|it| !it.addresses.is_empty());
    found.sort_by_key(|it| it.index);
    Ok(found)
}

/// Returns the interface of an address, which can have a label behind a colon (`eth0:1`).
fn without_label(name: &[u8]) -> &[u8] {
    name.split(|it| *it == b':').next().unwrap_or(name)
}

/// Selects and sorts the addresses that a port has.
fn arrange(addresses: &mut Vec<IpAddr>, mac: [u8; 6]) {
    let rank = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) if !is_link_local(&gid_of_ip(*ip)) => 1,
        IpAddr::V6(_) => 2,
    };
    addresses.sort_by_key(rank);
    // This one is the default GID, beside the others.
    let is_default = |ip: &IpAddr| gid_of_ip(*ip) == gid_of_mac(mac);
    let default = addresses.iter().copied().find(is_default);
    addresses.retain(|ip| !is_default(ip));
    addresses.truncate(IP_GIDS);
    addresses.extend(default);
}

fn mtu(socket: &UdpSocket, name: &CStr) -> Option<u32> {
    // SAFETY: an all-zero ifreq is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = name.to_bytes_with_nul();
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let to = std::ptr::from_mut(&mut request).expose_provenance();
    // SAFETY: the request reads the name, and writes the MTU to the structure.
    let done = unsafe { real::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, to) };
    // SAFETY: after success this is the field that is set.
    (done == 0).then(|| unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, index: u32, addresses: &[&str]) -> Interface {
        Interface {
            name: name.into(),
            index,
            mac: [2, 0, 0, 0, 0, index as u8],
            mtu: 1500,
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            is_loopback: name == "lo",
        }
    }

    #[test]
    fn loopback_is_chosen_only_if_there_is_nothing_else() {
        let lo = interface("lo", 1, &["127.0.0.1", "::1"]);
        let eth = interface("eth0", 2, &["192.0.2.1", "2001:db8::1"]);
        let both = vec![lo.clone(), eth.clone()];
        assert_eq!(choose(both.clone(), None), Ok(vec![eth.clone()]));
        assert_eq!(choose(vec![lo.clone()], None), Ok(vec![lo]));
        assert!(choose(Vec::new(), None).is_err());
        let many = interface(
            "eth0",
            2,
            &["192.0.2.4", "192.0.2.1", "192.0.2.2", "192.0.2.3"],
        );
        let one = choose(vec![many.clone()], Some([192, 0, 2, 3].into())).unwrap();
        assert_eq!(one[0].addresses, [many.addresses[3]]);
        let some = choose(vec![many], None).unwrap();
        assert_eq!(some[0].addresses.len(), IP_GIDS);
        let one = choose(both.clone(), Some("2001:db8::1".parse().unwrap())).unwrap();
        assert_eq!(one[0].addresses, [eth.addresses[1]]);
        let other = choose(both.clone(), Some([127, 0, 0, 2].into())).unwrap();
        assert_eq!(
            (&*other[0].name, &other[0].addresses[..]),
            ("lo", &[[127, 0, 0, 2].into()][..])
        );
        let error = choose(both, Some([198, 51, 100, 1].into())).unwrap_err();
        assert!(error.contains("127.0.0.1, ::1, 192.0.2.1"), "{error}");
    }

    #[test]
    fn the_link_local_address_of_the_default_gid_is_kept_beside_three_others() {
        let of = |texts: &[&str]| texts.iter().map(|it| it.parse().unwrap()).collect();
        let mac = [2, 0, 0, 0, 0, 1];
        let default = "fe80::ff:fe00:1";
        let mut addresses: Vec<IpAddr> = of(&[default, "fe80::7", "2001:db8::1", "192.0.2.1"]);
        arrange(&mut addresses, mac);
        let expected: Vec<IpAddr> = of(&["192.0.2.1", "2001:db8::1", "fe80::7", default]);
        assert_eq!(addresses, expected);
        addresses.insert(0, [192, 0, 2, 2].into());
        arrange(&mut addresses, mac);
        assert_eq!(addresses.len(), IP_GIDS + 1);
        assert_eq!(addresses[3], expected[3]);
        let mut names = interface("eth0", 1, &["192.0.2.1", default]).names();
        assert!(names.has_link_local);
        names = interface("eth0", 1, &["192.0.2.1", "fe80::7"]).names();
        assert!(!names.has_link_local);
    }

    #[test]
    fn interfaces_are_read_as_they_are_written() {
        let all = [
            interface("eth0", 2, &["192.0.2.1", "2001:db8::1"]),
            interface("br-1", 4, &["fe80::1"]),
        ];
        let text = all.each_ref().map(ToString::to_string).join(" ");
        assert_eq!(parse(&text).as_deref(), Some(&all[..]));
        for wrong in [
            "",
            "eth0 2 0 1500",
            "eth0 2 0 1500 x",
            "e 2 1000000000000 1500 ::1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse(&format!("{text} ").repeat(9)), None, "too many");
    }

    #[test]
    fn addresses_with_labels_belong_to_their_interface() {
        let names = ["eth0", "eth0:1", "eth0:"].map(|it| without_label(it.as_bytes()));
        assert_eq!(names, [b"eth0"; 3]);
    }

    #[test]
    fn path_mtus_are_those_of_the_kernel() {
        let of = [
            (1500, 3),
            (9000, 5),
            (4200, 5),
            (65_536, 5),
            (576, 1),
            (68, 1),
        ];
        for (mtu, code) in of {
            assert_eq!(path_mtu(mtu), code, "{mtu}");
        }
    }

    #[test]
    fn the_interfaces_of_this_host_have_an_mtu_and_addresses() {
        let all = all().unwrap();
        let lo = all.iter().find(|it| it.is_loopback);
        assert!(
            lo.is_none_or(|lo| lo.mtu >= 1280 && lo.addresses.contains(&[127, 0, 0, 1].into()))
        );
    }
}
