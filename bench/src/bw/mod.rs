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

use self::options::{BwArgs, Throughput};
use self::outcome::Outcome;
use self::plan::Plan;
use self::report::Conditions;
use crate::ends::Needs;
use crate::failure::Failure;
use crate::report::fit::fit;
use crate::report::{Files, Reliability, reliability};
use crate::runs::{self, Measured, Sides};

/// Runs one of the two commands. Prints the result of each size when it is measured.
pub(crate) fn run(what: Throughput, args: &BwArgs) -> Result<(), Failure> {
    args.check(what)?;
    let files = Files::of_run(&args.run.results)?;
    let needs = Needs {
        largest: args.sizes(what).into_iter().max().unwrap_or(1),
        endpoints: args.endpoints,
    };
    let opened = runs::open(&args.run, &needs)?;
    let mut plan = Plan::new(args, what, &opened.device_port, opened.listen)?;
    if args.run.is_server() {
        return runs::serve(&opened, &mut plan, &args.run);
    }
    // Connects before it prints the head of the table.
    let sides = Sides::connect(&opened.interfaces, &mut plan, &args.run)?;
    let conditions = Conditions::of(&plan, opened.conditions(&plan.common, &args.run));
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
