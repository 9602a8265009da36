//! Failures between two ends, seen from each of them: the status of the failed
//! request, and the flush of every later one.

use std::time::Duration;

use dat_engine::{Segment, SendFlags, SendOp, Status};

use crate::support::iwarp::is_iwarp;
use crate::support::libmlx5::{Link, Shape};
use crate::support::pair::{Driver, Pair, with_engine};
use crate::support::system::System;
use crate::support::work::SendWork;

fn shape(shared: bool) -> Shape {
    Shape {
        send_depth: 8,
        recv_depth: 8,
        shared,
        ..Shape::default()
    }
}

fn work(wr_id: u64, op: SendOp, segment: Segment) -> SendWork {
    SendWork {
        wr_id,
        op,
        flags: SendFlags::SIGNALED,
        segments: vec![segment],
    }
}

fn statuses(answers: &[crate::support::libmlx5::Answer]) -> Vec<(u64, u32)> {
    answers
        .iter()
        .map(|answer| (answer.wr_id, answer.status))
        .collect()
}

fn drivers() -> &'static [[Driver; 2]] {
    with_engine(&System::new())
}

/// Runs a case with all combinations of drivers, and with own and shared
/// receives.
fn between_all(link: &Link, case: impl Fn(&mut Pair)) {
    for &drivers in drivers() {
        for shared in [false, true] {
            println!("{drivers:?}, shared receives: {shared}");
            case(&mut Pair::new(System::new(), drivers, shape(shared), link));
        }
    }
}

/// The first end posts this request and two more sends. Returns the completions
/// of both ends; `counts` says how many each must have.
fn first_fails(pair: &mut Pair, bad: SendWork, counts: [usize; 2]) -> [Vec<(u64, u32)>; 2] {
    let spare = pair[0].memory().segment(0, 8);
    pair[0].send(bad);
    pair.system.after_doorbell();
    for wr_id in [101, 102] {
        // Unsignalled: an error is reported all the same.
        let flags = SendFlags::empty();
        pair[0].send(SendWork {
            wr_id,
            op: SendOp::Send,
            flags,
            segments: vec![spare],
        });
        pair.system.after_doorbell();
    }
    pair.system.run();
    [
        statuses(&pair[0].send_answers(counts[0])),
        statuses(&pair[1].recv_answers(counts[1])),
    ]
}

const OK: u32 = Status::Success.ibv_wc_status();
const FLUSHED: u32 = Status::WrFlush.ibv_wc_status();

/// The failed request and the flush of the two after it.
fn failed_with(status: Status) -> Vec<(u64, u32)> {
    vec![
        (100, status.ibv_wc_status()),
        (101, FLUSHED),
        (102, FLUSHED),
    ]
}

#[test]
fn a_key_that_the_peer_does_not_have_is_a_remote_access_error() {
    between_all(&Link::default(), |pair| {
        let there = pair[1].memory().segment(100, 64);
        pair[1].recv(7, vec![there]);
        let (remote_addr, rkey) = (there.addr, pair[1].memory().rkey() ^ 0x5500);
        let local = pair[0].memory().segment(0, 64);
        let bad = work(100, SendOp::Write { remote_addr, rkey }, local);
        let flushed = flushed_unless_shared(pair, 7);
        let [sends, receives] = first_fails(pair, bad, [3, flushed.len()]);
        assert_eq!(sends, failed_with(Status::RemoteAccess));
        assert_eq!(receives, flushed);
    });
}

/// A queue pair in error flushes its own receives; those of a shared queue stay.
fn flushed_unless_shared(pair: &mut Pair, wr_id: u64) -> Vec<(u64, u32)> {
    if pair[1].receives_are_shared() {
        vec![]
    } else {
        vec![(wr_id, FLUSHED)]
    }
}

#[test]
fn one_byte_outside_the_peers_region_is_a_remote_access_error() {
    between_all(&Link::default(), |pair| {
        let memory = pair[1].memory();
        let (remote_addr, rkey) = (memory.addr() + memory.len() as u64 - 63, memory.rkey());
        let local = pair[0].memory().segment(0, 64);
        let bad = work(100, SendOp::Read { remote_addr, rkey }, local);
        let [sends, receives] = first_fails(pair, bad, [3, 0]);
        assert_eq!(sends, failed_with(Status::RemoteAccess));
        assert_eq!(receives, []);
    });
}

#[test]
fn a_message_longer_than_the_receive_fails_on_both_sides() {
    between_all(&Link::default(), |pair| {
        let into = pair[1].memory().segment(0, 63);
        pair[1].recv(7, vec![into]);
        let local = pair[0].memory().segment(0, 64);
        let [sends, receives] = first_fails(pair, work(100, SendOp::Send, local), [3, 1]);
        assert_eq!(sends, failed_with(Status::RemoteInvalidRequest));
        assert_eq!(receives, [(7, Status::LocalLength.ibv_wc_status())]);
    });
}

#[test]
fn a_bad_local_key_is_a_local_protection_error() {
    between_all(&Link::default(), |pair| {
        let local = pair[0].memory().segment(0, 4096);
        let bad = Segment {
            lkey: local.lkey ^ 0x3300,
            ..local
        };
        let [sends, receives] = first_fails(pair, work(100, SendOp::Send, bad), [3, 0]);
        assert_eq!(sends, failed_with(Status::LocalProtection));
        assert_eq!(receives, []);
    });
}

