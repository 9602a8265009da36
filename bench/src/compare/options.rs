//! Options and help of `dat-bench compare`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::options::{DeviceArgs, Operation, seconds, size};

pub(crate) const ABOUT: &str = "\
Measure the same ping-pong with perftest, or ucx_perftest, and with dat-bench,
in turns.

Both programs run as two processes on this host, client and server, on the same
device, with the same operation, size, depth and number of iterations:
ib_send_lat, ib_write_lat or ib_read_lat, and 'dat-bench lat'. A pair is one run
of each; which one is first changes from pair to pair, so that changes of the
machine affect both. Printed are the medians over the pairs, and the median of
the ratios with its 95 % confidence interval. 'No difference measurable' means
that the interval contains 1. Both poll the last byte of memory for a write,
without asking the device whether it arrives last.

perftest also prints each of its samples (-U), from which the figures are
computed that its own table does not show: the deviation without rounding, and
the largest sample.

With --with ucx_perftest the other program is UCX's, at its layer UCT: am_lat
for send (which includes the call of a handler), put_lat for write, get for
read, over rc_mlx5, or over rc_verbs where that is not possible, with the first
data layout of short, bcopy and zcopy that carries the size. Its figure is the
median of its last 2,048 samples. The result names what ran.";

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench compare -d emu                     no hardware needed
  dat-bench compare -d mlx5_0 -s 64 -n 100000 --pairs 21
  dat-bench compare -d mlx5_0 -o write --json compare.json
  dat-bench compare -d mlx5_0 --with ucx_perftest -s 8

Give each of the two processes, and on the emulated device each NIC, a processor.
Exit status: 0 good, 1 usage, 2 environment (no device, program not installed), 3 a run failed.";

/// The program that dat-bench is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Other {
    /// ib_send_lat, ib_write_lat or ib_read_lat
    Perftest,
    /// UCX's benchmark, at the layer UCT
    #[value(name = "ucx_perftest")]
    Ucx,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) on: DeviceArgs,
    /// The other program
    #[arg(long, value_name = "PROGRAM", default_value = "perftest")]
    pub(crate) with: Other,
    /// Measured operation
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "send")]
    pub(crate) operation: Operation,
    /// Message size in bytes; suffixes K, M and G are powers of 1024
    #[arg(short, long, value_name = "BYTES", default_value = "2", value_parser = size)]
    pub(crate) size: u32,
    /// Iterations of each run; perftest needs at least 5
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(5..))]
    pub(crate) iters: u32,
    /// Pairs of runs; six or more have a confidence interval
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) pairs: u32,
    /// Longest time of one run
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Write the results as JSON; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
