//! `dat-check`: shows what every adapter name of this host opens, or why it cannot be opened and
//! what to do, and tests connections.
//!
//! ```text
//! cli        options and help           report     the result: the fields of the JSON document
//! adapters   what each name opens       text       the result as text
//! opening    opens one adapter
//! advice     the next step for a name that stands for no device
//! variables  the DAT_* variables        problem    an error and the next step
//! remedy     next steps by error code, of the examples
//! system     limits, device files       linker     what the dynamic linker finds
//! transfer   the connection tests
//! ```
//!
//! Exit status: 0 everything that was checked can be used, 1 usage, 2 something cannot be used.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod adapters;
mod advice;
mod cli;
mod linker;
mod opening;
mod problem;
#[path = "../../../examples/common/remedy.rs"]
mod remedy;
mod report;
mod system;
mod text;
mod transfer;
mod variables;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use adapters::Registry;
use cli::Cli;
use report::{Conf, Report, SCHEMA};

/// The exit status for a wrong command line.
const USAGE: u8 = 1;
/// The exit status if something that was checked cannot be used.
const PROBLEM: u8 = 2;

fn main() -> ExitCode {
    restore_sigpipe();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let status = if error.use_stderr() { USAGE } else { 0 };
            let printed = error.print().and_then(|()| io::stdout().flush());
            return ExitCode::from(if printed.is_err() { PROBLEM } else { status });
        }
    };
    let result = match &cli.program {
        Some(program) => system::restart_as(program).and_then(|()| run(&cli)),
        None => run(&cli),
    };
    result.unwrap_or_else(|error| {
        // If standard error is closed too, the exit status alone reports the error.
        let _ = writeln!(io::stderr(), "dat-check: {error}");
        ExitCode::from(USAGE)
    })
}

/// Examines and prints. Returns the exit status.
///
/// # Errors
/// A usage error that the parser cannot find, as text.
fn run(cli: &Cli) -> Result<ExitCode, String> {
    let test = cli.test()?;
    let file = dat_api::registry::read_conf();
    let mut report = Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        udapl: format!("{}.{}", cli.udapl.0, cli.udapl.1),
        dat_conf: Conf::new(&file),
        variables: variables::examine(),
        system: system::examine(cli.udapl),
        adapters: Vec::new(),
        test: None,
        problems: 0,
        status: 0,
    };
    let registry = Registry {
        file: &file,
        threadsafe: cli.threadsafe,
        version: cli.udapl,
    };
    match test {
        None => report.adapters = registry.examine(&cli.names),
        Some(test) => {
            let chosen = registry.choose(cli.names.first().map(String::as_str));
            report.adapters.push(chosen.report);
            report.test = Some(transfer::run(&test, chosen.adapter.as_ref(), cli));
        }
    }
    report.finish();
    let printed = match cli.json {
        true => report.json(),
        false => text::of(&report),
    };
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(printed.as_bytes()).and_then(|()| out.flush()) {
        let _ = writeln!(
            io::stderr(),
            "dat-check: cannot write to standard output: {error}"
        );
        return Ok(ExitCode::from(PROBLEM));
    }
    Ok(ExitCode::from(report.status))
}

/// Restores the default action of SIGPIPE, so that `dat-check | head` ends by the signal.
fn restore_sigpipe() {
    // SAFETY: no other thread runs yet, and the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
