//! Binds of memory windows of type 1 by libmlx5 (`ibv_bind_mw`) and by the engine
//! leave the same rings, records and register stores; so do the requests after a
//! bind.

use dat_engine::{Access, Segment, SendFlags, SendOp};
use proptest::prelude::*;

use crate::support::compared_qps::ComparedQps;
use crate::support::device::cases;
use crate::support::libmlx5::Shape;
use crate::support::store_tracer;
use crate::support::system::System;
use crate::support::work::{SendWork, any_send, lists};

use super::posts::bounds;

const DEPTH: u32 = 16;

fn shape() -> Shape {
    Shape {
        send_depth: DEPTH,
        recv_depth: DEPTH,
        send_segments: 4,
        recv_segments: 4,
        inline_bytes: 200,
        windows: true,
        ..Shape::default()
    }
}

type Target = Option<(u64, u64, Access)>;

/// The target of a bind: none, one byte, the longest possible.
fn any_target() -> impl Strategy<Value = Target> {
    let length = prop_oneof![Just(1), 1..4096u64, Just(1 << 31)];
    let rights = prop_oneof![
        Just(Access::REMOTE),
        Just(Access::REMOTE_READ),
        Just(Access::REMOTE_WRITE),
        Just(Access::empty()),
    ];
    let bound = (0..4096u64, length, rights).prop_map(Some);
    prop_oneof![1 => Just(None), 3 => bound]
}

fn any_flags() -> impl Strategy<Value = SendFlags> {
    let flags = [SendFlags::SIGNALED, SendFlags::FENCE];
    any::<(bool, bool)>().prop_map(move |(signalled, fenced)| {
        let mut all = SendFlags::empty();
        all.set(flags[0], signalled);
        all.set(flags[1], fenced);
        all
    })
}

fn work(op: SendOp, flags: SendFlags, segments: Vec<Segment>) -> SendWork {
    SendWork {
        wr_id: 2,
        op,
        flags,
        segments,
    }
}

/// Posts a list to both, and compares.
fn post(compared_qps: &mut ComparedQps, list: &[SendWork]) {
    let (posted, stores) = compared_qps.send(list);
    posted.expect("room");
    compared_qps.compare(&stores);
}

fn bind(compared_qps: &mut ComparedQps, flags: SendFlags, to: Target) {
    let (bound, stores) = compared_qps.bind(flags, to);
    bound.expect("room");
    compared_qps.compare(&stores);
}

#[test]
fn each_opcode_after_a_bind_and_an_unbind_is_that_of_libmlx5() {
    if !store_tracer::supported() {
        return;
    }
    let system = System::new();
    let mut compared_qps = system.compared_qps(shape());
    compared_qps.trace(false);
    let (remote_addr, rkey) = (0x1234_5678_9abc, 0x77);
    let ops = [
        SendOp::Send,
        SendOp::SendImm(0x0102_0304),
        SendOp::Write { remote_addr, rkey },
        SendOp::WriteImm {
            remote_addr,
            rkey,
            imm: 9,
        },
        SendOp::Read { remote_addr, rkey },
    ];
    let segment = |length| Segment {
        addr: 0x1000,
        length,
        lkey: 7,
    };
    let signalled = SendFlags::SIGNALED;
    for to in [Some((64, 256, Access::REMOTE)), None] {
        for op in ops {
            for flags in [signalled, signalled | SendFlags::FENCE] {
                for segments in [vec![segment(9)], vec![segment(1), segment(2)], vec![]] {
                    bind(&mut compared_qps, signalled, to);
                    // The second request has no fence any more.
                    for _ in 0..2 {
                        post(&mut compared_qps, &[work(op, flags, segments.clone())]);
                    }
                    compared_qps.complete_sends(3);
                    bind(&mut compared_qps, signalled, to);
                    let one = work(op, flags, segments.clone());
                    post(&mut compared_qps, &[one.clone(), one]);
                    compared_qps.complete_sends(3);
                }
            }
        }
        // A bind after a bind.
        for _ in 0..3 {
            bind(&mut compared_qps, signalled, to);
        }
        compared_qps.complete_sends(3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(40), ..ProptestConfig::default() })]

    /// Binds anywhere among other requests, and anywhere in the ring.
    #[test]
    fn binds_among_sends_are_identical(
        start in prop_oneof![Just(0), 0..4096u32, (65_536 - 200)..65_536u32],
        steps in prop::collection::vec((any_target(), any_flags()), 1..40),
        lists in lists(any_send(bounds()), 40..41),
    ) {
        if !store_tracer::supported() {
            return Ok(());
        }
        let system = System::new();
        let mut compared_qps = system.compared_qps(shape());
        compared_qps.advance_to(start);
        compared_qps.trace(false);
        for ((to, flags), mut list) in steps.into_iter().zip(lists) {
            let (_, stores) = compared_qps.bind(flags, to);
            compared_qps.compare(&stores);
            list[0].flags |= SendFlags::SIGNALED;
            let (posted, stores) = compared_qps.send(&list);
            compared_qps.compare(&stores);
            if posted.is_err() || compared_qps.signaled() > 2 {
                compared_qps.complete_sends(compared_qps.signaled());
            }
        }
    }
}

/// The fence is set on the next request that is posted, also if requests were
/// refused in between, or the queue was full.
#[test]
fn the_fence_is_set_on_the_next_posted_request() {
    if !store_tracer::supported() {
        return;
    }
    let system = System::new();
    let mut compared_qps = system.compared_qps(shape());
    compared_qps.trace(false);
    let one = Segment {
        addr: 0x1000,
        length: 9,
        lkey: 7,
    };
    let good = work(SendOp::Send, SendFlags::SIGNALED, vec![one]);
    let bad = work(SendOp::Send, SendFlags::SIGNALED, vec![one; 30]);
    bind(&mut compared_qps, SendFlags::SIGNALED, None);
    assert!(
        compared_qps
            .ours
            .side
            .post_sends(std::slice::from_ref(&bad))
            .is_err()
    );
    post(&mut compared_qps, std::slice::from_ref(&good));
    compared_qps.complete_sends(2);
    // Full, with a bind as the last request.
    let (_, room) = compared_qps.ours.rings.send;
    assert!(room >= 64 * 3 * DEPTH as usize);
    while compared_qps
        .bind(SendFlags::SIGNALED, Some((0, 8, Access::REMOTE)))
        .0
        .is_ok()
    {}
    let outstanding = compared_qps.signaled();
    assert!(outstanding >= DEPTH as usize);
    compared_qps.complete_sends(outstanding);
    post(&mut compared_qps, std::slice::from_ref(&good));
    post(&mut compared_qps, &[good]);
}
