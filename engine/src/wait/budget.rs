//! The spin budget: how long to spin, learned from earlier waits.
//!
//! The rule is that of Linux for a halted guest processor (`haltpoll`). If the
//! event arrived after the budget but within the cap, a longer spin would have
//! caught it, so the budget grows. If it arrived after the cap, no permitted spin
//! would have caught it, so the budget shrinks. An event within the budget changes
//! nothing.
//!
//! There are two differences from Linux. The budget changes from the second such event
//! in a row on: if either side is delayed, one event of a slow sequence is early by
//! chance, and one of a fast sequence late. And an event that was missed counts as
//! within the cap up to three quarters of it: where events are about as far apart as
//! the cap, half of the spins would be in vain.
//!
//! The rule fails in one case: the spin itself delays the event, because it takes
//! the processor of the peer or of the device's thread. The event then arrives just
//! after the thread has gone to sleep, however long it spun before. Four such near
//! misses without a hit between them stop spinning for a number of waits, which
//! doubles each time. On a single processor a spin yields before each poll. The
//! scheduler may give the processor back at once, until this thread has used up its
//! share of some milliseconds; after that each yield lets the peer run, and no
//! thread has to sleep. So more misses are needed there, and every event that
//! arrives within a spin's cap after the spin is one.

use core::time::Duration;

use super::WaitPolicy;

/// A learned spin time. A pure type: times are arguments, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinBudget {
    nanos: u64,
    /// Consecutive spins that missed an event by so little that they may have
    /// delayed it.
    near_misses: u32,
    /// The number of coming waits that do not spin.
    rest: u32,
    /// The length of the next rest, in waits.
    next_rest: u32,
    /// Waits in a row, hits aside, that ask for a longer spin.
    catchable: u32,
    /// Waits in a row, ended by a hit, that ask for a shorter spin.
    late: u32,
}

/// The first budget, in nanoseconds, and the first one that growing gives: about
/// the cost of a wake-up on an idle processor.
const START: u64 = 50_000;
/// The smallest budget, in nanoseconds; a smaller one ends before the second poll.
const LEAST: u64 = 1_000;
/// An event within this time after the end of the spin is a near miss: about the
/// time that a thread needs to get the processor and to produce the event. In
/// nanoseconds.
const NEAR: u64 = 50_000;
/// So many events in a row that ask for a longer or shorter spin change the budget.
const IN_A_ROW: u32 = 2;
/// So many near misses are not a coincidence. One less takes the budget from its start
/// to the default cap.
const NEAR_MISSES: u32 = 4;
/// So many near misses stop spins that yield the only processor. One thread is ahead
/// of another by some milliseconds at most (in Linux half a scheduling latency after
/// a sleep, and a slice for a new thread), which that many spins of the default cap
/// use up.
const VAIN_YIELDS: u32 = 64;
/// The lengths of the first and of the longest rest, in waits.
const RESTS: (u32, u32) = (64, 1 << 14);

impl Default for SpinBudget {
    fn default() -> Self {
        Self {
            nanos: START,
            near_misses: 0,
            rest: 0,
            next_rest: RESTS.0,
            catchable: 0,
            late: 0,
        }
    }
}

impl SpinBudget {
    /// Returns a budget that has learned nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the nanoseconds to spin under a policy; `u64::MAX` is without end.
    #[must_use]
    pub fn nanos(&self, policy: WaitPolicy) -> u64 {
        match policy {
            WaitPolicy::Poll | WaitPolicy::Umwait | WaitPolicy::Adaptive { max: None, .. } => {
                u64::MAX
            }
            WaitPolicy::Block => 0,
            WaitPolicy::Adaptive {
                min,
                max: Some(max),
            } => self.nanos.max(nanos(min)).min(nanos(max)),
        }
    }

