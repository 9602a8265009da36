//! Benchmarks on the engine's own rings: latency with histograms, what
//! operations cost the processor, and what waiting costs.
//!
//! ```text
//! cli          the command line           select, launcher   which device, emulated or not
//! devices      the command of that name   clock, stats       time, and what is kept of it
//! cost         the command of that name
//! scale        the command of that name   plot               pictures
//! wake         the command of that name   nic                the emulated NIC, held still and moved
//! lat          the command of that name   exchange           the control connection of two sides
//! report       table, picture, JSON, hgrm host               facts about this machine
//! output       every write to a stream or file
//! ```
//!
//! Exit status: 0 good, 1 usage, 2 environment, 3 the run failed.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod clock;
mod cost;
mod devices;
mod exchange;
mod failure;
mod host;
mod lat;
mod launcher;
mod nic;
mod output;
mod plot;
mod report;
mod scale;
mod select;
mod stats;
mod wake;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    die_quietly_with_the_pipe();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are asked for; everything else is a usage error.
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
    let result = match &cli.command {
        Command::Devices(args) => devices::run(args),
        Command::Lat(args) => lat::run(args),
        Command::Cost(args) => cost::run(args),
        Command::Wake(args) => wake::run(args),
        Command::Scale(args) => scale::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

/// Reports a failure; returns its exit status.
fn fail(failure: &Failure) -> ExitCode {
    output::complain(failure);
    ExitCode::from(failure)
}

/// `dat-bench … | head` ends by the signal, as other programs do, instead of
/// by a panic at the next line. Sockets are written without it.
fn die_quietly_with_the_pipe() {
    // SAFETY: no other thread runs yet, and the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
