//! `dat-bench wake`: wake-up latency and CPU time of waiting, per wait policy
//! and message rate.
//!
//! ```text
//! run       measures all policies and rates in rounds; reports
//! pair      two connected endpoints, and the event dispatcher to wait on
//! case      one policy at one rate: the waiting thread and the sending thread
//! outcome   the results of a case in all rounds
//! report    table and JSON
//! ```

mod case;
pub(crate) mod options;
mod outcome;
mod pair;
mod report;

use self::case::{Case, Cpus};
use self::outcome::Outcome;
use self::report::Conditions;
use crate::clock::Clock;
use crate::ends::rust::Rust;
use crate::failure::Failure;
use crate::host::{self, Host};
use crate::launcher;
use crate::nic::Nic;
use crate::report::{DeviceFacts, Files};
use crate::wake::options::WakeArgs;

/// Runs the command.
pub(crate) fn run(args: &WakeArgs) -> Result<(), Failure> {
    args.check()?;
    let selected = args.on.select()?;
    let device = DeviceFacts::of(&selected, args.on.ib_port)?;
    let rust = Rust::open(&format!("{}-{}", device.name, device.port), false)?;
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
    let cases: Vec<_> = outcomes
        .iter()
        .map(|it| vec![it.policy.to_string(), it.rate.to_string()])
        .collect();
    let files = Files::prepare(&args.results, &args.histograms, cases)?;
    for _ in 0..args.rounds {
        for outcome in &mut outcomes {
            let case = Case {
                policy: outcome.policy,
                rate: outcome.rate,
                duration: args.duration,
                cpus,
                clock,
            };
            outcome.add(case.run(&rust, &mut nic)?);
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
    let text = report::text(&conditions, &outcomes);
    let json = report::json(&conditions, &outcomes);
    let samples = outcomes.iter().map(|it| &it.times.samples);
    let judged: Vec<_> = outcomes.iter().map(Outcome::reliability).collect();
    files.conclude(Ok(()), text, &json, samples, &judged)
}
