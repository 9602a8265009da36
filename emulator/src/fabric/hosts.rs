//! The other hosts on the UDP wire, and their numbers in this process.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::spec::PortAddress;
use crate::sync::Mutex;

/// The hosts that this process has addressed. A packet of another one belongs to no
/// connection.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<IpAddr>,
    numbers: HashMap<IpAddr, u16>,
}

/// Hosts that have only sent something, after which a further one is not known: they must not
/// use up the numbers for those that this process addresses.
const MAX_STRANGERS: usize = 16_384;

impl Hosts {
    /// Returns the port of a host that has sent a request, which this one may answer.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<PortAddress> {
        let has_room = self.0.lock().addresses.len() < MAX_STRANGERS;
        match has_room {
            true => self.add(address),
            false => self.find(address),
        }
    }

    /// Forgets all hosts.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Known::default();
    }

    /// Returns the port of the host with this address, to which a queue pair or a datagram is
    /// addressed. `None` if there are too many.
    pub(crate) fn add(&self, address: IpAddr) -> Option<PortAddress> {
        let mut known = self.0.lock();
        if let Some(&number) = known.numbers.get(&address) {
            return PortAddress::of_host(number);
        }
        let number = u16::try_from(known.addresses.len()).ok()?;
        let port = PortAddress::of_host(number)?;
        known.addresses.push(address);
        known.numbers.insert(address, number);
        Some(port)
    }

    /// Returns the port of a host that was addressed before.
    pub(crate) fn find(&self, address: IpAddr) -> Option<PortAddress> {
        PortAddress::of_host(*self.0.lock().numbers.get(&address)?)
    }

    /// Returns the address of a host's port.
    pub(crate) fn address(&self, port: PortAddress) -> Option<IpAddr> {
        let number = port.host()?;
        self.0.lock().addresses.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_strangers_leave_room_for_the_hosts_that_are_addressed() {
        let hosts = Hosts::default();
        let stranger = |number: u32| IpAddr::from(number.to_be_bytes());
        let admitted = (0..100_000).map_while(|number| hosts.admit(stranger(number)));
        assert_eq!(admitted.count(), MAX_STRANGERS);
        assert!(hosts.admit(stranger(0)).is_some());
        assert!(hosts.add([192, 0, 2, 1].into()).is_some());
        hosts.clear();
        assert_eq!(hosts.find(stranger(0)), None);
    }

    #[test]
    fn a_host_keeps_its_number_and_is_found_by_it() {
        let hosts = Hosts::default();
        let [one, other]: [IpAddr; 2] = [[192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap()];
        assert_eq!(hosts.find(one), None);
        let first = hosts.add(one).unwrap();
        let second = hosts.add(other).unwrap();
        assert_ne!(first, second);
        assert_eq!(hosts.add(one), Some(first));
        assert_eq!(hosts.find(other), Some(second));
        assert_eq!(hosts.address(second), Some(other));
        assert_eq!(hosts.address(PortAddress { device: 0, port: 1 }), None);
    }
}
