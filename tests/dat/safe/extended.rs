//! Safe types: RDMA writes with immediate data, and atomic operations.

use std::time::Duration;

use dat_api::ReturnType;
use dat_api::object::ia::IaAttributes;
use dat_api::safe::{
    Adapter, Endpoint, EndpointOptions, EventDispatcher, Memory, ProtectionZone, RemoteSegment,
};
use dat_api::types::{
    AtomicOp, CompletionFlags, DtoOperation, DtoStatus, EvdFlags, EventData, ExtendedOperation,
    MemPrivileges,
};

use super::connected;
use crate::support::{Fixture, device};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Two connected ends of one zone, and memory of both.
struct Ends {
    one: (Endpoint, EventDispatcher),
    other: (Endpoint, EventDispatcher),
    local: Memory,
    region: Memory,
    zone: ProtectionZone,
    adapter: Adapter,
    fixture: Fixture,
}

impl Ends {
    fn new() -> Self {
        let fixture = Fixture::new();
        let adapter = Adapter::open(device::name()).expect("the device is there");
        let zone = adapter.create_zone().expect("a zone");
        let made = || {
            let events = adapter
                .create_dispatcher(64, EvdFlags::DTO | EvdFlags::CONNECTION)
                .expect("a dispatcher");
            let endpoint = zone.create_endpoint(&EndpointOptions::new(&events));
            (endpoint.expect("an endpoint"), events)
        };
        let [one, other] = connected(&adapter, [made(), made()]);
        let memory = || zone.allocate(256, MemPrivileges::all()).expect("memory");
        let (local, region) = (memory(), memory());
        Self {
            one,
            other,
            local,
            region,
            zone,
            adapter,
            fixture,
        }
    }

    /// Returns the next event of an end, or that there is none.
    fn next(&self, events: &EventDispatcher) -> Option<EventData> {
        self.fixture.run();
        let next = || events.dequeue().expect("not waited on");
        device::comes(next).map(|event| event.data)
    }

    fn remote(&self, offset: usize) -> RemoteSegment {
        self.region.remote(offset..offset + 64)
    }

    /// Returns whether the adapter has an operation. The emulated one has all.
    fn has(&self, operation: fn(&IaAttributes) -> bool) -> bool {
        let has = operation(&self.adapter.query().ia);
        assert!(has || device::emulator().is_none());
        has
    }

    /// Returns the event of an extended request of the first end.
    fn of_request(&self, operation: ExtendedOperation, cookie: u64, length: u64) -> EventData {
        EventData::ExtendedDto {
            ep: self.one.0.handle(),
            cookie,
            status: DtoStatus::Success,
            length,
            operation,
            immediate: 0,
        }
    }
}

fn number(memory: &Memory, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    memory.read(offset, &mut bytes);
    u64::from_ne_bytes(bytes)
}

#[test]
fn an_rdma_write_with_immediate_data_takes_a_receive_and_leaves_its_memory() {
    let mut ends = Ends::new();
    let has = ends.has(|ia| ia.immediate_data);
    ends.local.write(0, &[9; 64]);
    for lap in 0..40u64 {
        let immediate = 0x0102_0304 + lap as u32;
        let at = lap as usize % 2 * 128;
        ends.region.write(0, &[0; 256]);
        ends.other
            .0
            .post_recv(&[ends.region.segment(64..128)], 100 + lap, NONE)
            .expect("posted");
        let remote = ends.remote(at);
        // Every other request takes the slow path.
        let flags = match lap % 4 {
            3 => CompletionFlags::SOLICITED_WAIT,
            _ => NONE,
        };
        let segments = [ends.local.segment(0..40), ends.local.segment(40..48)];
        let segments = &segments[..1 + lap as usize % 2];
        let length = [40, 48][lap as usize % 2];
        let posted = ends
            .one
            .0
            .post_rdma_write_immed(segments, lap, remote, immediate, flags);
        if !has {
            assert!(posted.is_err_and(|refusal| refusal.code().is(ReturnType::ModelNotSupported)));
            return;
        }
        posted.expect("posted");
        let done = ends.of_request(ExtendedOperation::RdmaWriteImmed, lap, length);
        assert_eq!(ends.next(&ends.one.1), Some(done));
        let received = EventData::ExtendedDto {
            ep: ends.other.0.handle(),
            cookie: 100 + lap,
            status: DtoStatus::Success,
            length,
            operation: ExtendedOperation::RecvImmed,
            immediate,
        };
        assert_eq!(ends.next(&ends.other.1), Some(received));
        let mut bytes = [1; 256];
        ends.region.read(0, &mut bytes);
        let written = length as usize;
        assert_eq!(&bytes[at..at + written], &vec![9; written][..]);
        assert_eq!(bytes[64..128], [0; 64], "the memory of the receive");
    }
}

