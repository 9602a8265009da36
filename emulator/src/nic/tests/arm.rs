//! Completion events: when a CQ arm generates one.

use super::fixtures::*;
use crate::nic::NicOptions;
use crate::spec::*;

fn nop(pair: &mut Pair) {
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
}

fn completion_events(pair: &Pair) -> usize {
    pair.a.host.events.take().len()
}

fn arm(pair: &mut Pair, sequence: u32, solicited: bool) {
    pair.a.cq.arm(&mut pair.a.host, sequence, solicited);
}

/// Returns a pair whose first NIC has this doorbell view.
fn pair(view: DoorbellView) -> Pair {
    let a = peer(
        Host::with_options(NicOptions {
            view,
            ..NicOptions::default()
        }),
        |_| {},
    );
    Pair::connect(a, peer(Host::new(2), |_| {}), attributes())
}

const VIEWS: [DoorbellView; 3] = [
    DoorbellView::Exact,
    DoorbellView::Register,
    DoorbellView::Records,
];

#[test]
fn one_arm_gives_one_event() {
    for view in VIEWS {
        let mut pair = pair(view);
        nop(&mut pair);
        pair.a.cq.poll_all();
        assert_eq!(completion_events(&pair), 0, "not armed");
        // The sequence number wraps; its first value is 0.
        for sequence in [0, 1, 2, 3, 0, 1] {
            arm(&mut pair, sequence, false);
            pair.run_until_idle();
            assert_eq!(completion_events(&pair), 0, "no completion yet");
            nop(&mut pair);
            nop(&mut pair);
            assert_eq!(completion_events(&pair), 1, "{view:?}, sequence {sequence}");
            pair.a.cq.poll_all();
        }
    }
}

#[test]
fn an_arm_with_unpolled_completions_generates_an_event_at_once() {
    for view in VIEWS {
        let mut pair = pair(view);
        nop(&mut pair);
        arm(&mut pair, 0, false);
        pair.run_until_idle();
        assert_eq!(completion_events(&pair), 1, "{view:?}");
        arm(&mut pair, 1, true);
        pair.run_until_idle();
        nop(&mut pair);
        assert_eq!(
            completion_events(&pair),
            0,
            "the unpolled completions are not solicited"
        );
        arm(&mut pair, 1, false);
        pair.run_until_idle();
        assert_eq!(
            completion_events(&pair),
            1,
            "an arm for all completions replaces one for solicited completions"
        );
    }
}

/// An application reads the event, arms the CQ, then polls. At the arm, the completions
/// that the event reported are still in the ring; they must not generate a second event.
#[test]
fn an_arm_before_the_poll_generates_events_for_new_completions_only() {
    for view in VIEWS {
        let mut pair = pair(view);
        arm(&mut pair, 0, false);
        nop(&mut pair);
        assert_eq!(completion_events(&pair), 1, "{view:?}");
        arm(&mut pair, 1, false);
        pair.run_until_idle();
        assert_eq!(
            completion_events(&pair),
            0,
            "{view:?}: the event has reported it"
        );
        pair.a.cq.poll_all();
        nop(&mut pair);
        assert_eq!(completion_events(&pair), 1, "{view:?}");
        // A completion between the event and the next arm.
        nop(&mut pair);
        arm(&mut pair, 2, false);
        pair.run_until_idle();
        assert_eq!(
            completion_events(&pair),
            1,
            "{view:?}: no event has reported it"
        );
    }
}

