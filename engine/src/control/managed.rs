//! The way to a peer as the kernel's connection manager found it.
//!
//! Who exchanges addresses himself computes the attributes of his queue pair
//! ([`super::route`]). With rdma_cm the kernel knows them: it resolved the
//! peer's IP address, chose the GID, and agreed with the peer on packet
//! sequence numbers. [`ManagedRoute`] has what it says as plain values.
//!
//! On iWARP there is nothing to say: accepting, and the peer's acceptance, move
//! the queue pair to RTS in the kernel (`iw_cm`). [`Route::Iwarp`] stands for that.

use super::address::{ConnectOptions, EndpointAddress};
use super::connect::{Partner, TO_RTR};
use super::gid::Gid;
use super::greeting::GreetingPlace;
use super::qp::VerbsQp;
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::verbs::{ibv_ah_attr, ibv_global_route, ibv_qp_attr};

/// How to reach the endpoint of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// By the address that the peer told.
    Address(EndpointAddress),
    /// As the kernel's connection manager says.
    Managed(Box<ManagedRoute>),
    /// Over the TCP connection that the kernel has: iWARP. The kernel moves the
    /// queue pair to RTS itself, as the connection is made.
    Iwarp(IwarpRoute),
}

/// What is to be done for an iWARP connection that the kernel has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IwarpRoute {
    /// What the peer waits for before it sends.
    greet: Option<GreetingPlace>,
}

impl IwarpRoute {
    /// To a peer that waits for a greeting, or does not.
    pub(crate) fn new(greet: Option<GreetingPlace>) -> Self {
        Self { greet }
    }

    pub(crate) fn greet(&self) -> Option<GreetingPlace> {
        self.greet
    }
}

/// What the kernel's connection manager says of a connection. Good for this
/// connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedRoute {
    port: u8,
    pkey_index: u16,
    peer_qpn: u32,
    /// First packet sequence number of the peer.
    peer_psn: u32,
    /// Our own first one.
    psn: u32,
    /// Code of `enum ibv_mtu`.
    mtu: u32,
    /// How long to wait for an acknowledgement, as in [`ConnectOptions`].
    timeout: u8,
    vector: Vector,
}

/// `ibv_ah_attr` without its port.
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
    /// From the partition, of INIT, and the attributes that `rdma_init_qp_attr`
    /// gives for RTR and RTS. An alternate path is left out: nobody migrates.
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

    /// The number of the peer's queue pair.
    #[must_use]
    pub fn peer_qpn(&self) -> u32 {
        self.peer_qpn
    }

    /// Our port.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// How long to wait for an acknowledgement: 4.096 µs · 2^timeout.
    #[must_use]
    pub fn timeout(&self) -> u8 {
        self.timeout
    }

    /// One that leads nowhere.
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
    /// INIT to RTR by what the kernel's connection manager says. Of the
    /// options count the port, which must be the route's, the RNR timer (the
    /// kernel's is the longest there is) and the reads served.
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
                    "the way to the peer is through port {}, the endpoint is on port {}",
                    route.port, options.port
                ),
            )
            .with_remedy("connect to and from the address of this port's network interface"));
        }
        let partner = Partner {
            qpn: route.peer_qpn,
            psn: route.peer_psn,
            mtu: route.mtu,
            way: route.ah(),
            // INIT was entered with the first key, before the peer was known.
            pkey_index: (route.pkey_index != 0).then_some(route.pkey_index),
        };
        self.enter_rtr(&partner, options)
            .map_err(|error| self.explain_way(error, route.port, route.vector.gid))
    }

    /// RTR to RTS by what the kernel's connection manager says. Of the options
    /// count the retries and the reads issued.
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
