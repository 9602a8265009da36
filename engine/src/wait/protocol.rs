//! The steps of a wait, and the order that loses no wake-up.
//!
//! ```text
//! poll │ spin: poll, poll, … │ announce → arm → poll → block → take events ─┐
//!      │ (budget, deadline,  │    ▲                            not ready:   │
//!      │  signals)           │    └───────────────────────────── spurious ──┘
//! ```
//!
//! Two kinds of events can come. The device's: a completion that comes after
//! the arm raises an event, which the block sees; one that came before it is
//! seen by the poll after the arm. And those of other threads, which bring
//! something and then look for a sleeper ([`super::Blocker::wake`]): announced
//! before the poll, the sleeper is seen, or the poll sees what was brought. So
//! both the announcement and the arm come before the last poll.
//!
//! This file is also compiled into the model (`tests/loom.rs`), which plays the
//! device and the other threads.

use core::time::Duration;
use std::os::fd::BorrowedFd;

use super::{ControlError, Deadline, SpinBudget, WaitPolicy};

/// What is waited for.
pub trait Source {
    /// Whether the waiter may return. This is the poll: cheap, and repeated.
    fn ready(&mut self) -> bool;

    /// Asks the device for an event at the next completion. Completions that
    /// are there already may or may not count.
    fn arm(&mut self);

    /// Takes the device's events off the channel, without blocking. Answers how
    /// many there were. What is left there wakes nobody again: what it told of
    /// is for the poll that follows to see.
    ///
    /// # Errors
    /// The device failed.
    fn take_events(&mut self) -> Result<u32, ControlError>;

    /// Where the device's events come, if there is a device. The descriptor
    /// belongs to this source alone: events of others, taken here, are lost to
    /// whoever waits for them.
    fn channel(&self) -> Option<BorrowedFd<'_>>;

    /// Whether polling can make [`Self::ready`] true at all. If only an event of
    /// the device can (of a solicited completion, say), there is no use in
    /// spinning, and the wait blocks under every policy.
    #[inline]
    fn spin_counts(&self) -> bool {
        true
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The source is ready.
    Ready,
    /// The deadline has passed; the source was polled after it had.
    TimedOut,
    /// A handler of a signal has run, and the source was not ready after it.
    Interrupted,
}

/// What waits have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounters {
    /// Waits that had to spin: the first poll had missed.
    pub spins: u64,
    /// Of those, the ones that a poll ended before the thread blocked.
    pub hits: u64,
    /// How often the thread was put to sleep.
    pub blocks: u64,
    /// How often it was woken and nothing was ready.
    pub spurious: u64,
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockResult {
    /// An event of the device, a waker, or a token that one of them left.
    Woken,
    /// Nothing, for as long as was asked.
    TimedOut,
    /// A handler of a signal has run.
    Signal,
}

/// What a wait needs of the system: [`super::Blocker`], or a model of it.
pub trait Platform {
    /// Keeps signals from being handled unnoticed while it lives.
    type Guard;

