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

/// Nanoseconds of spinning between two pauses ([`Step::Pause`]).
const PAUSE_INTERVAL: u64 = 10_000_000;

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
    let mut wait = match Wait::begin(source, platform, budget, policy, deadline, counters) {
        Begun::Over(outcome) => return Ok(outcome),
        Begun::Waits(wait) => wait,
    };
    let mut woken = None;
    loop {
        woken = match wait.go_on(source, platform, budget, counters, woken)? {
            Step::Over(outcome) => return Ok(outcome),
            Step::Pause => None,
            Step::Sleep(timeout) => {
                Some(platform.block(source.channel(), timeout, wait.guard())?)
            }
        };
    }
}

/// What [`Wait::begin`] has come to.
pub enum Begun<G> {
    /// The wait is over.
    Over(WaitOutcome),
    /// The wait goes on: call [`Wait::go_on`].
    Waits(Wait<G>),
}

/// What the caller of [`Wait::go_on`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the wait is over.
    Over(WaitOutcome),
    /// Sleeps on the source's channel for so long (`None`: without end), as
    /// [`Platform::block`] does, and passes the result to [`Wait::go_on`].
    Sleep(Option<Duration>),
    /// Whatever it has to do now and then during a long spin; then it calls
    /// [`Wait::go_on`] again.
    Pause,
}

/// A wait that has begun, in steps: [`run_on`] for callers that sleep by
/// themselves. Between two steps the wait borrows nothing and its source stays
/// untouched.
///
/// A wait that was told to sleep has announced a sleeper
/// ([`Platform::announce`]). A caller that drops the wait then must take the
/// announcement back ([`Platform::retract`]).
#[derive(Debug)]
pub struct Wait<G> {
    policy: WaitPolicy,
    deadline: Deadline,
    start: u64,
    /// Nanoseconds that the spin may take.
    allowed: u64,
    is_learning: bool,
    /// The spin gives the processor to others before each poll.
    gives_way: bool,
    phase: Phase,
    /// Keeps signals from being handled unnoticed.
    guard: G,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Polls. The times are those of the last look for signals and the last
    /// pause.
    Spin { looked: u64, paused: u64 },
    /// Is about to announce the first sleep.
    Drowsy,
    /// Sleeps.
    Asleep,
}

