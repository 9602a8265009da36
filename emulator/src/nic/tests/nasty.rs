//! The modes in which the device does not forgive.

use super::fixtures::*;
use super::receive::TestSrq;
use crate::nic::NicOptions;
use crate::spec::*;

fn host(slot: u8, nasty: &str) -> Host {
    Host::with_options(NicOptions {
        slot,
        nasty: nasty.parse().unwrap(),
        stepped: true,
        ..NicOptions::default()
    })
}

fn pair(nasty: &str) -> Pair {
    let peer = |slot| peer(host(slot, nasty), |_| {});
    Pair::connect(peer(1), peer(2), attributes())
}

/// A host with this many QPs on one doorbell page, each with a NOP that is written and
/// not announced.
struct Nops {
    host: Host,
    cq: TestCq,
    qps: Vec<TestQp>,
}

impl Nops {
    fn new(nasty: &str, view: DoorbellView, count: usize) -> Self {
        let mut host = Host::with_options(NicOptions {
            nasty: nasty.parse().unwrap(),
            view,
            ..NicOptions::default()
        });
        let cq = host.create_cq(64, 64);
        let mut qps = Vec::new();
        for _ in 0..count {
            let mut qp = host.create_qp(host.qp_spec(cq.cqn));
            modify_to_rts(&mut host.nic, qp.qpn, qp.qpn, attributes());
            qp.write_wqe(NOP, SIGNALLED, &[]);
            qps.push(qp);
        }
        Self { host, cq, qps }
    }

    /// Stores the first bytes of the WQE in this slot of a QP.
    fn store(&mut self, qp: usize, slot: usize, offset: u16, is_copy: bool) {
        let words = |at| self.qps[qp].sq.get(slot * 64 + at, 8).try_into().unwrap();
        let bytes = words(0);
        self.host.nic.doorbell(&UarWrite {
            page: self.host.uar_page(),
            offset,
            bytes,
            copy: is_copy.then(|| words(8)),
        });
    }

    /// Returns the QPs of the completions, in ascending order.
    fn completed(&mut self) -> Vec<usize> {
        self.host.nic.work(1, &mut Wire::new(), 64);
        let qps = &self.qps;
        let of = |qpn| qps.iter().position(|qp| qp.qpn.0 == qpn).unwrap();
        let mut completed: Vec<_> = self.cq.poll_all().iter().map(|cqe| of(cqe.qpn)).collect();
        completed.sort_unstable();
        completed
    }
}

const VIEWS: [DoorbellView; 2] = [DoorbellView::Exact, DoorbellView::Register];

#[test]
fn record_a_store_of_any_bytes_starts_what_the_record_says() {
    for view in VIEWS {
        let mut nops = Nops::new("record", view, 1);
        nops.store(0, 0, 0x800, false);
        assert_eq!(nops.completed(), [], "{view:?}: the record is 0");
        nops.qps[0].dbrec.put_be32(4, 1);
        assert_eq!(nops.completed(), [], "{view:?}: no store");
        nops.host.store_doorbell(0x800, [0xff; 8]);
        assert_eq!(nops.completed(), [0], "{view:?}");
        assert_eq!(nops.host.nic.violations().count(), 0);
    }
}

#[test]
fn register_a_store_starts_what_it_says_whatever_the_record_says() {
    for view in VIEWS {
        let mut nops = Nops::new("register", view, 1);
        nops.qps[0].write_wqe(NOP, SIGNALLED, &[]);
        nops.qps[0].dbrec.put_be32(4, 2);
        nops.store(0, 0, 0x800, false);
        assert_eq!(nops.completed(), [0], "{view:?}: the first only");
        nops.qps[0].dbrec.put_be32(4, 0);
        nops.store(0, 1, 0x900, false);
        assert_eq!(nops.completed(), [0], "{view:?}");
        // The first doorbell is seen again, late.
        nops.store(0, 0, 0x800, false);
        assert_eq!(nops.completed(), [], "{view:?}");
        assert_eq!(nops.host.nic.violations().count(), 0);
    }
}

#[test]
fn register_the_record_counts_for_a_qp_whose_store_may_be_overwritten() {
    let mut nops = Nops::new("register", DoorbellView::Register, 2);
    nops.qps[0].dbrec.put_be32(4, 1);
    nops.store(1, 0, 0x800, false);
    assert_eq!(nops.completed(), [0, 1]);
    let mut nops = Nops::new("register", DoorbellView::Exact, 2);
    nops.qps[0].dbrec.put_be32(4, 1);
    nops.store(1, 0, 0x800, false);
    assert_eq!(nops.completed(), [1], "every store is seen");
}

