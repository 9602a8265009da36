//! How the NIC thread waits: spinning, napping, asleep.
//!
//! With a core of its own the NIC thread answers a doorbell in well under a
//! microsecond if it spins. On cores that are all busy spinning is the worst
//! it can do: the application that is to ring the next doorbell waits for
//! the core the NIC spins on. Which of the two holds cannot be asked, but it
//! shows: work simply takes longer to arrive. So the policy measures, for
//! either way to wait, how long it takes from going idle to the next work,
//! keeps to the better way, and tries the other one now and then.
//!
//! Who does not spin sleeps: packets and page faults wake. Timers do not take
//! part, for in a virtual machine a short nap costs more than all the rest
//! of a message. Naps remain for what nothing announces: the store of a
//! doorbell whose fault has been served, and kernels without such faults.

use crate::nic::Nanos;

/// Longest spin.
const SPIN_LIMIT: Nanos = 50_000;
/// Longer gaps say nothing about the way they were waited for.
const GAP_LIMIT: Nanos = 4 * SPIN_LIMIT;
/// Idle periods from one trial of the other way to the next: doubled while
/// trials confirm what is known.
const TRIAL_INTERVALS: (u32, u32) = (64, 2048);
/// Idle periods of one trial. The longest of them is left out: somebody else
/// may have had the core for once.
const TRIAL_LENGTH: usize = 4;
/// The first nap where faults cannot be had; each further one is half as
/// long again…
const SHORTEST_NAP: Nanos = 10_000;
/// …up to this, which costs 1 to 2 % of a core in a virtual machine.
const LONGEST_NAP: Nanos = 4_000_000;
/// The nap after a fault that was served: the store that follows says nothing
/// new, and the one after it is mostly seen when the answer to the first
/// wakes this thread. A short nap would cost the application its core.
const SERVED_NAP: Nanos = 30_000;
/// The first nap when more than the announced store is expected soon.
const NEAR_NAP: Nanos = 15_000;
/// How long a store is waited for that a fault has announced. The
/// application repeats the store when it gets a core: protecting the page
/// again before would only make it fault again.
const ANNOUNCED_LIMIT: Nanos = 20_000_000;

/// What to do while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Look again at once.
    Spin,
    /// Look again after so many nanoseconds.
    Nap(Nanos),
    /// Look again when woken; where that cannot be, after so many nanoseconds.
    Sleep(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Spin,
    Sleep,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Self::Spin => Self::Sleep,
            Self::Sleep => Self::Spin,
        }
    }
}

/// How the NIC thread spends its idle time.
#[derive(Debug)]
pub(super) struct WaitPolicy {
    preferred: Way,
    /// Typical gap before work, by [`Way`]; `None` until tried.
    gaps: [Option<Nanos>; 2],
    idle: Option<Idle>,
    /// When a page fault announced the store that is still to come. Periods
    /// until it comes are no samples.
    announced: Option<Nanos>,
    until_trial: u32,
    /// Gaps of the trial that runs.
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
    way: Way,
    nap: Nanos,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        let interval = TRIAL_INTERVALS.0;
        Self {
            preferred: Way::Spin,
            gaps: [None; 2],
            idle: None,
            announced: None,
            until_trial: interval,
            trial: None,
            interval,
        }
    }
}

