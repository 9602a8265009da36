//! The decisions of a NIC: one function for each place at which a mode changes the
//! device.

use super::{Modes, Nasty};
use crate::random::hash;
use crate::spec::{CLOCK_KHZ, Nanos};

/// Number of shared receives among which the device chooses the next.
const RECEIVES: usize = 4;
/// Time in nanoseconds by which events are late, if the NIC has a clock of its own.
const EVENT_DELAY: Nanos = 100_000;
/// Time in nanoseconds by which the change of a key is late.
const KEY_DELAY: Nanos = 1_000_000;

/// Where the device reads the index of the last posted WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexSource {
    /// As the doorbell view says.
    View,
    /// In the doorbell record, whatever the register says.
    Record,
    /// In the register, whatever the doorbell record says.
    Register,
}

/// The modes of a NIC, and the seed of its random choices.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    modes: Modes,
    seed: u64,
}

impl Policies {
    pub(crate) fn new(nasty: Nasty) -> Self {
        Self {
            modes: nasty.modes,
            seed: nasty.seed,
        }
    }

    #[inline(always)]
    fn has(&self, mode: Modes) -> bool {
        self.modes.intersects(mode)
    }

    /// Returns where the indices of send doorbells on a page are read.
    #[inline]
    pub(crate) fn index_source(&self, page: u32) -> IndexSource {
        let both = Modes::RECORD | Modes::REGISTER;
        match self.modes & both {
            modes if modes.is_empty() => IndexSource::View,
            modes if modes == both && page.is_multiple_of(2) => IndexSource::Record,
            modes if modes == Modes::RECORD => IndexSource::Record,
            _ => IndexSource::Register,
        }
    }

    /// Returns whether an arm counts only as the register has it.
    #[inline]
    pub(crate) fn arms_by_register(&self) -> bool {
        self.has(Modes::ARMS)
    }

    /// Returns whether stores to send registers can be lost: see [`Self::loses_store`].
    #[inline]
    pub(crate) fn loses_stores(&self) -> bool {
        self.has(Modes::BLUEFLAME | Modes::NO_BLUEFLAME)
    }

    /// Returns whether a store to a send register is lost. `is_copy`: more than 8
    /// bytes were stored. `is_second_half`: it went to the second half of the register.
    /// `rung_by_other`: another QP rang the register before.
    pub(crate) fn loses_store(
        &self,
        is_copy: bool,
        is_second_half: bool,
        rung_by_other: bool,
    ) -> bool {
        (self.has(Modes::NO_BLUEFLAME) && (is_copy || is_second_half))
            || (self.has(Modes::BLUEFLAME) && is_copy && rung_by_other)
    }

    /// Returns by how much the change of a memory key is late if the next request does
    /// not wait for it.
    #[inline]
    pub(crate) fn key_delay(&self) -> Option<Nanos> {
        self.has(Modes::UMR).then_some(KEY_DELAY)
    }

    /// Returns the number of posted receives of an SRQ among which the device chooses
    /// the next by [`Self::choose_receive`] if another QP took the last one; `None` if
    /// it takes all in order.
    #[inline]
    pub(crate) fn receives_to_choose_from(&self) -> Option<usize> {
        self.has(Modes::SRQ).then_some(RECEIVES)
    }

    /// Returns which of `count` receives the device takes for the `number`-th message of
    /// an SRQ. Depends on nothing else, so that a new SRQ repeats the choices.
    pub(crate) fn choose_receive(&self, number: u64, count: usize) -> usize {
        /// Distinguishes these numbers from those of faults.
        const KIND: u64 = 0x72_6563_6569_7665;
        (hash(self.seed, KIND, number) % count.max(1) as u64) as usize
    }

    /// Returns the byte that fills new rings.
    #[inline]
    pub(crate) fn garbage(&self) -> Option<u8> {
        self.has(Modes::POISON).then_some(GARBAGE)
    }

