//! The conditions of a run, which are printed and stored with its figures.

use std::fmt;
use std::time::Duration;

use dat_engine::{DataPath, Device, DeviceInfo, PortInfo};
use serde::Serialize;

use super::{Arrival, RunConditions};
use crate::failure::Failure;
use crate::host::Host;
use crate::options::{Operation, Wait};
use crate::select::Selected;
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
        let device = Device::open(&selected.name)?;
        let info = device.info();
        let found = info.ports.iter().find(|found| found.number == port);
        let port = found.ok_or_else(|| {
            let (name, last) = (&info.name, info.ports.len());
            Failure::usage(format!(
                "{name} has no port {port}; it has ports 1 to {last}"
            ))
        })?;
        Ok(Self::new(info, port, selected.fabric.clone()))
    }

    /// Returns the facts of a device and its port; `fabric` is the emulator's.
    pub(crate) fn new(info: &DeviceInfo, port: &PortInfo, fabric: Option<String>) -> Self {
        let (path, path_reason) = match &info.path {
            DataPath::Direct => ("direct", None),
            DataPath::Verbs { reason } => ("verbs", Some(reason.clone())),
            // Not reached: such a device cannot be opened.
            DataPath::Unusable { reason } => ("unusable", Some(reason.clone())),
        };
        Self {
            name: info.name.clone(),
            port: port.number,
            firmware: info.firmware.clone(),
            link: port.link.to_string(),
            path,
            path_reason,
            emulated_fabric: fabric,
        }
    }

    #[cfg(test)]
    pub(crate) fn emulated() -> Self {
        Self {
            name: "mlx5_0".into(),
            port: 1,
            firmware: "22.0.0".into(),
            link: "InfiniBand".into(),
            path: "direct",
            path_reason: None,
            emulated_fabric: Some("default".into()),
        }
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

/// Returns where a thread runs.
pub(crate) fn pinned(cpu: Option<usize>) -> String {
    cpu.map_or("not pinned".to_owned(), |cpu| format!("on CPU {cpu}"))
}

/// What is the same for all sizes of a run of `lat`.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub(crate) run: RunConditions,
    /// DAT's wait policy; none if its events are dequeued in a loop.
    pub(crate) wait: Option<Wait>,
    /// Messages per second of the open loop; empty for the closed loop.
    pub(crate) rates: Vec<f64>,
    /// The reported part of a round trip.
    pub(crate) reported: Reported,
    /// How the receiver of a write notices it; for write only.
    pub(crate) arrival: Option<Arrival>,
}

impl Conditions {
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
        let run = &self.run;
        writeln!(f, " {}", run.device.emulation_note())?;
        let (operation, sides) = (run.operation.name(), run.sides());
        if self.is_open() {
            let most = match run.operation {
                Operation::Write => 1,
                _ => run.tx_depth,
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
        let events = match (run.measures_dat(), self.wait) {
            (false, _) => String::new(),
            (true, None) => "; DAT's events by dequeue".to_owned(),
            (true, Some(wait)) => format!("; DAT's events by wait, {}", wait.name()),
        };
        write!(f, "{}{}", run.device_line(), run.api_lines(&events))?;
        writeln!(
            f,
            " run      : {} after {} warm-up round trips per size; {}, {}",
            run.goal,
            run.warmup,
            run.depths(),
            run.inline()
        )?;
        f.write_str(&run.host_lines())
    }
}
