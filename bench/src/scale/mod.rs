//! `dat-bench scale`: cost per message and memory for many endpoints on one
//! shared receive queue.
//!
//! ```text
//! run       starts a worker process per number of endpoints and kind; reports
//! messages  worker: cost per message
//! endpoints the endpoints of messages
//! pages     page faults and dTLB misses of the timed sections
//! memory    worker: memory per endpoint
//! report    table, JSON
//! ```

mod endpoints;
mod memory;
mod messages;
pub(crate) mod options;
mod pages;
mod report;

use std::process::Command;

use self::messages::WorkerResult;
use self::options::{Kind, ScaleArgs};
use self::report::{Conditions, Cost, Memory, Outcome};
use crate::ends::engine::Engine;
use crate::ends::libmlx5::Verbs;
use crate::failure::Failure;
use crate::host::Host;
use crate::output;
use crate::report::{DeviceFacts, Files};
use crate::select;
use crate::worker::callgrind::{Counts, SWITCHED, WITH_CACHE};
use crate::worker::{Worker, own_executable, valgrind};

/// Runs the command.
pub(crate) fn run(args: &ScaleArgs) -> Result<(), Failure> {
    args.check()?;
    let files = Files::of_run(&args.results)?;
    let selected = args.on.select()?;
    select::require_addresses(&selected, "take another device, or measure lat there")?;
    if let Some(kind) = args.worker {
        let count = args.endpoints[0];
        let result = match kind {
            Kind::Timed => messages::timed::<Engine>(&selected, count, args)?,
            Kind::TimedLibmlx5 => messages::timed::<Verbs>(&selected, count, args)?,
            Kind::Counted => messages::counted::<Engine>(&selected, count, args)?,
            Kind::CountedLibmlx5 => messages::counted::<Verbs>(&selected, count, args)?,
            _ => WorkerResult::Memory(memory::run(kind, &selected, count, args)?),
        };
        return output::line(serde_json::to_string(&result).expect("finite numbers"));
    }
    let conditions = Conditions {
        host: Host::read(),
        device: DeviceFacts::of(&selected, args.on.ib_port)?,
        rounds: args.rounds,
        messages_per_section: messages::TIMED,
        cpu: args.cpu,
    };
    let mut outcomes = Vec::new();
    for &count in &args.endpoints {
        outcomes.push(one(count, &selected.name, args)?);
    }
    let text = report::text(&conditions, &outcomes);
    let json = report::json(&conditions, &outcomes);
    let judged = report::judged(&outcomes);
    files.conclude(Ok(()), text, &json, [], &judged)
}

/// Measures one number of endpoints.
fn one(count: u32, device: &str, args: &ScaleArgs) -> Result<Outcome, Failure> {
    let bytes = |kind| match ask(kind, count, device, args)? {
        WorkerResult::Memory(bytes) => Ok(bytes),
        _ => Err(wrong_result()),
    };
    Ok(Outcome {
        endpoints: count,
        engine: cost([Kind::Timed, Kind::Counted], count, device, args)?,
        libmlx5: cost(
            [Kind::TimedLibmlx5, Kind::CountedLibmlx5],
            count,
            device,
            args,
        )?,
        memory: Memory {
            libmlx5: bytes(Kind::Libmlx5)?,
            engine: bytes(Kind::Engine)?,
            dat: bytes(Kind::Dat)?,
        },
    })
}

/// Runs a worker process.
fn ask(kind: Kind, count: u32, device: &str, args: &ScaleArgs) -> Result<WorkerResult, Failure> {
    let worker = worker(kind, device, args);
    worker.run(command(&worker, count, Command::new(own_executable()?)))
}

fn wrong_result() -> Failure {
    Failure::run(
        "a worker process reported another measurement than requested; are all programs of the same build?",
    )
}

/// Measures the cost per message in worker processes of these kinds.
fn cost(
    [timed, counted]: [Kind; 2],
    count: u32,
    device: &str,
    args: &ScaleArgs,
) -> Result<Cost, Failure> {
    let WorkerResult::Timed {
        nanoseconds,
        noise,
        pages,
    } = ask(timed, count, device, args)?
    else {
        return Err(wrong_result());
    };
    let mut cost = Cost {
        nanoseconds,
        noise: *noise,
        pages,
        instructions: None,
        cache_lines: None,
    };
    if args.instructions {
        let counts = Counts::prepare("scale")?;
        let mut options = WITH_CACHE.to_vec();
        // Where its request registers are known, callgrind is on in the section only.
        options.extend(valgrind::CAN_SWITCH.then_some(SWITCHED));
        let command = counts.command(&options, &own_executable()?);
        let worker = worker(counted, device, args);
        let command = self::command(&worker, count, command);
        let WorkerResult::Counted(sections) = worker.run::<WorkerResult>(command)? else {
            return Err(wrong_result());
        };
        let totals = counts.totals(sections.len())?;
        let [(few, less), (many, more)] = [0, 1].map(|at| {
            let at = sections.len() - 2 + at;
            (f64::from(sections[at]), &totals[at])
        });
        let per = |more: u64, less: u64| (more as f64 - less as f64) / (many - few);
        cost.instructions = Some(per(more.instructions, less.instructions));
        // The whole last section, not a difference: its messages reach the most endpoints.
        cost.cache_lines = valgrind::CAN_SWITCH.then(|| more.lines as f64 / many);
    }
    Ok(cost)
}

fn worker<'a>(kind: Kind, device: &'a str, args: &'a ScaleArgs) -> Worker<'a> {
    Worker {
        command: "scale",
        kind: kind.name(),
        device,
        on: &args.on,
        rounds: args.rounds,
        cpu: args.cpu,
        is_single_threaded: matches!(kind, Kind::TimedLibmlx5 | Kind::CountedLibmlx5),
    }
}

fn command(worker: &Worker<'_>, count: u32, program: Command) -> Command {
    let mut command = worker.of(program);
    command.args(["--endpoints", &count.to_string()]);
    command
}
