//! Spin or sleep? Learned from what came of it.
//!
//! With a core of its own the NIC thread answers a doorbell in well under a
//! microsecond if it spins. On cores that are all busy spinning is the worst
//! it can do: the application that is to ring the next doorbell waits for
//! the core the NIC spins on. Which of the two holds cannot be asked, but it
//! shows: work simply takes longer to arrive. So the policy measures, for
//! either way to wait, how long it takes from going idle to the next work,
//! keeps to the better way, and tries the other one now and then.

use crate::nic::Nanos;

/// Longest spin. Beyond it waking costs less than the core.
const SPIN_LIMIT: Nanos = 50_000;
/// Longer gaps say nothing about the way they were waited for.
const GAP_LIMIT: Nanos = 4 * SPIN_LIMIT;
/// Idle periods from one trial of the other way to the next: doubled while
/// trials confirm what is known.
const TRIAL_INTERVALS: (u32, u32) = (64, 8192);
/// Idle periods of one trial.
const TRIAL_LENGTH: u32 = 4;

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
pub(super) struct SpinPolicy {
    preferred: Way,
    /// Typical gap before work, by [`Way`]; `None` until tried.
    gaps: [Option<Nanos>; 2],
    idle: Option<Idle>,
    until_trial: u32,
    trial_left: u32,
    interval: u32,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    since: Nanos,
    way: Way,
}

impl Default for SpinPolicy {
    fn default() -> Self {
        let interval = TRIAL_INTERVALS.0;
        Self {
            preferred: Way::Spin,
            gaps: [None; 2],
            idle: None,
            until_trial: interval,
            trial_left: 0,
            interval,
        }
    }
}

impl SpinPolicy {
    /// There is nothing to do: whether to look again at once.
    pub(super) fn keeps_spinning(&mut self, now: Nanos) -> bool {
        let idle = match self.idle {
            Some(idle) => idle,
            None => Idle {
                since: now,
                way: self.choose(),
            },
        };
        self.idle = Some(idle);
        idle.way == Way::Spin && now.saturating_sub(idle.since) < SPIN_LIMIT
    }

    /// A doorbell or a packet has come.
    pub(super) fn work_arrived(&mut self, now: Nanos) {
        let Some(Idle { since, way }) = self.idle.take() else {
            return;
        };
        let gap = now.saturating_sub(since).min(GAP_LIMIT);
        // The way in use has many samples, the other only those of a trial.
        let weight = if way == self.preferred { 16 } else { 4 };
        let known = &mut self.gaps[way as usize];
        *known = Some(known.map_or(gap, |mean| mean - mean / weight + gap / weight));
        if self.trial_left == 0 {
            self.compare();
        }
    }

    /// Something else made the NIC run: this period says nothing.
    pub(super) fn interrupted(&mut self) {
        self.idle = None;
    }

    fn choose(&mut self) -> Way {
        if self.trial_left > 0 {
            self.trial_left -= 1;
            return self.preferred.other();
        }
        self.until_trial -= 1;
        if self.until_trial == 0 || self.gaps[self.preferred.other() as usize].is_none() {
            self.interval = (self.interval * 2).min(TRIAL_INTERVALS.1);
            self.until_trial = self.interval;
            self.trial_left = TRIAL_LENGTH - 1;
            return self.preferred.other();
        }
        self.preferred
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
        policy: &mut SpinPolicy,
        now: &mut Nanos,
        periods: u32,
        spin: Nanos,
        sleep: Nanos,
    ) -> u32 {
        let mut spun = 0;
        for _ in 0..periods {
            let spins = policy.keeps_spinning(*now);
            spun += u32::from(spins);
            *now += if spins { spin } else { sleep };
            policy.work_arrived(*now);
        }
        spun
    }

    #[test]
    fn a_free_core_is_spun_on() {
        let (mut policy, mut now) = (SpinPolicy::default(), 1);
        live(&mut policy, &mut now, 200, 800, 9_000);
        let spun = live(&mut policy, &mut now, 10_000, 800, 9_000);
        assert!(spun > 9_900, "{spun}");
    }

    #[test]
    fn a_shared_core_is_left_to_the_application() {
        let (mut policy, mut now) = (SpinPolicy::default(), 1);
        live(&mut policy, &mut now, 200, 70_000, 9_000);
        let spun = live(&mut policy, &mut now, 10_000, 70_000, 9_000);
        assert!(spun < 100, "{spun}");
    }

    #[test]
    fn rare_work_is_slept_for() {
        let (mut policy, mut now) = (SpinPolicy::default(), 1);
        live(&mut policy, &mut now, 200, 5_000_000, 5_009_000);
        let spun = live(&mut policy, &mut now, 10_000, 5_000_000, 5_009_000);
        assert!(spun < 100, "{spun}");
    }

    #[test]
    fn a_change_is_noticed_both_ways() {
        let (mut policy, mut now) = (SpinPolicy::default(), 1);
        live(&mut policy, &mut now, 50_000, 800, 9_000);
        live(&mut policy, &mut now, 200, 70_000, 9_000);
        let spun = live(&mut policy, &mut now, 1_000, 70_000, 9_000);
        assert!(spun < 50, "{spun}");
        live(&mut policy, &mut now, 20_000, 800, 9_000);
        let spun = live(&mut policy, &mut now, 1_000, 800, 9_000);
        assert!(spun > 950, "{spun}");
    }

    #[test]
    fn a_spin_ends_at_its_limit_and_an_interruption_is_no_sample() {
        let mut policy = SpinPolicy {
            gaps: [Some(1_000), Some(9_000)],
            ..SpinPolicy::default()
        };
        assert!(policy.keeps_spinning(1));
        assert!(policy.keeps_spinning(SPIN_LIMIT));
        assert!(!policy.keeps_spinning(SPIN_LIMIT + 1));
        policy.interrupted();
        policy.work_arrived(SPIN_LIMIT * 100);
        assert_eq!(policy.gaps, [Some(1_000), Some(9_000)]);
    }
}
