//! The results of polling.

use super::*;
use crate::completion::CompletionFlags;

#[test]
fn every_completion_reports_the_posted_operation() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    let (remote_addr, rkey) = (1, 2);
    let write_imm = SendOp::WriteImm {
        remote_addr,
        rkey,
        imm: 3,
    };
    for (op, expected) in [
        (SendOp::Send, CompletionOp::Send),
        (SendOp::SendImm(1), CompletionOp::Send),
        (SendOp::Write { remote_addr, rkey }, CompletionOp::Write),
        (write_imm, CompletionOp::WriteImm),
        (SendOp::Read { remote_addr, rkey }, CompletionOp::Read),
        (SendOp::Nop, CompletionOp::Nop),
    ] {
        let wr_data = 0x8000_0007;
        pair.post(70, op, SendFlags::SIGNALED, wr_data).unwrap();
        pair.complete(&cq, false);
        // The shadow has the length of a read; not all libraries report it.
        let byte_len = if expected == CompletionOp::Read { 9 } else { 0 };
        let expected = Completion {
            byte_len,
            imm: wr_data,
            ..good(70, expected, 5)
        };
        assert_eq!(cq.poll(), Some(expected));
    }
    assert_eq!(cq.poll(), None);
    assert_eq!(cq.counters(), [0, 0]);
}

#[test]
fn receives_report_their_length_and_immediate_data() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    for (imm, by_write, op) in [
        (None, false, CompletionOp::Recv),
        (Some(7), false, CompletionOp::Recv),
        (Some(0), true, CompletionOp::RecvWriteImm),
    ] {
        pair.recv(80).unwrap();
        cq.write(Work {
            tag: pair.device.next(true).unwrap(),
            qpn: 5,
            length: 33,
            imm,
            by_write,
            ..Work::default()
        });
        let flags = match imm {
            Some(_) => CompletionFlags::WITH_IMM,
            None => CompletionFlags::empty(),
        };
        let expected = Completion {
            byte_len: 33,
            imm: imm.unwrap_or(0),
            flags,
            ..good(80, op, 5)
        };
        assert_eq!(cq.poll(), Some(expected));
    }
}

#[test]
fn failures_report_the_operation_although_the_device_does_not() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    let read = SendOp::Read {
        remote_addr: 0,
        rkey: 0,
    };
    pair.post(1, read, SendFlags::empty(), 44).unwrap();
    pair.recv(2).unwrap();
    for receive in [false, true] {
        cq.write(Work {
            tag: pair.device.next(receive).unwrap(),
            qpn: 5,
            status: Status::WrFlush,
            vendor: 0x5a,
            ..Work::default()
        });
    }
    let failed = Completion {
        status: Status::WrFlush,
        vendor_syndrome: 0x5a,
        ..good(1, CompletionOp::Read, 5)
    };
    assert_eq!(cq.poll(), Some(Completion { imm: 44, ..failed }));
    let failed = Completion {
        wr_id: 2,
        op: CompletionOp::Recv,
        ..failed
    };
    assert_eq!(cq.poll(), Some(failed));
}

#[test]
fn batches_span_several_polls_of_the_device() {
    let mut cq = Cq::new();
    let mut pairs: Vec<Qp> = (0..10).map(|qpn| qp(qpn, &cq, &cq, None)).collect();
    for (at, pair) in (0..).zip(&mut pairs) {
        for wr_id in 0..4 {
            pair.send(at * 4 + wr_id).unwrap();
            pair.complete(&cq, false);
        }
    }
    assert_eq!(cq.poller.poll_batch(&mut []), 0);
    let mut out = [Completion::default(); 33];
    assert_eq!(cq.poller.poll_batch(&mut out), 33);
    assert!(out.iter().map(|one| one.wr_id).eq(0..33));
    assert_eq!(cq.poller.poll_batch(&mut out), 7);
    assert!(out[..7].iter().map(|one| one.wr_id).eq(33..40));
    assert_eq!(cq.poller.poll_batch(&mut out), 0);
}

#[test]
fn completions_of_unknown_queue_pairs_are_counted_and_skipped() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(2);
    let mut pair = qp(5, &cq, &cq, None);
    let _other = qp(6, &cq, &cq, Some(&srq));
    srq.post(1).unwrap();
    pair.send(9).unwrap();
    let tag = pair.device.next(false).unwrap();
    let work = |tag| Work {
        tag,
        qpn: 5,
        ..Work::default()
    };
    cq.write(work(u64::MAX));
    cq.write(work(tag + 1));
    // A receive of the shared receive queue, on a queue pair that does not use that
    // queue.
    cq.write(work(srq.next()));
    cq.write(work(tag));
    assert_eq!(cq.poll(), Some(good(9, CompletionOp::Send, 5)));
    cq.write(work(tag));
    assert_eq!(cq.poll(), None);
    assert_eq!(cq.counters(), [3, 1]);
    assert_eq!(srq.outstanding(), 0, "its entry is free again");
}

#[test]
fn arming_passes_solicited_only_to_the_device() {
    let mut cq = Cq::new();
    cq.poller.arm(false).unwrap();
    cq.poller.arm(true).unwrap();
    assert_eq!(*cq.device.arms.lock().unwrap(), [false, true]);
}

#[test]
fn after_a_failure_late_receives_are_flushed() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    for wr_id in 0..2 {
        pair.send(wr_id).unwrap();
        cq.write(Work {
            tag: pair.device.next(false).unwrap(),
            qpn: 5,
            status: Status::RetryExceeded,
            ..Work::default()
        });
    }
    pair.recv(10).unwrap();
    assert_eq!(pair.device.flushes(), 0);
    assert_eq!(cq.wr_ids(), [0, 1]);
    assert_eq!(
        pair.device.flushes(),
        1,
        "receives before the failure was noticed"
    );
    pair.recv(11).unwrap();
    pair.recv(12).unwrap();
    assert_eq!(pair.device.flushes(), 3, "and receives after it");
    pair.pair.reset();
    pair.open();
    pair.recv(13).unwrap();
    assert_eq!(pair.device.flushes(), 3, "after a reset");
    pair.pair.watch().will_fail();
    pair.recv(14).unwrap();
    assert_eq!(pair.device.flushes(), 4);
}

#[test]
fn a_failure_with_shared_receives_flushes_nothing() {
    let mut cq = Cq::new();
    let srq = Srq::new(2);
    let mut pair = qp(5, &cq, &cq, Some(&srq));
    pair.send(1).unwrap();
    cq.write(Work {
        tag: pair.device.next(false).unwrap(),
        qpn: 5,
        status: Status::RemoteAccess,
        ..Work::default()
    });
    assert_eq!(cq.wr_ids(), [1]);
    assert_eq!(pair.device.flushes(), 0);
}