    /// Returns by how much completion events are late. If `stepped`, they wait until
    /// the NIC has nothing else to do.
    #[inline]
    pub(crate) fn event_delay(&self, stepped: bool) -> Option<Nanos> {
        let delay = if stepped { 0 } else { EVENT_DELAY };
        self.has(Modes::INTERRUPTS).then_some(delay)
    }

    /// Returns whether payload becomes visible in parts.
    #[inline]
    pub(crate) fn splits_payload(&self) -> bool {
        self.has(Modes::PARTS)
    }

    /// Returns whether the number of a destroyed QP is that of the next new one.
    pub(crate) fn reuses_qp_numbers(&self) -> bool {
        self.has(Modes::REUSE)
    }

    /// Returns whether registered pages are pinned.
    #[inline]
    pub(crate) fn pins_pages(&self) -> bool {
        self.has(Modes::PIN)
    }

    /// Returns the number of the first CQ and of the first SRQ.
    pub(crate) fn first_number(&self) -> u32 {
        if self.has(Modes::COUNTERS) { 0xfffe } else { 1 }
    }

    /// Returns what is added to timestamps, which are `ticks` now without it. `stepped`:
    /// the test controls the time.
    pub(crate) fn timestamp_offset(&self, ticks: u64, stepped: bool) -> u64 {
        if !self.has(Modes::COUNTERS) {
            return 0;
        }
        // 32 bits overflow after a few completions, or after 50 ms.
        let left = if stepped { 16 } else { 50 * CLOCK_KHZ };
        let overflow = ((ticks >> 32) + 1) << 32;
        overflow.wrapping_sub(left).wrapping_sub(ticks)
    }
}

/// The byte that fills new rings and doorbell records.
pub(crate) const GARBAGE: u8 = 0xa5;

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(list: &str) -> Policies {
        Policies::new(list.parse().unwrap())
    }

    #[test]
    fn without_a_mode_the_device_is_as_it_is() {
        let none = Policies::new(Nasty::default());
        assert_eq!(none.index_source(1), IndexSource::View);
        assert!(!none.arms_by_register() && !none.loses_stores() && !none.splits_payload());
        assert!(!none.reuses_qp_numbers() && !none.pins_pages());
        assert_eq!((none.key_delay(), none.garbage()), (None, None));
        assert_eq!(
            (none.receives_to_choose_from(), none.event_delay(false)),
            (None, None)
        );
        assert_eq!(
            (none.first_number(), none.timestamp_offset(7, true)),
            (1, 0)
        );
    }

    #[test]
    fn a_seed_repeats_its_choices() {
        let choices = |list: &str| -> Vec<usize> {
            let policies = policies(list);
            (0..100).map(|n| policies.choose_receive(n, 4)).collect()
        };
        assert_eq!(choices("srq,seed=5"), choices("srq,seed=5"));
        assert_ne!(choices("srq,seed=5"), choices("srq,seed=6"));
        for receive in 0..4 {
            let count = choices("srq")
                .iter()
                .filter(|choice| **choice == receive)
                .count();
            assert!(
                (10..=40).contains(&count),
                "{receive} is chosen {count} times of 100"
            );
        }
    }

    #[test]
    fn with_both_sources_of_the_index_pages_alternate() {
        let both = policies("record,register");
        let sources = [2, 3].map(|page| both.index_source(page));
        assert_eq!(sources, [IndexSource::Record, IndexSource::Register]);
        for page in [2, 3] {
            assert_eq!(policies("record").index_source(page), IndexSource::Record);
            assert_eq!(
                policies("register").index_source(page),
                IndexSource::Register
            );
        }
    }

    #[test]
    fn timestamps_begin_just_below_an_overflow_of_32_bits() {
        for ticks in [0, 12_345, 1 << 40, (1 << 40) - 1] {
            for stepped in [false, true] {
                let offset = policies("counters").timestamp_offset(ticks, stepped);
                let low = ticks.wrapping_add(offset) as u32;
                assert!(low > u32::MAX - 4_000_000, "{ticks}: {low:#x}");
            }
        }
    }
}
