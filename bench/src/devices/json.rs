//! The list of devices as JSON.

use dat_engine::control::GidChoice;
use dat_engine::{DataPath, PortInfo, Transport};
use serde::Serialize;

use super::place::Place;
use super::{Entry, MAX_INLINE_TRIED, WHY_DIRECT, guid, interface_of, rate_of};
use crate::report::document::pretty;

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
    /// Why the device gets this path.
    reason: &'a str,
    transport: String,
    /// Where the device is in the host.
    place: &'a Place,
    firmware: &'a str,
    vendor_id: u32,
    part_id: u32,
    guid: String,
    limits: Option<LimitsEntry>,
    /// What DAT offers: members of `DAT_IA_ATTR` by their names. Null if the
    /// device has no reliable connections.
    dat: Option<OfferEntry>,
    ports: Vec<PortEntry>,
}

#[derive(Serialize)]
struct LimitsEntry {
    queue_depth: u32,
    segments: u32,
    read_segments: u32,
    cq_depth: u32,
    /// Null if no queue pair could be created.
    inline_bytes: Option<u32>,
    /// The largest inline size that was tried.
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
    /// As sysfs has it, such as `100 Gb/sec (4X EDR)`.
    rate: Option<String>,
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
    /// The network interface that the GID belongs to; InfiniBand has none.
    interface: Option<String>,
    reason: &'static str,
}

pub(super) fn document(devices: &[Entry], fabric: Option<&str>) -> String {
    let devices = devices.iter().map(|device| entry(device, fabric)).collect();
    let document = Document {
        schema: "dat-bench/devices/1",
        devices,
    };
    pretty(&document)
}

fn entry<'a>(entry: &'a Entry, fabric: Option<&'a str>) -> DeviceEntry<'a> {
    let device = &entry.info;
    let (path, reason) = match &device.path {
        DataPath::Direct => ("direct", WHY_DIRECT),
        DataPath::Verbs { reason } => ("verbs", reason.as_str()),
        DataPath::Unusable { reason } => ("unusable", reason.as_str()),
    };
    DeviceEntry {
        name: &device.name,
        emulated_fabric: fabric,
        path,
        reason,
        transport: device.transport.to_string(),
        place: &entry.place,
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
            inline_bytes_tried: MAX_INLINE_TRIED,
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
                rate: rate_of(&device.name, port),
                lid: port.lid,
                active_mtu: port.active_mtu.bytes(),
                max_mtu: port.max_mtu.bytes(),
                max_message: port.max_message,
                gid: gid_of(device.transport, port).map(|choice| GidEntry {
                    index: choice.entry.index,
                    gid: choice.entry.gid.to_string(),
                    kind: choice.entry.kind.to_string(),
                    interface: interface_of(&device.name, port, choice.entry.index),
                    reason: choice.reason,
                }),
            })
            .collect(),
    }
}

/// Returns the GID that connections on the port use; iWARP has none.
fn gid_of(transport: Transport, port: &PortInfo) -> Option<GidChoice> {
    match transport {
        Transport::Iwarp => None,
        _ => port.gid().ok(),
    }
}
