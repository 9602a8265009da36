//! The encoding of packets in shared memory. Both ends run on one host with one
//! version of this crate (which the segment's version ensures), so the byte
//! order is native. Decoding validates every field, since every process of the
//! user can write to the memory.

use super::iba::network::Route;
use super::packet::{Header, Operation, Packet, PacketFlags};
use crate::spec::{PortAddress, Qpn, Service};

/// Maximum payload of a packet in bytes: the largest path MTU and a GRH, and the headers of
/// a packet of another host.
pub(super) const MAX_PAYLOAD: usize = 4096 + 40 + 64;
/// Size of the header in bytes.
pub(super) const HEADER_BYTES: usize = 80;

/// The generations of the two slots between which a packet travels. A packet
/// for an earlier generation is not delivered to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generations {
    pub(super) source: u32,
    pub(super) destination: u32,
}

/// Encodes a packet's header: the record without the payload.
pub(super) fn encode(
    header: &Header,
    payload_len: usize,
    generations: Generations,
) -> [u8; HEADER_BYTES] {
    debug_assert!(payload_len <= MAX_PAYLOAD);
    let mut bytes = [0; HEADER_BYTES];
    let mut out = Writer {
        bytes: &mut bytes,
        at: 0,
    };
    out.u32((HEADER_BYTES + payload_len) as u32);
    out.u32(generations.source);
    out.u32(generations.destination);
    let (from, to) = (header.source, header.destination);
    out.put([from.device, from.port, to.device, to.port]);
    out.u32(header.source_qpn.0);
    out.u32(header.destination_qpn.0);
    let operation = header.operation as u8;
    let compare = u8::from(header.atomic_compare);
    out.put([operation, header.flags.bits(), header.syndrome, compare]);
    out.u32(header.psn);
    out.put(header.immediate);
    out.u32(header.key);
    out.u32(header.length);
    out.u32(header.msn);
    out.put(header.source_lid.to_ne_bytes());
    out.put([header.service_level, header.service as u8]);
    out.u32(0);
    out.u64(header.remote_address);
    out.u64(header.atomic[0]);
    out.u64(header.atomic[1]);
    debug_assert_eq!(out.at, HEADER_BYTES);
    bytes
}

/// Returns the length of a record from its first word, or `None` if it is invalid.
pub(super) fn record_len(first_word: u32) -> Option<usize> {
    let len = first_word as usize;
    (HEADER_BYTES..=HEADER_BYTES + MAX_PAYLOAD)
        .contains(&len)
        .then_some(len)
}

/// Decodes a header. Returns `None` if a field is invalid.
pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<(Header, Generations)> {
    let mut from = Reader { bytes, at: 0 };
    let _len = from.u32();
    let generations = Generations {
        source: from.u32(),
        destination: from.u32(),
    };
    let [source_device, source_port, device, port] = from.take();
    let source_qpn = Qpn(from.u32());
    let destination_qpn = Qpn(from.u32());
    let [operation, flags, syndrome, compare] = from.take();
    let (psn, immediate, key) = (from.u32(), from.take(), from.u32());
    let (length, msn) = (from.u32(), from.u32());
    let source_lid = u16::from_ne_bytes(from.take());
    let [service_level, service] = from.take();
    let reserved = from.u32();
    let header = Header {
        source: PortAddress {
            device: source_device,
            port: source_port,
        },
        destination: PortAddress { device, port },
        source_qpn,
        destination_qpn,
        service: service_of(service)?,
        operation: operation_of(operation)?,
        flags: PacketFlags::from_bits(flags)?,
        source_lid,
        service_level,
        psn,
        immediate,
        remote_address: from.u64(),
        key,
        length,
        syndrome,
        msn,
        atomic: [from.u64(), from.u64()],
        atomic_compare: compare == 1,
        route: Route::default(),
    };
    let numbers = [header.source_qpn.0, header.destination_qpn.0, psn, msn];
    let valid = compare <= 1 && reserved == 0 && numbers.iter().all(|&n| n < 1 << 24);
    valid.then_some((header, generations))
}

fn service_of(code: u8) -> Option<Service> {
    let known = [Service::Rc, Service::Uc, Service::Ud];
    known.into_iter().find(|&service| service as u8 == code)
}

fn operation_of(code: u8) -> Option<Operation> {
    use Operation as O;
    let known = [
        O::Send,
        O::Write,
        O::ReadRequest,
        O::ReadResponse,
        O::Acknowledge,
        O::AtomicRequest,
        O::AtomicResponse,
        O::Management,
        O::Foreign,
    ];
    known.into_iter().find(|&operation| operation as u8 == code)
}

/// Returns whether a packet can be encoded. The NIC creates no others.
pub(super) fn fits(packet: &Packet) -> bool {
    packet.payload.len() <= MAX_PAYLOAD
}

struct Writer<'a> {
    bytes: &'a mut [u8; HEADER_BYTES],
    at: usize,
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, value: [u8; N]) {
        self.bytes[self.at..self.at + N].copy_from_slice(&value);
        self.at += N;
    }

    fn u32(&mut self, value: u32) {
        self.put(value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(value.to_ne_bytes());
    }
}

struct Reader<'a> {
    bytes: &'a [u8; HEADER_BYTES],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        value
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ports() -> impl Strategy<Value = PortAddress> {
        any::<(u8, u8)>().prop_map(|(device, port)| PortAddress { device, port })
    }

    pub(crate) fn headers() -> impl Strategy<Value = Header> {
        let number = || 0_u32..1 << 24;
        let names = (ports(), ports(), number(), number());
        let kind = (
            0_u8..7,
            0_u8..128,
            any::<u8>(),
            any::<bool>(),
            (any::<(u16, u8)>(), 0_u8..3),
        );
        let fields = (number(), number(), any::<[u8; 4]>(), any::<(u32, u32)>());
        (names, kind, fields, any::<(u64, [u64; 2])>()).prop_map(
            |((source, destination, from, to), kind, (psn, msn, immediate, pair), wide)| Header {
                source,
                destination,
                source_qpn: Qpn(from),
                destination_qpn: Qpn(to),
                service: service_of(kind.4.1).unwrap(),
                operation: operation_of(kind.0).unwrap(),
                flags: PacketFlags::from_bits(kind.1).unwrap(),
                source_lid: kind.4.0.0,
                service_level: kind.4.0.1,
                psn,
                immediate,
                remote_address: wide.0,
                key: pair.0,
                length: pair.1,
                syndrome: kind.2,
                msn,
                atomic: wide.1,
                atomic_compare: kind.3,
                route: Route::default(),
            },
        )
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(header in headers(), len in 0..=MAX_PAYLOAD, from: u32, to: u32) {
            let generations = Generations { source: from, destination: to };
            let bytes = encode(&header, len, generations);
            prop_assert_eq!(decode(&bytes), Some((header, generations)));
            let first = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
            prop_assert_eq!(record_len(first), Some(HEADER_BYTES + len));
        }

        #[test]
        fn what_decodes_from_any_bytes_encodes_to_the_same_bytes(bytes: [u8; HEADER_BYTES]) {
            if let Some((header, generations)) = decode(&bytes) {
                let again = encode(&header, 0, generations);
                prop_assert_eq!(&again[4..], &bytes[4..]);
            }
        }
    }

    #[test]
    fn an_invalid_record_length_is_refused() {
        for len in [0, 1, 79, 81 + MAX_PAYLOAD as u32, u32::MAX] {
            assert_eq!(record_len(len), None);
        }
    }
}
