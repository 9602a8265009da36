//! Who listens: the services of all processes of the host.

use super::address::{Address, Family};
use super::ports::HostLocks;
use super::private_header;
use crate::fabric::registry::{Registry, Scope, Service};
use crate::spec::{Errno, Result};
use std::ops::Range;
use std::sync::Arc;

/// The services of all processes. Tests implement it for one process.
pub(super) trait Directory: Send {
    /// Replaces the services of this process.
    ///
    /// # Errors
    /// Returns the error number of the system.
    fn publish(&mut self, services: &[Service]) -> Result<()>;
    /// Returns the other processes and their services.
    fn others(&self) -> Vec<(u8, Vec<Service>)>;
}

/// The addresses in a request to connect, which select the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) service_id: u64,
    pub(super) family: Family,
    /// The address that the request is for, as [`Address::octets`] returns it.
    pub(super) address: [u8; 16],
}

/// Returns the service of an id that listens at this address.
pub(super) fn service(id: u64, address: &Address, is_any: bool, family_only: bool) -> Service {
    Service {
        id,
        family: number(address.family()),
        scope: match (is_any, family_only) {
            (false, _) => Scope::One,
            (true, true) => Scope::Family,
            (true, false) => Scope::All,
        },
        address: address.octets(),
    }
}

impl Target {
    /// Returns what a request is for, by its service ID and private data.
    pub(super) fn of(service_id: u64, data: &[u8]) -> Self {
        let (family, address) = match private_header::decode(data, service_id) {
            Some((local, _)) => (local.family(), local.octets()),
            None => (Family::Ib, [0; 16]),
        };
        Self {
            service_id,
            family,
            address,
        }
    }

    /// Returns the process that listens, preferably at exactly this address.
    pub(super) fn find(&self, services: impl Iterator<Item = (u8, Service)>) -> Option<u8> {
        let matching = services.filter(|(_, service)| self.matches(service));
        // The first one of the preferred ones.
        let found = matching.min_by_key(|(_, service)| service.scope != Scope::One);
        found.map(|(slot, _)| slot)
    }

    /// Returns whether a service is the one that the request is for
    /// (`cma_match_private_data`).
    pub(super) fn matches(&self, service: &Service) -> bool {
        let same_family = service.family == number(self.family);
        let matches = match service.scope {
            // A request without IP addresses needs an InfiniBand listener.
            Scope::All => self.family != Family::Ib || same_family,
            Scope::Family => same_family,
            Scope::One if self.family == Family::Ib => same_family,
            Scope::One => same_family && service.address == self.address,
        };
        service.id == self.service_id && matches
    }
}

/// Returns the process of this host that listens for a request of another host.
pub(crate) fn listener_of(registry: &Registry, service_id: u64, data: &[u8]) -> Option<u8> {
    Target::of(service_id, data).find(flat(registry.services_of_others()))
}

/// Returns the services of processes one by one.
pub(super) fn flat(all: Vec<(u8, Vec<Service>)>) -> impl Iterator<Item = (u8, Service)> {
    all.into_iter()
        .flat_map(|(slot, all)| all.into_iter().map(move |it| (slot, it)))
}

fn number(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
        Family::Ib => 0,
    }
}

impl Directory for Arc<Registry> {
    fn publish(&mut self, services: &[Service]) -> Result<()> {
        Registry::publish(self, services).map_err(|error| errno(&error))
    }

    fn others(&self) -> Vec<(u8, Vec<Service>)> {
        self.services_of_others()
    }
}

impl HostLocks for Arc<Registry> {
    fn lock(&mut self, range: &Range<i64>, shared: bool) -> Result<Option<i64>> {
        let done = Registry::lock(self, range, shared).map_err(|error| errno(&error))?;
        Ok(done.err().map(|conflict| conflict.len))
    }

    fn unlock(&mut self, range: &Range<i64>) {
        Registry::unlock(self, range);
    }
}

/// A host with this process alone.
#[derive(Debug)]
pub(super) struct NoOthers;

impl Directory for NoOthers {
    fn publish(&mut self, _: &[Service]) -> Result<()> {
        Ok(())
    }

    fn others(&self) -> Vec<(u8, Vec<Service>)> {
        Vec::new()
    }
}

impl HostLocks for NoOthers {
    fn lock(&mut self, _: &Range<i64>, _: bool) -> Result<Option<i64>> {
        Ok(None)
    }

    fn unlock(&mut self, _: &Range<i64>) {}
}

fn errno(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_finds_listeners_at_its_address_and_at_all_addresses() {
        let at = |ip: [u8; 4]| Address::V4 {
            ip: ip.into(),
            port: 7,
        };
        let v6 = Address::unspecified(Family::V6);
        let target = Target {
            service_id: 9,
            family: Family::V4,
            address: at([10, 0, 0, 1]).octets(),
        };
        let one = |ip| service(9, &at(ip), false, true);
        assert!(target.matches(&one([10, 0, 0, 1])));
        assert!(!target.matches(&one([10, 0, 0, 2])));
        assert!(target.matches(&service(9, &at([0; 4]), true, true)));
        assert!(!target.matches(&service(8, &at([0; 4]), true, true)));
        assert!(target.matches(&service(9, &v6, true, false)));
        assert!(!target.matches(&service(9, &v6, true, true)));
        let ib = Target {
            family: Family::Ib,
            ..target
        };
        assert!(!ib.matches(&service(9, &v6, true, false)));
        let listener = Address::unspecified(Family::Ib);
        assert!(ib.matches(&service(9, &listener, true, false)));
        assert!(target.matches(&service(9, &listener, true, false)));
    }
}
