//! Batches report what single polls report, for any sequence of CQEs.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Three queue pairs with their own receive queues, two on one shared receive queue
/// and one on another, all on one completion queue.
struct Model {
    cq: Cq,
    pairs: Vec<Qp>,
    srqs: [Srq; 2],
    /// The free WQEs of each shared queue, in order.
    free: [VecDeque<u16>; 2],
    /// Posted sends and receives of each queue pair.
    sends: [u64; 6],
    receives: [u64; 6],
    /// Shared receives that complete when the CQEs written so far are polled.
    coming_back: Vec<(usize, u16)>,
    /// The number of completions in the CQEs written so far.
    written: usize,
    wr_id: u64,
}

const OWN: usize = 3;

impl Model {
    fn new(stride: u32) -> Self {
        let cq = Cq::new(16, stride);
        let srqs = [Srq::new(), Srq::new()];
        let pairs = (0..6)
            .map(|at| {
                let srq = match at {
                    0..OWN => None,
                    5 => Some(&srqs[1]),
                    _ => Some(&srqs[0]),
                };
                qp(0x100 + at as u32, &cq, &cq, srq)
            })
            .collect();
        Self {
            cq,
            pairs,
            srqs,
            free: core::array::from_fn(|_| (0..4).collect()),
            sends: [0; 6],
            receives: [0; 6],
            coming_back: Vec::new(),
            written: 0,
            wr_id: 0,
        }
    }

    fn wr_id(&mut self) -> u64 {
        self.wr_id += 1;
        self.wr_id
    }

    /// Posts a request and completes it: of kind `kind`, on queue pair `at`.
    fn complete(&mut self, at: usize, kind: u8) {
        let (wr_id, qpn) = (self.wr_id(), 0x100 + at as u32);
        let remote = (7, 8);
        let send = |op, request, opcode| (Some(op), request, opcode, 0);
        let (remote_addr, rkey) = remote;
        let (op, request, opcode, form) = match kind {
            0 => send(SendOp::Send, 0x0a, 0),
            1 => send(SendOp::Write { remote_addr, rkey }, 0x08, 0),
            2 => send(SendOp::Read { remote_addr, rkey }, 0x10, 0),
            3 => send(SendOp::Send, 0x0a, 13),
            4 | 5 => (None, 0, 2, 0),
            6 => (None, 0, 2, 2),
            7 => (None, 0, 3, 0),
            _ => (None, 0, 14, 0),
        };
        let mut entry = Entry {
            opcode,
            form,
            request,
            qpn,
            bytes: wr_id as u32 * 3,
            imm: 9,
            syndrome: if opcode > 12 { 5 } else { 0 },
            ..ENTRY
        };
        if let Some(op) = op {
            let wr_data = wr_id as u32;
            let request = SendRequest {
                wr_id,
                op,
                flags: SendFlags::SIGNALED,
                segments: &[],
            };
            // SAFETY: the request refers to no memory.
            unsafe { self.pairs[at].pair.sends.post(&request, wr_data) }.unwrap();
            entry.counter = self.sends[at] as u16;
            self.sends[at] += 1;
        } else if at < OWN {
            if self.pairs[at].recv(wr_id, &[]).is_err() {
                return;
            }
            entry.counter = self.receives[at] as u16;
            self.receives[at] += 1;
        } else {
            let shared = usize::from(at == 5);
            if self.srqs[shared].post(wr_id, &[]).is_err() {
                return;
            }
            entry.counter = self.free[shared].pop_front().unwrap();
            self.coming_back.push((shared, entry.counter));
        }
        self.cq.write(entry);
        self.written += 1;
    }

