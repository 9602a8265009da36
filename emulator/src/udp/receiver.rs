//! Decoding the packets of other hosts, in the process that they are for.

use super::PREFIX;
use crate::fabric::hosts::Hosts;
use crate::fabric::iba::network::{GRH, Global, Network};
use crate::fabric::iba::{self, Malformed};
use crate::fabric::interfaces::Interface;
use crate::fabric::packet::{Dropped, Header, Operation};
use crate::spec::gid::ip_of_gid;
use crate::spec::{PortAddress, network};

/// Decodes a packet as the gateway passes it on: an IP header in the room of a GRH, the source
/// port, and the packet from its base transport header. The payload replaces `payload`.
pub(super) fn decode(
    bytes: &[u8],
    hosts: &Hosts,
    interfaces: &[Interface],
    payload: &mut Vec<u8>,
) -> Result<Header, Dropped> {
    let short = Dropped::Malformed;
    let (prefix, bytes) = bytes.split_at_checked(PREFIX).ok_or(short)?;
    let (ip, port) = prefix.split_first_chunk::<GRH>().ok_or(short)?;
    let global = Global::decode(ip);
    let to = ip_of_gid(&global.destination);
    let device = interfaces.iter().position(|it| it.addresses.contains(&to));
    let device = device.ok_or(Dropped::Malformed)?;
    let network = Network::RoceV2 {
        global,
        source_port: u16::from_be_bytes([port[0], port[1]]),
    };
    let mut header = iba::decode(&network, bytes, payload).map_err(|cause| match cause {
        Malformed::Icrc => Dropped::Icrc,
        _ => Dropped::Malformed,
    })?;
    header.route.traffic_class = global.traffic_class;
    header.destination = PortAddress {
        device: device as u8,
        port: 1,
    };
    let from = ip_of_gid(&global.source);
    let known = match header.operation {
        // It may be a request of a host that this one will answer.
        Operation::Management => hosts.admit(from),
        // Of a host that this process has not addressed, only datagrams are taken.
        _ => hosts.find(from),
    };
    header.source = known.unwrap_or(PortAddress::UNKNOWN);
    header.service_level = network::of_ip(to);
    Ok(header)
}
