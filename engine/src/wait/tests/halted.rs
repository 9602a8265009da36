//! Spins that halt the processor between polls.

use super::scripted::{GiveWay, Halt, Look, Monitor, Poll, Script, Step, is, ran};
use super::*;

/// Polls of 10 ns, of which this many miss, on a processor that halts for 4 µs.
fn halting(misses: Option<u32>) -> Script {
    Script {
        polls_left: misses,
        poll_time: 10,
        has_byte: true,
        halt_time: Some(4_000),
        ..Script::default()
    }
}

/// Returns the steps after the first polls, which are made without a rest.
fn rests(steps: &[Step]) -> Vec<Step> {
    let is_rest = |step: &Step| matches!(step, Monitor | Halt | Poll(_));
    let first = steps.iter().position(|step| *step == Monitor);
    let after = &steps[first.expect("a rest")..];
    after.iter().copied().filter(is_rest).collect()
}

#[test]
fn a_halt_has_a_poll_between_monitor_and_halt_and_one_after_it() {
    let ran = ran(halting(Some(38)), WaitPolicy::Umwait, Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    let one = [Monitor, Poll(1), Halt, Poll(1)];
    assert_eq!(rests(&ran.steps), [one, one, one].concat());
}

/// A completion that came just before the monitor would not end the halt.
#[test]
fn a_completion_before_the_halt_is_found_without_it() {
    let ran = ran(halting(Some(33)), WaitPolicy::Umwait, Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    assert_eq!(rests(&ran.steps), [Monitor, Poll(1)]);
}

#[test]
fn without_the_instruction_or_a_byte_the_spin_only_polls() {
    for (has_byte, halt_time) in [(false, Some(1)), (true, None), (false, None)] {
        let script = Script {
            has_byte,
            halt_time,
            ..halting(Some(36))
        };
        let ran = ran(script, WaitPolicy::Umwait, Deadline::NEVER);
        is(&ran, WaitOutcome::Ready);
        assert!(!ran.steps.contains(&Halt));
    }
}

#[test]
fn deadlines_and_signals_end_a_spin_that_halts() {
    let timed_out = ran(halting(None), WaitPolicy::Umwait, Deadline::from_micros(50));
    is(&timed_out, WaitOutcome::TimedOut);
    let now = timed_out.fake.0.borrow().now;
    assert!((50_000..54_100).contains(&now), "{now} ns");
    let script = Script {
        signal_at: Some(30_000),
        ..halting(None)
    };
    let interrupted = ran(script, WaitPolicy::Umwait, Deadline::NEVER);
    is(&interrupted, WaitOutcome::Interrupted);
    let now = interrupted.fake.0.borrow().now;
    assert!((30_000..54_100).contains(&now), "{now} ns");
    assert!(interrupted.steps.contains(&Look) && interrupted.steps.contains(&GiveWay));
}

#[test]
fn other_policies_do_not_halt() {
    for policy in [WaitPolicy::Poll, spin_for(100_000)] {
        let ran = ran(halting(Some(1_000)), policy, Deadline::NEVER);
        is(&ran, WaitOutcome::Ready);
        let rests = |step: &Step| matches!(step, Monitor | Halt);
        assert!(!ran.steps.iter().any(rests));
    }
}
