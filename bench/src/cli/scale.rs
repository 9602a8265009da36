//! `dat-bench scale` as it is typed.

use std::path::PathBuf;

use clap::Args;

use super::{Path, cpu};
use crate::failure::Failure;
use crate::scale::Kind;

pub(super) const ABOUT: &str = "\
Measure what a message costs by the number of endpoints on one shared receive queue.

So many endpoints take their receives from one queue and report to one
completion queue. Messages to them are laid ready, to another endpoint each
time, all over them; then each completion is taken and its receive posted
again, and that is measured: the engine's poll, with the look-up of the queue
pair, and its post. An emulated NIC stands still meanwhile; an endpoint is
connected to itself, so that there are no more queue pairs than endpoints.

Instructions (--instructions) are callgrind's: those of a section of 1024
messages minus those of one of 512, per message. Cache lines are the distinct
ones of 64 bytes that a section of 1024 messages touches, divided by 1024:
callgrind's cache is cold when the section begins, and large enough to lose
nothing. So a line that all messages share counts next to nothing, and one of an
endpoint counts once where each message is for another.

Memory is what the process has more after the endpoints were made (resident),
per endpoint: by the engine, by DAT's Rust types with the attributes that an
endpoint has if nothing is said, and by libibverbs and libmlx5 alone for queue
pairs like the engine's. An emulated device keeps its own state in the same
process, which is in all three. The engine asks libmlx5 for queue pairs that
only do what it does, whose requests are smaller than those that ibv_create_qp
leaves room for: so its endpoints are smaller than libmlx5's queue pairs. DAT's endpoints are not connected; all report to two
dispatchers that can hold all of their completions.";

pub(super) const EXAMPLES: &str = "\
Examples:
  dat-bench scale -d emu                          no hardware needed
  dat-bench scale -d emu --instructions           and instructions and cache lines; needs valgrind
  dat-bench scale -d emu -q 1,64,512 --json scale.json --svg scale.svg

Exit status: 0 good, 1 usage, 2 environment (no device, no valgrind, ...), 3 the run failed.";

#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Device: a name, or 'emu' for the emulated one [default: the best real one, else emulated]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// How the device is driven [default: as DAT_PATH says, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) path: Option<Path>,
    /// Port of the device
    #[arg(short = 'i', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ib_port: u8,
    /// Numbers of endpoints, comma-separated
    #[arg(short = 'q', long, value_name = "LIST", value_delimiter = ',', default_value = "1,10,100,1000,10000", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(crate) endpoints: Vec<u32>,
    /// Sections that are timed, of 1024 messages each
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rounds: u32,
    /// Count instructions and cache lines as well, by valgrind's callgrind
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Pin the measuring thread to this CPU
    #[arg(long, value_name = "LIST", value_parser = cpu)]
    pub(crate) cpu: Option<usize>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw them as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// This process does one thing, for the process that started it.
    #[arg(long, hide = true)]
    pub(crate) worker: Option<Kind>,
}

impl ScaleArgs {
    /// Refuses what says the same twice.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let all = &self.endpoints;
        match (1..all.len()).find(|&at| all[..at].contains(&all[at])) {
            Some(at) => Err(Failure::usage(format!("-q names {} twice", all[at]))),
            None => Ok(()),
        }
    }
}
