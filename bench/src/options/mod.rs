//! Options that several commands have, with perftest's short letters. Each command has its own
//! in its folder; `cli` has all commands. A module names only those below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `run` | commands with a client and a server |
//! | `perftest` | perftest's options, of the same commands |
//! | `common` | devices, results, worker processes |
//! | `values` | the values of options, and their parsers |

mod common;
mod perftest;
mod run;
mod values;

pub(crate) use common::{DeviceArgs, HistogramArgs, ResultArgs, WorkerArgs, require_once};
pub(crate) use perftest::NetworkArgs;
pub(crate) use run::{MAX_WARMUP, RunArgs, default_inline, size};
pub(crate) use values::{Api, LISTEN, LastByte, Operation, Path, PeerProgram, Wait};
pub(crate) use values::{choices, per_second, seconds};
