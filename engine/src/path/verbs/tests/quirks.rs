//! A device that flushes once and completes sends before earlier reads, as siw
//! does.

use super::*;
use crate::path::verbs::quirks::Quirks;

fn siw(send: &Cq, recv: &Cq) -> Qp {
    let queue = FakeQueue {
        qpn: 5,
        quirks: Quirks::Siw,
        ..FakeQueue::default()
    };
    let mut qp = of_queue(queue, send, recv, None);
    qp.open();
    qp
}

const READ: SendOp = SendOp::Read {
    remote_addr: 1,
    rkey: 2,
};

/// Returns what polling reports: the `wr_id`s, and whether the requests succeeded.
fn reported(cq: &mut Cq) -> Vec<(u64, bool)> {
    std::iter::from_fn(|| cq.poll())
        .map(|one| (one.wr_id, one.status.is_success()))
        .collect()
}

/// Completes the posted send with this index, before earlier ones.
fn complete_out_of_order(qp: &Qp, cq: &Cq, index: usize, status: Status) {
    let tag = qp.device.sends.lock().unwrap().remove(index);
    cq.write(Work {
        tag: tag.expect("a posted request"),
        qpn: 5,
        status,
        ..Work::default()
    });
}

#[test]
fn a_send_that_overtakes_reads_is_reported_after_them() {
    let mut cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    for (wr_id, op) in [(1, READ), (2, SendOp::Send), (3, READ), (4, SendOp::Send)] {
        qp.post(wr_id, op, SendFlags::SIGNALED, 0).unwrap();
    }
    complete_out_of_order(&qp, &cq, 3, Status::Success);
    complete_out_of_order(&qp, &cq, 1, Status::Success);
    assert_eq!(reported(&mut cq), []);
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    assert_eq!(reported(&mut cq), [(1, true), (2, true)]);
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    assert_eq!(reported(&mut cq), [(3, true), (4, true)]);
    assert!(qp.pair.sends_idle());
    assert_eq!(cq.counters(), [0, 0]);
}

#[test]
fn a_batch_is_in_order_too() {
    let mut cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    qp.post(1, READ, SendFlags::SIGNALED, 0).unwrap();
    qp.send(2).unwrap();
    complete_out_of_order(&qp, &cq, 1, Status::Success);
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    let mut out = [Completion::default(); 4];
    let mut found = cq.poller.poll_batch(&mut out);
    found += cq.poller.poll_batch(&mut out[found..]);
    let wr_ids: Vec<u64> = out[..found].iter().map(|one| one.wr_id).collect();
    assert_eq!(wr_ids, [1, 2]);
}

/// The device's completions are taken at once, and polled by several calls.
#[test]
fn what_a_read_lets_go_is_reported_before_what_comes_after_it() {
    let mut cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    qp.post(1, READ, SendFlags::SIGNALED, 0).unwrap();
    qp.send(2).unwrap();
    qp.send(3).unwrap();
    complete_out_of_order(&qp, &cq, 1, Status::Success);
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    let mut out = [Completion::default(); 4];
    assert_eq!(cq.poller.poll_batch(&mut out), 3);
    assert_eq!([1, 2, 3], core::array::from_fn(|at| out[at].wr_id));
    assert_eq!(cq.counters(), [0, 0]);
}

#[test]
fn an_unsignalled_read_is_not_reported() {
    let mut cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    qp.post(1, READ, SendFlags::empty(), 0).unwrap();
    qp.send(2).unwrap();
    complete_out_of_order(&qp, &cq, 1, Status::Success);
    assert_eq!(reported(&mut cq), []);
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    assert_eq!(reported(&mut cq), [(2, true)]);
    // Its failure is reported.
    qp.post(3, READ, SendFlags::empty(), 0).unwrap();
    complete_out_of_order(&qp, &cq, 0, Status::WrFlush);
    assert_eq!(reported(&mut cq), [(3, false)]);
}

#[test]
fn an_unsignalled_send_is_reported_if_it_fails() {
    let mut cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    let unsignalled = |qp: &mut Qp, wr_id| qp.post(wr_id, SendOp::Send, SendFlags::empty(), 0);
    unsignalled(&mut qp, 1).unwrap();
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    assert_eq!(reported(&mut cq), []);
    assert!(qp.pair.sends_idle());
    // The device carries out one more. The next is posted just after the device has
    // flushed its queues by itself, and is lost there.
    unsignalled(&mut qp, 2).unwrap();
    unsignalled(&mut qp, 3).unwrap();
    complete_out_of_order(&qp, &cq, 0, Status::Success);
    qp.pair.watch().will_fail();
    qp.pair.watch().has_failed();
    assert_eq!(reported(&mut cq), [(3, false)]);
    assert_eq!(cq.counters(), [0, 0]);
}

#[test]
fn a_failure_after_a_read_flushes_the_read() {
    let mut cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    qp.post(1, READ, SendFlags::SIGNALED, 0).unwrap();
    qp.send(2).unwrap();
    complete_out_of_order(&qp, &cq, 1, Status::LocalQpOperation);
    assert_eq!(reported(&mut cq), []);
    assert_eq!(qp.device.flushes(), 1, "moved to ERR");
    complete_out_of_order(&qp, &cq, 0, Status::WrFlush);
    assert_eq!(reported(&mut cq), [(1, false), (2, false)]);
}

