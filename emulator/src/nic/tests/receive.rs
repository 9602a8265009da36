//! Receive queues, SRQs, and data that is scattered to CQEs.

use super::fixtures::*;
use crate::nic::NicOptions;
use crate::spec::*;

/// An SRQ whose WQEs the test writes as libmlx5 does.
pub(super) struct TestSrq {
    pub(super) srqn: Srqn,
    ring: Buffer,
    dbrec: Buffer,
    posted: u16,
}

const STRIDE: usize = 32;

impl TestSrq {
    pub(super) fn new(host: &mut Host, wqe_count: u32, limit: u32) -> Self {
        let (ring, dbrec) = (Buffer::new(wqe_count as usize * STRIDE), Buffer::new(8));
        let spec = SrqSpec {
            context: host.context,
            pd: host.pd,
            buf: ring.at(),
            dbrec: dbrec.at(),
            wqe_count,
            stride_log2: 5,
            limit,
            user_handle: 0x50,
            user_index: 0x99,
        };
        let srqn = host.nic.create_srq(&spec).unwrap();
        Self {
            srqn,
            ring,
            dbrec,
            posted: 0,
        }
    }

    /// Posts a WQE at `index`; `next` is the index of the following WQE.
    pub(super) fn post(&mut self, index: u16, next: u16, segment: &[u8]) {
        let at = usize::from(index) * STRIDE;
        self.ring.put(at + 2, &next.to_be_bytes());
        self.ring.put(at + 16, segment);
        self.posted = self.posted.wrapping_add(1);
        self.dbrec.put_be32(0, u32::from(self.posted));
    }
}

fn pair_with_srq(limit: u32, cqe_version: u8) -> (Pair, TestSrq) {
    let mut host = Host::new(2);
    let srq = TestSrq::new(&mut host, 16, limit);
    let b = peer(host, |spec| {
        spec.srq = Some(srq.srqn);
        spec.rq_wqe_count = 0;
        spec.cqe_version = cqe_version;
    });
    (
        Pair::connect(peer(Host::new(1), |_| {}), b, attributes()),
        srq,
    )
}

#[test]
fn srq_wqes_are_consumed_along_their_next_indices_in_any_order() {
    let (mut pair, mut srq) = pair_with_srq(0, 1);
    // The NIC starts at index 0; the next indices are not in order.
    let order = [0, 7, 3, 12, 5];
    for (n, link) in order.windows(2).enumerate() {
        let segment = pair.b.data_segment(n * 64, 64);
        srq.post(link[0], link[1], &segment);
    }
    for n in 0..4 {
        pair.a.post(SEND, 0, &[inline_segment(&[n; 8])]);
    }
    pair.run_until_idle();
    let received = pair.b.cq.poll_all();
    let counters: Vec<_> = received.iter().map(|cqe| cqe.counter).collect();
    assert_eq!(counters, order[..4]);
    assert!(
        received.iter().all(|cqe| cqe.resource == 0x77),
        "the QP's user index"
    );
    for n in 0..4_u8 {
        assert_eq!(pair.b.memory.get(usize::from(n) * 64, 8), [n; 8]);
    }
    assert_eq!(pair.b.host.nic.query_srq(srq.srqn), Ok((15, 1, 0)));
}

#[test]
fn cqes_of_version_0_contain_the_srq_number() {
    let (mut pair, mut srq) = pair_with_srq(0, 0);
    let segment = pair.b.data_segment(0, 64);
    srq.post(0, 1, &segment);
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
    pair.b.post(
        WRITE,
        SIGNALLED,
        &[pair.a.raddr_segment(0), inline_segment(b"y")],
    );
    pair.run_until_idle();
    let resources: Vec<_> = pair
        .b
        .cq
        .poll_all()
        .iter()
        .map(|cqe| (cqe.opcode, cqe.resource))
        .collect();
    assert!(
        resources.contains(&(2, srq.srqn.0)) && resources.contains(&(0, 0)),
        "{resources:?}"
    );
}

