//! Which posts are refused, and what happens to refused requests.

use super::*;

fn sends(wr_ids: &[u64]) -> Vec<SendRequest<'static>> {
    let send = |&wr_id| SendRequest {
        wr_id,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        segments: &[],
    };
    wr_ids.iter().map(send).collect()
}

fn recvs(wr_ids: &[u64]) -> Vec<RecvRequest<'static>> {
    let recv = |&wr_id| RecvRequest {
        wr_id,
        segments: &[],
    };
    wr_ids.iter().map(recv).collect()
}

#[test]
fn queues_refuse_posts_until_opened_and_take_what_was_granted() {
    let mut cq = Cq::new();
    let mut pair = closed(5, &cq, &cq, None);
    assert_eq!(pair.send(1), Err(PostError::NotReady));
    assert_eq!(pair.recv(1), Err(PostError::NotReady));
    pair.pair.open_receives();
    assert_eq!(pair.send(1), Err(PostError::NotReady));
    pair.pair.open_sends();
    assert_eq!(
        (pair.pair.send_capacity(), pair.pair.recv_capacity()),
        (4, 4)
    );
    for wr_id in 0..4 {
        pair.send(wr_id).unwrap();
        pair.recv(10 + wr_id).unwrap();
    }
    assert_eq!(pair.send(4), Err(PostError::QueueFull));
    assert_eq!(pair.recv(14), Err(PostError::QueueFull));
    assert_eq!(pair.pair.recvs_outstanding(), 4);
    assert!(!pair.pair.sends_idle());
    pair.complete(&cq, true);
    assert_eq!(pair.recv(14), Err(PostError::QueueFull), "not polled yet");
    assert_eq!(cq.wr_ids(), [10]);
    pair.recv(14).unwrap();
}

#[test]
fn unsignalled_sends_are_retired_by_the_next_signalled_send() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    for wr_id in 0..3 {
        pair.post(wr_id, SendOp::Send, SendFlags::empty(), 0)
            .unwrap();
        pair.pass();
    }
    pair.send(3).unwrap();
    assert_eq!(pair.send(4), Err(PostError::QueueFull));
    assert!(!pair.pair.watch().sends_idle());
    pair.complete(&cq, false);
    assert_eq!(cq.wr_ids(), [3]);
    assert!(pair.pair.sends_idle() && pair.pair.watch().sends_idle());
    for wr_id in 4..8 {
        pair.send(wr_id).unwrap();
    }
}

#[test]
fn a_limit_holds_until_the_next_reset() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    pair.pair.limit(1, 2);
    pair.send(1).unwrap();
    assert_eq!(pair.send(2), Err(PostError::QueueFull));
    pair.recv(1).unwrap();
    pair.recv(2).unwrap();
    assert_eq!(pair.recv(3), Err(PostError::QueueFull));
    pair.complete(&cq, false);
    assert_eq!(cq.wr_ids(), [1]);
    pair.send(2).unwrap();
    pair.pair.limit(99, 99);
    assert_eq!(
        (pair.pair.send_capacity(), pair.pair.recv_capacity()),
        (4, 4)
    );
}

#[test]
fn refused_requests_take_no_room() {
    let cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    let long = Segment {
        length: 17,
        ..SEGMENT
    };
    let request = SendRequest {
        wr_id: 0,
        op: SendOp::Send,
        flags: SendFlags::INLINE,
        segments: &[long],
    };
    for _ in 0..10 {
        // SAFETY: the post is refused.
        let answer = unsafe { pair.pair.post_send(&request) };
        assert_eq!(answer, Err(PostError::InlineTooLong));
    }
    assert!(pair.pair.sends_idle());
    let segments = [SEGMENT; 3];
    let request = RecvRequest {
        wr_id: 0,
        segments: &segments,
    };
    // SAFETY: the post is refused.
    let answer = unsafe { pair.pair.post_recv(&request) };
    assert_eq!(answer, Err(PostError::TooManySegments));
    assert_eq!(pair.pair.recvs_outstanding(), 0);
}

#[test]
fn lists_are_posted_in_chunks_up_to_the_invalid_request() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    let list = sends(&[1, 2, 3, 4, 5, 6]);
    // SAFETY: there are no segments.
    let answer = unsafe { pair.pair.post_send_list(&list) };
    let full = |posted| {
        Err(ListError {
            posted,
            error: PostError::QueueFull,
        })
    };
    assert_eq!(answer, full(4));
    for _ in 0..4 {
        pair.complete(&cq, false);
    }
    assert_eq!(cq.wr_ids(), [1, 2, 3, 4]);
    let mut srq = Srq::new(20);
    let list = recvs(&(0..25).collect::<Vec<_>>());
    // SAFETY: as above.
    let answer = unsafe { srq.receives.post_list(&list) };
    assert_eq!(answer, full(20));
    assert_eq!(srq.outstanding(), 20);
}

