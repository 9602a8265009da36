//! The conditions of a run, which are printed and stored with its figures.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use dat_engine::DataPath;
use serde::Serialize;

use super::Arrival;
use crate::cli::{Api, Operation, Wait};
use crate::clock::Clock;
use crate::failure::Failure;
use crate::host::Host;
use crate::select::{self, Selected};
use crate::stats::Reported;

/// When a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// After this many samples.
    Iterations(u64),
    /// After this time.
    #[serde(serialize_with = "as_seconds")]
    Duration(Duration),
}

fn as_seconds<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iterations(count) => write!(f, "{count} iterations"),
            Self::Duration(duration) => write!(f, "{} s", duration.as_secs_f64()),
        }
    }
}

/// The device of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceFacts {
    pub(crate) name: String,
    /// The port used.
    pub(crate) port: u8,
    /// Firmware version.
    pub(crate) firmware: String,
    /// Link layer.
    pub(crate) link: String,
    /// The data path: direct or verbs.
    pub(crate) path: &'static str,
    /// Why the path is not direct.
    pub(crate) path_reason: Option<String>,
    /// The emulator's fabric, if the device is emulated.
    pub(crate) emulated_fabric: Option<String>,
}

impl DeviceFacts {
    /// Queries the chosen device.
    pub(crate) fn of(selected: &Selected, port: u8) -> Result<Self, Failure> {
        let info = select::list()?
            .into_iter()
            .find(|device| device.name == selected.name)
            .ok_or_else(|| Failure::environment(format!("{} was removed", selected.name)))?;
        let port = info
            .ports
            .iter()
            .find(|found| found.number == port)
            .ok_or_else(|| {
                Failure::usage(format!(
                    "{} has no port {port}; it has ports 1 to {}",
                    info.name,
                    info.ports.len()
                ))
            })?;
        let (path, path_reason) = match &info.path {
            DataPath::Direct => ("direct", None),
            DataPath::Verbs { reason } => ("verbs", Some(reason.clone())),
            DataPath::Unusable { reason } => {
                return Err(Failure::environment(format!(
                    "{} cannot be used: {reason}",
                    info.name
                )));
            }
        };
        Ok(Self {
            name: info.name.clone(),
            port: port.number,
            firmware: info.firmware.clone(),
            link: port.link.to_string(),
            path,
            path_reason,
            emulated_fabric: selected.fabric.clone(),
        })
    }

    /// Returns the line that says whether the figures are an emulator's.
    pub(crate) fn emulation_note(&self) -> String {
        match &self.emulated_fabric {
            Some(fabric) => format!(
                "device {} is EMULATED by mlx5-emu (fabric '{fabric}'): these figures are the emulator's, not a NIC's",
                self.name
            ),
            None => format!("device {} is not emulated by mlx5-emu", self.name),
        }
    }
}

/// Returns the lines with which a table begins: whether the device is emulated,
/// then device, host and `rest`.
pub(crate) fn head(device: &DeviceFacts, host: &Host, rest: &str) -> String {
    format!(
        " {}\n {} port {}, {} path; {}; {rest}\n",
        device.emulation_note(),
        device.name,
        device.port,
        device.path,
        host.processor()
    )
}

pub(crate) fn device_line(device: &DeviceFacts) -> String {
    let reason = match &device.path_reason {
        Some(reason) => format!(" ({reason})"),
        None => String::new(),
    };
    format!(
        " device   : {} port {}, {}, firmware {}, {} path{reason}",
        device.name, device.port, device.link, device.firmware, device.path
    )
}

/// Returns the line of a host, with the place of the measuring thread.
pub(crate) fn host_line(host: &Host, cpu: Option<usize>) -> String {
    let pinned = match cpu {
        Some(cpu) => format!("pinned to CPU {cpu}"),
        None => "not pinned (--cpu)".to_owned(),
    };
    format!(
        " host     : {}, {} CPUs, Linux {}, governor {}; {pinned}",
        host.processor(),
        host.cpus,
        host.kernel,
        host.governor.as_deref().unwrap_or("not shown")
    )
}

/// Returns the line of a clock; `cost` is that of one reading, nanoseconds.
pub(crate) fn clock_line(clock: &Clock, cost: f64) -> String {
    format!(" clock    : {clock}, {cost:.0} ns per reading")
}

/// Returns the names of interfaces with their libraries.
pub(crate) fn api_names(apis: &[Api]) -> String {
    let names: Vec<&str> = apis
        .iter()
        .map(|api| match api {
            Api::Engine => "engine (no DAT)",
            Api::Rust => "rust (DAT, dat_api::safe)",
            Api::C => "c (DAT, libdat.so)",
        })
        .collect();
    names.join(", ")
}

