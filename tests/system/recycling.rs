//! QP numbers that are reused at once: an endpoint never sees the completions of its
//! predecessor with the same number, and receives that the predecessor took from
//! a shared queue are released.

use std::collections::{HashMap, VecDeque};

use dat_engine::{Completion, CompletionOp, Endpoint, PostError, SendFlags, Status};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::device::{cases, reuses_qp_numbers};
use crate::support::fixture::{Fixture, join};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn wr_ids(completions: &[Completion]) -> Vec<(CompletionOp, u64, Status)> {
    completions
        .iter()
        .map(|one| (one.op, one.wr_id, one.status))
        .collect()
}

#[test]
fn a_reused_number_has_no_completions_of_its_predecessor() {
    let mut fixture = Fixture::new(64);
    let [mut a, mut b] = fixture.pair(false);
    let number = a.qpn();
    for wr_id in 0..4 {
        fixture.recv(&mut b, 100 + wr_id).expect("room");
        fixture.send(&mut a, wr_id, SIGNALED).expect("room");
    }
    fixture.system.run();
    drop((b, a));
    // The ring now holds eight completions of freed endpoints.
    fixture.cq.process_commands();
    let [mut a, mut b] = fixture.pair(false);
    if reuses_qp_numbers() {
        assert_eq!(a.qpn(), number, "the last number is reused first");
    }
    assert_eq!(fixture.polled(0), []);
    fixture.recv(&mut b, 7).expect("room");
    fixture.send(&mut a, 8, SIGNALED).expect("room");
    fixture.system.run();
    let mut seen = wr_ids(&fixture.polled(2));
    seen.sort_by_key(|&(_, wr_id, _)| wr_id);
    let expected = [
        (CompletionOp::Recv, 7, Status::Success),
        (CompletionOp::Send, 8, Status::Success),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_reset_endpoint_starts_afresh_with_the_same_number() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(false);
    for lap in 0..20 {
        let numbers = [0, 1].map(|i: usize| ends[i].qpn());
        for i in 0..=lap % 7 {
            fixture.recv(&mut ends[1], 100 + i).expect("room");
            fixture.send(&mut ends[0], i, SIGNALED).expect("room");
        }
        fixture.system.run();
        if lap % 3 == 0 {
            let count = 2 * (lap % 7 + 1);
            assert_eq!(fixture.polled(count as usize).len() as u64, count);
        }
        // Posted and not completed, as well.
        fixture.send(&mut ends[0], 55, SIGNALED).expect("room");
        for end in &mut ends {
            end.reset().expect("RESET");
        }
        assert_eq!(
            fixture.send(&mut ends[0], 1, SIGNALED),
            Err(PostError::NotReady)
        );
        assert_eq!([0, 1].map(|i: usize| ends[i].qpn()), numbers);
        join(&mut ends);
        assert_eq!(
            fixture.polled(0),
            [],
            "no completion from before the reset, lap {lap}"
        );
        for i in 0..8 {
            fixture
                .recv(&mut ends[1], 200 + i)
                .expect("an empty receive queue");
        }
        for i in 0..7 {
            fixture
                .send(&mut ends[0], 300 + i, SIGNALED)
                .expect("an empty send queue");
        }
        fixture.system.run();
        assert_eq!(fixture.polled(14).len(), 14, "lap {lap}");
        for end in &mut ends {
            end.reset().expect("RESET");
        }
        join(&mut ends);
    }
}

#[test]
fn shared_receives_of_freed_endpoints_are_released() {
    let mut fixture = Fixture::new(64);
    let capacity = u64::from(fixture.srq.capacity());
    for wr_id in 0..capacity {
        fixture.recv_shared(wr_id).expect("room");
    }
    assert_eq!(fixture.recv_shared(99), Err(PostError::QueueFull));
    for lap in 0..20 {
        let [mut a, mut b] = fixture.pair(true);
        for i in 0..5 {
            fixture.send(&mut a, i, SIGNALED).expect("room");
            fixture.send(&mut b, i, SIGNALED).expect("room");
        }
        fixture.system.run();
        if lap % 2 == 0 {
            drop(a);
            drop(b);
        } else {
            a.reset().expect("RESET");
            b.reset().expect("RESET");
        }
        assert_eq!(fixture.polled(0), []);
        for i in 0..10 {
            fixture
                .recv_shared(1000 + i)
                .unwrap_or_else(|error| panic!("{i} of lap {lap}: {error}"));
        }
        assert_eq!(
            fixture.recv_shared(99),
            Err(PostError::QueueFull),
            "lap {lap}"
        );
    }
}

/// The steps of a random sequence.
#[derive(Clone, Debug)]
enum Step {
    Create,
    /// The pair, which end, and whether the send is signalled.
    Send(usize, usize, bool),
    Poll(usize),
    /// The pair, and whether it is reset and connected again instead of dropped.
    End(usize, bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Create),
        6 => (any::<usize>(), 0..2usize, any::<bool>()).prop_map(|(p, e, s)| Step::Send(p, e, s)),
        2 => (0..8usize).prop_map(Step::Poll),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(pair, reset)| Step::End(pair, reset)),
    ]
}

