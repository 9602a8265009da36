//! RoCE v1 and v2: the types of the GIDs at both ends of a connection.

use super::fixtures::*;
use crate::fabric::counters::Counter;
use crate::fabric::packet::{Operation, Packet};
use crate::nic::NicOptions;
use crate::spec::gid::{Gid, GidTable, GidType};
use crate::spec::*;

const RETRY_EXCEEDED: u8 = 0x15;
/// The GID index of each type on the hosts of these tests.
const V1: u8 = 0;
const V2: u8 = 1;

/// Returns a GID table that begins with these entries.
pub(super) fn table_of(first: [Option<Gid>; 2]) -> GidTable {
    let mut table = GidTable::default();
    table[..2].copy_from_slice(&first);
    table
}

/// Returns two peers that use the GIDs at these indices.
fn pair(service: Service, indices: [u8; 2]) -> Pair {
    let host = |slot| {
        let gid = move |kind| {
            let raw = [slot; 16];
            Some(Gid { raw, kind })
        };
        Host::with_options(NicOptions {
            slot,
            resolve: Box::new(|_, _| Some(PortAddress { device: 0, port: 1 })),
            identify: Box::new(move |_| PortIdentity {
                lid: 0,
                gids: table_of([gid(GidType::RoceV1), gid(GidType::RoceV2)]),
                ethernet: true,
                mtu: 5,
            }),
            ..NicOptions::default()
        })
    };
    let attr = |index| QpAttr {
        path: Path {
            sgid_index: index,
            is_global: true,
            port: 1,
            ..Path::default()
        },
        ..attributes()
    };
    let [a, b] = [1, 2].map(|slot| peer(host(slot), |spec| spec.service = service));
    let mut pair = Pair::connect_with(a, b, indices.map(attr));
    let receive = pair.b.data_segment(0, 100);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"data")]);
    pair
}

#[test]
fn peers_with_gids_of_one_type_are_connected() {
    for service in [Service::Rc, Service::Uc] {
        for index in [V1, V2] {
            let mut pair = pair(service, [index; 2]);
            pair.run_until_idle();
            let case = (service, index);
            assert_eq!(statuses(&pair.a.cq.poll_all()), [(0, 0)], "{case:?}");
            assert_eq!(pair.b.cq.poll_all().len(), 1, "{case:?}");
            assert_eq!(pair.b.memory.get(0, 4), b"data", "{case:?}");
        }
    }
}

#[test]
fn packets_of_the_other_roce_version_are_not_accepted() {
    for indices in [[V1, V2], [V2, V1]] {
        let mut reliable = pair(Service::Rc, indices);
        reliable.advance(2_000_000_000, 50_000_000);
        let statuses = statuses(&reliable.a.cq.poll_all());
        assert_eq!(statuses, [(RETRY_EXCEEDED, 0)], "{indices:?}");
        assert!(reliable.b.cq.poll().is_none(), "{indices:?}");
        let mut unreliable = pair(Service::Uc, indices);
        unreliable.run_until_idle();
        assert!(unreliable.b.cq.poll().is_none(), "{indices:?}");
    }
}

#[test]
fn the_sender_of_marked_packets_is_notified_at_most_every_4_microseconds() {
    const CONGESTION: u8 = 3;
    for service in [Service::Rc, Service::Uc] {
        let mut pair = pair(service, [V2; 2]);
        pair.run_until_idle();
        let mut marked = pair.wire.sent[0].clone();
        marked.header.route.traffic_class |= CONGESTION;
        let notifications = |pair: &Pair| -> Vec<Packet> {
            let is_one = |it: &&Packet| it.header.operation == Operation::Notification;
            pair.wire.sent.iter().filter(is_one).cloned().collect()
        };
        for _ in 0..3 {
            pair.b.host.nic.receive(marked.clone());
        }
        pair.run_until_idle();
        let [one] = &notifications(&pair)[..] else {
            panic!("{:?}", notifications(&pair));
        };
        assert_eq!(one.header.destination_qpn, pair.a.qp.qpn);
        assert_eq!(one.header.roce_v2_class(), 0xc2);
        pair.advance(4_000, 4_000);
        pair.b.host.nic.receive(marked.clone());
        pair.run_until_idle();
        assert_eq!(notifications(&pair).len(), 2, "{service:?}");
        let count = |peer: &Peer, counter: Counter| {
            let at = PortAddress { device: 0, port: 1 };
            peer.host.nic.counters().row(at)[counter as usize]
        };
        assert_eq!(count(&pair.b, Counter::CongestionMarks), 4);
        assert_eq!(count(&pair.b, Counter::NotificationsSent), 2);
        assert_eq!(count(&pair.a, Counter::NotificationsIgnored), 2);
        // While the port has no room, one waits.
        pair.wire.capacity = 0;
        for _ in 0..5 {
            pair.b.host.nic.receive(marked.clone());
            pair.advance(4_000, 4_000);
        }
        pair.wire.capacity = usize::MAX;
        pair.run_until_idle();
        assert_eq!(notifications(&pair).len(), 3, "{service:?}");
    }
}
