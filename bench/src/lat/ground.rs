//! The device and the port of a run, whichever interface goes over them.

use dat_engine::{DataPath, Device, PortInfo};

use crate::cli::LatArgs;
use crate::failure::Failure;
use crate::host;
use crate::report::DeviceFacts;
use crate::select::Selected;

use super::payload;

/// An open device and a port of it.
pub(super) struct Ground {
    pub(super) device: Device,
    pub(super) port: PortInfo,
    fabric: Option<String>,
}

impl Ground {
    /// Opens the device, and refuses what the port cannot do.
    pub(super) fn open(selected: Selected, args: &LatArgs) -> Result<Self, Failure> {
        let device = Device::open(&selected.name)?;
        let port = device.port(args.ib_port)?;
        let largest = args.sizes().into_iter().max().unwrap_or(1);
        if largest > port.max_message {
            return Err(Failure::usage(format!(
                "{} port {} carries messages of up to {} bytes, not {largest}; give a smaller -s",
                selected.name, port.number, port.max_message
            )));
        }
        let ends = args.api.len() as u64 * if args.loopback { 2 } else { 1 };
        let needed = ends * 2 * payload::area(largest) as u64;
        if let Some(available) = host::available_memory().filter(|&bytes| bytes < needed) {
            return Err(Failure::environment(format!(
                "messages of {largest} bytes need buffers of {needed} bytes in all, {available} are available here; give a smaller -s"
            )));
        }
        let most = device.limits().queue_depth;
        for (option, depth) in [("-t", args.tx_depth), ("-r", args.receive_depth())] {
            if depth > most {
                return Err(Failure::usage(format!(
                    "{} has queues of up to {most} requests; {option} {depth} is too deep",
                    selected.name
                )));
            }
        }
        Ok(Self {
            device,
            port,
            fabric: selected.fabric,
        })
    }

    /// What DAT calls the port.
    pub(super) fn adapter_name(&self) -> String {
        format!("{}-{}", self.device.info().name, self.port.number)
    }

    pub(super) fn facts(&self) -> DeviceFacts {
        let info = self.device.info();
        let (path, path_reason) = match &info.path {
            DataPath::Direct => ("direct", None),
            DataPath::Verbs { reason } => ("verbs", Some(reason.clone())),
            // Such a device does not open.
            DataPath::Unusable { reason } => ("unusable", Some(reason.clone())),
        };
        DeviceFacts {
            name: info.name.clone(),
            port: self.port.number,
            firmware: info.firmware.clone(),
            link: self.port.link.to_string(),
            path,
            path_reason,
            emulated_fabric: self.fabric.clone(),
        }
    }
}
