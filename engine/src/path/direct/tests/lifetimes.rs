//! Queue pairs, pollers and shared receive queues that are dropped while others
//! stay.

use super::*;
use crate::path::PollerCounters;

#[test]
fn a_destroyed_queue_pair_leaves_no_completions_for_its_successor() {
    let mut cq = Cq::new(32, 64);
    let mut srq = Srq::new();
    let old = qp(5, &cq, &cq, Some(&srq));
    let mut other = qp(6, &cq, &cq, Some(&srq));
    for wr_id in 0..3 {
        srq.post(wr_id, &[]).unwrap();
    }
    other.send(60).unwrap();
    cq.write(received(5, 0, 1));
    cq.write(done(6, 0));
    cq.write(received(5, 1, 1));
    let alive = Arc::clone(&old.alive);
    drop(old);
    assert!(
        !Qp::is_gone(&alive),
        "the QP number stays allocated until the poller has removed the stale CQEs"
    );
    // The same QP number again, before the queue was polled.
    let mut new = qp(5, &cq, &cq, Some(&srq));
    new.send(50).unwrap();
    cq.write(done(5, 0));
    cq.write(received(5, 2, 3));
    assert_eq!(cq.poll(), Some(good(60, CompletionOp::Send, 6)));
    assert!(Qp::is_gone(&alive));
    assert_eq!(cq.poll(), Some(good(50, CompletionOp::Send, 5)));
    let expected = Completion {
        byte_len: 3,
        ..good(2, CompletionOp::Recv, 5)
    };
    assert_eq!(cq.poll(), Some(expected));
    assert_eq!(cq.poll(), None);
    assert_eq!(
        cq.poller.counters(),
        PollerCounters {
            unknown: 0,
            stale: 2
        }
    );
    // All three shared receives are free again.
    for wr_id in 0..3 {
        srq.post(wr_id, &[]).unwrap();
    }
    assert_eq!(srq.post(3, &[]), Err(PostError::QueueFull));
}

#[test]
fn an_empty_poll_releases_a_dropped_queue_pair() {
    let (mut send_cq, mut recv_cq) = (Cq::new(8, 64), Cq::new(8, 64));
    let pair = qp(5, &send_cq, &recv_cq, None);
    let alive = Arc::clone(&pair.alive);
    drop(pair);
    assert_eq!(send_cq.poll(), None);
    assert!(!Qp::is_gone(&alive));
    recv_cq.poller.process_commands();
    assert!(Qp::is_gone(&alive));
}

#[test]
fn dropping_a_poller_releases_its_queue_pairs() {
    let cq = Cq::new(8, 64);
    let (kept, dropped) = (qp(5, &cq, &cq, None), qp(6, &cq, &cq, None));
    let alive = [Arc::clone(&kept.alive), Arc::clone(&dropped.alive)];
    drop(dropped);
    drop(cq);
    assert!(Qp::is_gone(&alive[1]));
    drop(kept);
    assert!(Qp::is_gone(&alive[0]));
}

#[test]
fn the_memory_of_a_shared_queue_lives_as_long_as_its_users() {
    let mut cq = Cq::new(8, 64);
    let srq = Srq::new();
    let alive = Arc::clone(&srq.alive);
    let pair = qp(5, &cq, &cq, Some(&srq));
    drop(srq);
    assert!(!Qp::is_gone(&alive));
    drop(pair);
    cq.poller.process_commands();
    assert!(Qp::is_gone(&alive));
}

#[test]
fn a_reset_discards_posted_requests_and_unpolled_completions() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(5, &cq, &cq, None);
    for wr_id in 0..8 {
        pair.send(wr_id).unwrap();
    }
    for wr_id in 20..24 {
        pair.recv(wr_id, &[]).unwrap();
    }
    cq.write(done(5, 3));
    assert_eq!(cq.poll().map(|c| c.wr_id), Some(3));
    cq.write(done(5, 7));
    cq.write(received(5, 0, 1));
    pair.pair.reset();
    assert_eq!(pair.send(0), Err(PostError::NotReady));
    assert_eq!(pair.recv(0, &[]), Err(PostError::NotReady));
    pair.pair.open_receives();
    pair.pair.open_sends();
    for wr_id in 30..38 {
        pair.send(wr_id).unwrap();
    }
    assert_eq!(pair.send(0), Err(PostError::QueueFull));
    assert_eq!(
        pair.ring.bytes(0, 4),
        [0, 0, 0, 0x0a],
        "from the start of the ring"
    );
    for wr_id in 40..44 {
        pair.recv(wr_id, &[]).unwrap();
    }
    cq.write(done(5, 0));
    cq.write(received(5, 0, 1));
    assert_eq!(cq.poll(), Some(good(30, CompletionOp::Send, 5)));
    assert_eq!(cq.poll().map(|c| c.wr_id), Some(40));
    assert_eq!(cq.poll(), None);
}