#[test]
fn the_srq_limit_event_is_raised_once_per_arming() {
    let (mut pair, mut srq) = pair_with_srq(2, 1);
    for n in 0..6 {
        let segment = pair.b.data_segment(0, 64);
        srq.post(n, n + 1, &segment);
    }
    let send = |pair: &mut Pair| {
        pair.a.post(SEND, 0, &[inline_segment(b"x")]);
        pair.run_until_idle();
        pair.b.host.events.take()
    };
    for _ in 0..4 {
        assert_eq!(send(&mut pair), []);
    }
    let limit = Event::Asynchronous(AsyncEvent::SrqLimitReached, AsyncObject::Srq(0x50));
    assert_eq!(
        send(&mut pair),
        [limit],
        "one WQE is left, fewer than the limit of two"
    );
    assert_eq!(
        pair.b.host.nic.query_srq(srq.srqn).unwrap().2,
        0,
        "disarmed"
    );
    assert_eq!(send(&mut pair), []);
    pair.b.host.nic.modify_srq_limit(srq.srqn, 15).unwrap();
    let segment = pair.b.data_segment(0, 64);
    srq.post(6, 7, &segment);
    assert_eq!(send(&mut pair), [limit]);
    assert_eq!(
        pair.b.host.nic.modify_srq_limit(srq.srqn, 16),
        Err(Errno(libc::EINVAL))
    );
}

#[test]
fn a_next_index_outside_the_ring_fails_the_srq() {
    let (mut pair, mut srq) = pair_with_srq(0, 1);
    let segment = pair.b.data_segment(0, 64);
    srq.post(0, 99, &segment);
    pair.a.post(SEND, 0, &[inline_segment(b"x")]);
    pair.run_until_idle();
    let failed = Event::Asynchronous(AsyncEvent::SrqErr, AsyncObject::Srq(0x50));
    assert_eq!(pair.b.host.events.take(), [failed]);
    assert_eq!(pair.b.host.nic.violations().count(), 1);
}

#[test]
fn an_srq_is_not_flushed_and_a_failed_qp_raises_the_last_wqe_event() {
    let (mut pair, mut srq) = pair_with_srq(0, 1);
    let segment = pair.b.data_segment(0, 64);
    srq.post(0, 1, &segment);
    set_state(&mut pair.b.host.nic, pair.b.qp.qpn, 6);
    let last = Event::Asynchronous(AsyncEvent::QpLastWqeReached, AsyncObject::Qp(0xa0));
    assert_eq!(pair.b.host.events.take(), [last]);
    assert_eq!(pair.b.cq.poll_all(), []);
    // Another QP of the same SRQ consumes the WQE.
    let mut spec = pair.b.qp.spec;
    spec.rq_wqe_count = 0;
    let other = pair.b.host.create_qp(spec);
    set_state(&mut pair.a.host.nic, pair.a.qp.qpn, 0);
    pair.a.qp.posted = 0;
    pair.a.qp.dbrec.put_be32(4, 0);
    modify_to_rts(&mut pair.a.host.nic, pair.a.qp.qpn, other.qpn, attributes());
    modify_to_rts(&mut pair.b.host.nic, other.qpn, pair.a.qp.qpn, attributes());
    pair.a.post(SEND, 0, &[inline_segment(b"x")]);
    pair.run_until_idle();
    assert_eq!(pair.b.cq.poll_all().len(), 1);
}

/// Returns a pair in which B's receives are scattered to CQEs of this size.
fn pair_with_scatter_to_cqe(cqe_size: u32) -> Pair {
    let mut host = Host::new(2);
    let cq = host.create_cq(64, cqe_size);
    let cqn = cq.cqn;
    let mut b = peer(host, |spec| {
        spec.recv_cq = cqn;
        spec.scatter_to_cqe = true;
    });
    b.cq = cq;
    Pair::connect(peer(Host::new(1), |_| {}), b, attributes())
}