#[test]
fn arms_the_record_does_not_correct_what_the_register_says() {
    for (nasty, events) in [("arms", 0), ("record", 1)] {
        let mut pair = pair(nasty);
        pair.a = peer(
            Host::with_options(NicOptions {
                view: DoorbellView::Register,
                nasty: nasty.parse().unwrap(),
                ..NicOptions::default()
            }),
            |_| {},
        );
        let a = &mut pair.a;
        // The sequence number in the register is stale, that in the record is not.
        a.cq.dbrec.put_be32(4, 0);
        let doorbell = 3_u64 << 60 | u64::from(a.cq.cqn.0);
        a.host.store_doorbell(0x20, doorbell.to_be_bytes());
        modify_to_rts(&mut a.host.nic, a.qp.qpn, a.qp.qpn, attributes());
        a.post(NOP, SIGNALLED, &[]);
        pair.run_until_idle();
        assert_eq!(pair.a.host.events.take().len(), events, "{nasty}");
    }
}

#[test]
fn blueflame_a_copy_to_a_register_that_another_qp_rang_last_is_lost() {
    for view in VIEWS {
        let mut nops = Nops::new("blueflame", view, 2);
        for qp in &mut nops.qps {
            qp.dbrec.put_be32(4, 1);
        }
        nops.store(0, 0, 0x800, true);
        assert!(nops.completed().contains(&0), "{view:?}: the first copy");
        let mut nops = Nops::new("blueflame", view, 2);
        nops.qps[0].dbrec.put_be32(4, 1);
        nops.store(0, 0, 0x800, true);
        assert_eq!(nops.completed(), [0]);
        nops.qps[1].dbrec.put_be32(4, 1);
        nops.store(1, 0, 0x900, true);
        assert_eq!(nops.completed(), [], "{view:?}: the other half");
        nops.store(1, 0, 0x800, false);
        assert_eq!(nops.completed(), [1], "{view:?}: 8 bytes are not lost");
    }
}

#[test]
fn no_blueflame_only_8_bytes_to_the_first_half_are_a_doorbell() {
    let mut nops = Nops::new("no-blueflame", DoorbellView::Exact, 1);
    nops.qps[0].dbrec.put_be32(4, 1);
    nops.store(0, 0, 0x900, false);
    nops.store(0, 0, 0x800, true);
    assert_eq!(nops.completed(), []);
    nops.store(0, 0, 0x800, false);
    assert_eq!(nops.completed(), [0]);
}

/// Posts a bind at B, and then a write with immediate and these flags.
fn bind_and_write(flags: u8) -> (Windows, Bind) {
    let hosts = [1, 2].map(|slot| host(slot, "umr"));
    let mut it = Windows::with_hosts(Service::Rc, hosts);
    let bind = it.bind(WindowType::One);
    let Pair { a, b, .. } = &mut it.pair;
    let segments = bind_segments(b.qp.qpn.0, &bind);
    b.qp.write_wqe_with(UMR, SIGNALLED | SMALL_FENCE, it.one.rkey, &segments);
    b.qp.ring_doorbell(&mut b.host);
    let to_a = [a.raddr_segment(0), inline_segment(b"the key")];
    b.post(WRITE, SIGNALLED | flags, &to_a);
    it.pair.run_until_idle();
    it.set_variant(WindowType::One, bind.variant);
    (it, bind)
}

#[test]
fn umr_a_request_without_a_fence_overtakes_the_bind_before_it() {
    let (mut it, bind) = bind_and_write(0);
    assert_eq!(it.pair.a.memory.get(0, 7), b"the key", "it has arrived");
    assert_eq!(it.pair.b.cq.poll_all(), [], "completions are in order");
    it.pair.advance(2_000_000, 100_000);
    let done = it.pair.b.cq.poll_all();
    assert_eq!(done.len(), 2, "{done:?}");
    assert!(done.iter().all(|cqe| cqe.syndrome == OK), "{done:?}");
    assert_eq!([done[0].wqe_opcode, done[1].wqe_opcode], [UMR, WRITE]);
    assert_eq!(it.write(it.one.rkey, bind.start), OK);
}

#[test]
fn umr_a_key_that_a_peer_learns_too_early_is_not_valid() {
    let (mut it, bind) = bind_and_write(0);
    assert_eq!(it.write(it.one.rkey, bind.start), 0x13);
}

