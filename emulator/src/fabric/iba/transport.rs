//! The transport headers and the payload (IBA vol. 1, ch. 9).

use super::Malformed;
use super::network::{GRH, Network};
use crate::fabric::packet::{Header, Operation, Packet, PacketFlags};
use crate::spec::{Qpn, Service};

/// Size of the base transport header in bytes.
pub const BTH: usize = 12;
/// The largest payload in bytes.
const MAX_PAYLOAD: usize = 4096;
/// The partition of all ports: the default one, with full membership.
const PARTITION: u16 = 0xffff;
/// The bit of the partition key that stands for full membership.
const MEMBER: u16 = 1 << 15;
/// The queue pair that takes management datagrams, and their size in bytes.
const MANAGEMENT: Qpn = Qpn(1);
const MANAGEMENT_LEN: usize = 256;
/// The bits of a queue pair number or a sequence number.
const NUMBER: u32 = 0xff_ffff;

/// A congestion notification (annex A17.9.3), which belongs to no service, and the bit behind
/// the partition key that it has. 16 reserved bytes follow the header.
const NOTIFICATION: u8 = 0x81;
const BECN: u32 = 1 << 30;

// Bits of the base transport header.
const SOLICITED: u8 = 1 << 7;
/// The path is the one that both sides have migrated to, or never left.
const MIGRATED: u8 = 1 << 6;
const ACK_REQUEST: u8 = 1 << 7;
const VERSION: u8 = 0xf;

/// The services and the upper bits of their operations (IBA table 38).
const SERVICES: [(Service, u8); 3] = [
    (Service::Rc, 0x00),
    (Service::Uc, 0x20),
    (Service::Ud, 0x60),
];

/// The lower bits of an operation, and the flags that they stand for.
const OPERATIONS: [(u8, Operation, PacketFlags); 23] = {
    use Operation as O;
    const NONE: PacketFlags = PacketFlags::empty();
    const FIRST: PacketFlags = PacketFlags::FIRST;
    const LAST: PacketFlags = PacketFlags::LAST;
    const ONLY: PacketFlags = FIRST.union(LAST);
    const IMMEDIATE: PacketFlags = PacketFlags::IMMEDIATE;
    const INVALIDATE: PacketFlags = PacketFlags::INVALIDATE;
    [
        (0x00, O::Send, FIRST),
        (0x01, O::Send, NONE),
        (0x02, O::Send, LAST),
        (0x03, O::Send, LAST.union(IMMEDIATE)),
        (0x04, O::Send, ONLY),
        (0x05, O::Send, ONLY.union(IMMEDIATE)),
        (0x06, O::Write, FIRST),
        (0x07, O::Write, NONE),
        (0x08, O::Write, LAST),
        (0x09, O::Write, LAST.union(IMMEDIATE)),
        (0x0a, O::Write, ONLY),
        (0x0b, O::Write, ONLY.union(IMMEDIATE)),
        (0x0c, O::ReadRequest, ONLY),
        (0x0d, O::ReadResponse, FIRST),
        (0x0e, O::ReadResponse, NONE),
        (0x0f, O::ReadResponse, LAST),
        (0x10, O::ReadResponse, ONLY),
        (0x11, O::Acknowledge, NONE),
        (0x12, O::AtomicResponse, NONE),
        (COMPARE_SWAP, O::AtomicRequest, ONLY),
        (FETCH_ADD, O::AtomicRequest, ONLY),
        (0x16, O::Send, LAST.union(INVALIDATE)),
        (0x17, O::Send, ONLY.union(INVALIDATE)),
    ]
};
const WRITE_ONLY_IMMEDIATE: u8 = 0x0b;
const COMPARE_SWAP: u8 = 0x13;
const FETCH_ADD: u8 = 0x14;
const INVALIDATES: u8 = 0x16;

/// The flags that are in the operation.
const POSITION: PacketFlags = PacketFlags::FIRST
    .union(PacketFlags::LAST)
    .union(PacketFlags::IMMEDIATE)
    .union(PacketFlags::INVALIDATE);

