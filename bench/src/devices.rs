//! `dat-bench devices`: what is here, the path it would get, and why.

use std::fmt::Write;

use dat_engine::{Device, DeviceInfo, PortInfo};
use serde::Serialize;

use crate::cli::DevicesArgs;
use crate::failure::Failure;
use crate::launcher::{self, EMULATED};
use crate::output;
use crate::select;

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    select::drive(args.path);
    let fabric = launcher::fabric();
    let mut devices = match args.device.as_deref() {
        None => select::list()?,
        Some(EMULATED) => {
            select::select(Some(EMULATED))?;
            select::list()?
        }
        Some(name) => {
            select::select(Some(name))?;
            select::list()?
                .into_iter()
                .filter(|device| device.name == name)
                .collect()
        }
    };
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    match &args.json {
        Some(file) => {
            let text = document(&devices, fabric.as_deref());
            match file {
                Some(path) => output::save(path, &text)?,
                None => output::print(text)?,
            }
        }
        None => output::print(list(&devices, fabric.as_deref()))?,
    }
    if devices.is_empty() {
        return Err(none_here());
    }
    Ok(())
}

/// Returns the engine's reason for there being no device: no hardware, or no
/// user-space driver for it.
fn none_here() -> Failure {
    let reason = Device::open("any RDMA device").err().map_or_else(
        || "no RDMA device here".to_owned(),
        |error| error.to_string(),
    );
    Failure::environment(format!(
        "{reason}; 'dat-bench devices -d emu' shows the emulated device"
    ))
}

/// For people: a paragraph for each device.
fn list(devices: &[DeviceInfo], fabric: Option<&str>) -> String {
    let mut out = String::new();
    for device in devices {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", device.name);
        let emulated = match fabric {
            Some(fabric) => format!("yes, by mlx5-emu on fabric '{fabric}'"),
            None => "not by mlx5-emu".to_owned(),
        };
        let _ = writeln!(out, "  emulated : {emulated}");
        let _ = writeln!(out, "  path     : {}", path(device));
        let _ = writeln!(out, "  firmware : {}", device.firmware);
        let _ = writeln!(
            out,
            "  ids      : vendor 0x{:04x}, part {}, GUID {}",
            device.vendor_id,
            device.part_id,
            guid(device.guid)
        );
        for port in &device.ports {
            let _ = writeln!(
                out,
                "  port {}   : {}, {}, LID {}, MTU {} (of {}), messages up to {} bytes",
                port.number,
                port.state,
                port.link,
                port.lid,
                port.active_mtu.bytes(),
                port.max_mtu.bytes(),
                port.max_message
            );
            let _ = writeln!(out, "    GID    : {}", chosen_gid(port));
        }
    }
    out
}

/// The data path, and why this one.
fn path(device: &DeviceInfo) -> String {
    match &device.path {
        dat_engine::DataPath::Direct => "direct (an mlx5 device: its rings are driven here)".into(),
        other => other.to_string(),
    }
}

fn chosen_gid(port: &PortInfo) -> String {
    match port.gid() {
        Ok(choice) => format!(
            "{} at index {} ({}): {}",
            choice.entry.gid, choice.entry.index, choice.entry.kind, choice.reason
        ),
        Err(error) => format!("none: {error}").replace('\n', " "),
    }
}

/// Four groups of four digits, as `ibv_devinfo` shows it.
fn guid(guid: u64) -> String {
    let digits = format!("{guid:016x}");
    [&digits[..4], &digits[4..8], &digits[8..12], &digits[12..]].join(":")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    devices: Vec<DeviceEntry<'a>>,
}

#[derive(Serialize)]
struct DeviceEntry<'a> {
    name: &'a str,
    emulated_fabric: Option<&'a str>,
    path: &'static str,
    /// Why the path is not the direct one.
    reason: Option<&'a str>,
    firmware: &'a str,
    vendor_id: u32,
    part_id: u32,
    guid: String,
    ports: Vec<PortEntry>,
}

#[derive(Serialize)]
struct PortEntry {
    number: u8,
    state: String,
    link: String,
    lid: u16,
    active_mtu: u32,
    max_mtu: u32,
    max_message: u32,
    gid: Option<GidEntry>,
}

#[derive(Serialize)]
struct GidEntry {
    index: u8,
    gid: String,
    kind: String,
    reason: &'static str,
}

/// For programs.
fn document(devices: &[DeviceInfo], fabric: Option<&str>) -> String {
    let devices = devices.iter().map(|device| entry(device, fabric)).collect();
    let document = Document {
        schema: "dat-bench/devices/1",
        devices,
    };
    let mut text = serde_json::to_string_pretty(&document)
        .expect("the document has text keys and finite numbers only");
    text.push('\n');
    text
}

fn entry<'a>(device: &'a DeviceInfo, fabric: Option<&'a str>) -> DeviceEntry<'a> {
    let (path, reason) = match &device.path {
        dat_engine::DataPath::Direct => ("direct", None),
        dat_engine::DataPath::Verbs { reason } => ("verbs", Some(reason.as_str())),
        dat_engine::DataPath::Unusable { reason } => ("unusable", Some(reason.as_str())),
    };
    DeviceEntry {
        name: &device.name,
        emulated_fabric: fabric,
        path,
        reason,
        firmware: &device.firmware,
        vendor_id: device.vendor_id,
        part_id: device.part_id,
        guid: guid(device.guid),
        ports: device
            .ports
            .iter()
            .map(|port| PortEntry {
                number: port.number,
                state: port.state.to_string(),
                link: port.link.to_string(),
                lid: port.lid,
                active_mtu: port.active_mtu.bytes(),
                max_mtu: port.max_mtu.bytes(),
                max_message: port.max_message,
                gid: port.gid().ok().map(|choice| GidEntry {
                    index: choice.entry.index,
                    gid: choice.entry.gid.to_string(),
                    kind: choice.entry.kind.to_string(),
                    reason: choice.reason,
                }),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_shown_as_ibv_devinfo_does() {
        assert_eq!(guid(0x5065_8a03_0001_0203), "5065:8a03:0001:0203");
        assert_eq!(guid(1), "0000:0000:0000:0001");
    }

    #[test]
    fn no_device_is_an_empty_list_for_programs() {
        let value: serde_json::Value = serde_json::from_str(&document(&[], None)).unwrap();
        assert_eq!(value["schema"], "dat-bench/devices/1");
        assert_eq!(value["devices"].as_array().unwrap().len(), 0);
    }
}
