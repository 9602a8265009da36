//! `dat-bench scale`: what a message costs by the number of endpoints.
//!
//! ```text
//! run       starts a process for each number and kind; reports
//! messages  many endpoints, messages laid ready, and taken       (a process)
//! memory    many endpoints, and what they take                   (a process)
//! valgrind  instrumentation switched on for the measured section alone
//! report    table, JSON, picture
//! ```

mod memory;
mod messages;
mod report;
mod valgrind;

use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use self::report::{Conditions, Outcome};
use crate::cli::ScaleArgs;
use crate::cost::callgrind::Counts;
use crate::cost::{await_worker, own_executable};
use crate::failure::Failure;
use crate::host::Host;
use crate::output::{self, probe, save};
use crate::report::DeviceFacts;
use crate::select;

/// What a process of this command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Times messages
    Timed,
    /// Has messages counted
    Counted,
    /// Memory of the engine's endpoints
    Engine,
    /// Memory of DAT's endpoints
    Dat,
    /// Memory of queue pairs of libmlx5
    Libmlx5,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Timed => "timed",
            Self::Counted => "counted",
            Self::Engine => "engine",
            Self::Dat => "dat",
            Self::Libmlx5 => "libmlx5",
        }
    }
}

/// What a process tells.
#[derive(Deserialize, Serialize)]
enum Told {
    /// Nanoseconds per message, of each section.
    Nanoseconds(Vec<f64>),
    /// Messages of each section that was counted.
    Counted(Vec<u32>),
    /// Resident bytes that came with the endpoints.
    Memory(u64),
}

/// Runs the command.
pub(crate) fn run(args: &ScaleArgs) -> Result<(), Failure> {
    args.check()?;
    select::drive(args.path);
    let selected = select::select(args.device.as_deref())?;
    select::require_addresses(&selected, "take another device, or measure lat there")?;
    if let Some(kind) = args.worker {
        let count = args.endpoints[0];
        let told = match kind {
            Kind::Timed | Kind::Counted => messages::run(kind, &selected, count, args)?,
            _ => Told::Memory(memory::run(kind, &selected, count, args)?),
        };
        return output::line(serde_json::to_string(&told).expect("finite numbers"));
    }
    for path in [&args.json, &args.svg].into_iter().flatten() {
        // Refused now rather than after the measurement.
        probe(path)?;
    }
    let conditions = Conditions {
        host: Host::read(),
        device: DeviceFacts::of(&selected, args.ib_port)?,
        rounds: args.rounds,
        messages_per_section: messages::TIMED,
        cpu: args.cpu,
    };
    let mut outcomes = Vec::new();
    for &count in &args.endpoints {
        outcomes.push(one(count, &selected.name, args)?);
    }
    let shown = output::print(report::text(&conditions, &outcomes));
    if let Some(path) = &args.json {
        save(path, &report::json(&conditions, &outcomes))?;
    }
    if let Some(path) = &args.svg {
        save(path, &report::picture(&conditions, &outcomes)?)?;
    }
    shown?;
    output::written(
        [&args.json, &args.svg]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref),
    )
}

/// Everything about one number of endpoints.
fn one(count: u32, device: &str, args: &ScaleArgs) -> Result<Outcome, Failure> {
    let this = own_executable()?;
    let ask = |kind: Kind| {
        let command = worker(Command::new(&this), kind, count, device, args);
        await_worker::<Told>(command, kind.name())
    };
    let nonsense = || Failure::run("a worker tells what it was not asked");
    let bytes = |kind| match ask(kind)? {
        Told::Memory(bytes) => Ok(bytes),
        _ => Err(nonsense()),
    };
    let Told::Nanoseconds(nanoseconds) = ask(Kind::Timed)? else {
        return Err(nonsense());
    };
    let mut outcome = Outcome {
        endpoints: count,
        nanoseconds,
        instructions: None,
        cache_lines: None,
        engine: bytes(Kind::Engine)?,
        dat: bytes(Kind::Dat)?,
        libmlx5: bytes(Kind::Libmlx5)?,
    };
    if args.instructions {
        let counts = Counts::prepare("scale")?;
        let mut command = counts.command_with_cache(&this);
        // Where its registers are known, valgrind looks at the section alone.
        if valgrind::CAN_SWITCH {
            command = counts.command_switched(&this);
        }
        let command = worker(command, Kind::Counted, count, device, args);
        let Told::Counted(sections) = await_worker::<Told>(command, "counted")? else {
            return Err(nonsense());
        };
        let totals = counts.totals(sections.len())?;
        let [(few, less), (many, more)] = [0, 1].map(|at| {
            let at = sections.len() - 2 + at;
            (f64::from(sections[at]), &totals[at])
        });
        let per = |more: u64, less: u64| (more as f64 - less as f64) / (many - few);
        outcome.instructions = Some(per(more.instructions, less.instructions));
        // All of the section: its messages go to as many endpoints as there are.
        outcome.cache_lines = valgrind::CAN_SWITCH.then(|| more.lines as f64 / many);
    }
    Ok(outcome)
}

/// This program as a worker.
fn worker(mut command: Command, kind: Kind, count: u32, device: &str, args: &ScaleArgs) -> Command {
    command.args(["scale", "-d", device, "--worker", kind.name()]);
    command.args(["--iters", &args.rounds.to_string()]);
    command.args(["--endpoints", &count.to_string()]);
    command.args(["--ib-port", &args.ib_port.to_string()]);
    if let Some(path) = args.path {
        command.args(["--path", path.name()]);
    }
    if let Some(cpu) = args.cpu {
        command.args(["--cpu", &cpu.to_string()]);
    }
    command
}
