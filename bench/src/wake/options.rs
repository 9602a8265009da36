//! Options and help of `dat-bench wake`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use dat_api::safe::WaitPolicy;

use crate::failure::Failure;
use crate::options::{DeviceArgs, HistogramArgs, ResultArgs, require_once, seconds};
use crate::results::{self, Offer, Percentiles, Unit};

pub(crate) const ABOUT: &str = "\
Measure the wake-up latency and the CPU time of waiting, per wait policy.

A thread waits for messages as dat_evd_wait does, with each policy of --wait:
poll spins (umwait too, with halts between polls), block sleeps at
once, adaptive spins for a time that it learns and then sleeps (with bounds:
adaptive:MIN_US:MAX_US). Another thread sends messages at each --rate. Latencies
are in microseconds; CPU is microseconds per message, and percent of one
processor.

On the emulated device there is no NIC thread meanwhile. The sender moves the
NIC step by step, and takes the time just before the step that writes the
completion. So a latency begins when the completion is written and ends when
the waiting thread has the event: it covers polling, or arming, interrupt and
the kernel's wake-up of the thread, and nothing else. On a real device the
latency begins before the message is posted, and includes the network.

Messages are sent on schedule, up to 64 before the waiter has taken them (open
loop). The response times (due 50 %, due 99 %) begin when a message was due, so
they include the lag of a sender that the machine or a slow waiter held up.

Each combination of policy and rate has its own endpoints and event dispatcher,
so nothing learned carries over; its first tenth of messages is warm-up. All
combinations take turns in rounds, so disturbances by other programs affect all
of them; medians are medians of the rounds. The CPU time is that of the waiting
thread (CLOCK_THREAD_CPUTIME_ID), system calls included.

Counters: spins (waits that found no event at first and spun), hits (spins that
ended with an event), blocks (sleeps), spurious (wake-ups without an event),
refused (posts to a full queue), late (messages that were sent more than one
interval after they were due: the waiter or the machine was too slow).

A result is UNRELIABLE for the reasons that 'dat-bench lat --help' lists. With
poll the waiter must have run 95 % of the time; a waiter that sleeps, 95 % of the
time in which it was ready to run.";

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench wake -d emu                                 all policies, no hardware needed
  dat-bench wake -d emu --wait poll,adaptive,block --rate 100,20000,max
  dat-bench wake -d emu --cpu 2,3 --json wake.json --svg wake.svg
  dat-bench wake -d emu --wait adaptive:0:50 --rate 5000 --hgrm wake.hgrm

How to get a good number:
  * Give the waiter and the sender an idle core each: --cpu 2,3. On one core, a
    waiter that spins keeps the sender from running.
  * Switch deep C-states off, or wake-ups include the time to leave them.

Exit status: 0 good, 1 usage, 2 environment (no device, ...), 3 the run failed.";

/// The help of `--fail-if`.
const FIGURES: &str = "\
Fail with status 3 if this holds for a result, such as p99>5us or max>1ms; the figures are
min, max, avg, any percentile, such as p50 or p99.9, cpu (CPU time per message) and cpu-share
(percent of one CPU)";

#[derive(Debug, Args)]
#[command(mut_arg("fail_if", |it| it.help(FIGURES)))]
pub(crate) struct WakeArgs {
    #[command(flatten)]
    pub(crate) on: DeviceArgs,
    /// Wait policies, comma-separated, in the syntax of DAT_WAIT
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "poll,adaptive,adaptive:0:50,adaptive:0:1000,block",
        value_parser = policy
    )]
    pub(crate) wait: Vec<WaitPolicy>,
    /// Messages per second, comma-separated; max sends each message when the previous one was taken
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "100,1000,4000,10000,50000,max"
    )]
    pub(crate) rate: Vec<Rate>,
    /// Time per policy and rate in a round
    #[arg(short = 'D', long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub(crate) duration: Duration,
    /// Rounds, in each of which every policy and rate is measured once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Two CPUs: the waiter is pinned to the first and the sender to the second
    /// [default: the first two that this process may use, such as 0,1]
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 1)]
    pub(crate) cpu: Vec<usize>,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    #[command(flatten)]
    pub(crate) histograms: HistogramArgs,
}

fn policy(text: &str) -> Result<WaitPolicy, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// The rate of messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// This many per second.
    PerSecond(f64),
    /// Closed loop: each message is sent when the previous one was taken.
    Closed,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MOST: f64 = 1e7;
        match text.parse() {
            _ if text == "max" => Ok(Self::Closed),
            Ok(rate) if (0.1..=MOST).contains(&rate) => Ok(Self::PerSecond(rate)),
            _ => Err(format!(
                "expected messages per second, 0.1 to {MOST}, or max"
            )),
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
    /// Refuses values that are given twice, and any number of CPUs but two.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        require_once("--wait", &self.wait)?;
        require_once("--rate", &self.rate)?;
        if !matches!(self.cpu.len(), 0 | 2) {
            return Err(Failure::usage(
                "--cpu takes two CPUs, the waiter's and the sender's, such as --cpu 2,3",
            ));
        }
        let times = ["min", "p50", "max", "avg", "cpu"].map(|it| (it, Unit::Microseconds));
        let offer = Offer {
            command: "wake",
            figures: &[&times[..], &[("cpu-share", Unit::Percent)]].concat(),
            absent: &[],
            percentiles: Percentiles::Of(None),
        };
        results::check(&self.results.fail_if, &offer)
    }
}
