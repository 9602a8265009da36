//! Queue pairs, pollers and shared receive queues that are dropped while others
//! stay.

use std::collections::HashSet;

use super::*;

fn taken(srq: &Srq, cq: &Cq, qpn: u32) {
    cq.write(Work {
        tag: srq.next(),
        qpn,
        ..Work::default()
    });
}

#[test]
fn a_reset_discards_its_completions_and_keeps_those_of_others_in_order() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(8);
    let mut a = qp(5, &cq, &cq, Some(&srq));
    let mut b = qp(6, &cq, &cq, Some(&srq));
    for wr_id in 0..6 {
        srq.post(wr_id).unwrap();
    }
    for round in 0..3 {
        a.send(100 + round).unwrap();
        b.send(200 + round).unwrap();
        a.complete(&cq, false);
        taken(&srq, &cq, 5);
        b.complete(&cq, false);
        taken(&srq, &cq, 6);
    }
    a.pair.before_reset();
    a.pair.reset();
    assert_eq!(
        srq.outstanding(),
        3,
        "receives in discarded completions are released"
    );
    assert_eq!(a.send(1), Err(PostError::NotReady));
    // Later completions follow.
    b.send(203).unwrap();
    b.complete(&cq, false);
    assert_eq!(cq.wr_ids(), [200, 1, 201, 3, 202, 5, 203]);
    assert_eq!((srq.outstanding(), cq.counters()), (0, [0, 0]));
    a.open();
    a.send(110).unwrap();
    a.complete(&cq, false);
    assert_eq!(cq.poll(), Some(good(110, CompletionOp::Send, 5)));
}

#[test]
fn staged_completions_are_discarded_too() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(4);
    let (mut a, mut b) = (qp(5, &cq, &cq, Some(&srq)), qp(6, &cq, &cq, None));
    srq.post(1).unwrap();
    taken(&srq, &cq, 5);
    a.send(2).unwrap();
    a.complete(&cq, false);
    b.send(3).unwrap();
    b.complete(&cq, false);
    // It stages those of the other queue pair, which is dropped next.
    b.pair.reset();
    a.pair.reset();
    assert_eq!(cq.wr_ids(), []);
    assert_eq!((srq.outstanding(), cq.counters()), (0, [0, 0]));
}

#[test]
fn only_queue_pairs_with_shared_receives_are_flushed_before_a_reset() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(4);
    let mut own = qp(5, &cq, &cq, None);
    own.pair.before_reset();
    assert_eq!(own.device.flushes(), 0);
    let mut shared = qp(6, &cq, &cq, Some(&srq));
    srq.post(1).unwrap();
    taken(&srq, &cq, 6);
    shared.pair.before_reset();
    assert_eq!(shared.device.flushes(), 1);
    assert_eq!((srq.outstanding(), cq.poll()), (0, None));
}

#[test]
fn a_late_completion_from_before_a_reset_is_skipped() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    pair.send(1).unwrap();
    pair.recv(2).unwrap();
    let late = [false, true].map(|receive| pair.device.next(receive).unwrap());
    for life in 1..3 {
        pair.pair.reset();
        pair.open();
        pair.send(10).unwrap();
        pair.recv(20).unwrap();
        for tag in late {
            cq.write(Work {
                tag,
                qpn: 5,
                ..Work::default()
            });
        }
        assert_eq!(cq.poll(), None);
        assert_eq!(cq.counters(), [0, 2 * life]);
        assert_eq!(pair.pair.recvs_outstanding(), 1);
        pair.complete(&cq, false);
        pair.complete(&cq, true);
        assert_eq!(cq.wr_ids(), [10, 20]);
    }
}

#[test]
fn a_reused_qp_number_has_no_completions_of_its_predecessor() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(4);
    let old = qp(5, &cq, &cq, Some(&srq));
    srq.post(1).unwrap();
    srq.post(2).unwrap();
    taken(&srq, &cq, 5);
    drop(old);
    assert_eq!(srq.outstanding(), 1);
    let mut new = qp(5, &cq, &cq, Some(&srq));
    new.send(3).unwrap();
    new.complete(&cq, false);
    taken(&srq, &cq, 5);
    assert_eq!(cq.wr_ids(), [3, 2]);
    assert_eq!((srq.outstanding(), cq.counters()), (0, [0, 0]));
}

#[test]
fn names_are_not_reused_soon() {
    let cq = Cq::new();
    let mut seen = HashSet::new();
    let _others = [qp(1, &cq, &cq, None), qp(2, &cq, &cq, None)];
    // The same entry each time: it has 2^10 names.
    let lives = if cfg!(miri) { 5 } else { 250 };
    for _ in 0..lives {
        let mut pair = qp(5, &cq, &cq, None);
        for _ in 0..3 {
            pair.send(1).unwrap();
            assert!(seen.insert(pair.device.next(false).unwrap()));
            pair.pair.reset();
            pair.open();
        }
    }
}

#[test]
fn completions_are_removed_from_both_completion_queues() {
    let (mut send_cq, mut recv_cq) = (Cq::new(), Cq::new());
    let mut pair = qp(5, &send_cq, &recv_cq, None);
    let mut other = qp(6, &recv_cq, &send_cq, None);
    for (wr_id, one) in (1..).zip([&mut pair, &mut other]) {
        one.send(10 * wr_id).unwrap();
        one.recv(10 * wr_id + 1).unwrap();
    }
    pair.complete(&send_cq, false);
    pair.complete(&recv_cq, true);
    other.complete(&recv_cq, false);
    other.complete(&send_cq, true);
    drop(pair);
    assert_eq!(send_cq.wr_ids(), [21]);
    assert_eq!(recv_cq.wr_ids(), [20]);
    for cq in [&send_cq, &recv_cq] {
        assert_eq!(cq.counters(), [0, 0]);
    }
}

#[test]
fn a_dropped_poller_releases_its_shared_receives() {
    let cq = Cq::new();
    let mut srq = Srq::new(4);
    let (a, b) = (qp(5, &cq, &cq, Some(&srq)), qp(6, &cq, &cq, Some(&srq)));
    for wr_id in 0..4 {
        srq.post(wr_id).unwrap();
    }
    taken(&srq, &cq, 5);
    taken(&srq, &cq, 6);
    // Staged for the poller, which is dropped next.
    drop(a);
    assert_eq!(srq.outstanding(), 3);
    let device = Arc::clone(&cq.device);
    drop(cq);
    assert_eq!(srq.outstanding(), 2);
    device.works.lock().unwrap().push_back(Work {
        tag: srq.next(),
        qpn: 6,
        ..Work::default()
    });
    drop(b);
    assert_eq!(srq.outstanding(), 1, "the receive that no message took");
}

#[test]
fn a_queue_pair_keeps_its_shared_receive_queue_alive() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(4);
    let pair = qp(5, &cq, &cq, Some(&srq));
    srq.post(1).unwrap();
    taken(&srq, &cq, 5);
    let handle = srq.receives.handle();
    drop(srq);
    assert_eq!(cq.wr_ids(), [1]);
    drop(pair);
    assert_eq!(handle.outstanding(), 0);
}
