//! `dat-bench compare`: the same ping-pong with perftest or ucx_perftest and with dat-bench.
//!
//! ```text
//! run       pairs of runs; reports
//! process   child processes with a time limit
//! clients   server and client of another program
//! perftest  its command line, and what it prints
//! ucx       the same for ucx_perftest
//! ours      the same for 'dat-bench lat'
//! report    text and JSON
//! ```

mod clients;
pub(crate) mod options;
mod ours;
mod perftest;
mod process;
mod report;
mod ucx;

use crate::compare::options::{CompareArgs, Other};
use crate::failure::Failure;
use crate::host::Host;
use crate::output::{finish, probe_all};
use crate::report::DeviceFacts;

use self::report::{Conditions, Pair, Theirs};
use self::ucx::Ucx;

/// The other program.
enum Program {
    Perftest(String),
    Ucx(Ucx),
}

impl Program {
    fn find(args: &CompareArgs) -> Result<Self, Failure> {
        if args.operation.is_numbered() {
            return Err(Failure::usage(format!(
                "compare has no {}: it compares send, write and read",
                args.operation.name()
            )));
        }
        match args.with {
            Other::Perftest => perftest::find(args.operation).map(Self::Perftest),
            Other::Ucx => Ucx::find(args.operation).map(Self::Ucx),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Perftest(program) => program.clone(),
            Self::Ucx(ucx) => ucx.name(),
        }
    }

    /// Runs it. Returns `None` if it ran and measured nothing.
    fn run(&mut self, device: &str, args: &CompareArgs) -> Result<Option<Theirs>, Failure> {
        Ok(match self {
            Self::Perftest(program) => {
                let run = perftest::run(program, device, args)?;
                run.is_measured().then_some(Theirs::Perftest(run))
            }
            Self::Ucx(ucx) => Some(Theirs::UcxPerftest(ucx.run(device, args)?)),
        })
    }
}

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    probe_all(&args.json)?;
    let mut program = Program::find(args)?;
    let selected = args.on.select()?;
    let device = DeviceFacts::of(&selected, args.on.ib_port)?;
    let mut pairs = Vec::new();
    let mut left_out = 0;
    for number in 0..args.pairs {
        // Which program is first changes from pair to pair.
        let early = (number % 2 == 1)
            .then(|| ours::run(&device.name, args))
            .transpose()?;
        let Some(theirs) = program.run(&device.name, args)? else {
            left_out += 1;
            continue;
        };
        let ours = match early {
            Some(run) => run,
            None => ours::run(&device.name, args)?,
        };
        pairs.push(Pair { theirs, ours });
    }
    if pairs.is_empty() {
        return Err(Failure::run(format!(
            "{} measured no time in {left_out} runs: it found no processor frequency, as on a busy \
             host, and printed inf; run again on an idle host",
            program.name()
        )));
    }
    let conditions = Conditions {
        host: Host::read(),
        device,
        program: program.name(),
        operation: args.operation,
        bytes: args.size,
        iterations: args.iters,
        pairs_left_out: left_out,
    };
    let json = |path: &std::path::PathBuf| (path.clone(), report::json(&conditions, &pairs));
    let files = args.json.as_ref().map(json);
    finish(report::text(&conditions, &pairs), files)
}
