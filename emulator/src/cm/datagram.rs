//! The packets in which managers exchange their messages: datagrams to queue pair 1.

use super::message::Message;
use super::wire::encode;
use crate::fabric::iba::network::Route;
use crate::fabric::packet::{Destination, Header, Operation, Packet, PacketFlags};
use crate::spec::{PortAddress, Qpn, Service};

/// The key of datagrams to queue pair 1 (IBA vol. 1, 10.2.5).
pub(crate) const MANAGEMENT_QKEY: u32 = 0x8001_0000;
/// The queue pair of a host's manager.
pub(crate) const MANAGEMENT_QPN: Qpn = Qpn(1);

/// Where a message of a manager comes from.
pub(crate) struct Origin {
    pub(crate) port: PortAddress,
    pub(crate) qpn: Qpn,
    /// The LID, and the service level or type of the network header.
    pub(crate) local: (u16, u8),
    pub(crate) route: Route,
}

/// Returns the packet with a message from one manager to another.
pub(crate) fn management(from: Origin, to: Destination, message: &Message) -> Packet {
    let payload = encode(message);
    let header = Header {
        source: from.port,
        destination: to.port.unwrap_or(from.port),
        source_qpn: from.qpn,
        destination_qpn: to.qpn,
        flags: PacketFlags::FIRST | PacketFlags::LAST,
        source_lid: from.local.0,
        service_level: from.local.1,
        key: MANAGEMENT_QKEY,
        length: payload.len() as u32,
        route: from.route,
        ..Header::empty(Service::Ud, Operation::Management)
    };
    Packet { header, payload }
}
