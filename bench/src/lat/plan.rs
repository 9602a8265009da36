//! The parameters of a run: options with their defaults, cut to the device's limits.

use std::time::Duration;

use dat_engine::cm::ListenOn;

use super::arrival::Arrival;
use super::conditions::Conditions;
use super::meter::Meter;
use super::options::LatArgs;
use super::pass::{Kind, Pass, Schedule};
use crate::ends::DevicePort;
use crate::failure::Failure;
use crate::options::{LastByte, Operation, Wait};
use crate::report::{Checked, Goal, MOST_KEPT, RunConditions};
use crate::runs::{Amount, CommonPlan};
use crate::stats::timeline::{Part, Timeline};
use crate::stats::{Reported, Samples};

/// A sender that cannot keep its rate sends for twice the time of the schedule, and
/// this.
const OVERTIME: Duration = Duration::from_secs(1);

/// The parameters of a run.
pub(super) struct Plan {
    pub(super) common: CommonPlan,
    pub(super) wait: Option<Wait>,
    /// Endpoints of each side, which take turns.
    pub(super) endpoints: u32,
    pub(super) rates: Vec<Option<f64>>,
    /// Whether messages are kept one by one.
    pub(super) keeps: bool,
    /// For writes only.
    pub(super) last_byte: Option<LastByte>,
    /// Whether the server sends the first message: in perftest's ping-pong of writes.
    pub(super) server_begins: bool,
    /// How writes are noticed; set when the sides are connected.
    pub(super) arrival: Option<Arrival>,
}

impl Plan {
    /// Called on the measuring thread after pinning.
    pub(super) fn new(args: &LatArgs) -> Self {
        let run = &args.run;
        let amount = Amount::new(run, args.sizes(), args.iterations(), args.warmup());
        let mut common = CommonPlan::new(run, amount, args.send_depth(), args.default_inline());
        let setup = &mut common.setup;
        if setup.operation == Operation::Write {
            // For the sends behind the writes, which only a connected queue pair can
            // show to be unnecessary.
            setup.tx_depth = setup.tx_depth.saturating_mul(2);
            setup.receives = 1;
        }
        if setup.checks && run.rx_depth.is_none() && setup.operation.takes_receives() {
            // No more are needed than messages are in flight.
            setup.receives = setup.tx_depth;
        }
        setup.spare_slots = 1;
        setup.takes_turns = args.endpoints > 1;
        setup.waits = args.wait().is_some();
        Self {
            common,
            wait: args.wait(),
            endpoints: args.endpoints,
            rates: args.rates(),
            keeps: args.samples().is_some(),
            last_byte: (run.operation == Operation::Write).then(|| args.last_byte()),
            server_begins: run.is_with_perftest() && run.operation == Operation::Write,
            arrival: None,
        }
    }

    /// Reads the device's transport, and cuts default values to its limits.
    pub(super) fn fit_to_device(
        &mut self,
        device_port: &DevicePort,
        listen: ListenOn,
        args: &LatArgs,
    ) -> Result<(), Failure> {
        self.common.fit_to_device(device_port, listen, &args.run)?;
        let setup = &mut self.common.setup;
        setup.tx_depth = setup.tx_depth.min(device_port.most_depth);
        Ok(())
    }

    /// Returns the most messages in the send queue.
    pub(super) fn depth(&self) -> u32 {
        let setup = &self.common.setup;
        match setup.operation {
            Operation::Write => (setup.tx_depth / 2).max(1),
            _ => setup.tx_depth,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::of(self.common.setup.operation, self.arrival)
    }

    /// Returns which part of a round trip is reported.
    fn reported(&self) -> Reported {
        match self.rates[..] {
            [None] => self.common.setup.operation.reported(),
            // The due time belongs to the request alone.
            _ => Reported::FullRoundTrip,
        }
    }

    pub(super) fn samples(&self) -> Samples {
        Samples::new(&self.common.clock, self.reported())
    }

    /// Returns the timeline of a pass. If messages are kept one by one, all passes have the same
    /// share of them.
    pub(super) fn timeline(&self) -> Timeline {
        let CommonPlan { amount, clock, .. } = &self.common;
        let kept = match (self.keeps, amount.goal) {
            (false, _) => 0,
            (true, Goal::Iterations(count)) => self.most_kept().min(amount.part(count, 0)),
            (true, Goal::Duration(_)) => self.most_kept(),
        };
        Timeline::new(*clock, amount.rounds(), kept)
    }

    /// Returns how many messages of a pass are kept one by one at most.
    pub(super) fn most_kept(&self) -> u64 {
        let amount = &self.common.amount;
        let cases = amount.sizes.len() * self.rates.len() * amount.apis.len();
        (MOST_KEPT / cases as u64 / u64::from(amount.rounds())).max(1)
    }

    /// Returns the messages or the time of a pass.
    pub(super) fn part(&self, pass: Pass) -> Part {
        match (self.schedule(pass), self.common.amount.goal_of(pass.round)) {
            (Some(schedule), _) => Part::Messages(schedule.count),
            (None, Goal::Iterations(count)) => Part::Messages(count),
            (None, Goal::Duration(time)) => Part::Time(time),
        }
    }

    pub(super) fn meter<'a>(
        &self,
        pass: Pass,
        times: (&'a mut Samples, &'a mut Timeline),
    ) -> Meter<'a> {
        let amount = &self.common.amount;
        let goal = match pass.rate {
            // Only the warm-up.
            Some(_) => Goal::Iterations(0),
            None => amount.goal_of(pass.round),
        };
        let warmup = amount.part(amount.warmup, pass.round);
        Meter::new(self.common.clock, goal, warmup, times)
    }

    /// Returns the schedule of a pass in an open loop.
    pub(super) fn schedule(&self, pass: Pass) -> Option<Schedule> {
        let rate = pass.rate?;
        let CommonPlan { amount, clock, .. } = &self.common;
        let count = match amount.goal {
            Goal::Iterations(count) => amount.part(count, pass.round),
            Goal::Duration(duration) => {
                (rate * duration.as_secs_f64()) as u64 / u64::from(amount.rounds())
            }
        }
        .max(1);
        let interval = 1e9 / rate / clock.nanoseconds_per_tick();
        Some(Schedule {
            clock: *clock,
            interval,
            count,
            limit: (count as f64 * interval * 2.0) as u64 + clock.ticks(OVERTIME),
        })
    }

    /// Returns the conditions; `run` are those of every run with two sides.
    pub(super) fn conditions(&self, run: RunConditions) -> Conditions {
        Conditions {
            run: RunConditions {
                tx_depth: self.depth(),
                checked: match (run.checked, &self.rates[..]) {
                    (Checked::Inside, [None]) => Checked::Outside,
                    (checked, _) => checked,
                },
                ..run
            },
            wait: self.wait,
            endpoints: self.endpoints,
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
        let mut timeline = plan.timeline();
        let mut trips = 0;
        for round in 0..plan.common.amount.rounds() {
            let pass = Pass {
                size: 2,
                round,
                rate: None,
                kind: Kind::Receive,
            };
            let mut meter = plan.meter(pass, (&mut samples, &mut timeline));
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
            assert_eq!(plan(words).common.amount.rounds(), rounds, "{words}");
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
                kind: Kind::Receive,
            };
            let schedule = |round| plan.schedule(pass(round)).expect("an open loop");
            (0..plan.common.amount.rounds())
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
            kind: Kind::Receive,
        };
        assert!(plan("-n 5").schedule(closed).is_none());
    }
}
