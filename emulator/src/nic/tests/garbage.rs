//! Rings full of nonsense: every posted WQE is accounted for at most once, the
//! queue pair ends in error, and the NIC goes on serving others.

use super::rig::*;
use crate::nic::NicOptions;
use crate::nic::spec::*;
use proptest::prelude::*;

/// What a WQE is made of before bytes of it are changed.
#[derive(Clone, Debug)]
struct Nonsense {
    opcode: u8,
    flags: u8,
    immediate: u32,
    /// Segments of 16 bytes: anything, or what makes a little sense.
    segments: Vec<[u8; 16]>,
    /// {place, value} of bytes that are changed afterwards, the control
    /// segment's included.
    changes: Vec<(usize, u8)>,
}

/// Segments that pass some checks, so that later ones are met too.
#[derive(Clone, Copy, Debug)]
enum Segment {
    Bytes([u8; 16]),
    /// Of the end's own memory: {offset, length}.
    Own(u16, u16),
    /// Of the peer's.
    Remote(u16),
    /// Inline data of that length.
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

type Parts = (u8, u8, u32, Vec<Segment>, Vec<(usize, u8)>);

fn parts() -> impl Strategy<Value = Parts> {
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

fn bytes_of(segment: Segment, own: &End, peer: &End) -> [u8; 16] {
    let bytes = match segment {
        Segment::Bytes(bytes) => return bytes,
        Segment::Own(at, length) => own.segment(at.into(), length.into()),
        Segment::Remote(at) => peer.remote(at.into()),
        Segment::Inline(length) => {
            let mut bytes = (0x8000_0000 | length).to_be_bytes().to_vec();
            bytes.resize(16, 0x5a);
            bytes
        }
    };
    bytes.try_into().unwrap()
}

fn nonsense((opcode, flags, immediate, segments, changes): Parts, world: &World) -> Nonsense {
    let segments = segments
        .into_iter()
        .map(|segment| bytes_of(segment, &world.a, &world.b))
        .collect();
    Nonsense {
        opcode,
        flags,
        immediate,
        segments,
        changes,
    }
}

fn world_of(service: Service, view: DoorbellView) -> World {
    let host = |slot| {
        Host::with(NicOptions {
            slot,
            view,
            ..NicOptions::default()
        })
    };
    let a = end(host(1), |spec| spec.service = service);
    let b = end(host(2), |spec| spec.service = service);
    let access = ALL_ACCESS | Access::REMOTE_ATOMIC;
    let mut world = World::of(
        a,
        b,
        QpAttr {
            access,
            ..attributes()
        },
    );
    for _ in 0..8 {
        let receive = world.b.segment(0, 4096);
        world.b.qp.post_receive(&[receive]);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_is_posted_is_completed_at_most_once_and_others_go_on(
        service in proptest::sample::select(vec![Service::Rc, Service::Uc, Service::Ud]),
        records in any::<bool>(),
        all in proptest::collection::vec(parts(), 1..5),
    ) {
        // By records, so that a doorbell that disagrees does not save the NIC.
        let view = if records { DoorbellView::Records } else { DoorbellView::Exact };
        let mut world = world_of(service, view);
        let mut posted = 0;
        for parts in all {
            let Nonsense { opcode, flags, immediate, segments, changes } =
                nonsense(parts, &world);
            let segments: Vec<Vec<u8>> = segments.iter().map(|it| it.to_vec()).collect();
            let qp = &mut world.a.qp;
            let counter = qp.write_with(opcode, flags, immediate, &segments);
            for (at, value) in changes {
                let ring = usize::from(qp.spec.sq_wqebb_count as u16) * 64;
                qp.sq.put((usize::from(counter) * 64 + at) % ring, &[value]);
            }
            posted += u32::from(qp.posted.wrapping_sub(counter));
            world.a.qp.ring(&mut world.a.host);
            world.run();
        }
        world.pass(1 << 40, 1 << 36);
        let completions = world.a.cq.all();
        prop_assert!(completions.len() as u32 <= posted, "{completions:?}");
        for cqe in &completions {
            prop_assert_eq!(cqe.qpn, world.a.qp.qpn.0);
        }
        // Once there was an error, the rest is flushed, and the QP is down.
        if let Some(first) = completions.iter().position(|cqe| cqe.syndrome != OK) {
            let rest = &completions[first + 1..];
            prop_assert!(rest.iter().all(|cqe| cqe.syndrome == 5), "{completions:?}");
            let down = if service == Service::Rc { 6 } else { 5 };
            prop_assert_eq!(world.a.state(), down);
        }
        // A new pair on the same NICs works.
        for end in [&mut world.a, &mut world.b] {
            end.cq.all();
            end.host.nic.destroy_qp(end.qp.qpn).unwrap();
            let spec = end.host.qp_spec(end.cq.cqn);
            end.qp = end.host.qp(spec);
        }
        let (a, b) = (world.a.qp.qpn, world.b.qp.qpn);
        bring_up(&mut world.a.host.nic, a, b, attributes());
        bring_up(&mut world.b.host.nic, b, a, attributes());
        let receive = world.b.segment(0, 64);
        world.b.qp.post_receive(&[receive]);
        let counter = world.a.post(SEND, SIGNALLED, &[inline(b"alive")]);
        world.run();
        let done = outcome(&world.a.cq.all());
        prop_assert_eq!(done, [(OK, counter)]);
        prop_assert_eq!(world.b.memory.get(0, 5), b"alive");
    }

    /// Receives that point anywhere: the message fails at the receiver, or is
    /// placed in what is registered.
    #[test]
    fn whatever_is_posted_to_receive_is_completed_once(
        all in proptest::collection::vec(proptest::collection::vec(segment(), 0..4), 1..6),
    ) {
        let mut world = World::new();
        let count = all.len();
        for list in all {
            let segments: Vec<Vec<u8>> = list
                .into_iter()
                .map(|segment| bytes_of(segment, &world.b, &world.a).to_vec())
                .collect();
            world.b.qp.post_receive(&segments);
            world.a.post(SEND, SIGNALLED, &[inline(b"to nowhere")]);
        }
        world.run();
        world.pass(1 << 40, 1 << 36);
        let received = world.b.cq.all();
        prop_assert_eq!(received.len(), count);
        let first = received.iter().position(|cqe| cqe.syndrome != OK);
        if let Some(first) = first {
            prop_assert!(matches!(received[first].syndrome, 1 | 4), "{received:?}");
            prop_assert!(received[first + 1..].iter().all(|cqe| cqe.syndrome == 5));
            prop_assert_eq!(world.b.state(), 6);
        }
        prop_assert_eq!(world.a.cq.all().len(), count);
    }
}

/// A mapping that a wrong program takes away.
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

    /// Nothing else comes to lie there, as after unmapping it might.
    fn take_away(&self) {
        // SAFETY: the test's own mapping, of which it holds no reference.
        let done = unsafe { libc::mprotect(self.0 as *mut _, Self::BYTES, libc::PROT_NONE) };
        assert_eq!(done, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, used no more.
        unsafe { libc::munmap(self.0 as *mut _, Self::BYTES) };
    }
}

/// Whether accesses can fail here; says so if not.
fn accesses_can_fail() -> bool {
    crate::guard::install();
    let can = crate::guard::is_installed();
    if !can {
        eprintln!("SKIPPED: memory that is gone ends the process on this processor");
    }
    can
}

/// A region of B that is gone, by its key.
fn vanished(world: &mut World, mapping: &Mapping) -> u32 {
    let host = &mut world.b.host;
    let spec = MrSpec {
        context: host.context,
        pd: host.pd,
        start: mapping.0,
        length: Mapping::BYTES as u64,
        hca_va: mapping.0,
        access: ALL_ACCESS | Access::REMOTE_ATOMIC,
    };
    let key = host.nic.reg_mr(&spec).unwrap().lkey;
    mapping.take_away();
    key
}

#[test]
fn memory_that_is_gone_fails_the_request_that_wants_it() {
    if !accesses_can_fail() {
        return;
    }
    let all = ALL_ACCESS | Access::REMOTE_ATOMIC;
    let operands = vec![0_u8; 16];
    for (opcode, syndrome) in [(WRITE, 0x13), (READ, 0x13), (0x12, 0x12), (SEND, 0x14)] {
        let mapping = Mapping::new();
        let mut world = World::with(QpAttr {
            access: all,
            ..attributes()
        });
        let key = vanished(&mut world, &mapping);
        let there = remote(mapping.0, key);
        let own = world.a.segment(0, 8);
        let segments = match opcode {
            SEND => {
                world.b.qp.post_receive(&[pointer(64, key, mapping.0)]);
                vec![own]
            }
            0x12 => vec![there, operands.clone(), own],
            _ => vec![there, own],
        };
        world.a.post(opcode, SIGNALLED, &segments);
        world.run();
        assert_eq!(outcome(&world.a.cq.all()), [(syndrome, 0)]);
        assert_eq!(world.b.state(), 6);
    }
}

#[test]
fn data_to_send_that_are_gone_are_a_protection_error() {
    if !accesses_can_fail() {
        return;
    }
    let mapping = Mapping::new();
    let mut world = World::new();
    let key = vanished(&mut world, &mapping);
    world
        .b
        .post(SEND, SIGNALLED, &[pointer(64, key, mapping.0)]);
    world.run();
    assert_eq!(outcome(&world.b.cq.all()), [(0x04, 0)]);
}

#[test]
fn a_queue_pair_whose_rings_are_gone_ends_in_error() {
    if !accesses_can_fail() {
        return;
    }
    let mapping = Mapping::new();
    let mut world = World::new();
    let mut spec = world.a.host.qp_spec(world.a.cq.cqn);
    (spec.sq_buf, spec.sq_wqebb_count) = (mapping.0, 64);
    (spec.rq_buf, spec.rq_wqe_count) = (mapping.0 + 4096, 16);
    let records = Buffer::new(8);
    spec.dbrec = records.at();
    let qpn = world.a.host.nic.create_qp(&spec).unwrap();
    let peer = world.b.qp.qpn;
    bring_up(&mut world.a.host.nic, qpn, peer, attributes());
    let control = [0, 0, 0, NOP, 0, 0, 0, 0];
    let mut control = control.to_vec();
    control[4..8].copy_from_slice(&(qpn.0 << 8 | 1).to_be_bytes());
    control.extend([0, 0, 0, SIGNALLED, 0, 0, 0, 0]);
    crate::nic::memory::write(mapping.0, &control).unwrap();
    crate::nic::memory::store_be32(records.at() + 4, 1).unwrap();
    world.a.host.store(0x800, control[..8].try_into().unwrap());
    mapping.take_away();
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(0x02, 0)]);
    assert_eq!(world.a.host.nic.query_qp(qpn).unwrap().state, 6);
    // The other pair of the same NICs is as it was.
    let counter = world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(OK, counter)]);
}

#[test]
fn a_completion_queue_whose_ring_is_gone_fails_with_its_queue_pairs() {
    if !accesses_can_fail() {
        return;
    }
    let mapping = Mapping::new();
    let mut host = Host::new(1);
    let cq = host.cq(16, 64);
    let mut spec = *host.nic.cq_spec(cq.cqn).unwrap();
    spec.buf = mapping.0;
    let cqn = host.nic.create_cq(&spec).unwrap();
    let a = end(host, |spec| spec.send_cq = cqn);
    let mut world = World::of(a, end(Host::new(2), |_| {}), attributes());
    mapping.take_away();
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    let failed = Event::Asynchronous(AsyncEvent::CqErr, AsyncObject::Cq(0xc0));
    let fatal = Event::Asynchronous(AsyncEvent::QpFatal, AsyncObject::Qp(0xa0));
    assert_eq!(world.a.host.events.take(), [failed, fatal]);
    assert_eq!(world.a.state(), 6);
}