    /// Polls everything: one by one, or up to `batch` at a time.
    fn take(&mut self, batch: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        if batch == 0 {
            while let Some(completion) = self.cq.poller.poll() {
                all.push(completion);
            }
        } else {
            let mut out = vec![Completion::default(); batch];
            loop {
                let taken = self.cq.poller.poll_batch(&mut out);
                all.extend_from_slice(&out[..taken]);
                if taken < batch {
                    break;
                }
            }
        }
        for (shared, index) in self.coming_back.drain(..) {
            self.free[shared].push_back(index);
        }
        self.written = 0;
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn batches_report_what_single_polls_report(
        // A few kinds are frequent, so that there are runs.
        rounds in prop::collection::vec(
            (prop::collection::vec((0usize..6, 0u8..9, 1usize..6), 1..6), 1usize..20), 1..12),
        wide in any::<bool>(),
    ) {
        let stride = if wide { 128 } else { 64 };
        let (mut single, mut batched) = (Model::new(stride), Model::new(stride));
        for (events, batch) in rounds {
            for (at, kind, times) in events {
                for _ in 0..times {
                    // At most as many as a send queue holds.
                    if single.written < 8 {
                        single.complete(at, kind);
                        batched.complete(at, kind);
                    }
                }
            }
            let expected = single.take(0);
            prop_assert_eq!(batched.take(batch), expected);
            prop_assert_eq!(batched.cq.poller.counters(), single.cq.poller.counters());
            prop_assert_eq!(batched.cq.device.in_use(), 0);
        }
    }
}

#[test]
fn a_long_run_is_taken_across_the_end_of_the_ring() {
    let mut cq = Cq::new(4, 64);
    let mut pair = qp(7, &cq, &cq, None);
    let mut out = [Completion::default(); 3];
    for round in 0..20u64 {
        for at in 0..3 {
            pair.send(3 * round + at).unwrap();
            cq.write(done(7, (3 * round + at) as u16));
        }
        assert_eq!(cq.poller.poll_batch(&mut out), 3);
        for (at, completion) in out.iter().enumerate() {
            let wr_id = 3 * round + at as u64;
            assert_eq!(*completion, good(wr_id, CompletionOp::Send, 7));
        }
        assert_eq!(cq.device.in_use(), 0);
    }
}

#[test]
fn a_run_ends_before_completions_after_a_reset() {
    // An own receive queue starts again at 0, a shared one continues.
    for (srq, counter) in [(false, 0), (true, 1)] {
        let mut cq = Cq::new(32, 64);
        let mut srq = srq.then(Srq::new);
        let mut pair = qp(5, &cq, &cq, srq.as_ref());
        let mut post = |pair: &mut Qp, wr_id| match &mut srq {
            Some(srq) => srq.post(wr_id, &[]).unwrap(),
            None => pair.recv(wr_id, &[]).unwrap(),
        };
        post(&mut pair, 1);
        cq.write(received(5, 0, 10));
        pair.pair.reset();
        pair.pair.open_receives();
        post(&mut pair, 2);
        cq.write(received(5, counter, 20));
        let mut out = [Completion::default(); 4];
        assert_eq!(cq.poller.poll_batch(&mut out), 1);
        assert_eq!((out[0].wr_id, out[0].byte_len), (2, 20));
        assert_eq!(cq.poller.counters().stale, 1);
    }
}

#[test]
fn shared_receives_of_several_pollers_are_polled_in_batches() {
    let (mut cq, mut other) = (Cq::new(8, 64), Cq::new(8, 64));
    let mut srq = Srq::new();
    let _near = qp(1, &cq, &cq, Some(&srq));
    let _far = qp(2, &other, &other, Some(&srq));
    for round in 0..5 {
        let wqes = [0u16, 1, 2].map(|at| (3 * round + at) % 4);
        for (wr_id, _) in wqes.iter().enumerate() {
            srq.post(wr_id as u64, &[]).unwrap();
        }
        cq.write(received(1, wqes[0], 1));
        cq.write(received(1, wqes[1], 1));
        other.write(received(2, wqes[2], 1));
        let mut out = [Completion::default(); 4];
        assert_eq!(cq.poller.poll_batch(&mut out), 2);
        assert_eq!([out[0].wr_id, out[1].wr_id], [0, 1]);
        assert_eq!(other.poller.poll_batch(&mut out), 1);
        assert_eq!(out[0].wr_id, 2);
    }
}
