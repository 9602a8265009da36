//! The commands, and what each of them calls.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand};

use crate::bw::{self, options::BwArgs, options::Throughput};
use crate::compare::{self, options::CompareArgs};
use crate::cost::{self, options::CostArgs};
use crate::devices::{self, options::DevicesArgs};
use crate::diff::{self, options::DiffArgs};
use crate::failure::Failure;
use crate::lat::{self, options::LatArgs};
use crate::output;
use crate::page::{self, options::ReportArgs};
use crate::scale::{self, options::ScaleArgs};
use crate::wake::{self, options::WakeArgs};

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
    #[command(long_about = devices::options::ABOUT, after_long_help = devices::options::EXAMPLES, after_help = "See --help for examples.")]
    Devices(DevicesArgs),
    /// Measure ping-pong latency, in one process or between two
    #[command(long_about = lat::options::ABOUT, after_long_help = lat::options::EXAMPLES, after_help = "See --help for examples and for how to get good numbers.")]
    Lat(LatArgs),
    /// Measure bandwidth, one way or both ways
    #[command(long_about = bw::options::ABOUT, after_long_help = bw::options::EXAMPLES, after_help = "See --help for what the columns mean, and for examples.")]
    Bw(BwArgs),
    /// Measure the rate of small messages
    #[command(long_about = bw::options::RATE_ABOUT, after_long_help = bw::options::EXAMPLES, after_help = "See --help for examples, and 'bw --help' for what the columns mean.")]
    Rate(BwArgs),
    /// Measure the processor cost of posts and polls, beside libmlx5
    #[command(long_about = cost::options::ABOUT, after_long_help = cost::options::EXAMPLES, after_help = "See --help for how the figures are measured, their limits, and examples.")]
    Cost(CostArgs),
    /// Measure wake-up latency and CPU time of waiting, per wait policy
    #[command(long_about = wake::options::ABOUT, after_long_help = wake::options::EXAMPLES, after_help = "See --help for how the figures are measured, their limits, and examples.")]
    Wake(WakeArgs),
    /// Measure cost per message and memory for 1 to 10,000 endpoints on one SRQ
    #[command(long_about = scale::options::ABOUT, after_long_help = scale::options::EXAMPLES, after_help = "See --help for how the figures are measured, and for examples.")]
    Scale(ScaleArgs),
    /// Measure the same ping-pong with perftest and with dat-bench, in turns
    #[command(long_about = compare::options::ABOUT, after_long_help = compare::options::EXAMPLES, after_help = "See --help for how the programs are run, and for examples.")]
    Compare(CompareArgs),
    /// Compare two result files
    #[command(long_about = diff::options::ABOUT, after_long_help = diff::options::EXAMPLES, after_help = "See --help for how cases are compared, and for examples.")]
    Diff(DiffArgs),
    /// Make one HTML page with plots from result files
    #[command(long_about = page::options::ABOUT, after_long_help = page::options::EXAMPLES, after_help = "See --help for what the page shows, and for examples.")]
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

/// Runs a command.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Devices(args) => devices::run(args),
        Command::Lat(args) => lat::run(args),
        Command::Bw(args) => bw::run(Throughput::Bw, args),
        Command::Rate(args) => bw::run(Throughput::Rate, args),
        Command::Cost(args) => cost::run(args),
        Command::Wake(args) => wake::run(args),
        Command::Scale(args) => scale::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Report(args) => page::run(args),
        Command::Generate { folder } => generate(folder),
    }
}

/// Writes the manual pages and shell completions of this program.
fn generate(folder: &Path) -> Result<(), Failure> {
    let written = cli_docs::write(&Cli::command(), folder).map_err(|error| {
        Failure::environment(format!(
            "cannot write below {}: {error}; name another folder",
            folder.display()
        ))
    })?;
    written
        .iter()
        .try_for_each(|path| output::line(format_args!(" wrote {}", path.display())))
}

#[cfg(test)]
mod tests;
