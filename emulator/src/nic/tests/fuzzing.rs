//! WQEs of any bytes, and packets, at two connected queue pairs.

#[path = "fixtures/mod.rs"]
#[allow(dead_code, reason = "the other fixtures are for the tests")]
pub(crate) mod fixtures;

use self::fixtures::*;
use crate::fuzz_bytes::Bytes;
use crate::nic::NicOptions;
use crate::spec::*;

/// Returns a connected pair with receives posted.
pub(crate) fn pair_of(service: Service, view: DoorbellView) -> Pair {
    let host = |slot| {
        let options = NicOptions::default();
        Host::with_options(NicOptions {
            slot,
            view,
            ..options
        })
    };
    let end = |slot| peer(host(slot), |spec| spec.service = service);
    let access = ALL_ACCESS | Access::REMOTE_ATOMIC;
    let attributes = QpAttr {
        access,
        ..attributes()
    };
    let mut pair = Pair::connect(end(1), end(2), attributes);
    for _ in 0..8 {
        let receive = pair.b.data_segment(0, 4096);
        pair.b.qp.post_receive(&[receive]);
    }
    pair
}

/// Segments, random or partly valid, so that later checks are reached.
pub(crate) fn segments(bytes: &mut Bytes<'_>, own: &Peer, peer: &Peer) -> Vec<Vec<u8>> {
    let count = bytes.u8() % 15;
    let mut segment = || match bytes.u8() % 5 {
        0 => bytes.array::<16>().to_vec(),
        1 => own.data_segment(bytes.u16().into(), bytes.u16().into()),
        2 => peer.raddr_segment(bytes.u16().into()),
        3 => {
            let mut head = (0x8000_0000 | bytes.u32()).to_be_bytes().to_vec();
            head.extend(bytes.array::<12>());
            head
        }
        _ => inline_segment(bytes.take(12)),
    };
    (0..count).map(|_| segment()).collect()
}

/// Posts WQEs and receives, writes into rings and doorbell records, and runs the NICs. Other
/// queue pairs of the NICs must continue to work.
pub fn requests(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let form = bytes.u8();
    let service = [Service::Rc, Service::Uc, Service::Ud][usize::from(form % 3)];
    // In the `Records` view no doorbell check rejects a WQE before it is parsed.
    let view = match form & 64 {
        0 => DoorbellView::Records,
        _ => DoorbellView::Exact,
    };
    let mut pair = pair_of(service, view);
    while !bytes.is_empty() {
        match bytes.u8() % 8 {
            0..=3 => {
                let [opcode, flags] = bytes.array();
                let immediate = bytes.u32();
                let segments = segments(&mut bytes, &pair.a, &pair.b);
                let qp = &mut pair.a.qp;
                qp.write_wqe_with(opcode, flags, immediate, &segments);
                qp.ring_doorbell(&mut pair.a.host);
            }
            4 => {
                let segments = segments(&mut bytes, &pair.b, &pair.a);
                let most = (1 << pair.b.qp.spec.rq_stride_log2) / 16;
                pair.b
                    .qp
                    .post_receive(&segments[..segments.len().min(most)]);
            }
            5 => {
                let [at, value] = bytes.array();
                let ring = pair.a.qp.spec.sq_wqebb_count as usize * 64;
                pair.a.qp.sq.put(usize::from(at) * 16 % ring, &[value]);
            }
            6 => {
                let record = bytes.u32();
                pair.a
                    .qp
                    .dbrec
                    .put_be32(usize::from(bytes.u8() & 4), record);
                let offset = [0x20, 0x800, 0x900, 0x804][usize::from(bytes.u8() % 4)];
                pair.a.host.store_doorbell(offset, bytes.array());
            }
            _ => pair.advance(1 << (bytes.u8() % 40), 1 << 36),
        }
        pair.run_until_idle();
    }
    pair.advance(1 << 40, 1 << 36);
    for cqe in pair.a.cq.poll_all() {
        assert_eq!(cqe.qpn, pair.a.qp.qpn.0);
    }
    check_alive(pair);
}

/// Checks that new queue pairs of the NICs work.
pub(crate) fn check_alive(mut pair: Pair) {
    for peer in [&mut pair.a, &mut pair.b] {
        peer.cq = peer.host.create_cq(64, 64);
        peer.host.nic.destroy_qp(peer.qp.qpn).expect("it is there");
        let spec = peer.host.qp_spec(peer.cq.cqn);
        peer.qp = peer.host.create_qp(spec);
    }
    let (a, b) = (pair.a.qp.qpn, pair.b.qp.qpn);
    modify_to_rts(&mut pair.a.host.nic, a, b, attributes());
    modify_to_rts(&mut pair.b.host.nic, b, a, attributes());
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    let counter = pair.a.post(SEND, SIGNALLED, &[inline_segment(b"alive")]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, counter)]);
    assert_eq!(pair.b.memory.get(0, 5), b"alive");
}