#[test]
fn umr_a_fence_waits_for_the_bind_and_so_does_an_idle_queue() {
    let (mut it, bind) = bind_and_write(SMALL_FENCE);
    assert_eq!(it.pair.b.cq.poll_all().len(), 2);
    let key = it.one.rkey;
    assert_eq!(it.write(key, bind.start), OK);
    assert_eq!(it.unbind(WindowType::One), OK);
    it.pair.assert_no_violations();
}

/// A pair of hosts with an SRQ at B, on which two QPs of B receive from two of A.
struct Shared {
    pair: Pair,
    srq: TestSrq,
    others: [TestQp; 2],
}

impl Shared {
    fn new() -> Self {
        let mut host = host(2, "srq");
        let srq = TestSrq::new(&mut host, 16, 0);
        let b = peer(host, |spec| {
            spec.srq = Some(srq.srqn);
            spec.rq_wqe_count = 0;
        });
        let mut pair = Pair::connect(peer(Host::new(1), |_| {}), b, attributes());
        let others = [&mut pair.a, &mut pair.b].map(|peer| {
            let spec = peer.qp.spec;
            peer.host.create_qp(spec)
        });
        let [a, b] = [&others[0], &others[1]].map(|qp| qp.qpn);
        modify_to_rts(&mut pair.a.host.nic, a, b, attributes());
        modify_to_rts(&mut pair.b.host.nic, b, a, attributes());
        Self { pair, srq, others }
    }

    fn post_receives(&mut self, count: u16) {
        for n in 0..count {
            let segment = self.pair.b.data_segment(usize::from(n) * 64, 64);
            self.srq.post(n, n + 1, &segment);
        }
    }

    /// Sends a message of these bytes. Returns the counters of new completions.
    fn send(&mut self, by_other: bool, byte: u8) -> Vec<u16> {
        let message = [inline_segment(&[byte; 8])];
        let Peer { host, qp, .. } = &mut self.pair.a;
        let qp = if by_other { &mut self.others[0] } else { qp };
        qp.post(host, SEND, 0, &message);
        self.pair.run_until_idle();
        let received = self.pair.b.cq.poll_all();
        received.iter().map(|cqe| cqe.counter).collect()
    }
}

#[test]
fn srq_receives_of_several_qps_complete_out_of_order_each_with_its_own_data() {
    let mut it = Shared::new();
    it.post_receives(12);
    let mut counters = Vec::new();
    for n in 0..12 {
        counters.extend(it.send(n % 2 == 0, n));
    }
    assert!(!counters.is_sorted(), "{counters:?}");
    for (n, counter) in counters.iter().enumerate() {
        let at = usize::from(*counter) * 64;
        let found = it.pair.b.memory.get(at, 8);
        assert_eq!(found, [n as u8; 8], "{counters:?}");
    }
    counters.sort_unstable();
    assert!(counters.into_iter().eq(0..12));
    assert_eq!(it.send(false, 99), [], "no receive is left");
    it.pair.assert_no_violations();
}

#[test]
fn srq_one_qp_takes_the_receives_in_order() {
    let mut it = Shared::new();
    it.post_receives(12);
    let counters: Vec<u16> = (0..12).flat_map(|n| it.send(false, n)).collect();
    assert!(counters.into_iter().eq(0..12));
}

#[test]
fn poison_new_rings_are_full_of_garbage_and_work() {
    let mut pair = pair("poison");
    let a = &pair.a.qp;
    for ring in [a.sq.get(0, 64 * 64), a.rq.get(0, 16 * 64)] {
        assert!(ring.iter().all(|byte| *byte == 0xa5));
    }
    assert_eq!(a.dbrec.get(0, 8), [0; 8], "libmlx5 clears it");
    let segment = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[segment]);
    pair.a.post(SEND, SIGNALLED, &[inline_segment(b"good")]);
    pair.run_until_idle();
    assert_eq!(pair.b.memory.get(0, 4), b"good");
    assert_eq!(pair.b.cq.poll_all().len(), 1);
    pair.assert_no_violations();
}

#[test]
fn counters_the_numbers_of_new_queues_cross_16_bits() {
    let mut host = host(1, "counters");
    let numbers: Vec<u32> = (0..4).map(|_| host.create_cq(16, 64).cqn.0).collect();
    assert_eq!(numbers, [0xfffe, 0xffff, 0x1_0000, 0x1_0001]);
    let srqs = [0; 3].map(|_| TestSrq::new(&mut host, 16, 0).srqn.0);
    assert_eq!(srqs, [0xfffe, 0xffff, 0x1_0000]);
}

