//! The steps of a wait, and the order that loses no wake-up.
//!
//! ```text
//! poll │ spin: poll, poll, … │ announce → arm → poll → block → take events ─┐
//!      │ (budget, deadline,  │    ▲                            not ready:   │
//!      │  signals)           │    └───────────────────────────── spurious ──┘
//! ```
//!
//! Two kinds of events end a sleep. An event of the device: a completion after the
//! arm raises an event, which ends the sleep; a completion before the arm is found
//! by the poll after it. An event of another thread, which changes the source and
//! then checks for a sleeper ([`super::Blocker::wake`]): either it sees the
//! announcement, or the poll after the announcement sees its change. So both the
//! announcement and the arm come before the last poll.
//!
//! This file is also compiled into the model (`tests/interleavings`), which simulates the
//! device and the other threads.

use core::sync::atomic::AtomicU8;
use core::time::Duration;

use super::{ChannelFds, ControlError, Deadline, SpinBudget, WaitPolicy};

/// What a wait waits for.
pub trait Source {
    /// Polls: returns whether the waiter may return. Cheap, since it is called
    /// repeatedly.
    fn ready(&mut self) -> bool;

    /// Arms the device: it raises an event at the next completion. Present
    /// completions may or may not raise one.
    fn arm(&mut self);

    /// Takes the device's events off the channel without blocking. Returns how
    /// many. If one is there, takes at least one: events that are left in the channel
    /// end the next sleep at once.
    ///
    /// # Errors
    /// The device failed.
    fn take_events(&mut self) -> Result<u32, ControlError>;

    /// Returns the channel of the device's events, if there is a device. The
    /// channel must belong to this source alone: an event taken here is lost to any
    /// other waiter.
    fn channel(&self) -> Option<ChannelFds<'_>>;

    /// Returns whether polling can make [`Self::ready`] true. If only an event of
    /// the device can (for example of a solicited completion), spinning is useless,
    /// and the wait blocks under every policy.
    #[inline]
    fn spin_counts(&self) -> bool {
        true
    }

    /// Returns the byte whose change can make [`Self::ready`] true, if there is one such byte.
    #[inline]
    fn watched(&self) -> Option<&AtomicU8> {
        None
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The source is ready.
    Ready,
    /// The deadline has passed, and the source was polled after that.
    TimedOut,
    /// A signal handler has run, and the source was not ready after it.
    Interrupted,
}

/// Statistics of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounters {
    /// Waits that had to spin, because the first poll missed.
    pub spins: u64,
    /// Spins that ended by a hit before the thread blocked.
    pub hits: u64,
    /// How often the thread was put to sleep.
    pub blocks: u64,
    /// How often the thread was woken with nothing ready.
    pub spurious: u64,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockResult {
    /// By an event of the device, a waker, or a token that a waker left.
    Woken,
    /// By the timeout of the sleep, which may be before the deadline.
    TimedOut,
    /// By a signal handler.
    Signal,
}

/// The system's functions that a wait uses: [`super::Blocker`], or a model of it.
pub trait Platform {
    /// Blocks signals while it lives.
    type Guard;

