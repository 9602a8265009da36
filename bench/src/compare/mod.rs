//! `dat-bench compare`: the same ping-pong with perftest and with dat-bench.
//!
//! ```text
//! run       pairs of runs; reports
//! process   child processes with a time limit
//! perftest  its command line, and what it prints
//! ours      the same for 'dat-bench lat'
//! report    text and JSON
//! ```

mod ours;
mod perftest;
mod process;
mod report;

use crate::cli::CompareArgs;
use crate::failure::Failure;
use crate::host::Host;
use crate::output::{finish, probe_all};
use crate::report::DeviceFacts;

use self::report::{Conditions, Pair};

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    probe_all(&args.json)?;
    let program = perftest::find(args.operation)?;
    let selected = args.on.select()?;
    let device = DeviceFacts::of(&selected, args.on.ib_port)?;
    let mut pairs = Vec::new();
    let mut left_out = 0;
    for number in 0..args.pairs {
        // Which program is first changes from pair to pair.
        let early = (number % 2 == 1)
            .then(|| ours::run(&device.name, args))
            .transpose()?;
        let theirs = perftest::run(&program, &device.name, args)?;
        if !theirs.is_measured() {
            left_out += 1;
            continue;
        }
        let ours = match early {
            Some(run) => run,
            None => ours::run(&device.name, args)?,
        };
        pairs.push(Pair { theirs, ours });
    }
    if pairs.is_empty() {
        return Err(Failure::run(format!(
            "{program} measured no time in {left_out} runs: it found no processor frequency, as on \
             a busy host, and printed inf; run again on an idle host"
        )));
    }
    let conditions = Conditions {
        host: Host::read(),
        device,
        program,
        operation: args.operation,
        bytes: args.size,
        iterations: args.iters,
        pairs_left_out: left_out,
    };
    let json = |path: &std::path::PathBuf| (path.clone(), report::json(&conditions, &pairs));
    let files = args.json.as_ref().map(json);
    finish(report::text(&conditions, &pairs), files)
}