#[test]
fn a_solicited_arm_waits_for_a_solicited_or_failed_completion() {
    let mut pair = Pair::new();
    let receive = pair.b.data_segment(0, 64);
    for _ in 0..2 {
        pair.b.qp.post_receive(std::slice::from_ref(&receive));
    }
    pair.b.cq.arm(&mut pair.b.host, 0, true);
    pair.a.post(SEND, 0, &[inline_segment(b"x")]);
    pair.run_until_idle();
    assert_eq!(pair.b.host.events.take(), []);
    pair.a.post(SEND, SOLICITED, &[inline_segment(b"x")]);
    pair.run_until_idle();
    assert_eq!(
        pair.b.host.events.take(),
        [Event::Completion(pair.b.cq.cqn)]
    );
    pair.b.cq.poll_all();
    pair.b.cq.arm(&mut pair.b.host, 1, true);
    pair.b.qp.post_receive(&[receive]);
    set_state(&mut pair.b.host.nic, pair.b.qp.qpn, 6);
    assert_eq!(
        pair.b.host.events.take(),
        [Event::Completion(pair.b.cq.cqn)]
    );
}

#[test]
fn a_solicited_arm_with_an_unpolled_solicited_completion_generates_an_event_at_once() {
    let mut pair = Pair::new();
    let receive = pair.b.data_segment(0, 64);
    for flags in [SOLICITED, 0] {
        pair.b.qp.post_receive(std::slice::from_ref(&receive));
        pair.a.post(SEND, flags, &[inline_segment(b"x")]);
    }
    pair.run_until_idle();
    pair.b.cq.arm(&mut pair.b.host, 0, true);
    assert_eq!(pair.b.host.events.take().len(), 1);
    // No solicited completion is left after this poll.
    pair.b.cq.poll();
    pair.b.cq.arm(&mut pair.b.host, 1, true);
    assert_eq!(pair.b.host.events.take().len(), 0);
}

#[test]
fn a_stale_sequence_number_is_ignored_and_counted() {
    let mut pair = Pair::new();
    arm(&mut pair, 0, false);
    nop(&mut pair);
    assert_eq!(completion_events(&pair), 1);
    arm(&mut pair, 0, false);
    arm(&mut pair, 2, false);
    nop(&mut pair);
    assert_eq!(completion_events(&pair), 0);
    assert_eq!(pair.a.host.nic.violations().stale_arms(), 2);
    arm(&mut pair, 1, false);
    assert_eq!(completion_events(&pair), 1);
}

#[test]
fn in_the_exact_view_a_cq_is_armed_only_by_a_store_to_the_uar_page() {
    let mut pair = Pair::new();
    pair.a.cq.dbrec.put_be32(4, 0);
    nop(&mut pair);
    assert_eq!(
        completion_events(&pair),
        0,
        "the doorbell record alone does not arm the CQ"
    );
    // A doorbell that differs from the doorbell record.
    let word = u64::from(pair.a.cq.cqn.0) | 1 << 56;
    pair.a.host.store_doorbell(0x20, word.to_be_bytes());
    // A doorbell for a CQ that does not exist.
    pair.a.host.store_doorbell(0x20, 0xff_u64.to_be_bytes());
    assert_eq!(completion_events(&pair), 0);
    assert_eq!(pair.a.host.nic.violations().count(), 2);
}

/// Two threads arm one CQ, one after the other. The NIC takes the first store when
/// the doorbell record already contains the second arm.
#[test]
fn an_arm_that_was_overtaken_by_the_next_is_not_a_violation() {
    let mut pair = pair(DoorbellView::Exact);
    arm(&mut pair, 0, false);
    nop(&mut pair);
    assert_eq!(completion_events(&pair), 1);
    pair.a.cq.poll_all();
    let consumer = pair.a.cq.consumer & 0xff_ffff;
    pair.a.cq.dbrec.put_be32(4, 1 << 28 | consumer);
    let overtaken = u64::from(consumer) << 32 | u64::from(pair.a.cq.cqn.0);
    pair.a.host.store_doorbell(0x20, overtaken.to_be_bytes());
    assert_eq!(pair.a.host.nic.violations().count(), 0);
    nop(&mut pair);
    assert_eq!(
        completion_events(&pair),
        1,
        "the doorbell record arms the CQ"
    );
    // The reverse: a doorbell record that is older than its doorbell.
    let ahead = u64::from(2 << 28 | consumer) << 32 | u64::from(pair.a.cq.cqn.0);
    pair.a.host.store_doorbell(0x20, ahead.to_be_bytes());
    assert_eq!(pair.a.host.nic.violations().count(), 1);
}

