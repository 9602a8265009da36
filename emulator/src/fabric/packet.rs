//! Packets as values, with the fields of the InfiniBand Architecture (IBA vol.
//! 1, ch. 9). One packet carries at most the path MTU.

use super::iba::network::{GRH, Route};
use super::iba::{icrc, transport};
use crate::spec::{PortAddress, Qpn, Service, network};

/// The operation of a packet, without its position in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// SEND.
    Send = 0,
    /// RDMA WRITE.
    Write = 1,
    /// RDMA READ request.
    ReadRequest = 2,
    /// RDMA READ response.
    ReadResponse = 3,
    /// Acknowledge or NAK.
    Acknowledge = 4,
    /// Atomic request (compare and swap, or fetch and add).
    AtomicRequest = 5,
    /// Atomic response.
    AtomicResponse = 6,
    /// A message of the communication manager, to queue pair 1.
    Management = 7,
    /// A congestion notification (CNP, annex A17), to the sender of a marked packet.
    Notification = 9,
    /// A packet of another host, in the payload as it arrived: see [`OtherHosts`].
    Foreign = 8,
}

impl Operation {
    /// Returns whether it responds to a request, and goes to the requester.
    #[must_use]
    pub fn is_response(self) -> bool {
        matches!(
            self,
            Self::Acknowledge | Self::ReadResponse | Self::AtomicResponse
        )
    }
}

/// Returns the queue pair that takes management packets in the process `slot`.
/// (On a host that is queue pair 1; here the upper byte names the process.)
#[must_use]
pub fn management_qpn(slot: u8) -> Qpn {
    Qpn(u32::from(slot) << 16)
}

bitflags::bitflags! {
    /// Flags of the header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct PacketFlags: u8 {
        /// First packet of its message.
        const FIRST = 1;
        /// Last packet of its message (with FIRST: the only one).
        const LAST = 2;
        /// `immediate` is valid.
        const IMMEDIATE = 4;
        /// Solicited event.
        const SOLICITED = 8;
        /// The requester requests an ack (`AckReq`).
        const ACK_REQUEST = 16;
        /// Datagrams: the payload begins with a global route header (40 bytes).
        const GRH = 32;
        /// `immediate` is an rkey to invalidate.
        const INVALIDATE = 64;
    }
}

/// All fields of a packet except the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sending port.
    pub source: PortAddress,
    /// Receiving port.
    pub destination: PortAddress,
    /// Sending QP.
    pub source_qpn: Qpn,
    /// Receiving QP.
    pub destination_qpn: Qpn,
    /// The service of both QPs.
    pub service: Service,
    /// Operation.
    pub operation: Operation,
    /// Flags.
    pub flags: PacketFlags,
    /// LID of the sending port; 0 on an Ethernet link.
    pub source_lid: u16,
    /// Service level. On an Ethernet link, the type of the network header, which
    /// a ConnectX reports there.
    pub service_level: u8,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// Immediate data, as the application's bytes in memory order.
    pub immediate: [u8; 4],
    /// RDMA and atomics: the address at the responder.
    pub remote_address: u64,
    /// RDMA and atomics: the key at the responder. Datagrams: the queue key.
    pub key: u32,
    /// RDMA: length of the whole message, bytes.
    pub length: u32,
    /// Acknowledge: AETH syndrome (IBA 9.7.5.2.1: 0x00 ACK, 0x20 RNR NAK, 0x60 NAK | code).
    pub syndrome: u8,
    /// Acknowledge: message sequence number, 24 bits.
    pub msn: u32,
    /// Atomics: {swap or add, compare}; responses: {original, 0}.
    pub atomic: [u64; 2],
    /// Atomics: compare and swap rather than fetch and add.
    pub atomic_compare: bool,
    /// How the packet is addressed. A receiver learns the traffic class of packets of other
    /// hosts only.
    pub route: Route,
}

/// A packet in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Header.
    pub header: Header,
    /// Payload: at most the path MTU, preceded by the GRH if the packet has one.
    pub payload: Vec<u8>,
}

impl Packet {
    /// Returns a packet of another host on its way from one process to another.
    #[must_use]
    pub(crate) fn foreign(from: u8, to: u8, payload: Vec<u8>) -> Self {
        let header = Header {
            source_qpn: management_qpn(from),
            destination_qpn: management_qpn(to),
            ..Header::empty(Service::Ud, Operation::Foreign)
        };
        Self { header, payload }
    }

