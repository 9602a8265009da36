//! Both ends of a connection, with the driver's part played by hand.

use super::wire::Wire;
use crate::nic::spec::*;
use crate::nic::{Nanos, Nic, NicOptions};
use std::sync::{Arc, Mutex};

pub(super) const ALL_ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);
pub(super) const SIGNALLED: u8 = 0x08;
pub(super) const SOLICITED: u8 = 0x02;
pub(super) const FENCE: u8 = 0x80;
pub(super) const NOP: u8 = 0x00;
pub(super) const WRITE: u8 = 0x08;
pub(super) const WRITE_IMM: u8 = 0x09;
pub(super) const SEND: u8 = 0x0a;
pub(super) const SEND_IMM: u8 = 0x0b;
pub(super) const READ: u8 = 0x10;
pub(super) const OK: u8 = 0;

/// Memory that the NIC shares with the test.
pub(super) struct Buffer(Box<[u64]>);

impl Buffer {
    pub(super) fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8)].into_boxed_slice())
    }

    pub(super) fn at(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub(super) fn put(&mut self, offset: usize, bytes: &[u8]) {
        crate::nic::memory::write(self.0.as_mut_ptr() as u64 + offset as u64, bytes).unwrap();
    }

    pub(super) fn get(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        crate::nic::memory::read(self.at() + offset as u64, &mut bytes).unwrap();
        bytes
    }

    pub(super) fn put_be32(&mut self, offset: usize, value: u32) {
        self.put(offset, &value.to_be_bytes());
    }

    pub(super) fn be32(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.get(offset, 4).try_into().unwrap())
    }
}

/// An event as the test sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Completion(Cqn),
    Asynchronous(AsyncEvent, AsyncObject),
}

#[derive(Clone, Default)]
pub(super) struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl EventSink for Events {
    fn completion(&self, _: ChannelId, cq: Cqn, _: u64) {
        self.0.lock().unwrap().push(Event::Completion(cq));
    }

    fn asynchronous(&self, _: ContextId, event: AsyncEvent, object: AsyncObject) {
        self.0
            .lock()
            .unwrap()
            .push(Event::Asynchronous(event, object));
    }
}

/// A process with its NIC.
pub(super) struct Host {
    pub(super) nic: Nic,
    pub(super) events: Events,
    pub(super) context: ContextId,
    pub(super) pd: PdId,
}

impl Host {
    pub(super) fn new(slot: u8) -> Self {
        Self::with(NicOptions {
            slot,
            ..NicOptions::default()
        })
    }

    pub(super) fn with(options: NicOptions) -> Self {
        let events = Events::default();
        let mut nic = Nic::new(options, Box::new(events.clone()));
        let context = nic.open_context(0).unwrap();
        let pd = nic.alloc_pd(context).unwrap();
        Self {
            nic,
            events,
            context,
            pd,
        }
    }

    pub(super) fn uar(&self) -> UarPage {
        UarPage {
            context: self.context,
            page: 1,
        }
    }

    pub(super) fn register(&self) -> Register {
        Register {
            page: self.uar(),
            offset: 0x800,
        }
    }

    pub(super) fn key(&mut self, buffer: &Buffer, bytes: u64, access: Access) -> u32 {
        let spec = MrSpec {
            context: self.context,
            pd: self.pd,
            start: buffer.at(),
            length: bytes,
            hca_va: buffer.at(),
            access,
        };
        self.nic.reg_mr(&spec).unwrap().lkey
    }

    pub(super) fn cq(&mut self, cqe_count: u32, cqe_size: u32) -> TestCq {
        let ring = TestCq::empty_ring(cqe_count, cqe_size);
        let dbrec = Buffer::new(8);
        let spec = CqSpec {
            context: self.context,
            buf: ring.at(),
            dbrec: dbrec.at(),
            cqe_count,
            cqe_size,
            channel: Some(ChannelId(1)),
            user_handle: 0xc0,
            uar: self.uar(),
            ignore_overrun: false,
        };
        let cqn = self.nic.create_cq(&spec).unwrap();
        TestCq {
            cqn,
            ring,
            dbrec,
            count: cqe_count,
            size: cqe_size,
            consumer: 0,
        }
    }

