//! Every step and its order, on a platform without threads or time of its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;

/// What was done, in order; polls in a row are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Poll(u32),
    GiveWay,
    Guard,
    Unguard,
    Look,
    Announce,
    Arm,
    Block(Option<u64>),
    Take,
    Retract,
}

use Step::{Announce, Arm, Block, GiveWay, Guard, Look, Poll, Retract, Take, Unguard};

#[derive(Default)]
struct Script {
    steps: Vec<Step>,
    /// How many polls until one hits; `None`: never.
    polls_left: Option<u32>,
    now: u64,
    clock_reads: u32,
    /// Nanoseconds that a poll takes.
    poll_time: u64,
    /// Results of the sleeps to come, how long each takes, and whether the
    /// source is ready after it.
    sleeps: VecDeque<(BlockResult, u64, bool)>,
    /// When a signal comes.
    signal_at: Option<u64>,
    no_spin: bool,
    /// There is one processor.
    alone: bool,
    /// How long others keep it when they are let.
    turn_time: u64,
    take_fails: bool,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Script>>);

impl Fake {
    fn new(script: Script) -> Self {
        Self(Rc::new(RefCell::new(script)))
    }

    fn did(&self, step: Step) {
        let steps = &mut self.0.borrow_mut().steps;
        match (steps.last_mut(), step) {
            (Some(Poll(count)), Poll(_)) => *count += 1,
            _ => steps.push(step),
        }
    }

    fn steps(&self) -> Vec<Step> {
        self.0.borrow().steps.clone()
    }
}

