//! `dat-bench`: benchmarks of the engine and of DAT, without other tools and,
//! on the emulated device, without hardware.
//!
//! A module names only those below it in this table, which `perf-scripts/lib/layers` checks.
//!
//! | module | contents |
//! |---|---|
//! | `fuzzing` | what `fuzz/` calls; in such builds only |
//! | `cli` | the commands, and what each of them calls |
//! | `lat`, `bw`, `cost`, `wake`, `scale`, `compare`, `devices`, `diff` | the commands (`bw` also `rate`), each with its options and help |
//! | `page` | the command `report`: one HTML page of result files |
//! | `runs` | runs with two sides, in one process or in two |
//! | `ends` | connected ends, through every API |
//! | `worker` | worker processes, whose instructions are counted |
//! | `report` | the output of the commands: text, JSON and the files made from it |
//! | `charts` | which figures are plotted over what |
//! | `select` | chooses the device of a run |
//! | `options` | options that several commands have |
//! | `results` | reads result files; `--fail-if` |
//! | `exchange` | TCP control connection of client and server |
//! | `noise` | disturbances of the measuring thread |
//! | `stats` | samples: histogram, mean, deviation |
//! | `plot` | panels as SVG |
//! | `nic` | stops and steps the emulated NIC |
//! | `host` | facts about this machine |
//! | `interrupt` | Ctrl-C keeps what was measured |
//! | `launcher` | restarts dat-bench under mlx5-emu |
//! | `log` | what `RUST_LOG` shows |
//! | `output` | every write to a stream or file |
//! | `clock` | TSC or CLOCK_MONOTONIC |
//! | `failure` | errors and exit statuses |
//!
//! Exit status: 0 good, 1 usage, 2 environment, 3 the run failed.

// A target of fuzz/, with its own start.
#![cfg_attr(fuzzing, no_main, allow(dead_code, unused_imports))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bw;
mod charts;
mod cli;
mod clock;
mod compare;
mod cost;
mod devices;
mod diff;
mod ends;
mod exchange;
mod failure;
#[cfg(fuzzing)]
mod fuzzing;
mod host;
mod interrupt;
mod lat;
mod launcher;
mod log;
mod nic;
mod noise;
mod options;
mod output;
mod page;
mod plot;
mod report;
mod results;
mod runs;
mod scale;
mod select;
mod stats;
mod wake;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use failure::Failure;

fn main() -> ExitCode {
    restore_sigpipe();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // --help and --version are no errors; everything else is a usage error.
            let status = if error.use_stderr() {
                Failure::usage("").status()
            } else {
                0
            };
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match printed {
                Err(error) if status == 0 => fail(&output::standard_output(&error)),
                _ => ExitCode::from(status),
            };
        }
    };
    match log::start().and_then(|()| cli::run(&cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

/// Reports a failure; returns its exit status.
fn fail(failure: &Failure) -> ExitCode {
    output::print_error(failure);
    ExitCode::from(failure)
}

/// Restores the default action of SIGPIPE, so that `dat-bench … | head` ends by
/// the signal and not by a panic. Writes to sockets do not raise it: `std`
/// sends with `MSG_NOSIGNAL`.
fn restore_sigpipe() {
    // SAFETY: no other thread runs yet, and the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
