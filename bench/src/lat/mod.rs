//! `dat-bench lat`: ping-pong latency.
//!
//! ```text
//! run                     options → device → interfaces → loopback, client or server → report
//! device_port             the device and port of the run
//! plan meter              sizes, rounds and turns of the interfaces; sampling
//! interface               trait of the measured interfaces: open, connect, measure
//! loopback pair           both sides in one process; in two, with the control connection
//! pass                    one pass of the measuring side
//! send write read open    the measuring loops, one per file
//! side credits watchdog   used by the loops: send queue credits, timeouts
//! link payload            traits of the measured endpoints; their memory
//! engine                  the engine's endpoints
//! dat rust c              DAT's connections; endpoints of its Rust types and its C calls
//! ```

pub(crate) mod c;
mod credits;
mod dat;
mod device_port;
mod engine;
mod interface;
mod link;
#[cfg(test)]
mod loop_tests;
mod loopback;
mod meter;
mod open;
mod pair;
mod pass;
mod payload;
mod plan;
mod read;
mod rust;
mod send;
mod side;
mod watchdog;
mod write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{Api, LISTEN, LatArgs};
use crate::failure::Failure;
use crate::noise::Noise;
use crate::report::fit::fit;
use crate::report::{
    self, Columns, Conditions, Distribution, Files, Open, Outcome, Reliability, reliability,
};
use crate::stats::pace::Pace;
use crate::udapl::v1::Libdat;
use crate::{exchange, host, interrupt, output, results};

use self::device_port::DevicePort;
use self::interface::{LocalPair, OpenInterface};
use self::pair::Pair;
use self::plan::{Pass, Plan, Recording};

/// Runs the command. Prints the result of each size when it is measured.
pub(crate) fn run(args: &LatArgs) -> Result<(), Failure> {
    args.check()?;
    let sizes = args.sizes();
    let files = Files::prepare(&args.results, args.hgrm.as_deref(), &cases(args))?;
    if let Some(host) = &args.host {
        // Refuses a mistyped name before a device is opened or emulated.
        exchange::resolve(host, args.port)?;
    }
    let libdat = args.api.contains(&Api::C).then(Libdat::load).transpose()?;
    if let Some(wait) = args.wait {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var("DAT_WAIT", wait.name()) };
    }
    let listen = args.listen()?;
    if args.listen.is_some() {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var(LISTEN, listen.to_string()) };
    }
    let selected = args.on.select()?;
    let device_port = DevicePort::open(selected, args)?;
    let open = |&api| interface::open(api, libdat.as_ref(), &device_port, args);
    let opened: Vec<Box<dyn OpenInterface>> =
        args.api.iter().map(open).collect::<Result<_, _>>()?;
    // After the interfaces are open: threads that they started stay unpinned.
    if let Some(cpu) = args.cpu {
        host::pin(cpu)?;
    }
    let mut plan = Plan::new(args, listen);
    plan.fit_to_device(&device_port, args)?;
    if args.is_server() {
        return pair::serve(&opened, &device_port.facts(), &plan, args);
    }
    // Connects before it prints the head of the table.
    let mut sides = match &args.host {
        None => Sides::Local(
            opened
                .iter()
                .map(|interface| interface.connect_local(&plan))
                .collect::<Result<_, _>>()?,
        ),
        Some(host) => {
            let peer = exchange::Peer::connect(host, args.port, plan.timeout)?;
            Sides::Remote(Pair::connect_client(&opened, &plan, peer)?)
        }
    };
    let machine = host::Host::read();
    let conditions = plan.conditions(&device_port, libdat.as_ref(), machine, args.host.clone());
    let mut progress = Progress::begin(&conditions, sizes.len() * plan.rates.len())?;
    interrupt::catch();
    let mut outcomes = Vec::with_capacity(sizes.len() * plan.apis.len());
    let mut ended = measure_all(&mut sides, &plan, &mut progress, &mut outcomes);
    // A call that Ctrl-C interrupted may have failed for that reason.
    if let Err(failure) = interrupt::check() {
        sides.abort(&failure);
        ended = Err(failure);
    }
    if outcomes.is_empty() {
        return ended;
    }
    // What was measured before a failure is kept.
    let text = progress.end(&conditions, &outcomes);
    let json = report::json(&conditions, &outcomes, ended.is_ok());
    let samples = outcomes.iter().flat_map(|outcome| {
        let service = outcome.open.iter().map(|open| &open.service.samples);
        [&outcome.times.samples].into_iter().chain(service)
    });
    let finished = output::finish(text, files.contents(&json, samples)?);
    ended.and(finished)?;
    results::require(&json, &args.fail_if)?;
    reliability::require(args.strict, &judged(&conditions, &outcomes))
}

