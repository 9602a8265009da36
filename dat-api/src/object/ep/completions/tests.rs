use super::*;
use crate::types::{CompletionFlags, EpAttributes};

#[test]
fn receives_complete_with_their_bits_in_posting_order() {
    let unsignalled = UnsignalledReceives::default();
    unsignalled.posting(true);
    unsignalled.posted();
    assert!(!unsignalled.next(), "not configured");
    unsignalled.reset();
    unsignalled.make_room(3);
    for round in 0..5 {
        for bit in [true, false, round % 2 == 0] {
            // A post that fails leaves its bit to the next one.
            unsignalled.posting(!bit);
            unsignalled.posting(bit);
            unsignalled.posted();
        }
        assert_eq!(
            [unsignalled.next(), unsignalled.next(), unsignalled.next()],
            [true, false, round % 2 == 0]
        );
    }
}

fn attributes(max_recv_dtos: i32, srq_soft_hw: i32) -> EpAttributes {
    EpAttributes {
        service_type: 0,
        max_message_size: 1,
        max_rdma_size: 1,
        qos: 0,
        recv_completion_flags: CompletionFlags::empty(),
        request_completion_flags: CompletionFlags::empty(),
        max_recv_dtos,
        max_request_dtos: 1,
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_read_in: 0,
        max_rdma_read_out: 0,
        srq_soft_hw,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
    }
}

/// Row, requested, shared, set afterwards, shown.
#[test]
fn attributes_show_the_watermarks_that_are_set() {
    let off = None;
    for (row, [hard, soft], shared, set, shown) in [
        ("as asked for", [4, 2], true, off, [4, 2]),
        ("left open", [0, 0], true, off, [0, 0]),
        ("off", [-1, -1], true, off, [-1, -1]),
        ("a queue of its own", [16, -1], false, off, [16, -1]),
        ("set later", [0, -1], true, Some([5, 7]), [5, 7]),
        ("turned off", [4, 2], true, Some([-1, -1]), [-1, -1]),
        ("of none", [-1, -1], true, Some([0, 0]), [0, 0]),
        ("own, set", [16, -1], false, Some([5, 7]), [16, 7]),
    ] {
        let mut attributes = attributes(hard, soft);
        let marks = HighMarks::of(&attributes, shared);
        if let Some([hard, soft]) = set {
            marks.hard.store(hard, Ordering::Relaxed);
            marks.soft.store(soft, Ordering::Relaxed);
        }
        marks.show(&mut attributes, shared);
        assert_eq!(
            [attributes.max_recv_dtos, attributes.srq_soft_hw],
            shown,
            "{row}"
        );
    }
}

#[test]
fn a_request_is_reported_once_if_it_stays_the_oldest() {
    let mut progress = Progress::default();
    let mut sees = |oldest| progress.has_stalled(oldest);
    assert!(!sees(None) && !sees(None), "nothing is outstanding");
    assert!(!sees(Some(3)), "it may have been posted just now");
    assert!(sees(Some(3)));
    assert!(!sees(Some(3)), "reported already");
    assert!(!sees(Some(4)), "the first has completed");
    assert!(!sees(None) && !sees(Some(4)));
    assert!(sees(Some(4)));
}