#[test]
fn interrupts_events_come_when_the_nic_has_nothing_else_to_do() {
    let mut pair = pair("interrupts");
    let Peer { host, cq, .. } = &mut pair.a;
    cq.arm(host, 0, false);
    pair.a.post(NOP, SIGNALLED, &[]);
    let round = |pair: &mut Pair| pair.a.host.nic.work(1, &mut pair.wire, 64).worked;
    assert!(round(&mut pair));
    assert!(pair.a.cq.peek().is_some(), "the completion is there");
    assert_eq!(pair.a.host.events.take(), [], "the event is not");
    // The CQ has fired, so an arm with the same number is stale.
    let Peer { host, cq, .. } = &mut pair.a;
    cq.arm(host, 0, false);
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    let cqn = pair.a.cq.cqn;
    assert_eq!(pair.a.host.events.take(), [Event::Completion(cqn)]);
    let Peer { host, cq, .. } = &mut pair.a;
    cq.arm(host, 1, false);
    pair.run_until_idle();
    assert_eq!(pair.a.host.events.take().len(), 1, "the next one");
}

#[test]
fn parts_the_last_byte_is_visible_a_round_before_the_others() {
    let mut pair = pair("parts");
    let message = [pair.b.raddr_segment(64), inline_segment(&[7; 32])];
    pair.a.post(WRITE, SIGNALLED, &message);
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    let packet = pair.wire.next().unwrap();
    let Peer { host, memory, .. } = &mut pair.b;
    host.nic.receive(packet);
    host.nic.work(1, &mut pair.wire, 64);
    assert_eq!(memory.get(64 + 31, 1), [7]);
    assert_eq!(memory.get(64 + 1, 30), [0; 30]);
    assert!(host.nic.work(2, &mut pair.wire, 64).worked);
    assert_eq!(memory.get(64, 32), [7; 32]);
}

#[test]
fn parts_the_payload_is_complete_when_a_completion_or_a_read_shows_it() {
    let mut pair = pair("parts");
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, 0, &[inline_segment(&[9; 40])]);
    pair.a.host.nic.work(1, &mut pair.wire, 64);
    let packet = pair.wire.next().unwrap();
    pair.b.host.nic.receive(packet);
    assert!(pair.b.cq.poll().is_some());
    assert_eq!(pair.b.memory.get(0, 40), [9; 40]);
    let (to_b, at_a) = (pair.b.raddr_segment(256), pair.a.data_segment(0, 32));
    pair.a
        .post(WRITE, 0, &[to_b.clone(), inline_segment(&[5; 32])]);
    pair.a.post(READ, SIGNALLED, &[to_b, at_a]);
    pair.run_until_idle();
    assert!(pair.a.cq.poll().is_some());
    assert_eq!(pair.a.memory.get(0, 32), [5; 32]);
}

/// Returns the numbers of QPs that are created and destroyed one after the other.
fn numbers_in_turn(nasty: &str) -> Vec<u32> {
    let mut host = host(1, nasty);
    let cq = host.create_cq(16, 64);
    let kept = host.create_qp(host.qp_spec(cq.cqn)).qpn.0;
    assert_eq!(kept, 0x1_0001);
    let mut number = || {
        let qpn = host.create_qp(host.qp_spec(cq.cqn)).qpn;
        host.nic.destroy_qp(qpn).expect("a QP");
        qpn.0
    };
    (0..4).map(|_| number()).collect()
}

#[test]
fn reuse_a_new_qp_gets_the_number_of_the_last_destroyed_one() {
    assert_eq!(numbers_in_turn("reuse"), [0x1_0002; 4]);
}

#[test]
fn without_a_mode_every_qp_gets_a_number_that_none_had() {
    assert!(numbers_in_turn("seed=0").into_iter().eq(0x1_0002..0x1_0006));
}

#[test]
fn all_messages_arrive_in_all_modes() {
    for list in ["all", "random,seed=1", "random,seed=2", "random,seed=3"] {
        let mut pair = pair(list);
        for n in 0..200_u8 {
            let receive = pair.b.data_segment(usize::from(n) * 64, 64);
            pair.b.qp.post_receive(&[receive]);
            pair.a.post(SEND, SIGNALLED, &[inline_segment(&[n; 16])]);
            pair.run_until_idle();
            assert_eq!(pair.b.memory.get(usize::from(n) * 64, 16), [n; 16]);
            assert_eq!(pair.a.cq.poll_all().len(), 1, "{list}");
            assert_eq!(pair.b.cq.poll_all().len(), 1, "{list}");
        }
        pair.assert_no_violations();
    }
}
