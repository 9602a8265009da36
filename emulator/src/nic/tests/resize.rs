//! CQs that are resized, and CQs that ignore overruns.

use super::fixtures::*;
use crate::spec::*;
use proptest::prelude::*;

/// Returns a pair in which A's sends complete in a CQ with this number and size of CQEs.
fn pair_with_cq(count: u32, size: u32) -> Pair {
    let mut host = Host::new(1);
    let cq = host.create_cq(count, size);
    let cqn = cq.cqn;
    let mut a = peer(host, |spec| spec.send_cq = cqn);
    a.cq = cq;
    Pair::connect(a, peer(Host::new(2), |_| {}), attributes())
}

fn complete_one(pair: &mut Pair) -> u16 {
    let counter = pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    counter
}

fn resize(pair: &mut Pair, count: u32) -> Result<()> {
    let Pair { a, .. } = pair;
    a.cq.resize(&mut a.host, count)
}

#[test]
fn completions_before_and_after_a_resize_are_polled_in_order() {
    let mut pair = pair_with_cq(8, 64);
    let mut expected: Vec<_> = (0..7).map(|_| complete_one(&mut pair)).collect();
    resize(&mut pair, 32).unwrap();
    expected.extend((0..20).map(|_| complete_one(&mut pair)));
    let polled: Vec<_> = pair.a.cq.poll_all().iter().map(|cqe| cqe.counter).collect();
    assert_eq!(polled, expected);
    assert_eq!(pair.a.host.events.take(), [], "no overrun");
}

#[test]
fn a_ring_too_small_for_the_unpolled_cqes_is_refused() {
    let mut pair = pair_with_cq(16, 64);
    for _ in 0..8 {
        complete_one(&mut pair);
    }
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(resize(&mut pair, 4), invalid);
    assert_eq!(
        resize(&mut pair, 8),
        invalid,
        "a ring holds one CQE less, for the resize CQE"
    );
    assert_eq!(resize(&mut pair, 24), invalid, "not a power of two");
    let first = pair.a.cq.poll().unwrap();
    resize(&mut pair, 8).unwrap();
    assert_eq!(pair.a.cq.poll_all().len(), 7);
    assert_eq!(first.counter, 0);
}

#[test]
fn a_full_ring_has_no_room_for_the_resize_cqe() {
    let mut pair = pair_with_cq(8, 64);
    for _ in 0..8 {
        complete_one(&mut pair);
    }
    assert_eq!(resize(&mut pair, 64), Err(Errno(libc::EINVAL)));
    pair.a.cq.poll().unwrap();
    resize(&mut pair, 64).unwrap();
    assert_eq!(pair.a.cq.poll_all().len(), 7);
}

#[test]
fn the_cqe_size_cannot_change_and_a_failed_cq_cannot_be_resized() {
    let mut pair = pair_with_cq(8, 128);
    let ring = Buffer::new(64 * 64);
    let cqn = pair.a.cq.cqn;
    let to = CqBuffer {
        buf: ring.at(),
        cqe_count: 64,
        cqe_size: 64,
    };
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(pair.a.host.nic.resize_cq(cqn, &to), invalid);
    assert_eq!(pair.a.host.nic.resize_cq(Cqn(999), &to), invalid);
    for _ in 0..9 {
        complete_one(&mut pair);
    }
    pair.a.cq.poll_all();
    assert_eq!(resize(&mut pair, 64), invalid, "the CQ has overrun");
}

#[test]
fn a_cq_stays_armed_across_a_resize_and_the_resize_cqe_raises_no_event() {
    let mut pair = pair_with_cq(8, 64);
    complete_one(&mut pair);
    pair.a.cq.poll_all();
    let Pair { a, .. } = &mut pair;
    a.cq.arm(&mut a.host, 0, false);
    resize(&mut pair, 16).unwrap();
    assert_eq!(pair.a.host.events.take(), []);
    complete_one(&mut pair);
    let cqn = pair.a.cq.cqn;
    assert_eq!(pair.a.host.events.take(), [Event::Completion(cqn)]);
    assert_eq!(pair.a.cq.poll_all().len(), 1);
    pair.assert_no_violations();
}

#[test]
fn an_ignored_overrun_overwrites_cqes() {
    let mut host = Host::new(1);
    let cq = host.create_cq(8, 64);
    let mut spec = *host.nic.cq_spec(cq.cqn).unwrap();
    spec.ignore_overrun = true;
    let cqn = host.nic.create_cq(&spec).unwrap();
    let a = peer(host, |spec| spec.send_cq = cqn);
    let mut pair = Pair::connect(a, peer(Host::new(2), |_| {}), attributes());
    for _ in 0..20 {
        complete_one(&mut pair);
    }
    assert_eq!(pair.a.host.events.take(), []);
    assert_eq!(pair.a.state(), 3, "the QP stays in RTS");
    drop(cq);
}

proptest! {
    /// Completions, polls and resizes in any order: each completion is polled once and
    /// in order, wherever the rings wrap.
    #[test]
    fn no_completion_is_lost_or_duplicated_by_resizes(
        steps in proptest::collection::vec((0_u8..8, 1_u32..12), 1..60),
        large: bool,
    ) {
        let mut pair = pair_with_cq(16, if large { 128 } else { 64 });
        let mut capacity = 16;
        let mut unpolled = std::collections::VecDeque::new();
        for (step, amount) in steps {
            match step {
                0..=2 => {
                    for _ in 0..amount {
                        // A resize CQE counts until the consumer index is past it.
                        let unreported = pair.a.cq.consumer - pair.a.cq.dbrec.be32(0);
                        if unpolled.len() as u32 + unreported < capacity {
                            unpolled.push_back(complete_one(&mut pair));
                        }
                    }
                }
                3..=5 => {
                    for _ in 0..amount {
                        let polled = pair.a.cq.poll().map(|cqe| cqe.counter);
                        prop_assert_eq!(polled, unpolled.pop_front());
                    }
                }
                _ => {
                    let count = 1 << (amount % 6);
                    let consumer = pair.a.cq.dbrec.be32(0);
                    let done = resize(&mut pair, count);
                    // Polled CQEs that the consumer index does not report yet count as well.
                    let unreported = pair.a.cq.consumer - u32::from(done.is_ok()) - consumer;
                    let held = unpolled.len() as u32 + unreported;
                    prop_assert_eq!(done.is_ok(), held < count && held < capacity);
                    if done.is_ok() {
                        capacity = count;
                    }
                }
            }
        }
        while let Some(expected) = unpolled.pop_front() {
            prop_assert_eq!(pair.a.cq.poll().map(|cqe| cqe.counter), Some(expected));
        }
        prop_assert_eq!(pair.a.cq.poll(), None);
        prop_assert_eq!(pair.a.host.events.take(), []);
    }
}
