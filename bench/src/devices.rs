//! `dat-bench devices`: what is here, the path it would get, and why.

mod json;

use std::fmt::Write;

use dat_api::object::ia::LimitAttributes;
use dat_engine::{
    ControlError, Device, DeviceInfo, InlineShape, Limits, PathRequest, PortInfo, Transport,
};

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
    let devices: Vec<Entry> = devices.into_iter().map(Entry::new).collect();
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
        return Err(none_here());
    }
    Ok(())
}

/// A device and what was found out by using it.
struct Entry {
    info: DeviceInfo,
    /// The most inline bytes of a send of one segment, if a queue pair could be
    /// made; at [`MOST_INLINE`] there may be more.
    inline: Option<Result<u32, ControlError>>,
}

/// Inline sizes are looked for up to this one: no device here takes more.
const MOST_INLINE: u32 = 1024;

impl Entry {
    fn new(info: DeviceInfo) -> Self {
        let usable = !matches!(info.path, dat_engine::DataPath::Unusable { .. });
        let inline = (usable && info.transport != Transport::Other).then(|| inline_of(&info.name));
        Self { info, inline }
    }

    fn inline_bytes(&self) -> Option<u32> {
        self.inline.as_ref()?.as_ref().ok().copied()
    }

    /// What DAT offers on it.
    fn offer(&self) -> Option<LimitAttributes> {
        let connects = self.info.transport != Transport::Other;
        let limits = self.info.limits.as_ref().filter(|_| connects)?;
        Some(LimitAttributes::of(limits))
    }
}

/// No verb tells it: queue pairs are created to find out.
fn inline_of(name: &str) -> Result<u32, ControlError> {
    let device = Device::open_with(name, PathRequest::from_environment()?)?;
    let shape = InlineShape {
        send_depth: 1,
        recv_depth: 1,
        send_segments: 1,
    };
    device.alloc_pd()?.probe_inline(&shape, MOST_INLINE)
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
fn list(devices: &[Entry], fabric: Option<&str>) -> String {
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
        let _ = writeln!(out, "  firmware : {}", device.firmware);
        let _ = writeln!(
            out,
            "  ids      : vendor 0x{:04x}, part {}, GUID {}",
            device.vendor_id,
            device.part_id,
            guid(device.guid)
        );
        if let Some(limits) = &device.limits {
            let _ = writeln!(out, "  limits   : {}", limits_of(limits, entry));
        }
        let _ = writeln!(out, "  DAT      : {}", offered(entry.offer().as_ref()));
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
            let _ = writeln!(out, "    GID    : {}", chosen_gid(device.transport, port));
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

/// The limits that matter, in two lines.
fn limits_of(limits: &Limits, entry: &Entry) -> String {
    let inline = match &entry.inline {
        Some(Ok(bytes)) if *bytes >= MOST_INLINE => format!("{bytes} bytes or more"),
        Some(Ok(bytes)) => format!("up to {bytes} bytes"),
        Some(Err(error)) => format!("not found out ({error})").replace('\n', " "),
        None => "not found out".to_owned(),
    };
    let srqs = match limits.srqs {
        0 => "no shared receive queues".to_owned(),
        count => format!(
            "{} of {} of {}",
            many(count, "shared receive queue"),
            many(limits.srq_depth, "receive"),
            many(limits.srq_segments, "segment")
        ),
    };
    let windows = match limits.windows {
        0 => "no memory windows".to_owned(),
        count => many(count, "memory window"),
    };
    format!(
        "{} a queue, of {} ({} of an RDMA read), inline {inline}; {} a completion queue\n{:13}{} \
         served and {} issued at a time; {srqs}; {windows}; {}",
        many(limits.queue_depth, "request"),
        many(limits.segments, "segment"),
        limits.read_segments,
        many(limits.cq_depth, "completion"),
        "",
        many(limits.reads_served.into(), "RDMA read"),
        limits.reads_issued,
        if limits.atomics {
            "atomics"
        } else {
            "no atomics"
        },
    )
}

/// A number of things.
fn many(count: u32, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// What DAT offers, by its attributes.
fn offered(offer: Option<&LimitAttributes>) -> String {
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
            many(segments(offer.max_iov_segments_per_rdma_read), "segment")
        ),
    };
    let has = |count: i32, what: &str| match count {
        0 => format!("no {what}"),
        _ => what.to_owned(),
    };
    format!(
        "endpoints of {} requests and receives of {}; {reads}; {}, {}; EVDs of {} events",
        offer.max_dto_per_ep,
        many(segments(offer.max_iov_segments_per_dto), "segment"),
        has(offer.max_srqs, "SRQs"),
        has(offer.max_rmrs, "RMRs"),
        offer.max_evd_qlen,
    )
}

fn chosen_gid(transport: Transport, port: &PortInfo) -> String {
    if transport == Transport::Iwarp {
        return "none needed: iWARP connects by IP addresses".to_owned();
    }
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

#[cfg(test)]
mod tests {
    use super::json::document;
    use super::*;

    #[test]
    fn a_guid_is_shown_as_ibv_devinfo_does() {
        assert_eq!(guid(0x5065_8a03_0001_0203), "5065:8a03:0001:0203");
        assert_eq!(guid(1), "0000:0000:0000:0001");
    }

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
        }
    }

    fn device(transport: Transport, inline: Option<u32>) -> Entry {
        Entry {
            info: DeviceInfo {
                name: "siw0".into(),
                guid: 1,
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
        }
    }

    #[test]
    fn transport_limits_and_what_dat_offers_are_shown() {
        let text = list(&[device(Transport::Iwarp, Some(80))], None);
        for said in [
            "transport: iWARP",
            "256 requests a queue, of 6 segments (1 of an RDMA read), inline up to 80 bytes",
            "0 RDMA reads served and 0 issued",
            "no shared receive queues; no memory windows; no atomics",
            "endpoints of 255 requests and receives of 6 segments; no RDMA reads; no SRQs, no RMRs",
        ] {
            assert!(text.contains(said), "{said} in {text}");
        }
        let text = list(&[device(Transport::Other, None)], None);
        assert!(text.contains("DAT      : nothing"), "{text}");
        let text = list(&[device(Transport::Roce, Some(MOST_INLINE))], None);
        assert!(text.contains("inline 1024 bytes or more"), "{text}");
    }

    #[test]
    fn programs_are_told_the_same() {
        let devices = [
            device(Transport::Iwarp, Some(80)),
            device(Transport::Other, None),
        ];
        let value: serde_json::Value = serde_json::from_str(&document(&devices, None)).unwrap();
        let (iwarp, other) = (&value["devices"][0], &value["devices"][1]);
        assert_eq!(iwarp["transport"], "iWARP");
        assert_eq!(iwarp["limits"]["inline_bytes"], 80);
        assert_eq!(iwarp["limits"]["read_segments"], 1);
        assert_eq!(iwarp["dat"]["max_dto_per_ep"], 255);
        assert_eq!(iwarp["dat"]["max_srqs"], 0);
        assert!(other["limits"]["inline_bytes"].is_null());
        assert!(other["dat"].is_null(), "it connects nothing");
    }

    #[test]
    fn no_device_is_an_empty_list_for_programs() {
        let value: serde_json::Value = serde_json::from_str(&document(&[], None)).unwrap();
        assert_eq!(value["schema"], "dat-bench/devices/1");
        assert_eq!(value["devices"].as_array().unwrap().len(), 0);
    }
}
