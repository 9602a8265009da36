//! `dat-bench devices`: what is here, the path it would get, and why.

use std::fmt::Write;

use dat_api::object::ia::Offer;
use dat_engine::{
    ControlError, Device, DeviceInfo, InlineShape, Limits, PathRequest, PortInfo, Transport,
};
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
    let devices: Vec<Entry> = devices.into_iter().map(Entry::new).collect();
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
    fn offer(&self) -> Option<Offer> {
        let connects = self.info.transport != Transport::Other;
        let limits = self.info.limits.as_ref().filter(|_| connects)?;
        Some(Offer::of(limits))
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
            "{count} shared receive queues of {} receives of {} segments",
            limits.srq_depth, limits.srq_segments
        ),
    };
    let windows = match limits.windows {
        0 => "no memory windows".to_owned(),
        count => format!("{count} memory windows"),
    };
    format!(
        "{} requests a queue, of {} segments ({} of an RDMA read), inline {inline}; {} completions \
         a queue\n             {} RDMA reads served and {} issued at a time; {srqs}; {windows}; {}",
        limits.queue_depth,
        limits.segments,
        limits.read_segments,
        limits.cq_depth,
        limits.reads_served,
        limits.reads_issued,
        if limits.atomics {
            "atomics"
        } else {
            "no atomics"
        },
    )
}

/// What DAT offers, by its attributes.
fn offered(offer: Option<&Offer>) -> String {
    let Some(offer) = offer else {
        return "nothing: there are no reliable connections".to_owned();
    };
    let reads = match (
        offer.max_rdma_read_per_ep_in,
        offer.max_rdma_read_per_ep_out,
    ) {
        (0, 0) => "no RDMA reads".to_owned(),
        (served, issued) => format!(
            "{served} RDMA reads in and {issued} out, of {} segments",
            offer.max_iov_segments_per_rdma_read
        ),
    };
    let has = |count: i32, what: &str| match count {
        0 => format!("no {what}"),
        _ => what.to_owned(),
    };
    format!(
        "endpoints of {} requests and receives of {} segments; {reads}; {}, {}; EVDs of {} events",
        offer.max_dto_per_ep,
        offer.max_iov_segments_per_dto,
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
    transport: String,
    firmware: &'a str,
    vendor_id: u32,
    part_id: u32,
    guid: String,
    limits: Option<LimitsEntry>,
    /// What DAT offers: members of `DAT_IA_ATTR` by their names. Null if it can
    /// connect nothing on this device.
    dat: Option<OfferEntry>,
    ports: Vec<PortEntry>,
}

#[derive(Serialize)]
struct LimitsEntry {
    queue_depth: u32,
    segments: u32,
    read_segments: u32,
    cq_depth: u32,
    /// Null if it could not be found out.
    inline_bytes: Option<u32>,
    /// Inline sizes were looked for up to this one.
    inline_bytes_tried: u32,
    reads_served: u8,
    reads_issued: u8,
    srqs: u32,
    srq_depth: u32,
    srq_segments: u32,
    windows: u32,
    atomics: bool,
}

#[derive(Serialize)]
struct OfferEntry {
    max_eps: i32,
    max_dto_per_ep: i32,
    max_evd_qlen: i32,
    max_iov_segments_per_dto: i32,
    max_iov_segments_per_rdma_read: i32,
    max_iov_segments_per_rdma_write: i32,
    max_rdma_read_per_ep_in: i32,
    max_rdma_read_per_ep_out: i32,
    max_srqs: i32,
    max_ep_per_srq: i32,
    max_recv_per_srq: i32,
    max_rmrs: i32,
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
fn document(devices: &[Entry], fabric: Option<&str>) -> String {
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

fn entry<'a>(entry: &'a Entry, fabric: Option<&'a str>) -> DeviceEntry<'a> {
    let device = &entry.info;
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
        transport: device.transport.to_string(),
        firmware: &device.firmware,
        vendor_id: device.vendor_id,
        part_id: device.part_id,
        guid: guid(device.guid),
        limits: device.limits.as_ref().map(|limits| LimitsEntry {
            queue_depth: limits.queue_depth,
            segments: limits.segments,
            read_segments: limits.read_segments,
            cq_depth: limits.cq_depth,
            inline_bytes: entry.inline_bytes(),
            inline_bytes_tried: MOST_INLINE,
            reads_served: limits.reads_served,
            reads_issued: limits.reads_issued,
            srqs: limits.srqs,
            srq_depth: limits.srq_depth,
            srq_segments: limits.srq_segments,
            windows: limits.windows,
            atomics: limits.atomics,
        }),
        dat: entry.offer().map(|offer| OfferEntry {
            max_eps: offer.max_eps,
            max_dto_per_ep: offer.max_dto_per_ep,
            max_evd_qlen: offer.max_evd_qlen,
            max_iov_segments_per_dto: offer.max_iov_segments_per_dto,
            max_iov_segments_per_rdma_read: offer.max_iov_segments_per_rdma_read,
            max_iov_segments_per_rdma_write: offer.max_iov_segments_per_rdma_write,
            max_rdma_read_per_ep_in: offer.max_rdma_read_per_ep_in,
            max_rdma_read_per_ep_out: offer.max_rdma_read_per_ep_out,
            max_srqs: offer.max_srqs,
            max_ep_per_srq: offer.max_ep_per_srq,
            max_recv_per_srq: offer.max_recv_per_srq,
            max_rmrs: offer.max_rmrs,
        }),
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
                gid: gid_of(device.transport, port).map(|choice| GidEntry {
                    index: choice.entry.index,
                    gid: choice.entry.gid.to_string(),
                    kind: choice.entry.kind.to_string(),
                    reason: choice.reason,
                }),
            })
            .collect(),
    }
}

fn gid_of(transport: Transport, port: &PortInfo) -> Option<dat_engine::control::GidChoice> {
    match transport {
        Transport::Iwarp => None,
        _ => port.gid().ok(),
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
                    reason: "it is no mlx5 device".into(),
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
