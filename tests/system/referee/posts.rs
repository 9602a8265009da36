//! The same requests posted by libmlx5 and by the engine leave the same rings,
//! the same doorbell records and the same sequence of doorbell writes.

use dat_engine::{Segment, SendFlags, SendOp};
use proptest::prelude::*;

use crate::support::compared_qps::ComparedQps;
use crate::support::device::cases;
use crate::support::libmlx5::Shape;
use crate::support::rings::{Place, Seen};
use crate::support::side::Refused;
use crate::support::store_tracer;
use crate::support::system::System;
use crate::support::work::{Bounds, RecvWork, SendWork, any_recv, any_send, lists};

/// Number of requests per queue; the rings have room for as many of the longest.
const DEPTH: u32 = 16;
const SEGMENTS: u32 = 4;
const INLINE: u32 = 200;

fn shape() -> Shape {
    Shape {
        send_depth: DEPTH,
        recv_depth: DEPTH,
        send_segments: SEGMENTS,
        recv_segments: SEGMENTS,
        inline_bytes: INLINE,
        ..Shape::default()
    }
}

/// Memory for inline data.
static SOURCE: [u8; 4096] = {
    let mut bytes = [0; 4096];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = (i as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0];
        i += 1;
    }
    bytes
};

pub(super) fn bounds() -> Bounds {
    let memory = (SOURCE.as_ptr() as u64, SOURCE.len() as u32);
    Bounds {
        max_segments: SEGMENTS as usize,
        max_inline: INLINE,
        memory,
    }
}

/// The start position: the ring's start, shortly before its end, and shortly
/// before the device's 16-bit counter wraps.
fn any_start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 0..4096u32, (65_536 - 200)..65_536u32]
}

/// Signals often enough that completions can release all places.
fn signal_in_time(compared_qps: &ComparedQps, list: &mut [SendWork]) {
    if compared_qps.unsignaled_run() + list.len() > DEPTH as usize / 2 {
        list[0].flags |= SendFlags::SIGNALED;
    }
}

