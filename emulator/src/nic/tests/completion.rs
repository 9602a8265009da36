//! Completion queues: ring, overrun, CQE sizes and versions.

use super::fixtures::*;
use crate::spec::*;

#[test]
fn the_owner_bit_toggles_with_every_lap_of_the_ring() {
    let mut pair = Pair::new();
    // A ring of 64 CQEs: five and a half laps.
    for n in 0..350_u32 {
        let counter = pair.a.post(NOP, SIGNALLED, &[]);
        pair.run_until_idle();
        assert_eq!(
            statuses(&pair.a.cq.poll_all()),
            [(OK, counter)],
            "request {n}"
        );
    }
}

#[test]
fn a_cqe_of_128_bytes_has_its_fields_in_the_second_half() {
    let mut host = Host::new(1);
    let cq = host.create_cq(16, 128);
    let cqn = cq.cqn;
    let mut a = peer(host, |spec| spec.send_cq = cqn);
    a.cq = cq;
    let mut pair = Pair::connect(a, peer(Host::new(2), |_| {}), attributes());
    for _ in 0..40 {
        let counter = pair.a.post(NOP, SIGNALLED, &[]);
        pair.run_until_idle();
        let cqe = pair.a.cq.poll().unwrap();
        assert_eq!((cqe.counter, &cqe.raw[..64]), (counter, &[0; 64][..]));
    }
}

#[test]
fn one_cqe_more_than_the_ring_holds_is_an_overrun_and_fails_the_qps_of_the_cq() {
    let mut pair = Pair::new();
    let receive = pair.a.data_segment(0, 64);
    pair.a.qp.post_receive(&[receive]);
    for _ in 0..64 {
        pair.a.post(NOP, SIGNALLED, &[]);
        pair.run_until_idle();
    }
    assert_eq!(
        pair.a.host.events.take(),
        [],
        "a full ring is not an overrun"
    );
    let first = pair.a.cq.peek();
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    let overrun = Event::Asynchronous(AsyncEvent::CqErr, AsyncObject::Cq(0xc0));
    let fatal = Event::Asynchronous(AsyncEvent::QpFatal, AsyncObject::Qp(0xa0));
    assert_eq!(pair.a.host.events.take(), [overrun, fatal]);
    assert_eq!(pair.a.state(), 6);
    assert_eq!(pair.a.cq.peek(), first, "nothing is overwritten");
    assert_eq!(
        pair.a.cq.poll_all().len(),
        64,
        "and nothing is written any more"
    );
}

#[test]
fn an_overrun_of_one_cq_does_not_stop_completions_in_the_other_cq_of_the_qp() {
    let mut host = Host::new(1);
    let small = host.create_cq(1, 64);
    let cqn = small.cqn;
    let mut a = peer(host, |spec| spec.send_cq = cqn);
    let receive = a.data_segment(0, 64);
    a.qp.post_receive(&[receive]);
    let mut pair = Pair::connect(a, peer(Host::new(2), |_| {}), attributes());
    for _ in 0..2 {
        pair.a.post(NOP, SIGNALLED, &[]);
    }
    pair.run_until_idle();
    assert_eq!(
        statuses(&pair.a.cq.poll_all()),
        [(5, 0)],
        "the receive is flushed"
    );
}

#[test]
fn cqes_of_version_0_have_no_user_index_for_a_qps_own_queues() {
    let b = peer(Host::new(2), |spec| spec.cqe_version = 0);
    let mut pair = Pair::connect(peer(Host::new(1), |_| {}), b, attributes());
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    pair.a.post(SEND, 0, &[inline_segment(b"x")]);
    pair.b.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    let all = pair.b.cq.poll_all();
    assert_eq!(all.len(), 2);
    assert!(
        all.iter()
            .all(|cqe| cqe.resource == 0 && cqe.qpn == pair.b.qp.qpn.0)
    );
}
