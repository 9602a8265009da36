//! Options and help of `dat-bench devices`.

use std::path::PathBuf;

use clap::Args;

use crate::options::Path;

pub(crate) const ABOUT: &str = "\
List the RDMA devices of this host and the data path of each.

For each device: whether it is emulated by mlx5-emu, its data path and the
reason for it, its transport, its limits, what DAT offers on it, and its ports
with the GID that connections use. 'direct' means that the engine writes the
rings of an mlx5 device itself, 'verbs' that it uses libibverbs. Sizes are in
bytes. The largest inline size is found by creating queue pairs.";

pub(crate) const EXAMPLES: &str = "\
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
