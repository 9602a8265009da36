//! The parameters of a run: options with their defaults, cut to the device's limits.

use std::time::Duration;

use crate::clock::Clock;
use crate::ends::{Amount, Opened, Setup, Watchdog};
use crate::exchange::{Options, Peer};
use crate::failure::Failure;
use crate::lat::options::LatArgs;
use crate::noise::Noise;
use crate::options::{LastByte, Operation, RunArgs, Wait};
use crate::report::{Arrival, Conditions, Goal, RunConditions};
use crate::stats::pace::Pace;
use crate::stats::{Reported, Samples};

use super::kind::Kind;
use super::meter::Meter;
use super::open::Schedule;

/// A sender that cannot keep its rate sends for twice the time of the schedule, and
/// this.
const OVERTIME: Duration = Duration::from_secs(1);

/// One uninterrupted measurement: one size in one round, through one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Bytes.
    pub(super) size: u32,
    /// Below [`Amount::rounds`].
    pub(super) round: u32,
    /// Messages per second; none in a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) kind: Kind,
}

/// What one pass records.
pub(super) struct Recording {
    /// Round trips; in an open loop, response times.
    pub(super) samples: Samples,
    /// Service times of an open loop.
    pub(super) service: Samples,
    pub(super) pace: Pace,
    pub(super) noise: Noise,
}

impl Recording {
    /// Removes what an earlier pass has recorded.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.service.clear();
        self.pace = Pace::default();
        self.noise = Noise::default();
    }
}

/// The parameters of a run.
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) amount: Amount,
    pub(super) wait: Option<Wait>,
    pub(super) rates: Vec<Option<f64>>,
    /// For writes only.
    last_byte: Option<LastByte>,
    /// How writes are noticed; set when the sides are connected, on a side that measures.
    pub(super) arrival: Option<Arrival>,
    clock: Clock,
    /// Whether the device speaks iWARP; set by [`Self::fit_to_device`].
    iwarp: bool,
}

impl Plan {
    /// Also calibrates the clock, so it is called on the measuring thread after
    /// pinning.
    pub(super) fn new(args: &LatArgs) -> Self {
        let amount = Amount::new(&args.run, args.sizes(), args.iterations(), args.warmup());
        let (depth, inline) = (args.send_depth(), args.default_inline());
        let mut setup = Setup::new(&args.run, amount.largest(), depth, inline);
        if setup.operation == Operation::Write {
            // For the sends behind the writes, which only a connected queue pair can
            // show to be unnecessary.
            setup.tx_depth = setup.tx_depth.saturating_mul(2);
            setup.receives = 1;
        }
        setup.waits = args.wait.is_some();
        Self {
            setup,
            amount,
            wait: args.wait,
            rates: args.rates(),
            last_byte: (args.run.operation == Operation::Write).then(|| args.last_byte()),
            arrival: None,
            clock: Clock::calibrate(),
            iwarp: false,
        }
    }

    /// Reads the device's transport, and cuts default values to its limits.
    pub(super) fn fit_to_device<O: ?Sized>(
        &mut self,
        opened: &Opened<O>,
        args: &LatArgs,
    ) -> Result<(), Failure> {
        self.iwarp = opened.device_port.is_iwarp();
        self.setup
            .fit_to_device(&opened.device_port, opened.listen, &args.run)?;
        self.setup.tx_depth = self.setup.tx_depth.min(opened.device_port.most_depth);
        Ok(())
    }

    /// Returns the most messages in the send queue.
    pub(super) fn depth(&self) -> u32 {
        match self.setup.operation {
            Operation::Write => (self.setup.tx_depth / 2).max(1),
            Operation::Send | Operation::Read => self.setup.tx_depth,
        }
    }

    pub(super) fn kind(&self, arrival: Option<Arrival>) -> Kind {
        Kind::of(self.setup.operation, arrival)
    }

    /// Returns the options that both sides must have in common.
    pub(super) fn options(&self) -> Options {
        let operation = self.setup.operation;
        let mut options = self.amount.options("lat", operation, self.iwarp);
        let rate = |rate: &Option<f64>| rate.map_or("none".to_owned(), |rate| rate.to_string());
        let rates: Vec<_> = self.rates.iter().map(rate).collect();
        options.set("--rate", rates.join(","));
        if let Some(last_byte) = self.last_byte {
            options.set("--last-byte", last_byte.name());
        }
        options.set("--wait", self.wait.map_or("none", Wait::name));
        options
    }

    /// Returns which part of a round trip is reported.
    fn reported(&self) -> Reported {
        match self.rates[..] {
            [None] => self.setup.operation.reported(),
            // The due time belongs to the request alone.
            _ => Reported::FullRoundTrip,
        }
    }

    pub(super) fn samples(&self) -> Samples {
        Samples::new(&self.clock, self.reported())
    }

