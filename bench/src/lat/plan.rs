//! The parameters of a run: options with their defaults, cut to the device's limits.

use std::time::Duration;

use dat_engine::cm::ListenOn;

use crate::cli::{Api, LatArgs, Operation, Wait};
use crate::clock::Clock;
use crate::exchange::{Options, Peer};
use crate::failure::Failure;
use crate::host::Host;
use crate::report::{Conditions, Goal};
use crate::stats::Samples;

use super::c::Libdat;
use super::device_port::DevicePort;
use super::meter::Meter;
use super::watchdog::Watchdog;

/// Default timeout for messages of the other side.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Rounds if several interfaces are compared, so that changes of the machine
/// (frequency, other load) affect all of them.
const ROUNDS: u32 = 10;

/// One uninterrupted measurement: one size in one round, through one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Bytes.
    pub(super) size: u32,
    /// Below [`Plan::rounds`].
    pub(super) round: u32,
}

/// The parameters of a run.
pub(super) struct Plan {
    pub(super) apis: Vec<Api>,
    pub(super) wait: Option<Wait>,
    pub(super) operation: Operation,
    pub(super) sizes: Vec<u32>,
    pub(super) goal: Goal,
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
            goal: match args.duration {
                Some(duration) => Goal::Duration(duration),
                None => Goal::Iterations(args.iterations()),
            },
            warmup: args.warmup(),
            tx_depth: args.tx_depth,
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
        match (self.apis.len(), self.goal) {
            (1, _) => 1,
            (_, Goal::Iterations(count)) => ROUNDS.min(u32::try_from(count).unwrap_or(ROUNDS)),
            (_, Goal::Duration(_)) => ROUNDS,
        }
    }

    /// Returns the order of the interfaces in a round. The first one changes from
    /// round to round.
    pub(super) fn turns(&self, round: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.apis.len();
        (0..count).map(move |turn| (turn + round as usize) % count)
    }

    pub(super) fn samples(&self) -> Samples {
        Samples::new(&self.clock, self.operation.reported())
    }

    pub(super) fn meter<'a>(&self, pass: Pass, samples: &'a mut Samples) -> Meter<'a> {
        let rounds = self.rounds();
        let goal = match self.goal {
            Goal::Iterations(count) => {
                let (each, more) = (count / u64::from(rounds), count % u64::from(rounds));
                Goal::Iterations(each + u64::from(u64::from(pass.round) < more))
            }
            Goal::Duration(duration) => Goal::Duration(duration / rounds),
        };
        let warmup = self.warmup.div_ceil(u64::from(rounds));
        Meter::new(self.clock, goal, warmup, samples)
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
            let mut meter = plan.meter(Pass { size: 2, round }, &mut samples);
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
        assert_eq!(plan("-n 100").rounds(), 1);
        assert_eq!(samples_of(&plan("-n 100 --warmup 7")), (100, 107));
        for count in [1, 3, 10, 57] {
            let plan = plan(&format!("--api engine,rust,c -n {count} --warmup 0"));
            assert_eq!(samples_of(&plan), (count, count));
        }
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