    /// Returns the time of a monotonic clock in nanoseconds.
    fn now(&self) -> u64;
    /// Returns whether other threads can run while this thread spins.
    fn is_multiprocessor(&self) -> bool;
    /// Yields the processor to other threads.
    fn yield_now(&self);
    /// Begins to watch a byte. Returns false if the processor cannot.
    fn monitor(&self, _byte: &AtomicU8) -> bool {
        false
    }
    /// Halts the processor until the watched byte is written, at most 10 microseconds.
    fn halt(&self) {}
    /// Blocks signals.
    fn guard(&self) -> Self::Guard;
    /// Lets pending signals be handled now. Returns whether a handler has run.
    fn interrupted(&self, guard: &Self::Guard) -> bool;
    /// Announces a sleeper to wakers.
    fn announce(&self);
    /// Sleeps until a wake-up, an event on the channel, or `timeout`. Takes the
    /// announcement back.
    ///
    /// # Errors
    /// The system call failed.
    fn block(
        &self,
        channel: Option<ChannelFds<'_>>,
        timeout: Option<Duration>,
        guard: &Self::Guard,
    ) -> Result<BlockResult, ControlError>;
    /// Takes the announcement back without a sleep.
    fn retract(&self);
}

/// The number of polls between two readings of the clock. A reading costs as much
/// as a few polls (about 20 ns). A poll costs a few nanoseconds, or some hundred in
/// a bad case, so a budget or deadline is overrun by a few microseconds at most.
const POLLS_PER_CLOCK_READ: u32 = 32;
/// The number of polls before signals are blocked, which costs two system calls: an
/// event within about the first hundred nanoseconds avoids them.
const POLLS_UNGUARDED: u32 = POLLS_PER_CLOCK_READ;
/// The number of yields on a single processor before signals are blocked. The first
/// yield suffices if another thread of this host produces the event and the
/// scheduler lets it run.
const YIELDS_UNGUARDED: u32 = 2;
/// Nanoseconds of spinning between two checks for signals. A check is a system call
/// of some hundred nanoseconds, so checks take about 1 % of the spin. An endless
/// spin also yields the processor after each check: where every processor is busy,
/// the thread that produces the event may need this one. With a free processor, a
/// yield costs as much as a check.
const SIGNAL_INTERVAL: u64 = 20_000;

/// The longest sleep with a deadline. If the process is stopped and continued, the
/// kernel restarts the sleep with the time that was left at the stop, so a wait may
/// miss its deadline by that much. Decision: `docs/decisions/065-sleep-in-ppoll.md`
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Nanoseconds of spinning between two pauses ([`Step::Pause`]).
const PAUSE_INTERVAL: u64 = 10_000_000;

/// Waits as [`super::wait`] does, on any platform.
///
/// # Errors
/// As for [`super::wait`].
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

/// Continues [`run`] after a first poll that missed. The deadline is not
/// [`Deadline::NOW`].
///
/// # Errors
/// As for [`super::wait`].
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

/// The result of [`Wait::begin`].
pub enum Begun<G> {
    /// The wait is over.
    Over(WaitOutcome),
    /// The wait goes on: call [`Wait::go_on`].
    Waits(Wait<G>),
}

/// What the caller of [`Wait::go_on`] has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the wait is over.
    Over(WaitOutcome),
    /// Sleep on the source's channel for this long (`None`: without end), as
    /// [`Platform::block`] does, and pass the result to [`Wait::go_on`].
    Sleep(Option<Duration>),
    /// Do periodic work during a long spin, then call [`Wait::go_on`] again.
    Pause,
}

/// A wait in steps: [`run_on`] for callers that sleep themselves. Between two steps
/// the wait borrows nothing and does not use its source.
///
/// A wait that has returned [`Step::Sleep`] has announced a sleeper
/// ([`Platform::announce`]). A caller that drops the wait then must take the
/// announcement back ([`Platform::retract`]).
#[derive(Debug)]
pub struct Wait<G> {
    policy: WaitPolicy,
    deadline: Deadline,
    start: u64,
    /// The nanoseconds that the spin may take.
    allowed: u64,
    is_learning: bool,
    /// The spin yields the processor before each poll.
    yields: bool,
    /// The PAUSE instructions before the last poll.
    phase: Phase,
    /// Blocks signals.
    guard: G,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Spins. The times are those of the last check for signals and of the last
    /// pause.
    Spin { signals_checked: u64, paused: u64 },
    /// Is about to announce the first sleep.
    Announcing,
    /// Sleeps.
    Asleep,
}

