//! Spins that yield the only processor.

use super::scripted::{Fake, GiveWay, Guard, Poll, Script, Step, is, ran};
use super::*;

#[test]
fn on_one_processor_a_spin_yields_before_each_poll() {
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
fn on_one_processor_a_spin_yields_for_its_whole_budget() {
    let script = Script {
        alone: true,
        turn_time: 400,
        sleeps: [(BlockResult::Woken, 10, true)].into(),
        ..Script::default()
    };
    let spun = ran(script, spin_for(4_000), Deadline::NEVER);
    is(&spun, WaitOutcome::Ready);
    assert_eq!((turns(&spun.steps), spun.counters.blocks), (10, 1));
    // The first of them block no signals.
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
fn a_signal_ends_a_yielding_spin_too() {
    let script = Script {
        alone: true,
        turn_time: 1_000,
        signal_at: Some(25_000),
        ..Script::default()
    };
    let ran = ran(script, spin_for(100_000), Deadline::NEVER);
    is(&ran, WaitOutcome::Interrupted);
    // Signals are checked every 20 µs.
    assert_eq!(ran.fake.0.borrow().now, 40_000);
}

#[test]
fn after_a_yield_that_took_too_long_the_budget_rests() {
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
    budget.learn(WaitPolicy::default(), 20_000, false, true);
    assert_eq!(budget.nanos(WaitPolicy::default()), 0, "it rests");
}

#[test]
fn yields_without_an_event_stop_for_a_while() {
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
    // The last wait of the rest and the one after it are timed, to decide what follows.
    assert_eq!([wait(), wait()], [(0, 2); 2]);
    assert_eq!(wait().0, 125);
}
