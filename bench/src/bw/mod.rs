//! `dat-bench bw` and `dat-bench rate`: bandwidth and message rate. A module names only those
//! below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `loop_tests` | the loop over links in memory |
//! | `report` | table and JSON |
//! | `sides` | the passes between two sides, in one process or in two |
//! | `outcome` | the results of a case |
//! | `side` | one side: the turns of all its endpoints |
//! | `flow` | one endpoint: posting, taking, flow control |
//! | `queue` | the send queue of an endpoint |
//! | `plan` | depths, lists, sizes, rounds |
//! | `meter` | from the first post to the last completion; the peak |
//! | `pass` | one uninterrupted measurement, and what it records |
//! | `options` | options and help |

mod flow;
#[cfg(test)]
mod loop_tests;
mod meter;
pub(crate) mod options;
mod outcome;
mod pass;
mod plan;
mod queue;
mod report;
mod side;
mod sides;

use std::sync::mpsc::{self, Sender};
use std::thread;

use self::options::{BwArgs, Throughput};
use self::outcome::Outcome;
use self::plan::Plan;
use self::report::Conditions;
use crate::ends::Needs;
use crate::exchange::Peer;
use crate::failure::Failure;
use crate::report::fit::fit;
use crate::report::{Files, Reliability, reliability};
use crate::runs::{self, Measured, Member, Opened, Sides, Team};

/// Runs one of the two commands. Prints the result of each size when it is measured.
pub(crate) fn run(what: Throughput, args: &BwArgs) -> Result<(), Failure> {
    args.check(what)?;
    if args.threads == 1 {
        return first(what, args, None, &[]);
    }
    let team = &Team::new(args.threads);
    // The threads begin before the first one is pinned, which they would inherit. They wait until
    // it has opened the device.
    thread::scope(|scope| {
        let follow = |number: u32| {
            let (peers, clients) = mpsc::channel();
            scope.spawn(move || {
                let args = &one_thread(args, number);
                let open = || opened(what, args);
                runs::follow((team, number), &args.run, &clients, open);
            });
            peers
        };
        let peers: Vec<_> = (1..args.threads).map(follow).collect();
        let done = first(what, args, Some((team, 0)), &peers);
        team.end("the first thread has ended");
        done
    })
}

/// Returns the options of a thread.
fn one_thread(args: &BwArgs, number: u32) -> BwArgs {
    let mut args = args.clone();
    let cpu = args.run.cpu.get(number as usize).copied();
    args.run.cpu = cpu.into_iter().collect();
    if number > 0 {
        // The first thread has put it into the environment.
        args.run.listen = None;
    }
    args
}

/// Opens the device and makes the plan.
fn opened(what: Throughput, args: &BwArgs) -> Result<(Opened<Plan>, Plan), Failure> {
    let needs = Needs {
        largest: args.sizes(what).into_iter().max().unwrap_or(1),
        endpoints: args.endpoints * args.threads,
    };
    let opened = runs::open(&args.run, &needs)?;
    let plan = Plan::new(args, what, &opened.device_port, opened.listen)?;
    Ok((opened, plan))
}

/// Runs the first thread; `peers` takes the control connections of a server's others.
fn first(
    what: Throughput,
    args: &BwArgs,
    team: Option<Member<'_, Plan>>,
    peers: &[Sender<Peer>],
) -> Result<(), Failure> {
    let files = Files::of_run(&args.run.results)?;
    let (opened, mut plan) = opened(what, &one_thread(args, 0))?;
    if let Some((team, _)) = team {
        team.meet()?;
    }
    if args.run.is_server() {
        return runs::serve(&opened, &mut plan, &args.run, peers);
    }
    // Connects before it prints the head of the table.
    let sides = Sides::connect(&opened.interfaces, &mut plan, &args.run, team)?;
    let conditions = Conditions::of(&plan, args, opened.conditions(&plan.common, &args.run));
    let head = format!(
        "{}\n{}",
        fit(&conditions.to_string()),
        report::header(&conditions)
    );
    let rows = |outcomes: &[Outcome]| report::rows(outcomes, &conditions);
    let Measured { outcomes, ended } = runs::measure(sides, &plan, head, rows)?;
    if outcomes.is_empty() {
        return ended;
    }
    // What was measured before a failure is kept.
    let judged: Vec<Reliability<'_>> = outcomes.iter().map(Outcome::reliability).collect();
    let text = format!(
        "{}\n{}",
        fit(&report::note(&conditions)),
        reliability::text(&judged)
    );
    let json = report::json(&conditions, &outcomes, ended.is_ok());
    files.conclude(ended, text, &json, [], &judged)
}
