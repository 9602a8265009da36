//! `dat-bench cost` as it is typed.

use std::path::PathBuf;

use clap::Args;

use super::{Path, cpu};
use crate::cost::Variant;
use crate::failure::Failure;

pub(super) const ABOUT: &str = "\
Measure what each hot operation costs the processor, beside libmlx5.

Ours (the engine, DAT's Rust types, DAT's C calls) and libmlx5's own verbs do
the same things in one run, each with its locks and without ('-st': libmlx5 by
MLX5_SINGLE_THREADED=1, the engine by its options, DAT by an adapter for one
thread). Each has a process of its own, in turns, on rings of the same size:
512 requests of one segment, completion queues of 1024. Every request asks for
its completion.

How it is measured: sections of 256 operations, of which a round has one of
each kind. Completions are laid ready: the NIC carries out all requests before
the section begins in which their completions are taken. An emulated NIC
stands still during every section, so that no other thread runs. A section in
which a completion was not there in time is left out, and reported.

What is counted (--instructions): all instructions of the calling thread in the
section, by valgrind's callgrind, the calling loop and its checks of what a
call answered included for every variant alike. The figure is the difference
of a section of 256 and one of 128 operations, so that what is done once in a
section cancels.

What the figures are not: latencies. On the emulated device a doorbell is a
store to ordinary memory: on hardware a post costs the write over the bus as
well. Completions are in this core's cache or near it; on hardware taking one
misses the cache when the device has just written it. Sends of 64 bytes that
are not to go inline have 96 bytes with DAT, which decides by length: they
cost the same. DAT has no calls for lists or for several events at a time.";

pub(super) const EXAMPLES: &str = "\
Examples:
  dat-bench cost -d emu                        all of it, no hardware needed
  dat-bench cost -d emu --instructions         and instructions; needs valgrind
  dat-bench cost -d emu --api libmlx5-st,c-st  two of them, side by side
  dat-bench cost -d mlx5_0 --cpu 2 --json cost.json

Exit status: 0 good, 1 usage, 2 environment (no device, no valgrind, ...), 3 the run failed.";

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Device: a name, or 'emu' for the emulated one [default: the best real one, else emulated]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// How ours drives the device [default: as DAT_PATH says, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) path: Option<Path>,
    /// Port of the device
    #[arg(short = 'i', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ib_port: u8,
    /// What is measured, comma-separated [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    api: Vec<Variant>,
    /// Rounds of a turn
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rounds: u32,
    /// Turns that each has, one process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) turns: u32,
    /// Count instructions as well, by valgrind's callgrind
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Pin the measuring thread to this CPU
    #[arg(long, value_name = "LIST", value_parser = cpu)]
    pub(crate) cpu: Option<usize>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// This process measures one of them, for the process that started it.
    #[arg(long, hide = true)]
    pub(crate) worker: Option<Variant>,
    /// It is counted, not timed.
    #[arg(long, hide = true, requires = "worker")]
    pub(crate) counted: bool,
}

impl CostArgs {
    /// What is measured, in the order of the table.
    pub(crate) fn variants(&self) -> Result<Vec<Variant>, Failure> {
        use clap::ValueEnum;
        let repeated = |(at, api)| self.api[..at].contains(api);
        if self.api.iter().enumerate().any(repeated) {
            return Err(Failure::usage("--api names an interface twice"));
        }
        if self.api.is_empty() {
            return Ok(Variant::value_variants().to_vec());
        }
        Ok(self.api.clone())
    }
}
