//! `dat-bench devices`: the RDMA devices of this host, their data paths and limits.

mod json;
mod listed;
pub(crate) mod options;
mod place;

use std::fmt::Write;

use dat_api::object::ia::IaAttributes;
use dat_engine::{Device, DeviceInfo, Limits, PortInfo, Transport};

use crate::devices::options::DevicesArgs;
use crate::failure::Failure;
use crate::launcher::{self, EMULATED};
use crate::output::{self, counted};
use crate::report::fit::fit;
use crate::select;

use listed::{ListedDevice, MAX_INLINE_TRIED, WHY_DIRECT, interface_of, rate_of};

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    select::set_data_path(args.path);
    let fabric = launcher::fabric();
    if let Some(name) = args.device.as_deref() {
        select::select(Some(name))?;
    }
    let mut devices = select::list()?;
    if let Some(name) = args.device.as_deref().filter(|&name| name != EMULATED) {
        devices.retain(|device| device.name == name);
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    let devices: Vec<ListedDevice> = devices.into_iter().map(ListedDevice::new).collect();
    match &args.json {
        Some(file) => {
            let text = json::document(&devices, fabric.as_deref());
            match file {
                Some(path) => output::save(path, &text)?,
                None => output::print(text)?,
            }
        }
        None => output::print(list(&devices, fabric.as_deref()))?,
    }
    if devices.is_empty() {
        return Err(no_device());
    }
    Ok(())
}

/// Returns the failure for an empty list, with the engine's reason: no hardware,
/// or no user-space driver for it.
fn no_device() -> Failure {
    let reason = Device::open("any RDMA device").err().map_or_else(
        || "this host has no RDMA device".to_owned(),
        |error| error.to_string(),
    );
    Failure::environment(format!(
        "{reason}; 'dat-bench devices -d emu' shows the emulated device"
    ))
}

/// Returns the text, with one paragraph per device.
fn list(devices: &[ListedDevice], fabric: Option<&str>) -> String {
    let mut out = String::new();
    for entry in devices {
        let device = &entry.info;
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", device.name);
        let emulated = match fabric {
            Some(fabric) => format!("yes, by mlx5-emu on fabric '{fabric}'"),
            None => "not by mlx5-emu".to_owned(),
        };
        let _ = writeln!(out, "  emulated : {emulated}");
        let _ = writeln!(out, "  path     : {}", path(device));
        let _ = writeln!(out, "  transport: {}", device.transport);
        if let Some(place) = entry.place.describe() {
            let _ = writeln!(out, "  place    : {place}");
        }
        let _ = writeln!(out, "  firmware : {}", device.firmware);
        let _ = writeln!(
            out,
            "  ids      : vendor 0x{:04x}, part {}, GUID {}",
            device.vendor_id, device.part_id, device.guid
        );
        if let Some(limits) = &device.limits {
            let _ = writeln!(out, "  limits   : {}", limits_of(limits, entry));
        }
        let _ = writeln!(out, "  DAT      : {}", offered(entry.offer().as_ref()));
        for port in &device.ports {
            let _ = writeln!(
                out,
                "  port {}   : {}, {}{}, LID {}, MTU {} (of {}), messages up to {} bytes",
                port.number,
                port.state,
                port.link,
                rate_of(&device.name, port).map_or_else(String::new, |rate| format!(", {rate}")),
                port.lid,
                port.active_mtu.bytes(),
                port.max_mtu.bytes(),
                port.max_message
            );
            let _ = writeln!(out, "    GID    : {}", chosen_gid(device, port));
        }
    }
    fit(&out)
}

/// Returns the data path and its reason.
fn path(device: &DeviceInfo) -> String {
    match &device.path {
        dat_engine::DataPath::Direct => format!("direct ({WHY_DIRECT})"),
        other => other.to_string(),
    }
}

fn limits_of(limits: &Limits, entry: &ListedDevice) -> String {
    let inline = match &entry.inline {
        Some(Ok(bytes)) if *bytes >= MAX_INLINE_TRIED => format!("{bytes} bytes or more"),
        Some(Ok(bytes)) => format!("up to {bytes} bytes"),
        Some(Err(error)) => format!("unknown ({error})").replace('\n', " "),
        None => "unknown".to_owned(),
    };
    let srqs = match limits.srqs {
        0 => "no shared receive queues".to_owned(),
        count => format!(
            "{} of {} of {}",
            counted(count, "shared receive queue"),
            counted(limits.srq_depth, "receive"),
            counted(limits.srq_segments, "segment")
        ),
    };
    let windows = match limits.windows {
        0 => "no memory windows".to_owned(),
        count => counted(count, "memory window"),
    };
    format!(
        "{} a queue, of {} ({} of an RDMA read), inline {inline}; {} a completion queue; {} \
         served and {} issued at a time; {srqs}; {windows}; {}",
        counted(limits.queue_depth, "request"),
        counted(limits.segments, "segment"),
        limits.read_segments,
        counted(limits.cq_depth, "completion"),
        counted(limits.reads_served, "RDMA read"),
        limits.reads_issued,
        if limits.atomics {
            "atomics"
        } else {
            "no atomics"
        },
    )
}

