//! How the idle NIC thread waits: it spins, naps or sleeps.
//!
//! On its own core, a spinning NIC thread serves a doorbell in well under a
//! microsecond. If all cores are busy, spinning is the worst choice: the
//! application thread that would ring the next doorbell waits for the core on
//! which the NIC spins. The kernel does not report which case holds, but it
//! shows in the time until work arrives. So the policy measures, for spinning
//! and for sleeping, the time from becoming idle to the next work, prefers the
//! better mode, and tries the other one from time to time.
//!
//! A sleeping thread is woken by packets and page faults. Timers take no part
//! in this choice, since in a virtual machine a short nap costs more than the
//! rest of a message. Naps are used only where nothing reports the event: for
//! the store of a doorbell whose fault was already served, and on kernels
//! without such faults.

use crate::spec::Nanos;

/// Maximum time to spin, in nanoseconds.
const SPIN_LIMIT: Nanos = 50_000;
/// Cap of a measured gap: longer gaps do not depend on the mode.
const GAP_LIMIT: Nanos = 4 * SPIN_LIMIT;
/// Number of idle periods between two trials of the other mode: initially, and
/// at most. Doubled while trials confirm the preferred mode.
const TRIAL_INTERVALS: (u32, u32) = (64, 2048);
/// Number of idle periods of one trial. The longest is ignored: another process
/// may have had the core.
const TRIAL_LENGTH: usize = 4;
/// Number of trapped stores before a thread that is to spin must have begun to: it wakes within
/// some microseconds if it has a core.
const STORES_BEFORE_SPIN: u32 = 16;
/// First nap in nanoseconds where page faults are not available; each further
/// nap is longer by half…
const SHORTEST_NAP: Nanos = 10_000;
/// …up to this, which costs 1 to 2 % of a core in a virtual machine.
const LONGEST_NAP: Nanos = 4_000_000;
/// The nap after a fault that was served. The store that follows brings nothing
/// new, and the one after it is usually noticed when the reply to the first
/// wakes this thread. A shorter nap would take the application's core.
const SERVED_NAP: Nanos = 30_000;
/// The first nap if more than the announced store is expected soon.
const NEAR_NAP: Nanos = 15_000;
/// How long to wait for a store that a fault has announced, in nanoseconds. The
/// application repeats the store when it gets a core; if the page were protected
/// again before, the store would only fault again.
const ANNOUNCED_LIMIT: Nanos = 20_000_000;

/// What the idle NIC thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Check again at once.
    Spin,
    /// Check again after this many nanoseconds.
    Nap(Nanos),
    /// Check again when woken; where wake-ups are not available, after this many
    /// nanoseconds.
    Sleep(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleMode {
    Spin,
    Sleep,
}

impl IdleMode {
    fn other(self) -> Self {
        match self {
            Self::Spin => Self::Sleep,
            Self::Sleep => Self::Spin,
        }
    }
}

/// Chooses how the NIC thread spends its idle time.
#[derive(Debug)]
pub(super) struct WaitPolicy {
    preferred: IdleMode,
    /// Mean gap before work, by [`IdleMode`]; `None` until tried.
    gaps: [Option<Nanos>; 2],
    idle: Option<Idle>,
    /// When a page fault announced a store that has not come yet. Idle periods
    /// until then are not measured.
    announced: Option<Nanos>,
    /// Trapped stores since the thread was told to spin.
    stores_before_spin: u32,
    until_trial: u32,
    /// The running trial.
    trial: Option<Trial>,
    interval: u32,
}

#[derive(Debug, Default)]
struct Trial {
    gaps: [Nanos; TRIAL_LENGTH],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    since: Nanos,
    mode: IdleMode,
    nap: Nanos,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        let interval = TRIAL_INTERVALS.0;
        Self {
            preferred: IdleMode::Spin,
            gaps: [None; 2],
            idle: None,
            announced: None,
            stores_before_spin: 0,
            until_trial: interval,
            trial: None,
            interval,
        }
    }
}

impl WaitPolicy {
    /// Returns how to wait, with nothing to do. Without a core of its own
    /// (`has_core`) the thread does not spin.
    pub(super) fn wait(&mut self, now: Nanos, has_core: bool) -> Wait {
        let mut idle = match self.idle {
            Some(idle) => idle,
            None => Idle {
                since: now,
                mode: self.choose(),
                nap: SHORTEST_NAP,
            },
        };
        if !has_core {
            idle.mode = IdleMode::Sleep;
        }
        let for_now = now.saturating_sub(idle.since);
        let nap = idle.nap;
        let wait = if idle.mode == IdleMode::Spin && for_now < SPIN_LIMIT {
            Wait::Spin
        } else {
            idle.nap = (nap + nap / 2).min(LONGEST_NAP);
            self.announced = self
                .announced
                .filter(|&at| now.saturating_sub(at) < ANNOUNCED_LIMIT);
            if self.announced.is_some() {
                Wait::Nap(nap)
            } else {
                Wait::Sleep(nap)
            }
        };
        self.idle = Some(idle);
        wait
    }

