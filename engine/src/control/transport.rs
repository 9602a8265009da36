//! The transport of a device's reliable connections.

use super::port::{LinkLayer, PortInfo};
use dv_sys::verbs::{ibv_device, ibv_node_type};
use std::fmt;

/// The transport of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// InfiniBand, on InfiniBand links.
    InfiniBand,
    /// InfiniBand's transport on Ethernet links.
    Roce,
    /// RDMA over TCP. There are no GIDs and no address handles; only the kernel's
    /// connection manager connects a queue pair.
    Iwarp,
    /// Another transport, without reliable connections, such as Amazon's EFA.
    Other,
}

impl Transport {
    /// Returns the transport of a device with these ports; the first port decides.
    pub(super) fn of(device: &ibv_device, ports: &[PortInfo]) -> Self {
        let link = ports
            .first()
            .map_or(LinkLayer::InfiniBand, |port| port.link);
        Self::of_node(device.node_type, link)
    }

    fn of_node(node: ibv_node_type::Type, link: LinkLayer) -> Self {
        match (node, link) {
            (ibv_node_type::IBV_NODE_RNIC, _) => Self::Iwarp,
            (ibv_node_type::IBV_NODE_CA, LinkLayer::Ethernet) => Self::Roce,
            (ibv_node_type::IBV_NODE_CA, LinkLayer::InfiniBand) => Self::InfiniBand,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Iwarp => "iWARP",
            Self::Other => "none with reliable connections",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_channel_adapters_are_distinguished_by_their_link() {
        use LinkLayer::{Ethernet, InfiniBand};
        for (node, link, expected) in [
            (
                ibv_node_type::IBV_NODE_CA,
                InfiniBand,
                Transport::InfiniBand,
            ),
            (ibv_node_type::IBV_NODE_CA, Ethernet, Transport::Roce),
            (ibv_node_type::IBV_NODE_RNIC, Ethernet, Transport::Iwarp),
            (ibv_node_type::IBV_NODE_RNIC, InfiniBand, Transport::Iwarp),
            (
                ibv_node_type::IBV_NODE_UNSPECIFIED,
                Ethernet,
                Transport::Other,
            ),
            (
                ibv_node_type::IBV_NODE_UNKNOWN,
                InfiniBand,
                Transport::Other,
            ),
        ] {
            assert_eq!(Transport::of_node(node, link), expected, "{node} {link}");
        }
    }
}