    pub(super) fn qp_spec(&self, cq: Cqn) -> QpSpec {
        QpSpec {
            context: self.context,
            pd: self.pd,
            service: Service::Rc,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            rq_buf: 0,
            rq_wqe_count: 16,
            rq_stride_log2: 6,
            sq_buf: 0,
            sq_wqebb_count: 64,
            dbrec: 0,
            register: self.register(),
            user_index: 0x77,
            cqe_version: 1,
            scatter_responses: false,
            scatter_to_cqe: false,
            wq_signature: false,
            user_handle: 0xa0,
        }
    }

    /// A QP whose rings the rig allocates.
    pub(super) fn qp(&mut self, mut spec: QpSpec) -> TestQp {
        let sq = Buffer::new(spec.sq_wqebb_count as usize * 64);
        let rq = Buffer::new((spec.rq_wqe_count as usize) << spec.rq_stride_log2);
        let dbrec = Buffer::new(8);
        spec.sq_buf = sq.at();
        spec.rq_buf = rq.at();
        spec.dbrec = dbrec.at();
        let qpn = self.nic.create_qp(&spec).unwrap();
        TestQp {
            qpn,
            spec,
            sq,
            rq,
            dbrec,
            posted: 0,
            received: 0,
            last: 0,
        }
    }

    pub(super) fn store(&mut self, offset: u16, bytes: [u8; 8]) {
        let page = self.uar();
        self.nic.doorbell(&UarWrite {
            page,
            offset,
            bytes,
        });
    }
}

/// A completion as a program reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) opcode: u8,
    /// 0 when good.
    pub(super) syndrome: u8,
    pub(super) wqe_opcode: u8,
    pub(super) qpn: u32,
    pub(super) resource: u32,
    pub(super) counter: u16,
    pub(super) bytes: u32,
    pub(super) immediate: [u8; 4],
    pub(super) solicited: bool,
    pub(super) format: u8,
    pub(super) raw: Vec<u8>,
}

pub(super) struct TestCq {
    pub(super) cqn: Cqn,
    ring: Buffer,
    pub(super) dbrec: Buffer,
    count: u32,
    size: u32,
    pub(super) consumer: u32,
}

impl TestCq {
    /// The next completion; its place is given back.
    pub(super) fn poll(&mut self) -> Option<Completion> {
        let completion = self.peek()?;
        self.consumer += 1;
        self.dbrec.put_be32(0, self.consumer & 0xff_ffff);
        Some(completion)
    }

    pub(super) fn peek(&self) -> Option<Completion> {
        let raw = self.entry(self.consumer)?;
        let cqe = &raw[raw.len() - 64..];
        let op_own = cqe[63];
        let be32 = |at: usize| u32::from_be_bytes(cqe[at..at + 4].try_into().unwrap());
        let failed = op_own >> 4 >= 13;
        Some(Completion {
            opcode: op_own >> 4,
            syndrome: if failed { cqe[55] } else { 0 },
            wqe_opcode: cqe[56],
            qpn: be32(56) & 0xff_ffff,
            resource: be32(32),
            counter: u16::from_be_bytes([cqe[60], cqe[61]]),
            bytes: be32(44),
            immediate: cqe[36..40].try_into().unwrap(),
            solicited: op_own & 2 != 0,
            format: op_own >> 2 & 3,
            raw,
        })
    }