    pub(super) fn recording(&self) -> Recording {
        Recording {
            samples: self.samples(),
            service: self.samples(),
            pace: Pace::default(),
            noise: Noise::default(),
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn meter<'a>(&self, pass: Pass, samples: &'a mut Samples) -> Meter<'a> {
        let goal = match self.amount.goal {
            // Only the warm-up.
            _ if pass.rate.is_some() => Goal::Iterations(0),
            Goal::Iterations(count) => Goal::Iterations(self.amount.part(count, pass.round)),
            Goal::Duration(duration) => Goal::Duration(duration / self.amount.rounds()),
        };
        Meter::new(
            self.clock,
            goal,
            self.amount.part(self.amount.warmup, pass.round),
            samples,
        )
    }

    /// Returns the schedule of a pass in an open loop.
    pub(super) fn schedule(&self, pass: Pass) -> Option<Schedule> {
        let rate = pass.rate?;
        let count = match self.amount.goal {
            Goal::Iterations(count) => self.amount.part(count, pass.round),
            Goal::Duration(duration) => {
                (rate * duration.as_secs_f64()) as u64 / u64::from(self.amount.rounds())
            }
        }
        .max(1);
        let interval = 1e9 / rate / self.clock.nanoseconds_per_tick();
        Some(Schedule {
            clock: self.clock,
            interval,
            count,
            limit: (count as f64 * interval * 2.0) as u64 + self.clock.ticks(OVERTIME),
        })
    }

    pub(super) fn watchdog<'a>(&self, peer: Option<&'a Peer>) -> Watchdog<'a> {
        if self.wait.is_some() {
            Watchdog::for_waits(self.setup.timeout, peer)
        } else {
            Watchdog::new(self.setup.timeout, peer)
        }
    }

    pub(super) fn conditions<O: ?Sized>(&self, opened: &Opened<O>, args: &RunArgs) -> Conditions {
        let conditions = opened.conditions(&self.setup, &self.amount, args, self.clock);
        Conditions {
            run: RunConditions {
                tx_depth: self.depth(),
                ..conditions
            },
            wait: self.wait,
            rates: self.rates.iter().copied().flatten().collect(),
            reported: self.reported(),
            arrival: self.arrival,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LatArgs,
    }

    fn plan(line: &str) -> Plan {
        let words = ["lat"].into_iter().chain(line.split(' '));
        Plan::new(&Line::try_parse_from(words).unwrap().args)
    }

    /// The numbers of samples and round trips of one interface in all rounds.
    fn samples_of(plan: &Plan) -> (u64, u64) {
        let mut samples = plan.samples();
        let mut trips = 0;
        for round in 0..plan.amount.rounds() {
            let pass = Pass {
                size: 2,
                round,
                rate: None,
                kind: Kind::Send,
            };
            let mut meter = plan.meter(pass, &mut samples);
            while meter.lap() {
                meter.record();
            }
            meter.record();
            trips += meter.round_trips();
        }
        (samples.count(), trips)
    }

    #[test]
    fn the_samples_are_divided_among_the_rounds() {
        for (words, rounds) in [
            ("-n 10", 1),
            ("-n 100", 2),
            ("-n 1000", 10),
            ("-n 1000000", 10),
            ("-D 1", 10),
            ("-n 1000 --rounds 30", 30),
            ("-n 5 --rounds 30", 5),
            ("-n 20 --api engine,rust", 10),
        ] {
            assert_eq!(plan(words).amount.rounds(), rounds, "{words}");
        }
        assert_eq!(samples_of(&plan("-n 100 --warmup 7")), (100, 107));
        assert_eq!(samples_of(&plan("-n 1003 --warmup 7")), (1003, 1010));
        for count in [1, 3, 10, 57] {
            let plan = plan(&format!("--api engine,rust,c -n {count} --warmup 0"));
            assert_eq!(samples_of(&plan), (count, count));
        }
    }

    #[test]
    fn the_schedule_of_a_round_has_its_part_of_the_messages() {
        let counts = |words: &str| -> Vec<u64> {
            let plan = plan(words);
            let pass = |round| Pass {
                size: 2,
                round,
                rate: plan.rates[0],
                kind: Kind::Send,
            };
            let schedule = |round| plan.schedule(pass(round)).expect("an open loop");
            (0..plan.amount.rounds())
                .map(|round| schedule(round).count)
                .collect()
        };
        assert_eq!(counts("-n 1003 --rate 1k").iter().sum::<u64>(), 1003);
        assert_eq!(counts("-D 5 --rate 1k"), [500; 10]);
        assert_eq!(counts("-D 0.1 --rate 1 --rounds 3"), [1; 3]);
        let closed = Pass {
            size: 2,
            round: 0,
            rate: None,
            kind: Kind::Send,
        };
        assert!(plan("-n 5").schedule(closed).is_none());
    }
}
