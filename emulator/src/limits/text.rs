//! The language of `--limits`.

use std::fmt;
use std::str::FromStr;

use super::{Limits, Profile};

/// What a profile's name stands behind.
const PROFILE: &str = "profile:";

/// A limit that takes a number.
struct Key {
    name: &'static str,
    /// Smallest value that leaves a device that works.
    least: u64,
    get: fn(&Limits) -> u64,
    set: fn(&mut Limits, u64),
    means: &'static str,
}

/// A feature that can be missing.
struct Word {
    name: &'static str,
    is_missing: fn(&Limits) -> bool,
    take_away: fn(&mut Limits),
    means: &'static str,
}

macro_rules! keys {
    ($($field:ident from $least:literal: $means:literal,)*) => {
        &[$(Key {
            name: stringify!($field),
            least: $least,
            get: |limits| limits.$field.into(),
            // A value was compared with the device's own before: it fits.
            set: |limits, value| limits.$field = value.try_into().unwrap_or(limits.$field),
            means: $means,
        }),*]
    };
}

const KEYS: &[Key] = keys! {
    max_qp from 1: "queue pairs of a process; more: ENOMEM",
    max_qp_wr from 1: "requests of a send or receive queue; more: EINVAL",
    max_sge from 1: "segments of a request; a QP with more: EINVAL",
    max_sge_rd from 1: "segments of an RDMA read; more: it fails (QP operation)",
    max_cq from 1: "completion queues of a process; more: ENOMEM",
    max_cqe from 1: "completions of a CQ, enforced as 2^n-1; more: EINVAL",
    max_mr from 1: "memory regions of a process; more: ENOMEM",
    max_mr_size from 1: "bytes of a memory region; more: EINVAL",
    max_pd from 1: "protection domains of a process; more: ENOMEM",
    max_qp_rd_atom from 0: "reads a QP serves at once; more at modify: EINVAL",
    max_qp_init_rd_atom from 0: "reads a QP has under way; more at modify: EINVAL",
    max_mw from 0: "memory windows; more: ENOMEM, with 0 EOPNOTSUPP",
    max_srq from 0: "shared receive queues; more: ENOMEM, with 0 EOPNOTSUPP",
    max_srq_wr from 1: "receives of an SRQ; more: EINVAL",
    max_srq_sge from 1: "segments of an SRQ's receive, as 2^n-1; more: EINVAL",
    max_inline from 0: "inline bytes of a request; see below",
};

const WORDS: &[Word] = &[
    Word {
        name: "no_cq_resize",
        is_missing: |limits| !limits.resizes_cqs,
        take_away: |limits| limits.resizes_cqs = false,
        means: "ibv_resize_cq: EOPNOTSUPP",
    },
    Word {
        name: "no_srq",
        is_missing: |_| false,
        take_away: |limits| limits.max_srq = 0,
        means: "the same as max_srq=0",
    },
    Word {
        name: "no_atomics",
        is_missing: |limits| !limits.has_atomics,
        take_away: |limits| limits.has_atomics = false,
        means: "atomic_cap is none; remote atomic access: EOPNOTSUPP",
    },
];

/// A word of a list of limits that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?}: {reason}")]
pub struct LimitsError {
    /// The word, as it was given.
    pub word: String,
    /// What is wrong with it, and what is accepted.
    pub reason: String,
}

impl Limits {
    /// The language in a few lines, for help texts.
    #[must_use]
    pub fn help() -> String {
        let mut text = String::from(
            "A comma list of KEY=N and words; later ones replace earlier ones. N is at\n\
             most what the device can do, which stands in brackets. profile:NAME is a list\n\
             of limits that another maker's driver reports; `mlx5-emu info --limits` shows\n\
             them all with their sources.\n",
        );
        for key in KEYS {
            let most = (key.get)(&Self::DEVICE);
            let name = if most == u64::MAX {
                format!("{} [2^64-1]", key.name)
            } else {
                format!("{} [{most}]", key.name)
            };
            text += &format!("  {name:<25} {}\n", key.means);
        }
        for word in WORDS {
            text += &format!("  {:<25} {}\n", word.name, word.means);
        }
        text += "max_inline: libmlx5 rounds the inline size up to what its WQEs hold (60, 124,\n\
                 188, ... bytes on an RC QP) before the kernel sees it. A QP that must have been\n\
                 created with more than max_inline: EINVAL. One that may have been created with\n\
                 as much or less is created, and the capabilities that come back say how much\n\
                 it has: max_inline at most. A request with more inline data than that fails\n\
                 (local QP operation error). ibv_query_qp answers what libmlx5 believes.\n\
                 Immediate data and solicited events cannot be taken away: no attribute of an\n\
                 mlx5 device says that they are missing.";
        text
    }