impl<G> Wait<G> {
    /// Begins a wait whose first poll has missed. Includes a short spin. The
    /// deadline is not [`Deadline::NOW`].
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
        // The clock is read only if the budget learns from this wait.
        let is_learning = budget.is_learning(policy);
        let start = match deadline.is_never() && allowed == 0 && !is_learning {
            true => 0,
            false => platform.now(),
        };
        deadline.start(start);
        if deadline.has_passed(start) {
            return Begun::Over(WaitOutcome::TimedOut);
        }
        // An endless spin is done as requested, with a yield from time to time
        // ([`SIGNAL_INTERVAL`]). A limited spin expects the event to be produced
        // meanwhile, which on a single processor requires yielding it. The scheduler
        // may not switch before this thread has used its share. A thread that sleeps
        // instead is always ahead of its peer in the schedule, and never yields in
        // vain.
        let yields = allowed < u64::MAX && !platform.is_multiprocessor();
        if allowed > 0 {
            counters.spins += 1;
            if spin_briefly(source, platform, yields) {
                counters.hits += 1;
                hit(platform, budget, policy, yields, start);
                return Begun::Over(WaitOutcome::Ready);
            }
        }
        Begun::Waits(Self {
            policy,
            deadline: *deadline,
            start,
            allowed,
            is_learning,
            yields,
            phase: match allowed {
                0 => Phase::Announcing,
                _ => Phase::Spin {
                    signals_checked: start,
                    paused: start,
                },
            },
            guard: platform.guard(),
        })
    }

    /// Returns the guard that blocks signals, for the sleep.
    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// Continues until the caller has to do something. `woken` is the result of the
    /// sleep that the previous step requested.
    ///
    /// # Errors
    /// The source's channel failed. The wait is over, and its announcement was
    /// taken back.
    #[inline]
    pub fn go_on<S: Source, P: Platform<Guard = G>>(
        &mut self,
        source: &mut S,
        platform: &P,
        budget: &mut SpinBudget,
        counters: &mut WaitCounters,
        woken: Option<BlockResult>,
    ) -> Result<Step, ControlError> {
        if let Phase::Spin {
            signals_checked,
            paused,
        } = self.phase
        {
            match self.spin(source, platform, signals_checked, paused) {
                Spun::Over(outcome) => {
                    match outcome {
                        WaitOutcome::Ready => {
                            counters.hits += 1;
                            hit(platform, budget, self.policy, self.yields, self.start);
                        }
                        WaitOutcome::TimedOut => {
                            let waited = platform.now() - self.start;
                            budget.learn(self.policy, waited, true, self.yields);
                        }
                        WaitOutcome::Interrupted => {}
                    }
                    return Ok(Step::Over(outcome));
                }
                Spun::Pause(signals_checked, paused) => {
                    self.phase = Phase::Spin {
                        signals_checked,
                        paused,
                    };
                    return Ok(Step::Pause);
                }
                Spun::Spent => self.phase = Phase::Announcing,
            }
        }
        let step = match (self.phase, woken) {
            (Phase::Asleep, Some(result)) => self.wake_up(source, platform, counters, result)?,
            _ => self.announce_sleep(source, platform, counters),
        };
        if let Step::Over(outcome) = step
            && outcome != WaitOutcome::Interrupted
        {
            self.learn(platform, budget, outcome == WaitOutcome::TimedOut);
        }
        Ok(step)
    }

    /// Updates the budget after a wait that did not end in the spin.
    fn learn<P: Platform<Guard = G>>(
        &self,
        platform: &P,
        budget: &mut SpinBudget,
        without_event: bool,
    ) {
        let waited = match self.is_learning {
            true => platform.now() - self.start,
            false => 0,
        };
        budget.learn(self.policy, waited, without_event, self.yields);
    }

    /// Polls until the wait ends, the budget is spent, or a pause is due.
    ///
    /// There is no delay between polls, unless the policy asks for one: on average it would
    /// delay every completion by half its length.
    fn spin<S: Source, P: Platform<Guard = G>>(
        &mut self,
        source: &mut S,
        platform: &P,
        mut signals_checked: u64,
        paused: u64,
    ) -> Spun {
        loop {
            let found = match self.policy {
                WaitPolicy::Umwait => Self::halt(source, platform),
                _ if self.yields => {
                    platform.yield_now();
                    source.ready()
                }
                _ => (0..POLLS_PER_CLOCK_READ).any(|_| source.ready()),
            };
            if found {
                return Spun::Over(WaitOutcome::Ready);
            }
            let now = platform.now();
            if self.deadline.has_passed(now) {
                return Spun::Over(last_poll(source, WaitOutcome::TimedOut));
            }
            if now - self.start >= self.allowed {
                return Spun::Spent;
            }
            if now - signals_checked >= SIGNAL_INTERVAL {
                signals_checked = now;
                if platform.interrupted(&self.guard) {
                    return Spun::Over(last_poll(source, WaitOutcome::Interrupted));
                }
                if self.allowed == u64::MAX {
                    platform.yield_now();
                }
                if now - paused >= PAUSE_INTERVAL {
                    return Spun::Pause(signals_checked, now);
                }
            }
        }
    }

    /// Halts until the next completion is written, if that is possible.
    fn halt<S: Source, P: Platform<Guard = G>>(source: &mut S, platform: &P) -> bool {
        let watches = source.watched().is_some_and(|byte| platform.monitor(byte));
        if watches {
            // A completion before the monitor is found by this poll; one after it ends the halt.
            if source.ready() {
                return true;
            }
            platform.halt();
        }
        source.ready()
    }

    /// Announces a sleep, unless the source is ready after all.
    fn announce_sleep<S: Source, P: Platform<Guard = G>>(
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
        Step::Sleep(self.next_timeout(platform))
    }

    /// Returns how long to sleep. Without a deadline, reads no clock.
    fn next_timeout<P: Platform<Guard = G>>(&self, platform: &P) -> Option<Duration> {
        if self.deadline.is_never() {
            return None;
        }
        Some(self.deadline.left(platform.now())?.min(LONGEST_SLEEP))
    }

    /// Ends a sleep.
    fn wake_up<S: Source, P: Platform<Guard = G>>(
        &mut self,
        source: &mut S,
        platform: &P,
        counters: &mut WaitCounters,
        result: BlockResult,
    ) -> Result<Step, ControlError> {
        match result {
            BlockResult::Woken => {
                source.take_events()?;
                if source.ready() {
                    return Ok(Step::Over(WaitOutcome::Ready));
                }
                counters.spurious += 1;
            }
            BlockResult::TimedOut => {}
            BlockResult::Signal => {
                return Ok(Step::Over(last_poll(source, WaitOutcome::Interrupted)));
            }
        }
        Ok(
            match self.deadline.is_never() || !self.deadline.has_passed(platform.now()) {
                true => self.announce_sleep(source, platform, counters),
                false => Step::Over(last_poll(source, WaitOutcome::TimedOut)),
            },
        )
    }
}

