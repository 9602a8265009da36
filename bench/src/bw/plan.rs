//! The parameters of a run: options with their defaults, cut to the device's limits.

use crate::bw::options::{BwArgs, Throughput};
use crate::clock::Clock;
use crate::ends::{Amount, Opened, Setup, Watchdog};
use crate::exchange::{Options, Peer};
use crate::failure::Failure;
use crate::options::Operation;
use crate::report::Goal;

use super::meter::Meter;
use super::report::Conditions;

/// Default depth of the send queue, as in perftest.
const TX_DEPTH: u32 = 128;
/// The most messages of a size among which the peak is looked for, as in perftest.
const MOST_FOR_PEAK: u64 = 20_000;
/// RDMA reads in flight of a DAT endpoint, if the device has as many; the engine's
/// default.
const READS: i32 = 16;

/// One uninterrupted measurement: one size in one round, through one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Bytes.
    pub(super) size: u32,
    /// Below [`Amount::rounds`].
    pub(super) round: u32,
}

/// The parameters of a run.
pub(super) struct Plan {
    what: Throughput,
    pub(super) setup: Setup,
    pub(super) amount: Amount,
    pub(super) endpoints: u32,
    /// Whether both sides send.
    pub(super) both: bool,
    pub(super) list: u32,
    pub(super) gigabits: bool,
    looks_for_peak: bool,
    clock: Clock,
    iwarp: bool,
}

impl Plan {
    /// Also calibrates the clock, so it is called on the measuring thread after
    /// pinning. Cuts defaults to the device's limits.
    pub(super) fn new<O: ?Sized>(
        args: &BwArgs,
        what: Throughput,
        opened: &Opened<O>,
    ) -> Result<Self, Failure> {
        let (run, iterations) = (&args.run, args.iterations(what));
        let warmup = run.warmup(args.warmup, iterations);
        let amount = Amount::new(run, args.sizes(what), iterations, warmup);
        let inline = args.default_inline(what);
        let mut setup = Setup::new(run, amount.largest(), TX_DEPTH, inline);
        setup.reads = READS;
        setup.fit_to_device(&opened.device_port, opened.listen, run)?;
        require_room(args, &setup)?;
        let by_iterations = matches!(amount.goal, Goal::Iterations(count)
            if count.saturating_mul(args.endpoints.into()) <= MOST_FOR_PEAK);
        Ok(Self {
            what,
            setup,
            amount,
            endpoints: args.endpoints,
            both: args.both,
            list: args.list,
            gigabits: args.gigabits,
            looks_for_peak: what == Throughput::Bw && !args.no_peak && by_iterations,
            clock: Clock::calibrate(),
            iwarp: opened.device_port.is_iwarp(),
        })
    }

    /// Returns the options that both sides must have in common.
    pub(super) fn options(&self) -> Options {
        let operation = self.setup.operation;
        let mut options = self.amount.options(self.what.name(), operation, self.iwarp);
        options.set("-q", self.endpoints.to_string());
        options.set("-b", if self.both { "given" } else { "not given" });
        if operation == Operation::Send {
            // The sender counts with the receives and lists of the other side.
            options.set("-r", self.setup.receives.to_string());
            options.set("-l", self.list.to_string());
        }
        options
    }

    /// Returns the number of warm-up messages of each endpoint in a pass.
    pub(super) fn warmup(&self, pass: Pass) -> u64 {
        self.amount.part(self.amount.warmup, pass.round)
    }

    /// Returns the number of messages of each endpoint in a pass; with a duration, as
    /// many as there is time for.
    pub(super) fn messages(&self, pass: Pass) -> u64 {
        match self.amount.goal {
            Goal::Iterations(count) => self.amount.part(count, pass.round),
            Goal::Duration(_) => u64::MAX,
        }
    }

    /// Returns the meter of the measured messages of a pass.
    pub(super) fn meter(&self, pass: Pass) -> Meter {
        let duration = match self.amount.goal {
            Goal::Iterations(_) => u64::MAX,
            Goal::Duration(duration) => self.clock.ticks(duration / self.amount.rounds()),
        };
        let all = || self.messages(pass) * u64::from(self.endpoints);
        Meter::new(self.clock, duration, self.looks_for_peak.then(all))
    }

    /// Returns the meter of the warm-up.
    pub(super) fn warmup_meter(&self) -> Meter {
        Meter::new(self.clock, u64::MAX, None)
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn watchdog<'a>(&self, peer: Option<&'a Peer>) -> Watchdog<'a> {
        Watchdog::new(self.setup.timeout, peer)
    }

    pub(super) fn conditions<O: ?Sized>(&self, args: &BwArgs, opened: &Opened<O>) -> Conditions {
        let setup = &self.setup;
        let moderation = |&size| args.moderation(size).min(setup.tx_depth);
        Conditions {
            command: self.what,
            run: opened.conditions(setup, &self.amount, &args.run, self.clock),
            both: self.both,
            endpoints: self.endpoints,
            list: self.list,
            moderation: self.amount.sizes.first().map_or(1, moderation),
            gigabits: self.gigabits,
        }
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
