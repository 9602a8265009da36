//! What travels between NICs: a packet as the InfiniBand architecture has it
//! (IBA vol. 1, ch. 9), as a value. One packet carries at most the path MTU.

use crate::nic::spec::{PortAddress, Qpn};

/// The operation of a packet, without its place in the message.
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
}

bitflags::bitflags! {
    /// Header bits.
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
        /// The requester wants an acknowledge.
        const ACK_REQUEST = 16;
        /// Datagrams: the payload begins with a global route header (40 bytes).
        const GRH = 32;
        /// `immediate` is an rkey to invalidate.
        const INVALIDATE = 64;
    }
}

/// Everything of a packet but its payload.
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
    /// Operation.
    pub operation: Operation,
    /// Bits.
    pub flags: PacketFlags,
    /// LID of the sending port; 0 on an Ethernet link.
    pub source_lid: u16,
    /// Service level. On an Ethernet link, where there is none, what a
    /// ConnectX reports in its place: the type of the network header.
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
}

/// A packet in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Header.
    pub header: Header,
    /// Payload, at most the path MTU, and a global route header before it.
    pub payload: Vec<u8>,
}

/// Where a NIC puts its packets. Implemented by the fabric; in tests by a queue.
pub trait Transmit {
    /// Whether a packet of full MTU to that QP would be taken now. A NIC that
    /// is told `false` keeps the work and is run again when there is room.
    fn has_room(&mut self, destination: Qpn) -> bool;
    /// Takes a packet. A packet to a process or port that is gone vanishes,
    /// as on a wire.
    ///
    /// # Errors
    /// Gives the packet back when there is no room.
    fn send(&mut self, packet: Packet) -> Result<(), Packet>;
    /// Whether packets sent to that QP's NIC still wait for it to run. A NIC
    /// in silicon always runs; one that is a thread may be kept from its core
    /// for longer than any ack timeout, and that is no fault of the transport.
    fn is_unheard(&mut self, destination: Qpn) -> bool {
        let _ = destination;
        false
    }
}
