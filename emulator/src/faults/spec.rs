//! The language of `--faults`.

use std::fmt;
use std::str::FromStr;

use crate::nic::Nanos;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// A packet is lost.
    Drop,
    /// A packet arrives twice.
    Duplicate,
    /// A packet arrives later.
    Delay,
    /// A packet changes places with the next one of its QP.
    Reorder,
    /// A message finds no receive, though one is posted.
    NotReady,
    /// A completion is an error that no driver knows, and its QP fails.
    CorruptCqe,
    /// A completion finds its CQ full, though it is not.
    OverrunCq,
    /// The QP that sends a packet fails.
    KillQp,
    /// The port that sends a packet goes down for a while.
    PortFlap,
    /// The GID table of the port that sends a packet is announced as changed.
    GidChange,
    /// The device that sends a packet fails, for good.
    DeviceFatal,
    /// A request fails as if the peer's answer had made no sense.
    BadResponse,
    /// A request fails as if the peer had had no receive for too long.
    RnrExceeded,
    /// A command finds the device's memory used up.
    NoMemory,
}

/// How many kinds there are.
pub(super) const KINDS: usize = 14;

/// A kind as it is written: its name, what is counted, whether it takes a
/// time and which it has otherwise, and what it does.
struct Word {
    kind: Kind,
    name: &'static str,
    counted: &'static str,
    time: Option<Nanos>,
    does: &'static str,
}

const fn word(kind: Kind, name: &'static str, counted: &'static str, does: &'static str) -> Word {
    Word {
        kind,
        name,
        counted,
        time: None,
        does,
    }
}

const fn lasting(mut word: Word, time: Nanos) -> Word {
    word.time = Some(time);
    word
}

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;

const WORDS: [Word; KINDS] = [
    word(Kind::Drop, "drop", "packet", "lost"),
    word(Kind::Duplicate, "dup", "packet", "arrives twice"),
    lasting(
        word(Kind::Delay, "delay", "packet", "arrives later (100us)"),
        100 * MICROSECOND,
    ),
    word(
        Kind::Reorder,
        "reorder",
        "packet",
        "changes places with the next one of its QP",
    ),
    word(
        Kind::NotReady,
        "rnr",
        "receive",
        "not ready: RNR NAK (RC), message lost (UC, UD)",
    ),
    word(
        Kind::CorruptCqe,
        "corrupt-cqe",
        "completion",
        "an error of no known syndrome; its QP fails",
    ),
    word(
        Kind::OverrunCq,
        "overrun-cq",
        "completion",
        "overruns its CQ: CQ error, and its QPs fail",
    ),
    word(
        Kind::KillQp,
        "kill-qp",
        "packet",
        "its QP fails: QP fatal, all work flushed",
    ),
    lasting(
        word(
            Kind::PortFlap,
            "port-flap",
            "packet",
            "its port goes down, and up again (10ms)",
        ),
        10 * MILLISECOND,
    ),
    word(
        Kind::GidChange,
        "gid-change",
        "packet",
        "its port announces a new GID table",
    ),
    word(
        Kind::DeviceFatal,
        "device-fatal",
        "packet",
        "its device fails for good: EIO, all waits wake",
    ),
    word(
        Kind::BadResponse,
        "bad-response",
        "request",
        "the peer's answer made no sense; its QP fails",
    ),
    word(
        Kind::RnrExceeded,
        "rnr-exceeded",
        "request",
        "the peer had no receive for too long; its QP fails",
    ),
    word(
        Kind::NoMemory,
        "enomem",
        "command",
        "the device has no memory for it: ENOMEM",
    ),
];

/// When a kind of fault happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rule {
    /// Probability of each, from 0 to 1.
    pub(super) rate: f64,
    /// Those counted, from 1, that it happens to in any case.
    pub(super) at: Vec<u64>,
    /// For how long.
    pub(super) time: Nanos,
}

/// What is to go wrong. The default is nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultSpec {
    pub(super) seed: u64,
    pub(super) rules: [Rule; KINDS],
}

impl Default for FaultSpec {
    fn default() -> Self {
        let mut rules: [Rule; KINDS] = Default::default();
        for word in &WORDS {
            rules[word.kind as usize].time = word.time.unwrap_or(0);
        }
        Self { seed: 0, rules }
    }
}

/// A word of a specification that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?}: {reason}")]
pub struct SpecError {
    /// The word, as it was given.
    pub word: String,
    /// What is wrong with it, and what may be said.
    pub reason: String,
}

impl FaultSpec {
    /// The language in a few lines, for help texts.
    #[must_use]
    pub fn help() -> String {
        let mut text = String::from(
            "A comma list of: seed=N, NAME=P (each with probability P from 0 to 1),\n\
             NAME@N (the N-th, from 1; may be repeated). delay and port-flap take a\n\
             time behind a colon, in ns, us, ms or s: delay=0.05:100us.\n",
        );
        for word in &WORDS {
            let Word {
                name,
                counted,
                does,
                ..
            } = word;
            text += &format!("  {name:<13} {counted:<11} {does}\n");
        }
        text += "Every process counts what it sends, receives and completes itself.";
        text
    }

