//! The route to a peer: by LID within one InfiniBand subnet, by GID otherwise.

use super::address::{ConnectOptions, EndpointAddress};
use super::gid::Gid;
use super::port::{LinkLayer, Mtu, PortInfo};
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::verbs::{ibv_ah_attr, ibv_global_route};

/// Returns the GID to send from, and its index.
pub(super) fn local_gid(port: &PortInfo, index: Option<u8>) -> Result<(Gid, u8), ControlError> {
    let Some(index) = index else {
        return match (port.gid(), port.link) {
            (Ok(choice), _) => Ok((choice.entry.gid, choice.entry.index)),
            // A LID is sufficient.
            (Err(_), LinkLayer::InfiniBand) => Ok((Gid::default(), 0)),
            (Err(error), LinkLayer::Ethernet) => Err(error),
        };
    };
    match port.gids.iter().find(|entry| entry.index == index) {
        Some(entry) => Ok((entry.gid, index)),
        None => Err(ControlError::new(
            ControlErrorKind::NoGid,
            "choose a GID",
            format!("the GID table of port {} has no entry {index}", port.number),
        )
        .with_remedy("list the table with `ibv_devinfo -v`, or leave the index out")),
    }
}

/// Returns the smallest of the peer's MTU, the port's and the configured one.
pub(super) fn path_mtu(
    port: &PortInfo,
    peer: &EndpointAddress,
    options: &ConnectOptions,
) -> Result<Mtu, ControlError> {
    match Mtu::from_code(peer.mtu) {
        Some(mtu) => Ok(options.transport.at_most(mtu.min(port.active_mtu))),
        None => Err(invalid_peer_address(format!(
            "its MTU code is {}, not 1 to 5",
            peer.mtu
        ))),
    }
}

/// Returns the address vector of a connection.
pub(super) fn route(
    port: &PortInfo,
    peer: &EndpointAddress,
    options: &ConnectOptions,
) -> Result<ibv_ah_attr, ControlError> {
    if peer.link != port.link {
        return Err(invalid_peer_address(format!(
            "its link layer is {}, but the local one is {}",
            peer.link, port.link
        )));
    }
    if peer.qpn > 0xff_ffff || peer.psn > 0xff_ffff {
        return Err(invalid_peer_address(
            "its QP or sequence number has more than 24 bits".to_owned(),
        ));
    }
    let (gid, gid_index) = local_gid(port, options.gid_index)?;
    let peer_gid = Gid(peer.gid);
    let routed = match port.link {
        LinkLayer::Ethernet => true,
        // Within one subnet the LID is sufficient; a router needs the GID.
        LinkLayer::InfiniBand => {
            !peer_gid.is_zero() && !gid.is_zero() && peer_gid.subnet_prefix() != gid.subnet_prefix()
        }
    };
    if routed && peer_gid.is_zero() {
        return Err(invalid_peer_address("it has no GID".to_owned()));
    }
    if !routed && peer.lid == 0 {
        return Err(invalid_peer_address("it has no LID".to_owned()));
    }
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: peer_gid.to_verbs(),
            flow_label: 0,
            sgid_index: gid_index,
            hop_limit: options.hop_limit,
            traffic_class: options.transport.traffic_class(),
        },
        dlid: peer.lid,
        sl: options.transport.sl(),
        src_path_bits: 0,
        static_rate: 0,
        is_global: u8::from(routed),
        port_num: port.number,
    })
}

