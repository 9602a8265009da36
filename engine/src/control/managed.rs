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
use super::port::Mtu;
use super::qp::VerbsQp;
use super::transport_options::TransportOptions;
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
    /// The ACK timeout, as in [`super::TransportOptions`].
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

    /// Refuses options that contradict the route.
    fn check(&self, options: &ConnectOptions) -> Result<(), ControlError> {
        let refused = |cause: String, remedy| {
            let error = ControlError::new(ControlErrorKind::Unsupported, TO_RTR, cause);
            Err(error.with_remedy(remedy))
        };
        let vector = &self.vector;
        match options.gid_index {
            Some(index) if vector.global && index != vector.gid_index => {
                return refused(
                    format!(
                        "rdma_cm connects through the GID at index {}, not at index {index}",
                        vector.gid_index
                    ),
                    "rdma_cm chooses the GID by the IP address: leave the index out, or connect over TCP",
                );
            }
            _ => {}
        }
        let TransportOptions { mtu, pkey, .. } = options.transport;
        let (mtu, of_route) = (mtu.map(Mtu::code), self.mtu);
        if let Some(mtu) = mtu
            && u32::from(mtu) < of_route
        {
            return refused(
                format!(
                    "the MTU of code {mtu} is smaller than the one of code {of_route} that \
                     rdma_cm has agreed on with the peer"
                ),
                "reduce the MTU of the network interface, or connect over TCP",
            );
        }
        match pkey {
            // On InfiniBand, whose routes have a LID.
            Some(_) if vector.lid != 0 => refused(
                "rdma_cm connects in the partition of the network interface".to_owned(),
                "use the address of the interface of that partition, or connect over TCP",
            ),
            _ => Ok(()),
        }
    }

    fn ah(&self, options: &ConnectOptions) -> ibv_ah_attr {
        let (vector, transport) = (&self.vector, &options.transport);
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: vector.gid.to_verbs(),
                flow_label: vector.flow_label,
                sgid_index: vector.gid_index,
                hop_limit: vector.hop_limit,
                traffic_class: transport.traffic_class.unwrap_or(vector.traffic_class),
            },
            dlid: vector.lid,
            sl: transport.sl.unwrap_or(vector.sl),
            src_path_bits: vector.src_path_bits,
            static_rate: vector.static_rate,
            is_global: u8::from(vector.global),
            port_num: self.port,
        }
    }
}

impl VerbsQp {
    /// Moves the QP from INIT to RTR along a route of the kernel's connection
    /// manager. Of the options, these are used: the port and, if given, the GID,
    /// which must be the route's; the RNR timer (the kernel's is the longest
    /// possible); the reads served; service level and traffic class, if given,
    /// instead of the route's.
    ///
    /// # Errors
    /// The QP is in another state; the route goes through another port or GID; or
    /// the options have a partition or a smaller MTU, which only the kernel's
    /// messages could agree on with the peer.
    pub fn to_rtr_by(
        &self,
        route: &ManagedRoute,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        options.transport.check(TO_RTR)?;
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
        route.check(options)?;
        let peer_qp = PeerQp {
            qpn: route.peer_qpn,
            psn: route.peer_psn,
            mtu: route.mtu,
            ah_attr: route.ah(options),
            // INIT was entered with the first P_Key, before the peer was known.
            pkey_index: (route.pkey_index != 0).then_some(route.pkey_index),
        };
        self.enter_rtr(&peer_qp, options)
            .map_err(|error| self.explain_unreachable(error, route.port, route.vector.gid))
    }

    /// Moves the QP from RTR to RTS along a route of the kernel's connection
    /// manager. Of the options, the retries, the reads issued and, if given, the ACK
    /// timeout are used.
    ///
    /// # Errors
    /// The QP is in another state, or an option is out of range.
    pub fn to_rts_by(
        &self,
        route: &ManagedRoute,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        let timeout = options.transport.timeout.unwrap_or(route.timeout);
        self.enter_rts(route.psn, timeout, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::connect::empty;

    /// Returns a route of MTU code 5 over the GID at index 3, or by LID 7.
    fn route(by_lid: bool) -> ManagedRoute {
        let (mut rtr, mut rts) = (empty(), empty());
        (rtr.path_mtu, rts.timeout) = (5, 17);
        rtr.ah_attr.sl = 1;
        rtr.ah_attr.grh.traffic_class = 32;
        rtr.ah_attr.grh.sgid_index = 3;
        rtr.ah_attr.is_global = u8::from(!by_lid);
        rtr.ah_attr.dlid = if by_lid { 7 } else { 0 };
        ManagedRoute::from_attributes(0, &rtr, &rts)
    }

    fn with(transport: TransportOptions) -> ConnectOptions {
        ConnectOptions {
            transport,
            ..ConnectOptions::default()
        }
    }

    #[test]
    fn configured_values_take_the_place_of_those_of_the_route() {
        let vector = |options: &ConnectOptions| {
            let ah = route(false).ah(options);
            (ah.sl, ah.grh.traffic_class)
        };
        assert_eq!(vector(&ConnectOptions::default()), (1, 32));
        let options = with(TransportOptions {
            sl: Some(0),
            traffic_class: Some(106),
            ..TransportOptions::default()
        });
        assert_eq!(vector(&options), (0, 106));
    }

    #[test]
    fn options_that_rdma_cm_cannot_apply_are_refused() {
        let refused = |by_lid, options: &ConnectOptions| {
            let checked = route(by_lid).check(options);
            checked.is_err_and(|error| error.kind() == ControlErrorKind::Unsupported)
        };
        let mtu = |bytes| {
            with(TransportOptions {
                mtu: Mtu::from_bytes(bytes),
                ..TransportOptions::default()
            })
        };
        assert!(!refused(false, &ConnectOptions::default()));
        assert!(!refused(false, &mtu(4096)));
        assert!(refused(false, &mtu(2048)));
        let gid = |index| ConnectOptions {
            gid_index: Some(index),
            ..ConnectOptions::default()
        };
        assert!(!refused(false, &gid(3)) && refused(false, &gid(2)));
        assert!(!refused(true, &gid(2)), "a LID needs no GID");
        let partition = with(TransportOptions {
            pkey: Some(0xffff),
            ..TransportOptions::default()
        });
        assert!(!refused(false, &partition) && refused(true, &partition));
    }
}
