//! The parameters of a run: options with their defaults, cut to the device's limits.

use std::time::Duration;

use dat_engine::cm::ListenOn;

use crate::cli::{Api, LatArgs, Operation, Wait};
use crate::clock::Clock;
use crate::exchange::{Options, Peer};
use crate::failure::Failure;
use crate::host::Host;
use crate::noise::Noise;
use crate::report::{Conditions, Goal};
use crate::stats::pace::Pace;
use crate::stats::{Reported, Samples};
use crate::udapl::v1::Libdat;

use super::device_port::DevicePort;
use super::meter::Meter;
use super::open::Schedule;
use super::watchdog::Watchdog;

/// Default timeout for messages of the other side.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Rounds per size: as many as a confidence interval of the median needs, and
/// several interfaces take turns in them, so that changes of the machine
/// (frequency, other load) affect all of them.
const ROUNDS: u32 = 10;
/// Least samples of a round by default, if only one interface is measured.
const LEAST_IN_A_ROUND: u64 = 50;

/// A sender that cannot keep its rate sends for twice the time of the schedule, and
/// this.
const OVERTIME: Duration = Duration::from_secs(1);

/// One uninterrupted measurement: one size in one round, through one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Bytes.
    pub(super) size: u32,
    /// Below [`Plan::rounds`].
    pub(super) round: u32,
    /// Messages per second; none in a closed loop.
    pub(super) rate: Option<f64>,
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
    pub(super) apis: Vec<Api>,
    pub(super) wait: Option<Wait>,
    pub(super) operation: Operation,
    pub(super) sizes: Vec<u32>,
    pub(super) rates: Vec<Option<f64>>,
    pub(super) goal: Goal,
    /// As requested.
    rounds: Option<u32>,
    pub(super) warmup: u64,
    pub(super) tx_depth: u32,
    rx_depth: u32,
    /// The largest inline message, bytes; [`Self::fit_to_device`] cuts it to the device's limit.
    pub(super) inline: u32,
    /// The largest inline message requested, bytes.
    inline_requested: u32,
    /// Timeout for messages of the other side.
    pub(super) timeout: Duration,
    clock: Clock,
    cpu: Option<usize>,
    all: bool,
    /// The addresses on which a server listens.
    pub(super) listen: ListenOn,
    /// Whether the device speaks iWARP; set by [`Self::fit_to_device`].
    iwarp: bool,
}

impl Plan {
    /// Also calibrates the clock, so it is called on the measuring thread after
    /// pinning.
    pub(super) fn new(args: &LatArgs, listen: ListenOn) -> Self {
        Self {
            apis: args.api.clone(),
            wait: args.wait,
            operation: args.operation,
            sizes: args.sizes(),
            rates: args.rates(),
            goal: match args.duration {
                Some(duration) => Goal::Duration(duration),
                None => Goal::Iterations(args.iterations()),
            },
            rounds: args.rounds,
            warmup: args.warmup(),
            tx_depth: args.send_depth(),
            rx_depth: args.receive_depth(),
            inline: args.inline_bytes(),
            inline_requested: args.inline_bytes(),
            timeout: args.timeout.unwrap_or(TIMEOUT),
            clock: Clock::calibrate(),
            cpu: args.cpu,
            all: args.all,
            listen,
            iwarp: false,
        }
    }

    /// Reads the device's transport, and cuts default values to its limits.
    /// Values of options are not cut: the device refuses those beyond its limits.
    pub(super) fn fit_to_device(
        &mut self,
        device_port: &DevicePort,
        args: &LatArgs,
    ) -> Result<(), Failure> {
        self.iwarp = device_port.is_iwarp();
        self.rx_depth = self.rx_depth.min(device_port.most_depth);
        if args.tx_depth.is_none() {
            self.tx_depth = self.tx_depth.min(device_port.most_depth);
        }
        if args.inline.is_none() && self.inline > 0 {
            let receives = self.receives().max(1);
            self.inline = device_port.inline(self.inline, &self.apis, self.tx_depth, receives)?;
        }
        Ok(())
    }