fn invalid_peer_address(cause: String) -> ControlError {
    ControlError::new(ControlErrorKind::Invalid, "address the peer", cause)
        .with_remedy("check that the peer's address was received completely, and that both sides are on one fabric")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::gid::{GidEntry, GidKind};
    use crate::control::port::PortState;
    use crate::control::transport_options::TransportOptions;

    fn port(link: LinkLayer, gids: Vec<GidEntry>) -> PortInfo {
        let mtu = Mtu::from_code(3).expect("a code");
        let (state, max_message) = (PortState::Active, 1 << 30);
        PortInfo {
            number: 1,
            state,
            link,
            lid: 1,
            active_mtu: mtu,
            max_mtu: mtu,
            max_message,
            gids,
        }
    }

    fn gid(prefix: u8) -> Gid {
        let mut gid = [0; 16];
        (gid[0], gid[15]) = (prefix, 1);
        Gid(gid)
    }

    fn peer(link: LinkLayer) -> EndpointAddress {
        EndpointAddress {
            qpn: 7,
            psn: 9,
            lid: 2,
            gid: gid(1).0,
            gid_index: 0,
            mtu: 5,
            link,
        }
    }

    fn ib_entry(index: u8) -> GidEntry {
        GidEntry {
            index,
            gid: gid(1),
            kind: GidKind::InfiniBand,
        }
    }

    #[test]
    fn one_infiniband_subnet_uses_the_lid_and_two_use_the_gid() {
        let port = port(LinkLayer::InfiniBand, vec![ib_entry(0)]);
        let mut peer = peer(LinkLayer::InfiniBand);
        let options = ConnectOptions::default();
        let local = route(&port, &peer, &options).expect("a route");
        assert_eq!((local.is_global, local.dlid), (0, 2));
        peer.gid = gid(2).0;
        assert_eq!(route(&port, &peer, &options).expect("a route").is_global, 1);
    }

    #[test]
    fn ethernet_always_uses_the_gid_at_the_requested_index() {
        let entry = |index| GidEntry {
            index,
            gid: gid(1),
            kind: GidKind::RoceV2,
        };
        let port = port(LinkLayer::Ethernet, vec![entry(2), entry(4)]);
        let peer = peer(LinkLayer::Ethernet);
        let mut options = ConnectOptions {
            gid_index: Some(4),
            ..ConnectOptions::default()
        };
        let route = |options: &_| super::route(&port, &peer, options);
        let chosen = route(&options).expect("a route");
        assert_eq!((chosen.is_global, chosen.grh.sgid_index), (1, 4));
        options.gid_index = Some(3);
        assert_eq!(
            route(&options).map(|_| ()).unwrap_err().kind(),
            ControlErrorKind::NoGid
        );
        options.gid_index = None;
        assert_eq!(route(&options).expect("a route").grh.sgid_index, 2);
    }

    #[test]
    fn an_invalid_peer_address_is_refused() {
        let port = port(LinkLayer::InfiniBand, vec![ib_entry(0)]);
        let good = peer(LinkLayer::InfiniBand);
        let options = ConnectOptions::default();
        let wrong = [
            EndpointAddress {
                link: LinkLayer::Ethernet,
                ..good
            },
            EndpointAddress {
                qpn: 1 << 24,
                ..good
            },
            EndpointAddress {
                psn: 1 << 24,
                ..good
            },
            EndpointAddress { lid: 0, ..good },
        ];
        for peer in wrong {
            let error = route(&port, &peer, &options).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ControlErrorKind::Invalid, "{peer:?}");
        }
        assert!(path_mtu(&port, &EndpointAddress { mtu: 0, ..good }, &options).is_err());
    }

    #[test]
    fn the_path_mtu_is_the_smallest_one() {
        let port = port(LinkLayer::InfiniBand, Vec::new());
        let mtu = |code, configured| {
            let peer = EndpointAddress {
                mtu: code,
                ..peer(LinkLayer::InfiniBand)
            };
            let options = ConnectOptions {
                transport: TransportOptions {
                    mtu: Mtu::from_code(configured),
                    ..TransportOptions::default()
                },
                ..ConnectOptions::default()
            };
            path_mtu(&port, &peer, &options).expect("an MTU").code()
        };
        assert_eq!((mtu(5, 0), mtu(3, 0), mtu(1, 0)), (3, 3, 1));
        assert_eq!((mtu(5, 2), mtu(1, 2), mtu(5, 5)), (2, 1, 3));
    }

    #[test]
    fn service_level_and_traffic_class_are_those_configured() {
        let port = port(LinkLayer::InfiniBand, vec![ib_entry(0)]);
        let options = ConnectOptions {
            transport: TransportOptions {
                sl: Some(5),
                traffic_class: Some(106),
                ..TransportOptions::default()
            },
            ..ConnectOptions::default()
        };
        let vector = |options| {
            let ah = route(&port, &peer(LinkLayer::InfiniBand), options).expect("a route");
            (ah.sl, ah.grh.traffic_class)
        };
        assert_eq!(vector(&options), (5, 106));
        assert_eq!(vector(&ConnectOptions::default()), (0, 0));
    }
}
