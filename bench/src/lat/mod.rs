//! `dat-bench lat`: ping-pong latency. A module names only those below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `loop_tests` | the loops over links in memory |
//! | `json`, `table`, `layers`, `histogram`, `samples` | output |
//! | `sides` | the passes between two sides, in one process or in two |
//! | `outcome` | the results of a case |
//! | `open` | the open loop: messages on schedule |
//! | `closed` | the closed loop, and the responder |
//! | `messages` | how the messages of each kind are posted, and their arrival noticed |
//! | `side` | one side: a link, and its send queue's credits |
//! | `credits` | which requests are signalled |
//! | `plan` | sizes, rounds and turns of the interfaces |
//! | `conditions` | the lines above the table |
//! | `meter` | warm-up, samples, and the end |
//! | `pass` | one uninterrupted measurement: what it exchanges and records |
//! | `arrival` | how the receiver of an RDMA write notices it |
//! | `options` | options and help |

mod arrival;
mod closed;
mod conditions;
mod credits;
mod histogram;
mod json;
mod layers;
#[cfg(test)]
mod loop_tests;
mod messages;
mod meter;
mod open;
pub(crate) mod options;
mod outcome;
mod pass;
mod plan;
mod samples;
mod side;
mod sides;
mod table;

use self::conditions::Conditions;
use self::options::LatArgs;
use self::outcome::Outcome;
use self::plan::Plan;
use self::table::Columns;
use crate::ends::Needs;
use crate::failure::Failure;
use crate::output;
use crate::report::fit::fit;
use crate::report::{Files, Reliability, reliability};
use crate::runs::{self, Measured, Sides};

/// Runs the command. Prints the result of each size when it is measured.
pub(crate) fn run(args: &LatArgs) -> Result<(), Failure> {
    args.check()?;
    let mut files = Files::prepare(&args.run.results, &args.histograms, cases(args))?;
    output::probe_all(&args.samples())?;
    if let Some(wait) = args.wait() {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var("DAT_WAIT", wait.name()) };
    }
    let needs = Needs {
        largest: args.sizes().into_iter().max().unwrap_or(1),
        endpoints: args.endpoints,
    };
    let opened = runs::open(&args.run, &needs)?;
    let mut plan = Plan::new(args);
    plan.fit_to_device(&opened.device_port, opened.listen, args)?;
    if args.run.is_server() {
        return runs::serve(&opened, &mut plan, &args.run, &[]);
    }
    // Connects before it prints the head of the table.
    let sides = Sides::connect(&opened.interfaces, &mut plan, &args.run, None)?;
    let conditions = plan.conditions(opened.conditions(&plan.common, &args.run));
    let columns = Columns {
        rates: conditions.is_open(),
        apis: conditions.run.has_several_apis(),
    };
    let head = format!(
        "{}\n{}",
        fit(&conditions.to_string()),
        table::header(columns)
    );
    let rows = |outcomes: &[Outcome]| table::rows(outcomes, columns);
    let Measured { outcomes, ended } = runs::measure(sides, &plan, head, rows)?;
    if outcomes.is_empty() {
        return ended;
    }
    // What was measured before a failure is kept.
    let mut text = text_below(&conditions, columns, &outcomes, args.first_look);
    if let Some(path) = args.samples() {
        text += &fit(&samples::note(&path, &outcomes, plan.most_kept()));
        files.add(path, samples::document(&outcomes));
    }
    let json = json::text(&conditions, &outcomes, ended.is_ok());
    let samples = outcomes.iter().flat_map(|outcome| {
        let service = outcome.open.iter().map(|open| &open.service.samples);
        [&outcome.times.samples].into_iter().chain(service)
    });
    files.conclude(ended, text, &json, samples, &judged(&conditions, &outcomes))
}

fn judged<'a>(conditions: &Conditions, outcomes: &'a [Outcome]) -> Vec<Reliability<'a>> {
    let judge = |outcome: &'a Outcome| outcome.reliability(conditions);
    outcomes.iter().map(judge).collect()
}

/// Returns the words that distinguish the files of the cases, in the order of the
/// outcomes. In an open loop the service times have a file of their own.
fn cases(args: &LatArgs) -> Vec<Vec<String>> {
    let (sizes, rates, apis) = (args.sizes(), args.rates(), &args.run.api);
    let mut cases = Vec::new();
    for size in &sizes {
        for rate in &rates {
            for api in apis {
                let size = (sizes.len() > 1).then(|| size.to_string());
                let name = rate
                    .filter(|_| rates.len() > 1)
                    .map(|rate| rate.to_string());
                let api = (apis.len() > 1).then(|| api.name().to_owned());
                let words: Vec<_> = [size, name, api].into_iter().flatten().collect();
                cases.push(words.clone());
                if rate.is_some() {
                    cases.push([words, vec!["service".to_owned()]].concat());
                }
            }
        }
    }
    cases
}

/// Returns the text below the table.
fn text_below(
    conditions: &Conditions,
    columns: Columns,
    outcomes: &[Outcome],
    is_first_look: bool,
) -> String {
    let mut text = format!("{}\n", table::NOTE);
    if columns.rates {
        text += &format!("{}\n", table::RATES_NOTE);
    }
    if columns.apis {
        text += &format!("{}\n", layers::NOTE);
    }
    let judged = judged(conditions, outcomes);
    text += &match is_first_look {
        true => reliability::first_look(&judged),
        false => reliability::text(&judged),
    };
    if let [outcome] = outcomes {
        text += &format!("\n{}\n", histogram::text(outcome, conditions));
    }
    text
}
