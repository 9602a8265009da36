//! The route to a peer as the kernel's connection manager found it.
//!
//! An application that exchanges addresses itself computes the attributes of
//! its queue pair ([`super::route`]). With rdma_cm the kernel provides them: it
//! resolved the peer's IP address, chose the GID, and exchanged packet sequence
//! numbers with the peer. [`ManagedRoute`] has these attributes as plain
//! values.
//!
//! On iWARP there are no attributes: accepting, or the peer's acceptance, moves the
//! queue pair to RTS in the kernel (`iw_cm`). [`Route::Iwarp`] stands for that.
//!
//! Decisions:
//! - `docs/decisions/035-rdma-cm-ids-without-qp.md`
//! - `docs/decisions/036-iwarp-connects-in-the-kernel.md`

use super::address::{ConnectOptions, EndpointAddress};
use super::connect::{PeerQp, TO_RTR};
use super::gid::Gid;
use super::greeting::GreetingPlace;
use super::qp::VerbsQp;
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::verbs::{ibv_ah_attr, ibv_global_route, ibv_qp_attr};

/// The route to the endpoint of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// By an address that the peer has sent.
    Address(EndpointAddress),
    /// By the attributes of the kernel's connection manager.
    Managed(Box<ManagedRoute>),
    /// Over the kernel's TCP connection: iWARP. The kernel itself moves the queue
    /// pair to RTS when the connection is established.
    Iwarp(IwarpRoute),
}

/// The remaining steps of an iWARP connection that the kernel has established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IwarpRoute {
    /// The greeting that the peer waits for before it sends.
    greet: Option<GreetingPlace>,
}

impl IwarpRoute {
    /// Returns the route to a peer that waits for a greeting, or does not.
    pub(crate) fn new(greet: Option<GreetingPlace>) -> Self {
        Self { greet }
    }

    pub(crate) fn greet(&self) -> Option<GreetingPlace> {
        self.greet
    }
}

/// The attributes of a connection from the kernel's connection manager. Valid for
/// this connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedRoute {
    port: u8,
    pkey_index: u16,
    peer_qpn: u32,
    /// The peer's first packet sequence number.
    peer_psn: u32,
    /// The local first packet sequence number.
    psn: u32,
    /// The path MTU, as a code of `enum ibv_mtu`.
    mtu: u32,
    /// The ACK timeout, as in [`ConnectOptions`].
    timeout: u8,
    vector: Vector,
}

/// An `ibv_ah_attr` without its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vector {
    gid: Gid,
    flow_label: u32,
    gid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    lid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    global: bool,
}

impl ManagedRoute {
    /// Makes a route from the P_Key index of INIT and the attributes that
    /// `rdma_init_qp_attr` returns for RTR and RTS. An alternate path is left out,
    /// since the engine does not migrate.
    pub(crate) fn from_attributes(pkey_index: u16, rtr: &ibv_qp_attr, rts: &ibv_qp_attr) -> Self {
        let ah = &rtr.ah_attr;
        Self {
            port: ah.port_num,
            pkey_index,
            peer_qpn: rtr.dest_qp_num,
            peer_psn: rtr.rq_psn,
            psn: rts.sq_psn,
            mtu: rtr.path_mtu,
            timeout: rts.timeout,
            vector: Vector {
                gid: Gid::from_verbs(ah.grh.dgid),
                flow_label: ah.grh.flow_label,
                gid_index: ah.grh.sgid_index,
                hop_limit: ah.grh.hop_limit,
                traffic_class: ah.grh.traffic_class,
                lid: ah.dlid,
                sl: ah.sl,
                src_path_bits: ah.src_path_bits,
                static_rate: ah.static_rate,
                global: ah.is_global != 0,
            },
        }
    }

    /// Returns the number of the peer's queue pair.
    #[must_use]
    pub fn peer_qpn(&self) -> u32 {
        self.peer_qpn
    }

    /// Returns the local port.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Returns the ACK timeout: 4.096 µs · 2^timeout.
    #[must_use]
    pub fn timeout(&self) -> u8 {
        self.timeout
    }

    /// Returns a route to no peer.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        let none = super::connect::empty();
        Self::from_attributes(0, &none, &none)
    }

    fn ah(&self) -> ibv_ah_attr {
        let vector = &self.vector;
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: vector.gid.to_verbs(),
                flow_label: vector.flow_label,
                sgid_index: vector.gid_index,
                hop_limit: vector.hop_limit,
                traffic_class: vector.traffic_class,
            },
            dlid: vector.lid,
            sl: vector.sl,
            src_path_bits: vector.src_path_bits,
            static_rate: vector.static_rate,
            is_global: u8::from(vector.global),
            port_num: self.port,
        }
    }
}

impl VerbsQp {
    /// Moves the QP from INIT to RTR along a route of the kernel's connection
    /// manager. Of the options, the port (which must be the route's), the RNR timer
    /// (the kernel's is the longest possible) and the reads served are used.
    ///
    /// # Errors
    /// The QP is in another state, or the route goes through another port.
    pub fn to_rtr_by(
        &self,
        route: &ManagedRoute,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        options.check(TO_RTR)?;
        if route.port != options.port {
            return Err(ControlError::new(
                ControlErrorKind::Invalid,
                TO_RTR,
                format!(
                    "the route to the peer is through port {}, but the endpoint is on port {}",
                    route.port, options.port
                ),
            )
            .with_remedy("connect to and from the address of this port's network interface"));
        }
        let peer_qp = PeerQp {
            qpn: route.peer_qpn,
            psn: route.peer_psn,
            mtu: route.mtu,
            ah_attr: route.ah(),
            // INIT was entered with the first P_Key, before the peer was known.
            pkey_index: (route.pkey_index != 0).then_some(route.pkey_index),
        };
        self.enter_rtr(&peer_qp, options)
            .map_err(|error| self.explain_unreachable(error, route.port, route.vector.gid))
    }

    /// Moves the QP from RTR to RTS along a route of the kernel's connection
    /// manager. Of the options, the retries and the reads issued are used.
    ///
    /// # Errors
    /// The QP is in another state, or an option is out of range.
    pub fn to_rts_by(
        &self,
        route: &ManagedRoute,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        self.enter_rts(route.psn, route.timeout, options)
    }
}
