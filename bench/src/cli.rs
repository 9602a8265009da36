//! Options, defaults and help. Short options have perftest's letters.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::results::Condition;
use crate::stats::Reported;

mod bw;
mod common;
mod compare;
mod cost;
mod diff;
mod lat;
mod report;
mod run;
mod scale;
mod wake;

pub(crate) use bw::{BwArgs, Throughput};
pub(crate) use common::{DeviceArgs, HistogramArgs, ResultArgs};
pub(crate) use compare::{CompareArgs, Other};
pub(crate) use cost::CostArgs;
pub(crate) use diff::DiffArgs;
pub(crate) use lat::LatArgs;
pub(crate) use report::ReportArgs;
pub(crate) use run::RunArgs;
pub(crate) use scale::ScaleArgs;
pub(crate) use wake::{Rate, WakeArgs};

/// The TCP port of the control connection, as in perftest.
pub(crate) const PORT: u16 = 18515;
/// The environment variable for the address on which DAT's service points listen.
pub(crate) const LISTEN: &str = "DAT_LISTEN";

/// Benchmarks of uDAPL and its RDMA engine
#[derive(Debug, Parser)]
#[command(name = "dat-bench", version, long_about = ABOUT, after_long_help = EXAMPLES, after_help = "See --help for examples, and COMMAND --help for each command.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the RDMA devices of this host and the data path of each
    #[command(long_about = DEVICES_ABOUT, after_long_help = DEVICES_EXAMPLES, after_help = "See --help for examples.")]
    Devices(DevicesArgs),
    /// Measure ping-pong latency, in one process or between two
    #[command(long_about = lat::ABOUT, after_long_help = lat::EXAMPLES, after_help = "See --help for examples and for how to get good numbers.")]
    Lat(LatArgs),
    /// Measure bandwidth, one way or both ways
    #[command(long_about = bw::ABOUT, after_long_help = bw::EXAMPLES, after_help = "See --help for what the columns mean, and for examples.")]
    Bw(BwArgs),
    /// Measure the rate of small messages
    #[command(long_about = bw::RATE_ABOUT, after_long_help = bw::EXAMPLES, after_help = "See --help for examples, and 'bw --help' for what the columns mean.")]
    Rate(BwArgs),
    /// Measure the processor cost of posts and polls, beside libmlx5
    #[command(long_about = cost::ABOUT, after_long_help = cost::EXAMPLES, after_help = "See --help for how the figures are measured, their limits, and examples.")]
    Cost(CostArgs),
    /// Measure wake-up latency and CPU time of waiting, per wait policy
    #[command(long_about = wake::ABOUT, after_long_help = wake::EXAMPLES, after_help = "See --help for how the figures are measured, their limits, and examples.")]
    Wake(WakeArgs),
    /// Measure cost per message and memory for 1 to 10,000 endpoints on one SRQ
    #[command(long_about = scale::ABOUT, after_long_help = scale::EXAMPLES, after_help = "See --help for how the figures are measured, and for examples.")]
    Scale(ScaleArgs),
    /// Measure the same ping-pong with perftest and with dat-bench, in turns
    #[command(long_about = compare::ABOUT, after_long_help = compare::EXAMPLES, after_help = "See --help for how the programs are run, and for examples.")]
    Compare(CompareArgs),
    /// Compare two result files
    #[command(long_about = diff::ABOUT, after_long_help = diff::EXAMPLES, after_help = "See --help for how cases are compared, and for examples.")]
    Diff(DiffArgs),
    /// Make one HTML page with plots from result files
    #[command(long_about = report::ABOUT, after_long_help = report::EXAMPLES, after_help = "See --help for what the page shows, and for examples.")]
    Report(ReportArgs),
    /// Write manual pages and shell completions below a folder, for the installer
    #[command(hide = true)]
    Generate {
        /// The folder
        folder: PathBuf,
    },
}

const ABOUT: &str = "\
Benchmarks of uDAPL and its RDMA engine.

lat measures latency with histograms, bw bandwidth, rate the rate of small
messages, cost the processor cost of each post and poll, wake the latency and CPU
time of waiting threads, scale the cost of many endpoints; compare runs perftest
beside lat, diff compares two result files, report makes an HTML page of result
files. Times are in microseconds (lat, wake) or nanoseconds (cost, scale).
With '-d emu' every command runs on an emulated ConnectX, without hardware; such
figures say nothing about a NIC.";

