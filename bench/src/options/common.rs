//! Options that several commands have.

use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;

use super::values::{Path, absolute, cpu};
use crate::failure::Failure;
use crate::results::{self, Condition, Offer, Percentiles, Unit};

/// Where a command measures.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Device: a name, or 'emu' for the emulated one [default: the best real one, else emulated]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Data path of the engine and DAT [default: DAT_PATH, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) path: Option<Path>,
    /// Port of the device, from 1
    #[arg(short = 'i', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ib_port: u8,
}

/// What a command that measures does with its results. The help of `--fail-if` names the figures
/// of the command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ResultArgs {
    /// Fail with status 3 if a result is unreliable; the result files are written before
    #[arg(long)]
    pub(crate) strict: bool,
    #[arg(long, value_name = "CONDITION", value_parser = absolute)]
    pub(crate) fail_if: Vec<Condition>,
    /// Write the results as JSON; here and for the other files, '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the results as CSV, one row per case
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw the results as SVG; 'dat-bench report' shows several runs together
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// What commands have that measure in worker processes, whose instructions can be counted.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) on: DeviceArgs,
    /// Also count instructions, with valgrind's callgrind
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Pin the measuring thread to this CPU
    #[arg(long, value_name = "LIST", value_parser = cpu)]
    pub(crate) cpu: Option<usize>,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    /// A worker process runs under callgrind: sections are counted, not timed.
    #[arg(long, hide = true, requires = "worker")]
    pub(crate) counted: bool,
}

impl WorkerArgs {
    /// Refuses conditions on figures that the run does not have.
    pub(crate) fn check_conditions(
        &self,
        command: &str,
        figures: &[(&str, Unit)],
    ) -> Result<(), Failure> {
        let is_counted =
            |name: &str| name.ends_with("instructions") || name.ends_with("cache-lines");
        let counted = figures.iter().filter(|(name, _)| is_counted(name));
        let absent: Vec<_> = counted
            .filter(|_| !self.instructions)
            .map(|&(name, _)| (name, "give --instructions, too"))
            .collect();
        let offer = Offer {
            command,
            figures,
            absent: &absent,
            percentiles: Percentiles::None,
        };
        results::check(&self.results.fail_if, &offer)
    }
}

/// The files with the whole distributions.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HistogramArgs {
    /// Write the percentiles as HdrHistogram's text; with several cases, one file for each, with what
    /// distinguishes it in its name
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
    /// Write all histograms as HdrHistogram's log, one tagged line per case
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,
}

/// Refuses a value that is given twice.
pub(crate) fn require_once<T: Display>(option: &str, values: &[T]) -> Result<(), Failure> {
    let words: Vec<String> = values.iter().map(ToString::to_string).collect();
    match (1..words.len()).find(|&at| words[..at].contains(&words[at])) {
        Some(at) => Err(Failure::usage(format!(
            "{option} names {} twice",
            words[at]
        ))),
        None => Ok(()),
    }
}
