//! Differences between versions of libmlx5, found by experiments on queues that
//! the test completes itself. A behaviour that matches no known version fails
//! the test; the new version must then be added here.

use std::fs;
use std::sync::OnceLock;

use dat_engine::{SendFlags, SendOp};

use super::compared_qps::{ComparedQp, READ, RECEIVED, REQUEST_DONE};
use super::cqe_writer::{Cqe, InlinePlace};
use super::libmlx5::Shape;
use super::system::System;
use super::work::{RecvWork, SendWork};

/// The behaviour of this process's libmlx5 where versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// A post to a shared queue continues with the neighbour of the last WQE, or
    /// the nearest free one. Since v48; older versions reused WQEs in the order
    /// in which they were released.
    pub nearest_wqe: bool,
    /// The completion of a receive on a queue pair's own queue reports the
    /// receive that the CQE names. Since v55; older versions reported the oldest
    /// receive.
    pub named_receive: bool,
    /// The payload of a read in a 128-byte CQE is copied from where the device
    /// has put it. Since v64; older versions copied from one byte earlier, or
    /// from the entry before (commit 45184d2c87ee).
    pub large_cqe_answers: bool,
}

impl Behaviour {
    /// Returns the behaviour of a version. `None` counts as the newest.
    pub fn of_version(version: Option<u32>) -> Self {
        let since = |first| version.is_none_or(|version| version >= first);
        Self {
            nearest_wqe: since(48),
            named_receive: since(55),
            large_cqe_answers: since(64),
        }
    }

    /// Determines the behaviour of the library in this process.
    pub fn of_libmlx5(system: &System) -> Self {
        static BEHAVIOUR: OnceLock<Behaviour> = OnceLock::new();
        *BEHAVIOUR.get_or_init(|| Self {
            nearest_wqe: goes_on_with_the_nearest(system),
            named_receive: reports_named_receive(system),
            large_cqe_answers: finds_large_answers(system),
        })
    }
}

/// Returns the version in the file name of the loaded library: 44 for
/// `libmlx5.so.1.24.44.0`.
pub fn version() -> Option<u32> {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    let name = maps.lines().find_map(|line| {
        let name = line.rsplit('/').next()?;
        name.strip_prefix("libmlx5.so.1.")
    });
    name?.split('.').nth(1)?.parse().ok()
}

fn shape() -> Shape {
    Shape {
        send_depth: 4,
        recv_depth: 3,
        ..Shape::default()
    }
}

fn post(compared_qp: &mut ComparedQp, wr_ids: core::ops::Range<u64>) {
    let list: Vec<_> = wr_ids
        .map(|wr_id| RecvWork {
            wr_id,
            segments: vec![],
        })
        .collect();
    compared_qp.post_recvs(None, &list).0.expect("room");
}

/// Completes a receive, and returns the `wr_id` that libmlx5 reports.
fn complete(compared_qp: &mut ComparedQp, wqe_counter: u16) -> u64 {
    compared_qp.push_recv(&Cqe {
        opcode: RECEIVED,
        wqe_counter,
        ..Cqe::default()
    });
    compared_qp.side.poll_recv().expect("a completion").wr_id
}

fn goes_on_with_the_nearest(system: &System) -> bool {
    let mut compared_qp = system.compared_qp_of_libmlx5(Shape {
        shared: true,
        ..shape()
    });
    post(&mut compared_qp, 0..3);
    assert_eq!(
        [1, 0].map(|index| complete(&mut compared_qp, index)),
        [1, 0]
    );
    post(&mut compared_qp, 3..4);
    match compared_qp.receives.next() {
        0 => true,
        1 => false,
        other => panic!("after WQE 3 libmlx5 uses WQE {other}, which no known version does"),
    }
}

fn reports_named_receive(system: &System) -> bool {
    let mut compared_qp = system.compared_qp_of_libmlx5(shape());
    post(&mut compared_qp, 10..12);
    match complete(&mut compared_qp, 1) {
        11 => true,
        10 => false,
        other => panic!("libmlx5 reports receive {other} for 11, which no known version does"),
    }
}

fn finds_large_answers(system: &System) -> bool {
    const ANSWER: [u8; 64] = [0x5a; 64];
    let mut compared_qp = system.compared_qp_of_libmlx5(Shape {
        large_cqes: true,
        ..shape()
    });
    let segment = compared_qp.side.memory().segment(0, ANSWER.len());
    let (remote_addr, rkey) = (0x1000, 7);
    let read = SendWork {
        wr_id: 1,
        op: SendOp::Read { remote_addr, rkey },
        flags: SendFlags::SIGNALED,
        segments: vec![segment],
    };
    compared_qp.side.post_sends(&[read]).expect("room");
    compared_qp.push_send(&Cqe {
        opcode: REQUEST_DONE,
        sent: READ,
        byte_count: ANSWER.len() as u32,
        inline: Some((ANSWER.to_vec(), InlinePlace::Before)),
        ..Cqe::default()
    });
    compared_qp.side.poll_send().expect("a completion");
    compared_qp.side.memory().read(0, ANSWER.len()) == ANSWER
}
