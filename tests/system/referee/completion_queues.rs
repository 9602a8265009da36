//! Completion queues of unmodified libmlx5: resizing, polling field by field, and
//! payload inside CQEs.

use core::mem::zeroed;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use dv_sys::inline::{
    ibv_end_poll, ibv_modify_cq, ibv_start_poll, ibv_wc_read_byte_len, ibv_wc_read_completion_ts,
    ibv_wc_read_opcode, ibv_wc_read_qp_num,
};
use dv_sys::mlx5dv::{mlx5dv_get_clock_info, mlx5dv_ts_to_ns};
use dv_sys::verbs::*;
use proptest::prelude::*;

use crate::support::device::{self, cases};
use crate::support::libmlx5::{Answer, Buffer, Cq, Link, Pd, Qp, all_access};
use crate::support::side::Memory;
use crate::support::system::System;

const SUCCESS: u32 = ibv_wc_status::IBV_WC_SUCCESS;
const SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
const ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;

/// A queue pair that is connected to itself.
struct Loop {
    qp: Qp,
    buffer: Buffer,
    system: System,
}

impl Loop {
    fn new(system: System, cqs: [&Rc<Cq>; 2], signal_all: bool) -> Self {
        let pd = Pd::new(system.context());
        let qp = Qp::of_every_operation(&pd, cqs, 64, signal_all);
        let link = Link::default();
        qp.connect(&qp.address(), &link);
        qp.allow(all_access() | ATOMIC);
        let buffer = Buffer::with_access(&pd, 4096, all_access() | ATOMIC);
        Loop { qp, buffer, system }
    }

    fn segment(&self, at: usize, len: u32) -> ibv_sge {
        ibv_sge {
            addr: self.buffer.addr() + at as u64,
            length: len,
            lkey: self.buffer.lkey(),
        }
    }

    /// Posts one request with these segments, to the buffer's byte `there`.
    fn post(&self, wr_id: u64, opcode: u32, flags: u32, segments: &mut [ibv_sge], there: usize) {
        // SAFETY: all zeroes is a valid ibv_send_wr; the memory lives as long as
        // the connection.
        unsafe {
            let mut wr: ibv_send_wr = zeroed();
            (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, flags);
            (wr.sg_list, wr.num_sge) = (segments.as_mut_ptr(), segments.len() as i32);
            let remote_addr = self.buffer.addr() + there as u64;
            let rkey = self.buffer.rkey();
            if opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
                wr.wr.atomic = atomic_t {
                    remote_addr,
                    compare_add: 5,
                    swap: 0,
                    rkey,
                };
            } else {
                wr.wr.rdma = rdma_t { remote_addr, rkey };
            }
            self.qp.post(&mut wr).expect("posted");
        }
        self.system.after_doorbell();
    }

    /// Posts an empty write, and completes it.
    fn complete_one(&self, wr_id: u64) {
        let write = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        self.post(wr_id, write, SIGNALED, &mut [], 0);
        self.system.run();
    }

    fn post_recv(&self, wr_id: u64, segments: &mut [ibv_sge]) {
        // SAFETY: as in `post`.
        unsafe {
            let mut wr: ibv_recv_wr = zeroed();
            (wr.wr_id, wr.sg_list) = (wr_id, segments.as_mut_ptr());
            wr.num_sge = segments.len() as i32;
            let mut bad = core::ptr::null_mut();
            let posted = dv_sys::inline::ibv_post_recv(self.qp.raw, &raw mut wr, &raw mut bad);
            assert_eq!(posted, 0);
        }
    }
}

/// Returns the next completion, if one is to come.
fn poll(cq: &Cq) -> Option<Answer> {
    device::comes(|| cq.poll())
}

fn queue(system: &System, depth: u32, large: bool) -> Rc<Cq> {
    match large {
        true => Cq::with_large_cqes(system.context(), depth),
        false => Cq::new(system.context(), depth),
    }
}

