//! The parameters of a run: options with their defaults, cut to the device's limits.

use super::meter::Meter;
use super::options::{BwArgs, Throughput};
use super::pass::Pass;
use crate::ends::{DevicePort, Setup};
use crate::failure::Failure;
use crate::report::Goal;
use crate::runs::{Amount, CommonPlan};
use dat_engine::cm::ListenOn;

/// Default depth of the send queue, as in perftest.
const TX_DEPTH: u32 = 128;
/// RDMA reads in flight of a DAT endpoint, if the device has as many; the engine's
/// default.
const READS: i32 = 16;

/// The parameters of a run.
pub(super) struct Plan {
    pub(super) what: Throughput,
    pub(super) common: CommonPlan,
    pub(super) args: BwArgs,
    looks_for_peak: bool,
}

impl Plan {
    /// Called on the measuring thread after pinning. Cuts defaults to the device's limits.
    pub(super) fn new(
        args: &BwArgs,
        what: Throughput,
        device_port: &DevicePort,
        listen: ListenOn,
    ) -> Result<Self, Failure> {
        let (run, iterations) = (&args.run, args.iterations(what));
        let warmup = run.warmup(args.warmup, iterations);
        let amount = Amount::new(run, args.sizes(what), iterations, warmup);
        let mut common = CommonPlan::new(run, amount, TX_DEPTH, args.default_inline(what));
        common.setup.reads = READS;
        common.fit_to_device(device_port, listen, run)?;
        require_room(args, &common.setup)?;
        Ok(Self {
            what,
            common,
            args: args.clone(),
            looks_for_peak: args.no_peak(what).is_none(),
        })
    }

    /// Returns the number of warm-up messages of each endpoint in a pass.
    pub(super) fn warmup(&self, pass: Pass) -> u64 {
        let amount = &self.common.amount;
        amount.part(amount.warmup, pass.round)
    }

    /// Returns the number of messages of each endpoint in a pass; with a duration, as
    /// many as there is time for.
    pub(super) fn messages(&self, pass: Pass) -> u64 {
        match self.common.amount.goal_of(pass.round) {
            Goal::Iterations(count) => count,
            Goal::Duration(_) => u64::MAX,
        }
    }

    /// Returns the meter of the measured messages of a pass.
    pub(super) fn meter(&self, pass: Pass) -> Meter {
        let clock = self.common.clock;
        let duration = match self.common.amount.goal_of(pass.round) {
            Goal::Iterations(_) => u64::MAX,
            Goal::Duration(duration) => clock.ticks(duration),
        };
        let all = || self.messages(pass) * u64::from(self.args.endpoints);
        Meter::new(clock, duration, self.looks_for_peak.then(all))
    }

    /// Returns the meter of the warm-up.
    pub(super) fn warmup_meter(&self) -> Meter {
        Meter::new(self.common.clock, u64::MAX, None)
    }
}

/// Refuses lists that do not fit into the queues.
fn require_room(args: &BwArgs, setup: &Setup) -> Result<(), Failure> {
    for (fits, option, queue) in [
        (args.list <= setup.tx_depth, "-t", "send"),
        (
            setup.receives == 0 || args.list <= setup.receives,
            "-r",
            "receive",
        ),
    ] {
        if !fits {
            return Err(Failure::usage(format!(
                "-l {0} does not fit into the {queue} queue: give {option} {0} or more",
                args.list
            )));
        }
    }
    match args.moderation {
        Some(moderation) if moderation > setup.tx_depth => Err(Failure::usage(format!(
            "-Q {moderation} is more than the send queue has: give -t {moderation} or more"
        ))),
        _ => Ok(()),
    }
}