impl Source for Fake {
    fn ready(&mut self) -> bool {
        self.did(Poll(1));
        let mut script = self.0.borrow_mut();
        script.now += script.poll_time;
        match &mut script.polls_left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn arm(&mut self) {
        self.did(Arm);
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        self.did(Take);
        match self.0.borrow().take_fails {
            true => Err(ControlError::verbs("read events", libc::EIO)),
            false => Ok(1),
        }
    }

    fn channel(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn spin_counts(&self) -> bool {
        !self.0.borrow().no_spin
    }
}

struct FakeGuard(Fake);

impl Drop for FakeGuard {
    fn drop(&mut self) {
        self.0.did(Unguard);
    }
}

impl Platform for Fake {
    type Guard = FakeGuard;

    fn now(&self) -> u64 {
        let mut script = self.0.borrow_mut();
        script.clock_reads += 1;
        script.now
    }

    fn others_run(&self) -> bool {
        !self.0.borrow().alone
    }

    fn give_way(&self) {
        self.did(GiveWay);
        let mut script = self.0.borrow_mut();
        script.now += script.turn_time;
    }

    fn guard(&self) -> FakeGuard {
        self.did(Guard);
        FakeGuard(self.clone())
    }

    fn interrupted(&self, _guard: &FakeGuard) -> bool {
        self.did(Look);
        let script = self.0.borrow();
        script.signal_at.is_some_and(|at| script.now >= at)
    }

    fn announce(&self) {
        self.did(Announce);
    }

    fn block(
        &self,
        _channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        _guard: &FakeGuard,
    ) -> Result<BlockResult, ControlError> {
        self.did(Block(timeout.map(|left| left.as_nanos() as u64)));
        let mut script = self.0.borrow_mut();
        let (result, takes, ready) = script.sleeps.pop_front().expect("another sleep");
        script.now += takes;
        if ready {
            script.polls_left = Some(0);
        }
        Ok(result)
    }

    fn retract(&self) {
        self.did(Retract);
    }
}

struct Ran {
    outcome: Result<WaitOutcome, ControlError>,
    steps: Vec<Step>,
    counters: WaitCounters,
    budget: SpinBudget,
    fake: Fake,
}

fn ran(script: Script, policy: WaitPolicy, mut deadline: Deadline) -> Ran {
    let fake = Fake::new(script);
    let (mut budget, mut counters) = (SpinBudget::new(), WaitCounters::default());
    let outcome = protocol::run(
        &mut fake.clone(),
        &fake,
        &mut budget,
        policy,
        &mut deadline,
        &mut counters,
    );
    Ran {
        outcome,
        steps: fake.steps(),
        counters,
        budget,
        fake,
    }
}

fn is(ran: &Ran, outcome: WaitOutcome) {
    assert_eq!(*ran.outcome.as_ref().expect("no failure"), outcome);
}

const POLICIES: [WaitPolicy; 3] = [
    WaitPolicy::Poll,
    WaitPolicy::Block,
    WaitPolicy::Adaptive {
        min: Duration::ZERO,
        max: None,
    },
];

#[test]
fn a_first_poll_that_hits_is_all_there_is() {
    for policy in POLICIES {
        for deadline in [Deadline::NOW, Deadline::from_micros(1), Deadline::NEVER] {
            let script = Script {
                polls_left: Some(0),
                ..Script::default()
            };
            let ran = ran(script, policy, deadline);
            is(&ran, WaitOutcome::Ready);
            assert_eq!(ran.steps, [Poll(1)]);
            assert_eq!(ran.fake.0.borrow().clock_reads, 0);
            assert_eq!(ran.counters, WaitCounters::default());
        }
    }
}

#[test]
fn no_time_is_one_poll_and_no_look_at_the_clock() {
    for policy in POLICIES {
        let ran = ran(Script::default(), policy, Deadline::from_micros(0));
        is(&ran, WaitOutcome::TimedOut);
        assert_eq!(ran.steps, [Poll(1)]);
        assert_eq!(ran.fake.0.borrow().clock_reads, 0);
    }
}

#[test]
fn a_deadline_that_passed_before_is_one_poll() {
    let mut deadline = Deadline::from_micros(1);
    deadline.start(0);
    let script = Script {
        now: 1000,
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Poll, deadline);
    is(&ran, WaitOutcome::TimedOut);
    assert_eq!(ran.steps, [Poll(1)]);
}

#[test]
fn the_first_polls_of_a_spin_hold_no_signals_back() {
    let script = Script {
        polls_left: Some(20),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Poll, Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    assert_eq!(ran.steps, [Poll(21)]);
    assert_eq!(
        ran.counters,
        WaitCounters {
            spins: 1,
            hits: 1,
            ..WaitCounters::default()
        }
    );
}

#[test]
fn a_spin_looks_at_the_clock_rarely_and_for_signals_more_rarely() {
    // 100 µs of polls of 10 ns.
    let script = Script {
        polls_left: Some(10_000),
        poll_time: 10,
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Poll, Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    let looks = ran.steps.iter().filter(|&&step| step == Look).count();
    assert_eq!(looks, 4, "every 20 µs");
    let reads = ran.fake.0.borrow().clock_reads;
    assert!((300..=320).contains(&reads), "{reads} for 10 000 polls");
    assert_eq!(ran.steps[1], Guard);
    assert_eq!(ran.steps.last(), Some(&Unguard));
    assert_eq!(ran.counters.blocks, 0);
}

#[test]
fn a_spin_ends_at_the_deadline_with_a_poll_after_it() {
    let script = Script {
        poll_time: 10,
        ..Script::default()
    };
    let at_end = ran(script, WaitPolicy::Poll, Deadline::from_micros(2));
    is(&at_end, WaitOutcome::TimedOut);
    assert!(at_end.fake.0.borrow().now >= 2_000 && at_end.fake.0.borrow().now < 2_400);
    assert_eq!(at_end.counters.hits, 0);
    // The poll after the deadline counts.
    let polls = at_end.steps.iter().map(|step| match step {
        Poll(count) => *count,
        _ => 0,
    });
    let script = Script {
        poll_time: 10,
        polls_left: Some(polls.sum::<u32>() - 1),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Poll, Deadline::from_micros(2));
    is(&ran, WaitOutcome::Ready);
}

#[test]
fn a_signal_ends_a_spin_unless_something_came() {
    let script = Script {
        poll_time: 10,
        signal_at: Some(30_000),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Poll, Deadline::NEVER);
    is(&ran, WaitOutcome::Interrupted);
    let looks = ran.steps.iter().filter(|&&step| step == Look).count();
    assert_eq!(looks, 2);
    assert_eq!(ran.steps.last(), Some(&Unguard));
    assert_eq!(ran.budget, SpinBudget::new(), "it teaches nothing");
}

#[test]
fn a_sleep_is_announced_armed_polled_and_then_slept() {
    let script = Script {
        sleeps: [(BlockResult::Woken, 70_000, true)].into(),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Block, Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    let expected = [
        Poll(1),
        Guard,
        Announce,
        Arm,
        Poll(1),
        Block(None),
        Take,
        Poll(1),
        Unguard,
    ];
    assert_eq!(ran.steps, expected);
    assert_eq!(
        ran.counters,
        WaitCounters {
            blocks: 1,
            ..WaitCounters::default()
        }
    );
}

#[test]
fn what_the_poll_after_the_arm_finds_is_not_slept_over() {
    let script = Script {
        polls_left: Some(1),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Block, Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    let expected = [Poll(1), Guard, Announce, Arm, Poll(1), Retract, Unguard];
    assert_eq!(ran.steps, expected);
    assert_eq!(ran.counters.blocks, 0);
}

#[test]
fn a_spin_that_was_too_short_goes_to_sleep_and_learns() {
    let policy = WaitPolicy::default();
    for (sleep, learned) in [(70_000, 100_000), (400_000, 25_000)] {
        let script = Script {
            poll_time: 10,
            sleeps: [(BlockResult::Woken, sleep, true)].into(),
            ..Script::default()
        };
        let ran = ran(script, policy, Deadline::NEVER);
        is(&ran, WaitOutcome::Ready);
        assert_eq!(ran.budget.nanos(policy), learned);
        assert_eq!(
            ran.counters,
            WaitCounters {
                spins: 1,
                blocks: 1,
                ..WaitCounters::default()
            }
        );
        let spun = ran.steps.iter().position(|&step| step == Announce);
        let looks = ran.steps.iter().filter(|&&step| step == Look).count();
        assert!(spun.is_some() && looks == 2, "{:?}", ran.steps);
    }
}

#[test]
fn wake_ups_for_nothing_are_counted_and_the_deadline_stays() {
    let script = Script {
        now: 500,
        sleeps: [
            (BlockResult::Woken, 4_000, false),
            (BlockResult::Woken, 5_000, false),
            (BlockResult::TimedOut, 1_000, false),
        ]
        .into(),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Block, Deadline::from_micros(10));
    is(&ran, WaitOutcome::TimedOut);
    let blocks: Vec<Step> = ran
        .steps
        .iter()
        .copied()
        .filter(|step| matches!(step, Block(_)))
        .collect();
    assert_eq!(
        blocks,
        [Block(Some(10_000)), Block(Some(6_000)), Block(Some(1_000))]
    );
    let arms = ran.steps.iter().filter(|&&step| step == Arm).count();
    assert_eq!(arms, 3, "each sleep has its own");
    assert_eq!((ran.counters.blocks, ran.counters.spurious), (3, 2));
    assert_eq!(ran.counters.spins, 0);
}

#[test]
fn what_comes_with_the_time_out_or_a_signal_is_ready() {
    for result in [BlockResult::TimedOut, BlockResult::Signal] {
        for ready in [false, true] {
            let script = Script {
                sleeps: [(result, 10_000, ready)].into(),
                ..Script::default()
            };
            let ran = ran(script, WaitPolicy::Block, Deadline::from_micros(10));
            is(
                &ran,
                match (ready, result) {
                    (true, _) => WaitOutcome::Ready,
                    (false, BlockResult::Signal) => WaitOutcome::Interrupted,
                    (false, _) => WaitOutcome::TimedOut,
                },
            );
            assert_eq!(ran.counters.spurious, 0);
        }
    }
}

#[test]
fn a_source_that_only_an_event_makes_ready_is_not_spun_for() {
    for policy in [WaitPolicy::Poll, WaitPolicy::default(), spin_for(1_000)] {
        let script = Script {
            no_spin: true,
            sleeps: [(BlockResult::Woken, 10, true)].into(),
            ..Script::default()
        };
        let ran = ran(script, policy, Deadline::NEVER);
        is(&ran, WaitOutcome::Ready);
        assert_eq!(ran.steps[..3], [Poll(1), Guard, Announce]);
        assert_eq!(ran.counters.spins, 0);
    }
}

#[test]
fn on_one_processor_a_spin_gives_way_before_each_look() {
    let script = Script {
        alone: true,
        polls_left: Some(2),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::default(), Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    assert_eq!(ran.steps, [Poll(1), GiveWay, Poll(1), GiveWay, Poll(1)]);
    assert_eq!((ran.counters.spins, ran.counters.hits), (1, 1));
    assert_eq!(ran.budget, SpinBudget::new());
}

fn turns(steps: &[Step]) -> usize {
    steps.iter().filter(|&&step| step == GiveWay).count()
}

#[test]
fn on_one_processor_turns_are_given_as_long_as_a_spin_is_allowed() {
    let script = Script {
        alone: true,
        turn_time: 400,
        sleeps: [(BlockResult::Woken, 10, true)].into(),
        ..Script::default()
    };
    let spun = ran(script, spin_for(4_000), Deadline::NEVER);
    is(&spun, WaitOutcome::Ready);
    assert_eq!((turns(&spun.steps), spun.counters.blocks), (10, 1));
    // The first of them hold no signals back.
    let begin = [
        Poll(1),
        GiveWay,
        Poll(1),
        GiveWay,
        Poll(1),
        Guard,
        GiveWay,
        Poll(1),
    ];
    assert_eq!(spun.steps[..8], begin);
}

#[test]
fn on_one_processor_a_spin_without_end_gives_no_turns() {
    let script = Script {
        alone: true,
        polls_left: Some(500),
        ..Script::default()
    };
    let endless = ran(script, WaitPolicy::Poll, Deadline::NEVER);
    is(&endless, WaitOutcome::Ready);
    assert_eq!(turns(&endless.steps), 0);
}

#[test]
fn a_signal_ends_a_spin_of_turns_too() {
    let script = Script {
        alone: true,
        turn_time: 1_000,
        signal_at: Some(25_000),
        ..Script::default()
    };
    let ran = ran(script, spin_for(100_000), Deadline::NEVER);
    is(&ran, WaitOutcome::Interrupted);
    // Looked for every 20 µs.
    assert_eq!(ran.fake.0.borrow().now, 40_000);
}

#[test]
fn who_keeps_the_only_processor_too_long_is_not_given_way_again_soon() {
    let script = Script {
        alone: true,
        turn_time: 4_000_000,
        polls_left: Some(1),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::default(), Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    assert_eq!(ran.budget.nanos(WaitPolicy::default()), 0);
    let mut budget = ran.budget;
    budget.learn(WaitPolicy::default(), 20_000, false);
    assert_eq!(budget.nanos(WaitPolicy::default()), 0, "it rests");
}

#[test]
fn turns_that_bring_nothing_are_given_up_for_a_while() {
    let mut budget = SpinBudget::new();
    let mut wait = || {
        let fake = Fake::new(Script {
            alone: true,
            turn_time: 400,
            sleeps: [(BlockResult::Woken, 20_000, true)].into(),
            ..Script::default()
        });
        let outcome = protocol::run(
            &mut fake.clone(),
            &fake,
            &mut budget,
            WaitPolicy::default(),
            &mut { Deadline::NEVER },
            &mut WaitCounters::default(),
        );
        assert_eq!(outcome.expect("no failure"), WaitOutcome::Ready);
        let reads = fake.0.borrow().clock_reads;
        (turns(&fake.steps()), reads)
    };
    for misses in 0..64 {
        let (turns, _) = wait();
        assert!(
            turns >= 125,
            "50 µs and more, after {misses} misses: {turns}"
        );
    }
    let resting: Vec<_> = (0..63).map(|_| wait()).collect();
    assert_eq!(resting, [(0, 0); 63]);
    // The last of the rest is timed, to know what comes then.
    assert_eq!(wait(), (0, 2));
    assert_eq!(wait().0, 125);
}

#[test]
fn who_sleeps_at_once_and_without_end_looks_at_no_clock() {
    let script = Script {
        sleeps: [
            (BlockResult::Woken, 10, false),
            (BlockResult::Woken, 10, true),
        ]
        .into(),
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Block, Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    assert_eq!(ran.fake.0.borrow().clock_reads, 0);
    assert_eq!(ran.counters.blocks, 2);
}

#[test]
fn a_channel_that_fails_ends_the_wait_with_its_error() {
    let script = Script {
        sleeps: [(BlockResult::Woken, 10, false)].into(),
        take_fails: true,
        ..Script::default()
    };
    let ran = ran(script, WaitPolicy::Block, Deadline::NEVER);
    let error = ran.outcome.expect_err("the channel failed");
    assert_eq!(error.errno(), Some(libc::EIO));
    assert_eq!(ran.steps.last(), Some(&Unguard));
}
