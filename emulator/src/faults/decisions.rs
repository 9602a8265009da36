//! Chance, made repeatable: the one place where it is.

use super::spec::{FaultSpec, KINDS, Kind};
use crate::nic::Nanos;

/// Decides what is hit. Each kind of fault has a count of its own, so what
/// one kind decides does not change when another is added.
#[derive(Clone, Debug)]
pub struct Decisions {
    spec: FaultSpec,
    counts: [u64; KINDS],
}

impl Decisions {
    /// None made yet.
    #[must_use]
    pub fn new(spec: &FaultSpec) -> Self {
        Self {
            spec: spec.clone(),
            counts: [0; KINDS],
        }
    }

    /// One more of what this kind counts has come: whether it is hit.
    pub fn strikes(&mut self, kind: Kind) -> bool {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        let rule = &self.spec.rules[kind as usize];
        let by_chance = rule.rate > 0.0 && {
            // 53 bits: as many as a float tells apart from 0 to 1.
            let number = mixed(self.spec.seed, kind as u64, *count) >> 11;
            (number as f64) < rule.rate * (1_u64 << 53) as f64
        };
        by_chance || rule.at.contains(count)
    }

    /// For how long a fault of this kind lasts.
    #[must_use]
    pub fn time(&self, kind: Kind) -> Nanos {
        self.spec.rules[kind as usize].time
    }
}

/// A number that looks like chance and is the same for the same arguments
/// (SplitMix64's output function, three times).
fn mixed(seed: u64, kind: u64, count: u64) -> u64 {
    let mix = |value: u64| {
        let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    mix(mix(mix(seed) ^ kind) ^ count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(spec: &str, kind: Kind, of: u64) -> Vec<u64> {
        let mut decisions = Decisions::new(&spec.parse().unwrap());
        (1..=of).filter(|_| decisions.strikes(kind)).collect()
    }

    #[test]
    fn a_seed_repeats_its_decisions_and_another_makes_others() {
        let first = hits("seed=7,drop=0.1", Kind::Drop, 1000);
        assert_eq!(hits("seed=7,drop=0.1,dup=0.9", Kind::Drop, 1000), first);
        assert_ne!(hits("seed=8,drop=0.1", Kind::Drop, 1000), first);
        assert_ne!(hits("seed=7,dup=0.1", Kind::Duplicate, 1000), first);
    }

    #[test]
    fn as_many_are_hit_as_was_asked_for() {
        for (rate, about) in [("0", 0), ("0.01", 1_000), ("0.5", 50_000), ("1", 100_000)] {
            let found = hits(&format!("drop={rate}"), Kind::Drop, 100_000).len();
            assert!(found.abs_diff(about) <= 600, "{rate}: {found}");
        }
        assert_eq!(hits("drop=1", Kind::Drop, 9).len(), 9);
    }

    #[test]
    fn a_count_is_hit_for_certain_and_once() {
        assert_eq!(hits("kill-qp@500,kill-qp@2", Kind::KillQp, 2000), [2, 500]);
    }
}