    /// Returns the size of the packet in octets on a link, from its local route header
    /// (on RoCE: its IP header) to the invariant CRC.
    #[must_use]
    pub fn octets(&self) -> usize {
        let header = &self.header;
        let is_ethernet = header.source_lid == 0;
        let network = match (is_ethernet, header.service_level) {
            (false, _) => 8,
            (true, network::IPV4) => 20 + 8,
            (true, network::IPV6) => 40 + 8,
            // A GRH.
            (true, _) => 40,
        };
        // The network header of Ethernet, which a datagram also has in its payload.
        let is_repeated = is_ethernet && header.flags.contains(PacketFlags::GRH);
        let repeated = if is_repeated { GRH } else { 0 };
        let payload = self.payload.len().saturating_sub(repeated);
        network + transport::len(header) + payload.next_multiple_of(4) + icrc::LEN
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The receiving port; `None` if the address is that of no port.
    pub port: Option<PortAddress>,
    /// The receiving QP.
    pub qpn: Qpn,
}

impl Destination {
    /// Returns whether it is a QP of another host.
    #[must_use]
    pub fn is_other_host(&self) -> bool {
        self.port.is_some_and(|port| port.host().is_some())
    }
}

/// The bits of the traffic class that routers mark (ECN, RFC 3168), and what they say: that
/// the sender understands marks, and that there is congestion.
const ECN: u8 = 3;
const UNDERSTANDS_ECN: u8 = 2;
const CONGESTION: u8 = 3;

impl Header {
    /// Returns the traffic class of the packet with RoCE v2. A ConnectX sends packets of
    /// connections, and the kernel's driver management packets (`MLX5_ECN_ENABLED`), as those
    /// of a sender that understands marks. The address of a datagram says all itself.
    #[must_use]
    pub fn roce_v2_class(&self) -> u8 {
        let class = self.route.traffic_class;
        match self.service == Service::Ud && self.operation != Operation::Management {
            true => class,
            false => class & !ECN | UNDERSTANDS_ECN,
        }
    }

    /// Returns whether a router has marked the packet, since there was congestion.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.route.traffic_class & ECN == CONGESTION
    }

    /// Returns the header of an operation, with all other fields empty.
    #[must_use]
    pub(crate) fn empty(service: Service, operation: Operation) -> Self {
        let nowhere = PortAddress { device: 0, port: 0 };
        Self {
            source: nowhere,
            destination: nowhere,
            source_qpn: Qpn(0),
            destination_qpn: Qpn(0),
            service,
            operation,
            flags: PacketFlags::empty(),
            source_lid: 0,
            service_level: 0,
            psn: 0,
            immediate: [0; 4],
            remote_address: 0,
            key: 0,
            length: 0,
            syndrome: 0,
            msn: 0,
            atomic: [0; 2],
            atomic_compare: false,
            route: Route::default(),
        }
    }

    /// Returns where the packet goes.
    #[must_use]
    pub fn to(&self) -> Destination {
        Destination {
            port: Some(self.destination),
            qpn: self.destination_qpn,
        }
    }
}

/// The way to and from other hosts.
pub trait OtherHosts: std::fmt::Debug + Send {
    /// Sends a packet. One that cannot be sent is lost.
    fn send(&mut self, packet: &Packet);
    /// Decodes a packet of another host. Its payload replaces the contents of `payload`.
    ///
    /// # Errors
    /// Returns why it is dropped.
    fn decode(&self, bytes: &[u8], payload: &mut Vec<u8>) -> Result<Header, Dropped>;
}

/// Why a packet of another host is dropped before the NIC sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Its invariant CRC is wrong.
    Icrc,
    /// It is no packet of RoCE v2 for a port of this host.
    Malformed,
}

/// Sends packets to the fabric. Tests implement it with a queue.
pub trait Transmit {
    /// Returns whether a packet of full MTU to this QP would be accepted. If
    /// not, the NIC keeps the work and runs again when there is room.
    fn has_room(&mut self, to: Destination) -> bool;
    /// Sends a packet. A packet to a process or port that has left is dropped, as
    /// on a wire.
    ///
    /// # Errors
    /// Returns the packet if there is no room.
    fn send(&mut self, packet: Packet) -> Result<(), Packet>;
    /// Returns whether packets to the NIC of this QP still wait until that NIC
    /// runs. A hardware NIC always runs; an emulated NIC is a thread, which may
    /// get no core for longer than an ack timeout. The transport then counts no
    /// retry.
    fn peer_is_busy(&mut self, to: Destination) -> bool {
        let _ = to;
        false
    }
    /// Returns the generation of a process on the fabric, or `None` if it has
    /// left or died. A later process in the same slot has another generation.
    fn generation_of(&mut self, slot: u8) -> Option<u32> {
        let _ = slot;
        Some(0)
    }
}
