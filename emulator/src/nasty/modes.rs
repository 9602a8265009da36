//! The names of the modes, and lists of them as text.

use std::fmt;
use std::str::FromStr;

use bitflags::bitflags;

use crate::random::hash;

bitflags! {
    /// A set of modes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Modes: u16 {
        /// The index of a send doorbell is read from the doorbell record only.
        const RECORD = 1 << 0;
        /// The index of a send doorbell is read from the register only.
        const REGISTER = 1 << 1;
        /// An arm counts only as it was stored to the register.
        const ARMS = 1 << 2;
        /// BlueFlame copies to a register that another QP rang last are lost.
        const BLUEFLAME = 1 << 3;
        /// The device has no BlueFlame.
        const NO_BLUEFLAME = 1 << 4;
        /// Changes of memory keys are late unless a fence waits for them.
        const UMR = 1 << 5;
        /// QPs take receives from a shared receive queue out of order.
        const SRQ = 1 << 6;
        /// New rings and doorbell records are filled with garbage.
        const POISON = 1 << 7;
        /// A page that cannot be accessed follows every ring.
        const GUARD = 1 << 8;
        /// Object numbers and timestamps begin just below a power of two.
        const COUNTERS = 1 << 9;
        /// Completion events are late.
        const INTERRUPTS = 1 << 10;
        /// Payload becomes visible in parts, the last byte first.
        const PARTS = 1 << 11;
        /// QP numbers are reused at once.
        const REUSE = 1 << 12;
        /// Registered pages are pinned.
        const PIN = 1 << 13;
    }
}

/// A mode, its name in a list, and its effect.
struct Info {
    mode: Modes,
    name: &'static str,
    effect: &'static str,
}

const fn info(mode: Modes, name: &'static str, effect: &'static str) -> Info {
    Info { mode, name, effect }
}

const MODES: [Info; 14] = [
    info(
        Modes::RECORD,
        "record",
        "send doorbells: reads only the doorbell record",
    ),
    info(
        Modes::REGISTER,
        "register",
        "send doorbells: reads only the register",
    ),
    info(
        Modes::ARMS,
        "arms",
        "arms: reads only the register; loses stale ones",
    ),
    info(
        Modes::BLUEFLAME,
        "blueflame",
        "loses copies to a register that another QP rang",
    ),
    info(
        Modes::NO_BLUEFLAME,
        "no-blueflame",
        "no BlueFlame: loses copies and second halves",
    ),
    info(
        Modes::UMR,
        "umr",
        "binds are late unless the next request has a fence",
    ),
    info(
        Modes::SRQ,
        "srq",
        "takes shared receives out of order between QPs",
    ),
    info(
        Modes::POISON,
        "poison",
        "fills new rings and doorbell records with garbage",
    ),
    info(
        Modes::GUARD,
        "guard",
        "puts an inaccessible page behind every ring",
    ),
    info(
        Modes::COUNTERS,
        "counters",
        "CQ and SRQ numbers, timestamps near 2^16, 2^32",
    ),
    info(
        Modes::INTERRUPTS,
        "interrupts",
        "completion events are late, and come together",
    ),
    info(
        Modes::PARTS,
        "parts",
        "payload is visible in parts, last byte first",
    ),
    info(
        Modes::REUSE,
        "reuse",
        "a new QP gets the number of the last destroyed one",
    ),
    info(
        Modes::PIN,
        "pin",
        "uses registered pages even after they are unmapped",
    ),
];

/// The modes of a device, and the seed of their random choices. The default has no
/// mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nasty {
    /// The modes.
    pub modes: Modes,
    /// The seed of random choices.
    pub seed: u64,
}

/// An entry of a list of modes that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?}: {reason}")]
pub struct NastyError {
    /// The entry as it was given.
    pub word: String,
    /// What is wrong with the entry, and what is accepted.
    pub reason: String,
}

impl Nasty {
    /// Returns whether no mode is set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.modes.is_empty()
    }

    /// Returns the names of all modes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MODES.iter().map(|info| info.name)
    }

    /// Returns a short description of the syntax, for help texts.
    #[must_use]
    pub fn help() -> String {
        let mut text = String::from(
            "A comma list of modes; all; random (each mode with an even chance, by the\n\
             seed); -NAME (without this mode); seed=N (the seed of random choices).\n",
        );
        for Info { name, effect, .. } in &MODES {
            text += &format!("  {name:<13} {effect}\n");
        }
        text += "With both record and register, doorbell pages alternate between the two.";
        text
    }

    /// Returns the modes that a seed selects, each with an even chance.
    fn random(seed: u64) -> Modes {
        /// Distinguishes these numbers from those of faults and of other choices.
        const KIND: u64 = 0x6e_6173_7479;
        let bits = Modes::from_bits_truncate(hash(seed, KIND, 0) as u16);
        bits & Modes::all()
    }
}