/// Returns the operation of a packet as a number. The NIC makes no packet without one.
fn opcode(header: &Header) -> u8 {
    let operation = match header.operation {
        Operation::Notification => return NOTIFICATION,
        Operation::Management => Operation::Send,
        operation => operation,
    };
    let flags = header.flags & POSITION;
    let find = |&&(_, it, position): &&_| (it, position) == (operation, flags);
    let low = match (operation, header.atomic_compare) {
        (Operation::AtomicRequest, true) => COMPARE_SWAP,
        (Operation::AtomicRequest, false) => FETCH_ADD,
        _ => OPERATIONS.iter().find(find).map_or(0x1f, |&(low, ..)| low),
    };
    let service = SERVICES.iter().find(|(it, _)| *it == header.service);
    service.map_or(0, |(_, high)| *high) | low
}

/// Which extended headers a packet has, in their order.
struct Extended {
    /// Datagram (DETH).
    datagram: bool,
    /// RDMA (RETH).
    rdma: bool,
    /// Atomic request (AtomicETH).
    atomic: bool,
    /// Acknowledge (AETH).
    acknowledge: bool,
    /// Atomic response (AtomicAckETH).
    original: bool,
    /// Immediate data (ImmDt), or the key to invalidate (IETH).
    immediate: bool,
    /// 16 reserved bytes.
    reserved: bool,
}

impl Extended {
    fn of(header: &Header) -> Self {
        let (operation, flags) = (header.operation, header.flags);
        let is_end = flags.intersects(PacketFlags::FIRST | PacketFlags::LAST);
        Self {
            datagram: header.service == Service::Ud,
            rdma: match operation {
                Operation::Write => flags.contains(PacketFlags::FIRST),
                operation => operation == Operation::ReadRequest,
            },
            atomic: operation == Operation::AtomicRequest,
            acknowledge: match operation {
                Operation::ReadResponse => is_end,
                operation => operation.is_response(),
            },
            original: operation == Operation::AtomicResponse,
            immediate: flags.intersects(PacketFlags::IMMEDIATE | PacketFlags::INVALIDATE),
            reserved: operation == Operation::Notification,
        }
    }
}

/// Returns the size of the transport headers of a packet in bytes.
#[must_use]
pub fn len(header: &Header) -> usize {
    let it = Extended::of(header);
    let parts = [
        (it.datagram, 8),
        (it.rdma, 16),
        (it.atomic, 28),
        (it.acknowledge, 4),
        (it.original, 8),
        (it.immediate, 4),
        (it.reserved, 16),
    ];
    let present = parts.iter().filter(|(is_present, _)| *is_present);
    BTH + present.map(|(_, len)| len).sum::<usize>()
}

/// Returns the payload without the network header.
fn data(packet: &Packet) -> &[u8] {
    let has_header = packet.header.flags.contains(PacketFlags::GRH);
    let skip = if has_header { GRH } else { 0 };
    packet.payload.get(skip..).unwrap_or_default()
}

/// Returns the size of the transport headers, the payload and its padding in bytes.
pub(super) fn packet_len(packet: &Packet) -> usize {
    len(&packet.header) + data(packet).len().next_multiple_of(4)
}

/// Appends the transport headers, the payload and its padding.
pub(super) fn encode(packet: &Packet, out: &mut Vec<u8>) {
    let (header, data) = (&packet.header, data(packet));
    let extended = Extended::of(header);
    let padding = data.len().next_multiple_of(4) - data.len();
    let bit = |flag, bit: u8| if header.flags.contains(flag) { bit } else { 0 };
    let [source, destination] = match header.operation {
        Operation::Management => [MANAGEMENT; 2],
        _ => [header.source_qpn, header.destination_qpn],
    };
    out.push(opcode(header));
    let (migrated, becn) = match extended.reserved {
        true => (0, BECN),
        false => (MIGRATED, 0),
    };
    out.push(bit(PacketFlags::SOLICITED, SOLICITED) | migrated | (padding as u8) << 4);
    out.extend(PARTITION.to_be_bytes());
    out.extend((becn | destination.0).to_be_bytes());
    let ack_request = bit(PacketFlags::ACK_REQUEST, ACK_REQUEST);
    out.extend((u32::from(ack_request) << 24 | header.psn).to_be_bytes());
    if extended.datagram {
        out.extend(header.key.to_be_bytes());
        out.extend(source.0.to_be_bytes());
    }
    if extended.rdma || extended.atomic {
        out.extend(header.remote_address.to_be_bytes());
        out.extend(header.key.to_be_bytes());
    }
    if extended.rdma {
        out.extend(header.length.to_be_bytes());
    }
    if extended.atomic {
        out.extend(header.atomic.iter().flat_map(|it| it.to_be_bytes()));
    }
    if extended.acknowledge {
        out.extend((u32::from(header.syndrome) << 24 | header.msn).to_be_bytes());
    }
    if extended.original {
        out.extend(header.atomic[0].to_be_bytes());
    }
    if extended.immediate {
        out.extend(header.immediate);
    }
    if extended.reserved {
        out.extend([0; 16]);
    }
    out.extend(data);
    out.resize(out.len() + padding, 0);
}

