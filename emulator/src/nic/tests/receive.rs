//! Receive queues: their own and shared ones, and small messages in the CQE.

use super::rig::*;
use crate::nic::NicOptions;
use crate::nic::spec::*;

/// A shared receive queue with the driver's part played by hand.
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

    /// Posts at `index`; `next` is where the following post will be.
    pub(super) fn post(&mut self, index: u16, next: u16, segment: &[u8]) {
        let at = usize::from(index) * STRIDE;
        self.ring.put(at + 2, &next.to_be_bytes());
        self.ring.put(at + 16, segment);
        self.posted = self.posted.wrapping_add(1);
        self.dbrec.put_be32(0, u32::from(self.posted));
    }
}

fn world_with_srq(limit: u32, cqe_version: u8) -> (World, TestSrq) {
    let mut host = Host::new(2);
    let srq = TestSrq::new(&mut host, 16, limit);
    let b = end(host, |spec| {
        spec.srq = Some(srq.srqn);
        spec.rq_wqe_count = 0;
        spec.cqe_version = cqe_version;
    });
    (World::of(end(Host::new(1), |_| {}), b, attributes()), srq)
}

#[test]
fn a_shared_queue_is_followed_by_its_links_in_any_order() {
    let (mut world, mut srq) = world_with_srq(0, 1);
    // The NIC begins at 0; the links jump.
    let order = [0, 7, 3, 12, 5];
    for (n, pair) in order.windows(2).enumerate() {
        let segment = world.b.segment(n * 64, 64);
        srq.post(pair[0], pair[1], &segment);
    }
    for n in 0..4 {
        world.a.post(SEND, 0, &[inline(&[n; 8])]);
    }
    world.run();
    let received = world.b.cq.all();
    let counters: Vec<_> = received.iter().map(|cqe| cqe.counter).collect();
    assert_eq!(counters, order[..4]);
    assert!(
        received.iter().all(|cqe| cqe.resource == 0x77),
        "the QP's user index"
    );
    for n in 0..4_u8 {
        assert_eq!(world.b.memory.get(usize::from(n) * 64, 8), [n; 8]);
    }
    assert_eq!(world.b.host.nic.query_srq(srq.srqn), Ok((15, 1, 0)));
}

#[test]
fn completions_of_version_0_name_the_shared_queue() {
    let (mut world, mut srq) = world_with_srq(0, 0);
    let segment = world.b.segment(0, 64);
    srq.post(0, 1, &segment);
    world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
    world
        .b
        .post(WRITE, SIGNALLED, &[world.a.remote(0), inline(b"y")]);
    world.run();
    let resources: Vec<_> = world
        .b
        .cq
        .all()
        .iter()
        .map(|cqe| (cqe.opcode, cqe.resource))
        .collect();
    assert!(
        resources.contains(&(2, srq.srqn.0)) && resources.contains(&(0, 0)),
        "{resources:?}"
    );
}

#[test]
fn the_limit_event_comes_once_for_each_arming() {
    let (mut world, mut srq) = world_with_srq(2, 1);
    for n in 0..6 {
        let segment = world.b.segment(0, 64);
        srq.post(n, n + 1, &segment);
    }
    let send = |world: &mut World| {
        world.a.post(SEND, 0, &[inline(b"x")]);
        world.run();
        world.b.host.events.take()
    };
    for _ in 0..4 {
        assert_eq!(send(&mut world), []);
    }
    let limit = Event::Asynchronous(AsyncEvent::SrqLimitReached, AsyncObject::Srq(0x50));
    assert_eq!(send(&mut world), [limit], "one is left: fewer than two");
    assert_eq!(
        world.b.host.nic.query_srq(srq.srqn).unwrap().2,
        0,
        "disarmed"
    );
    assert_eq!(send(&mut world), []);
    world.b.host.nic.modify_srq_limit(srq.srqn, 15).unwrap();
    let segment = world.b.segment(0, 64);
    srq.post(6, 7, &segment);
    assert_eq!(send(&mut world), [limit]);
    assert_eq!(
        world.b.host.nic.modify_srq_limit(srq.srqn, 16),
        Err(Errno(libc::EINVAL))
    );
}

#[test]
fn a_link_out_of_the_ring_fails_the_shared_queue() {
    let (mut world, mut srq) = world_with_srq(0, 1);
    let segment = world.b.segment(0, 64);
    srq.post(0, 99, &segment);
    world.a.post(SEND, 0, &[inline(b"x")]);
    world.run();
    let failed = Event::Asynchronous(AsyncEvent::SrqErr, AsyncObject::Srq(0x50));
    assert_eq!(world.b.host.events.take(), [failed]);
    assert_eq!(world.b.host.nic.violations().count(), 1);
}

#[test]
fn a_shared_queue_is_not_flushed_and_the_last_wqe_event_tells_so() {
    let (mut world, mut srq) = world_with_srq(0, 1);
    let segment = world.b.segment(0, 64);
    srq.post(0, 1, &segment);
    set_state(&mut world.b.host.nic, world.b.qp.qpn, 6);
    let last = Event::Asynchronous(AsyncEvent::QpLastWqeReached, AsyncObject::Qp(0xa0));
    assert_eq!(world.b.host.events.take(), [last]);
    assert_eq!(world.b.cq.all(), []);
    // Another QP of the same queue gets the WQE.
    let mut spec = world.b.qp.spec;
    spec.rq_wqe_count = 0;
    let other = world.b.host.qp(spec);
    set_state(&mut world.a.host.nic, world.a.qp.qpn, 0);
    world.a.qp.posted = 0;
    world.a.qp.dbrec.put_be32(4, 0);
    bring_up(
        &mut world.a.host.nic,
        world.a.qp.qpn,
        other.qpn,
        attributes(),
    );
    bring_up(
        &mut world.b.host.nic,
        other.qpn,
        world.a.qp.qpn,
        attributes(),
    );
    world.a.post(SEND, 0, &[inline(b"x")]);
    world.run();
    assert_eq!(world.b.cq.all().len(), 1);
}