fn mode(name: &str, word: &str) -> Result<Modes, NastyError> {
    let found = MODES.iter().find(|info| info.name == name);
    found.map(|info| info.mode).ok_or_else(|| {
        let names: Vec<_> = Nasty::names().collect();
        NastyError {
            word: word.to_owned(),
            reason: format!(
                "unknown mode: expected all, random, seed=N, -NAME, or one of {}",
                names.join(", ")
            ),
        }
    })
}

impl FromStr for Nasty {
    type Err = NastyError;

    fn from_str(text: &str) -> Result<Self, NastyError> {
        let (mut modes, mut without) = (Modes::empty(), Modes::empty());
        let (mut seed, mut is_random) = (0, false);
        for word in text.split(',').map(str::trim) {
            if let Some(number) = word.strip_prefix("seed=") {
                seed = number.parse().map_err(|_| NastyError {
                    word: word.to_owned(),
                    reason: "invalid seed: expected a number from 0 to 2^64 - 1".to_owned(),
                })?;
            } else if let Some(name) = word.strip_prefix('-') {
                without |= mode(name, word)?;
            } else {
                match word {
                    "all" => modes = Modes::all(),
                    "random" => is_random = true,
                    name => modes |= mode(name, word)?,
                }
            }
        }
        if is_random {
            modes |= Self::random(seed);
        }
        Ok(Self {
            modes: modes - without,
            seed,
        })
    }
}

/// Formats the modes in the syntax of `--nasty`.
impl fmt::Display for Nasty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        let mut set = MODES.iter().filter(|info| self.modes.contains(info.mode));
        set.try_for_each(|info| write!(f, ",{}", info.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_and_formatting_are_inverse() {
        for text in [
            "seed=0",
            "seed=7,record,umr",
            "seed=18446744073709551615,parts",
        ] {
            assert_eq!(text.parse::<Nasty>().unwrap().to_string(), text);
        }
        let all: Nasty = "all".parse().unwrap();
        assert_eq!(all.modes, Modes::all());
        assert_eq!(all.to_string().parse(), Ok(all));
        assert!(Nasty::default().is_empty() && !all.is_empty());
    }

    #[test]
    fn every_mode_has_a_name_and_a_line_of_help() {
        let help = Nasty::help();
        let mut named = Modes::empty();
        for info in &MODES {
            assert!(!named.intersects(info.mode), "{} twice", info.name);
            named |= info.mode;
            assert!(help.contains(&format!("  {} ", info.name)), "{}", info.name);
        }
        assert_eq!(named, Modes::all());
        assert!(help.lines().all(|line| line.len() <= 78), "{help}");
    }

    #[test]
    fn a_mode_can_be_taken_out_of_all_wherever_it_stands() {
        for text in ["all,-guard", "-guard,all"] {
            let nasty: Nasty = text.parse().unwrap();
            assert_eq!(nasty.modes, Modes::all() - Modes::GUARD);
        }
    }

    #[test]
    fn random_modes_depend_on_the_seed_wherever_it_stands() {
        let of = |seed: u64| {
            let nasty: Nasty = format!("random,seed={seed}").parse().unwrap();
            nasty.modes
        };
        assert_eq!(of(3), "seed=3,random".parse::<Nasty>().unwrap().modes);
        let sets: Vec<_> = (0..64).map(of).collect();
        for info in &MODES {
            let count = sets.iter().filter(|set| set.contains(info.mode)).count();
            assert!(
                (16..=48).contains(&count),
                "{}: {count} of 64 seeds",
                info.name
            );
        }
    }

    #[test]
    fn an_invalid_entry_is_reported_with_what_is_accepted() {
        for (text, word, hint) in [
            ("", "", "one of record, register, arms"),
            ("record,recrod", "recrod", "unknown mode"),
            ("-recrod", "-recrod", "unknown mode"),
            ("all,seed=x", "seed=x", "2^64"),
        ] {
            let error = text.parse::<Nasty>().unwrap_err();
            assert_eq!(error.word, word);
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