    /// Learns from a wait that ended after `waited` nanoseconds, by an event or, if
    /// `without_event`, without one. A wait without an event that was shorter than
    /// the cap teaches nothing. `yields`: the spin, if any, yielded the only
    /// processor.
    #[doc(hidden)] // Public for the model of waits.
    pub fn learn(&mut self, policy: WaitPolicy, waited: u64, without_event: bool, yields: bool) {
        let WaitPolicy::Adaptive {
            min,
            max: Some(max),
        } = policy
        else {
            return;
        };
        let now = self.nanos(policy);
        let (reach, misses) = match yields {
            true => (nanos(max), VAIN_YIELDS),
            false => (NEAR, NEAR_MISSES),
        };
        let within = nanos(max) / 4 * 3;
        let near = now > 0 && waited > now && waited - now <= reach;
        if self.must_rest(near && !without_event, misses) {
            self.stop();
        } else if waited <= now || (without_event && waited <= nanos(max)) {
            // Caught, or nothing is known of when the event would have arrived.
        } else if waited <= within {
            self.late = 0;
            self.catchable = self.catchable.saturating_add(1);
            if self.catchable >= IN_A_ROW {
                let longer = now.saturating_mul(2).max(START);
                // An event between a budget beyond `within` and the cap would not ask for more.
                self.nanos = if longer >= within { nanos(max) } else { longer };
            }
        } else {
            self.catchable = 0;
            self.late = self.late.saturating_add(1);
            if self.late >= IN_A_ROW {
                let half = now / 2;
                self.nanos = if half < LEAST { 0 } else { half }.max(nanos(min));
            }
        }
    }

    /// Returns whether the duration of the next wait matters.
    #[must_use]
    pub fn is_learning(&self, policy: WaitPolicy) -> bool {
        matches!(policy, WaitPolicy::Adaptive { max: Some(_), .. }) && self.rest <= 1
    }

    /// Records that a spin hit: spinning does not delay its event.
    pub fn hit(&mut self) {
        self.near_misses = 0;
        self.late = 0;
        self.next_rest = RESTS.0;
    }

    /// Returns whether a wait was longer than any spin may be.
    pub fn is_beyond(&self, policy: WaitPolicy, waited: u64) -> bool {
        matches!(policy, WaitPolicy::Adaptive { max: Some(max), .. } if waited > nanos(max))
    }

    /// Records that the event arrived, but a thread that ran after a yield kept the
    /// processor beyond the cap. It would not have kept the processor from a thread
    /// that is woken.
    pub fn overran(&mut self) {
        self.stop();
        self.begin_rest();
    }

    /// Spins no more until events in a row show that it would catch them.
    fn stop(&mut self) {
        self.nanos = 0;
        self.catchable = 0;
    }

