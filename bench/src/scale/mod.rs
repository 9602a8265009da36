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

use dat_engine::Device;

use self::messages::WorkerResult;
use self::options::{Kind, ScaleArgs};
use self::report::{Conditions, Cost, Memory, Outcome};
use crate::ends::engine::Engine;
use crate::ends::libmlx5::Verbs;
use crate::failure::Failure;
use crate::host::Host;
use crate::launcher::own_executable;
use crate::output;
use crate::report::{DeviceFacts, Files};
use crate::select;
use crate::select::Selected;
use crate::worker::callgrind::{Counts, SWITCHED, WITH_CACHE};
use crate::worker::{Worker, valgrind};

/// Runs the command.
pub(crate) fn run(args: &ScaleArgs) -> Result<(), Failure> {
    args.check()?;
    let files = Files::of_run(&args.common.results)?;
    let selected = args.common.on.select()?;
    select::require_addresses(&selected, "take another device, or measure lat there")?;
    if let Some(kind) = args.worker {
        let result = measure(kind, &selected, args)?;
        return output::line(serde_json::to_string(&result).expect("finite numbers"));
    }
    let conditions = Conditions {
        host: Host::read(),
        device: DeviceFacts::of(&selected, args.common.on.ib_port)?,
        rounds: args.rounds,
        messages_per_section: messages::TIMED,
        cpu: args.common.cpu,
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

/// Measures, as a worker process.
fn measure(kind: Kind, selected: &Selected, args: &ScaleArgs) -> Result<WorkerResult, Failure> {
    let (count, port) = (args.endpoints[0], args.common.on.ib_port);
    let adapter = || format!("{}-{port}", selected.name);
    let device = Device::open(&selected.name)?;
    let port = device.port(port)?;
    match kind {
        Kind::Engine => messages::run(&Engine::open(&device, port, false)?, count, args),
        Kind::Libmlx5 => messages::run(&Verbs::open(&selected.name, port, false)?, count, args),
        Kind::EngineMemory => memory::engine(&device, count),
        Kind::DatMemory => memory::dat(&adapter(), count),
        Kind::Libmlx5Memory => memory::libmlx5(&Verbs::open(&selected.name, port, false)?, count),
    }
}

/// Measures one number of endpoints.
fn one(count: u32, device: &str, args: &ScaleArgs) -> Result<Outcome, Failure> {
    let bytes = |kind| match ask(&worker(kind, device, args), count)? {
        WorkerResult::Memory(bytes) => Ok(bytes),
        _ => Err(wrong_result()),
    };
    Ok(Outcome {
        endpoints: count,
        engine: cost(Kind::Engine, count, device, args)?,
        libmlx5: cost(Kind::Libmlx5, count, device, args)?,
        memory: Memory {
            libmlx5: bytes(Kind::Libmlx5Memory)?,
            engine: bytes(Kind::EngineMemory)?,
            dat: bytes(Kind::DatMemory)?,
        },
    })
}

/// Runs a worker process.
fn ask(worker: &Worker<'_>, count: u32) -> Result<WorkerResult, Failure> {
    worker.run(command(worker, count, Command::new(own_executable()?)))
}

fn wrong_result() -> Failure {
    Failure::run(
        "a worker process reported another measurement than requested; are all programs of the same build?",
    )
}

/// Measures the cost per message in worker processes of this kind.
fn cost(kind: Kind, count: u32, device: &str, args: &ScaleArgs) -> Result<Cost, Failure> {
    let worker = worker(kind, device, args);
    let WorkerResult::Timed {
        nanoseconds,
        noise,
        pages,
    } = ask(&worker, count)?
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
    if args.common.instructions {
        let counts = Counts::prepare("scale")?;
        let mut options = WITH_CACHE.to_vec();
        // Where its request registers are known, callgrind is on in the section only.
        options.extend(valgrind::CAN_SWITCH.then_some(SWITCHED));
        let program = counts.command(&options, &own_executable()?);
        let mut command = command(&worker, count, program);
        command.arg("--counted");
        let WorkerResult::Counted(sections) = worker.run(command)? else {
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
        args: &args.common,
        rounds: args.rounds,
        is_single_threaded: kind == Kind::Libmlx5,
    }
}

fn command(worker: &Worker<'_>, count: u32, program: Command) -> Command {
    let mut command = worker.of(program);
    command.args(["--endpoints", &count.to_string()]);
    command
}
