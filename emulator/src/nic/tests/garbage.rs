//! Rings with random contents, and rings and regions that the application unmaps: every
//! posted WQE completes at most once, the QP enters the error state, and other QPs of the
//! NIC continue to work.

use super::fixtures::*;
use crate::nic::NicOptions;
use crate::spec::*;
use proptest::prelude::*;

/// A random WQE.
#[derive(Clone, Debug)]
struct RandomWqe {
    opcode: u8,
    flags: u8,
    immediate: u32,
    /// Segments of 16 bytes, random or partly valid.
    segments: Vec<[u8; 16]>,
    /// Offset and value of bytes that are changed afterwards, also in the control
    /// segment.
    changes: Vec<(usize, u8)>,
}

/// A segment. The valid ones pass the first checks, so that later checks are reached.
#[derive(Clone, Copy, Debug)]
enum Segment {
    Bytes([u8; 16]),
    /// Offset and length in the peer's own buffer.
    Own(u16, u16),
    /// Offset in the remote peer's buffer.
    Remote(u16),
    /// Inline data of this length.
    Inline(u32),
}

fn segment() -> impl Strategy<Value = Segment> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(Segment::Bytes),
        any::<(u16, u16)>().prop_map(|(at, length)| Segment::Own(at, length)),
        any::<u16>().prop_map(Segment::Remote),
        any::<u32>().prop_map(Segment::Inline),
        (0_u32..64).prop_map(Segment::Inline),
    ]
}

type RandomParts = (u8, u8, u32, Vec<Segment>, Vec<(usize, u8)>);

fn random_parts() -> impl Strategy<Value = RandomParts> {
    let known = proptest::sample::select(vec![
        0x00_u8, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x25,
    ]);
    (
        prop_oneof![6 => known, 1 => any::<u8>()],
        any::<u8>(),
        any::<u32>(),
        proptest::collection::vec(segment(), 0..14),
        prop_oneof![
            2 => Just(Vec::new()),
            1 => proptest::collection::vec((0_usize..96, any::<u8>()), 1..4),
        ],
    )
}

fn segment_bytes(segment: Segment, own: &Peer, peer: &Peer) -> [u8; 16] {
    let bytes = match segment {
        Segment::Bytes(bytes) => return bytes,
        Segment::Own(at, length) => own.data_segment(at.into(), length.into()),
        Segment::Remote(at) => peer.raddr_segment(at.into()),
        Segment::Inline(length) => {
            let mut bytes = (0x8000_0000 | length).to_be_bytes().to_vec();
            bytes.resize(16, 0x5a);
            bytes
        }
    };
    bytes.try_into().unwrap()
}

fn random_wqe(
    (opcode, flags, immediate, segments, changes): RandomParts,
    pair: &Pair,
) -> RandomWqe {
    let segments = segments
        .into_iter()
        .map(|segment| segment_bytes(segment, &pair.a, &pair.b))
        .collect();
    RandomWqe {
        opcode,
        flags,
        immediate,
        segments,
        changes,
    }
}