/// Returns the request of the next completion, if any of these is `waiting`.
fn next_of(cq: &Cq, waiting: &VecDeque<u64>) -> Option<u64> {
    let answer = match waiting.is_empty() {
        true => cq.poll(),
        false => poll(cq),
    };
    answer.map(|answer| answer.wr_id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), failure_persistence: None, ..ProptestConfig::default() })]

    /// Completions, polls and resizes in any order, over many laps: libmlx5 sees
    /// each completion once and in order.
    #[test]
    fn no_completion_is_lost_when_the_ring_moves(
        steps in proptest::collection::vec((0_u8..8, 1_u32..12), 1..80),
        large: bool,
    ) {
        let system = System::new();
        let cq = queue(&system, 15, large);
        let it = Loop::new(system, [&cq, &cq], false);
        let mut waiting = VecDeque::new();
        let (mut capacity, mut next) = (15, 0);
        for (step, amount) in steps {
            match step {
                0..=2 => for _ in 0..amount {
                    if (waiting.len() as u32) < capacity {
                        it.complete_one(next);
                        waiting.push_back(next);
                        next += 1;
                    }
                },
                3..=5 => for _ in 0..amount {
                    prop_assert_eq!(next_of(&cq, &waiting), waiting.pop_front());
                },
                _ => {
                    let wanted = (2 << (amount % 6)) - 1;
                    let fits = waiting.len() as u32 <= wanted;
                    let done = cq.resize(wanted);
                    prop_assert_eq!(done, if fits { Ok(wanted) } else { Err(libc::EINVAL) });
                    if fits {
                        capacity = wanted;
                    }
                    // libmlx5 writes its consumer index at the next poll.
                    prop_assert_eq!(next_of(&cq, &waiting), waiting.pop_front());
                }
            }
        }
        for expected in waiting {
            prop_assert_eq!(poll(&cq).map(|answer| answer.wr_id), Some(expected));
        }
        prop_assert_eq!(cq.poll(), None);
    }
}

#[test]
fn payload_in_a_cqe_is_copied_to_its_place_by_libmlx5() {
    let system = System::new();
    let cq = queue(&system, 63, false);
    let it = Loop::new(system, [&cq, &cq], true);
    let read = ibv_wr_opcode::IBV_WR_RDMA_READ;
    for (len, is_inline) in [(1, true), (31, true), (32, true), (33, false)] {
        let data: Vec<u8> = (0..len).map(|n| n as u8 ^ len as u8).collect();
        it.buffer.put(1024, &data);
        it.buffer.put(0, &[0; 64]);
        // Two segments with a gap.
        let first = len / 2;
        let mut into = [it.segment(0, first), it.segment(40, len - first)];
        it.post(7, read, 0, &mut into, 1024);
        it.system.run();
        let bytes = || {
            let second = it.buffer.bytes(40, (len - first) as usize);
            [it.buffer.bytes(0, first as usize), second].concat()
        };
        if !is_inline {
            device::comes(|| (bytes() == data).then_some(()));
        }
        assert_eq!(bytes() != data, is_inline, "{len} bytes");
        let answer = poll(&cq).expect("it completes");
        assert_eq!((answer.status, answer.byte_len), (SUCCESS, Some(len)));
        assert_eq!(bytes(), data, "{len} bytes");
    }
    it.buffer.put(1024, &37_u64.to_ne_bytes());
    let add = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
    it.post(8, add, 0, &mut [it.segment(0, 8)], 1024);
    it.system.run();
    assert_eq!(poll(&cq).expect("it completes").status, SUCCESS);
    assert_eq!(it.buffer.bytes(0, 8), 37_u64.to_ne_bytes());
    assert_eq!(it.buffer.bytes(1024, 8), 42_u64.to_ne_bytes());
}