/// Measures all cases. Adds to `outcomes` what was measured, also before a failure.
fn measure_all(
    sides: &mut Sides,
    plan: &Plan,
    progress: &mut Progress,
    outcomes: &mut Vec<Outcome>,
) -> Result<(), Failure> {
    for &size in &plan.sizes {
        for &rate in &plan.rates {
            let (measured, ended) = measure(sides, size, rate, plan);
            let shown = progress.rows(&measured);
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
    let (sizes, rates, apis) = (args.sizes(), args.rates(), &args.api);
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

/// The connections, one per interface, with the responder in this process or
/// in another one.
enum Sides {
    Local(Vec<Box<dyn LocalPair>>),
    Remote(Pair),
}

impl Sides {
    fn measure(
        &mut self,
        turn: usize,
        pass: Pass,
        plan: &Plan,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        match self {
            Self::Local(both) => both[turn].measure(pass, plan, recording),
            Self::Remote(pair) => pair.measure(turn, pass, plan, recording),
        }
    }

    /// Tells the other process why the run ends.
    fn abort(&mut self, failure: &Failure) {
        if let Self::Remote(pair) = self {
            pair.abort(failure);
        }
    }
}

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
    let mut outcomes: Vec<Outcome> = plan.apis.iter().map(new).collect();
    let mut recording = plan.recording();
    let mut pass = |turn: usize, round| {
        interrupt::check()?;
        recording.clear();
        let pass = Pass { size, round, rate };
        sides.measure(turn, pass, plan, &mut recording)?;
        let outcome = &mut outcomes[turn];
        outcome.times.add(&recording.samples);
        outcome.noise.add(&recording.noise);
        if let Some(open) = &mut outcome.open {
            open.service.add(&recording.service);
            open.pace.add(&recording.pace);
        }
        Ok(())
    };
    let ended = (0..plan.rounds())
        .flat_map(|round| plan.turns(round).map(move |turn| (turn, round)))
        .try_for_each(|(turn, round)| pass(turn, round));
    outcomes.retain(|outcome| outcome.times.samples.count() > 0);
    (outcomes, ended)
}

/// Output during a run: rows on standard output, and on a terminal a progress
/// bar, which is redrawn between sizes only and never during a measurement.
struct Progress {
    bar: ProgressBar,
    columns: Columns,
}

impl Progress {
    fn begin(conditions: &Conditions, cases: usize) -> Result<Self, Failure> {
        let columns = Columns {
            rates: !conditions.rates.is_empty(),
            apis: conditions.apis.len() > 1,
        };
        let conditions = fit(&conditions.to_string());
        output::line(format_args!("{conditions}\n{}", report::header(columns)))?;
        let bar = ProgressBar::with_draw_target(Some(cases as u64), ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template(" {pos} of {len} cases measured {wide_bar}")
                .expect("the template is a constant"),
        );
        if cases > 1 {
            bar.tick();
        }
        Ok(Self { bar, columns })
    }

    /// Prints the rows of one size.
    fn rows(&mut self, outcomes: &[Outcome]) -> Result<(), Failure> {
        if outcomes.is_empty() {
            return Ok(());
        }
        let rows = report::rows(outcomes, self.columns);
        self.bar.suspend(|| output::line(rows))?;
        self.bar.inc(1);
        Ok(())
    }

    /// Removes the bar. Returns the text below the table.
    fn end(self, conditions: &Conditions, outcomes: &[Outcome]) -> String {
        self.bar.finish_and_clear();
        let mut text = format!("{}\n", report::NOTE);
        if self.columns.rates {
            text += &format!("{}\n", report::RATES_NOTE);
        }
        if self.columns.apis {
            text += &format!("{}\n", report::layers::NOTE);
        }
        text += &reliability::text(&judged(conditions, outcomes));
        if let [outcome] = outcomes {
            text += &format!("\n{}\n", report::histogram_text(outcome, conditions));
        }
        text
    }
}
