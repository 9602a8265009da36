//! How much is measured: sizes, interfaces in turns, rounds.

use crate::exchange::Options;
use crate::options::{Api, Operation, RunArgs};
use crate::report::Goal;

/// Rounds per size: as many as a confidence interval of the median needs, and
/// several interfaces take turns in them, so that changes of the machine
/// (frequency, other load) affect all of them.
const ROUNDS: u32 = 10;
/// Least messages of a round by default, if only one interface is measured.
const LEAST_IN_A_ROUND: u64 = 50;

/// The sizes of a run and how each is measured.
#[derive(Clone, Debug)]
pub(crate) struct Amount {
    pub(crate) apis: Vec<Api>,
    pub(crate) sizes: Vec<u32>,
    pub(crate) goal: Goal,
    /// As requested.
    rounds: Option<u32>,
    /// Messages before the measured ones, per size.
    pub(crate) warmup: u64,
    all: bool,
}

impl Amount {
    /// `iterations` is the number of messages per size, if no time is given.
    pub(crate) fn new(args: &RunArgs, sizes: Vec<u32>, iterations: u64, warmup: u64) -> Self {
        Self {
            apis: args.api.clone(),
            sizes,
            goal: match args.duration {
                Some(duration) => Goal::Duration(duration),
                None => Goal::Iterations(iterations),
            },
            rounds: match args.is_with_perftest() {
                true => Some(1),
                false => args.rounds,
            },
            warmup,
            all: args.all,
        }
    }

    /// Returns the largest message of the run, bytes.
    pub(super) fn largest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }

    /// Returns the options that both sides must have in common. `command` is the
    /// name of the command.
    pub(super) fn options(&self, command: &str, operation: Operation, is_iwarp: bool) -> Options {
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
        options.set("command", command);
        options.set("-o", operation.name());
        options.set("-s", size);
        options.set("-n", iterations);
        options.set("-D", duration);
        // The default follows from the other options.
        let rounds = self.rounds.map_or("default".into(), |it| it.to_string());
        options.set("--rounds", rounds);
        let apis: Vec<_> = self.apis.iter().map(|api| api.name()).collect();
        options.set("--api", apis.join(","));
        // InfiniBand and RoCE are compared by their links: `Peer::exchange_addresses`.
        let transport = match is_iwarp {
            true => "iWARP",
            false => "InfiniBand or RoCE",
        };
        options.set("-d (its transport)", transport);
        options
    }

    /// Returns the number of rounds per size.
    pub(crate) fn rounds(&self) -> u32 {
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
    fn turns(&self, round: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.apis.len();
        (0..count).map(move |turn| (turn + round as usize) % count)
    }

    /// Returns the round and the index of the interface of every pass of a size, in
    /// their order.
    pub(super) fn passes(&self) -> impl Iterator<Item = (u32, usize)> {
        (0..self.rounds()).flat_map(|round| self.turns(round).map(move |turn| (round, turn)))
    }

    /// Returns when a round ends.
    pub(crate) fn goal_of(&self, round: u32) -> Goal {
        match self.goal {
            Goal::Iterations(count) => Goal::Iterations(self.part(count, round)),
            Goal::Duration(duration) => Goal::Duration(duration / self.rounds()),
        }
    }

    /// Returns a round's part of a number of messages.
    pub(crate) fn part(&self, of: u64, round: u32) -> u64 {
        let rounds = u64::from(self.rounds());
        of / rounds + u64::from(u64::from(round) < of % rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_interface_has_one_turn_per_round_and_begins_equally_often() {
        let amount = Amount {
            apis: vec![Api::Engine, Api::Rust],
            sizes: vec![2],
            goal: Goal::Duration(Duration::from_secs(1)),
            rounds: None,
            warmup: 0,
            all: false,
        };
        let turns: Vec<Vec<usize>> = (0..amount.rounds())
            .map(|round| amount.turns(round).collect())
            .collect();
        assert_eq!(turns.len(), 10);
        assert_eq!(turns.iter().filter(|turn| **turn == [0, 1]).count(), 5);
        assert_eq!(turns.iter().filter(|turn| **turn == [1, 0]).count(), 5);
        let passes: Vec<_> = amount.passes().collect();
        assert_eq!(passes.len(), 20);
        assert_eq!(passes[..4], [(0, 0), (0, 1), (1, 1), (1, 0)]);
    }

    /// Such a pair could not connect: one side exchanges addresses, the other uses
    /// rdma_cm.
    #[test]
    fn an_iwarp_device_another_one_and_other_commands_have_different_options() {
        let amount = Amount {
            apis: vec![Api::Engine],
            sizes: vec![2],
            goal: Goal::Iterations(100),
            rounds: None,
            warmup: 0,
            all: false,
        };
        let of = |command, is_iwarp| amount.options(command, Operation::Send, is_iwarp);
        assert_eq!(of("lat", true), of("lat", true));
        assert_ne!(of("lat", true), of("lat", false));
        assert_ne!(of("lat", true), of("bw", true));
    }
}
