//! The conditions of a run, which are printed and stored with its figures.

use std::fmt;
use std::time::Duration;

use dat_engine::{DataPath, Device, DeviceInfo, PortInfo};
use serde::Serialize;

use crate::failure::Failure;
use crate::host::Host;
use crate::output::counted;
use crate::select::Selected;

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
            Self::Iterations(count) => f.write_str(&counted(*count, "iteration")),
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
