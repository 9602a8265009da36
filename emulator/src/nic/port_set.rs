//! Sets of ports.

use super::spec::PortAddress;
use crate::config::{MAX_DEVICES, MAX_PORTS};

/// A set of ports of the emulated devices, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSet(u32);

const _: () = assert!(MAX_DEVICES as u32 * MAX_PORTS as u32 <= u32::BITS);

impl PortSet {
    /// Returns the set of these bits: see [`bits`](Self::bits).
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits, two for each device, the lowest for port 1 of device 0.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a port is in the set.
    #[must_use]
    pub fn contains(self, port: PortAddress) -> bool {
        self.0 & bit(port) != 0
    }

    /// Returns the set with a port, or without it.
    #[must_use]
    pub fn with(self, port: PortAddress, contained: bool) -> Self {
        match contained {
            true => Self(self.0 | bit(port)),
            false => Self(self.0 & !bit(port)),
        }
    }

    /// Returns the ports that are in one of the sets only.
    pub fn differences(self, other: Self) -> impl Iterator<Item = PortAddress> {
        let ports = |device| (1..=MAX_PORTS).map(move |port| PortAddress { device, port });
        let all = (0..MAX_DEVICES).flat_map(ports);
        all.filter(move |&port| self.contains(port) != other.contains(port))
    }
}

/// Returns no bit for a port that no device has.
fn bit(port: PortAddress) -> u32 {
    let PortAddress { device, port } = port;
    if device < MAX_DEVICES && (1..=MAX_PORTS).contains(&port) {
        1 << (device * MAX_PORTS + port - 1)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_a_bit_of_its_own_and_others_have_none() {
        let all = PortSet::from_bits(u32::MAX);
        let ports: Vec<_> = PortSet::default().differences(all).collect();
        assert_eq!(ports.len(), 32);
        let mut set = PortSet::default();
        for (count, &port) in (1..).zip(&ports) {
            assert!(!set.contains(port));
            set = set.with(port, true);
            assert!(set.contains(port));
            assert_eq!(set.bits().count_ones(), count);
        }
        for (device, port) in [(0, 0), (0, 3), (16, 1), (255, 255)] {
            let none = PortAddress { device, port };
            assert!(!all.contains(none));
            assert_eq!(PortSet::default().with(none, true), PortSet::default());
        }
        let last = ports[31];
        assert_eq!(set.with(last, false).differences(set).next(), Some(last));
    }
}
