//! The address of an endpoint, and the options of a connection.

use super::access::Access;
use super::port::LinkLayer;
use super::transport_options::TransportOptions;

/// The address of an endpoint: what its peer needs to connect to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointAddress {
    /// QP number, 24 bits.
    pub qpn: u32,
    /// The first packet sequence number that the endpoint sends, 24 bits.
    pub psn: u32,
    /// The LID of its port; 0 on Ethernet.
    pub lid: u16,
    /// The GID of its port.
    pub gid: [u8; 16],
    /// The index of that GID in the port's own table.
    pub gid_index: u8,
    /// The MTU of its port, as a code of `enum ibv_mtu`.
    pub mtu: u8,
    /// The link layer of its port.
    pub link: LinkLayer,
}

impl EndpointAddress {
    /// Returns an address with a QP number only, for a connection manager that
    /// finds the route itself (`rdma_cm`).
    #[must_use]
    pub fn of_number(qpn: u32) -> Self {
        Self {
            qpn,
            psn: 0,
            lid: 0,
            gid: [0; 16],
            gid_index: 0,
            mtu: 1,
            link: LinkLayer::InfiniBand,
        }
    }
}

/// The options of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The local port.
    pub port: u8,
    /// The index of the local GID; `None` lets [`super::GidChoice`] choose.
    pub gid_index: Option<u8>,
    /// The most RDMA reads of this side in flight; reduced to the device's limit.
    pub reads_issued: u8,
    /// The most RDMA reads of the peer served at a time; reduced to the device's
    /// limit.
    pub reads_served: u8,
    /// What the peer may do with local memory.
    pub access: Access,
    /// Hop limit of routed packets.
    pub hop_limit: u8,
    /// What the network requires, such as a traffic class.
    pub transport: TransportOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            reads_issued: 16,
            reads_served: 16,
            access: Access::REMOTE,
            hop_limit: 64,
            transport: TransportOptions::default(),
        }
    }
}