#[test]
fn payload_in_large_cqes_is_placed_by_the_device() {
    let system = System::new();
    let cq = queue(&system, 63, true);
    let it = Loop::new(system, [&cq, &cq], true);
    it.buffer.put(1024, &[9; 64]);
    let read = ibv_wr_opcode::IBV_WR_RDMA_READ;
    it.post(7, read, 0, &mut [it.segment(0, 64)], 1024);
    it.system.run();
    device::comes(|| (it.buffer.bytes(0, 64) == [9; 64]).then_some(()));
    assert_eq!(it.buffer.bytes(0, 64), [9; 64]);
    assert_eq!(poll(&cq).expect("it completes").status, SUCCESS);
    assert_eq!(it.buffer.bytes(0, 64), [9; 64]);
}

#[test]
fn receives_come_in_cqes_of_both_sizes() {
    for (large, most) in [(false, 32_u32), (true, 64)] {
        let system = System::new();
        let sends = queue(&system, 63, false);
        let receives = queue(&system, 63, large);
        let it = Loop::new(system, [&sends, &receives], false);
        for len in [1, most - 1, most, most + 1] {
            let data = vec![len as u8; len as usize];
            it.buffer.put(2048, &data);
            it.buffer.put(0, &[0; 80]);
            it.post_recv(3, &mut [it.segment(0, 5), it.segment(5, 75)]);
            let send = ibv_wr_opcode::IBV_WR_SEND;
            it.post(4, send, SIGNALED, &mut [it.segment(2048, len)], 0);
            it.system.run();
            // Sent: the receive is complete, and nothing has polled it.
            assert_eq!(poll(&sends).expect("sent").status, SUCCESS);
            let is_inline = it.buffer.bytes(0, 1) == [0];
            assert_eq!(is_inline, len <= most, "{len} bytes");
            let answer = poll(&receives).expect("it arrived");
            assert_eq!((answer.status, answer.byte_len), (SUCCESS, Some(len)));
            assert_eq!(it.buffer.bytes(0, len as usize), data);
        }
    }
}

/// Begins to read the next completion, if one is to come.
///
/// # Safety
/// The CQ is extended and alive.
unsafe fn start_poll(cq: *mut ibv_cq_ex) -> bool {
    // SAFETY: as the caller promises; zeroed attributes are valid.
    let start = || unsafe { ibv_start_poll(cq, &mut zeroed()) };
    device::comes(|| (start() == 0).then_some(())).is_some()
}

#[test]
fn an_extended_queue_reports_each_field_and_the_device_time() {
    let system = System::new();
    let flags = ibv_create_cq_wc_flags::IBV_WC_EX_WITH_BYTE_LEN.0
        | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_QP_NUM.0
        | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0;
    let alone = ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0;
    for attributes in [0, alone] {
        let cq = Cq::extended(system.context(), 15, flags.into(), attributes).expect("a CQ");
        drop(cq);
    }
    let cq = Cq::extended(system.context(), 15, flags.into(), 0).expect("a CQ");
    let it = Loop::new(system, [&cq, &cq], false);
    let extended: *mut ibv_cq_ex = cq.raw.cast();
    let mut times = Vec::new();
    for wr_id in 1..=3 {
        it.buffer.put(0, &[wr_id as u8; 40]);
        let read = ibv_wr_opcode::IBV_WR_RDMA_READ;
        it.post(wr_id, read, SIGNALED, &mut [it.segment(512, 40)], 0);
        it.system.run();
        // SAFETY: the CQ is extended and alive; between start and end its
        // fields may be read.
        unsafe {
            assert!(start_poll(extended));
            assert_eq!(((*extended).wr_id, (*extended).status), (wr_id, SUCCESS));
            let opcode = ibv_wc_read_opcode(extended);
            assert_eq!(opcode, ibv_wc_opcode::IBV_WC_RDMA_READ);
            assert_eq!(ibv_wc_read_byte_len(extended), 40);
            assert_eq!(ibv_wc_read_qp_num(extended), it.qp.qpn());
            times.push(ibv_wc_read_completion_ts(extended));
            ibv_end_poll(extended);
        }
        device::advance(Duration::from_micros(5));
    }
    // A stepped device's clock counts 78,125,000 ticks a second: 390.6 in 5 us.
    let expected = match it.system.is_stepped() {
        true => 390..400,
        false => 1..u64::MAX,
    };
    let passed = |pair: &[u64]| expected.contains(&pair[1].wrapping_sub(pair[0]));
    assert!(times.windows(2).all(passed), "{times:?}");
}