/// A plain message after one with immediate data is a plain event again.
#[test]
fn plain_transfers_beside_extended_ones_have_plain_events() {
    let mut ends = Ends::new();
    for _ in 0..2 {
        for cookie in 0..2 {
            let buffer = ends.region.segment(64..128);
            ends.other
                .0
                .post_recv(&[buffer], cookie, NONE)
                .expect("posted");
        }
        let (remote, part) = (ends.remote(0), ends.local.segment(0..8));
        ends.one
            .0
            .post_rdma_write_immed(&[part], 10, remote, 1, NONE)
            .expect("posted");
        let part = ends.local.segment(0..8);
        ends.one.0.post_send(&[part], 11, NONE).expect("posted");
        let operations: Vec<_> = [&ends.one.1, &ends.one.1, &ends.other.1, &ends.other.1]
            .map(|events| match ends.next(events) {
                Some(EventData::Dto { operation, .. }) => Ok(operation),
                Some(EventData::ExtendedDto { operation, .. }) => Err(operation),
                other => panic!("{other:?}"),
            })
            .into();
        assert_eq!(
            operations,
            [
                Err(ExtendedOperation::RdmaWriteImmed),
                Ok(DtoOperation::Send),
                Err(ExtendedOperation::RecvImmed),
                Ok(DtoOperation::Receive),
            ]
        );
    }
}

/// The write waits for a receive as a send does: the bytes may be there before.
#[test]
fn immediate_data_wait_for_a_receive() {
    let mut ends = Ends::new();
    let (remote, part) = (ends.remote(0), ends.local.segment(0..8));
    ends.one
        .0
        .post_rdma_write_immed(&[part], 5, remote, 77, NONE)
        .expect("posted");
    ends.fixture.run();
    assert_eq!(ends.one.1.dequeue().expect("not waited on"), None);
    let buffer = ends.region.segment(64..128);
    ends.other.0.post_recv(&[buffer], 6, NONE).expect("posted");
    // The receiver has said when to try again.
    device::advance(Duration::from_millis(50));
    let done = ends.of_request(ExtendedOperation::RdmaWriteImmed, 5, 8);
    assert_eq!(ends.next(&ends.one.1), Some(done));
    let received = ends.next(&ends.other.1);
    assert!(
        matches!(
            received,
            Some(EventData::ExtendedDto {
                cookie: 6,
                immediate: 77,
                ..
            })
        ),
        "{received:?}"
    );
}

#[test]
fn atomic_operations_bring_the_bits_before_and_change_the_peer_s() {
    let mut ends = Ends::new();
    if !ends.has(|ia| ia.atomics) {
        let (remote, part) = (ends.remote(0), ends.local.segment(0..8));
        let refused = ends
            .one
            .0
            .post_atomic(AtomicOp::FetchAdd(1), part, 0, remote, NONE);
        assert!(refused.is_err_and(|refusal| refusal.code().is(ReturnType::ModelNotSupported)));
        return;
    }
    let mut expected = 0x1122_3344_5566_7788;
    ends.region.write(128, &u64::to_ne_bytes(expected));
    for lap in 0..20u64 {
        let (remote, part) = (ends.remote(128), ends.local.segment(16..24));
        let before = expected;
        let operation = match lap % 3 {
            0 => {
                expected = before.wrapping_add(u64::MAX - 3);
                let posted = ends.one.0.post_atomic(
                    AtomicOp::FetchAdd(u64::MAX - 3),
                    part,
                    lap,
                    remote,
                    NONE,
                );
                posted.expect("posted");
                ExtendedOperation::FetchAdd
            }
            equal => {
                let (compare, swap) = (before ^ (equal - 1), lap << 40);
                expected = if equal == 1 { swap } else { before };
                let posted = ends.one.0.post_atomic(
                    AtomicOp::CompareSwap { compare, swap },
                    part,
                    lap,
                    remote,
                    NONE,
                );
                posted.expect("posted");
                ExtendedOperation::CmpSwap
            }
        };
        let done = ends.of_request(operation, lap, 8);
        assert_eq!(ends.next(&ends.one.1), Some(done));
        assert_eq!(number(&ends.local, 16), before, "lap {lap}");
        assert_eq!(number(&ends.region, 128), expected, "lap {lap}");
    }
}

