//! Traffic between the engine and libmlx5, and between two ends of either,
//! through the emulated NIC: every operation, both directions, every byte
//! checked.

use proptest::collection::vec;
use proptest::prelude::*;

use dat_engine::SendFlags;

use crate::support::device::cases;
use crate::support::libmlx5::{Link, Shape};
use crate::support::pair::{Driver, end, with_engine};
use crate::support::side::connect;
use crate::support::system::System;
use crate::support::traffic::{Kind, Limits, Op, any_round, most_inline, play};

fn limits() -> Limits {
    Limits {
        max_len: 70_000,
        max_inline: most_inline() as usize,
        max_segments: 4,
    }
}
/// Number of requests of one end in a round.
const MOST: usize = 8;

fn any_drivers() -> impl Strategy<Value = [Driver; 2]> {
    proptest::sample::select(with_engine(&System::new()))
}

/// Queues just deep enough for a round, so that rings wrap every few rounds.
fn any_shape() -> impl Strategy<Value = Shape> {
    any::<(bool, bool, bool)>().prop_map(|(shared, exclusive, large_cqes)| {
        let (send_depth, recv_depth) = (8, 8);
        Shape {
            send_depth,
            recv_depth,
            shared,
            exclusive,
            large_cqes,
            ..Shape::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]

    #[test]
    fn random_traffic_arrives_whole_and_in_order(
        drivers in any_drivers(),
        shapes in [any_shape(), any_shape()],
        mtu in 1..=5u32,
        rounds in vec(any_round(limits(), MOST), 1..6),
    ) {
        let system = System::new();
        let mut sides = [0, 1].map(|i| end(&system, drivers[i], shapes[i]));
        connect(&mut sides, &Link { mtu, ..Link::default() });
        for round in &rounds {
            play(&system, &mut sides, round);
        }
    }
}

/// Sizes around every boundary: empty, inline, in the CQE, packets.
const SIZES: [usize; 20] = [
    0,
    1,
    3,
    4,
    15,
    16,
    28,
    31,
    32,
    33,
    64,
    65,
    127,
    128,
    129,
    4095,
    4096,
    4097,
    65_537,
    1 << 20,
];

fn every_operation(kinds: &[Kind], drivers: [Driver; 2], shape: Shape) {
    let system = System::new();
    let mut sides = drivers.map(|driver| end(&system, driver, shape));
    connect(&mut sides, &Link::default());
    for &kind in kinds {
        for len in SIZES {
            let mut flags = SendFlags::SIGNALED;
            flags.set(
                SendFlags::INLINE,
                len <= most_inline() as usize && kind != Kind::Read,
            );
            let op = Op {
                kind,
                len,
                pieces: [3, 2],
                slack: 5,
                flags,
                imm: 0x0102_0304,
            };
            let plain = Op {
                flags: SendFlags::SIGNALED,
                pieces: [1, 1],
                slack: 0,
                ..op
            };
            play(
                &system,
                &mut sides,
                &[vec![op.clone(), plain.clone()], vec![plain, op]],
            );
        }
    }
}

#[test]
fn every_operation_and_size_between_engine_and_libmlx5() {
    for shared in [false, true] {
        let shape = Shape {
            shared,
            ..Shape::default()
        };
        every_operation(Kind::all(), [Driver::Engine, Driver::Libmlx5], shape);
    }
}

#[test]
fn every_operation_and_size_between_engines() {
    for large_cqes in [false, true] {
        let shape = Shape {
            large_cqes,
            exclusive: false,
            ..Shape::default()
        };
        every_operation(Kind::all(), [Driver::Engine, Driver::Engine], shape);
    }
}

/// Checks the reference itself: the NIC and the model without the engine.
#[test]
fn every_operation_and_size_between_libmlx5s() {
    every_operation(
        Kind::all(),
        [Driver::Libmlx5, Driver::Libmlx5],
        Shape::default(),
    );
}

/// A short ring and thousands of requests: counters wrap and owner bits flip.
#[test]
fn a_long_conversation_wraps_every_counter() {
    const ROUNDS: u32 = 9_000;
    let system = System::new();
    let shape = Shape {
        send_depth: 8,
        recv_depth: 8,
        ..Shape::default()
    };
    let kinds = Kind::all();
    let drivers = *with_engine(&system).last().expect("one at least");
    let mut sides = drivers.map(|driver| end(&system, driver, shape));
    connect(&mut sides, &Link::default());
    for i in 0..cases(ROUNDS) as usize {
        let op = |j: usize| Op {
            kind: kinds[(i + j) % kinds.len()],
            len: (i * 7 + j) % 100,
            pieces: [1 + j % 4, 1 + i % 4],
            slack: 0,
            flags: if j.is_multiple_of(3) {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            },
            imm: i as u32,
        };
        play(
            &system,
            &mut sides,
            &[(0..8).map(op).collect(), (8..12).map(op).collect()],
        );
    }
}