impl WaitPolicy {
    /// There is nothing to do: how to wait. Without a core that is not the
    /// application's own, spinning is out of the question.
    pub(super) fn wait(&mut self, now: Nanos, has_core: bool) -> Wait {
        let mut idle = match self.idle {
            Some(idle) => idle,
            None => Idle {
                since: now,
                way: self.choose(),
                nap: SHORTEST_NAP,
            },
        };
        if !has_core {
            idle.way = Way::Sleep;
        }
        let for_now = now.saturating_sub(idle.since);
        let nap = idle.nap;
        let wait = if idle.way == Way::Spin && for_now < SPIN_LIMIT {
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

    /// A page fault has announced a store, which comes as soon as the
    /// application gets a core. `served`: what it says is done already.
    pub(super) fn store_announced(&mut self, now: Nanos, served: bool) {
        let nap = if served { SERVED_NAP } else { SHORTEST_NAP };
        self.idle = Some(Idle {
            since: now,
            way: self.preferred,
            nap,
        });
        self.announced = Some(now);
    }

    /// Something has come, and with `doorbell` a store among it.
    pub(super) fn work_arrived(&mut self, now: Nanos, doorbell: bool) {
        if self.announced.is_some() {
            if doorbell {
                self.announced = None;
                self.idle = None;
            } else if let Some(idle) = &mut self.idle {
                // The application has not run yet, but will now find what
                // has come: the announced store and one more are near.
                idle.since = now;
                idle.nap = NEAR_NAP;
            }
            return;
        }
        let Some(Idle { since, way, .. }) = self.idle.take() else {
            return;
        };
        let gap = now.saturating_sub(since).min(GAP_LIMIT);
        let known = &mut self.gaps[way as usize];
        match &mut self.trial {
            Some(trial) if way != self.preferred => {
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

    /// Something else made the NIC run: this period says nothing.
    pub(super) fn interrupted(&mut self) {
        if self.announced.is_none() {
            self.idle = None;
        }
    }

    fn choose(&mut self) -> Way {
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
        // Spinning costs a core: it must be worth it by a clear margin.
        let better = match self.preferred {
            Way::Spin if sleep < spin + spin / 8 => Way::Sleep,
            Way::Sleep if spin + spin / 4 + 1_000 < sleep => Way::Spin,
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

    /// Lives through idle periods in which work comes after `spin` ns to a
    /// spinning thread and after `sleep` ns to a sleeping one; answers how
    /// many were spun through.
    fn live(
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
    fn a_free_core_is_spun_on() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        live(&mut policy, &mut now, 200, 800, 9_000);
        let spun = live(&mut policy, &mut now, 10_000, 800, 9_000);
        assert!(spun > 9_900, "{spun}");
    }

    #[test]
    fn a_shared_core_is_left_to_the_application() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        live(&mut policy, &mut now, 200, 70_000, 9_000);
        let spun = live(&mut policy, &mut now, 10_000, 70_000, 9_000);
        assert!(spun < 100, "{spun}");
    }

    #[test]
    fn rare_work_is_slept_for() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        live(&mut policy, &mut now, 200, 5_000_000, 5_009_000);
        let spun = live(&mut policy, &mut now, 10_000, 5_000_000, 5_009_000);
        assert!(spun < 100, "{spun}");
    }

    #[test]
    fn a_change_is_noticed_both_ways() {
        let (mut policy, mut now) = (WaitPolicy::default(), 1);
        live(&mut policy, &mut now, 50_000, 800, 9_000);
        live(&mut policy, &mut now, 200, 70_000, 9_000);
        let spun = live(&mut policy, &mut now, 1_000, 70_000, 9_000);
        assert!(spun < 50, "{spun}");
        live(&mut policy, &mut now, 20_000, 800, 9_000);
        let spun = live(&mut policy, &mut now, 1_000, 800, 9_000);
        assert!(spun > 950, "{spun}");
    }

    #[test]
    fn a_spin_ends_in_sleep_and_an_interruption_is_no_sample() {
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
    fn an_announced_store_is_napped_for_until_it_comes() {
        let mut policy = WaitPolicy {
            preferred: Way::Sleep,
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
    fn who_spins_spins_for_an_announced_store_as_well() {
        let mut policy = WaitPolicy::default();
        let now = 1_000_000_000;
        policy.store_announced(now, true);
        assert_eq!(policy.wait(now, true), Wait::Spin);
        policy.work_arrived(now + SPIN_LIMIT, false);
        assert_eq!(policy.wait(now + SPIN_LIMIT, true), Wait::Spin);
        assert_eq!(policy.wait(now + 2 * SPIN_LIMIT, true), Wait::Nap(NEAR_NAP));
    }

    #[test]
    fn without_a_core_of_its_own_it_sleeps() {
        let mut policy = WaitPolicy::default();
        assert!(matches!(policy.wait(1, false), Wait::Sleep(_)));
        policy.work_arrived(2, true);
        assert_eq!(policy.wait(3, true), Wait::Spin);
    }
}
