//! `dat-bench cost`: what the hot operations cost the processor.
//!
//! ```text
//! run               starts a process for each variant, turn by turn; reports
//! worker            that process: opens its interface, and measures
//! rounds            the measured loops, for any interface
//! meter callgrind   time and instructions of the measured section
//! (`crate::nic` makes the NIC stand still meanwhile, if it is emulated)
//! end               the seam: what an interface can do
//! engine verbs rust c   behind the seam
//! ```
//!
//! Completions are laid ready by the NIC itself: requests are posted, it
//! carries them out, and only then completions are taken, and measured. They
//! could be written into the rings by hand instead; but then there would have
//! to be a second idea of what a NIC writes, and libmlx5's rings, which are not
//! ours, would have to be found.

mod c;
pub(crate) mod callgrind;
mod end;
mod engine;
pub(crate) mod meter;
mod operation;
mod report;
mod rounds;
mod rust;
mod variant;
pub(crate) mod verbs;
mod worker;

use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

pub(crate) use self::variant::Variant;

use self::callgrind::Counts;
use self::operation::Operation;
use self::report::{Conditions, Outcome};
use self::worker::{Report, TIMED};
use crate::cli::CostArgs;
use crate::failure::Failure;
use crate::host::Host;
use crate::lat::c::Libdat;
use crate::output::{self, probe, save};
use crate::report::DeviceFacts;
use crate::select;

/// Read by libmlx5 when it is loaded.
const SINGLE_THREADED: &str = "MLX5_SINGLE_THREADED";

/// Runs the command.
pub(crate) fn run(args: &CostArgs) -> Result<(), Failure> {
    if let Some(variant) = args.worker {
        return worker::run(variant, args);
    }
    let variants = args.variants()?;
    if variants
        .iter()
        .any(|it| matches!(it, Variant::C | Variant::CSt))
    {
        Libdat::load()?;
    }
    select::drive(args.path);
    let selected = select::select(args.device.as_deref())?;
    if variants.iter().any(|variant| variant.is_below_dat()) {
        select::require_addresses(&selected, "give --api rust,rust-st,c,c-st")?;
    }
    if let Some(path) = &args.json {
        // Refused now rather than after the measurement.
        probe(path)?;
    }
    let conditions = conditions(&selected, args)?;
    let mut outcomes: Vec<Outcome> = variants.iter().map(|&it| Outcome::new(it)).collect();
    // In turns: whatever else the machine does meets all of them.
    for _ in 0..args.turns {
        for outcome in &mut outcomes {
            for record in time(outcome.variant, &selected.name, args)?.records {
                let operation = Operation::from_key(&record.operation)
                    .ok_or_else(|| Failure::run("a worker speaks of an unknown operation"))?;
                outcome.take(operation, record.nanoseconds);
            }
        }
    }
    if args.instructions {
        for outcome in &mut outcomes {
            outcome.instructions = count(outcome.variant, &selected.name, args)?;
        }
    }
    let shown = output::print(report::text(&conditions, &outcomes));
    if let Some(path) = &args.json {
        save(path, &report::json(&conditions, &outcomes))?;
    }
    shown?;
    output::written(args.json.as_deref())
}

fn conditions(selected: &select::Selected, args: &CostArgs) -> Result<Conditions, Failure> {
    Ok(Conditions {
        host: Host::read(),
        device: DeviceFacts::of(selected, args.ib_port)?,
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

/// The file of a library that this process has loaded, its version in its name.
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

/// Times a variant in a process of its own.
fn time(variant: Variant, device: &str, args: &CostArgs) -> Result<Report, Failure> {
    let this = own_executable()?;
    await_worker(
        worker(Command::new(this), variant, device, args),
        variant.name(),
    )
}

/// Counts a variant's instructions in a process of its own.
fn count(
    variant: Variant,
    device: &str,
    args: &CostArgs,
) -> Result<Vec<(Operation, f64)>, Failure> {
    let counts = Counts::prepare(variant.name())?;
    let mut command = worker(counts.command(&own_executable()?), variant, device, args);
    command.arg("--counted");
    let report: Report = await_worker(command, variant.name())?;
    counts.read(&report.records)
}

pub(crate) fn own_executable() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::environment(format!("cannot find my own executable: {error}")))
}

/// This program as the worker of a variant, on the device that was chosen.
fn worker(mut command: Command, variant: Variant, device: &str, args: &CostArgs) -> Command {
    command.args(["cost", "-d", device, "--worker", variant.name()]);
    command.args(["--iters", &args.rounds.to_string()]);
    command.args(["--ib-port", &args.ib_port.to_string()]);
    if let Some(path) = args.path {
        command.args(["--path", path.name()]);
    }
    if let Some(cpu) = args.cpu {
        command.args(["--cpu", &cpu.to_string()]);
    }
    match variant.single_threaded_variable() {
        Some(value) => command.env(SINGLE_THREADED, value),
        None => command.env_remove(SINGLE_THREADED),
    };
    command
}

/// Runs a worker to its end; what it reports.
pub(crate) fn await_worker<T: DeserializeOwned>(
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
    let ended = format!("the process of {name} ended with {}", output.status);
    match output.status.code() {
        Some(0) => {}
        Some(1) => return Err(Failure::usage(ended)),
        Some(2) => return Err(Failure::environment(ended)),
        _ => return Err(Failure::run(ended)),
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::run(format!("the process of {name} reported nonsense: {error}")))
}