#[test]
fn requests_that_the_device_refuses_can_be_posted_again() {
    let mut cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    pair.device.poll_limit.0.store(1, Ordering::Relaxed);
    let list = sends(&[1, 2, 3]);
    // SAFETY: there are no segments.
    let answer = unsafe { pair.pair.post_send_list(&list) };
    let partly = Err(ListError {
        posted: 1,
        error: PostError::QueueFull,
    });
    assert_eq!(answer, partly);
    let list = recvs(&[10, 11, 12]);
    pair.device.poll_limit.0.store(1, Ordering::Relaxed);
    // SAFETY: as above.
    assert_eq!(unsafe { pair.pair.post_recv_list(&list) }, partly);
    assert_eq!(pair.pair.recvs_outstanding(), 1);
    pair.device.poll_limit.0.store(99, Ordering::Relaxed);
    for wr_id in 2..5 {
        pair.send(wr_id).unwrap();
        pair.recv(9 + wr_id).unwrap();
    }
    assert_eq!(pair.send(5), Err(PostError::QueueFull));
    for receive in [false, true].repeat(4) {
        pair.complete(&cq, receive);
    }
    assert_eq!(cq.wr_ids(), [1, 10, 2, 11, 3, 12, 4, 13]);
    assert_eq!(cq.counters(), [0, 0]);
}

#[test]
fn a_device_that_refuses_every_request_is_not_ready() {
    let cq = Cq::new();
    let mut pair = qp(5, &cq, &cq, None);
    pair.device.poll_limit.0.store(0, Ordering::Relaxed);
    assert_eq!(pair.send(1), Err(PostError::NotReady));
    assert_eq!(pair.recv(1), Err(PostError::NotReady));
    assert!(pair.pair.sends_idle());
}

#[test]
fn refused_shared_receives_take_no_room() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(3);
    let pair = qp(5, &cq, &cq, Some(&srq));
    srq.device.poll_limit.0.store(1, Ordering::Relaxed);
    let list = recvs(&[1, 2, 3]);
    // SAFETY: there are no segments.
    let answer = unsafe { srq.receives.post_list(&list) };
    let error = PostError::QueueFull;
    assert_eq!(answer, Err(ListError { posted: 1, error }));
    assert_eq!(srq.outstanding(), 1);
    srq.device.poll_limit.0.store(9, Ordering::Relaxed);
    srq.post(2).unwrap();
    srq.post(3).unwrap();
    assert_eq!(srq.post(4), Err(PostError::QueueFull));
    for _ in 0..3 {
        cq.write(Work {
            tag: srq.next(),
            qpn: 5,
            ..Work::default()
        });
    }
    assert_eq!(cq.wr_ids(), [1, 2, 3]);
    assert_eq!((srq.outstanding(), pair.pair.recv_capacity()), (0, 0));
}

#[test]
fn a_shared_queue_grows_while_receives_are_outstanding() {
    let mut cq = Cq::new();
    let mut srq = Srq::new(3);
    let _pair = qp(5, &cq, &cq, Some(&srq));
    let (mut next, mut done) = (0, 0);
    for (grown, complete) in [(3, 2), (4, 0), (5, 3), (40, 7), (100, 30), (101, 101)] {
        srq.receives.grow(grown);
        assert_eq!(srq.receives.capacity(), grown);
        while srq.outstanding() < grown {
            srq.post(next).expect("room");
            next += 1;
        }
        assert_eq!(srq.post(next), Err(PostError::QueueFull));
        for _ in 0..complete {
            cq.write(Work {
                tag: srq.next(),
                qpn: 5,
                ..Work::default()
            });
        }
        let wr_ids: Vec<u64> = (done..done + complete).collect();
        assert_eq!(cq.wr_ids(), wr_ids);
        done += complete;
    }
    assert_eq!((srq.outstanding(), done), (0, next));
}

#[test]
fn a_queue_pair_on_a_shared_queue_has_no_receives_of_its_own() {
    let cq = Cq::new();
    let srq = Srq::new(3);
    let mut pair = qp(5, &cq, &cq, Some(&srq));
    assert_eq!(pair.recv(1), Err(PostError::NotReady));
    let list = recvs(&[1]);
    // SAFETY: the post is refused.
    let answer = unsafe { pair.pair.post_recv_list(&list) };
    let error = PostError::NotReady;
    assert_eq!(answer, Err(ListError { posted: 0, error }));
}