#[test]
fn a_bad_key_in_the_receive_fails_on_both_sides() {
    between_all(&Link::default(), |pair| {
        let good = pair[1].memory().segment(0, 4096);
        pair[1].recv(
            7,
            vec![Segment {
                lkey: good.lkey ^ 0x3300,
                ..good
            }],
        );
        let local = pair[0].memory().segment(0, 4096);
        let [sends, receives] = first_fails(pair, work(100, SendOp::Send, local), [3, 1]);
        assert_eq!(sends, failed_with(Status::RemoteOperation));
        assert_eq!(receives, [(7, Status::LocalProtection.ibv_wc_status())]);
    });
}

#[test]
fn a_send_waits_for_the_receive_as_long_as_it_may() {
    between_all(&Link::default(), |pair| {
        let local = pair[0].memory().segment(0, 64);
        pair[0].memory().write(0, &[0x5a; 64]);
        pair[0].send(work(100, SendOp::Send, local));
        pair.system.run();
        pair.system.advance(Duration::from_secs(5));
        assert_eq!(pair[0].send_answers(0), [], "there is no receive yet");
        let into = pair[1].memory().segment(1000, 64);
        pair[1].recv(7, vec![into]);
        pair.system.advance(Duration::from_millis(10));
        assert_eq!(statuses(&pair[0].send_answers(1)), [(100, OK)]);
        assert_eq!(statuses(&pair[1].recv_answers(1)), [(7, OK)]);
        assert_eq!(pair[1].memory().read(1000, 64), [0x5a; 64]);
    });
}

#[test]
fn a_receive_that_never_comes_is_an_rnr_error() {
    between_all(
        &Link {
            rnr_retries: 3,
            ..Link::default()
        },
        |pair| {
            let local = pair[0].memory().segment(0, 64);
            let [none, receives] = first_fails(pair, work(100, SendOp::Send, local), [0, 0]);
            assert_eq!(receives, []);
            if pair.system.is_stepped() {
                assert_eq!(none, [], "no time has passed");
            }
            pair.system.advance(Duration::from_secs(1));
            let rest = pair[0].send_answers(3 - none.len());
            let answers = [none, statuses(&rest)].concat();
            assert_eq!(answers, failed_with(Status::RnrRetryExceeded));
        },
    );
}

#[test]
fn a_peer_that_is_gone_is_a_retry_error() {
    // rxe takes 7 for a number of retries in all, not for infinitely many.
    let link = Link {
        retries: 6,
        ..Link::default()
    };
    for &drivers in drivers() {
        let Pair {
            sides: [mut here, there],
            system,
        } = Pair::new(System::new(), drivers, shape(false), &link);
        drop(there);
        for wr_id in [100, 101, 102] {
            let local = here.memory().segment(0, 64);
            here.send(work(wr_id, SendOp::Send, local));
            system.after_doorbell();
        }
        system.run();
        if system.is_stepped() {
            assert_eq!(here.send_answers(0), [], "no time has passed");
        }
        system.advance(Duration::from_secs(10));
        assert_eq!(
            statuses(&here.send_answers(3)),
            failed_with(Status::RetryExceeded)
        );
        drop(here);
    }
}

#[test]
fn a_disconnect_flushes_what_is_posted_and_what_is_posted_after() {
    between_all(&Link::default(), |pair| {
        let local = pair[0].memory().segment(0, 64);
        for wr_id in 0..4 {
            pair[0].recv(wr_id, vec![local]);
        }
        // On iWARP a message without a receive ends the connection.
        let waiting = if is_iwarp() { 10..10 } else { 10..14 };
        for wr_id in waiting.clone() {
            // They have no receive at the peer.
            pair[0].send(work(wr_id, SendOp::Send, local));
            pair.system.after_doorbell();
        }
        pair.system.run();
        pair[0].to_error();
        pair.system.run();
        let flushed = |wr_ids: std::ops::Range<u64>| -> Vec<_> {
            wr_ids.map(|wr_id| (wr_id, FLUSHED)).collect()
        };
        let answers = pair[0].send_answers(waiting.clone().count());
        assert_eq!(statuses(&answers), flushed(waiting));
        let receives = if pair[0].receives_are_shared() {
            0..0
        } else {
            0..4
        };
        let answers = pair[0].recv_answers(receives.clone().count());
        assert_eq!(statuses(&answers), flushed(receives));

        pair[0].send(work(14, SendOp::Send, local));
        pair.system.run();
        assert_eq!(statuses(&pair[0].send_answers(1)), flushed(14..15));
        if !pair[0].receives_are_shared() {
            pair[0].recv(4, vec![local]);
            // No doorbell is rung for a receive: the device polls the receive
            // queue from time to time.
            pair.system.advance(Duration::from_millis(10));
            assert_eq!(statuses(&pair[0].recv_answers(1)), flushed(4..5));
        }
    });
}

#[test]
fn rights_that_were_not_granted_are_refused() {
    between_all(&Link::default(), |pair| {
        let local = pair[0].memory().segment(0, 64);
        let read_only = pair[1].read_only_memory();
        let (remote_addr, rkey) = (read_only.addr(), read_only.rkey());
        pair[0].send(work(99, SendOp::Read { remote_addr, rkey }, local));
        pair.system.run();
        assert_eq!(statuses(&pair[0].send_answers(1)), [(99, OK)]);
        let bad = work(100, SendOp::Write { remote_addr, rkey }, local);
        let [sends, _] = first_fails(pair, bad, [3, 0]);
        assert_eq!(sends, failed_with(Status::RemoteAccess));
    });
}