fn pair_of(service: Service, view: DoorbellView) -> Pair {
    let host = |slot| {
        Host::with_options(NicOptions {
            slot,
            view,
            ..NicOptions::default()
        })
    };
    let a = peer(host(1), |spec| spec.service = service);
    let b = peer(host(2), |spec| spec.service = service);
    let access = ALL_ACCESS | Access::REMOTE_ATOMIC;
    let mut pair = Pair::connect(
        a,
        b,
        QpAttr {
            access,
            ..attributes()
        },
    );
    for _ in 0..8 {
        let receive = pair.b.data_segment(0, 4096);
        pair.b.qp.post_receive(&[receive]);
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_wqes_complete_at_most_once_and_other_qps_continue(
        service in proptest::sample::select(vec![Service::Rc, Service::Uc, Service::Ud]),
        records in any::<bool>(),
        all in proptest::collection::vec(random_parts(), 1..5),
    ) {
        // In the `Records` view no doorbell check rejects a WQE before it is parsed.
        let view = if records { DoorbellView::Records } else { DoorbellView::Exact };
        let mut pair = pair_of(service, view);
        let mut posted = 0;
        for random_parts in all {
            let RandomWqe { opcode, flags, immediate, segments, changes } =
                random_wqe(random_parts, &pair);
            let segments: Vec<Vec<u8>> = segments.iter().map(|it| it.to_vec()).collect();
            let qp = &mut pair.a.qp;
            let counter = qp.write_wqe_with(opcode, flags, immediate, &segments);
            for (at, value) in changes {
                let ring = usize::from(qp.spec.sq_wqebb_count as u16) * 64;
                qp.sq.put((usize::from(counter) * 64 + at) % ring, &[value]);
            }
            posted += u32::from(qp.posted.wrapping_sub(counter));
            pair.a.qp.ring_doorbell(&mut pair.a.host);
            pair.run_until_idle();
        }
        pair.advance(1 << 40, 1 << 36);
        let completions = pair.a.cq.poll_all();
        prop_assert!(completions.len() as u32 <= posted, "{completions:?}");
        for cqe in &completions {
            prop_assert_eq!(cqe.qpn, pair.a.qp.qpn.0);
        }
        // After the first error all requests are flushed, and the QP is in an error state.
        if let Some(first) = completions.iter().position(|cqe| cqe.syndrome != OK) {
            let rest = &completions[first + 1..];
            prop_assert!(rest.iter().all(|cqe| cqe.syndrome == 5), "{completions:?}");
            let error_state = if service == Service::Rc { 6 } else { 5 };
            prop_assert_eq!(pair.a.state(), error_state);
        }
        // New QPs on the same NICs work.
        for peer in [&mut pair.a, &mut pair.b] {
            peer.cq.poll_all();
            peer.host.nic.destroy_qp(peer.qp.qpn).unwrap();
            let spec = peer.host.qp_spec(peer.cq.cqn);
            peer.qp = peer.host.create_qp(spec);
        }
        let (a, b) = (pair.a.qp.qpn, pair.b.qp.qpn);
        modify_to_rts(&mut pair.a.host.nic, a, b, attributes());
        modify_to_rts(&mut pair.b.host.nic, b, a, attributes());
        let receive = pair.b.data_segment(0, 64);
        pair.b.qp.post_receive(&[receive]);
        let counter = pair.a.post(SEND, SIGNALLED, &[inline_segment(b"alive")]);
        pair.run_until_idle();
        let done = statuses(&pair.a.cq.poll_all());
        prop_assert_eq!(done, [(OK, counter)]);
        prop_assert_eq!(pair.b.memory.get(0, 5), b"alive");
    }

    /// Receives with random segments: the message fails at the receiver, or is placed in
    /// registered memory.
    #[test]
    fn random_receives_complete_exactly_once(
        all in proptest::collection::vec(proptest::collection::vec(segment(), 0..4), 1..6),
    ) {
        let mut pair = Pair::new();
        let count = all.len();
        for list in all {
            let segments: Vec<Vec<u8>> = list
                .into_iter()
                .map(|segment| segment_bytes(segment, &pair.b, &pair.a).to_vec())
                .collect();
            pair.b.qp.post_receive(&segments);
            pair.a.post(SEND, SIGNALLED, &[inline_segment(b"any place")]);
        }
        pair.run_until_idle();
        pair.advance(1 << 40, 1 << 36);
        let received = pair.b.cq.poll_all();
        prop_assert_eq!(received.len(), count);
        let first = received.iter().position(|cqe| cqe.syndrome != OK);
        if let Some(first) = first {
            prop_assert!(matches!(received[first].syndrome, 1 | 4), "{received:?}");
            prop_assert!(received[first + 1..].iter().all(|cqe| cqe.syndrome == 5));
            prop_assert_eq!(pair.b.state(), 6);
        }
        prop_assert_eq!(pair.a.cq.poll_all().len(), count);
    }
}

/// A mapping that the application unmaps.
struct Mapping(u64);

impl Mapping {
    const BYTES: usize = 16384;

    fn new() -> Self {
        // SAFETY: a fresh anonymous mapping.
        let at = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), Self::BYTES, rights, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at as u64)
    }

    /// Makes the mapping inaccessible. Unlike after `munmap`, no other mapping can reuse the range.
    fn make_inaccessible(&self) {
        // SAFETY: the test's own mapping; no reference to it exists.
        let done = unsafe { libc::mprotect(self.0 as *mut _, Self::BYTES, libc::PROT_NONE) };
        assert_eq!(done, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no longer used.
        unsafe { libc::munmap(self.0 as *mut _, Self::BYTES) };
    }
}

