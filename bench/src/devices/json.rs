//! The list of devices as JSON.

use dat_engine::control::GidChoice;
use dat_engine::{DataPath, DeviceInfo, PortInfo, Transport};
use serde::Serialize;

use super::listed::{ListedDevice, MAX_INLINE_TRIED, WHY_DIRECT, interface_of, rate_of};
use crate::report::document::{object, pretty};

pub(super) fn document(devices: &[ListedDevice], fabric: Option<&str>) -> String {
    let devices = devices.iter().map(|device| entry(device, fabric));
    pretty(&object! {
        schema: "dat-bench/devices/1",
        devices: devices.collect::<Vec<_>>(),
    })
}

fn entry<'a>(entry: &'a ListedDevice, fabric: Option<&'a str>) -> impl Serialize + use<'a> {
    let device = &entry.info;
    let (path, reason) = match &device.path {
        DataPath::Direct => ("direct", WHY_DIRECT),
        DataPath::Verbs { reason } => ("verbs", reason.as_str()),
        DataPath::Unusable { reason } => ("unusable", reason.as_str()),
    };
    let ports = device.ports.iter().map(|port| port_of(device, port));
    object! {
        name: &device.name,
        emulated_fabric: fabric,
        path: path,
        // Why the device gets this path.
        reason: reason,
        transport: device.transport.to_string(),
        // Where the device is in the host.
        place: &entry.place,
        firmware: &device.firmware,
        vendor_id: device.vendor_id,
        part_id: device.part_id,
        guid: device.guid.to_string(),
        limits: device.limits.as_ref().map(|limits| object! {
            queue_depth: limits.queue_depth,
            segments: limits.segments,
            read_segments: limits.read_segments,
            cq_depth: limits.cq_depth,
            // Null if no queue pair could be created.
            inline_bytes: entry.inline_bytes(),
            // The largest inline size that was tried.
            inline_bytes_tried: MAX_INLINE_TRIED,
            reads_served: limits.reads_served,
            reads_issued: limits.reads_issued,
            srqs: limits.srqs,
            srq_depth: limits.srq_depth,
            srq_segments: limits.srq_segments,
            windows: limits.windows,
            atomics: limits.atomics,
        }),
        // What DAT offers: members of `DAT_IA_ATTR` by their names. Null if the
        // device has no reliable connections.
        dat: entry.offer().map(|offer| object! {
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
        ports: ports.collect::<Vec<_>>(),
    }
}

fn port_of(device: &DeviceInfo, port: &PortInfo) -> impl Serialize + use<> {
    object! {
        number: port.number,
        state: port.state.to_string(),
        link: port.link.to_string(),
        // As sysfs has it, such as `100 Gb/sec (4X EDR)`.
        rate: rate_of(&device.name, port),
        lid: port.lid,
        active_mtu: port.active_mtu.bytes(),
        max_mtu: port.max_mtu.bytes(),
        max_message: port.max_message,
        gid: gid_of(device.transport, port).map(|choice| object! {
            index: choice.entry.index,
            gid: choice.entry.gid.to_string(),
            kind: choice.entry.kind.to_string(),
            // The network interface that the GID belongs to; InfiniBand has none.
            interface: interface_of(&device.name, port, choice.entry.index),
            reason: choice.reason,
        }),
    }
}

/// Returns the GID that connections on the port use; iWARP has none.
fn gid_of(transport: Transport, port: &PortInfo) -> Option<GidChoice> {
    match transport {
        Transport::Iwarp => None,
        _ => port.gid().ok(),
    }
}
