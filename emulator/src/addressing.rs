//! How the NIC finds ports: by the address in a WQE or of a queue pair, and the
//! addresses of its own ports.

use crate::config::Config;
use crate::fabric::name::{DeviceIdentity, PortNames};
use crate::nic::{Identify, Resolver};
use crate::spec::{Link, Path, PortAddress, PortIdentity};

/// Returns the function that finds the port for an address vector. On an
/// InfiniBand link it compares the LID, or the GID if there is no LID; on
/// Ethernet the GID, and the MAC address if there is one.
pub(crate) fn resolver(config: &Config) -> Resolver {
    let identities = (0..config.devices).map(|d| DeviceIdentity::derive(&config.fabric, d));
    let ports: Vec<_> = (0..)
        .zip(identities)
        .flat_map(|(device, identity)| {
            let address = move |port| PortAddress { device, port };
            (1..=config.ports).map(move |port| (address(port), identity.port(port)))
        })
        .collect();
    let link = config.link;
    Box::new(move |_, path: &Path| {
        let matches = |names: &PortNames| match link {
            Link::Ib if path.dlid != 0 => names.lid == path.dlid,
            Link::Ib => names.gid == path.dgid,
            Link::Roce => {
                let is_addressed = path.dmac.is_none_or(|mac| mac == names.mac);
                is_addressed && [names.ethernet_gid, names.ip_gid].contains(&path.dgid)
            }
        };
        let found = ports.iter().find(|(_, names)| matches(names));
        found.map(|(address, _)| *address)
    })
}

/// Returns the function that provides the LID and GIDs of a port.
pub(crate) fn identifier(config: &Config) -> Identify {
    let (fabric, link) = (config.fabric.clone(), config.link);
    Box::new(move |address| {
        let names = DeviceIdentity::derive(&fabric, address.device).port(address.port);
        PortIdentity {
            lid: if link == Link::Ib { names.lid } else { 0 },
            gids: names.gids(link),
            ethernet: link == Link::Roce,
        }
    })
}