/// Registers an inaccessible region at B. Returns its key.
fn unmapped_region(pair: &mut Pair, mapping: &Mapping) -> u32 {
    let host = &mut pair.b.host;
    let spec = MrSpec {
        context: host.context,
        pd: host.pd,
        start: mapping.0,
        length: Mapping::BYTES as u64,
        hca_va: mapping.0,
        access: ALL_ACCESS | Access::REMOTE_ATOMIC,
    };
    let key = host.nic.reg_mr(&spec).unwrap().lkey;
    mapping.make_inaccessible();
    key
}

#[test]
fn an_unmapped_region_fails_the_request_that_accesses_it() {
    if !can_recover_from_faults() {
        return;
    }
    let all = ALL_ACCESS | Access::REMOTE_ATOMIC;
    let operands = vec![0_u8; 16];
    for (opcode, syndrome) in [(WRITE, 0x13), (READ, 0x13), (0x12, 0x12), (SEND, 0x14)] {
        let mapping = Mapping::new();
        let mut pair = Pair::with_attributes(QpAttr {
            access: all,
            ..attributes()
        });
        let key = unmapped_region(&mut pair, &mapping);
        let target = raddr_segment(mapping.0, key);
        let own = pair.a.data_segment(0, 8);
        let segments = match opcode {
            SEND => {
                pair.b.qp.post_receive(&[data_segment(64, key, mapping.0)]);
                vec![own]
            }
            0x12 => vec![target, operands.clone(), own],
            _ => vec![target, own],
        };
        pair.a.post(opcode, SIGNALLED, &segments);
        pair.run_until_idle();
        assert_eq!(statuses(&pair.a.cq.poll_all()), [(syndrome, 0)]);
        assert_eq!(pair.b.state(), 6);
    }
}

#[test]
fn unmapped_send_data_is_a_protection_error() {
    if !can_recover_from_faults() {
        return;
    }
    let mapping = Mapping::new();
    let mut pair = Pair::new();
    let key = unmapped_region(&mut pair, &mapping);
    pair.b
        .post(SEND, SIGNALLED, &[data_segment(64, key, mapping.0)]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.b.cq.poll_all()), [(0x04, 0)]);
}

#[test]
fn a_qp_whose_rings_are_unmapped_enters_the_error_state() {
    if !can_recover_from_faults() {
        return;
    }
    let mapping = Mapping::new();
    let mut pair = Pair::new();
    let mut spec = pair.a.host.qp_spec(pair.a.cq.cqn);
    (spec.sq_buf, spec.sq_wqebb_count) = (mapping.0, 64);
    (spec.rq_buf, spec.rq_wqe_count) = (mapping.0 + 4096, 16);
    let records = Buffer::new(8);
    spec.dbrec = records.at();
    let qpn = pair.a.host.nic.create_qp(&spec).unwrap();
    let peer = pair.b.qp.qpn;
    modify_to_rts(&mut pair.a.host.nic, qpn, peer, attributes());
    let control = [0, 0, 0, NOP, 0, 0, 0, 0];
    let mut control = control.to_vec();
    control[4..8].copy_from_slice(&(qpn.0 << 8 | 1).to_be_bytes());
    control.extend([0, 0, 0, SIGNALLED, 0, 0, 0, 0]);
    crate::nic::memory::write(mapping.0, &control).unwrap();
    crate::nic::memory::store_be32(records.at() + 4, 1).unwrap();
    pair.a
        .host
        .store_doorbell(0x800, control[..8].try_into().unwrap());
    mapping.make_inaccessible();
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(0x02, 0)]);
    assert_eq!(pair.a.host.nic.query_qp(qpn).unwrap().state, 6);
    // Other QPs of the same NICs work.
    let counter = pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, counter)]);
}

#[test]
fn a_cq_whose_ring_is_unmapped_fails_with_its_qps() {
    if !can_recover_from_faults() {
        return;
    }
    let mapping = Mapping::new();
    let mut host = Host::new(1);
    let cq = host.create_cq(16, 64);
    let mut spec = *host.nic.cq_spec(cq.cqn).unwrap();
    spec.buf = mapping.0;
    let cqn = host.nic.create_cq(&spec).unwrap();
    let a = peer(host, |spec| spec.send_cq = cqn);
    let mut pair = Pair::connect(a, peer(Host::new(2), |_| {}), attributes());
    mapping.make_inaccessible();
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    let failed = Event::Asynchronous(AsyncEvent::CqErr, AsyncObject::Cq(0xc0));
    let fatal = Event::Asynchronous(AsyncEvent::QpFatal, AsyncObject::Qp(0xa0));
    assert_eq!(pair.a.host.events.take(), [failed, fatal]);
    assert_eq!(pair.a.state(), 6);
}
