//! The bytes of packets on a link of InfiniBand or RoCE (IBA vol. 1, ch. 7 to 9, annexes
//! A16 and A17): how a packet would look outside of the shared memory.
//!
//! ```text
//!  InfiniBand  LRH [GRH]             │ BTH … payload, padding │ ICRC │ VCRC
//!  RoCE v1     Ethernet │ GRH        │ BTH … payload, padding │ ICRC
//!  RoCE v2     Ethernet │ IP │ UDP   │ BTH … payload, padding │ ICRC
//!                         network.rs   transport.rs             icrc.rs
//! ```
//!
//! [`encode`] and [`decode`] leave out Ethernet's header and the variant CRC (VCRC), which
//! the link adds.
//!
//! Decision: `docs/decisions/083-packets-as-on-a-link.md`

pub mod icrc;
pub mod network;
pub mod transport;

#[cfg(test)]
pub(crate) mod tests;

use self::network::Network;
use super::packet::{Header, Packet};

/// Why bytes are not a packet that the NIC takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Malformed {
    /// They are shorter than their headers.
    Short,
    /// They are longer than the largest MTU, or than their operation permits.
    Long,
    /// Their length, or the number of padding bytes, does not fit.
    Padding,
    /// The invariant CRC is wrong.
    Icrc,
    /// The version of the transport header is not 0.
    Version,
    /// The NIC does not have the operation or the service.
    Opcode,
    /// They belong to another partition.
    Partition,
}

/// Appends a packet: from its first network header to its invariant CRC.
pub fn encode(packet: &Packet, network: &Network, out: &mut Vec<u8>) {
    let len = transport::packet_len(packet);
    out.extend_from_slice(network.headers(len + icrc::LEN).bytes());
    let start = out.len();
    encode_behind(packet, network, out);
    debug_assert_eq!(out.len() - start, len + icrc::LEN);
}

/// Appends what follows the network headers: from the base transport header to the
/// invariant CRC.
pub fn encode_behind(packet: &Packet, network: &Network, out: &mut Vec<u8>) {
    let start = out.len();
    transport::encode(packet, out);
    out.extend_from_slice(&icrc::of(network, &out[start..]));
}

/// Decodes what follows the network headers: from the base transport header to the
/// invariant CRC. The payload replaces the contents of `payload`.
///
/// The fields of the header that are not on a link are empty: the ports, the LID, the
/// service level and the route, and the sending queue pair of connected services.
///
/// # Errors
/// Returns why the bytes are not a packet.
pub fn decode(network: &Network, bytes: &[u8], payload: &mut Vec<u8>) -> Result<Header, Malformed> {
    let (transport, _) = bytes
        .split_last_chunk::<{ icrc::LEN }>()
        .ok_or(Malformed::Short)?;
    if transport.len() < transport::BTH {
        return Err(Malformed::Short);
    }
    if icrc::identification(network, bytes).is_none() {
        return Err(Malformed::Icrc);
    }
    transport::decode(network, transport, payload)
}