/// Whose page and conversion are libmlx5's own.
#[test]
fn libmlx5_converts_the_device_time_to_the_time_of_day() {
    let system = System::new();
    let before = SystemTime::now();
    let flags = ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0
        | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.0;
    let cq = Cq::extended(system.context(), 15, flags.into(), 0).expect("a CQ");
    let opened = SystemTime::now();
    let it = Loop::new(system, [&cq, &cq], false);
    let extended: *mut ibv_cq_ex = cq.raw.cast();
    let mut times = Vec::new();
    for wr_id in 1..=3 {
        let read = ibv_wr_opcode::IBV_WR_RDMA_READ;
        it.post(wr_id, read, SIGNALED, &mut [it.segment(512, 40)], 0);
        it.system.run();
        // SAFETY: as above; the context is open, and libmlx5's clock information is
        // written before it is read.
        unsafe {
            assert!(start_poll(extended));
            let ticks = ibv_wc_read_completion_ts(extended);
            ibv_end_poll(extended);
            let mut info = zeroed();
            let context = it.system.context().raw;
            assert_eq!(mlx5dv_get_clock_info(context, &raw mut info), 0);
            times.push(mlx5dv_ts_to_ns(&raw mut info, ticks));
        }
        device::advance(Duration::from_micros(50));
    }
    let expected = match it.system.is_stepped() {
        true => 49_980..50_100,
        // What passes beside is real time.
        false => 49_980..device::TIMEOUT.as_nanos() as u64,
    };
    let passed = |pair: &[u64]| expected.contains(&pair[1].wrapping_sub(pair[0]));
    assert!(times.windows(2).all(passed), "{times:?}");
    if it.system.is_stepped() {
        // The page was written while the context was opened, and the test's clock stood still
        // but for a tick of each earlier completion.
        let since_1970 = |time: SystemTime| {
            let passed = time.duration_since(SystemTime::UNIX_EPOCH);
            passed.expect("after 1970").as_nanos() as u64
        };
        let opened = since_1970(before)..since_1970(opened) + 1_000_000_000;
        assert!(opened.contains(&times[0]), "{} in {opened:?}", times[0]);
    }
}

#[test]
fn a_queue_that_ignores_overruns_keeps_working() {
    let system = System::new();
    let ignore = ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
    let cq = Cq::extended(system.context(), 3, 0, ignore).expect("a CQ");
    let it = Loop::new(system, [&cq, &cq], false);
    for wr_id in 0..9 {
        it.complete_one(wr_id);
    }
    assert_eq!(it.qp.state(), ibv_qp_state::IBV_QPS_RTS);
}

#[test]
fn events_are_moderated_within_the_reported_limits() {
    let system = System::new();
    let cq = Cq::new(system.context(), 15);
    // SAFETY: zeroed attributes are valid, the CQ is alive.
    let modify = |count, period| unsafe {
        let mut attr: ibv_modify_cq_attr = zeroed();
        attr.attr_mask = 1;
        (attr.moderate.cq_count, attr.moderate.cq_period) = (count, period);
        ibv_modify_cq(cq.raw, &raw mut attr)
    };
    assert_eq!(modify(16, 100), 0);
    assert_eq!(modify(0xffff, 0xfff), 0);
    assert_eq!(modify(1, 0x1000), libc::EINVAL);
}