/// B receives small messages in CQEs of that size.
fn world_with_inline_receives(cqe_size: u32) -> World {
    let mut host = Host::new(2);
    let cq = host.cq(64, cqe_size);
    let cqn = cq.cqn;
    let mut b = end(host, |spec| {
        spec.recv_cq = cqn;
        spec.scatter_to_cqe = true;
    });
    b.cq = cq;
    World::of(end(Host::new(1), |_| {}), b, attributes())
}

#[test]
fn small_messages_are_delivered_in_the_cqe() {
    for (cqe_size, room, format) in [(64, 32, 1), (128, 64, 2)] {
        let mut world = world_with_inline_receives(cqe_size);
        for length in [1, room, room + 1] {
            world.b.memory.put(0, &[0xee; 80]);
            let receive = world.b.segment(0, 80);
            world.b.qp.post_receive(&[receive]);
            let data: Vec<u8> = (1..=length as u8).collect();
            world.a.post(SEND_IMM, 0, &[inline(&data)]);
            world.run();
            let cqe = world.b.cq.poll().unwrap();
            assert_eq!(
                (cqe.bytes, cqe.immediate),
                (length as u32, [0xca, 0xfe, 0xba, 0xbe])
            );
            if length <= room {
                assert_eq!((cqe.format, &cqe.raw[..length]), (format, &data[..]));
                assert_eq!(world.b.memory.get(0, 80), [0xee; 80], "nothing is placed");
            } else {
                assert_eq!((cqe.format, world.b.memory.get(0, length)), (0, data));
            }
        }
    }
}

#[test]
fn an_inline_message_must_fit_the_receive_all_the_same() {
    let mut world = world_with_inline_receives(64);
    let receive = world.b.segment(0, 7);
    world.b.qp.post_receive(&[receive]);
    world.a.post(SEND, 0, &[inline(&[1; 8])]);
    world.run();
    assert_eq!(outcome(&world.b.cq.all()), [(0x01, 0)]);
}

/// A reads so many bytes of B into a CQE of that size; answers what it was told,
/// and what lies in A's memory then.
fn answered(options: NicOptions, cqe_size: u32, flags: u8, bytes: u32) -> (Vec<u8>, Vec<u8>) {
    let mut host = Host::with(options);
    let cq = host.cq(16, cqe_size);
    let cqn = cq.cqn;
    let mut a = end(host, |spec| {
        spec.scatter_responses = true;
        spec.send_cq = cqn;
    });
    a.cq = cq;
    let mut world = World::of(a, end(Host::new(2), |_| {}), attributes());
    world.b.fill(0, bytes as usize, 4);
    let segments = [world.b.remote(0), world.a.segment(0, bytes)];
    world.a.post(READ, flags, &segments);
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    let cqe = world.a.cq.poll().unwrap();
    let holds = match cqe.format {
        1 => cqe.raw[cqe.raw.len() - 64..][..bytes as usize].to_vec(),
        2 => cqe.raw[..bytes as usize].to_vec(),
        _ => Vec::new(),
    };
    (holds, world.a.memory.get(0, bytes as usize))
}

#[test]
fn small_answers_come_in_the_cqe_where_that_is_wanted() {
    let plain = || NicOptions::default();
    let large = || NicOptions {
        scatter_to_large_cqes: true,
        ..NicOptions::default()
    };
    let bytes =
        |count: usize| -> Vec<u8> { (0..count).map(|n| (n as u8).wrapping_mul(31) ^ 4).collect() };
    let (data, nothing) = (bytes(32), Vec::new());
    let in_cqe = answered(plain(), 64, SIGNALLED, 32);
    assert_eq!(in_cqe, (data, vec![0; 32]));
    let too_long = answered(plain(), 64, SIGNALLED, 33);
    assert_eq!(too_long, (nothing.clone(), bytes(33)));
    let without_a_cqe = answered(plain(), 64, 0, 32);
    assert_eq!(without_a_cqe, (nothing.clone(), bytes(32)));
    let large_cqe = answered(plain(), 128, SIGNALLED, 32);
    assert_eq!(large_cqe, (nothing.clone(), bytes(32)));
    let asked_for = answered(large(), 128, SIGNALLED, 64);
    assert_eq!(asked_for, (bytes(64), vec![0; 64]));
    let too_long = answered(large(), 128, SIGNALLED, 65);
    assert_eq!(too_long, (nothing, bytes(65)));
}

#[test]
fn a_signed_receive_has_its_list_behind_the_signature() {
    let b = end(Host::new(2), |spec| spec.wq_signature = true);
    let mut world = World::of(end(Host::new(1), |_| {}), b, attributes());
    let receive = [vec![0; 16], world.b.segment(0, 64)];
    world.b.qp.post_receive(&receive);
    world.a.post(SEND, 0, &[inline(b"signed")]);
    world.run();
    assert_eq!(world.b.memory.get(0, 6), b"signed");
}
