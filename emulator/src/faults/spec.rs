//! Parses and formats the value of `--faults`.

use std::fmt;
use std::str::FromStr;

use crate::spec::{Nanos, nanoseconds};

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// A packet is dropped.
    Drop,
    /// A packet is duplicated.
    Duplicate,
    /// A packet is delayed.
    Delay,
    /// A packet is swapped with the next one of its QP.
    Reorder,
    /// A message finds no receive although one is posted.
    NotReady,
    /// A CQE carries an unknown error syndrome, and its QP fails.
    CorruptCqe,
    /// A CQE overruns its CQ although there is room.
    OverrunCq,
    /// The QP that sends a packet fails.
    KillQp,
    /// The port that sends a packet goes down for some time.
    PortFlap,
    /// The port that sends a packet reports a changed GID table.
    GidChange,
    /// The device that sends a packet fails permanently.
    DeviceFatal,
    /// A request fails with a bad response error.
    BadResponse,
    /// A request fails with RNR retry exceeded.
    RnrExceeded,
    /// A command fails because the device is out of memory.
    NoMemory,
}

/// Number of kinds.
pub(super) const KINDS: usize = 14;

/// The syntax and description of a kind of fault: its name, what it counts, its
/// default duration if it has one, and its effect.
struct FaultInfo {
    kind: Kind,
    name: &'static str,
    counted: &'static str,
    time: Option<Nanos>,
    effect: &'static str,
}

const fn fault(
    kind: Kind,
    name: &'static str,
    counted: &'static str,
    effect: &'static str,
) -> FaultInfo {
    FaultInfo {
        kind,
        name,
        counted,
        time: None,
        effect,
    }
}

const fn with_duration(mut word: FaultInfo, time: Nanos) -> FaultInfo {
    word.time = Some(time);
    word
}

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;

const FAULTS: [FaultInfo; KINDS] = [
    fault(Kind::Drop, "drop", "packet", "dropped"),
    fault(Kind::Duplicate, "dup", "packet", "duplicated"),
    with_duration(
        fault(Kind::Delay, "delay", "packet", "delayed (100us)"),
        100 * MICROSECOND,
    ),
    fault(
        Kind::Reorder,
        "reorder",
        "packet",
        "swapped with the next one of its QP",
    ),
    fault(
        Kind::NotReady,
        "rnr",
        "receive",
        "no receive found: RNR NAK (RC), lost (UC, UD)",
    ),
    fault(
        Kind::CorruptCqe,
        "corrupt-cqe",
        "completion",
        "unknown error syndrome; its QP fails",
    ),
    fault(
        Kind::OverrunCq,
        "overrun-cq",
        "completion",
        "overruns its CQ: CQ error, and its QPs fail",
    ),
    fault(
        Kind::KillQp,
        "kill-qp",
        "packet",
        "its QP fails: QP fatal, all work flushed",
    ),
    with_duration(
        fault(
            Kind::PortFlap,
            "port-flap",
            "packet",
            "its port goes down, and up again (after 10ms)",
        ),
        10 * MILLISECOND,
    ),
    fault(
        Kind::GidChange,
        "gid-change",
        "packet",
        "its port reports a changed GID table",
    ),
    fault(
        Kind::DeviceFatal,
        "device-fatal",
        "packet",
        "its device fails for good: EIO, all waits wake",
    ),
    fault(
        Kind::BadResponse,
        "bad-response",
        "request",
        "fails with a bad response error; its QP fails",
    ),
    fault(
        Kind::RnrExceeded,
        "rnr-exceeded",
        "request",
        "fails with RNR retry exceeded; its QP fails",
    ),
    fault(
        Kind::NoMemory,
        "enomem",
        "command",
        "fails: the device is out of memory (ENOMEM)",
    ),
];

/// When a kind of fault hits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rule {
    /// Probability for each event, from 0 to 1.
    pub(super) rate: f64,
    /// Numbers of the events that are always hit, counted from 1.
    pub(super) at: Vec<u64>,
    /// Duration of the fault.
    pub(super) time: Nanos,
}

/// The faults to inject. The default is none.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultSpec {
    pub(super) seed: u64,
    pub(super) rules: [Rule; KINDS],
}

impl Default for FaultSpec {
    fn default() -> Self {
        let mut rules: [Rule; KINDS] = Default::default();
        for word in &FAULTS {
            rules[word.kind as usize].time = word.time.unwrap_or(0);
        }
        Self { seed: 0, rules }
    }
}

/// An entry of a fault list that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?}: {reason}")]
pub struct SpecError {
    /// The entry as it was given.
    pub word: String,
    /// What is wrong with the entry, and what is accepted.
    pub reason: String,
}

