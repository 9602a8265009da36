//! A model test: in any order of operations every live queue pair gets all of its
//! completions, once and in order, and no others; and no entry of a queue is lost.

use proptest::prelude::*;

use super::*;

/// Generating a step takes long under Miri, and executing it longer.
const MOST_STEPS: usize = if cfg!(miri) { 12 } else { 300 };

#[derive(Clone, Copy, Debug)]
enum Step {
    Send { pair: usize, signalled: bool },
    Recv { pair: usize },
    Share,
    Complete { pair: usize, which: u8, fail: bool },
    Poll { most: usize },
    Reset { pair: usize },
    Replace { pair: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let pair = 0..4usize;
    prop_oneof![
        4 => (pair.clone(), any::<bool>()).prop_map(|(pair, signalled)| Step::Send { pair, signalled }),
        3 => pair.clone().prop_map(|pair| Step::Recv { pair }),
        3 => Just(Step::Share),
        8 => (pair.clone(), 0..2u8, prop::bool::weighted(0.1))
            .prop_map(|(pair, which, fail)| Step::Complete { pair, which, fail }),
        3 => (1..20usize).prop_map(|most| Step::Poll { most }),
        1 => pair.clone().prop_map(|pair| Step::Reset { pair }),
        1 => pair.prop_map(|pair| Step::Replace { pair }),
    ]
}

/// A queue pair, and the requests that were posted to it and have not completed.
struct Modelled {
    qp: Qp,
    sends: VecDeque<(u64, bool)>,
    recvs: VecDeque<u64>,
    shares: bool,
    incarnation: u64,
}

/// All objects, and the results that polling must return: (incarnation, `wr_id`,
/// status).
struct Model {
    cq: Cq,
    srq: Srq,
    shared: VecDeque<u64>,
    pairs: Vec<Modelled>,
    expected: VecDeque<(u64, u64, Status)>,
    incarnations: u64,
    wr_ids: u64,
}

impl Model {
    fn new() -> Self {
        let mut model = Self {
            cq: Cq::new(),
            srq: Srq::new(6),
            shared: VecDeque::new(),
            pairs: Vec::new(),
            expected: VecDeque::new(),
            incarnations: 0,
            wr_ids: 0,
        };
        for at in 0..4 {
            let made = model.make(at);
            model.pairs.push(made);
        }
        model
    }

    /// The QP numbers are always the same four; two of them use shared receives.
    fn make(&mut self, at: usize) -> Modelled {
        let shares = at.is_multiple_of(2);
        self.incarnations += 1;
        Modelled {
            qp: qp(at as u32, &self.cq, &self.cq, shares.then_some(&self.srq)),
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            shares,
            incarnation: self.incarnations,
        }
    }

    fn wr_id(&mut self) -> u64 {
        self.wr_ids += 1;
        self.wr_ids
    }

    fn forget(&mut self, at: usize) {
        let incarnation = self.pairs[at].incarnation;
        self.expected.retain(|&(owner, _, _)| owner != incarnation);
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Send { pair, signalled } => {
                let wr_id = self.wr_id();
                let one = &mut self.pairs[pair];
                let flags = match signalled {
                    true => SendFlags::SIGNALED,
                    false => SendFlags::empty(),
                };
                if one.qp.post(wr_id, SendOp::Send, flags, 0).is_ok() {
                    one.sends.push_back((wr_id, signalled));
                } else {
                    prop_assert!(!one.qp.pair.sends_idle());
                }
            }
            Step::Recv { pair } => {
                let wr_id = self.wr_id();
                let one = &mut self.pairs[pair];
                match one.qp.recv(wr_id) {
                    Ok(()) => one.recvs.push_back(wr_id),
                    Err(PostError::NotReady) => prop_assert!(one.shares),
                    Err(_) => prop_assert_eq!(one.qp.pair.recvs_outstanding(), 4),
                }
            }
            Step::Share => {
                let wr_id = self.wr_id();
                match self.srq.post(wr_id) {
                    Ok(()) => self.shared.push_back(wr_id),
                    Err(_) => prop_assert_eq!(self.srq.outstanding(), 6),
                }
            }
            Step::Complete { pair, which, fail } => self.complete(pair, which == 0, fail),
            Step::Poll { most } => self.poll(most)?,
            Step::Reset { pair } => {
                self.forget(pair);
                self.incarnations += 1;
                let incarnation = self.incarnations;
                let one = &mut self.pairs[pair];
                one.qp.pair.before_reset();
                one.qp.device.sends.lock().unwrap().clear();
                one.qp.device.recvs.lock().unwrap().clear();
                one.qp.pair.reset();
                one.qp.open();
                one.sends.clear();
                one.recvs.clear();
                one.incarnation = incarnation;
            }
            Step::Replace { pair } => {
                self.forget(pair);
                // The QP number is free before it is reused.
                self.pairs[pair].qp.pair.before_reset();
                let old =
                    std::mem::replace(&mut self.pairs[pair].qp, qp(99, &self.cq, &self.cq, None));
                drop(old);
                self.pairs[pair] = self.make(pair);
            }
        }
        Ok(())
    }

    /// Completes a request on the device, if one is posted.
    fn complete(&mut self, pair: usize, send: bool, fail: bool) {
        let status = match fail {
            true => Status::WrFlush,
            false => Status::Success,
        };
        let one = &mut self.pairs[pair];
        let (tag, wr_id) = if send {
            let Some((wr_id, signalled)) = one.sends.pop_front() else {
                return;
            };
            let tag = one.qp.device.next(false).expect("posted");
            if !signalled && !fail {
                return;
            }
            (tag, wr_id)
        } else if one.shares {
            let Some(wr_id) = self.shared.pop_front() else {
                return;
            };
            (self.srq.next(), wr_id)
        } else {
            let Some(wr_id) = one.recvs.pop_front() else {
                return;
            };
            (one.qp.device.next(true).expect("posted"), wr_id)
        };
        self.expected.push_back((one.incarnation, wr_id, status));
        self.cq.write(Work {
            tag,
            qpn: pair as u32,
            status,
            ..Work::default()
        });
    }

    fn poll(&mut self, most: usize) -> Result<(), TestCaseError> {
        let mut out = vec![Completion::default(); most];
        let found = self.cq.poller.poll_batch(&mut out);
        prop_assert_eq!(found, most.min(self.expected.len()));
        for one in &out[..found] {
            let (incarnation, wr_id, status) = self.expected.pop_front().expect("counted");
            prop_assert_eq!((one.wr_id, one.status), (wr_id, status));
            prop_assert_eq!(self.pairs[one.qpn as usize].incarnation, incarnation);
            prop_assert_eq!(one.context, context(one.qpn));
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn live_queue_pairs_get_all_of_their_completions_and_no_others(
        steps in prop::collection::vec(step(), 0..MOST_STEPS),
    ) {
        let mut model = Model::new();
        for step in steps {
            model.take(step)?;
        }
        model.poll(1000)?;
        prop_assert_eq!(model.cq.counters(), [0, 0]);
        prop_assert_eq!(model.srq.outstanding() as usize, model.shared.len());
        // Every entry is free: the queues can be filled completely.
        for _ in model.shared.len()..6 {
            let wr_id = model.wr_id();
            prop_assert!(model.srq.post(wr_id).is_ok());
        }
        prop_assert_eq!(model.srq.post(0), Err(PostError::QueueFull));
    }
}
