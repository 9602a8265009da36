//! `dat-bench lat`: ping-pong latency.
//!
//! ```text
//! run            command line → device → loopback, client or server → report
//! loopback pair  who prepares, begins and ends a size: in one process, over TCP
//! send write read   the measuring loops, one a file
//! side window meter patience   what the loops share: places, time, giving up
//! link rdma      the seam to the engine, and the engine behind it
//! ```

mod link;
#[cfg(test)]
mod loop_tests;
mod loopback;
mod meter;
mod pair;
mod patience;
mod plan;
mod rdma;
mod read;
mod send;
mod side;
mod window;
mod write;

use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::LatArgs;
use crate::failure::Failure;
use crate::report::{self, Conditions, Files, Outcome};
use crate::{exchange, host, select};

use self::plan::Plan;

/// Runs the command. What it finds goes to standard output, size by size.
pub(crate) fn run(args: &LatArgs) -> Result<(), Failure> {
    args.check()?;
    let sizes = args.sizes();
    let files = Files::prepare(args.json.as_deref(), args.hgrm.as_deref(), &sizes)?;
    if let Some(host) = &args.host {
        // A mistyped name is told before a device is opened, or emulated.
        exchange::resolve(host, args.port)?;
    }
    let selected = select::select(args.device.as_deref())?;
    let ground = rdma::Ground::open(selected, args)?;
    // After the device is open: threads that it started stay unpinned.
    if let Some(cpu) = args.cpu {
        host::pin(cpu)?;
    }
    let plan = Plan::new(args);
    if args.is_server() {
        return pair::serve(&ground, &plan, args);
    }
    // Connected first: the table is begun when there is something to measure.
    let sides = match &args.host {
        None => Sides::Here(loopback::connect(&ground, &plan)?),
        Some(host) => {
            let peer = exchange::Peer::connect(host, args.port, plan.patience)?;
            Sides::There(pair::meet(&ground, &plan, peer)?)
        }
    };
    let conditions = plan.conditions(&ground, host::Host::read(), args.host.clone());
    let mut show = Show::begin(&conditions, sizes.len());
    let mut outcomes = Vec::with_capacity(sizes.len());
    let mut each = |outcome: Outcome| {
        show.row(&outcome);
        outcomes.push(outcome);
    };
    match sides {
        Sides::Here(both) => loopback::measure(both, &plan, &mut each),
        Sides::There(client) => pair::measure(client, &plan, &mut each),
    }?;
    show.end(&conditions, &outcomes);
    for path in files.write(&conditions, &outcomes)? {
        println!(" wrote {}", path.display());
    }
    Ok(())
}

/// Where the side that answers is, connected in either case.
#[expect(clippy::large_enum_variant, reason = "one per run")]
enum Sides {
    Here(loopback::Loopback),
    There(pair::Client),
}

/// What is on the screen: rows on standard output as they come, and on a
/// terminal a bar below that moves between sizes only, never while measuring.
struct Show {
    bar: ProgressBar,
}

impl Show {
    fn begin(conditions: &Conditions, sizes: usize) -> Self {
        println!("{conditions}\n{}", report::header());
        // A failing standard output shows at the first row; nothing to do about it here.
        let _ = std::io::stdout().flush();
        let bar = ProgressBar::with_draw_target(Some(sizes as u64), ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template(" {pos} of {len} sizes measured {wide_bar}")
                .expect("the template is a constant"),
        );
        if sizes > 1 {
            bar.tick();
        }
        Self { bar }
    }

    fn row(&mut self, outcome: &Outcome) {
        let row = report::row(outcome.size, &outcome.samples);
        self.bar.suspend(|| println!("{row}"));
        self.bar.inc(1);
    }

    fn end(self, conditions: &Conditions, outcomes: &[Outcome]) {
        self.bar.finish_and_clear();
        println!("{}", report::NOTE);
        if let [outcome] = outcomes {
            println!("\n{}", report::picture(outcome, conditions));
        }
    }
}
