//! `dat-bench bw` and `dat-bench rate`: bandwidth and message rate.
//!
//! ```text
//! run              options → device → interfaces → loopback, client or server → report
//! plan             depths, lists, sizes, rounds
//! interface        the measured interfaces as trait objects
//! loopback pair    both sides in one process; in two, with the control connection
//! side             the measuring loop: turns of all endpoints of a side
//! flow queue       one endpoint: posting, taking, flow control; its send queue
//! meter            from the first post to the last completion; the peak
//! outcome report   the results of a case; table and JSON
//! ```
//!
//! The connections are those of `crate::ends`.

mod flow;
mod interface;
#[cfg(test)]
mod loop_tests;
mod loopback;
mod meter;
pub(crate) mod options;
mod outcome;
mod pair;
mod plan;
mod queue;
mod report;
mod side;

use crate::bw::options::{BwArgs, Throughput};
use crate::ends::{self, Needs};
use crate::failure::Failure;
use crate::report::fit::fit;
use crate::report::{Files, Progress, Reliability, reliability};
use crate::{interrupt, output, results};

use self::interface::{LocalPair, RemoteSide};
use self::outcome::Outcome;
use self::plan::{Pass, Plan};

/// Runs one of the two commands. Prints the result of each size when it is measured.
pub(crate) fn run(what: Throughput, args: &BwArgs) -> Result<(), Failure> {
    args.check()?;
    let files = Files::of_run(&args.run.results)?;
    let needs = Needs {
        largest: args.sizes(what).into_iter().max().unwrap_or(1),
        endpoints: args.endpoints,
    };
    let opened = ends::open(&args.run, &needs)?;
    let plan = Plan::new(args, what, &opened)?;
    if args.run.is_server() {
        return pair::serve(&opened, &plan, args);
    }
    // Connects before it prints the head of the table.
    let mut sides = Sides::connect(
        &opened.interfaces,
        &plan,
        &plan.options(),
        &args.run,
        plan.setup.timeout,
    )?;
    let conditions = plan.conditions(args, &opened);
    let head = format!(
        "{}\n{}",
        fit(&conditions.to_string()),
        report::header(&conditions)
    );
    let progress = Progress::begin(head, plan.amount.sizes.len())?;
    interrupt::catch();
    let mut outcomes = Vec::new();
    let mut ended = Ok(());
    for &size in &plan.amount.sizes {
        let (measured, result) = measure(&mut sides, size, &plan, args.moderation(size));
        let shown = match measured.is_empty() {
            true => Ok(()),
            false => progress.rows(&report::rows(&measured, &conditions)),
        };
        outcomes.extend(measured);
        ended = result.and(shown);
        if ended.is_err() {
            break;
        }
    }
    // A call that Ctrl-C interrupted may have failed for that reason.
    if let Err(failure) = interrupt::check() {
        sides.abort(&failure);
        ended = Err(failure);
    }
    progress.end();
    if outcomes.is_empty() {
        return ended;
    }
    // What was measured before a failure is kept.
    let judged: Vec<Reliability<'_>> = outcomes.iter().map(Outcome::reliability).collect();
    let text = format!(
        "{}\n{}",
        report::note(&conditions),
        reliability::text(&judged)
    );
    let json = report::json(&conditions, &outcomes, ended.is_ok());
    let finished = output::finish(text, files.contents(&json, [])?);
    ended.and(finished)?;
    results::require(&json, &args.fail_if)?;
    reliability::require(args.run.strict, &judged)
}

/// The connected sides of every interface.
type Sides = ends::Sides<Box<dyn LocalPair>, Box<dyn RemoteSide>>;

/// Measures one size through every interface, in turns. Returns the results that
/// have rounds, also after a failure.
fn measure(
    sides: &mut Sides,
    size: u32,
    plan: &Plan,
    moderation: u32,
) -> (Vec<Outcome>, Result<(), Failure>) {
    let new = |&api| Outcome::new(size, api);
    let mut outcomes: Vec<Outcome> = plan.amount.apis.iter().map(new).collect();
    let mut passes = plan.amount.passes();
    let ended = passes.try_for_each(|(round, turn)| {
        interrupt::check()?;
        let pass = Pass { size, round };
        let recording = match sides {
            Sides::Local(both) => both[turn].measure(pass, plan, moderation),
            Sides::Remote(connection) => {
                connection.run(|sides, peer| sides[turn].run(pass, plan, moderation, peer))
            }
        }?;
        outcomes[turn].add(&recording);
        Ok(())
    });
    outcomes.retain(Outcome::has_rounds);
    (outcomes, ended)
}
