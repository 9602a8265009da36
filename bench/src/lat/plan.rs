//! A run as it was asked for, checked and with its defaults filled in.

use std::time::Duration;

use crate::cli::{LatArgs, Operation};
use crate::clock::Clock;
use crate::exchange::Options;
use crate::host::Host;
use crate::report::{Conditions, Goal};
use crate::stats::Samples;

use super::meter::Meter;
use super::rdma::Ground;

/// How long silence is borne, unless told.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is to be measured, and how.
pub(super) struct Plan {
    pub(super) operation: Operation,
    pub(super) sizes: Vec<u32>,
    pub(super) goal: Goal,
    pub(super) warmup: u64,
    pub(super) tx_depth: u32,
    pub(super) rx_depth: u32,
    pub(super) inline: u32,
    /// How long silence of the other side is borne.
    pub(super) patience: Duration,
    clock: Clock,
    cpu: Option<usize>,
    all: bool,
}

impl Plan {
    /// Calibrates the clock on the way: call it where measuring will be done.
    pub(super) fn new(args: &LatArgs) -> Self {
        Self {
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
            patience: args.timeout.unwrap_or(PATIENCE),
            clock: Clock::calibrate(),
            cpu: args.cpu,
            all: args.all,
        }
    }

    /// The largest message of the run, bytes.
    pub(super) fn largest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }

    /// What both sides must have been asked for alike.
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
        options
    }

    pub(super) fn samples(&self) -> Samples {
        Samples::new(&self.clock, self.operation.reported())
    }

    pub(super) fn meter<'a>(&self, samples: &'a mut Samples) -> Meter<'a> {
        Meter::new(self.clock, self.goal, self.warmup, samples)
    }

    pub(super) fn conditions(
        &self,
        ground: &Ground,
        host: Host,
        peer: Option<String>,
    ) -> Conditions {
        Conditions {
            operation: self.operation,
            host,
            device: ground.facts(),
            clock: self.clock,
            clock_cost: self.clock.reading_cost(),
            cpu: self.cpu,
            goal: self.goal,
            warmup: self.warmup,
            tx_depth: self.tx_depth,
            rx_depth: (self.operation == Operation::Send).then_some(self.rx_depth),
            inline: self.inline,
            peer,
        }
    }
}
