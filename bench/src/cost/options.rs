//! Options and help of `dat-bench cost`.

use clap::Args;

use super::variant::Variant;
use crate::failure::Failure;
use crate::options::{WorkerArgs, require_once};
use crate::results::Unit;

pub(crate) const ABOUT: &str = "\
Measure the processor cost of posts and polls, beside libmlx5.

Figures are nanoseconds per operation, the calling loop included; with
--instructions also instructions per operation. The engine, DAT's Rust types, the
C calls of uDAPL 1.2 ('c') and 2.0 ('c2') and libmlx5's verbs do the same
operations in one run, each with locks and without ('-st': libmlx5 with MLX5_SINGLE_THREADED=1, the engine with
an exclusive doorbell register and no lock, DAT on an adapter that is not
thread-safe). Each variant runs in a process of its own; the processes take
turns. All use rings of the same size: 512 requests of one segment, completion
queues of 1024 entries. Every request is signalled.

How it is measured: a timed section is 256 operations of one kind; a round has
one section of each kind. Before completions are polled, the NIC has finished
all their requests. An emulated NIC is stopped during each section, so no other
thread runs. Sections that had to wait for a completion are left out, and their
number is printed. Times are UNRELIABLE if their thread waited for a processor for
more than 5 % of the time in which it could run, if the hypervisor took more than
1 % of the processor, if something else took more than 2 % of the core in the
milliseconds before a turn, or if the speed of the core changed by more than 20 %.
Instructions do not depend on any of this.

Instructions are counted by valgrind's callgrind: all of the calling thread,
with the calling loop and its checks of return values, which are the same for
all variants. The figure is the difference of a section of 256 and one of 128
operations, divided by 128, so work that is done once per section cancels.
Waits that sleep are 16 and 8 in a section, and run on an emulated NIC only: another
thread moves it while the waiting one sleeps. DAT_WAIT is 'block' in all processes.

The figures are not: latencies. On the emulated device a doorbell is a store to
ordinary memory; on hardware it is a write over PCIe. Completions are in the
cache; on hardware a poll misses the cache after the device wrote the entry.
The time of a wait that sleeps is that of the operating system: use dat-bench wake.
DAT chooses by length what it sends inline, so its 'not inline' messages have
96 bytes instead of 64, at the same cost. DAT has no calls that post lists or
take several events. Atomic operations are measured through uDAPL 2.0 only
(dat_extension_op).";

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench cost -d emu                        all variants, no hardware needed
  dat-bench cost -d emu --instructions         instructions too; needs valgrind
  dat-bench cost -d emu --api libmlx5-st,c-st  two variants side by side
  dat-bench cost -d emu --api c,c2             uDAPL 1.2 and 2.0 side by side
  dat-bench cost -d mlx5_0 --cpu 2 --json cost.json
  dat-bench cost -d emu --api c-st --instructions --fail-if 'instructions>500'   for CI

Exit status: 0 good, 1 usage, 2 environment (no device, no valgrind, ...), 3 the run failed.";

/// The help of `--fail-if`.
const FIGURES: &str = "\
Fail with status 3 if this holds for a result, such as time>50ns or instructions>200; the figures are
time (nanoseconds per operation) and instructions (with --instructions)";

#[derive(Debug, Args)]
#[command(mut_arg("fail_if", |it| it.help(FIGURES)))]
pub(crate) struct CostArgs {
    #[command(flatten)]
    pub(crate) common: WorkerArgs,
    /// Measured variants, comma-separated [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    api: Vec<Variant>,
    /// Rounds per turn
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rounds: u32,
    /// Turns of each variant; each turn is a process
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) turns: u32,
    /// Marks a worker process, which measures one variant for its parent.
    #[arg(long, hide = true)]
    pub(crate) worker: Option<Variant>,
}

impl CostArgs {
    /// Returns the variants, in the order of the table.
    pub(crate) fn variants(&self) -> Result<Vec<Variant>, Failure> {
        use clap::ValueEnum;
        require_once("--api", &self.api)?;
        let figures = [("time", Unit::Nanoseconds), ("instructions", Unit::None)];
        self.common.check_conditions("cost", &figures)?;
        if self.api.is_empty() {
            return Ok(Variant::value_variants().to_vec());
        }
        Ok(self.api.clone())
    }
}
