//! Completion queues: the ring, its overrun, both sizes and versions.

use super::rig::*;
use crate::nic::spec::*;

#[test]
fn the_owner_bit_changes_with_every_lap() {
    let mut world = World::new();
    // 64 CQEs: five laps and a half.
    for n in 0..350_u32 {
        let counter = world.a.post(NOP, SIGNALLED, &[]);
        world.run();
        assert_eq!(outcome(&world.a.cq.all()), [(OK, counter)], "request {n}");
    }
}

#[test]
fn a_completion_of_128_bytes_lies_in_the_second_half() {
    let mut host = Host::new(1);
    let cq = host.cq(16, 128);
    let cqn = cq.cqn;
    let mut a = end(host, |spec| spec.send_cq = cqn);
    a.cq = cq;
    let mut world = World::of(a, end(Host::new(2), |_| {}), attributes());
    for _ in 0..40 {
        let counter = world.a.post(NOP, SIGNALLED, &[]);
        world.run();
        let cqe = world.a.cq.poll().unwrap();
        assert_eq!((cqe.counter, &cqe.raw[..64]), (counter, &[0; 64][..]));
    }
}

#[test]
fn a_full_ring_is_an_overrun_and_takes_its_qps_along() {
    let mut world = World::new();
    let receive = world.a.segment(0, 64);
    world.a.qp.post_receive(&[receive]);
    for _ in 0..64 {
        world.a.post(NOP, SIGNALLED, &[]);
        world.run();
    }
    assert_eq!(world.a.host.events.take(), [], "full is not yet too much");
    let first = world.a.cq.peek();
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    let overrun = Event::Asynchronous(AsyncEvent::CqErr, AsyncObject::Cq(0xc0));
    let fatal = Event::Asynchronous(AsyncEvent::QpFatal, AsyncObject::Qp(0xa0));
    assert_eq!(world.a.host.events.take(), [overrun, fatal]);
    assert_eq!(world.a.state(), 6);
    assert_eq!(world.a.cq.peek(), first, "nothing is overwritten");
    assert_eq!(
        world.a.cq.all().len(),
        64,
        "and nothing is written any more"
    );
}

#[test]
fn an_overrun_does_not_silence_the_other_queue_of_a_qp() {
    let mut host = Host::new(1);
    let small = host.cq(1, 64);
    let cqn = small.cqn;
    let mut a = end(host, |spec| spec.send_cq = cqn);
    let receive = a.segment(0, 64);
    a.qp.post_receive(&[receive]);
    let mut world = World::of(a, end(Host::new(2), |_| {}), attributes());
    for _ in 0..2 {
        world.a.post(NOP, SIGNALLED, &[]);
    }
    world.run();
    assert_eq!(
        outcome(&world.a.cq.all()),
        [(5, 0)],
        "the receive is flushed"
    );
}

#[test]
fn completions_of_version_0_name_no_resource_of_own_queues() {
    let b = end(Host::new(2), |spec| spec.cqe_version = 0);
    let mut world = World::of(end(Host::new(1), |_| {}), b, attributes());
    let receive = world.b.segment(0, 64);
    world.b.qp.post_receive(&[receive]);
    world.a.post(SEND, 0, &[inline(b"x")]);
    world.b.post(NOP, SIGNALLED, &[]);
    world.run();
    let all = world.b.cq.all();
    assert_eq!(all.len(), 2);
    assert!(
        all.iter()
            .all(|cqe| cqe.resource == 0 && cqe.qpn == world.b.qp.qpn.0)
    );
}
