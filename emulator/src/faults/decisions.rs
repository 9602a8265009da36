//! Pseudo-random decisions: which packets, completions and commands a fault
//! hits.

use super::spec::{FaultSpec, KINDS, Kind};
use crate::random::hash;
use crate::spec::Nanos;

/// Decides which events are hit. Each kind of fault has its own counter, so the
/// decisions of one kind do not change when another kind is added.
#[derive(Clone, Debug)]
pub struct Decisions {
    spec: FaultSpec,
    counts: [u64; KINDS],
}

impl Decisions {
    /// Returns decisions with all counters at zero.
    #[must_use]
    pub fn new(spec: &FaultSpec) -> Self {
        Self {
            spec: spec.clone(),
            counts: [0; KINDS],
        }
    }

    /// Counts one more event of this kind and returns whether the fault hits it.
    pub fn decide(&mut self, kind: Kind) -> bool {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        let rule = &self.spec.rules[kind as usize];
        let by_rate = rule.rate > 0.0 && {
            // 53 bits: the precision of an f64 between 0 and 1.
            let number = hash(self.spec.seed, kind as u64, *count) >> 11;
            (number as f64) < rule.rate * (1_u64 << 53) as f64
        };
        by_rate || rule.at.contains(count)
    }

    /// Returns the duration of a fault of this kind.
    #[must_use]
    pub fn time(&self, kind: Kind) -> Nanos {
        self.spec.rules[kind as usize].time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(spec: &str, kind: Kind, of: u64) -> Vec<u64> {
        let mut decisions = Decisions::new(&spec.parse().unwrap());
        (1..=of).filter(|_| decisions.decide(kind)).collect()
    }

    #[test]
    fn a_seed_repeats_its_decisions_and_another_seed_differs() {
        let first = hits("seed=7,drop=0.1", Kind::Drop, 1000);
        assert_eq!(hits("seed=7,drop=0.1,dup=0.9", Kind::Drop, 1000), first);
        assert_ne!(hits("seed=8,drop=0.1", Kind::Drop, 1000), first);
        assert_ne!(hits("seed=7,dup=0.1", Kind::Duplicate, 1000), first);
    }

    #[test]
    fn the_hit_rate_matches_the_probability() {
        for (rate, about) in [("0", 0), ("0.01", 1_000), ("0.5", 50_000), ("1", 100_000)] {
            let found = hits(&format!("drop={rate}"), Kind::Drop, 100_000).len();
            assert!(found.abs_diff(about) <= 600, "{rate}: {found}");
        }
        assert_eq!(hits("drop=1", Kind::Drop, 9).len(), 9);
    }

    #[test]
    fn an_event_given_by_its_number_is_hit_exactly_once() {
        assert_eq!(hits("kill-qp@500,kill-qp@2", Kind::KillQp, 2000), [2, 500]);
    }
}
