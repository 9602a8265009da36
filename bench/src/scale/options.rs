//! Options and help of `dat-bench scale`.

use clap::Args;

use crate::failure::Failure;
use crate::options::{WorkerArgs, choices, require_once};
use crate::results::Unit;

pub(crate) const ABOUT: &str = "\
Measure the cost per message and the memory of many endpoints on one SRQ.

All endpoints take their receives from one shared receive queue and report to
one completion queue. Messages are queued in advance, spread over all endpoints.
Only this is timed: for each message, the engine polls the completion, looks up
the queue pair, and posts the receive again. An emulated NIC is stopped
meanwhile. Each endpoint is connected to itself, so there are no other queue
pairs. The unit is nanoseconds per message. The same is measured with libmlx5
(ibv_poll_cq and ibv_post_srq_recv), without its locks (MLX5_SINGLE_THREADED=1).

Times are UNRELIABLE as those of 'dat-bench cost' are.

Page faults are the kernel's count of the measuring thread, of all timed sections
together. dTLB misses are the processor's, of loads in user mode, per message;
virtual machines usually do not count them, and the output then says so.

Instructions and cache lines (--instructions) are callgrind's. Instructions per
message are those of a section of 1024 messages minus those of one of 512,
divided by 512. Cache lines are the distinct lines of 64 bytes that 1024
messages touch, divided by 1024; the simulated cache is empty at first and
never evicts. So a line that all messages share counts as 1/1024, and a line of
an endpoint counts as one if each message is for another endpoint.

Memory is the growth of resident bytes while the endpoints are created, per
endpoint: with the engine, with DAT's Rust types and default attributes, and
with ibv_create_qp. An emulated device keeps its state in the same process, so
it is part of all three. The engine's endpoints are smaller than libmlx5's queue
pairs because it creates them for only the operations that it uses
(mlx5dv_create_qp), while ibv_create_qp reserves room in each request for all
operations. DAT's endpoints are not connected; their completions have room in
two event dispatchers.";

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench scale -d emu                          no hardware needed
  dat-bench scale -d emu --instructions           instructions and cache lines too; needs valgrind
  dat-bench scale -d emu -q 1,64,512 --json scale.json --svg scale.svg
  dat-bench scale -d emu -q 10000 --instructions --fail-if 'cache-lines>4'   for CI

Exit status: 0 good, 1 usage, 2 environment (no device, no valgrind, ...), 3 the run failed.";

choices! {
    /// What a worker process measures.
    pub(crate) enum Kind {
        /// Messages with the engine
        Engine = "engine",
        /// Messages with libmlx5
        Libmlx5 = "libmlx5",
        /// Memory of the engine's endpoints
        EngineMemory = "engine-memory",
        /// Memory of DAT's endpoints
        DatMemory = "dat-memory",
        /// Memory of libmlx5's queue pairs
        Libmlx5Memory = "libmlx5-memory",
    }
}

/// The help of `--fail-if`.
const FIGURES: &str = "\
Fail with status 3 if this holds for a result, such as time>500ns or cache-lines>4; the figures are
time (nanoseconds per message), instructions and cache-lines (with --instructions), the same
of libmlx5 as libmlx5.time and so on, and memory.libmlx5, memory.engine and memory.dat (bytes of all endpoints)";

#[derive(Debug, Args)]
#[command(mut_arg("fail_if", |it| it.help(FIGURES)))]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    pub(crate) common: WorkerArgs,
    /// Numbers of endpoints to measure, comma-separated
    #[arg(short = 'q', long, value_name = "LIST", value_delimiter = ',', default_value = "1,10,100,1000,10000", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(crate) endpoints: Vec<u32>,
    /// Timed sections of 1024 messages
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rounds: u32,
    /// Marks a worker process, which does one measurement for its parent.
    #[arg(long, hide = true)]
    pub(crate) worker: Option<Kind>,
}

impl ScaleArgs {
    /// Refuses a number that is given twice.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        require_once("-q", &self.endpoints)?;
        let counts = ["instructions", "cache-lines"].map(|it| (it, Unit::None));
        let memory = ["memory.libmlx5", "memory.engine", "memory.dat"].map(|it| (it, Unit::None));
        let times = ["time", "libmlx5.time"].map(|it| (it, Unit::Nanoseconds));
        let of_libmlx5 = ["libmlx5.instructions", "libmlx5.cache-lines"].map(|it| (it, Unit::None));
        let all = [&times[..], &memory, &counts, &of_libmlx5].concat();
        self.common.check_conditions("scale", &all)
    }
}