#[test]
fn small_messages_are_scattered_to_the_cqe() {
    for (cqe_size, room, format) in [(64, 32, 1), (128, 64, 2)] {
        let mut pair = pair_with_scatter_to_cqe(cqe_size);
        for length in [1, room, room + 1] {
            pair.b.memory.put(0, &[0xee; 80]);
            let receive = pair.b.data_segment(0, 80);
            pair.b.qp.post_receive(&[receive]);
            let data: Vec<u8> = (1..=length as u8).collect();
            pair.a.post(SEND_IMM, 0, &[inline_segment(&data)]);
            pair.run_until_idle();
            let cqe = pair.b.cq.poll().unwrap();
            assert_eq!(
                (cqe.bytes, cqe.immediate),
                (length as u32, [0xca, 0xfe, 0xba, 0xbe])
            );
            if length <= room {
                assert_eq!((cqe.format, &cqe.raw[..length]), (format, &data[..]));
                assert_eq!(
                    pair.b.memory.get(0, 80),
                    [0xee; 80],
                    "memory is not written"
                );
            } else {
                assert_eq!((cqe.format, pair.b.memory.get(0, length)), (0, data));
            }
        }
    }
}

#[test]
fn a_message_scattered_to_the_cqe_must_fit_the_receive() {
    let mut pair = pair_with_scatter_to_cqe(64);
    let receive = pair.b.data_segment(0, 7);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, 0, &[inline_segment(&[1; 8])]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(0x01, 0)]);
}

/// Reads bytes of B from A, which has CQEs of this size. Returns the bytes in the CQE and
/// those in A's memory.
fn read_result(options: NicOptions, cqe_size: u32, flags: u8, bytes: u32) -> (Vec<u8>, Vec<u8>) {
    let mut host = Host::with_options(options);
    let cq = host.create_cq(16, cqe_size);
    let cqn = cq.cqn;
    let mut a = peer(host, |spec| {
        spec.scatter_responses = true;
        spec.send_cq = cqn;
    });
    a.cq = cq;
    let mut pair = Pair::connect(a, peer(Host::new(2), |_| {}), attributes());
    pair.b.fill(0, bytes as usize, 4);
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, bytes)];
    pair.a.post(READ, flags, &segments);
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    let cqe = pair.a.cq.poll().unwrap();
    let holds = match cqe.format {
        1 => cqe.raw[cqe.raw.len() - 64..][..bytes as usize].to_vec(),
        2 => cqe.raw[..bytes as usize].to_vec(),
        _ => Vec::new(),
    };
    (holds, pair.a.memory.get(0, bytes as usize))
}

#[test]
fn small_read_responses_are_scattered_to_signalled_cqes_if_enabled() {
    let plain = || NicOptions::default();
    let large = || NicOptions {
        scatter_to_large_cqes: true,
        ..NicOptions::default()
    };
    let bytes =
        |count: usize| -> Vec<u8> { (0..count).map(|n| (n as u8).wrapping_mul(31) ^ 4).collect() };
    let (data, nothing) = (bytes(32), Vec::new());
    let in_cqe = read_result(plain(), 64, SIGNALLED, 32);
    assert_eq!(in_cqe, (data, vec![0; 32]));
    let too_long = read_result(plain(), 64, SIGNALLED, 33);
    assert_eq!(too_long, (nothing.clone(), bytes(33)));
    let without_a_cqe = read_result(plain(), 64, 0, 32);
    assert_eq!(without_a_cqe, (nothing.clone(), bytes(32)));
    let large_cqe = read_result(plain(), 128, SIGNALLED, 32);
    assert_eq!(large_cqe, (nothing.clone(), bytes(32)));
    let enabled = read_result(large(), 128, SIGNALLED, 64);
    assert_eq!(enabled, (bytes(64), vec![0; 64]));
    let too_long = read_result(large(), 128, SIGNALLED, 65);
    assert_eq!(too_long, (nothing, bytes(65)));
}

#[test]
fn a_receive_wqe_with_signature_has_its_segments_after_the_signature() {
    let b = peer(Host::new(2), |spec| spec.wq_signature = true);
    let mut pair = Pair::connect(peer(Host::new(1), |_| {}), b, attributes());
    let receive = [vec![0; 16], pair.b.data_segment(0, 64)];
    pair.b.qp.post_receive(&receive);
    pair.a.post(SEND, 0, &[inline_segment(b"signed")]);
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(0, 6), b"signed");
}