/// Decodes the transport headers. The payload, behind the network header if it is a
/// datagram for a program, replaces the contents of `payload`.
pub(super) fn decode(
    network: &Network,
    bytes: &[u8],
    payload: &mut Vec<u8>,
) -> Result<Header, Malformed> {
    let mut from = Reader(bytes);
    let [code, bits, partition @ ..] = from.take::<4>()?;
    let (destination, word) = (from.u32()?, from.u32()?);
    if bits & VERSION != 0 {
        return Err(Malformed::Version);
    }
    if u16::from_be_bytes(partition) | MEMBER != PARTITION {
        return Err(Malformed::Partition);
    }
    let mut header = start(code, Qpn(destination & NUMBER)).ok_or(Malformed::Opcode)?;
    let mut set = |flag, is_set: bool| header.flags.set(flag, is_set);
    set(PacketFlags::SOLICITED, bits & SOLICITED != 0);
    set(
        PacketFlags::ACK_REQUEST,
        word >> 24 & u32::from(ACK_REQUEST) != 0,
    );
    header.psn = word & NUMBER;
    let extended = Extended::of(&header);
    if extended.datagram {
        header.key = from.u32()?;
        header.source_qpn = Qpn(from.u32()? & NUMBER);
    }
    if extended.rdma || extended.atomic {
        header.remote_address = from.u64()?;
        header.key = from.u32()?;
    }
    if extended.rdma {
        header.length = from.u32()?;
    }
    if extended.atomic {
        header.length = 8;
        header.atomic = [from.u64()?, from.u64()?];
    }
    if extended.acknowledge {
        let word = from.u32()?;
        (header.syndrome, header.msn) = ((word >> 24) as u8, word & NUMBER);
    }
    if extended.original {
        header.atomic[0] = from.u64()?;
    }
    if extended.immediate {
        header.immediate = from.take()?;
    }
    if extended.reserved {
        from.take::<16>()?;
    }
    let padding = usize::from(bits >> 4 & 3);
    let data = from.0.len().checked_sub(padding).map(|len| &from.0[..len]);
    let data = data.ok_or(Malformed::Padding)?;
    let limit = match header.operation {
        Operation::Send | Operation::Write | Operation::ReadResponse => MAX_PAYLOAD,
        Operation::Management => MANAGEMENT_LEN,
        _ => 0,
    };
    if !bytes.len().is_multiple_of(4) {
        return Err(Malformed::Padding);
    }
    if data.len() > limit {
        return Err(Malformed::Long);
    }
    payload.clear();
    if extended.datagram && header.operation != Operation::Management {
        let network = network.in_payload(bytes.len() + super::icrc::LEN);
        header.flags.set(PacketFlags::GRH, network.is_some());
        payload.extend(network.iter().flatten());
    }
    payload.extend(data);
    Ok(header)
}

/// Returns the header of an operation, with all other fields empty.
fn start(code: u8, destination_qpn: Qpn) -> Option<Header> {
    if code == NOTIFICATION {
        return Some(Header {
            destination_qpn,
            ..Header::empty(Service::Rc, Operation::Notification)
        });
    }
    let (low, high) = (code & 0x1f, code & 0xe0);
    let &(service, _) = SERVICES.iter().find(|(_, it)| *it == high)?;
    let &(_, operation, flags) = OPERATIONS.iter().find(|(it, ..)| *it == low)?;
    let is_whole = flags.contains(PacketFlags::FIRST | PacketFlags::LAST);
    let is_known = match service {
        Service::Rc => true,
        Service::Uc => low <= WRITE_ONLY_IMMEDIATE,
        Service::Ud => operation == Operation::Send && is_whole && low < INVALIDATES,
    };
    let is_management = service == Service::Ud && destination_qpn == MANAGEMENT;
    let operation = if is_management {
        Operation::Management
    } else {
        operation
    };
    is_known.then_some(Header {
        destination_qpn,
        flags,
        atomic_compare: low == COMPARE_SWAP,
        ..Header::empty(service, operation)
    })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }
}