impl FaultSpec {
    /// Returns a short description of the syntax, for help texts.
    #[must_use]
    pub fn help() -> String {
        let mut text = String::from(
            "A comma list of: seed=N, NAME=P (each event with probability P from 0 to 1),\n\
             NAME@N (the N-th event, from 1; may be repeated). delay and port-flap take a\n\
             duration after a colon, in ns, us, ms or s: delay=0.05:100us.\n",
        );
        for word in &FAULTS {
            let FaultInfo {
                name,
                counted,
                effect,
                ..
            } = word;
            text += &format!("  {name:<13} {counted:<11} {effect}\n");
        }
        text += "Every process counts its own packets, receives, completions and commands.";
        text
    }

    /// Returns the same faults with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns whether no fault is injected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules
            .iter()
            .all(|it| it.rate == 0.0 && it.at.is_empty())
    }

    fn read(&mut self, text: &str) -> Result<(), String> {
        let names = || FAULTS.map(|it| it.name).join(", ");
        if let Some(seed) = text.strip_prefix("seed=") {
            self.seed = seed
                .parse()
                .map_err(|_| "invalid seed: expected a number from 0 to 2^64 - 1".to_owned())?;
            return Ok(());
        }
        let at = text.find(['=', '@']).ok_or_else(|| {
            format!(
                "invalid entry: expected NAME=PROBABILITY, NAME@COUNT or seed=N; names: {}",
                names()
            )
        })?;
        let (name, rest) = (&text[..at], &text[at + 1..]);
        let word = FAULTS
            .iter()
            .find(|word| word.name == name)
            .ok_or_else(|| format!("unknown fault {name:?}; names: seed, {}", names()))?;
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
                    format!(
                        "invalid probability {value:?}: expected a number from 0 to 1, such as 0.01"
                    )
                })?;
        } else {
            let count = value.parse().ok().filter(|&count: &u64| count > 0);
            rule.at.push(count.ok_or_else(|| {
                let counted = word.counted;
                format!("invalid count {value:?}: expected the number of the {counted}, from 1")
            })?);
        }
        if let Some(time) = time {
            if word.time.is_none() {
                return Err(format!(
                    "{name} takes no duration: only delay and port-flap do"
                ));
            }
            rule.time = nanoseconds(time).ok_or_else(|| {
                format!("invalid duration {time:?}: expected one such as 500ns, 100us, 2ms or 1s")
            })?;
        }
        Ok(())
    }
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

/// Formats the faults in the syntax of `--faults`.
impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        for word in &FAULTS {
            let rule = &self.rules[word.kind as usize];
            let time = match word.time {
                Some(default) if default != rule.time => format!(":{}ns", rule.time),
                _ => String::new(),
            };
            // One that never happens, but whose duration was given, is written too.
            if rule.rate > 0.0 || (rule.at.is_empty() && !time.is_empty()) {
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
    fn parsing_and_formatting_are_inverse() {
        let texts = [
            "seed=0",
            "seed=7,drop=0.01,dup=0.01,delay=0.05,rnr=0.02,kill-qp@500",
            "seed=1,delay=1:7000ns,reorder=0.5,corrupt-cqe@3,overrun-cq@9",
            "seed=18446744073709551615,port-flap@5:1000000ns,port-flap@9:1000000ns,gid-change@2,device-fatal@1",
        ];
        for text in texts {
            assert_eq!(text.parse::<FaultSpec>().unwrap().to_string(), text);
        }
        let defaults: FaultSpec = " seed=2, delay=0.5:100us ".parse().unwrap();
        assert_eq!(defaults.to_string(), "seed=2,delay=0.5");
        let never: FaultSpec = "delay=0:7ns".parse().unwrap();
        assert_eq!(never.to_string(), "seed=0,delay=0:7ns");
        assert!(never.is_empty());
        assert!(FaultSpec::default().is_empty() && !defaults.is_empty());
        assert_eq!(defaults.with_seed(3).to_string(), "seed=3,delay=0.5");
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
    fn an_invalid_entry_is_reported_with_what_is_accepted() {
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
    fn the_help_lists_every_fault() {
        let help = FaultSpec::help();
        for word in &FAULTS {
            assert!(help.contains(&format!("  {} ", word.name)), "{}", word.name);
        }
        assert!(help.lines().all(|line| line.len() <= 78), "{help}");
    }

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        for (index, word) in FAULTS.iter().enumerate() {
            assert_eq!(word.kind as usize, index);
        }
    }
}