    /// Records that a page fault has announced a store, which comes when the
    /// application gets a core. `served` means that the NIC has already done
    /// what the store announces.
    pub(super) fn store_announced(&mut self, now: Nanos, served: bool) {
        let nap = if served { SERVED_NAP } else { SHORTEST_NAP };
        self.idle = Some(Idle {
            since: now,
            mode: self.preferred,
            nap,
        });
        self.announced = Some(now);
    }

    /// Records that a store was trapped: the NIC thread sleeps, or does not spin yet. In the
    /// latter case the period is not one of spinning, and not measured.
    pub(super) fn store_trapped(&mut self, now: Nanos) {
        let is_to_spin = self.idle.is_some_and(|idle| idle.mode == IdleMode::Spin);
        if is_to_spin && self.stores_before_spin < STORES_BEFORE_SPIN {
            self.stores_before_spin += 1;
            self.interrupted();
        } else {
            self.record_arrival(now, true);
        }
    }

    /// Records that work has arrived; `doorbell` is whether it includes a store.
    pub(super) fn work_arrived(&mut self, now: Nanos, doorbell: bool) {
        self.stores_before_spin = 0;
        self.record_arrival(now, doorbell);
    }

    fn record_arrival(&mut self, now: Nanos, doorbell: bool) {
        if self.announced.is_some() {
            if doorbell {
                self.announced = None;
                self.idle = None;
            } else if let Some(idle) = &mut self.idle {
                // The application has not run yet, but will now find what has
                // arrived: the announced store and one more are expected soon.
                idle.since = now;
                idle.nap = NEAR_NAP;
            }
            return;
        }
        let Some(Idle { since, mode, .. }) = self.idle.take() else {
            return;
        };
        let gap = now.saturating_sub(since).min(GAP_LIMIT);
        let known = &mut self.gaps[mode as usize];
        match &mut self.trial {
            Some(trial) if mode != self.preferred => {
                trial.gaps[trial.count] = gap;
                trial.count += 1;
                if trial.count == TRIAL_LENGTH {
                    let longest = trial.gaps.iter().max().unwrap_or(&0);
                    let others = trial.gaps.iter().sum::<Nanos>() - longest;
                    *known = Some(others / (TRIAL_LENGTH as Nanos - 1));
                    self.trial = None;
                }
            }
            _ => *known = Some(known.map_or(gap, |mean| mean - mean / 16 + gap / 16)),
        }
        if self.trial.is_none() {
            self.compare();
        }
    }

    /// Records that something else made the NIC run: this idle period is not
    /// measured.
    pub(super) fn interrupted(&mut self) {
        if self.announced.is_none() {
            self.idle = None;
        }
    }

    fn choose(&mut self) -> IdleMode {
        self.until_trial = self.until_trial.saturating_sub(1);
        if self.trial.is_none() && self.until_trial == 0 {
            self.interval = (self.interval * 2).min(TRIAL_INTERVALS.1);
            self.until_trial = self.interval;
            self.trial = Some(Trial::default());
        }
        match self.trial {
            Some(_) => self.preferred.other(),
            None => self.preferred,
        }
    }

    fn compare(&mut self) {
        let [Some(spin), Some(sleep)] = self.gaps else {
            return;
        };
        // Spinning occupies a core, so it must be better by a clear margin.
        let better = match self.preferred {
            IdleMode::Spin if sleep < spin + spin / 8 => IdleMode::Sleep,
            IdleMode::Sleep if spin + spin / 4 + 1_000 < sleep => IdleMode::Spin,
            unchanged => unchanged,
        };
        if better != self.preferred {
            self.preferred = better;
            self.interval = TRIAL_INTERVALS.0;
            self.until_trial = self.interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates idle periods in which work arrives after `spin` ns for a
    /// spinning thread and after `sleep` ns for a sleeping one. Returns the
    /// number of periods that were spun.
    fn simulate(
        policy: &mut WaitPolicy,
        now: &mut Nanos,
        periods: u32,
        spin: Nanos,
        sleep: Nanos,
    ) -> u32 {
        let mut spun = 0;
        for _ in 0..periods {
            let spins = policy.wait(*now, true) == Wait::Spin;
            spun += u32::from(spins);
            *now += if spins { spin } else { sleep };
            policy.work_arrived(*now, true);
        }
        spun
    }

    #[test]
    fn the_policy_spins_on_a_free_core() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        simulate(&mut policy, &mut now, 200, 800, 9_000);
        let spun = simulate(&mut policy, &mut now, 10_000, 800, 9_000);
        assert!(spun > 9_900, "{spun}");
    }

    #[test]
    fn the_policy_sleeps_on_a_core_shared_with_the_application() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        simulate(&mut policy, &mut now, 200, 70_000, 9_000);
        let spun = simulate(&mut policy, &mut now, 10_000, 70_000, 9_000);
        assert!(spun < 100, "{spun}");
    }