/// Returns where a thread runs.
pub(crate) fn pinned(cpu: Option<usize>) -> String {
    cpu.map_or("not pinned".to_owned(), |cpu| format!("on CPU {cpu}"))
}

/// What is the same for all sizes of a run.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    /// The interfaces, in the order of `--api`.
    pub(crate) apis: Vec<Api>,
    /// DAT's wait policy; none if its events are dequeued in a loop.
    pub(crate) wait: Option<Wait>,
    /// Messages per second of the open loop; empty for the closed loop.
    pub(crate) rates: Vec<f64>,
    /// The reported part of a round trip.
    pub(crate) reported: Reported,
    /// Rounds, in each of which every interface has one turn per size.
    pub(crate) rounds: u32,
    /// The library of the C interface.
    pub(crate) libdat: Option<PathBuf>,
    pub(crate) operation: Operation,
    /// How the receiver of a write notices it; for write only.
    pub(crate) arrival: Option<Arrival>,
    pub(crate) host: Host,
    pub(crate) device: DeviceFacts,
    pub(crate) clock: Clock,
    /// Cost of one reading of the clock, nanoseconds.
    pub(crate) clock_cost: f64,
    /// The CPU of the measuring thread, if it is pinned.
    pub(crate) cpu: Option<usize>,
    pub(crate) goal: Goal,
    pub(crate) warmup: u64,
    pub(crate) tx_depth: u32,
    /// For send only.
    pub(crate) rx_depth: Option<u32>,
    /// The largest inline message, bytes.
    pub(crate) inline: u32,
    /// The largest inline message requested, which the device may not support.
    pub(crate) inline_requested: u32,
    /// The server; none with `--loopback`.
    pub(crate) peer: Option<String>,
}

impl Conditions {
    pub(crate) fn measures_dat(&self) -> bool {
        self.apis.iter().any(|&api| api != Api::Engine)
    }

    /// Returns the interfaces and how DAT's events are taken.
    fn measured_interfaces(&self) -> String {
        let mut text = api_names(&self.apis);
        if self.measures_dat() {
            text += &match self.wait {
                None => "; DAT's events by dequeue".to_owned(),
                Some(wait) => format!("; DAT's events by wait, {}", wait.name()),
            };
        }
        if self.apis.len() > 1 {
            text += &format!("; {} rounds each, in turns", self.rounds);
        }
        text
    }

    /// Returns whether messages were sent on schedule.
    pub(crate) fn is_open(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Returns the reported part of the round trip, for headings.
    pub(crate) fn reported_name(&self) -> &'static str {
        match self.reported {
            _ if self.is_open() => "response time",
            Reported::HalfRoundTrip => "half round trip",
            Reported::FullRoundTrip => "full round trip",
        }
    }
}

/// The lines above the table.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        writeln!(f, " {}", device.emulation_note())?;
        let sides = match &self.peer {
            None => "loopback: both sides in this thread".to_owned(),
            Some(peer) => format!("with {peer}"),
        };
        let operation = self.operation.name();
        if self.is_open() {
            let most = match self.operation {
                Operation::Write => 1,
                _ => self.tx_depth,
            };
            writeln!(
                f,
                " {operation} on schedule (open loop), {sides}; up to {most} in flight"
            )?;
            writeln!(
                f,
                " reported: response time from DUE to answered, service time from SENT to answered; FULL round trips"
            )?;
        } else {
            writeln!(f, " {operation} ping-pong, {sides}; one message in flight")?;
            let part = match self.reported {
                Reported::HalfRoundTrip => "HALF of the round trip",
                Reported::FullRoundTrip => "the FULL round trip",
            };
            writeln!(
                f,
                " reported: {part} (perftest's convention for {operation})"
            )?;
        }
        if let Some(arrival) = &self.arrival {
            writeln!(f, " arrival  : {arrival}")?;
        }
        writeln!(f, "{}", device_line(device))?;
        writeln!(f, " api      : {}", self.measured_interfaces())?;
        if let Some(path) = &self.libdat {
            writeln!(f, " libdat   : {}", path.display())?;
        }
        let depths = match self.rx_depth {
            Some(rx_depth) => format!("tx depth {}, rx depth {rx_depth}", self.tx_depth),
            None => format!("tx depth {}", self.tx_depth),
        };
        let cut = match self.inline < self.inline_requested {
            true => " (the device's limit)",
            false => "",
        };
        writeln!(
            f,
            " run      : {} after {} warm-up round trips per size; {depths}, inline up to {} bytes{cut}",
            self.goal, self.warmup, self.inline
        )?;
        writeln!(f, "{}", host_line(&self.host, self.cpu))?;
        write!(f, "{}", clock_line(&self.clock, self.clock_cost))
    }
}
