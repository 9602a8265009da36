//! `dat-bench cost`: processor cost of posts and polls.
//!
//! ```text
//! run               starts a worker process per variant and turn; reports
//! worker            the worker process: opens its interface and measures
//! rounds            the measured loops, generic over the interface
//! meter callgrind   time and instructions of the measured section
//! asleep            whether the measuring thread sleeps
//! requests          an end with the measured requests
//! ```
//!
//! An emulated NIC is stopped during the measured section (`crate::nic`). It
//! writes the completions itself before the section in which they are polled.
//! Completions written by the benchmark would need a second implementation of
//! what a NIC writes, and access to libmlx5's rings.

mod asleep;
pub(crate) mod callgrind;
pub(crate) mod meter;
mod operation;
mod report;
mod requests;
mod rounds;
mod variant;
mod worker;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

pub(crate) use self::variant::Variant;

use self::callgrind::Counts;
use self::operation::Operation;
use self::report::{Conditions, Outcome};
use self::worker::{Report, TIMED};
use crate::cli::CostArgs;
use crate::ends::udapl;
use crate::failure::Failure;
use crate::host::Host;
use crate::output::finish;
use crate::report::{DeviceFacts, Files, reliability};
use crate::{results, select};

/// An environment variable of libmlx5.
pub(crate) const SINGLE_THREADED: &str = "MLX5_SINGLE_THREADED";

/// Runs the command.
pub(crate) fn run(args: &CostArgs) -> Result<(), Failure> {
    if let Some(variant) = args.worker {
        return worker::run(variant, args);
    }
    let variants = args.variants()?;
    let files = Files::of_run(&args.results)?;
    let has = |any: [Variant; 2]| any.iter().any(|it| variants.contains(it));
    if has([Variant::C, Variant::CSt]) {
        udapl::v1::Libdat::load()?;
    }
    if has([Variant::C2, Variant::C2St]) {
        udapl::v2::Libdat::load()?;
    }
    let selected = args.on.select()?;
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
    if args.instructions {
        for outcome in &mut outcomes {
            outcome.instructions = count(outcome.variant, &selected.name, args)?;
        }
    }
    let json = report::json(&conditions, &outcomes);
    let files = files.contents(&json, [])?;
    finish(report::text(&conditions, &outcomes), files)?;
    results::require(&json, &args.fail_if)?;
    reliability::require(args.strict, &report::judged(&outcomes))
}

fn conditions(selected: &select::Selected, args: &CostArgs) -> Result<Conditions, Failure> {
    Ok(Conditions {
        host: Host::read(),
        device: DeviceFacts::of(selected, args.on.ib_port)?,
        libmlx5: loaded("libmlx5"),
        build: if cfg!(debug_assertions) {
            "unoptimised"
        } else {
            "release"
        },
        rounds: args.rounds,
        turns: args.turns,
        operations_per_section: TIMED,
        cpu: args.cpu,
    })
}

/// Returns the file name, with the version, of a library that this process has
/// loaded.
fn loaded(library: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.rsplit('/')
            .next()?
            .starts_with(library)
            .then_some(path)
    })?;
    let real = std::fs::canonicalize(path).ok()?;
    Some(real.file_name()?.to_string_lossy().into_owned())
}

/// Measures the time of a variant in a worker process.
fn time(variant: Variant, device: &str, args: &CostArgs) -> Result<Report, Failure> {
    let this = own_executable()?;
    run_worker(
        worker(Command::new(this), variant, device, args),
        variant.name(),
    )
}

/// Counts the instructions of a variant in a worker process.
fn count(
    variant: Variant,
    device: &str,
    args: &CostArgs,
) -> Result<Vec<(Operation, f64)>, Failure> {
    let counts = Counts::prepare(variant.name())?;
    let mut command = worker(counts.command(&own_executable()?), variant, device, args);
    command.arg("--counted");
    let report: Report = run_worker(command, variant.name())?;
    counts.read(&report.records)
}

/// Returns the path of this program.
pub(crate) fn own_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::environment(format!(
            "cannot find dat-bench's own executable: {error}; is /proc mounted?"
        ))
    })
}

/// Returns the command line of a worker process for a variant on a device.
fn worker(mut command: Command, variant: Variant, device: &str, args: &CostArgs) -> Command {
    command.args(["cost", "-d", device, "--worker", variant.name()]);
    command.args(["--iters", &args.rounds.to_string()]);
    command.args(["--ib-port", &args.on.ib_port.to_string()]);
    if let Some(path) = args.on.path {
        command.args(["--path", path.name()]);
    }
    if let Some(cpu) = args.cpu {
        command.args(["--cpu", &cpu.to_string()]);
    }
    // A wait that sleeps spins for no time before, so that its count does not depend on the time.
    command.env("DAT_WAIT", "block");
    match variant.single_threaded_variable() {
        Some(value) => command.env(SINGLE_THREADED, value),
        None => command.env_remove(SINGLE_THREADED),
    };
    command
}

/// Runs a worker process and returns its report.
pub(crate) fn run_worker<T: DeserializeOwned>(
    mut command: Command,
    name: &str,
) -> Result<T, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| {
            let remedy = if program == "valgrind" {
                "; --instructions needs it: apt-get install valgrind"
            } else {
                ""
            };
            Failure::environment(format!("cannot start {program}: {error}{remedy}"))
        })?;
    let ended = format!(
        "the worker process for {name} failed with {}; its message is above",
        output.status
    );
    match output.status.code() {
        Some(0) => {}
        Some(1) => return Err(Failure::usage(ended)),
        Some(2) => return Err(Failure::environment(ended)),
        _ => return Err(Failure::run(ended)),
    }
    serde_json::from_slice(&output.stdout).map_err(|error| {
        Failure::run(format!(
            "cannot parse the report of the worker process for {name}: {error}"
        ))
    })
}