/// A longer segment takes the bits in its first 8 bytes; SUPPRESS leaves out the event.
#[test]
fn atomic_operations_take_longer_segments_and_completion_flags() {
    let mut ends = Ends::new();
    ends.region.write(0, &u64::to_ne_bytes(40));
    ends.local.write(0, &[1; 32]);
    for (cookie, flags) in [
        (1, CompletionFlags::SUPPRESS),
        (2, CompletionFlags::BARRIER_FENCE),
    ] {
        let (remote, part) = (ends.remote(0), ends.local.segment(0..32));
        let posted = ends
            .one
            .0
            .post_atomic(AtomicOp::FetchAdd(1), part, cookie, remote, flags);
        posted.expect("posted");
    }
    let done = ends.of_request(ExtendedOperation::FetchAdd, 2, 8);
    assert_eq!(ends.next(&ends.one.1), Some(done), "not of the first");
    assert_eq!(number(&ends.local, 0), 41);
    assert_eq!(number(&ends.local, 8), u64::from_ne_bytes([1; 8]));
    assert_eq!(number(&ends.region, 0), 42);
}

#[test]
fn short_and_unaligned_memory_of_atomic_operations_is_refused() {
    let mut ends = Ends::new();
    let mut kind_of = |local: std::ops::Range<usize>, offset| {
        let (remote, part) = (ends.remote(offset), ends.local.segment(local));
        let posted = ends.one.0.post_atomic(
            AtomicOp::CompareSwap {
                compare: 1,
                swap: 2,
            },
            part,
            0,
            remote,
            NONE,
        );
        posted.err().and_then(|refusal| refusal.code().kind())
    };
    assert_eq!(kind_of(0..7, 0), Some(ReturnType::LengthError));
    assert_eq!(kind_of(0..0, 0), Some(ReturnType::LengthError));
    for offset in 1..8 {
        let refused = kind_of(0..8, offset);
        assert_eq!(refused, Some(ReturnType::InvalidParameter), "{offset}");
    }
    assert_eq!(
        kind_of(3..11, 8),
        None,
        "the local segment need not be aligned"
    );
    let foreign = ends.adapter.create_zone().expect("a zone");
    let foreign = foreign.allocate(8, MemPrivileges::all()).expect("memory");
    let remote = ends.remote(0);
    let refused = ends.one.0.post_atomic(
        AtomicOp::FetchAdd(1),
        foreign.segment(0..8),
        0,
        remote,
        NONE,
    );
    assert!(refused.is_err_and(|refusal| refusal.code().is(ReturnType::ProtectionViolation)));
}

/// Memory that was registered without the privilege: the peer refuses, the event has the
/// operation, and the connection breaks.
#[test]
fn memory_without_the_privilege_refuses_atomic_operations() {
    let mut ends = Ends::new();
    let rights = MemPrivileges::all() - MemPrivileges::REMOTE_ATOMIC;
    let region = ends.zone.allocate(64, rights).expect("memory");
    let part = ends.local.segment(0..8);
    let posted = ends
        .one
        .0
        .post_atomic(AtomicOp::FetchAdd(1), part, 3, region.remote(0..8), NONE);
    posted.expect("posted");
    let failed = ends.next(&ends.one.1);
    assert!(
        matches!(
            failed,
            Some(EventData::ExtendedDto {
                cookie: 3,
                status: DtoStatus::RemoteAccess,
                operation: ExtendedOperation::FetchAdd,
                ..
            })
        ),
        "{failed:?}"
    );
}
