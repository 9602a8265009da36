//! Every step of a wait and their order, on a simulated platform without threads
//! and with a simulated clock.

use core::sync::atomic::AtomicU8;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;

/// The recorded steps, in order; consecutive polls are one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
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
    Monitor,
    Halt,
}

pub(super) use Step::{
    Announce, Arm, Block, GiveWay, Guard, Halt, Look, Monitor, Poll, Retract, Take, Unguard,
};

#[derive(Default)]
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    /// How many polls miss before one hits; `None`: all miss.
    pub(super) polls_left: Option<u32>,
    pub(super) now: u64,
    pub(super) clock_reads: u32,
    /// The duration of a poll in nanoseconds.
    pub(super) poll_time: u64,
    /// For each sleep to come: its result, its duration, and whether the source is
    /// ready after it.
    pub(super) sleeps: VecDeque<(BlockResult, u64, bool)>,
    /// When a signal arrives.
    pub(super) signal_at: Option<u64>,
    pub(super) no_spin: bool,
    /// The host has one processor.
    pub(super) alone: bool,
    /// How long other threads keep the processor after a yield.
    pub(super) turn_time: u64,
    pub(super) take_fails: bool,
    /// The source has a byte to watch.
    pub(super) has_byte: bool,
    /// How long the processor halts, in nanoseconds; `None`: it cannot.
    pub(super) halt_time: Option<u64>,
}

#[derive(Clone, Default)]
pub(super) struct Fake(pub(super) Rc<RefCell<Script>>);

impl Fake {
    pub(super) fn new(script: Script) -> Self {
        Self(Rc::new(RefCell::new(script)))
    }

    fn did(&self, step: Step) {
        let steps = &mut self.0.borrow_mut().steps;
        match (steps.last_mut(), step) {
            (Some(Poll(count)), Poll(_)) => *count += 1,
            _ => steps.push(step),
        }
    }

    pub(super) fn steps(&self) -> Vec<Step> {
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

    fn channel(&self) -> Option<ChannelFds<'_>> {
        None
    }

    fn spin_counts(&self) -> bool {
        !self.0.borrow().no_spin
    }

    fn watched(&self) -> Option<&AtomicU8> {
        static BYTE: AtomicU8 = AtomicU8::new(0);
        self.0.borrow().has_byte.then_some(&BYTE)
    }
}

pub(super) struct FakeGuard(Fake);

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

    fn is_multiprocessor(&self) -> bool {
        !self.0.borrow().alone
    }

    fn yield_now(&self) {
        self.did(GiveWay);
        let mut script = self.0.borrow_mut();
        script.now += script.turn_time;
    }

    fn monitor(&self, _byte: &AtomicU8) -> bool {
        self.did(Monitor);
        self.0.borrow().halt_time.is_some()
    }

    fn halt(&self) {
        self.did(Halt);
        let mut script = self.0.borrow_mut();
        script.now += script.halt_time.expect("the processor can halt");
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
        _channel: Option<ChannelFds<'_>>,
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

pub(super) struct Ran {
    pub(super) outcome: Result<WaitOutcome, ControlError>,
    pub(super) steps: Vec<Step>,
    pub(super) counters: WaitCounters,
    pub(super) budget: SpinBudget,
    pub(super) fake: Fake,
}

pub(super) fn ran(script: Script, policy: WaitPolicy, deadline: Deadline) -> Ran {
    ran_with(SpinBudget::new(), script, policy, deadline)
}

/// Runs a wait with what earlier ones have learned.
fn ran_with(
    mut budget: SpinBudget,
    script: Script,
    policy: WaitPolicy,
    mut deadline: Deadline,
) -> Ran {
    let fake = Fake::new(script);
    let mut counters = WaitCounters::default();
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

pub(super) fn is(ran: &Ran, outcome: WaitOutcome) {
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
fn a_first_poll_that_hits_is_the_only_step() {
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
fn a_wait_of_no_time_polls_once_and_reads_no_clock() {
    for policy in POLICIES {
        let ran = ran(Script::default(), policy, Deadline::from_micros(0));
        is(&ran, WaitOutcome::TimedOut);
        assert_eq!(ran.steps, [Poll(1)]);
        assert_eq!(ran.fake.0.borrow().clock_reads, 0);
    }
}

#[test]
fn a_deadline_in_the_past_allows_one_poll() {
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
fn the_first_polls_of_a_spin_block_no_signals() {
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
fn a_spin_reads_the_clock_rarely_and_checks_signals_more_rarely() {
    // 100 µs of polls of 10 ns each.
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
fn a_signal_ends_a_spin_unless_the_source_is_ready() {
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
    assert_eq!(ran.budget, SpinBudget::new(), "the budget is unchanged");
}

#[test]
fn a_sleep_follows_announcement_arm_and_poll() {
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
fn a_hit_of_the_poll_after_the_arm_prevents_the_sleep() {
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
fn the_second_spin_that_was_too_short_changes_the_budget() {
    let policy = WaitPolicy::default();
    for (sleep, learned) in [(70_000, 100_000), (400_000, 25_000)] {
        let script = Script {
            poll_time: 10,
            sleeps: [(BlockResult::Woken, sleep, true)].into(),
            ..Script::default()
        };
        let mut before = SpinBudget::new();
        before.learn(policy, sleep + 50_000, false, false);
        let ran = ran_with(before, script, policy, Deadline::NEVER);
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
fn spurious_wake_ups_are_counted_and_keep_the_deadline() {
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
    assert_eq!(arms, 3, "one per sleep");
    assert_eq!((ran.counters.blocks, ran.counters.spurious), (3, 2));
    assert_eq!(ran.counters.spins, 0);
}

/// A process that is stopped during a sleep finds at its end that time has passed.
#[test]
fn a_sleep_of_a_second_at_most_shows_a_deadline_that_passed_during_a_stop() {
    const SECOND: u64 = 1_000_000_000;
    let blocks = |steps: &[Step]| -> Vec<Step> {
        let is_block = |step: &Step| matches!(step, Block(_));
        steps.iter().copied().filter(is_block).collect()
    };
    for (durations, expected) in [
        (
            &[SECOND, SECOND, SECOND / 2][..],
            &[SECOND, SECOND, SECOND / 2][..],
        ),
        (&[3 * SECOND], &[SECOND]),
        (&[2 * SECOND, SECOND / 2], &[SECOND, SECOND / 2]),
    ] {
        let sleeps = durations
            .iter()
            .map(|&time| (BlockResult::TimedOut, time, false));
        let script = Script {
            sleeps: sleeps.collect(),
            ..Script::default()
        };
        let ran = ran(script, WaitPolicy::Block, Deadline::from_micros(2_500_000));
        is(&ran, WaitOutcome::TimedOut);
        let expected: Vec<Step> = expected.iter().map(|&time| Block(Some(time))).collect();
        assert_eq!(blocks(&ran.steps), expected);
        assert_eq!(ran.counters.spurious, 0);
    }
}

#[test]
fn an_event_together_with_a_time_out_or_signal_is_ready() {
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
fn a_source_that_only_an_event_makes_ready_does_not_spin() {
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
fn a_wait_that_blocks_without_deadline_reads_no_clock() {
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