impl<G> Wait<G> {
    /// Begins a wait whose first poll has missed, with a deadline that is not
    /// now. A short spin is part of it.
    #[inline(never)]
    pub fn begin<S: Source, P: Platform<Guard = G>>(
        source: &mut S,
        platform: &P,
        budget: &mut SpinBudget,
        policy: WaitPolicy,
        deadline: &mut Deadline,
        counters: &mut WaitCounters,
    ) -> Begun<G> {
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
            return Begun::Over(WaitOutcome::TimedOut);
        }
        // Without an end is how it was asked for; less is a bet that what is waited
        // for goes on meanwhile, which the only processor must be given away for. The
        // scheduler may not take it before this thread has had its share: a thread
        // that sleeps instead is ahead of its peer for ever, and never gets a turn
        // for nothing.
        let gives_way = allowed < u64::MAX && !platform.others_run();
        if allowed > 0 {
            counters.spins += 1;
            if spin_briefly(source, platform, gives_way) {
                counters.hits += 1;
                hit(platform, budget, policy, gives_way, start);
                return Begun::Over(WaitOutcome::Ready);
            }
        }
        Begun::Waits(Self {
            policy,
            deadline: *deadline,
            start,
            allowed,
            is_learning,
            gives_way,
            phase: match allowed {
                0 => Phase::Drowsy,
                _ => Phase::Spin {
                    looked: start,
                    paused: start,
                },
            },
            guard: platform.guard(),
        })
    }

    /// What holds signals back, for the sleep.
    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// Goes on until the caller has to do something. `woken` is how the sleep
    /// ended that the step before this one asked for.
    ///
    /// # Errors
    /// The source's channel failed. The wait is over, and no sleeper announced.
    #[inline]
    pub fn go_on<S: Source, P: Platform<Guard = G>>(
        &mut self,
        source: &mut S,
        platform: &P,
        budget: &mut SpinBudget,
        counters: &mut WaitCounters,
        woken: Option<BlockResult>,
    ) -> Result<Step, ControlError> {
        if let Phase::Spin { looked, paused } = self.phase {
            match self.spin(source, platform, looked, paused) {
                Spun::Over(outcome) => {
                    match outcome {
                        WaitOutcome::Ready => {
                            counters.hits += 1;
                            hit(platform, budget, self.policy, self.gives_way, self.start);
                        }
                        WaitOutcome::TimedOut => {
                            budget.learn(self.policy, platform.now() - self.start, true);
                        }
                        WaitOutcome::Interrupted => {}
                    }
                    return Ok(Step::Over(outcome));
                }
                Spun::Pause(looked, paused) => {
                    self.phase = Phase::Spin { looked, paused };
                    return Ok(Step::Pause);
                }
                Spun::Spent => self.phase = Phase::Drowsy,
            }
        }
        let step = match (self.phase, woken) {
            (Phase::Asleep, Some(result)) => self.wake_up(source, platform, counters, result)?,
            _ => self.lie_down(source, platform, counters),
        };
        if let Step::Over(outcome) = step
            && outcome != WaitOutcome::Interrupted
        {
            self.learn(platform, budget, outcome == WaitOutcome::TimedOut);
        }
        Ok(step)
    }

    /// Learns from a wait that did not end in the spin.
    fn learn<P: Platform<Guard = G>>(
        &self,
        platform: &P,
        budget: &mut SpinBudget,
        was_in_vain: bool,
    ) {
        let waited = match self.is_learning {
            true => platform.now() - self.start,
            false => 0,
        };
        match self.gives_way {
            true => budget.learn_turns(self.policy, waited, was_in_vain),
            false => budget.learn(self.policy, waited, was_in_vain),
        }
    }

    /// Polls until something ends the wait, the budget is spent, or it is time
    /// for a pause.
    ///
    /// There is no delay between polls: it would add half its length to the
    /// time that every completion takes to be seen.
    fn spin<S: Source, P: Platform<Guard = G>>(
        &self,
        source: &mut S,
        platform: &P,
        mut looked: u64,
        paused: u64,
    ) -> Spun {
        loop {
            let found = match self.gives_way {
                true => {
                    platform.give_way();
                    source.ready()
                }
                false => (0..POLLS_PER_LOOK).any(|_| source.ready()),
            };
            if found {
                return Spun::Over(WaitOutcome::Ready);
            }
            let now = platform.now();
            if self.deadline.has_passed(now) {
                return Spun::Over(last_look(source, WaitOutcome::TimedOut));
            }
            if now - self.start >= self.allowed {
                return Spun::Spent;
            }
            if now - looked >= SIGNAL_INTERVAL {
                looked = now;
                if platform.interrupted(&self.guard) {
                    return Spun::Over(last_look(source, WaitOutcome::Interrupted));
                }
                if now - paused >= PAUSE_INTERVAL {
                    return Spun::Pause(looked, now);
                }
            }
        }
    }

    /// Announces a sleep, unless the source is ready after all.
    fn lie_down<S: Source, P: Platform<Guard = G>>(
        &mut self,
        source: &mut S,
        platform: &P,
        counters: &mut WaitCounters,
    ) -> Step {
        platform.announce();
        source.arm();
        if source.ready() {
            platform.retract();
            return Step::Over(WaitOutcome::Ready);
        }
        counters.blocks += 1;
        self.phase = Phase::Asleep;
        Step::Sleep(self.time_left(platform))
    }

    fn time_left<P: Platform<Guard = G>>(&self, platform: &P) -> Option<Duration> {
        match self.deadline.is_never() {
            true => None,
            false => self.deadline.left(platform.now()),
        }
    }

    /// Ends a sleep.
    fn wake_up<S: Source, P: Platform<Guard = G>>(
        &mut self,
        source: &mut S,
        platform: &P,
        counters: &mut WaitCounters,
        result: BlockResult,
    ) -> Result<Step, ControlError> {
        let outcome = match result {
            BlockResult::Woken => {
                source.take_events()?;
                if source.ready() {
                    return Ok(Step::Over(WaitOutcome::Ready));
                }
                counters.spurious += 1;
                if self.deadline.is_never() || !self.deadline.has_passed(platform.now()) {
                    return Ok(self.lie_down(source, platform, counters));
                }
                WaitOutcome::TimedOut
            }
            BlockResult::TimedOut => WaitOutcome::TimedOut,
            BlockResult::Signal => WaitOutcome::Interrupted,
        };
        Ok(Step::Over(last_look(source, outcome)))
    }
}

/// How a spin ended.
enum Spun {
    Over(WaitOutcome),
    /// With the times of the last look for signals and of this pause.
    Pause(u64, u64),
    /// The budget is spent.
    Spent,
}

/// The first polls of a spin, with no look at the clock.
fn spin_briefly<S: Source, P: Platform>(source: &mut S, platform: &P, gives_way: bool) -> bool {
    match gives_way {
        true => (0..TURNS).any(|_| {
            platform.give_way();
            source.ready()
        }),
        false => (0..POLLS_UNGUARDED).any(|_| source.ready()),
    }
}

/// Learns from a spin that hit.
fn hit<P: Platform>(
    platform: &P,
    budget: &mut SpinBudget,
    policy: WaitPolicy,
    gives_way: bool,
    start: u64,
) {
    // Somebody who was let run may have made the spin longer than any may be.
    match gives_way && budget.is_beyond(policy, platform.now() - start) {
        true => budget.overran(),
        false => budget.hit(),
    }
}

/// What came at the last moment is not held back.
fn last_look<S: Source>(source: &mut S, otherwise: WaitOutcome) -> WaitOutcome {
    match source.ready() {
        true => WaitOutcome::Ready,
        false => otherwise,
    }
}