const EXAMPLES: &str = "\
Examples:
  dat-bench devices                    the RDMA devices of this host
  dat-bench lat --loopback -d emu      latency on the emulated device, one process
  dat-bench lat -d mlx5_0              server, on one host
  dat-bench lat -d mlx5_0 HOST         client, on another: measures and prints
  dat-bench bw --loopback -d emu       bandwidth on the emulated device
  dat-bench cost -d emu                processor cost of posts and polls
  dat-bench diff a.json b.json         what changed between two runs
  dat-bench report a.json b.json       both in one HTML page, with plots

RUST_LOG=debug logs on standard error what dat-bench, the engine and DAT do before
and between measurements; RUST_LOG=dat_engine=debug,warn logs the engine's part, and
warnings of the rest.

Exit status: 0 good, 1 usage, 2 environment (no device, no locked memory, ...), 3 the run failed.";

const DEVICES_ABOUT: &str = "\
List the RDMA devices of this host and the data path of each.

For each device: whether it is emulated by mlx5-emu, its data path and the
reason for it, its transport, its limits, what DAT offers on it, and its ports
with the GID that connections use. 'direct' means that the engine writes the
rings of an mlx5 device itself, 'verbs' that it uses libibverbs. Sizes are in
bytes. The largest inline size is found by creating queue pairs.";

const DEVICES_EXAMPLES: &str = "\
Examples:
  dat-bench devices                    all devices
  dat-bench devices -d mlx5_0 --json   one device, as JSON on standard output
  dat-bench devices -d emu             the emulated device, no hardware needed

Exit status: 0 good, 1 usage, 2 environment (no device, ...).";

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Device: a name, or 'emu' for the emulated one [default: all]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Data path to assume [default: DAT_PATH, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) path: Option<Path>,
    /// Print JSON to FILE, or to standard output if no FILE is given
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[expect(
        clippy::option_option,
        reason = "absent, given without a file and given with a file differ"
    )]
    pub(crate) json: Option<Option<PathBuf>>,
}

/// The data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// Direct on mlx5 devices, else verbs
    Auto,
    /// The engine writes the device's rings
    Direct,
    /// libibverbs
    Verbs,
}

impl Path {
    /// Returns the value of DAT_PATH for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Verbs => "verbs",
        }
    }
}

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Send into a posted receive, answered by a send
    Send,
    /// RDMA write, answered by an RDMA write (lat: --last-byte says how it is noticed)
    Write,
    /// RDMA read of the other side's memory
    Read,
}

impl Operation {
    /// Returns which part of the round trip is reported, by perftest's convention.
    pub(crate) fn reported(self) -> Reported {
        match self {
            Self::Send | Self::Write => Reported::HalfRoundTrip,
            Self::Read => Reported::FullRoundTrip,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Whether the receiver of an RDMA write polls the last byte of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LastByte {
    /// If the devices of both sides promise the order of a message's bytes
    #[default]
    Auto,
    /// Also if they do not promise it
    Force,
    /// Not at all: an empty send follows each write
    Never,
}

impl LastByte {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Force => "force",
            Self::Never => "never",
        }
    }
}

/// The measured interface; all of them use the same engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Api {
    /// The engine, without DAT
    Engine,
    /// DAT's Rust types (dat_api::safe)
    Rust,
    /// DAT's C calls (libdat.so, loaded at run time)
    C,
}

impl Api {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Rust => "rust",
            Self::C => "c",
        }
    }
}

/// A wait policy of DAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Spin
    Poll,
    /// Halt the core between polls until the next completion is written
    Umwait,
    /// Spin for a learned time, then sleep
    Adaptive,
    /// Sleep at once
    Block,
}

impl Wait {
    /// Returns the value of DAT_WAIT for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Umwait => "umwait",
            Self::Adaptive => "adaptive",
            Self::Block => "block",
        }
    }
}

/// Parses a positive time in seconds, with fractions.
fn seconds(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 1e6;
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected seconds, above 0 and up to {LONGEST}")),
    }
}

/// Parses messages per second, with the suffixes k and M as powers of 1000.
fn per_second(text: &str) -> Result<f64, String> {
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
fn cpu(text: &str) -> Result<usize, String> {
    if text.contains([',', '-']) {
        return Err("expected one CPU number: there is one measuring thread".into());
    }
    text.parse()
        .map_err(|_| "expected a CPU number, as in /proc/cpuinfo".into())
}

/// Parses a condition of a command that measures: there is no earlier result.
fn absolute(text: &str) -> Result<Condition, String> {
    let condition: Condition = text.parse()?;
    match condition.is_change() {
        true => Err("a change such as +10% needs two result files: use 'dat-bench diff'".into()),
        false => Ok(condition),
    }
}

#[cfg(test)]
mod tests;