    pub(super) fn all(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    /// Moves to another ring as libmlx5 does: the command, then everything in
    /// front of the end of the old ring goes to the next higher index of the
    /// new one.
    pub(super) fn resize(&mut self, host: &mut Host, count: u32) -> Result<()> {
        let mut ring = Self::empty_ring(count, self.size);
        let to = CqBuffer {
            buf: ring.at(),
            cqe_count: count,
            cqe_size: self.size,
        };
        host.nic.resize_cq(self.cqn, &to)?;
        let mut index = self.consumer;
        loop {
            let old = self.entry(index).expect("the end of the ring comes first");
            let op_own = old[old.len() - 1];
            index += 1;
            if op_own >> 4 == 5 {
                break;
            }
            let mut moved = old;
            let owner = u8::from(index & count != 0);
            *moved.last_mut().unwrap() = op_own & !1 | owner;
            ring.put(((index & (count - 1)) * self.size) as usize, &moved);
        }
        self.consumer += 1;
        self.ring = ring;
        self.count = count;
        Ok(())
    }

    fn empty_ring(count: u32, size: u32) -> Buffer {
        let mut ring = Buffer::new((count * size) as usize);
        for index in 0..count {
            ring.put((index * size + size - 1) as usize, &[0xf0]);
        }
        ring
    }

    /// The bytes at a consumer counter, if they are software's.
    fn entry(&self, counter: u32) -> Option<Vec<u8>> {
        let index = counter & (self.count - 1);
        let raw = self
            .ring
            .get((index * self.size) as usize, self.size as usize);
        let op_own = raw[raw.len() - 1];
        let is_mine = (op_own & 1 != 0) == (counter & self.count != 0);
        (op_own >> 4 != 15 && is_mine).then_some(raw)
    }

    /// Arms as libmlx5 does: the record, then the page.
    pub(super) fn arm(&mut self, host: &mut Host, sequence: u32, solicited: bool) {
        let word = sequence << 28 | u32::from(solicited) << 24 | self.consumer & 0xff_ffff;
        self.dbrec.put_be32(4, word);
        let doorbell = u64::from(word) << 32 | u64::from(self.cqn.0);
        host.store(0x20, doorbell.to_be_bytes());
    }
}

/// {syndrome, counter} of each completion.
pub(super) fn outcome(completions: &[Completion]) -> Vec<(u8, u16)> {
    completions
        .iter()
        .map(|cqe| (cqe.syndrome, cqe.counter))
        .collect()
}

pub(super) fn pointer(length: u32, key: u32, address: u64) -> Vec<u8> {
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(key.to_be_bytes());
    bytes.extend(address.to_be_bytes());
    bytes
}

pub(super) fn inline(data: &[u8]) -> Vec<u8> {
    let mut bytes = (0x8000_0000 | data.len() as u32).to_be_bytes().to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(16), 0xdd);
    bytes
}

pub(super) fn remote(address: u64, key: u32) -> Vec<u8> {
    let mut bytes = address.to_be_bytes().to_vec();
    bytes.extend(key.to_be_bytes());
    bytes.extend([0; 4]);
    bytes
}

pub(super) struct TestQp {
    pub(super) qpn: Qpn,
    pub(super) spec: QpSpec,
    pub(super) sq: Buffer,
    pub(super) rq: Buffer,
    pub(super) dbrec: Buffer,
    /// WQEBBs posted.
    pub(super) posted: u16,
    /// Receives posted.
    pub(super) received: u16,
    last: u16,
}

impl TestQp {
    /// Writes a send WQE without telling anyone; answers its counter.
    pub(super) fn write(&mut self, opcode: u8, flags: u8, segments: &[Vec<u8>]) -> u16 {
        self.write_with(opcode, flags, 0xcafe_babe, segments)
    }