    /// Returns the largest message of the run, bytes.
    pub(super) fn largest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }

    /// Returns the options that both sides must have in common.
    pub(super) fn options(&self) -> Options {
        let size = if self.all {
            "all (-a)".into()
        } else {
            self.largest().to_string()
        };
        let (iterations, duration) = match self.goal {
            Goal::Iterations(count) => (count.to_string(), "none".into()),
            Goal::Duration(duration) => ("none".into(), duration.as_secs_f64().to_string()),
        };
        let mut options = Options::default();
        options.set("-o", self.operation.name());
        options.set("-s", size);
        options.set("-n", iterations);
        options.set("-D", duration);
        // The default follows from the other options.
        let rounds = self.rounds.map_or("default".into(), |it| it.to_string());
        options.set("--rounds", rounds);
        let rate = |rate: &Option<f64>| rate.map_or("none".to_owned(), |rate| rate.to_string());
        let rates: Vec<_> = self.rates.iter().map(rate).collect();
        options.set("--rate", rates.join(","));
        let apis: Vec<_> = self.apis.iter().map(|api| api.name()).collect();
        options.set("--api", apis.join(","));
        options.set("--wait", self.wait.map_or("none", Wait::name));
        // InfiniBand and RoCE are compared by their links: `Peer::exchange_addresses`.
        let transport = match self.iwarp {
            true => "iWARP",
            false => "InfiniBand or RoCE",
        };
        options.set("-d (its transport)", transport);
        options
    }

    /// Returns the number of receives that are always posted.
    pub(super) fn receives(&self) -> u32 {
        match self.operation {
            Operation::Send => self.rx_depth,
            Operation::Write | Operation::Read => 0,
        }
    }

    /// Returns the number of rounds per size.
    pub(super) fn rounds(&self) -> u32 {
        let Goal::Iterations(count) = self.goal else {
            return self.rounds.unwrap_or(ROUNDS);
        };
        let at_most = |most: u64| u32::try_from(most).unwrap_or(u32::MAX).max(1);
        let default = match self.apis.len() {
            1 => ROUNDS.min(at_most(count / LEAST_IN_A_ROUND)),
            _ => ROUNDS,
        };
        self.rounds.unwrap_or(default).min(at_most(count))
    }

    /// Returns the order of the interfaces in a round. The first one changes from
    /// round to round.
    pub(super) fn turns(&self, round: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.apis.len();
        (0..count).map(move |turn| (turn + round as usize) % count)
    }

    /// Returns which part of a round trip is reported.
    fn reported(&self) -> Reported {
        match self.rates[..] {
            [None] => self.operation.reported(),
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
        let goal = match self.goal {
            // Only the warm-up.
            _ if pass.rate.is_some() => Goal::Iterations(0),
            Goal::Iterations(count) => Goal::Iterations(self.part(count, pass)),
            Goal::Duration(duration) => Goal::Duration(duration / self.rounds()),
        };
        Meter::new(self.clock, goal, self.part(self.warmup, pass), samples)
    }

    /// Returns the schedule of a pass in an open loop.
    pub(super) fn schedule(&self, pass: Pass) -> Option<Schedule> {
        let rate = pass.rate?;
        let count = match self.goal {
            Goal::Iterations(count) => self.part(count, pass),
            Goal::Duration(duration) => {
                (rate * duration.as_secs_f64()) as u64 / u64::from(self.rounds())
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

    /// Returns a round's part of a number of round trips.
    fn part(&self, of: u64, pass: Pass) -> u64 {
        let rounds = u64::from(self.rounds());
        of / rounds + u64::from(u64::from(pass.round) < of % rounds)
    }

    pub(super) fn watchdog<'a>(&self, peer: Option<&'a Peer>) -> Watchdog<'a> {
        if self.wait.is_some() {
            Watchdog::for_waits(self.timeout, peer)
        } else {
            Watchdog::new(self.timeout, peer)
        }
    }

    pub(super) fn conditions(
        &self,
        device_port: &DevicePort,
        libdat: Option<&Libdat>,
        host: Host,
        peer: Option<String>,
    ) -> Conditions {
        Conditions {
            apis: self.apis.clone(),
            wait: self.wait,
            rates: self.rates.iter().copied().flatten().collect(),
            reported: self.reported(),
            rounds: self.rounds(),
            libdat: libdat.map(|libdat| libdat.path().to_owned()),
            operation: self.operation,
            host,
            device: device_port.facts(),
            clock: self.clock,
            clock_cost: self.clock.reading_cost(),
            cpu: self.cpu,
            goal: self.goal,
            warmup: self.warmup,
            tx_depth: self.tx_depth,
            rx_depth: (self.operation == Operation::Send).then_some(self.rx_depth),
            inline: self.inline,
            inline_requested: self.inline_requested,
            peer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn plan(line: &str) -> Plan {
        let words = ["dat-bench", "lat"].into_iter().chain(line.split(' '));
        match crate::cli::Cli::try_parse_from(words).unwrap().command {
            crate::cli::Command::Lat(args) => Plan::new(&args, ListenOn::All),
            _ => unreachable!(),
        }
    }

    /// The numbers of samples and round trips of one interface in all rounds.
    fn samples_of(plan: &Plan) -> (u64, u64) {
        let mut samples = plan.samples();
        let mut trips = 0;
        for round in 0..plan.rounds() {
            let pass = Pass {
                size: 2,
                round,
                rate: None,
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
            assert_eq!(plan(words).rounds(), rounds, "{words}");
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
            };
            let schedule = |round| plan.schedule(pass(round)).expect("an open loop");
            (0..plan.rounds())
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
        };
        assert!(plan("-n 5").schedule(closed).is_none());
    }

    /// Such a pair could not connect: one side exchanges addresses, the other uses
    /// rdma_cm.
    #[test]
    fn an_iwarp_device_and_another_have_different_options() {
        let options_of = |iwarp| {
            Plan {
                iwarp,
                ..plan("-n 100")
            }
            .options()
        };
        assert_eq!(options_of(true), options_of(true));
        assert_ne!(options_of(true), options_of(false));
    }

    #[test]
    fn every_interface_has_one_turn_per_round_and_begins_equally_often() {
        let plan = plan("--api engine,rust");
        let turns: Vec<Vec<usize>> = (0..plan.rounds())
            .map(|round| plan.turns(round).collect())
            .collect();
        assert_eq!(turns.len(), 10);
        assert_eq!(turns.iter().filter(|turn| **turn == [0, 1]).count(), 5);
        assert_eq!(turns.iter().filter(|turn| **turn == [1, 0]).count(), 5);
    }
}
