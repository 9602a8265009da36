//! Endless spins, which yield the processor from time to time.

use super::scripted::{Fake, GiveWay, Look, Poll, Script, Step, is, ran};
use super::*;

const ENDLESS: [WaitPolicy; 2] = [
    WaitPolicy::Poll,
    WaitPolicy::Adaptive {
        min: Duration::ZERO,
        max: None,
    },
];

fn yields(steps: &[Step]) -> usize {
    steps.iter().filter(|&&step| step == GiveWay).count()
}

/// Polls of 10 ns, of which this many miss.
fn misses(count: u32) -> Script {
    Script {
        polls_left: Some(count),
        poll_time: 10,
        ..Script::default()
    }
}

#[test]
fn an_endless_spin_yields_every_20_microseconds_and_polls_next() {
    for policy in ENDLESS {
        for alone in [false, true] {
            let script = Script {
                alone,
                ..misses(10_000)
            };
            let ran = ran(script, policy, Deadline::NEVER);
            is(&ran, WaitOutcome::Ready);
            assert_eq!(yields(&ran.steps), 4, "in 100 µs");
            for at in (0..ran.steps.len()).filter(|&at| ran.steps[at] == GiveWay) {
                assert_eq!(ran.steps[at - 1], Look);
                assert!(matches!(ran.steps[at + 1], Poll(_)));
            }
        }
    }
}

#[test]
fn an_event_within_20_microseconds_meets_no_yield() {
    for policy in ENDLESS {
        let ran = ran(misses(1_900), policy, Deadline::NEVER);
        is(&ran, WaitOutcome::Ready);
        assert_eq!(yields(&ran.steps), 0);
    }
}

/// The scheduler gives the processor to a thread that produces the event.
#[test]
fn an_event_that_needs_the_processor_arrives_after_the_first_yield() {
    let fake = Fake::new(Script {
        turn_time: 5_000,
        ..misses(1 << 20)
    });
    /// Ready as soon as the spin has yielded.
    struct Source(Fake);
    impl super::Source for Source {
        fn ready(&mut self) -> bool {
            if yields(&self.0.steps()) > 0 {
                self.0.0.borrow_mut().polls_left = Some(0);
            }
            self.0.ready()
        }

        fn arm(&mut self) {}

        fn take_events(&mut self) -> Result<u32, ControlError> {
            Ok(0)
        }

        fn channel(&self) -> Option<ChannelFds<'_>> {
            None
        }
    }
    let outcome = protocol::run(
        &mut Source(fake.clone()),
        &fake,
        &mut SpinBudget::new(),
        WaitPolicy::Poll,
        &mut { Deadline::NEVER },
        &mut WaitCounters::default(),
    );
    assert_eq!(outcome.expect("no failure"), WaitOutcome::Ready);
    let now = fake.0.borrow().now;
    assert!((25_000..26_000).contains(&now), "{now} ns");
}

#[test]
fn a_deadline_that_passes_during_a_yield_ends_the_wait() {
    let script = Script {
        turn_time: 3_000_000,
        ..misses(1 << 20)
    };
    let ran = ran(script, WaitPolicy::Poll, Deadline::from_micros(100));
    is(&ran, WaitOutcome::TimedOut);
    assert_eq!(yields(&ran.steps), 1);
}

#[test]
fn a_limited_spin_does_not_yield_where_other_processors_are() {
    let script = Script {
        sleeps: [(BlockResult::Woken, 10, true)].into(),
        poll_time: 10,
        ..Script::default()
    };
    let ran = ran(script, spin_for(150_000), Deadline::NEVER);
    is(&ran, WaitOutcome::Ready);
    assert_eq!((yields(&ran.steps), ran.counters.blocks), (0, 1));
}