/// Posts the lists, completes some requests as the queue fills, and checks each
/// post.
fn walk(
    compared_qps: &mut ComparedQps,
    lists: Vec<Vec<SendWork>>,
    check: impl Fn(&ComparedQps, &[Vec<Seen>; 2]),
) {
    for mut list in lists {
        signal_in_time(compared_qps, &mut list);
        let (posted, stores) = compared_qps.send(&list);
        check(compared_qps, &stores);
        if posted.is_err() || compared_qps.signaled() > DEPTH as usize / 2 {
            compared_qps.complete_sends(compared_qps.signaled() / 2 + 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]

    #[test]
    fn sends_on_an_exclusive_register_are_identical(
        start in any_start(),
        lists in lists(any_send(bounds()), 1..40),
    ) {
        if !store_tracer::supported() {
            return Ok(());
        }
        let system = System::new();
        let mut compared_qps = system.compared_qps(shape());
        compared_qps.advance_to(start);
        compared_qps.trace(false);
        walk(&mut compared_qps, lists, |compared_qps, stores| compared_qps.compare(stores));
    }

    /// On a shared register libmlx5 copies under its private lock. The engine
    /// must not copy, and rings with the first eight bytes.
    #[test]
    fn sends_on_a_shared_register_ring_eight_bytes(
        start in any_start(),
        lists in lists(any_send(bounds()), 1..40),
    ) {
        if !store_tracer::supported() {
            return Ok(());
        }
        let system = System::new();
        let mut compared_qps = system.compared_qps(Shape { exclusive: false, ..shape() });
        compared_qps.advance_to(start);
        compared_qps.trace(false);
        walk(&mut compared_qps, lists, |compared_qps, [theirs, ours]| {
            compared_qps.compare_memory();
            assert_eq!(ours.len(), theirs.len());
            for (our, their) in ours.iter().zip(theirs) {
                if let Place::Register(_) = their.place {
                    assert!(matches!(our.place, Place::Register(_)));
                    let start = &their.bytes[..8];
                    assert_eq!(compared_qps.translated(&our.bytes, start), start);
                    assert_eq!(our.bytes.len(), 8);
                } else {
                    assert_eq!(our, their);
                }
            }
        });
    }

    #[test]
    fn receives_are_identical(
        lists in lists(any_recv(SEGMENTS as usize), 1..60),
    ) {
        if !store_tracer::supported() {
            return Ok(());
        }
        let system = System::new();
        let mut compared_qps = system.compared_qps(shape());
        compared_qps.trace(false);
        receive_walk(&mut compared_qps, lists);
    }

    #[test]
    fn shared_receives_are_identical(
        lists in lists(any_recv(SEGMENTS as usize), 1..60),
        order in any::<u64>(),
    ) {
        if !store_tracer::supported() {
            return Ok(());
        }
        let system = System::new();
        let mut compared_qps = system.compared_qps(Shape { shared: true, ..shape() });
        compared_qps.trace(false);
        shared_walk(&mut compared_qps, lists, order);
    }
}

fn receive_walk(compared_qps: &mut ComparedQps, lists: Vec<Vec<RecvWork>>) {
    for list in lists {
        let (posted, stores) = compared_qps.recv(&list);
        compared_qps.compare(&stores);
        if posted.is_err() {
            compared_qps.complete_receives(DEPTH as usize / 2);
        }
    }
}

/// Completes shared receives in any order, so that free WQEs are not consecutive.
/// With libmlx5 since v48 the rings are the same; with an older one the receives
/// are, in the order of the links.
fn shared_walk(compared_qps: &mut ComparedQps, lists: Vec<Vec<RecvWork>>, mut order: u64) {
    for list in lists {
        let (posted, stores) = compared_qps.recv(&list);
        compared_qps.compare(&stores);
        let full = posted.is_err();
        while compared_qps.shared_posted() > DEPTH as usize / 2
            || full && compared_qps.shared_posted() > 2
        {
            order = order
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            compared_qps.complete_shared((order >> 33) as usize % compared_qps.shared_posted());
        }
        compared_qps.compare_memory();
    }
}

/// The device counts receives with 16 bits.
#[test]
fn receives_are_identical_when_the_counter_wraps() {
    if !store_tracer::supported() {
        return;
    }
    for shared in [false, true] {
        let system = System::new();
        let mut compared_qps = system.compared_qps(Shape { shared, ..shape() });
        for wrap in [1 << 15, 1 << 16] {
            compared_qps.advance_receives(wrap - 20 - compared_qps.received());
            compared_qps.trace(false);
            for i in 0..20u64 {
                let segment = Segment {
                    addr: i << 32,
                    length: 9,
                    lkey: 7,
                };
                let work = RecvWork {
                    wr_id: i,
                    segments: vec![segment; i as usize % 5],
                };
                let (posted, stores) = compared_qps.recv(&vec![work; 2]);
                posted.unwrap_or_else(|_| panic!("no room near {wrap}"));
                compared_qps.compare(&stores);
                compared_qps.complete_receives(2);
                while compared_qps.shared_posted() > 0 {
                    compared_qps.complete_shared(0);
                }
            }
        }
    }
}

/// A list with an invalid request: both post the requests before it, and ring for
/// them.
#[test]
fn a_list_stops_at_the_same_bad_request() {
    if !store_tracer::supported() {
        return;
    }
    for shared in [false, true] {
        let system = System::new();
        let mut compared_qps = system.compared_qps(Shape { shared, ..shape() });
        compared_qps.trace(false);
        let segment = Segment {
            addr: 0x1000,
            length: 9,
            lkey: 7,
        };
        // One segment more than allowed; a shared queue's stride has room for
        // seven.
        for segments in [SEGMENTS as usize + 1, 8, 30] {
            for bad in 0..4 {
                let of = |i: usize| vec![segment; if i == bad { segments } else { 1 }];
                let send = |i| {
                    let (op, flags) = (SendOp::Send, SendFlags::SIGNALED);
                    SendWork {
                        wr_id: 0,
                        op,
                        flags,
                        segments: of(i),
                    }
                };
                let (posted, stores) = compared_qps.send(&[0, 1, 2, 3].map(send));
                assert_eq!(posted, Err(Refused { posted: bad }));
                compared_qps.compare(&stores);
                compared_qps.complete_sends(bad);
                let recv = |i| RecvWork {
                    wr_id: 0,
                    segments: of(i),
                };
                let (_, stores) = compared_qps.recv(&[0, 1, 2, 3].map(recv));
                compared_qps.compare(&stores);
                compared_qps.complete_receives(4);
                while compared_qps.shared_posted() > 0 {
                    compared_qps.complete_shared(0);
                }
            }
        }
    }
}

/// The required order of stores: WQEs, then the record, then the register.
fn rank(seen: &Seen) -> u8 {
    match seen.place {
        Place::SendRing(_) | Place::RecvRing(_) => 0,
        Place::RecvRecord | Place::SendRecord => 1,
        Place::Register(_) => 2,
        Place::Elsewhere => panic!("a store to neither ring, record nor register: {seen:?}"),
    }
}

fn in_order(stores: &[Seen]) {
    let ranks: Vec<_> = stores.iter().map(rank).collect();
    assert!(ranks.is_sorted(), "stores out of order: {stores:?}");
    for place in [1, 2] {
        let times = ranks.iter().filter(|&&rank| rank == place).count();
        assert!(
            times <= 1,
            "records and registers are written once per list: {stores:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// Checks program order; the barriers' order on the processor is not visible
    /// here.
    #[test]
    fn a_list_is_written_before_its_record_and_its_record_before_the_doorbell(
        (exclusive, shared) in any::<(bool, bool)>(),
        sends in lists(any_send(bounds()), 1..10),
        receives in lists(any_recv(SEGMENTS as usize), 1..10),
    ) {
        if !store_tracer::supported() {
            return Ok(());
        }
        let system = System::new();
        let mut compared_qps = system.compared_qps(Shape { exclusive, shared, ..shape() });
        compared_qps.trace(true);
        for mut list in sends {
            signal_in_time(&compared_qps, &mut list);
            let (posted, [_, ours]) = compared_qps.send(&list);
            in_order(&ours);
            prop_assert!(posted.is_err() || rank(ours.last().expect("a doorbell")) == 2);
            compared_qps.complete_sends(compared_qps.signaled());
        }
        for list in receives {
            let (posted, [_, ours]) = compared_qps.recv(&list);
            in_order(&ours);
            prop_assert!(posted.is_err() || rank(ours.last().expect("a record")) == 1);
            compared_qps.complete_receives(8);
            while compared_qps.shared_posted() > 0 {
                compared_qps.complete_shared(0);
            }
        }
    }
}
