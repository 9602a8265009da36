//! Completion events: when they come, and when they must not.

use super::rig::*;
use crate::nic::NicOptions;
use crate::nic::spec::*;

fn nop(world: &mut World) {
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
}

fn fired(world: &World) -> usize {
    world.a.host.events.take().len()
}

fn arm(world: &mut World, sequence: u32, solicited: bool) {
    world.a.cq.arm(&mut world.a.host, sequence, solicited);
}

/// The lenient views see the record, not the bytes.
fn world(view: DoorbellView) -> World {
    let a = end(
        Host::with(NicOptions {
            view,
            ..NicOptions::default()
        }),
        |_| {},
    );
    World::of(a, end(Host::new(2), |_| {}), attributes())
}

const VIEWS: [DoorbellView; 3] = [
    DoorbellView::Exact,
    DoorbellView::Register,
    DoorbellView::Records,
];

#[test]
fn one_arm_gives_one_event() {
    for view in VIEWS {
        let mut world = world(view);
        nop(&mut world);
        world.a.cq.all();
        assert_eq!(fired(&world), 0, "never armed");
        // The sequence number goes around; its first value is 0.
        for sequence in [0, 1, 2, 3, 0, 1] {
            arm(&mut world, sequence, false);
            world.run();
            assert_eq!(fired(&world), 0, "nothing has happened yet");
            nop(&mut world);
            nop(&mut world);
            assert_eq!(fired(&world), 1, "{view:?}, sequence {sequence}");
            world.a.cq.all();
        }
    }
}

#[test]
fn an_arm_with_completions_waiting_fires_at_once() {
    for view in VIEWS {
        let mut world = world(view);
        nop(&mut world);
        arm(&mut world, 0, false);
        world.run();
        assert_eq!(fired(&world), 1, "{view:?}");
        arm(&mut world, 1, true);
        world.run();
        nop(&mut world);
        assert_eq!(fired(&world), 0, "what waits is not solicited");
        arm(&mut world, 1, false);
        world.run();
        assert_eq!(fired(&world), 1, "a stronger arm replaces a weaker one");
    }
}

/// Read the event, arm, poll: completions that the event told of are still in
/// the ring at the arm, and must not bring a second event.
#[test]
fn an_arm_before_the_poll_fires_for_news_only() {
    for view in VIEWS {
        let mut world = world(view);
        arm(&mut world, 0, false);
        nop(&mut world);
        assert_eq!(fired(&world), 1, "{view:?}");
        arm(&mut world, 1, false);
        world.run();
        assert_eq!(fired(&world), 0, "{view:?}: the event has told of it");
        world.a.cq.all();
        nop(&mut world);
        assert_eq!(fired(&world), 1, "{view:?}");
        // This one comes between the event and the next arm.
        nop(&mut world);
        arm(&mut world, 2, false);
        world.run();
        assert_eq!(fired(&world), 1, "{view:?}: nobody has been told of it");
    }
}

#[test]
fn solicited_arms_wait_for_solicited_or_failed_completions() {
    let mut world = World::new();
    let receive = world.b.segment(0, 64);
    for _ in 0..2 {
        world.b.qp.post_receive(std::slice::from_ref(&receive));
    }
    world.b.cq.arm(&mut world.b.host, 0, true);
    world.a.post(SEND, 0, &[inline(b"x")]);
    world.run();
    assert_eq!(world.b.host.events.take(), []);
    world.a.post(SEND, SOLICITED, &[inline(b"x")]);
    world.run();
    assert_eq!(
        world.b.host.events.take(),
        [Event::Completion(world.b.cq.cqn)]
    );
    world.b.cq.all();
    world.b.cq.arm(&mut world.b.host, 1, true);
    world.b.qp.post_receive(&[receive]);
    set_state(&mut world.b.host.nic, world.b.qp.qpn, 6);
    assert_eq!(
        world.b.host.events.take(),
        [Event::Completion(world.b.cq.cqn)]
    );
}

#[test]
fn a_solicited_completion_that_waits_fires_a_solicited_arm_at_once() {
    let mut world = World::new();
    let receive = world.b.segment(0, 64);
    for flags in [SOLICITED, 0] {
        world.b.qp.post_receive(std::slice::from_ref(&receive));
        world.a.post(SEND, flags, &[inline(b"x")]);
    }
    world.run();
    world.b.cq.arm(&mut world.b.host, 0, true);
    assert_eq!(world.b.host.events.take().len(), 1);
    // Past the solicited one, nothing is left to notify of.
    world.b.cq.poll();
    world.b.cq.arm(&mut world.b.host, 1, true);
    assert_eq!(world.b.host.events.take().len(), 0);
}

#[test]
fn a_stale_sequence_number_is_ignored_and_counted() {
    let mut world = World::new();
    arm(&mut world, 0, false);
    nop(&mut world);
    assert_eq!(fired(&world), 1);
    arm(&mut world, 0, false);
    arm(&mut world, 2, false);
    nop(&mut world);
    assert_eq!(fired(&world), 0);
    assert_eq!(world.a.host.nic.violations().stale_arms(), 2);
    arm(&mut world, 1, false);
    assert_eq!(fired(&world), 1);
}

#[test]
fn in_the_exact_view_an_arm_is_heard_only_through_its_page() {
    let mut world = World::new();
    world.a.cq.dbrec.put_be32(4, 0);
    nop(&mut world);
    assert_eq!(fired(&world), 0, "the record alone arms nothing");
    // A doorbell that says something else than the record.
    let word = u64::from(world.a.cq.cqn.0) | 1 << 56;
    world.a.host.store(0x20, word.to_be_bytes());
    // One for a CQ that is not there.
    world.a.host.store(0x20, 0xff_u64.to_be_bytes());
    assert_eq!(fired(&world), 0);
    assert_eq!(world.a.host.nic.violations().count(), 2);
}

/// Two threads arm one CQ, one after the other. The NIC has the first store when
/// the record already holds the second arm.
#[test]
fn an_arm_that_was_overtaken_by_the_next_is_no_breach() {
    let mut world = world(DoorbellView::Exact);
    arm(&mut world, 0, false);
    nop(&mut world);
    assert_eq!(fired(&world), 1);
    world.a.cq.all();
    let consumer = world.a.cq.consumer & 0xff_ffff;
    world.a.cq.dbrec.put_be32(4, 1 << 28 | consumer);
    let overtaken = u64::from(consumer) << 32 | u64::from(world.a.cq.cqn.0);
    world.a.host.store(0x20, overtaken.to_be_bytes());
    assert_eq!(world.a.host.nic.violations().count(), 0);
    nop(&mut world);
    assert_eq!(fired(&world), 1, "the record arms");
    // The other way around: a record that lags behind its doorbell.
    let ahead = u64::from(2 << 28 | consumer) << 32 | u64::from(world.a.cq.cqn.0);
    world.a.host.store(0x20, ahead.to_be_bytes());
    assert_eq!(world.a.host.nic.violations().count(), 1);
}

#[test]
fn a_store_seen_on_the_page_arms_every_cq_of_it() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut world = world(view);
        let mut other = world.a.host.cq(16, 64);
        // The doorbell of the first arm was overwritten by the second one's.
        world.a.cq.dbrec.put_be32(4, 0);
        other.arm(&mut world.a.host, 0, false);
        nop(&mut world);
        assert_eq!(
            world.a.host.events.take(),
            [Event::Completion(world.a.cq.cqn)],
            "{view:?}"
        );
        assert_eq!(world.a.host.nic.violations().count(), 0, "{view:?}");
    }
}
