//! The conditions that runs with two sides have in common (`lat`, `bw` and `rate`).

use std::path::PathBuf;

use serde::Serialize;

use super::conditions::{DeviceFacts, Goal};
use crate::clock::Clock;
use crate::host::Host;
use crate::options::{Api, NetworkArgs, Operation, choices};
use crate::output::counted;

/// What is the same for all sizes of a run; as JSON, a part of `run`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunConditions {
    #[serde(skip)]
    pub(crate) host: Host,
    #[serde(skip)]
    pub(crate) device: DeviceFacts,
    /// The APIs, in the order of `--api`.
    pub(crate) apis: Vec<Api>,
    /// The library of the API `c`.
    pub(crate) libdat: Option<PathBuf>,
    /// Rounds, in each of which every API has one turn per size.
    pub(crate) rounds: u32,
    pub(crate) operation: Operation,
    pub(crate) loopback: bool,
    /// The server; none with `--loopback`.
    pub(crate) peer: Option<String>,
    pub(crate) goal: Goal,
    /// Messages before the measured ones, per size.
    #[serde(skip)]
    pub(crate) warmup: u64,
    pub(crate) tx_depth: u32,
    /// For send only.
    pub(crate) rx_depth: Option<u32>,
    /// The largest inline message.
    pub(crate) inline_bytes: u32,
    /// The largest inline message requested, which the device may not support.
    pub(crate) inline_bytes_wanted: u32,
    /// Whether every message was compared, and when.
    pub(crate) checked: Checked,
    /// Segments of a message.
    pub(crate) segments: u32,
    /// The CPU of the measuring thread, if it is pinned.
    pub(crate) cpu: Option<usize>,
    pub(crate) network: NetworkArgs,
    /// Whether the bytes of the last messages were compared: perftest sends others.
    #[serde(skip)]
    pub(crate) verified: bool,
    #[serde(flatten)]
    pub(crate) clock: ClockFacts,
}

choices! {
    /// Whether every byte of every message was compared with what was sent.
    pub(crate) enum Checked {
        /// At the end of each round only
        No = "no",
        /// When the time of a message was over
        Outside = "outside_of_the_measured_time",
        /// While messages were in flight
        Inside = "within_the_measured_time",
    }
}

/// The clock of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClockFacts {
    #[serde(skip)]
    clock: Clock,
    #[serde(rename = "clock")]
    name: &'static str,
    nanoseconds_per_tick: f64,
    clock_reading_nanoseconds: f64,
}

impl ClockFacts {
    pub(crate) fn of(clock: Clock) -> Self {
        Self {
            clock,
            name: clock.name(),
            nanoseconds_per_tick: clock.nanoseconds_per_tick(),
            clock_reading_nanoseconds: clock.reading_cost(),
        }
    }
}

impl RunConditions {
    pub(crate) fn measures_dat(&self) -> bool {
        self.apis.iter().any(|&api| api != Api::Engine)
    }

    pub(crate) fn has_several_apis(&self) -> bool {
        self.apis.len() > 1
    }

    /// Returns where the two sides are.
    pub(crate) fn sides(&self) -> String {
        match &self.peer {
            None => "loopback: both sides in this thread".to_owned(),
            Some(peer) => format!("with {peer}"),
        }
    }

    /// Returns the depths of the queues.
    pub(crate) fn depths(&self) -> String {
        let tx_depth = self.tx_depth;
        match self.rx_depth {
            Some(rx_depth) => format!("tx depth {tx_depth}, rx depth {rx_depth}"),
            None => format!("tx depth {tx_depth}"),
        }
    }

    /// Returns the largest inline message, and the options of the network.
    pub(crate) fn inline(&self) -> String {
        let cut = match self.inline_bytes < self.inline_bytes_wanted {
            true => " (the device's limit)",
            false => "",
        };
        format!(
            "inline up to {}{cut}{}",
            counted(self.inline_bytes, "byte"),
            self.network
        )
    }

    /// Returns the line of what each message has beside its bytes; none for one plain segment.
    pub(crate) fn message_line(&self) -> String {
        let segments = (self.segments > 1).then(|| format!("{} segments each", self.segments));
        let checked = match self.checked {
            Checked::No => None,
            Checked::Outside if self.loopback => {
                Some("every byte is compared when the time of a message is over")
            }
            Checked::Outside => Some(
                "every byte is compared when the time of a message is over; the server compares meanwhile",
            ),
            Checked::Inside => Some(
                "every byte is written and compared WITHIN the measured time, which that lengthens",
            ),
        };
        let parts: Vec<_> = segments
            .into_iter()
            .chain(checked.map(str::to_owned))
            .collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!(" messages : {}\n", parts.join("; ")),
        }
    }

    pub(crate) fn device_line(&self) -> String {
        let device = &self.device;
        let reason = match &device.path_reason {
            Some(reason) => format!(" ({reason})"),
            None => String::new(),
        };
        format!(
            " device   : {} port {}, {}, firmware {}, {} path{reason}\n",
            device.name, device.port, device.link, device.firmware, device.path
        )
    }

    /// Returns the lines of the APIs, after whose names comes `rest`.
    pub(crate) fn api_lines(&self, rest: &str) -> String {
        let names = self.apis.iter().map(|api| match api {
            Api::Engine => "engine (no DAT)",
            Api::Rust => "rust (DAT, dat_api::safe)",
            Api::C => "c (DAT, libdat.so)",
        });
        let names: Vec<_> = names.collect();
        let turns = match self.has_several_apis() {
            true => format!("; {} each, in turns", counted(self.rounds, "round")),
            false => String::new(),
        };
        let mut lines = format!(" api      : {}{rest}{turns}\n", names.join(", "));
        if let Some(path) = &self.libdat {
            lines += &format!(" libdat   : {}\n", path.display());
        }
        lines
    }

    /// Returns the lines of host and clock.
    pub(crate) fn host_lines(&self) -> String {
        let (host, clock) = (&self.host, &self.clock);
        let pinned = match self.cpu {
            Some(cpu) => format!("pinned to CPU {cpu}"),
            None => "not pinned (--cpu)".to_owned(),
        };
        format!(
            " host     : {}, {} CPUs, Linux {}, governor {}; {pinned}\n clock    : {}, {:.0} ns per reading",
            host.processor(),
            host.cpus,
            host.kernel,
            host.governor.as_deref().unwrap_or("not shown"),
            clock.clock,
            clock.clock_reading_nanoseconds
        )
    }
}
