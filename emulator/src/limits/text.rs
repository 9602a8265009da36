//! Parses and formats the value of `--limits`.

use std::fmt;
use std::str::FromStr;

use super::{Limits, Profile};

/// The prefix of a profile's name.
const PROFILE: &str = "profile:";

/// A limit that takes a number.
struct Key {
    name: &'static str,
    /// Smallest accepted value.
    min: u64,
    get: fn(&Limits) -> u64,
    set: fn(&mut Limits, u64),
    meaning: &'static str,
}

/// A feature that can be disabled.
struct Feature {
    name: &'static str,
    is_missing: fn(&Limits) -> bool,
    disable: fn(&mut Limits),
    meaning: &'static str,
}

macro_rules! keys {
    ($($field:ident from $min:literal: $meaning:literal,)*) => {
        &[$(Key {
            name: stringify!($field),
            min: $min,
            get: |limits| limits.$field.into(),
            // The caller has compared the value with the device's limit, so it fits.
            set: |limits, value| limits.$field = value.try_into().unwrap_or(limits.$field),
            meaning: $meaning,
        }),*]
    };
}

const KEYS: &[Key] = keys! {
    max_qp from 1: "QPs of a process; more: ENOMEM",
    max_qp_wr from 1: "requests of a send or receive queue; more: EINVAL",
    max_sge from 1: "segments of a request; a QP with more: EINVAL",
    max_sge_rd from 1: "segments of an RDMA read; more: local QP operation error",
    max_cq from 1: "CQs of a process; more: ENOMEM",
    max_cqe from 1: "CQEs of a CQ, enforced as 2^n-1; more: EINVAL",
    max_mr from 1: "memory regions of a process; more: ENOMEM",
    max_mr_size from 1: "bytes of a memory region; more: EINVAL",
    max_pd from 1: "protection domains of a process; more: ENOMEM",
    max_qp_rd_atom from 0: "reads a QP serves at once; more at modify: EINVAL",
    max_qp_init_rd_atom from 0: "reads a QP issues at once; more at modify: EINVAL",
    max_mw from 0: "memory windows; more: ENOMEM, if 0: EOPNOTSUPP",
    max_srq from 0: "SRQs; more: ENOMEM, if 0: EOPNOTSUPP",
    max_srq_wr from 1: "receives of an SRQ; more: EINVAL",
    max_srq_sge from 1: "segments of an SRQ receive, as 2^n-1; more: EINVAL",
    max_inline from 0: "bytes of inline data of a request; see below",
};

const FEATURES: &[Feature] = &[
    Feature {
        name: "no_cq_resize",
        is_missing: |limits| !limits.resizes_cqs,
        disable: |limits| limits.resizes_cqs = false,
        meaning: "ibv_resize_cq: EOPNOTSUPP",
    },
    Feature {
        name: "no_srq",
        is_missing: |_| false,
        disable: |limits| limits.max_srq = 0,
        meaning: "the same as max_srq=0",
    },
    Feature {
        name: "no_atomics",
        is_missing: |limits| !limits.has_atomics,
        disable: |limits| limits.has_atomics = false,
        meaning: "atomic_cap is none; remote atomic access: EOPNOTSUPP",
    },
];

/// An entry of a list of limits that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?}: {reason}")]
pub struct LimitsError {
    /// The entry as it was given.
    pub word: String,
    /// What is wrong with the entry, and what is accepted.
    pub reason: String,
}

impl Limits {
    /// Returns a short description of the syntax, for help texts.
    #[must_use]
    pub fn help() -> String {
        let mut text = String::from(
            "A comma list of KEY=N and features; later entries override earlier ones. The\n\
             maximum of N is the device's own limit, in brackets. profile:NAME stands for the\n\
             limits that another vendor's driver reports; `mlx5-emu info --limits` lists\n\
             all profiles with their sources.\n",
        );
        for key in KEYS {
            let max = (key.get)(&Self::DEVICE);
            let name = if max == u64::MAX {
                format!("{} [2^64-1]", key.name)
            } else {
                format!("{} [{max}]", key.name)
            };
            text += &format!("  {name:<25} {}\n", key.meaning);
        }
        for word in FEATURES {
            text += &format!("  {:<25} {}\n", word.name, word.meaning);
        }
        text += "max_inline: libmlx5 rounds the inline size up to what its WQEs hold (60, 124,\n\
                 188, ... bytes on an RC QP) before the kernel sees it. If the program must have\n\
                 asked for more than max_inline, creating the QP fails with EINVAL. Otherwise the\n\
                 QP is created, and the returned capabilities report max_inline at max. A\n\
                 request with more inline data fails (local QP operation error). ibv_query_qp\n\
                 returns libmlx5's own number.\n\
                 Immediate data and solicited events cannot be disabled: an mlx5 device has no\n\
                 attribute that reports them as missing.";
        text
    }

    fn apply_word(&mut self, word: &str) -> Result<(), String> {
        if let Some(word) = FEATURES.iter().find(|it| it.name == word) {
            (word.disable)(self);
            return Ok(());
        }
        if let Some(name) = word.strip_prefix(PROFILE) {
            let profile = Profile::find(name)
                .ok_or_else(|| format!("unknown profile: expected one of {}", Profile::names()))?;
            profile.apply(self);
            return Ok(());
        }
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let max = |key: &Key| format!("{}=N", key.name);
            let keys: Vec<_> = KEYS.iter().map(max).collect();
            let words: Vec<_> = FEATURES.iter().map(|it| it.name).collect();
            return Err(format!(
                "unknown limit: expected one of {}, {}, {PROFILE}NAME",
                keys.join(", "),
                words.join(", ")
            ));
        };
        let max = (key.get)(&Self::DEVICE);
        match value.parse() {
            Ok(value) if (key.min..=max).contains(&value) => {
                (key.set)(self, value);
                Ok(())
            }
            _ => Err(format!(
                "expected {name}=N with N from {} to {max} (the device's limit)",
                key.min
            )),
        }
    }

    /// Applies an entry of a profile. A number above the device's own limit is
    /// capped to that limit; returns whether it was.
    pub(super) fn lower(&mut self, word: &str) -> bool {
        let over = word.split_once('=').and_then(|(name, value)| {
            let key = KEYS.iter().find(|key| key.name == name)?;
            let max = (key.get)(&Self::DEVICE);
            (value.parse::<u64>().ok()? > max).then_some((key, max))
        });
        match over {
            Some((key, max)) => (key.set)(self, max),
            None => self
                .apply_word(word)
                .expect("profiles consist of known words"),
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
            limits.apply_word(word).map_err(|reason| LimitsError {
                word: word.to_owned(),
                reason,
            })?;
        }
        Ok(limits)
    }
}

/// Formats the limits that are lower than the device's own, in the syntax of
/// `--limits`.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        for key in KEYS {
            let value = (key.get)(self);
            if value != (key.get)(&Self::DEVICE) {
                words.push(format!("{}={value}", key.name));
            }
        }
        let missing = FEATURES.iter().filter(|word| (word.is_missing)(self));
        words.extend(missing.map(|word| word.name.to_owned()));
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_and_formatting_are_inverse() {
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
    fn an_invalid_entry_is_reported_with_the_accepted_values() {
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
    fn the_help_lists_every_limit() {
        let help = Limits::help();
        for name in KEYS
            .iter()
            .map(|key| key.name)
            .chain(FEATURES.iter().map(|word| word.name))
        {
            assert!(help.contains(&format!("  {name} ")), "{name}");
        }
        assert!(help.lines().all(|line| line.len() <= 88), "{help}");
    }
}
