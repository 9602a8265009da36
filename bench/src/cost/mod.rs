//! `dat-bench cost`: processor cost of posts and polls.
//!
//! ```text
//! run               starts a worker process per variant and turn; reports
//! worker            the worker process: opens its interface and measures
//! rounds            the measured loops, generic over the interface
//! meter counts      time and instructions of the measured sections
//! asleep            whether the measuring thread sleeps
//! requests          an end with the measured requests
//! ```
//!
//! An emulated NIC is stopped during the measured section (`crate::nic`). It
//! writes the completions itself before the section in which they are polled.
//! Completions written by the benchmark would need a second implementation of
//! what a NIC writes, and access to libmlx5's rings.

mod asleep;
mod counts;
mod meter;
mod operation;
pub(crate) mod options;
mod report;
mod requests;
mod rounds;
mod variant;
mod worker;

use std::process::Command;

use self::operation::Operation;
use self::report::{Conditions, Outcome};
use self::variant::Variant;
use self::worker::{Report, TIMED};
use crate::cost::options::CostArgs;
use crate::ends::udapl;
use crate::failure::Failure;
use crate::host::Host;
use crate::launcher::own_executable;
use crate::report::{DeviceFacts, Files};
use crate::select;
use crate::worker::Worker;
use crate::worker::callgrind::Counts;

/// Runs the command.
pub(crate) fn run(args: &CostArgs) -> Result<(), Failure> {
    if let Some(variant) = args.worker {
        return worker::run(variant, args);
    }
    let variants = args.variants()?;
    let files = Files::of_run(&args.common.results)?;
    let has = |any: [Variant; 2]| any.iter().any(|it| variants.contains(it));
    if has([Variant::C, Variant::CSt]) {
        udapl::v1::Libdat::load()?;
    }
    if has([Variant::C2, Variant::C2St]) {
        udapl::v2::Libdat::load()?;
    }
    let selected = args.common.on.select()?;
    if variants.iter().any(|variant| variant.is_below_dat()) {
        select::require_addresses(&selected, "give --api rust,rust-st,c,c-st,c2,c2-st")?;
    }
    let conditions = conditions(&selected, args)?;
    let mut outcomes: Vec<Outcome> = variants.iter().map(|&it| Outcome::new(it)).collect();
    // In turns, so that other load of the machine affects all variants.
    for _ in 0..args.turns {
        for outcome in &mut outcomes {
            let report = time(outcome.variant, &selected.name, args)?;
            outcome.noise.add(&report.noise);
            for record in report.records {
                let operation = Operation::from_key(&record.operation)
                    .ok_or_else(|| Failure::run("a worker process reported an unknown operation; are all programs of the same build?"))?;
                outcome.take(operation, record.nanoseconds);
            }
        }
    }
    if args.common.instructions {
        for outcome in &mut outcomes {
            for (operation, instructions) in count(outcome.variant, &selected.name, args)? {
                outcome.count(operation, instructions);
            }
        }
    }
    let text = report::text(&conditions, &outcomes);
    let json = report::json(&conditions, &outcomes);
    let judged = report::judged(&outcomes);
    files.conclude(Ok(()), text, &json, [], &judged)
}

fn conditions(selected: &select::Selected, args: &CostArgs) -> Result<Conditions, Failure> {
    Ok(Conditions {
        host: Host::read(),
        device: DeviceFacts::of(selected, args.common.on.ib_port)?,
        libmlx5: loaded("libmlx5.so"),
        build: if cfg!(debug_assertions) {
            "unoptimised"
        } else {
            "release"
        },
        rounds: args.rounds,
        turns: args.turns,
        operations_per_section: TIMED,
        cpu: args.common.cpu,
    })
}

/// Returns the file name, with the version, of a library that this process has
/// loaded.
fn loaded(library: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let real = std::fs::canonicalize(mapped(&maps, library)?).ok()?;
    Some(real.file_name()?.to_string_lossy().into_owned())
}

/// Returns the path of a library, whose file name begins with this, in `/proc/self/maps`.
fn mapped<'a>(maps: &'a str, library: &str) -> Option<&'a str> {
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    let has_name = |path: &&str| {
        path.rsplit('/')
            .next()
            .is_some_and(|it| it.starts_with(library))
    };
    paths.into_iter().find(has_name)
}

/// Measures the time of a variant in a worker process.
fn time(variant: Variant, device: &str, args: &CostArgs) -> Result<Report, Failure> {
    let worker = worker(variant, device, args);
    worker.run(command(&worker, Command::new(own_executable()?)))
}

/// Counts the instructions of a variant in a worker process.
fn count(
    variant: Variant,
    device: &str,
    args: &CostArgs,
) -> Result<Vec<(Operation, f64)>, Failure> {
    let counts = Counts::prepare(variant.name())?;
    let worker = worker(variant, device, args);
    let mut command = command(&worker, counts.command(&[], &own_executable()?));
    command.arg("--counted");
    let report: Report = worker.run(command)?;
    counts::read(&counts, &report.records)
}

fn worker<'a>(variant: Variant, device: &'a str, args: &'a CostArgs) -> Worker<'a> {
    Worker {
        command: "cost",
        kind: variant.name(),
        device,
        args: &args.common,
        rounds: args.rounds,
        is_single_threaded: variant == Variant::Libmlx5St,
    }
}

fn command(worker: &Worker<'_>, program: Command) -> Command {
    let mut command = worker.of(program);
    // A wait that sleeps spins for no time before, so that its count does not depend on the time.
    command.env("DAT_WAIT", "block");
    command
}

#[cfg(test)]
mod tests {
    use super::mapped;

    #[test]
    fn libmlx5_is_not_the_emulator_which_may_be_mapped_before_it() {
        let maps = "7f00-7f01 r-xp 0 08:01 7 /opt/libmlx5emu.so\n\
                    7f02-7f03 r-xp 0 08:01 8 /usr/lib/libmlx5.so.1.24.44.0\n7f04-7f05 rw-p 0 0 0\n";
        let found = mapped(maps, "libmlx5.so");
        assert_eq!(found, Some("/usr/lib/libmlx5.so.1.24.44.0"));
        assert_eq!(mapped(maps, "libfoo"), None);
    }
}