    /// As [`TestQp::write`], with the last word of the control segment.
    pub(super) fn write_with(
        &mut self,
        opcode: u8,
        flags: u8,
        immediate: u32,
        segments: &[Vec<u8>],
    ) -> u16 {
        let body = segments.concat();
        let ds = 1 + body.len().div_ceil(16);
        let counter = self.posted;
        let mut wqe = (u32::from(counter) << 8 | u32::from(opcode))
            .to_be_bytes()
            .to_vec();
        wqe.extend((self.qpn.0 << 8 | ds as u32).to_be_bytes());
        wqe.extend([0, 0, 0, flags]);
        wqe.extend(immediate.to_be_bytes());
        wqe.extend(body);
        let ring = self.spec.sq_wqebb_count as usize * 64;
        for (n, byte) in wqe.iter().enumerate() {
            self.sq
                .put((usize::from(counter) * 64 + n) % ring, &[*byte]);
        }
        self.last = counter;
        self.posted = counter.wrapping_add(ds.div_ceil(4) as u16);
        counter
    }

    /// Rings for what was written.
    pub(super) fn ring(&mut self, host: &mut Host) {
        self.dbrec.put_be32(4, u32::from(self.posted));
        let slot = u32::from(self.last) & (self.spec.sq_wqebb_count - 1);
        let bytes = self.sq.get(slot as usize * 64, 8);
        host.store(0x800, bytes.try_into().unwrap());
    }

    pub(super) fn post(
        &mut self,
        host: &mut Host,
        opcode: u8,
        flags: u8,
        segments: &[Vec<u8>],
    ) -> u16 {
        let counter = self.write(opcode, flags, segments);
        self.ring(host);
        counter
    }

    pub(super) fn post_receive(&mut self, segments: &[Vec<u8>]) {
        let stride = 1 << self.spec.rq_stride_log2;
        let mut wqe = segments.concat();
        if wqe.len() < stride {
            wqe.extend(pointer(0, 0x100, 0));
        }
        let slot = usize::from(self.received) & (self.spec.rq_wqe_count as usize - 1);
        self.rq.put(slot * stride, &wqe);
        self.received = self.received.wrapping_add(1);
        self.dbrec.put_be32(0, u32::from(self.received));
    }
}

/// Attributes of a connection; tests change what they are about.
pub(super) fn attributes() -> QpAttr {
    QpAttr {
        path_mtu: 3,
        rq_psn: 0xff_fffe,
        sq_psn: 0xff_fffe,
        access: ALL_ACCESS,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        port: 1,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        path: Path {
            dlid: 1,
            port: 1,
            ..Path::default()
        },
        ..QpAttr::default()
    }
}

pub(super) const INIT_MASK: u32 = 1 | 1 << 3 | 1 << 4 | 1 << 5;
pub(super) const RTR_MASK: u32 = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
pub(super) const RTS_MASK: u32 = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16;

pub(super) fn set_state(nic: &mut Nic, qpn: Qpn, state: u8) {
    nic.modify_qp(
        qpn,
        &QpAttr {
            mask: 1,
            state,
            ..QpAttr::default()
        },
    )
    .unwrap();
}

/// What a modify to INIT, RTR and RTS carries.
fn masks(service: Service) -> [u32; 3] {
    const SQ_PSN: u32 = 1 << 16;
    match service {
        Service::Rc => [INIT_MASK, RTR_MASK, RTS_MASK],
        Service::Uc => [INIT_MASK, RTR_MASK & !(1 << 15 | 1 << 17), 1 | SQ_PSN],
        Service::Ud => [INIT_MASK & !(1 << 3) | 1 << 6, 1, 1 | SQ_PSN],
    }
}

/// RESET to RTS towards `peer`.
pub(super) fn bring_up(nic: &mut Nic, qpn: Qpn, peer: Qpn, attr: QpAttr) {
    let attr = QpAttr {
        dest_qpn: peer.0,
        ..attr
    };
    let service = nic.qp_spec(qpn).unwrap().service;
    for (mask, state) in masks(service).into_iter().zip(1..) {
        nic.modify_qp(
            qpn,
            &QpAttr {
                mask,
                state,
                ..attr
            },
        )
        .unwrap();
    }
}