    /// The same faults with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether nothing goes wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules
            .iter()
            .all(|it| it.rate == 0.0 && it.at.is_empty())
    }

    fn read(&mut self, text: &str) -> Result<(), String> {
        let names = || WORDS.map(|it| it.name).join(", ");
        if let Some(seed) = text.strip_prefix("seed=") {
            self.seed = seed
                .parse()
                .map_err(|_| "the seed is a number from 0 to 2^64 - 1".to_owned())?;
            return Ok(());
        }
        let at = text.find(['=', '@']).ok_or_else(|| {
            format!(
                "say NAME=PROBABILITY, NAME@COUNT or seed=N; names: {}",
                names()
            )
        })?;
        let (name, rest) = (&text[..at], &text[at + 1..]);
        let word = WORDS
            .iter()
            .find(|word| word.name == name)
            .ok_or_else(|| format!("there is no fault {name:?}; names: seed, {}", names()))?;
        let rule = &mut self.rules[word.kind as usize];
        let (value, time) = match rest.split_once(':') {
            Some((value, time)) => (value, Some(time)),
            None => (rest, None),
        };
        if text.as_bytes()[at] == b'=' {
            rule.rate = value
                .parse()
                .ok()
                .filter(|rate| (0.0..=1.0).contains(rate))
                .ok_or_else(|| {
                    format!("{value:?} is no probability: give a number from 0 to 1, as 0.01")
                })?;
        } else {
            let count = value.parse().ok().filter(|&count: &u64| count > 0);
            rule.at.push(count.ok_or_else(|| {
                let counted = word.counted;
                format!("{value:?} is no count: give the number of the {counted}, from 1")
            })?);
        }
        if let Some(time) = time {
            if word.time.is_none() {
                return Err(format!("{name} takes no time; only delay and port-flap do"));
            }
            rule.time = nanoseconds(time).ok_or_else(|| {
                format!("{time:?} is no time: give one as 500ns, 100us, 2ms or 1s")
            })?;
        }
        Ok(())
    }
}

fn nanoseconds(text: &str) -> Option<Nanos> {
    let digits = text.find(|it: char| !it.is_ascii_digit())?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => 1_000 * MILLISECOND,
        _ => return None,
    };
    text[..digits].parse::<Nanos>().ok()?.checked_mul(unit)
}

impl FromStr for FaultSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        for word in text.split(',') {
            let word = word.trim();
            spec.read(word).map_err(|reason| SpecError {
                word: word.to_owned(),
                reason,
            })?;
        }
        Ok(spec)
    }
}

/// As it would be written.
impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        for word in &WORDS {
            let rule = &self.rules[word.kind as usize];
            let time = match word.time {
                Some(usual) if usual != rule.time => format!(":{}ns", rule.time),
                _ => String::new(),
            };
            if rule.rate > 0.0 {
                write!(f, ",{}={}{time}", word.name, rule.rate)?;
            }
            for count in &rule.at {
                write!(f, ",{}@{count}{time}", word.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_written_again() {
        let texts = [
            "seed=0",
            "seed=7,drop=0.01,dup=0.01,delay=0.05,rnr=0.02,kill-qp@500",
            "seed=1,delay=1:7000ns,reorder=0.5,corrupt-cqe@3,overrun-cq@9",
            "seed=18446744073709551615,port-flap@5:1000000ns,port-flap@9:1000000ns,gid-change@2,device-fatal@1",
        ];
        for text in texts {
            assert_eq!(text.parse::<FaultSpec>().unwrap().to_string(), text);
        }
        let usual: FaultSpec = " seed=2, delay=0.5:100us ".parse().unwrap();
        assert_eq!(usual.to_string(), "seed=2,delay=0.5");
        assert!(FaultSpec::default().is_empty() && !usual.is_empty());
        assert_eq!(usual.with_seed(3).to_string(), "seed=3,delay=0.5");
    }

    #[test]
    fn times_have_units() {
        let units = [
            ("5ns", 5),
            ("5us", 5_000),
            ("5ms", 5_000_000),
            ("2s", 2_000_000_000),
        ];
        for (text, expected) in units {
            assert_eq!(nanoseconds(text), Some(expected));
        }
        for text in ["5", "us", "", "5m", "-5us", "99999999999999999999s"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_refusal_names_the_word_and_what_may_be_said() {
        for (text, word, hint) in [
            ("drop", "drop", "NAME=PROBABILITY"),
            ("", "", "names: drop, dup"),
            (
                "drop=0.1,dorp=0.1",
                "dorp=0.1",
                "names: seed, drop, dup, delay",
            ),
            ("drop=2", "drop=2", "from 0 to 1"),
            ("drop=NaN", "drop=NaN", "from 0 to 1"),
            ("drop=-0.1", "drop=-0.1", "from 0 to 1"),
            ("kill-qp@0", "kill-qp@0", "number of the packet, from 1"),
            ("rnr@x", "rnr@x", "number of the receive, from 1"),
            ("delay=0.1:5", "delay=0.1:5", "100us"),
            ("drop=0.1:5us", "drop=0.1:5us", "only delay and port-flap"),
            ("seed=x", "seed=x", "2^64"),
        ] {
            let error = text.parse::<FaultSpec>().unwrap_err();
            assert_eq!(error.word, word);
            assert!(error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn the_help_names_every_fault() {
        let help = FaultSpec::help();
        for word in &WORDS {
            assert!(help.contains(&format!("  {} ", word.name)), "{}", word.name);
        }
        assert!(help.lines().all(|line| line.len() <= 78), "{help}");
    }

    #[test]
    fn words_stand_in_the_order_of_their_kinds() {
        for (index, word) in WORDS.iter().enumerate() {
            assert_eq!(word.kind as usize, index);
        }
    }
}
