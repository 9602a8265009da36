//! `dat-bench wake` as it is typed.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use dat_api::safe::WaitPolicy;

use super::{Path, seconds};
use crate::failure::Failure;

pub(super) const ABOUT: &str = "\
Measure how soon a waiting thread has an event, and what waiting costs it.

A thread waits for messages as dat_evd_wait does (its body: DAT's Rust types
call the same), by each policy of --wait: poll spins, block sleeps at once,
adaptive spins for a time that it learns and then sleeps; with bounds,
adaptive:MIN_US:MAX_US. Another thread sends messages at each --rate.

On the emulated device there is no NIC thread meanwhile: the sender moves the
NIC itself, step by step, and takes the time just before the step that writes
the completion. So a latency here begins when the completion comes out, and
ends when the waiter has the event: it is the cost of looking, or of the
arming, the interrupt and the kernel's waking of a thread, and of nothing
else. On a real device the time begins before the message is posted, and the
way there is in it.

Each case has endpoints and an event dispatcher of its own, so it learns anew,
and a tenth of its messages is not counted. Cases are gone through in rounds,
so that whatever else the machine does meets all of them; medians are those of
the rounds. The CPU time is the waiting thread's own (CLOCK_THREAD_CPUTIME_ID),
system calls included.

What is counted: spins (waits whose first look missed and that spun), hits (of
those, ended by the event), blocks (sleeps), spurious (woken for nothing),
refused (posts without room). 'late': messages that the sender could not send
in time, since the waiter or the machine was too slow for the rate.";

pub(super) const EXAMPLES: &str = "\
Examples:
  dat-bench wake -d emu                                 all policies, no hardware needed
  dat-bench wake -d emu --wait poll,adaptive,block --rate 100,20000,max
  dat-bench wake -d emu --cpu 2,3 --json wake.json --svg wake.svg
  dat-bench wake -d emu --wait adaptive:0:50 --rate 5000 --hgrm wake.hgrm

How to get a good number:
  * Two cores that nothing else uses, for the waiter and the sender: --cpu 2,3.
    On fewer, poll and adaptive keep the sender off its core.
  * Deep C-states off if the waiter's wake-ups are to cost the same each time.

Exit status: 0 good, 1 usage, 2 environment (no device, ...), 3 the run failed.";

#[derive(Debug, Args)]
pub(crate) struct WakeArgs {
    /// Device: a name, or 'emu' for the emulated one [default: the best real one, else emulated]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// How the device is driven [default: as DAT_PATH says, else auto]
    #[arg(long, value_name = "HOW")]
    pub(crate) path: Option<Path>,
    /// Port of the device
    #[arg(short = 'i', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ib_port: u8,
    /// Policies, comma-separated, as DAT_WAIT has them
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "poll,adaptive,adaptive:0:50,adaptive:0:1000,block",
        value_parser = policy
    )]
    pub(crate) wait: Vec<WaitPolicy>,
    /// Messages a second, comma-separated; max: the next one when the one before has arrived
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "100,1000,4000,10000,50000,max"
    )]
    pub(crate) rate: Vec<Rate>,
    /// Time of a case in a round
    #[arg(short = 'D', long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub(crate) duration: Duration,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Pin the waiter to the first and the sender to the second of these CPUs
    /// [default: the first two that this process may use]
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 1)]
    pub(crate) cpu: Vec<usize>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the percentiles in HdrHistogram's text format; policy and rate go into the name
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
    /// Draw latencies and CPU time as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

fn policy(text: &str) -> Result<WaitPolicy, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// How often messages come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// So many a second.
    PerSecond(f64),
    /// The next when the one before was taken.
    Closed,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MOST: f64 = 1e7;
        match text.parse() {
            _ if text == "max" => Ok(Self::Closed),
            Ok(rate) if (0.1..=MOST).contains(&rate) => Ok(Self::PerSecond(rate)),
            _ => Err(format!("give messages a second, 0.1 to {MOST}, or max")),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => write!(f, "{rate}"),
            Self::Closed => f.write_str("max"),
        }
    }
}

impl WakeArgs {
    /// Refuses what says the same twice.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let twice = |name, words: Vec<String>| {
            let again = (1..words.len()).find(|&at| words[..at].contains(&words[at]));
            match again {
                Some(at) => Err(Failure::usage(format!("{name} names {} twice", words[at]))),
                None => Ok(()),
            }
        };
        twice(
            "--wait",
            self.wait.iter().map(ToString::to_string).collect(),
        )?;
        twice(
            "--rate",
            self.rate.iter().map(ToString::to_string).collect(),
        )?;
        if !matches!(self.cpu.len(), 0 | 2) {
            return Err(Failure::usage(
                "--cpu takes two CPUs, the waiter's and the sender's, such as --cpu 2,3",
            ));
        }
        Ok(())
    }
}