    /// Nanoseconds of a clock that only goes forward.
    fn now(&self) -> u64;
    /// Whether anybody else can run while this thread spins.
    fn others_run(&self) -> bool;
    /// Lets others run, if any wants to.
    fn give_way(&self);
    /// Holds signals back.
    fn guard(&self) -> Self::Guard;
    /// Lets signals that came since be handled now. Answers whether any was.
    fn interrupted(&self, guard: &Self::Guard) -> bool;
    /// Tells wakers that there will be a sleeper.
    fn announce(&self);
    /// Sleeps until woken, until the channel has something new, or for `timeout`.
    /// Ends the announcement.
    ///
    /// # Errors
    /// The system failed.
    fn block(
        &self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        guard: &Self::Guard,
    ) -> Result<BlockResult, ControlError>;
    /// Tells wakers that there will be no sleeper after all.
    fn retract(&self);
}

/// Polls between two looks at the clock. A look costs as much as a few polls
/// (some 20 ns), so it is made rarely; and a poll costs a few nanoseconds, or a
/// few hundred in a bad case, so a budget or deadline is not overrun by more
/// than some microseconds.
const POLLS_PER_LOOK: u32 = 32;
/// Polls before signals are held back, which costs two system calls: what comes
/// within the first hundred nanoseconds or so is had without.
const POLLS_UNGUARDED: u32 = POLLS_PER_LOOK;
/// Turns given to others on the only processor before signals are held back.
/// The first brings what is waited for, if it comes from another thread here
/// that the scheduler lets run.
const TURNS: u32 = 2;
/// Nanoseconds of spinning between two looks for signals, each a system call of
/// some hundred: they take a part in a hundred of the spin.
const SIGNAL_INTERVAL: u64 = 20_000;

/// [`super::wait`] on any platform.
///
/// # Errors
/// As there.
#[inline]
pub fn run<S: Source, P: Platform>(
    source: &mut S,
    platform: &P,
    budget: &mut SpinBudget,
    policy: WaitPolicy,
    deadline: &mut Deadline,
    counters: &mut WaitCounters,
) -> Result<WaitOutcome, ControlError> {
    if source.ready() {
        return Ok(WaitOutcome::Ready);
    }
    if deadline.is_now() {
        return Ok(WaitOutcome::TimedOut);
    }
    run_on(source, platform, budget, policy, deadline, counters)
}

/// [`run`] after a first poll that missed, with a deadline that is not now.
///
/// # Errors
/// As there.
#[inline(never)]
pub fn run_on<S: Source, P: Platform>(
    source: &mut S,
    platform: &P,
    budget: &mut SpinBudget,
    policy: WaitPolicy,
    deadline: &mut Deadline,
    counters: &mut WaitCounters,
) -> Result<WaitOutcome, ControlError> {
    let allowed = match source.spin_counts() {
        true => budget.nanos(policy),
        false => 0,
    };
    // A look at the clock is left out where nobody wants to know.
    let is_learning = budget.is_learning(policy);
    let start = match deadline.is_never() && allowed == 0 && !is_learning {
        true => 0,
        false => platform.now(),
    };
    deadline.start(start);
    if deadline.has_passed(start) {
        return Ok(WaitOutcome::TimedOut);
    }
    // Without an end is how it was asked for; less is a bet that what is waited
    // for goes on meanwhile, which the only processor must be given away for. The
    // scheduler may not take it before this thread has had its share: a thread
    // that sleeps instead is ahead of its peer for ever, and never gets a turn
    // for nothing.
    let gives_way = allowed < u64::MAX && !platform.others_run();
    let spin = Spin {
        start,
        allowed,
        gives_way,
        deadline: *deadline,
    };
    // Somebody who was let run may have made the spin longer than any may be.
    let hit = |budget: &mut SpinBudget| match gives_way
        && budget.is_beyond(policy, platform.now() - start)
    {
        true => budget.overran(),
        false => budget.hit(),
    };
    if allowed > 0 {
        counters.spins += 1;
        if spin.begin(source, platform) {
            counters.hits += 1;
            hit(budget);
            return Ok(WaitOutcome::Ready);
        }
    }
    let guard = platform.guard();
    if allowed > 0
        && let Some(outcome) = spin.run(source, platform, &guard)
    {
        match outcome {
            WaitOutcome::Ready => {
                counters.hits += 1;
                hit(budget);
            }
            WaitOutcome::TimedOut => budget.learn(policy, platform.now() - start, true),
            WaitOutcome::Interrupted => {}
        }
        return Ok(outcome);
    }
    let outcome = sleep(source, platform, deadline, counters, &guard)?;
    if outcome != WaitOutcome::Interrupted {
        let waited = match is_learning {
            true => platform.now() - start,
            false => 0,
        };
        let was_in_vain = outcome == WaitOutcome::TimedOut;
        match gives_way {
            true => budget.learn_turns(policy, waited, was_in_vain),
            false => budget.learn(policy, waited, was_in_vain),
        }
    }
    Ok(outcome)
}

struct Spin {
    start: u64,
    allowed: u64,
    /// Others are let run before each look.
    gives_way: bool,
    deadline: Deadline,
}

impl Spin {
    /// The first polls, with no look at the clock.
    fn begin<S: Source, P: Platform>(&self, source: &mut S, platform: &P) -> bool {
        match self.gives_way {
            true => (0..TURNS).any(|_| {
                platform.give_way();
                source.ready()
            }),
            false => (0..POLLS_UNGUARDED).any(|_| source.ready()),
        }
    }

    /// Polls until something ends the wait, or, answering `None`, the budget is
    /// spent.
    ///
    /// There is no pause between polls: it would add half its length to the
    /// time that every completion takes to be seen.
    fn run<S: Source, P: Platform>(
        &self,
        source: &mut S,
        platform: &P,
        guard: &P::Guard,
    ) -> Option<WaitOutcome> {
        let mut looked = self.start;
        loop {
            let found = match self.gives_way {
                true => {
                    platform.give_way();
                    source.ready()
                }
                false => (0..POLLS_PER_LOOK).any(|_| source.ready()),
            };
            if found {
                return Some(WaitOutcome::Ready);
            }
            let now = platform.now();
            if self.deadline.has_passed(now) {
                return Some(last_look(source, WaitOutcome::TimedOut));
            }
            if now - self.start >= self.allowed {
                return None;
            }
            if now - looked >= SIGNAL_INTERVAL {
                looked = now;
                if platform.interrupted(guard) {
                    return Some(last_look(source, WaitOutcome::Interrupted));
                }
            }
        }
    }
}

/// Sleeps until something ends the wait.
fn sleep<S: Source, P: Platform>(
    source: &mut S,
    platform: &P,
    deadline: &Deadline,
    counters: &mut WaitCounters,
    guard: &P::Guard,
) -> Result<WaitOutcome, ControlError> {
    loop {
        platform.announce();
        source.arm();
        if source.ready() {
            platform.retract();
            return Ok(WaitOutcome::Ready);
        }
        counters.blocks += 1;
        let left = match deadline.is_never() {
            true => None,
            false => deadline.left(platform.now()),
        };
        match platform.block(source.channel(), left, guard)? {
            BlockResult::Woken => {
                source.take_events()?;
                if source.ready() {
                    return Ok(WaitOutcome::Ready);
                }
                counters.spurious += 1;
                if !deadline.is_never() && deadline.has_passed(platform.now()) {
                    return Ok(last_look(source, WaitOutcome::TimedOut));
                }
            }
            BlockResult::TimedOut => return Ok(last_look(source, WaitOutcome::TimedOut)),
            BlockResult::Signal => return Ok(last_look(source, WaitOutcome::Interrupted)),
        }
    }
}

/// What came at the last moment is not held back.
fn last_look<S: Source>(source: &mut S, otherwise: WaitOutcome) -> WaitOutcome {
    match source.ready() {
        true => WaitOutcome::Ready,
        false => otherwise,
    }
}