#[test]
fn a_detected_store_arms_every_cq_of_the_uar_page() {
    for view in [DoorbellView::Exact, DoorbellView::Register] {
        let mut pair = pair(view);
        let mut other = pair.a.host.create_cq(16, 64);
        // The second arm's doorbell has overwritten the first one's.
        pair.a.cq.dbrec.put_be32(4, 0);
        other.arm(&mut pair.a.host, 0, false);
        nop(&mut pair);
        assert_eq!(
            pair.a.host.events.take(),
            [Event::Completion(pair.a.cq.cqn)],
            "{view:?}"
        );
        assert_eq!(pair.a.host.nic.violations().count(), 0, "{view:?}");
    }
}

/// Returns a pair whose first QP completes on a CQ of 16 CQEs that ignores overruns.
fn ignoring_pair(options: NicOptions) -> Pair {
    let mut host = Host::with_options(options);
    let cq = host.create_cq_with(16, 64, true);
    let cqn = cq.cqn;
    let mut a = peer(host, |spec| spec.send_cq = cqn);
    a.cq = cq;
    Pair::connect(a, peer(Host::new(2), |_| {}), attributes())
}

/// Completes and polls `count` requests, and leaves the doorbell record behind.
fn lap(pair: &mut Pair, count: usize) {
    for _ in 0..count {
        nop(pair);
        assert_eq!(pair.a.cq.poll_all().len(), 1);
        pair.a.cq.dbrec.put_be32(0, 0);
    }
}

#[test]
fn a_cq_that_ignores_overruns_needs_its_record_only_for_arms() {
    let mut pair = ignoring_pair(NicOptions::default());
    lap(&mut pair, 100);
    assert_eq!(completion_events(&pair), 0, "no overrun in six laps");
    pair.assert_no_violations();
    arm(&mut pair, 0, false);
    let texts: Vec<_> = pair.a.host.nic.violations().recent().collect();
    assert!(
        matches!(&texts[..], [text] if text.contains("ignores overruns")),
        "{texts:?}"
    );
    nop(&mut pair);
    assert_eq!(pair.a.cq.poll_all().len(), 1);
    assert_eq!(completion_events(&pair), 1);
    arm(&mut pair, 1, false);
    assert_eq!(
        pair.a.host.nic.violations().count(),
        1,
        "polling has written the record"
    );
}

#[test]
fn arms_an_event_is_lost_if_the_record_of_a_cq_that_ignores_overruns_is_a_lap_behind() {
    for (nasty, record, events) in [("arms", false, 0), ("arms", true, 1), ("record", false, 1)] {
        let mut pair = ignoring_pair(NicOptions {
            view: DoorbellView::Register,
            nasty: nasty.parse().unwrap(),
            ..NicOptions::default()
        });
        lap(&mut pair, 20);
        nop(&mut pair);
        if record {
            let consumer = pair.a.cq.consumer;
            pair.a.cq.dbrec.put_be32(0, consumer);
        }
        arm(&mut pair, 0, false);
        assert_eq!(completion_events(&pair), events, "{nasty}, {record}");
    }
}

#[test]
fn a_cq_that_ignores_overruns_is_resized_by_its_record() {
    let mut pair = ignoring_pair(NicOptions::default());
    lap(&mut pair, 40);
    let Pair { a, .. } = &mut pair;
    let behind = a.cq.resize(&mut a.host, 64);
    assert_eq!(behind, Err(Errno(libc::EINVAL)), "40 seem to wait");
    a.cq.dbrec.put_be32(0, a.cq.consumer);
    a.cq.resize(&mut a.host, 64).unwrap();
    lap(&mut pair, 100);
    assert_eq!(completion_events(&pair), 0);
}