#[test]
fn a_stale_cqe_found_before_its_detach_command_releases_the_shared_receive() {
    let mut cq = Cq::new(8, 64);
    let mut srq = Srq::new();
    let old = qp(5, &cq, &cq, Some(&srq));
    for wr_id in 0..3 {
        srq.post(wr_id, &[]).unwrap();
    }
    cq.poller.process_commands();
    // As if the other thread stopped between retiring the record and queueing the
    // command. Immediate data, so that the slow path looks at the record.
    cq.write(Entry {
        opcode: 3,
        ..received(5, 0, 1)
    });
    old.pair.retire_without_command();
    assert_eq!(cq.poll(), None);
    assert_eq!(
        cq.poller.counters(),
        PollerCounters {
            unknown: 0,
            stale: 1
        }
    );
    srq.post(3, &[]).unwrap();
    drop(old);
    assert_eq!(cq.poll(), None);
    assert_eq!(srq.post(4, &[]), Err(PostError::QueueFull));
}

#[test]
fn two_completion_queues_may_return_receives_of_one_shared_queue() {
    let (mut a_cq, mut b_cq) = (Cq::new(8, 64), Cq::new(8, 64));
    let mut srq = Srq::new();
    let _a = qp(1, &a_cq, &a_cq, Some(&srq));
    srq.post(10, &[]).unwrap();
    a_cq.write(received(1, 0, 1));
    assert_eq!(a_cq.poll().map(|c| c.wr_id), Some(10));
    let _b = qp(2, &b_cq, &b_cq, Some(&srq));
    for round in 0..20u64 {
        srq.post(round, &[]).unwrap();
        srq.post(100 + round, &[]).unwrap();
        let at = |i: u64| ((1 + 2 * round + i) % 4) as u16;
        a_cq.write(received(1, at(0), 1));
        b_cq.write(received(2, at(1), 1));
        assert_eq!(a_cq.poll().map(|c| c.wr_id), Some(round));
        assert_eq!(b_cq.poll().map(|c| c.wr_id), Some(100 + round));
    }
}

/// One thread creates and drops queue pairs, and writes CQEs as the device; another
/// polls. QP numbers are reused at once. Every completion is reported once, with
/// its `wr_id` and in order, or counted as stale.
#[test]
#[cfg_attr(
    miri,
    ignore = "the simulated device writes memory while the poller reads it"
)]
fn qp_numbers_are_reused_while_another_thread_polls() {
    const QPN: u32 = 0x42;
    const ROUNDS: u64 = 20_000;
    let Cq {
        mut device,
        mut poller,
    } = Cq::new(64, 64);
    let commands = Arc::clone(poller.commands());
    let stop = AtomicUsize::new(0);
    let (reported, written) = std::thread::scope(|scope| {
        let reported = scope.spawn(|| {
            let mut reported = Vec::new();
            loop {
                let last = stop.load(Ordering::Acquire) != 0;
                match poller.poll() {
                    Some(completion) => reported.push(completion),
                    None if last => break,
                    None => std::hint::spin_loop(),
                }
            }
            (reported, poller.counters())
        });
        let mut written = 0;
        for round in 0..ROUNDS {
            while device.in_use() > 60 {
                std::thread::yield_now();
            }
            let mut pair = qp_on(QPN, &commands, &commands, None);
            let sends = round % 4;
            for send in 0..sends {
                pair.send(round << 8 | send).unwrap();
                device.write(done(QPN, send as u16), &[]);
                written += 1;
            }
            if round % 5 == 0 {
                pair.pair.reset();
                pair.pair.open_sends();
                pair.send(round << 8 | 0xff).unwrap();
                device.write(done(QPN, 0), &[]);
                written += 1;
            }
        }
        stop.store(1, Ordering::Release);
        (reported.join().unwrap(), written)
    });
    let (reported, counters) = reported;
    assert_eq!(counters.unknown, 0);
    assert_eq!(reported.len() as u64 + counters.stale, written);
    assert!(
        reported
            .iter()
            .all(|c| c.status.is_success() && c.qpn == QPN)
    );
    assert!(
        reported.is_sorted_by(|a, b| a.wr_id < b.wr_id),
        "each once, in order"
    );
}