#[test]
fn requests_that_the_device_has_not_flushed_are_flushed_once() {
    let (mut sends, mut recvs) = (Cq::new(), Cq::new());
    let mut qp = siw(&sends, &recvs);
    qp.send(1).unwrap();
    qp.post(2, READ, SendFlags::SIGNALED, 0).unwrap();
    qp.post(3, SendOp::Send, SendFlags::empty(), 0).unwrap();
    qp.recv(4).unwrap();
    qp.recv(5).unwrap();
    qp.pair.watch().will_fail();
    // The device flushes one of each queue; the rest were posted too late.
    complete_out_of_order(&qp, &sends, 0, Status::WrFlush);
    recvs.write(Work {
        tag: qp.device.next(true).unwrap(),
        qpn: 5,
        status: Status::WrFlush,
        ..Work::default()
    });
    for _ in 0..2 {
        qp.pair.watch().has_failed();
    }
    // Includes the unsignalled request: the device would have completed it if it
    // had carried it out.
    assert_eq!(reported(&mut sends), [(1, false), (2, false), (3, false)]);
    assert_eq!(reported(&mut recvs), [(4, false), (5, false)]);
    // Later requests never reach the device, signalled or not.
    let before = qp.device.sends.lock().unwrap().len();
    let received = qp.device.recvs.lock().unwrap().len();
    qp.post(6, SendOp::Send, SendFlags::empty(), 0).unwrap();
    qp.send(7).unwrap();
    qp.recv(8).unwrap();
    assert_eq!(qp.device.sends.lock().unwrap().len(), before);
    assert_eq!(qp.device.recvs.lock().unwrap().len(), received);
    assert_eq!(reported(&mut sends), [(6, false), (7, false)]);
    assert_eq!(reported(&mut recvs), [(8, false)]);
    assert!(qp.pair.sends_idle());
    assert_eq!((sends.counters(), recvs.counters()), ([0, 0], [0, 0]));
}

#[test]
fn lists_that_are_posted_too_late_are_flushed() {
    let mut cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    qp.pair.watch().will_fail();
    let segments = [SEGMENT];
    let send = |wr_id| SendRequest {
        wr_id,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        segments: &segments,
    };
    // SAFETY: the simulated device accesses no memory.
    unsafe { qp.pair.post_send_list(&[send(1), send(2)]) }.unwrap();
    let recv = |wr_id| RecvRequest {
        wr_id,
        segments: &segments,
    };
    // SAFETY: as above.
    unsafe { qp.pair.post_recv_list(&[recv(3), recv(4)]) }.unwrap();
    let all: Vec<u64> = reported(&mut cq).iter().map(|one| one.0).collect();
    assert_eq!(all, [1, 2, 3, 4]);
}

#[test]
fn a_flush_by_the_engine_raises_the_armed_event() {
    let (mut sends, mut recvs) = (Cq::new(), Cq::new());
    let mut qp = siw(&sends, &recvs);
    let rings = |cq: &Cq| cq.device.rings.load(Ordering::Relaxed);
    qp.recv(1).unwrap();
    sends.poller.arm(false).unwrap();
    recvs.poller.arm(false).unwrap();
    // Nothing is outstanding on one queue; a receive was posted too late to the
    // other.
    qp.pair.watch().will_fail();
    qp.pair.watch().has_failed();
    assert_eq!((rings(&sends), rings(&recvs)), (0, 1));
    // Each arm raises one event.
    qp.recv(2).unwrap();
    assert_eq!(rings(&recvs), 1);
    recvs.poller.arm(true).unwrap();
    qp.recv(3).unwrap();
    qp.send(4).unwrap();
    assert_eq!((rings(&sends), rings(&recvs)), (1, 2));
    assert_eq!(reported(&mut recvs), [(1, false), (2, false), (3, false)]);
    assert_eq!(reported(&mut sends), [(4, false)]);
    // The device raises the event for what it flushes itself.
    let mut other = Cq::new();
    let mut plain = super::qp(6, &other, &other, None);
    other.poller.arm(false).unwrap();
    plain.pair.watch().will_fail();
    plain.recv(5).unwrap();
    assert_eq!((plain.device.flushes(), rings(&other)), (1, 0));
}

#[test]
fn requests_and_lists_reach_the_device_without_empty_segments() {
    let cq = Cq::new();
    let mut qp = siw(&cq, &cq);
    let empty = Segment {
        length: 0,
        ..SEGMENT
    };
    let segments = [empty, SEGMENT];
    let send = |wr_id, op| SendRequest {
        wr_id,
        op,
        flags: SendFlags::SIGNALED,
        segments: &segments,
    };
    let write = SendOp::Write {
        remote_addr: 1,
        rkey: 2,
    };
    // SAFETY: the simulated device reads the lists of segments only.
    unsafe {
        qp.pair
            .post_send_with_data(&send(1, SendOp::Send), 0)
            .unwrap();
        let list = [send(2, write), send(3, SendOp::Send)];
        qp.pair.post_send_list(&list).unwrap();
        qp.pair.post_send_with_data(&send(4, write), 0).unwrap();
    }
    let given = qp.device.lengths.lock().unwrap();
    assert_eq!(*given, vec![vec![SEGMENT.length]; 4]);
}