/// Returns what DAT offers on the device.
fn offered(offer: Option<&IaAttributes>) -> String {
    let Some(offer) = offer else {
        return "nothing: there are no reliable connections".to_owned();
    };
    let segments = i32::unsigned_abs;
    let reads = match (
        offer.max_rdma_read_per_ep_in,
        offer.max_rdma_read_per_ep_out,
    ) {
        (0, 0) => "no RDMA reads".to_owned(),
        (served, issued) => format!(
            "{served} RDMA reads in and {issued} out, of {}",
            counted(segments(offer.max_iov_segments_per_rdma_read), "segment")
        ),
    };
    let has = |count: i32, what: &str| match count {
        0 => format!("no {what}"),
        _ => what.to_owned(),
    };
    format!(
        "endpoints of {} requests and receives of {}; {reads}; {}, {}; EVDs of {} events",
        offer.max_dto_per_ep,
        counted(segments(offer.max_iov_segments_per_dto), "segment"),
        has(offer.max_srqs, "SRQs"),
        has(offer.max_rmrs, "RMRs"),
        offer.max_evd_qlen,
    )
}

/// Returns the GID that connections on the port use, and why.
fn chosen_gid(device: &DeviceInfo, port: &PortInfo) -> String {
    if device.transport == Transport::Iwarp {
        return "none needed: iWARP connects by IP addresses".to_owned();
    }
    match port.gid() {
        Ok(choice) => format!(
            "{} at index {} ({}{}): {}",
            choice.entry.gid,
            choice.entry.index,
            choice.entry.kind,
            interface_of(&device.name, port, choice.entry.index)
                .map_or_else(String::new, |name| format!(", {name}")),
            choice.reason
        ),
        Err(error) => format!("none: {error}").replace('\n', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::json::document;
    use super::place::Place;
    use super::*;

    fn limits() -> Limits {
        Limits {
            qps: 100,
            queue_depth: 256,
            segments: 6,
            read_segments: 1,
            cqs: 100,
            cq_depth: 1000,
            vectors: 1,
            srqs: 0,
            srq_depth: 0,
            srq_segments: 0,
            regions: 100,
            region_size: 1 << 40,
            windows: 0,
            domains: 100,
            reads_served: 0,
            reads_issued: 0,
            atomics: false,
            ack_delay: 16,
        }
    }

    fn device(transport: Transport, inline: Option<u32>) -> ListedDevice {
        ListedDevice {
            info: DeviceInfo {
                name: "siw0".into(),
                guid: dat_engine::Guid(1),
                vendor_id: 0,
                part_id: 0,
                firmware: String::new(),
                transport,
                limits: Some(limits()),
                ports: Vec::new(),
                path: dat_engine::DataPath::Verbs {
                    reason: "it is not an mlx5 device".into(),
                },
            },
            inline: inline.map(Ok),
            place: Place::default(),
        }
    }

    #[test]
    fn the_text_shows_transport_limits_and_dats_offer() {
        // Lines are broken between words.
        let shown = |entry| {
            let text = list(&[entry], None);
            crate::report::fit::assert_fits(&text);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let text = shown(device(Transport::Iwarp, Some(80)));
        for said in [
            "transport: iWARP",
            "256 requests a queue, of 6 segments (1 of an RDMA read), inline up to 80 bytes",
            "0 RDMA reads served and 0 issued",
            "no shared receive queues; no memory windows; no atomics",
            "endpoints of 255 requests and receives of 6 segments; no RDMA reads; no SRQs, no RMRs",
        ] {
            assert!(text.contains(said), "{said} in {text}");
        }
        let text = shown(device(Transport::Other, None));
        assert!(text.contains("DAT : nothing"), "{text}");
        let text = shown(device(Transport::Roce, Some(MAX_INLINE_TRIED)));
        assert!(text.contains("inline 1024 bytes or more"), "{text}");
    }

    #[test]
    fn the_direct_path_has_a_reason_too() {
        let mut entry = device(Transport::Roce, Some(236));
        entry.info.path = dat_engine::DataPath::Direct;
        let devices = [entry];
        let value: serde_json::Value = serde_json::from_str(&document(&devices, None)).unwrap();
        let found = &value["devices"][0];
        assert_eq!(
            (&found["path"], &found["reason"]),
            (&"direct".into(), &WHY_DIRECT.into())
        );
        assert!(list(&devices, None).contains(&format!("direct ({WHY_DIRECT})")));
    }

    #[test]
    fn json_has_the_same_facts() {
        let devices = [
            device(Transport::Iwarp, Some(80)),
            device(Transport::Other, None),
        ];
        let value: serde_json::Value = serde_json::from_str(&document(&devices, None)).unwrap();
        let (iwarp, other) = (&value["devices"][0], &value["devices"][1]);
        assert_eq!(iwarp["path"], "verbs");
        assert_eq!(iwarp["reason"], "it is not an mlx5 device");
        assert_eq!(iwarp["transport"], "iWARP");
        assert_eq!(iwarp["limits"]["inline_bytes"], 80);
        assert_eq!(iwarp["limits"]["read_segments"], 1);
        assert_eq!(iwarp["dat"]["max_dto_per_ep"], 255);
        assert_eq!(iwarp["dat"]["max_srqs"], 0);
        assert!(other["limits"]["inline_bytes"].is_null());
        assert!(
            other["dat"].is_null(),
            "the device has no reliable connections"
        );
    }

    #[test]
    fn without_a_device_json_has_an_empty_list() {
        let value: serde_json::Value = serde_json::from_str(&document(&[], None)).unwrap();
        assert_eq!(value["schema"], "dat-bench/devices/1");
        assert_eq!(value["devices"].as_array().unwrap().len(), 0);
    }
}
