//! The values of options, and their parsers.

use std::time::Duration;

use crate::results::Condition;
use crate::stats::Reported;

/// The TCP port of the control connection, as in perftest.
pub(crate) const PORT: u16 = 18515;
/// The environment variable for the address on which DAT's service points listen.
pub(crate) const LISTEN: &str = "DAT_LISTEN";

/// Defines an option's values: the enum, and their names on the command line, in JSON and in
/// the output.
macro_rules! choices {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $value:ident = $text:tt,)*
    }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
        $(#[$meta])*
        $vis enum $name {
            $($(#[$doc])* #[value(name = $text)] #[serde(rename = $text)] $value,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $name {
            $vis fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    };
}
pub(crate) use choices;

choices! {
    /// The data path.
    pub(crate) enum Path {
        /// Direct on mlx5 devices, else verbs
        Auto = "auto",
        /// The engine writes the device's rings
        Direct = "direct",
        /// libibverbs
        Verbs = "verbs",
    }
}

choices! {
    /// The measured operation.
    pub(crate) enum Operation {
        /// Send into a posted receive, answered by a send
        Send = "send",
        /// RDMA write, answered by an RDMA write (lat: --last-byte says how it is noticed)
        Write = "write",
        /// RDMA write with immediate data, noticed by the receive that it takes, answered likewise
        WriteImm = "write-imm",
        /// RDMA read of the other side's memory
        Read = "read",
        /// Fetch-and-add on 8 bytes of the other side's memory
        FetchAdd = "fetch-add",
        /// Compare-and-swap on 8 bytes of the other side's memory
        CompareSwap = "compare-swap",
    }
}

impl Operation {
    /// Returns which part of the round trip is reported, by perftest's convention.
    pub(crate) fn reported(self) -> Reported {
        match self.fetches() {
            false => Reported::HalfRoundTrip,
            true => Reported::FullRoundTrip,
        }
    }

    /// Returns whether the completion of a request is its answer: data come back, and the other
    /// side's processor takes no part.
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Self::Read) || self.is_atomic()
    }

    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Returns whether each message takes a receive of the other side.
    pub(crate) fn takes_receives(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Returns whether its requests have values that depend on their number.
    pub(crate) fn is_numbered(self) -> bool {
        self == Self::WriteImm || self.is_atomic()
    }
}

choices! {
    /// Whether the receiver of an RDMA write polls the last byte of its memory.
    #[derive(Default)]
    pub(crate) enum LastByte {
        /// If the devices of both sides promise the order of a message's bytes
        #[default]
        Auto = "auto",
        /// Also if they do not promise it
        Force = "force",
        /// Not at all: an empty send follows each write
        Never = "never",
    }
}

choices! {
    /// The measured interface; all of them use the same engine.
    pub(crate) enum Api {
        /// The engine, without DAT
        Engine = "engine",
        /// DAT's Rust types (dat_api::safe)
        Rust = "rust",
        /// DAT's C calls (libdat.so, loaded at run time)
        C = "c",
    }
}

choices! {
    /// The program on the other side.
    #[derive(Default)]
    pub(crate) enum PeerProgram {
        /// dat-bench
        #[default]
        DatBench = "dat-bench",
        /// perftest: ib_send_lat, ib_write_bw, ...
        Perftest = "perftest",
    }
}

choices! {
    /// A wait policy of DAT.
    pub(crate) enum Wait {
        /// Spin
        Poll = "poll",
        /// Halt the core between polls until the next completion is written
        Umwait = "umwait",
        /// Spin for a learned time, then sleep
        Adaptive = "adaptive",
        /// Sleep at once
        Block = "block",
    }
}

/// Parses a positive time in seconds, with fractions.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 1e6;
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected seconds, above 0 and up to {LONGEST}")),
    }
}

/// Parses messages per second, with the suffixes k and M as powers of 1000.
pub(crate) fn per_second(text: &str) -> Result<f64, String> {
    const MOST: f64 = 1e8;
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1e6),
            None => (text, 1.0),
        },
    };
    match digits.parse::<f64>().map(|number| number * unit) {
        Ok(rate) if (1.0..=MOST).contains(&rate) => Ok(rate),
        _ => Err("expected messages per second, 1 to 100M, such as 500, 10k or 1.5M".into()),
    }
}

/// Parses one CPU number. `host::pin` refuses a CPU that does not exist.
pub(crate) fn cpu(text: &str) -> Result<usize, String> {
    if text.contains([',', '-']) {
        return Err("expected CPU numbers with commas between them; there are no ranges".into());
    }
    text.parse()
        .map_err(|_| "expected a CPU number, as in /proc/cpuinfo".into())
}

/// Parses a condition of a command that measures: there is no earlier result.
pub(crate) fn absolute(text: &str) -> Result<Condition, String> {
    let condition: Condition = text.parse()?;
    match condition.is_change() {
        true => Err("a change such as +10% needs two result files: use 'dat-bench diff'".into()),
        false => Ok(condition),
    }
}
