//! How the NIC finds ports: by the address in a WQE or of a queue pair, and the
//! addresses of its own ports.

use std::sync::Arc;

use crate::config::Config;
use crate::fabric::hosts::Hosts;
use crate::fabric::name::PortNames;
use crate::nic::{Identify, Resolver};
use crate::spec::gid::{GidType, ip_of_gid};
use crate::spec::{Link, Path, PortAddress, PortIdentity};

/// Returns the function that finds the port for an address vector. On an
/// InfiniBand link it compares the LID, or the GID if there is no LID; on
/// Ethernet the GID, and the MAC address if there is one. On the UDP wire, other GIDs are
/// addresses of other hosts.
pub(crate) fn resolver(config: &Config, hosts: Arc<Hosts>) -> Resolver {
    let identities = (0..config.devices).map(|device| config.identity(device));
    let ports: Vec<_> = (0..)
        .zip(identities)
        .flat_map(|(device, identity)| {
            let address = move |port| PortAddress { device, port };
            (1..=config.ports).map(move |port| (address(port), identity.port(port)))
        })
        .collect();
    let link = config.link;
    let identify = identifier(config);
    let reaches_others = !config.interfaces.is_empty();
    Box::new(move |device, path: &Path| {
        let matches = |names: &PortNames| match link {
            Link::Ib if path.dlid != 0 => names.lid == path.dlid,
            Link::Ib => names.gid == path.dgid,
            Link::Roce => {
                let is_addressed = path.dmac.is_none_or(|mac| mac == names.mac);
                is_addressed && names.roce_gids().any(|gid| gid == path.dgid)
            }
        };
        let found = ports.iter().find(|(_, names)| matches(names));
        if found.is_some() || !reaches_others {
            return found.map(|(address, _)| *address);
        }
        let source = identify(PortAddress { device, port: 1 }).gid(path.sgid_index)?;
        let is_udp = source.kind == GidType::RoceV2;
        is_udp.then(|| hosts.add(ip_of_gid(&path.dgid))).flatten()
    })
}

/// Returns the function that provides the LID and GIDs of a port.
pub(crate) fn identifier(config: &Config) -> Identify {
    let config = config.clone();
    let link = config.link;
    Box::new(move |address| {
        let names = config.identity(address.device).port(address.port);
        PortIdentity {
            lid: if link == Link::Ib { names.lid } else { 0 },
            gids: names.gids(link),
            ethernet: link == Link::Roce,
            mtu: names.mtu,
        }
    })
}