/// One end: a host, a CQ, a QP and a registered buffer.
pub(super) struct End {
    pub(super) host: Host,
    pub(super) cq: TestCq,
    pub(super) qp: TestQp,
    pub(super) memory: Buffer,
    pub(super) key: u32,
}

pub(super) const MEMORY: usize = 1 << 16;

/// Two connected ends, each its own NIC.
pub(super) struct World {
    pub(super) a: End,
    pub(super) b: End,
    pub(super) wire: Wire,
    pub(super) now: Nanos,
}

pub(super) fn end(mut host: Host, tune: impl FnOnce(&mut QpSpec)) -> End {
    let cq = host.cq(64, 64);
    let mut spec = host.qp_spec(cq.cqn);
    tune(&mut spec);
    let qp = host.qp(spec);
    let memory = Buffer::new(MEMORY);
    let key = host.key(&memory, MEMORY as u64, ALL_ACCESS);
    End {
        host,
        cq,
        qp,
        memory,
        key,
    }
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(attributes())
    }

    pub(super) fn with(attr: QpAttr) -> Self {
        Self::of(end(Host::new(1), |_| {}), end(Host::new(2), |_| {}), attr)
    }

    pub(super) fn of(mut a: End, mut b: End, attr: QpAttr) -> Self {
        bring_up(&mut a.host.nic, a.qp.qpn, b.qp.qpn, attr);
        bring_up(&mut b.host.nic, b.qp.qpn, a.qp.qpn, attr);
        Self {
            a,
            b,
            wire: Wire::new(),
            now: 1_000,
        }
    }

    /// One round of each NIC, and what it sent delivered.
    fn round(&mut self) -> bool {
        let mut worked = false;
        for end in [&mut self.a, &mut self.b] {
            worked |= end.host.nic.work(self.now, &mut self.wire, 64).worked;
        }
        while let Some(packet) = self.wire.next() {
            worked = true;
            let to_a = packet.header.destination_qpn.0 >> 16 == self.a.qp.qpn.0 >> 16;
            let end = if to_a { &mut self.a } else { &mut self.b };
            end.host.nic.receive(packet, &mut self.wire);
        }
        worked
    }

    /// Until nothing moves without the time moving.
    pub(super) fn run(&mut self) {
        for _ in 0..10_000 {
            if !self.round() {
                return;
            }
        }
        panic!("the NICs do not come to rest");
    }

    /// Lets time pass in steps, so that every timer in between acts.
    pub(super) fn pass(&mut self, total: Nanos, step: Nanos) {
        let end = self.now + total;
        while self.now < end {
            self.now = (self.now + step).min(end);
            self.run();
        }
    }

    pub(super) fn assert_no_violations(&self) {
        for host in [&self.a.host, &self.b.host] {
            let texts: Vec<_> = host.nic.violations().recent().collect();
            assert!(texts.is_empty(), "{texts:?}");
        }
    }
}

impl End {
    /// A segment of this end's memory.
    pub(super) fn segment(&self, offset: usize, length: u32) -> Vec<u8> {
        pointer(length, self.key, self.memory.at() + offset as u64)
    }

    /// Where the other end writes to or reads from.
    pub(super) fn remote(&self, offset: usize) -> Vec<u8> {
        remote(self.memory.at() + offset as u64, self.key)
    }

    pub(super) fn post(&mut self, opcode: u8, flags: u8, segments: &[Vec<u8>]) -> u16 {
        self.qp.post(&mut self.host, opcode, flags, segments)
    }

    pub(super) fn fill(&mut self, offset: usize, length: usize, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..length)
            .map(|n| (n as u8).wrapping_mul(31) ^ seed)
            .collect();
        self.memory.put(offset, &bytes);
        bytes
    }

    pub(super) fn state(&self) -> u8 {
        self.host.nic.query_qp(self.qp.qpn).unwrap().state
    }
}