/// How a spin ended.
enum Spun {
    Over(WaitOutcome),
    /// A pause is due. The times are those of the last check for signals and of
    /// this pause.
    Pause(u64, u64),
    /// The budget is spent.
    Spent,
}

/// Makes the first polls of a spin, without reading the clock.
fn spin_briefly<S: Source, P: Platform>(source: &mut S, platform: &P, yields: bool) -> bool {
    match yields {
        true => (0..YIELDS_UNGUARDED).any(|_| {
            platform.yield_now();
            source.ready()
        }),
        false => (0..POLLS_UNGUARDED).any(|_| source.ready()),
    }
}

/// Updates the budget after a spin that hit.
fn hit<P: Platform>(
    platform: &P,
    budget: &mut SpinBudget,
    policy: WaitPolicy,
    yields: bool,
    start: u64,
) {
    // A thread that ran after a yield may have made the spin longer than any spin
    // may be.
    match yields && budget.is_beyond(policy, platform.now() - start) {
        true => budget.overran(),
        false => budget.hit(),
    }
}

/// Polls once more before a wait ends without a hit.
fn last_poll<S: Source>(source: &mut S, otherwise: WaitOutcome) -> WaitOutcome {
    match source.ready() {
        true => WaitOutcome::Ready,
        false => otherwise,
    }
}