    #[test]
    fn the_policy_sleeps_if_work_is_rare() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        simulate(&mut policy, &mut now, 200, 5_000_000, 5_009_000);
        let spun = simulate(&mut policy, &mut now, 10_000, 5_000_000, 5_009_000);
        assert!(spun < 100, "{spun}");
    }

    #[test]
    fn the_policy_adapts_in_both_directions() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        simulate(&mut policy, &mut now, 50_000, 800, 9_000);
        simulate(&mut policy, &mut now, 200, 70_000, 9_000);
        let spun = simulate(&mut policy, &mut now, 1_000, 70_000, 9_000);
        assert!(spun < 50, "{spun}");
        simulate(&mut policy, &mut now, 20_000, 800, 9_000);
        let spun = simulate(&mut policy, &mut now, 1_000, 800, 9_000);
        assert!(spun > 950, "{spun}");
    }

    #[test]
    fn spinning_ends_in_sleep_and_an_interrupted_period_is_not_measured() {
        let mut policy = WaitPolicy {
            gaps: [Some(1_000), Some(9_000)],
            ..WaitPolicy::default()
        };
        assert_eq!(policy.wait(1, true), Wait::Spin);
        assert_eq!(policy.wait(SPIN_LIMIT, true), Wait::Spin);
        assert_eq!(policy.wait(SPIN_LIMIT + 1, true), Wait::Sleep(SHORTEST_NAP));
        assert_eq!(
            policy.wait(SPIN_LIMIT + 2, true),
            Wait::Sleep(SHORTEST_NAP * 3 / 2)
        );
        for _ in 0..100 {
            policy.wait(SPIN_LIMIT + 2, true);
        }
        assert_eq!(policy.wait(SPIN_LIMIT + 2, true), Wait::Sleep(LONGEST_NAP));
        policy.interrupted();
        policy.work_arrived(SPIN_LIMIT * 2, true);
        assert_eq!(policy.gaps, [Some(1_000), Some(9_000)]);
    }

    #[test]
    fn the_policy_naps_until_an_announced_store_arrives() {
        let mut policy = WaitPolicy {
            preferred: IdleMode::Sleep,
            ..WaitPolicy::default()
        };
        let now = 1_000_000_000;
        policy.store_announced(now, true);
        assert_eq!(policy.wait(now, true), Wait::Nap(SERVED_NAP));
        policy.interrupted();
        policy.work_arrived(now + 1, false);
        assert_eq!(policy.wait(now + 2, true), Wait::Nap(NEAR_NAP));
        policy.work_arrived(now + 3, true);
        assert!(!matches!(policy.wait(now + 4, true), Wait::Nap(_)));
        assert_eq!(policy.gaps, [None; 2]);

        policy.store_announced(now, false);
        let end = now + ANNOUNCED_LIMIT;
        assert!(matches!(policy.wait(end - 1, true), Wait::Nap(_)));
        assert!(matches!(policy.wait(end, true), Wait::Sleep(_)));
    }

    #[test]
    fn a_spinning_thread_also_spins_for_an_announced_store() {
        let mut policy = WaitPolicy::default();
        let now = 1_000_000_000;
        policy.store_announced(now, true);
        assert_eq!(policy.wait(now, true), Wait::Spin);
        policy.work_arrived(now + SPIN_LIMIT, false);
        assert_eq!(policy.wait(now + SPIN_LIMIT, true), Wait::Spin);
        assert_eq!(policy.wait(now + 2 * SPIN_LIMIT, true), Wait::Nap(NEAR_NAP));
    }

    #[test]
    fn stores_that_are_trapped_before_the_thread_spins_are_no_periods_of_spinning() {
        let mut policy = WaitPolicy::default();
        for now in 0..Nanos::from(STORES_BEFORE_SPIN) {
            assert_eq!(policy.wait(now, true), Wait::Spin);
            policy.store_trapped(now + 1);
        }
        assert_eq!(policy.gaps, [None; 2]);
        // It has no core, although one was expected.
        policy.wait(100, true);
        policy.store_trapped(4_100);
        assert_eq!(policy.gaps, [Some(4_000), None]);
    }

    #[test]
    fn without_its_own_core_the_thread_sleeps() {
        let mut policy = WaitPolicy::default();
        assert!(matches!(policy.wait(1, false), Wait::Sleep(_)));
        policy.work_arrived(2, true);
        assert_eq!(policy.wait(3, true), Wait::Spin);
    }
}