/// The live pairs, and the completions that each endpoint must still get, by
/// number.
#[derive(Default)]
struct LiveEndpoints {
    pairs: Vec<[Endpoint; 2]>,
    /// Sends posted and not known to be complete: `wr_id`, and whether signalled.
    sends: HashMap<u32, VecDeque<(u64, bool)>>,
    /// Messages that arrived.
    receives: HashMap<u32, usize>,
    next_wr_id: u64,
    shared_posted: u32,
}

impl LiveEndpoints {
    /// Returns the number of completions that are still to come or to be polled.
    fn expected(&self) -> usize {
        let sends = self.sends.values().flatten();
        sends.filter(|&&(_, signaled)| signaled).count() + self.receives.values().sum::<usize>()
    }

    fn forget(&mut self, qpn: u32) {
        self.sends.remove(&qpn);
        self.shared_posted -= self.receives.remove(&qpn).unwrap_or(0) as u32;
    }

    fn check(&mut self, completion: &Completion) {
        assert_eq!(completion.status, Status::Success, "{completion}");
        if completion.op == CompletionOp::Recv {
            let left = self
                .receives
                .get_mut(&completion.qpn)
                .filter(|left| **left > 0);
            *left.unwrap_or_else(|| panic!("not expected: {completion}")) -= 1;
            self.shared_posted -= 1;
        } else {
            let sends = self.sends.entry(completion.qpn).or_default();
            while sends.front().is_some_and(|&(_, signaled)| !signaled) {
                sends.pop_front();
            }
            assert_eq!(
                sends.pop_front(),
                Some((completion.wr_id, true)),
                "{completion}"
            );
        }
    }

    fn step(&mut self, fixture: &mut Fixture, step: &Step) {
        match *step {
            Step::Create if self.pairs.len() < 4 => self.pairs.push(fixture.pair(true)),
            Step::Send(pair, end, signaled) if !self.pairs.is_empty() => {
                let pair = pair % self.pairs.len();
                self.send(fixture, pair, end, signaled);
            }
            Step::Poll(count) => {
                for completion in (0..count)
                    .map_while(|_| fixture.cq.poll())
                    .collect::<Vec<_>>()
                {
                    self.check(&completion);
                }
            }
            Step::End(pair, reset) if !self.pairs.is_empty() => {
                let pair = pair % self.pairs.len();
                for end in [0, 1] {
                    self.forget(self.pairs[pair][end].qpn());
                }
                if reset {
                    for end in &mut self.pairs[pair] {
                        end.reset().expect("RESET");
                    }
                    join(&mut self.pairs[pair]);
                } else {
                    self.pairs.swap_remove(pair);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, fixture: &mut Fixture, pair: usize, end: usize, signaled: bool) {
        let [from, to] = [end, 1 - end].map(|end| self.pairs[pair][end].qpn());
        let outstanding = self.sends.entry(from).or_default();
        if outstanding.len() == 8 || self.shared_posted == fixture.srq.capacity() {
            return;
        }
        // Only a polled completion releases places, so one must come.
        let run = outstanding
            .iter()
            .rev()
            .take_while(|(_, signaled)| !signaled)
            .count();
        let signaled = signaled || run == 6;
        if fixture.recv_shared(0).is_err() {
            // Receives that freed endpoints took are released when the queue
            // processes its commands.
            fixture.cq.process_commands();
            fixture
                .recv_shared(0)
                .expect("room for the receives that live endpoints do not hold");
        }
        self.shared_posted += 1;
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        let flags = if signaled {
            SIGNALED
        } else {
            SendFlags::empty()
        };
        fixture
            .send(&mut self.pairs[pair][end], wr_id, flags)
            .expect("room");
        fixture.system.run();
        self.sends
            .entry(from)
            .or_default()
            .push_back((wr_id, signaled));
        *self.receives.entry(to).or_default() += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(100), ..ProptestConfig::default() })]

    #[test]
    fn live_endpoints_get_all_of_their_completions_and_no_others(steps in vec(any_step(), 1..80)) {
        let mut fixture = Fixture::new(256);
        let mut live = LiveEndpoints::default();
        for step in &steps {
            live.step(&mut fixture, step);
        }
        for completion in fixture.polled(live.expected()) {
            live.check(&completion);
        }
        prop_assert!(live.sends.values().flatten().all(|&(_, signaled)| !signaled), "{:?}", live.sends);
        prop_assert!(live.receives.values().all(|left| *left == 0), "{:?}", live.receives);
        prop_assert_eq!(fixture.cq.counters().unknown, 0);
    }
}