    fn read(&mut self, word: &str) -> Result<(), String> {
        if let Some(word) = WORDS.iter().find(|it| it.name == word) {
            (word.take_away)(self);
            return Ok(());
        }
        if let Some(name) = word.strip_prefix(PROFILE) {
            let profile = Profile::find(name)
                .ok_or_else(|| format!("unknown profile; known are {}", Profile::names()))?;
            profile.apply(self);
            return Ok(());
        }
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let most = |key: &Key| format!("{}=N", key.name);
            let keys: Vec<_> = KEYS.iter().map(most).collect();
            let words: Vec<_> = WORDS.iter().map(|it| it.name).collect();
            return Err(format!(
                "unknown limit; known are {}, {}, {PROFILE}NAME",
                keys.join(", "),
                words.join(", ")
            ));
        };
        let most = (key.get)(&Self::DEVICE);
        match value.parse() {
            Ok(value) if (key.least..=most).contains(&value) => {
                (key.set)(self, value);
                Ok(())
            }
            _ => Err(format!(
                "expected {name}=N with N from {} to {most}, which is what the device can do",
                key.least
            )),
        }
    }

    /// Takes a word of a profile. A number above what this device can do is cut
    /// to that; returns whether it was.
    pub(super) fn lower(&mut self, word: &str) -> bool {
        let over = word.split_once('=').and_then(|(name, value)| {
            let key = KEYS.iter().find(|key| key.name == name)?;
            let most = (key.get)(&Self::DEVICE);
            (value.parse::<u64>().ok()? > most).then_some((key, most))
        });
        match over {
            Some((key, most)) => (key.set)(self, most),
            None => self.read(word).expect("profiles consist of known words"),
        }
        over.is_some()
    }
}

impl FromStr for Limits {
    type Err = LimitsError;

    fn from_str(text: &str) -> Result<Self, LimitsError> {
        let mut limits = Self::DEVICE;
        for word in text.split(',') {
            let word = word.trim();
            limits.read(word).map_err(|reason| LimitsError {
                word: word.to_owned(),
                reason,
            })?;
        }
        Ok(limits)
    }
}

/// What is less than the device can do, as it would be written.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        for key in KEYS {
            let value = (key.get)(self);
            if value != (key.get)(&Self::DEVICE) {
                words.push(format!("{}={value}", key.name));
            }
        }
        let missing = WORDS.iter().filter(|word| (word.is_missing)(self));
        words.extend(missing.map(|word| word.name.to_owned()));
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_written_again() {
        let texts = [
            "max_sge=1,max_qp_rd_atom=0,max_mw=0,max_srq=0,max_inline=0,no_cq_resize",
            "max_qp=1,max_qp_wr=2,max_sge_rd=3,max_cq=4,max_cqe=5,max_mr=6,max_mr_size=7,max_pd=8",
            "max_qp_init_rd_atom=1,max_srq_wr=2,max_srq_sge=3,max_inline=101,no_atomics",
            "max_mr_size=18446744073709551614",
        ];
        for text in texts {
            assert_eq!(text.parse::<Limits>().unwrap().to_string(), text);
        }
        assert_eq!(Limits::DEVICE.to_string(), "");
        let limits: Limits = " no_srq , max_sge=2, max_sge=3".parse().unwrap();
        assert_eq!(limits.to_string(), "max_sge=3,max_srq=0");
        let own: Limits = "max_sge=30,max_mr_size=18446744073709551615"
            .parse()
            .unwrap();
        assert_eq!(own, Limits::DEVICE);
    }

    #[test]
    fn a_refusal_names_the_word_and_what_is_accepted() {
        for (text, word, hint) in [
            ("max_sges=1", "max_sges=1", "max_qp=N, max_qp_wr=N"),
            ("max_ee=0", "max_ee=0", "no_cq_resize, no_srq, no_atomics"),
            ("", "", "unknown limit"),
            ("max_sge=1,,", "", "unknown limit"),
            ("no_imm", "no_imm", "unknown limit"),
            ("no_srq=1", "no_srq=1", "unknown limit"),
            ("max_sge", "max_sge", "max_sge=N with N from 1 to 30"),
            ("max_sge=0", "max_sge=0", "from 1 to 30"),
            ("max_sge=31", "max_sge=31", "from 1 to 30"),
            ("max_sge=-1", "max_sge=-1", "from 1 to 30"),
            ("max_sge=two", "max_sge=two", "from 1 to 30"),
            ("max_inline=1005", "max_inline=1005", "from 0 to 1004"),
            (
                "max_srq=4294967296",
                "max_srq=4294967296",
                "from 0 to 65535",
            ),
            (
                "max_mr_size=18446744073709551616",
                "max_mr_size=18446744073709551616",
                "from 1 to 18446744073709551615",
            ),
        ] {
            let error = text.parse::<Limits>().unwrap_err();
            assert_eq!(error.word, word);
            assert!(error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn the_help_names_every_limit() {
        let help = Limits::help();
        for name in KEYS
            .iter()
            .map(|key| key.name)
            .chain(WORDS.iter().map(|word| word.name))
        {
            assert!(help.contains(&format!("  {name} ")), "{name}");
        }
        assert!(help.lines().all(|line| line.len() <= 88), "{help}");
    }
}
