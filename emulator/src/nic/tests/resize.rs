//! Completion queues that move to another ring, and those that ignore overruns.

use super::rig::*;
use crate::nic::spec::*;
use proptest::prelude::*;

/// A world whose end A completes its sends in a CQ of that size.
fn world_with(count: u32, size: u32) -> World {
    let mut host = Host::new(1);
    let cq = host.cq(count, size);
    let cqn = cq.cqn;
    let mut a = end(host, |spec| spec.send_cq = cqn);
    a.cq = cq;
    World::of(a, end(Host::new(2), |_| {}), attributes())
}

fn complete_one(world: &mut World) -> u16 {
    let counter = world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    counter
}

fn resize(world: &mut World, count: u32) -> Result<()> {
    let World { a, .. } = world;
    a.cq.resize(&mut a.host, count)
}

#[test]
fn completions_from_before_and_after_come_in_order() {
    let mut world = world_with(8, 64);
    let mut expected: Vec<_> = (0..7).map(|_| complete_one(&mut world)).collect();
    resize(&mut world, 32).unwrap();
    expected.extend((0..20).map(|_| complete_one(&mut world)));
    let seen: Vec<_> = world.a.cq.all().iter().map(|cqe| cqe.counter).collect();
    assert_eq!(seen, expected);
    assert_eq!(world.a.host.events.take(), [], "no overrun");
}

#[test]
fn a_ring_that_cannot_hold_what_waits_is_refused() {
    let mut world = world_with(16, 64);
    for _ in 0..8 {
        complete_one(&mut world);
    }
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(resize(&mut world, 4), invalid);
    assert_eq!(resize(&mut world, 8), invalid, "one less than a ring fit");
    assert_eq!(resize(&mut world, 24), invalid, "no power of two");
    let first = world.a.cq.poll().unwrap();
    resize(&mut world, 8).unwrap();
    assert_eq!(world.a.cq.all().len(), 7);
    assert_eq!(first.counter, 0);
}

#[test]
fn a_ring_without_room_for_its_end_is_refused() {
    let mut world = world_with(8, 64);
    for _ in 0..8 {
        complete_one(&mut world);
    }
    assert_eq!(resize(&mut world, 64), Err(Errno(libc::EINVAL)));
    world.a.cq.poll().unwrap();
    resize(&mut world, 64).unwrap();
    assert_eq!(world.a.cq.all().len(), 7);
}

#[test]
fn the_size_of_cqes_stays_and_a_dead_queue_is_not_moved() {
    let mut world = world_with(8, 128);
    let ring = Buffer::new(64 * 64);
    let cqn = world.a.cq.cqn;
    let to = CqBuffer {
        buf: ring.at(),
        cqe_count: 64,
        cqe_size: 64,
    };
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(world.a.host.nic.resize_cq(cqn, &to), invalid);
    assert_eq!(world.a.host.nic.resize_cq(Cqn(999), &to), invalid);
    for _ in 0..9 {
        complete_one(&mut world);
    }
    world.a.cq.all();
    assert_eq!(resize(&mut world, 64), invalid, "it overran");
}

#[test]
fn an_armed_queue_stays_armed_and_tells_only_of_completions() {
    let mut world = world_with(8, 64);
    complete_one(&mut world);
    world.a.cq.all();
    let World { a, .. } = &mut world;
    a.cq.arm(&mut a.host, 0, false);
    resize(&mut world, 16).unwrap();
    assert_eq!(world.a.host.events.take(), []);
    complete_one(&mut world);
    let cqn = world.a.cq.cqn;
    assert_eq!(world.a.host.events.take(), [Event::Completion(cqn)]);
    assert_eq!(world.a.cq.all().len(), 1);
    world.assert_no_violations();
}

#[test]
fn an_overrun_that_is_ignored_overwrites() {
    let mut host = Host::new(1);
    let cq = host.cq(8, 64);
    let mut spec = *host.nic.cq_spec(cq.cqn).unwrap();
    spec.ignore_overrun = true;
    let cqn = host.nic.create_cq(&spec).unwrap();
    let a = end(host, |spec| spec.send_cq = cqn);
    let mut world = World::of(a, end(Host::new(2), |_| {}), attributes());
    for _ in 0..20 {
        complete_one(&mut world);
    }
    assert_eq!(world.a.host.events.take(), []);
    assert_eq!(world.a.state(), 3, "the QP goes on");
    drop(cq);
}

proptest! {
    /// Completions, polls and moves in any order: each completion is seen
    /// once and in order, wherever the rings wrap.
    #[test]
    fn no_completion_is_lost_or_doubled(
        steps in proptest::collection::vec((0_u8..8, 1_u32..12), 1..60),
        large: bool,
    ) {
        let mut world = world_with(16, if large { 128 } else { 64 });
        let mut capacity = 16;
        let mut waiting = std::collections::VecDeque::new();
        for (step, amount) in steps {
            match step {
                0..=2 => {
                    for _ in 0..amount {
                        // The ends of rings count until software tells that
                        // it is past them.
                        let untold = world.a.cq.consumer - world.a.cq.dbrec.be32(0);
                        if waiting.len() as u32 + untold < capacity {
                            waiting.push_back(complete_one(&mut world));
                        }
                    }
                }
                3..=5 => {
                    for _ in 0..amount {
                        let seen = world.a.cq.poll().map(|cqe| cqe.counter);
                        prop_assert_eq!(seen, waiting.pop_front());
                    }
                }
                _ => {
                    let count = 1 << (amount % 6);
                    let consumer = world.a.cq.dbrec.be32(0);
                    let done = resize(&mut world, count);
                    // What software has taken and not told counts as well.
                    let told = world.a.cq.consumer - u32::from(done.is_ok()) - consumer;
                    let held = waiting.len() as u32 + told;
                    prop_assert_eq!(done.is_ok(), held < count && held < capacity);
                    if done.is_ok() {
                        capacity = count;
                    }
                }
            }
        }
        while let Some(expected) = waiting.pop_front() {
            prop_assert_eq!(world.a.cq.poll().map(|cqe| cqe.counter), Some(expected));
        }
        prop_assert_eq!(world.a.cq.poll(), None);
        prop_assert_eq!(world.a.host.events.take(), []);
    }
}
