//! Options and help of `dat-bench diff`.

use std::path::PathBuf;

use clap::Args;

use crate::results::Condition;

pub(crate) const ABOUT: &str = "\
Print what changed between two result files that --json has written.

Cases are matched by name: size, interface and rate (lat, bw, rate), wait policy and rate
(wake), operation and variant (cost), number of endpoints (scale). Figures have
the names that --fail-if takes. Conditions of host, device and options that
differ are printed first. Files of older versions of dat-bench can be read.

The median of lat and wake, and the average of bw and rate, has a verdict: 'no difference measurable', or by how
much it changed, with 95 % confidence, from the medians of the rounds (Hodges and
Lehmann, Mann and Whitney). The rounds of one run do not show what differs
between two runs of the same program (placement in memory, other programs):
before you believe a small difference, repeat both runs.";

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench diff before.json after.json
  dat-bench diff before.json after.json --fail-if 'p50>+5%' --fail-if 'p99>20us'

Exit status: 0 good, 1 usage (also a figure that a file does not have), 3 a condition of
--fail-if holds, or a result is unreliable with --strict.";

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The first result file, before the change
    pub(crate) before: PathBuf,
    /// The second result file, after the change
    pub(crate) after: PathBuf,
    /// Fail if this holds for a case of the second file: FIGURE>LIMIT or FIGURE<LIMIT; a limit is a
    /// time (ns, us, ms, s), a bandwidth (MiB/s, Gb/s), a rate (Mpps), a number, or a change since the first file (+N%, -N%)
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Condition>,
    /// Fail if a result of one of the files is unreliable
    #[arg(long)]
    pub(crate) strict: bool,
}
