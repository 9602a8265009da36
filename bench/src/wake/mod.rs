//! `dat-bench wake`: wake-up latency and CPU time of waiting, per wait policy
//! and message rate.
//!
//! ```text
//! run       measures all policies and rates in rounds; reports
//! pair      two connected endpoints, and the event dispatcher to wait on
//! case      one policy at one rate: the waiting thread and the sending thread
//! outcome   the results of a case in all rounds
//! report    table and JSON        plot   SVG
//! ```

mod case;
mod outcome;
mod pair;
mod plot;
mod report;

use dat_api::safe::Adapter;

use self::case::{Case, Cpus};
use self::outcome::Outcome;
use self::pair::call_failed;
use self::report::Conditions;
use crate::cli::WakeArgs;
use crate::clock::Clock;
use crate::failure::Failure;
use crate::host::{self, Host};
use crate::launcher;
use crate::nic::Nic;
use crate::output::{self, probe, save};
use crate::report::{DeviceFacts, hgrm, with_suffix};
use crate::select;

/// Runs the command.
pub(crate) fn run(args: &WakeArgs) -> Result<(), Failure> {
    args.check()?;
    select::set_data_path(args.path);
    let selected = select::select(args.device.as_deref())?;
    let device = DeviceFacts::of(&selected, args.ib_port)?;
    // Refuses a file that cannot be written before the measurement.
    for path in [&args.json, &args.svg].into_iter().flatten() {
        probe(path)?;
    }
    let adapter =
        Adapter::open(&format!("{}-{}", device.name, device.port)).map_err(call_failed)?;
    let mut nic = Nic::find(launcher::fabric().is_some(), core::time::Duration::ZERO)?;
    // After the adapter is open: threads that it started stay unpinned.
    let cpus = Cpus::choose(&args.cpu)?;
    if let Some(cpu) = cpus.sender {
        host::pin(cpu)?;
    }
    let clock = Clock::calibrate();
    let mut outcomes: Vec<Outcome> = args
        .rate
        .iter()
        .flat_map(|&rate| args.wait.iter().map(move |&policy| (rate, policy)))
        .map(|(rate, policy)| Outcome::new(rate, policy, &clock))
        .collect();
    let hgrm_file = |outcome: &Outcome| {
        let word = format!("{}.{}", outcome.policy, outcome.rate).replace(':', "-");
        args.hgrm.as_ref().map(|path| with_suffix(path, &word))
    };
    for path in outcomes.iter().filter_map(hgrm_file) {
        probe(&path)?;
    }
    for _ in 0..args.rounds {
        for outcome in &mut outcomes {
            let case = Case {
                policy: outcome.policy,
                rate: outcome.rate,
                duration: args.duration,
                cpus,
                clock,
            };
            outcome.add(case.run(&adapter, &mut nic)?);
        }
    }
    let conditions = Conditions {
        host: Host::read(),
        device,
        rounds: args.rounds,
        seconds: args.duration.as_secs_f64(),
        cpus,
        clock: clock.name(),
    };
    let shown = output::print(report::text(&conditions, &outcomes));
    let mut written = Vec::new();
    if let Some(path) = &args.json {
        save(path, &report::json(&conditions, &outcomes))?;
        written.push(path.clone());
    }
    for outcome in &outcomes {
        if let Some(path) = hgrm_file(outcome) {
            save(&path, &hgrm::document(&outcome.samples))?;
            written.push(path);
        }
    }
    if let Some(path) = &args.svg {
        save(path, &plot::svg(&conditions, &outcomes)?)?;
        written.push(path.clone());
    }
    shown?;
    output::written(written.iter().map(AsRef::as_ref))
}