    /// Returns whether the next wait rests, if the policy allows that.
    fn must_rest(&mut self, near: bool, misses: u32) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return self.rest > 0;
        }
        self.near_misses = if near { self.near_misses + 1 } else { 0 };
        if self.near_misses < misses {
            return false;
        }
        self.begin_rest();
        true
    }

    fn begin_rest(&mut self) {
        self.near_misses = 0;
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 2).min(RESTS.1);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: WaitPolicy = WaitPolicy::Adaptive {
        min: Duration::ZERO,
        max: Some(WaitPolicy::DEFAULT_MAX),
    };

    fn adaptive(min: u64, max: u64) -> WaitPolicy {
        WaitPolicy::Adaptive {
            min: Duration::from_nanos(min),
            max: Some(Duration::from_nanos(max)),
        }
    }

    /// Returns the budgets after waits of these lengths.
    fn after(policy: WaitPolicy, waits: &[u64]) -> Vec<u64> {
        let mut budget = SpinBudget::new();
        waits
            .iter()
            .map(|&waited| {
                budget.learn(policy, waited, false, false);
                budget.nanos(policy)
            })
            .collect()
    }

    #[test]
    fn the_budget_starts_at_50_microseconds_and_doubles_up_to_the_cap() {
        assert_eq!(SpinBudget::new().nanos(DEFAULT), 50_000);
        let waits = [50_001, 50_001, 100_001, 200_000];
        assert_eq!(after(DEFAULT, &waits), [50_000, 100_000, 200_000, 200_000]);
    }

    #[test]
    fn one_event_within_the_cap_among_later_ones_does_not_make_it_spin() {
        let mut waits = vec![250_000; 8];
        waits.extend([130_000, 370_000].repeat(3));
        assert!(after(DEFAULT, &waits)[6..].iter().all(|&spin| spin == 0));
        waits.extend([130_000, 100_000]);
        assert_eq!(after(DEFAULT, &waits).last(), Some(&50_000));
    }

    #[test]
    fn events_as_far_apart_as_the_cap_stop_spinning_once_two_are_missed() {
        let waits = [195_000, 205_000].repeat(8);
        let budgets = after(DEFAULT, &waits);
        assert!(budgets[7..].iter().all(|&spin| spin == 0), "{budgets:?}");
        // A spin of the whole cap catches them, and goes on.
        let waits = [[120_000; 4], [195_000; 4]].concat();
        assert_eq!(after(DEFAULT, &waits)[4..], [200_000; 4]);
        assert_eq!(
            after(DEFAULT, &[205_000, 160_000])[1],
            25_000,
            "both were missed"
        );
    }

    #[test]
    fn one_late_event_between_hits_changes_nothing() {
        let mut budget = SpinBudget::new();
        for _ in 0..10 {
            budget.learn(DEFAULT, 5_000_000, false, false);
            assert_eq!(budget.nanos(DEFAULT), 50_000);
            budget.hit();
        }
    }

    #[test]
    fn hits_between_two_events_within_the_cap_do_not_keep_it_from_growing() {
        let mut budget = SpinBudget::new();
        budget.learn(DEFAULT, 120_000, false, false);
        budget.hit();
        budget.learn(DEFAULT, 120_000, false, false);
        assert_eq!(budget.nanos(DEFAULT), 100_000);
    }

    #[test]
    fn a_budget_reaches_every_cap() {
        for max in [7_000, 60_000, 130_000, 200_000, 1_000_000] {
            let policy = adaptive(0, max);
            // From nothing.
            let mut waits = vec![u64::MAX; 12];
            waits.extend([max / 4 * 3; 12]);
            let budgets = after(policy, &waits);
            assert!(budgets.contains(&max), "{max}: {budgets:?}");
        }
    }

    #[test]
    fn an_event_within_the_budget_changes_nothing() {
        assert_eq!(after(DEFAULT, &[1, 49_999, 50_000]), [50_000; 3]);
    }

    #[test]
    fn waits_beyond_the_cap_halve_it_to_nothing_and_two_below_restart_it() {
        let budgets = after(DEFAULT, &[200_001; 7]);
        assert_eq!(budgets, [50_000, 25_000, 12_500, 6_250, 3_125, 1_562, 0]);
        let mut waits = [u64::MAX; 10];
        waits[8..].fill(10);
        assert_eq!(after(DEFAULT, &waits)[7..], [0, 0, 50_000]);
    }

    #[test]
    fn bounds_hold_and_poll_block_and_endless_spins_ignore_the_budget() {
        let narrow = adaptive(30_000, 80_000);
        assert_eq!(
            after(narrow, &[55_000, 55_000, 150_000, 150_000, 150_000]),
            [50_000, 80_000, 80_000, 40_000, 30_000]
        );
        assert_eq!(after(adaptive(0, 0), &[0, 1, 1 << 40]), [0; 3]);
        assert_eq!(after(adaptive(90_000, 90_000), &[91_000, 1]), [90_000; 2]);
        assert_eq!(after(adaptive(0, 7_000), &[7_000]), [7_000]);
        let endless = WaitPolicy::Adaptive {
            min: Duration::ZERO,
            max: None,
        };
        assert_eq!(after(endless, &[u64::MAX]), [u64::MAX]);
        for policy in [WaitPolicy::Poll, WaitPolicy::Umwait] {
            assert_eq!(after(policy, &[u64::MAX]), [u64::MAX]);
        }
        assert_eq!(after(WaitPolicy::Block, &[1]), [0]);
    }

    #[test]
    fn a_short_wait_without_event_changes_nothing_and_a_long_one_shrinks() {
        let mut budget = SpinBudget::new();
        budget.learn(DEFAULT, 199_000, true, false);
        assert_eq!(budget, SpinBudget::new());
        budget.learn(DEFAULT, 200_001, true, false);
        budget.learn(DEFAULT, 200_001, true, false);
        assert_eq!(budget.nanos(DEFAULT), 25_000);
    }

    /// Makes waits on a processor that the spin takes from the peer: the event
    /// arrives 20 µs after the end of the spin. Returns how many of them spun.
    fn keeping_the_peer_away(budget: &mut SpinBudget, waits: usize) -> usize {
        let spins = |_: &usize| {
            let spun = budget.nanos(DEFAULT);
            budget.learn(DEFAULT, spun + 20_000, false, false);
            spun > 0
        };
        (0..waits).filter(spins).count()
    }

    #[test]
    fn a_spin_that_delays_its_event_rests_for_longer_each_time() {
        let mut budget = SpinBudget::new();
        assert_eq!(keeping_the_peer_away(&mut budget, 4 + 64), 4);
        assert_eq!(keeping_the_peer_away(&mut budget, 4 + 128), 4);
        let later = keeping_the_peer_away(&mut budget, 100_000);
        assert!((9..60).contains(&later), "{later} of 100,000");
    }

    #[test]
    fn where_spins_yield_every_event_within_the_cap_after_them_is_a_near_miss() {
        let rests_after = |late| {
            let mut budget = SpinBudget::new();
            for _ in 0..VAIN_YIELDS {
                let spun = budget.nanos(DEFAULT);
                budget.learn(DEFAULT, spun + late, false, true);
            }
            budget.rest > 0
        };
        assert!(rests_after(100_000));
        assert!(!rests_after(200_001), "beyond the cap");
    }

    #[test]
    fn a_hit_resets_the_near_misses() {
        let mut budget = SpinBudget::new();
        for _ in 0..100 {
            for _ in 1..NEAR_MISSES {
                let spun = budget.nanos(DEFAULT);
                assert!(spun > 0);
                budget.learn(DEFAULT, spun + 1, false, false);
            }
            budget.hit();
            // As after a long wait.
            budget.learn(DEFAULT, 300_000, false, false);
        }
    }

    #[test]
    fn after_a_rest_spinning_resumes_where_it_hits() {
        let mut budget = SpinBudget::new();
        keeping_the_peer_away(&mut budget, 4 + 63);
        assert_eq!(budget.nanos(DEFAULT), 0);
        budget.learn(DEFAULT, 20_000, false, false);
        budget.learn(DEFAULT, 20_000, false, false);
        assert_eq!(budget.nanos(DEFAULT), 50_000);
    }

    #[test]
    fn a_minimum_spin_of_the_policy_is_kept_although_it_delays_events() {
        let policy = adaptive(30_000, 200_000);
        let waits = [80_000, 150_000, 210_000, 230_000, 60_000, 60_000];
        assert!(after(policy, &waits).iter().all(|&spin| spin >= 30_000));
    }

    proptest! {
        #[test]
        fn the_budget_stays_within_its_bounds(
            min in 0u64..1_000_000,
            span in 0u64..1_000_000,
            waits in prop::collection::vec((any::<u64>(), 0u32..64, any::<bool>()), 0..50),
        ) {
            let policy = adaptive(min, min + span);
            let mut budget = SpinBudget::new();
            for (wait, shift, in_vain) in waits {
                budget.learn(policy, wait >> shift, in_vain, false);
                prop_assert!((min..=min + span).contains(&budget.nanos(policy)));
            }
        }
    }
}
