//! `dat-bench lat`: ping-pong latency.
//!
//! ```text
//! run                     options → device → interfaces → loopback, client or server → report
//! kind                    what messages are exchanged, and how a write is noticed
//! plan meter              sizes, rounds and turns of the interfaces; sampling
//! interface               the measured interfaces as trait objects
//! loopback pair           both sides in one process; in two, with the control connection
//! pass                    one pass of the measuring side
//! send write read open    the measuring loops, one per file
//! side credits            used by the loops: one side, its send queue's credits
//! ```
//!
//! The connections are those of `crate::ends`.

mod credits;
mod interface;
mod kind;
#[cfg(test)]
mod loop_tests;
mod loopback;
mod meter;
mod open;
pub(crate) mod options;
mod pair;
mod pass;
mod plan;
mod read;
mod send;
mod side;
mod write;

use crate::ends::{self, Needs};
use crate::failure::Failure;
use crate::lat::options::LatArgs;
use crate::noise::Noise;
use crate::report::fit::fit;
use crate::report::{
    self, Columns, Conditions, Distribution, Files, Open, Outcome, Progress, Reliability,
    reliability,
};
use crate::stats::pace::Pace;
use crate::{interrupt, output, results};

use self::interface::{LocalPair, RemoteSide};
use self::plan::{Pass, Plan};

/// Runs the command. Prints the result of each size when it is measured.
pub(crate) fn run(args: &LatArgs) -> Result<(), Failure> {
    args.check()?;
    let files = Files::prepare(&args.run.results, &args.histograms, cases(args))?;
    if let Some(wait) = args.wait {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var("DAT_WAIT", wait.name()) };
    }
    let needs = Needs {
        largest: args.sizes().into_iter().max().unwrap_or(1),
        endpoints: 1,
    };
    let opened = ends::open(&args.run, &needs)?;
    let mut plan = Plan::new(args);
    plan.fit_to_device(&opened, args)?;
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
    plan.arrival = kind::arrival(&mut sides, &plan, args)?;
    let conditions = plan.conditions(&opened, &args.run);
    let columns = Columns {
        rates: conditions.is_open(),
        apis: conditions.run.has_several_apis(),
    };
    let head = format!(
        "{}\n{}",
        fit(&conditions.to_string()),
        report::header(columns)
    );
    let progress = Progress::begin(head, plan.amount.sizes.len() * plan.rates.len())?;
    interrupt::catch();
    let mut outcomes = Vec::new();
    let mut ended = measure_all(&mut sides, &plan, columns, &progress, &mut outcomes);
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
    let text = text_below(&conditions, columns, &outcomes, args.first_look);
    let json = report::json(&conditions, &outcomes, ended.is_ok());
    let samples = outcomes.iter().flat_map(|outcome| {
        let service = outcome.open.iter().map(|open| &open.service.samples);
        [&outcome.times.samples].into_iter().chain(service)
    });
    let finished = output::finish(text, files.contents(&json, samples)?);
    ended.and(finished)?;
    results::require(&json, &args.fail_if)?;
    reliability::require(args.run.strict, &judged(&conditions, &outcomes))
}

/// Measures all cases. Adds to `outcomes` what was measured, also before a failure.
fn measure_all(
    sides: &mut Sides,
    plan: &Plan,
    columns: Columns,
    progress: &Progress,
    outcomes: &mut Vec<Outcome>,
) -> Result<(), Failure> {
    for &size in &plan.amount.sizes {
        for &rate in &plan.rates {
            let (measured, ended) = measure(sides, size, rate, plan);
            let shown = match measured.is_empty() {
                true => Ok(()),
                false => progress.rows(&report::rows(&measured, columns)),
            };
            outcomes.extend(measured);
            ended.and(shown)?;
        }
    }
    Ok(())
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

/// The connected sides of every interface.
type Sides = ends::Sides<Box<dyn LocalPair>, Box<dyn RemoteSide>>;

/// Measures one size at one rate through every interface, in turns. Returns the
/// results that have samples, also after a failure.
fn measure(
    sides: &mut Sides,
    size: u32,
    rate: Option<f64>,
    plan: &Plan,
) -> (Vec<Outcome>, Result<(), Failure>) {
    let new = |&api| Outcome {
        size,
        api,
        open: rate.map(|rate| Open {
            rate,
            service: Distribution::new(plan.samples()),
            pace: Pace::default(),
        }),
        times: Distribution::new(plan.samples()),
        noise: Noise::default(),
        verified: true,
    };
    let mut outcomes: Vec<Outcome> = plan.amount.apis.iter().map(new).collect();
    let mut recording = plan.recording();
    let mut pass = |turn: usize, round| {
        interrupt::check()?;
        recording.clear();
        let pass = Pass {
            size,
            round,
            rate,
            kind: plan.kind(plan.arrival),
        };
        match sides {
            Sides::Local(both) => both[turn].measure(pass, plan, &mut recording),
            Sides::Remote(connection) => {
                connection.run(|sides, peer| sides[turn].measure(pass, plan, peer, &mut recording))
            }
        }?;
        tracing::debug!(
            size,
            round,
            turn,
            samples = recording.samples.count(),
            "measured"
        );
        let outcome = &mut outcomes[turn];
        outcome.times.add(&recording.samples);
        outcome.noise.add(&recording.noise);
        if let Some(open) = &mut outcome.open {
            open.service.add(&recording.service);
            open.pace.add(&recording.pace);
        }
        Ok(())
    };
    let mut passes = plan.amount.passes();
    let ended = passes.try_for_each(|(round, turn)| pass(turn, round));
    outcomes.retain(|outcome| outcome.times.samples.count() > 0);
    (outcomes, ended)
}

/// Returns the text below the table.
fn text_below(
    conditions: &Conditions,
    columns: Columns,
    outcomes: &[Outcome],
    is_first_look: bool,
) -> String {
    let mut text = format!("{}\n", report::NOTE);
    if columns.rates {
        text += &format!("{}\n", report::RATES_NOTE);
    }
    if columns.apis {
        text += &format!("{}\n", report::layers::NOTE);
    }
    let judged = judged(conditions, outcomes);
    text += &match is_first_look {
        true => reliability::first_look(&judged),
        false => reliability::text(&judged),
    };
    if let [outcome] = outcomes {
        text += &format!("\n{}\n", report::histogram_text(outcome, conditions));
    }
    text
}
