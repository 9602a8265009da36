//! The whole direct path over plain memory: the tests play the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::completion::{Completion, CompletionFlags, CompletionOp, Status};
use crate::request::{PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest};
use crate::ring::layout::{
    CompletionLayout, RecvLayout, RegisterLayout, SendLayout, SharedRecvLayout,
};
use crate::ring::send::DoorbellPolicy;
use crate::ring::testing::Memory;

/// Counts the owners that are alive.
struct Alive(
    Arc<AtomicUsize>,
    #[allow(dead_code, reason = "kept, not read")] Vec<Arc<Memory>>,
);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn owner(alive: &Arc<AtomicUsize>, memory: &[&Arc<Memory>]) -> Owner {
    alive.fetch_add(1, Ordering::Relaxed);
    Arc::new(Alive(
        Arc::clone(alive),
        memory.iter().copied().map(Arc::clone).collect(),
    ))
}

/// A completion queue, and the device that writes into it.
struct Cq {
    device: Device,
    poller: Poller,
}

struct Device {
    entries: Arc<Memory>,
    records: Arc<Memory>,
    size: u32,
    stride: usize,
    produced: u32,
}

/// What the device writes.
#[derive(Clone, Copy)]
struct Entry {
    opcode: u8,
    /// Scatter format and solicited bits.
    form: u8,
    request: u8,
    qpn: u32,
    counter: u16,
    bytes: u32,
    imm: u32,
    syndrome: u8,
    vendor: u8,
}

const ENTRY: Entry = Entry {
    opcode: 0,
    form: 0,
    request: 0,
    qpn: 0,
    counter: 0,
    bytes: 0,
    imm: 0,
    syndrome: 0,
    vendor: 0,
};

fn received(qpn: u32, counter: u16, bytes: u32) -> Entry {
    Entry {
        opcode: 2,
        qpn,
        counter,
        bytes,
        ..ENTRY
    }
}

fn done(qpn: u32, counter: u16) -> Entry {
    Entry {
        opcode: 0,
        request: 0x0a,
        qpn,
        counter,
        ..ENTRY
    }
}

impl Cq {
    fn new(size: u32, stride: u32) -> Self {
        let entries = Arc::new(Memory::new((size * stride) as usize, 0));
        for index in 1..=size {
            entries.write((index * stride) as usize - 1, &[0xf0]);
        }
        let records = Arc::new(Memory::new(64, 0));
        let page = Arc::new(Memory::new(64, 0));
        let layout = CompletionLayout {
            buf: entries.at(0),
            cqe_count: size,
            cqe_size: stride,
            dbrec: records.at(0).cast(),
            uar: page.at(0),
            cqn: 1,
        };
        let alive = Arc::default();
        let owner = owner(&alive, &[&entries, &records, &page]);
        // SAFETY: the owner keeps the memory.
        let poller = unsafe { Poller::new(&layout, owner) }.unwrap();
        let device = Device {
            entries,
            records,
            size,
            stride: stride as usize,
            produced: 0,
        };
        Self { device, poller }
    }

    fn write(&mut self, entry: Entry) {
        self.device.write(entry, &[]);
    }

    fn write_with(&mut self, entry: Entry, payload: &[u8]) {
        self.device.write(entry, payload);
    }

    fn poll(&mut self) -> Option<Completion> {
        self.poller.poll()
    }
}

impl Device {
    /// `payload` goes into the entry, as the format says.
    fn write(&mut self, entry: Entry, payload: &[u8]) {
        let at = (self.produced & (self.size - 1)) as usize * self.stride + self.stride - 64;
        let owner = u8::from(self.produced & self.size != 0);
        let mut bytes = [0u8; 64];
        bytes[36..40].copy_from_slice(&entry.imm.to_be_bytes());
        bytes[44..48].copy_from_slice(&entry.bytes.to_be_bytes());
        if entry.syndrome != 0 {
            (bytes[54], bytes[55]) = (entry.vendor, entry.syndrome);
        }
        bytes[56..60].copy_from_slice(&(entry.qpn | u32::from(entry.request) << 24).to_be_bytes());
        bytes[60..62].copy_from_slice(&entry.counter.to_be_bytes());
        bytes[63] = entry.opcode << 4 | entry.form | owner;
        if entry.form & 8 != 0 {
            self.entries.write(at - 64, payload);
        } else {
            bytes[..payload.len()].copy_from_slice(payload);
        }
        self.entries.write(at, &bytes);
        self.produced = self.produced.wrapping_add(1);
    }

    /// Entries that the poller has not given back.
    fn in_use(&self) -> u32 {
        self.produced.wrapping_sub(self.records.be32(0)) & 0xff_ffff
    }
}

/// A shared receive queue of four WQEs with three segments each.
struct Srq {
    ring: Arc<Memory>,
    alive: Arc<AtomicUsize>,
    receives: SharedReceives,
}

impl Srq {
    fn new() -> Self {
        let ring = Arc::new(Memory::new(4 * 64, 0));
        for index in 0..3u16 {
            ring.write(usize::from(index) * 64 + 2, &(index + 1).to_be_bytes());
        }
        let record = Arc::new(Memory::new(64, 0));
        let layout = SharedRecvLayout {
            buf: ring.at(0),
            stride: 64,
            head: 0,
            tail: 3,
            dbrec: record.at(0).cast(),
            srqn: 3,
        };
        let alive = Arc::default();
        let owner = owner(&alive, &[&ring, &record]);
        // SAFETY: the owner keeps the memory.
        let receives = unsafe { SharedReceives::new(&layout, owner) }.unwrap();
        Self {
            ring,
            alive,
            receives,
        }
    }

    fn post(&mut self, cookie: u64, segments: &[Segment]) -> Result<(), PostError> {
        // SAFETY: the tests keep the memory of the segments.
        unsafe { self.receives.post(&RecvRequest { cookie, segments }) }
    }
}

struct Qp {
    alive: Arc<AtomicUsize>,
    ring: Arc<Memory>,
    pair: QueuePair,
}

fn qp(qpn: u32, send: &Cq, recv: &Cq, srq: Option<&Srq>) -> Qp {
    qp_on(qpn, send.poller.mailbox(), recv.poller.mailbox(), srq)
}

/// Eight sends of one WQEBB and four receives of three segments.
fn qp_on(qpn: u32, send: &Arc<Mailbox>, recv: &Arc<Mailbox>, srq: Option<&Srq>) -> Qp {
    let ring = Arc::new(Memory::new(8 * 64 + 4 * 64, 0));
    let records = Arc::new(Memory::new(64, 0));
    let register = Arc::new(Memory::new(1024, 0));
    let alive = Arc::default();
    let parts = QueuePairParts {
        send: SendLayout {
            buf: ring.at(0),
            wqebb_count: 8,
            dbrec: records.at(4).cast(),
            register: RegisterLayout {
                reg: register.at(0),
                half_size: 256,
                exclusive: false,
            },
            qpn,
            max_requests: 8,
            max_segments: 2,
            max_inline: 0,
        },
        doorbell: DoorbellPolicy {
            blue_flame: true,
            serialised: true,
        },
        recv: srq.is_none().then(|| RecvLayout {
            buf: ring.at(8 * 64),
            wqe_count: 4,
            stride: 64,
            dbrec: records.at(0).cast(),
        }),
        shared: srq.map(|srq| srq.receives.handle()),
        send_mailbox: Arc::clone(send),
        recv_mailbox: Arc::clone(recv),
        owner: owner(&alive, &[&ring, &records, &register]),
    };
    // SAFETY: the owner keeps the memory.
    let mut pair = unsafe { QueuePair::new(parts) }.unwrap();
    pair.open_receives();
    pair.open_sends();
    Qp { alive, ring, pair }
}

impl Qp {
    fn send(&mut self, cookie: u64) -> Result<(), PostError> {
        self.send_op(cookie, SendOp::Send, &[])
    }

    fn send_op(&mut self, cookie: u64, op: SendOp, segments: &[Segment]) -> Result<(), PostError> {
        let request = SendRequest {
            cookie,
            op,
            flags: SendFlags::SIGNALED,
            segments,
        };
        // SAFETY: the tests keep the memory of the segments.
        unsafe { self.pair.post_send(&request) }
    }

    fn recv(&mut self, cookie: u64, segments: &[Segment]) -> Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.pair.post_recv(&RecvRequest { cookie, segments }) }
    }

    fn is_gone(alive: &AtomicUsize) -> bool {
        alive.load(Ordering::Relaxed) == 0
    }
}

fn good(cookie: u64, op: CompletionOp, qpn: u32) -> Completion {
    Completion {
        cookie,
        op,
        qpn,
        ..Completion::default()
    }
}

#[test]
fn sends_and_receives_come_back_with_their_cookies() {
    for stride in [64, 128] {
        let mut cq = Cq::new(16, stride);
        let mut pair = qp(0x10, &cq, &cq, None);
        pair.recv(1, &[]).unwrap();
        pair.recv(2, &[]).unwrap();
        pair.send(3).unwrap();
        assert_eq!(cq.poll(), None);
        cq.write(received(0x10, 0, 77));
        cq.write(done(0x10, 0));
        cq.write(Entry {
            form: 2,
            ..received(0x10, 0, 5)
        });
        let first = Completion {
            byte_len: 77,
            ..good(1, CompletionOp::Recv, 0x10)
        };
        assert_eq!(cq.poll(), Some(first));
        assert_eq!(cq.poll(), Some(good(3, CompletionOp::Send, 0x10)));
        let solicited = Completion {
            byte_len: 5,
            flags: CompletionFlags::SOLICITED,
            ..good(2, CompletionOp::Recv, 0x10)
        };
        assert_eq!(cq.poll(), Some(solicited));
        assert_eq!(cq.poll(), None);
        assert_eq!(cq.poller.counters(), PollerCounters::default());
    }
}

#[test]
fn every_kind_of_completion_says_what_it_was() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(7, &cq, &cq, None);
    let (remote_addr, rkey) = (1, 2);
    let sends = [
        (SendOp::Send, 0x0a, CompletionOp::Send),
        (SendOp::SendImm(1), 0x0b, CompletionOp::Send),
        (
            SendOp::Write { remote_addr, rkey },
            0x08,
            CompletionOp::Write,
        ),
        (
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm: 1,
            },
            0x09,
            CompletionOp::Write,
        ),
        (SendOp::Read { remote_addr, rkey }, 0x10, CompletionOp::Read),
    ];
    for (counter, (op, request, expected)) in sends.into_iter().enumerate() {
        pair.send_op(counter as u64, op, &[]).unwrap();
        cq.write(Entry {
            request,
            bytes: 9,
            ..done(7, counter as u16)
        });
        let byte_len = if expected == CompletionOp::Read { 9 } else { 0 };
        let expected = Completion {
            byte_len,
            ..good(counter as u64, expected, 7)
        };
        assert_eq!(cq.poll(), Some(expected));
    }
    let with_imm = |op, imm| Completion {
        imm,
        byte_len: 4,
        flags: CompletionFlags::WITH_IMM | CompletionFlags::SOLICITED,
        ..good(50, op, 7)
    };
    for (opcode, op) in [(1, CompletionOp::RecvWriteImm), (3, CompletionOp::Recv)] {
        pair.recv(50, &[]).unwrap();
        cq.write(Entry {
            opcode,
            form: 2,
            imm: 0x8000_0001,
            ..received(7, 0, 4)
        });
        assert_eq!(cq.poll(), Some(with_imm(op, 0x8000_0001)));
    }
}

#[test]
fn every_syndrome_becomes_its_status_on_both_sides() {
    let mut cq = Cq::new(4, 64);
    let mut pair = qp(7, &cq, &cq, None);
    for syndrome in 1..=255u8 {
        let counter = u16::from(syndrome - 1);
        pair.send(u64::from(syndrome)).unwrap();
        pair.recv(1000 + u64::from(syndrome), &[]).unwrap();
        let error = Entry {
            opcode: 13,
            syndrome,
            vendor: 0x5a,
            bytes: 99,
            ..done(7, counter)
        };
        cq.write(error);
        cq.write(Entry {
            opcode: 14,
            ..error
        });
        let status = crate::wire::Syndrome(syndrome).status();
        assert_ne!(status, Status::Success);
        let expected = Completion {
            status,
            vendor_syndrome: 0x5a,
            ..good(u64::from(syndrome), CompletionOp::Send, 7)
        };
        assert_eq!(cq.poll(), Some(expected));
        let expected = Completion {
            cookie: 1000 + u64::from(syndrome),
            op: CompletionOp::Recv,
            ..expected
        };
        assert_eq!(cq.poll(), Some(expected));
    }
}

#[test]
fn a_batch_stops_when_it_is_full_or_nothing_is_left() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(7, &cq, &cq, None);
    for cookie in 0..3 {
        pair.send(cookie).unwrap();
        cq.write(done(7, cookie as u16));
    }
    let mut out = [Completion::default(); 2];
    assert_eq!(cq.poller.poll_batch(&mut []), 0);
    assert_eq!(cq.poller.poll_batch(&mut out), 2);
    assert_eq!([out[0].cookie, out[1].cookie], [0, 1]);
    assert_eq!(cq.poller.poll_batch(&mut out), 1);
    assert_eq!(out[0].cookie, 2);
    assert_eq!(cq.poller.poll_batch(&mut out), 0);
}

#[test]
fn unsignalled_sends_come_back_with_the_next_that_is_reported() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(7, &cq, &cq, None);
    for cookie in 0..8 {
        pair.send(cookie).unwrap();
    }
    assert_eq!(pair.send(8), Err(PostError::QueueFull));
    cq.write(done(7, 4));
    assert_eq!(cq.poll().map(|c| c.cookie), Some(4));
    for cookie in 8..13 {
        pair.send(cookie).unwrap();
    }
    assert_eq!(pair.send(13), Err(PostError::QueueFull));
}

#[test]
fn completions_for_nobody_and_of_no_kind_are_skipped_and_counted() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(7, &cq, &cq, None);
    pair.send(1).unwrap();
    cq.write(done(8, 0));
    cq.write(received(0x00ff_ffff, 0, 1));
    cq.write(Entry {
        opcode: 12,
        ..done(7, 0)
    });
    cq.write(Entry {
        opcode: 5,
        ..done(7, 0)
    });
    cq.write(Entry {
        request: 0x3f,
        ..done(7, 0)
    });
    cq.write(done(7, 0));
    assert_eq!(cq.poll(), Some(good(1, CompletionOp::Send, 7)));
    assert_eq!(
        cq.poller.counters(),
        PollerCounters {
            unknown: 5,
            stale: 0
        }
    );
}

#[test]
fn receives_on_a_queue_pair_that_has_none_are_skipped_and_counted() {
    let mut cq = Cq::new(8, 64);
    let recv_cq = Cq::new(8, 64);
    let srq = Srq::new();
    let _pair = qp(7, &cq, &recv_cq, Some(&srq));
    cq.write(Entry {
        opcode: 9,
        ..received(7, 0, 1)
    });
    assert_eq!(cq.poll(), None);
    assert_eq!(cq.poller.counters().unknown, 1);
}

#[test]
fn queue_pairs_with_colliding_numbers_are_all_found() {
    let mut cq = Cq::new(256, 64);
    let numbers: Vec<u32> = (0..40).map(|i| i << 18 | 3).collect();
    let mut pairs: Vec<Qp> = numbers.iter().map(|&qpn| qp(qpn, &cq, &cq, None)).collect();
    for round in 0..2 {
        for (pair, &qpn) in pairs.iter_mut().zip(&numbers) {
            pair.send(u64::from(qpn)).unwrap();
            cq.write(done(qpn, round));
        }
        for &qpn in &numbers {
            assert_eq!(
                cq.poll(),
                Some(good(u64::from(qpn), CompletionOp::Send, qpn))
            );
        }
    }
    // Every other one goes; the rest are still found.
    let mut index = 0;
    pairs.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    for pair in &mut pairs {
        let qpn = pair.pair.qpn();
        pair.send(1).unwrap();
        cq.write(done(qpn, 2));
        assert_eq!(cq.poll(), Some(good(1, CompletionOp::Send, qpn)));
    }
    assert_eq!(cq.poller.counters(), PollerCounters::default());
}

#[test]
fn shared_receives_go_round() {
    let mut cq = Cq::new(8, 64);
    let mut srq = Srq::new();
    let _a = qp(1, &cq, &cq, Some(&srq));
    let _b = qp(2, &cq, &cq, Some(&srq));
    for cookie in 10..13 {
        srq.post(cookie, &[]).unwrap();
    }
    assert_eq!(srq.post(13, &[]), Err(PostError::QueueFull));
    // Out of order, and one of them an error.
    cq.write(received(2, 1, 6));
    cq.write(Entry {
        opcode: 14,
        syndrome: 1,
        ..received(1, 0, 0)
    });
    let expected = Completion {
        byte_len: 6,
        ..good(11, CompletionOp::Recv, 2)
    };
    assert_eq!(cq.poll(), Some(expected));
    let failed = Completion {
        status: Status::LocalLength,
        ..good(10, CompletionOp::Recv, 1)
    };
    assert_eq!(cq.poll(), Some(failed));
    srq.post(13, &[]).unwrap();
    srq.post(14, &[]).unwrap();
    assert_eq!(srq.post(15, &[]), Err(PostError::QueueFull));
    assert_eq!(
        srq.ring.bytes(3 * 64 + 2, 2),
        [0, 1],
        "WQE 1 came back first"
    );
    assert_eq!(srq.ring.bytes(64 + 2, 2), [0, 0], "then WQE 0");
}

#[test]
fn small_messages_are_copied_to_where_the_receive_wanted_them() {
    for (stride, form, size) in [(64, 4u8, 32usize), (128, 4, 32), (128, 8, 64)] {
        let mut cq = Cq::new(8, stride);
        let mut srq = Srq::new();
        let mut own = qp(1, &cq, &cq, None);
        let _shared = qp(2, &cq, &cq, Some(&srq));
        let target = Memory::new(256, 0xa5);
        let piece = |offset, length| Segment {
            addr: target.addr(offset),
            length,
            lkey: 1,
        };
        let payload: Vec<u8> = (1..=size as u8).collect();
        own.recv(1, &[piece(0, 5), piece(64, 100)]).unwrap();
        srq.post(2, &[piece(128, 64)]).unwrap();
        cq.write_with(
            Entry {
                form,
                ..received(1, 0, size as u32)
            },
            &payload,
        );
        cq.write_with(
            Entry {
                form,
                ..received(2, 0, size as u32 - 1)
            },
            &payload,
        );
        let expected = Completion {
            byte_len: size as u32,
            ..good(1, CompletionOp::Recv, 1)
        };
        assert_eq!(cq.poll(), Some(expected));
        assert_eq!(target.bytes(0, 6), [1, 2, 3, 4, 5, 0xa5]);
        assert_eq!(target.bytes(64, size - 5), payload[5..]);
        assert_eq!(target.bytes(64 + size - 5, 3), [0xa5; 3]);
        assert_eq!(cq.poll().map(|c| c.byte_len), Some(size as u32 - 1));
        assert_eq!(target.bytes(128, size - 1), payload[..size - 1]);
        assert_eq!(target.bytes(128 + size - 1, 2), [0xa5; 2]);
    }
}

#[test]
fn a_small_message_that_does_not_fit_is_a_length_error() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(1, &cq, &cq, None);
    let target = Memory::new(64, 0xa5);
    pair.recv(
        1,
        &[Segment {
            addr: target.addr(0),
            length: 8,
            lkey: 1,
        }],
    )
    .unwrap();
    cq.write_with(
        Entry {
            form: 4,
            ..received(1, 0, 9)
        },
        &[7; 9],
    );
    let expected = Completion {
        status: Status::LocalLength,
        ..good(1, CompletionOp::Recv, 1)
    };
    assert_eq!(cq.poll(), Some(expected));
    assert_eq!(target.bytes(8, 56), [0xa5; 56]);
}

#[test]
fn a_64_byte_payload_in_a_64_byte_entry_is_refused() {
    let mut cq = Cq::new(8, 64);
    let mut pair = qp(1, &cq, &cq, None);
    pair.recv(1, &[]).unwrap();
    pair.send(2).unwrap();
    // There is no first half: it would be the entry before.
    cq.write(done(1, 0));
    cq.write_with(
        Entry {
            form: 8,
            ..received(1, 0, 1)
        },
        &[],
    );
    assert_eq!(cq.poll().map(|c| c.cookie), Some(2));
    let expected = Completion {
        status: Status::General,
        ..good(1, CompletionOp::Recv, 1)
    };
    assert_eq!(cq.poll(), Some(expected));
}

#[test]
fn the_result_of_a_small_read_is_copied_across_the_end_of_the_ring() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(1, &cq, &cq, None);
    let target = Memory::new(64, 0xa5);
    let read = SendOp::Read {
        remote_addr: 1,
        rkey: 1,
    };
    let pieces = [
        Segment {
            addr: target.addr(1),
            length: 3,
            lkey: 1,
        },
        Segment {
            addr: target.addr(32),
            length: 30,
            lkey: 1,
        },
    ];
    for counter in 0..9u16 {
        pair.send_op(u64::from(counter), read, &pieces).unwrap();
        let entry = Entry {
            form: 4,
            request: 0x10,
            bytes: 32,
            ..done(1, counter)
        };
        let payload: Vec<u8> = (0..32).map(|i| i + counter as u8).collect();
        cq.write_with(entry, &payload);
        let expected = Completion {
            byte_len: 32,
            ..good(u64::from(counter), CompletionOp::Read, 1)
        };
        assert_eq!(cq.poll(), Some(expected));
        assert_eq!(target.bytes(1, 3), payload[..3]);
        assert_eq!(target.bytes(32, 29), payload[3..]);
    }
    pair.send(9).unwrap();
    cq.write_with(
        Entry {
            form: 4,
            ..done(1, 9)
        },
        &[1; 4],
    );
    assert_eq!(
        cq.poll().map(|c| c.status),
        Some(Status::RemoteInvalidRequest)
    );
}

#[test]
fn a_destroyed_queue_pair_leaves_nothing_for_the_next_of_its_number() {
    let mut cq = Cq::new(32, 64);
    let mut srq = Srq::new();
    let old = qp(5, &cq, &cq, Some(&srq));
    let mut other = qp(6, &cq, &cq, Some(&srq));
    for cookie in 0..3 {
        srq.post(cookie, &[]).unwrap();
    }
    other.send(60).unwrap();
    cq.write(received(5, 0, 1));
    cq.write(done(6, 0));
    cq.write(received(5, 1, 1));
    let alive = Arc::clone(&old.alive);
    drop(old);
    assert!(
        !Qp::is_gone(&alive),
        "the number stays taken until the poller has cleaned up"
    );
    // The same number again, before the queue was polled even once.
    let mut new = qp(5, &cq, &cq, Some(&srq));
    new.send(50).unwrap();
    cq.write(done(5, 0));
    cq.write(received(5, 2, 3));
    assert_eq!(cq.poll(), Some(good(60, CompletionOp::Send, 6)));
    assert!(Qp::is_gone(&alive));
    assert_eq!(cq.poll(), Some(good(50, CompletionOp::Send, 5)));
    let expected = Completion {
        byte_len: 3,
        ..good(2, CompletionOp::Recv, 5)
    };
    assert_eq!(cq.poll(), Some(expected));
    assert_eq!(cq.poll(), None);
    assert_eq!(
        cq.poller.counters(),
        PollerCounters {
            unknown: 0,
            stale: 2
        }
    );
    // All three shared receives are free again.
    for cookie in 0..3 {
        srq.post(cookie, &[]).unwrap();
    }
    assert_eq!(srq.post(3, &[]), Err(PostError::QueueFull));
}

#[test]
fn a_queue_pair_that_goes_while_nothing_arrives_is_let_go_by_an_empty_poll() {
    let (mut send_cq, mut recv_cq) = (Cq::new(8, 64), Cq::new(8, 64));
    let pair = qp(5, &send_cq, &recv_cq, None);
    let alive = Arc::clone(&pair.alive);
    drop(pair);
    assert_eq!(send_cq.poll(), None);
    assert!(!Qp::is_gone(&alive));
    recv_cq.poller.settle();
    assert!(Qp::is_gone(&alive));
}

#[test]
fn a_poller_that_goes_lets_its_queue_pairs_go() {
    let cq = Cq::new(8, 64);
    let (kept, dropped) = (qp(5, &cq, &cq, None), qp(6, &cq, &cq, None));
    let alive = [Arc::clone(&kept.alive), Arc::clone(&dropped.alive)];
    drop(dropped);
    drop(cq);
    assert!(Qp::is_gone(&alive[1]));
    drop(kept);
    assert!(Qp::is_gone(&alive[0]));
}

#[test]
fn the_memory_of_a_shared_queue_lives_as_long_as_its_users() {
    let mut cq = Cq::new(8, 64);
    let srq = Srq::new();
    let alive = Arc::clone(&srq.alive);
    let pair = qp(5, &cq, &cq, Some(&srq));
    drop(srq);
    assert!(!Qp::is_gone(&alive));
    drop(pair);
    cq.poller.settle();
    assert!(Qp::is_gone(&alive));
}

#[test]
fn a_reset_forgets_what_was_posted_and_what_was_not_polled() {
    let mut cq = Cq::new(32, 64);
    let mut pair = qp(5, &cq, &cq, None);
    for cookie in 0..8 {
        pair.send(cookie).unwrap();
    }
    for cookie in 20..24 {
        pair.recv(cookie, &[]).unwrap();
    }
    cq.write(done(5, 3));
    assert_eq!(cq.poll().map(|c| c.cookie), Some(3));
    cq.write(done(5, 7));
    cq.write(received(5, 0, 1));
    pair.pair.reset();
    assert_eq!(pair.send(0), Err(PostError::NotReady));
    assert_eq!(pair.recv(0, &[]), Err(PostError::NotReady));
    pair.pair.open_receives();
    pair.pair.open_sends();
    for cookie in 30..38 {
        pair.send(cookie).unwrap();
    }
    assert_eq!(pair.send(0), Err(PostError::QueueFull));
    assert_eq!(
        pair.ring.bytes(0, 4),
        [0, 0, 0, 0x0a],
        "from the start of the ring"
    );
    for cookie in 40..44 {
        pair.recv(cookie, &[]).unwrap();
    }
    cq.write(done(5, 0));
    cq.write(received(5, 0, 1));
    assert_eq!(cq.poll(), Some(good(30, CompletionOp::Send, 5)));
    assert_eq!(cq.poll().map(|c| c.cookie), Some(40));
    assert_eq!(cq.poll(), None);
}

#[test]
fn a_stale_completion_met_before_its_letter_gives_the_shared_receive_back() {
    let mut cq = Cq::new(8, 64);
    let mut srq = Srq::new();
    let old = qp(5, &cq, &cq, Some(&srq));
    for cookie in 0..3 {
        srq.post(cookie, &[]).unwrap();
    }
    cq.poller.settle();
    cq.write(received(5, 0, 1));
    // As if the other thread stopped between marking the record and mailing.
    old.pair.retire_without_letter();
    assert_eq!(cq.poll(), None);
    assert_eq!(
        cq.poller.counters(),
        PollerCounters {
            unknown: 0,
            stale: 1
        }
    );
    srq.post(3, &[]).unwrap();
    drop(old);
    assert_eq!(cq.poll(), None);
    assert_eq!(srq.post(4, &[]), Err(PostError::QueueFull));
}

#[test]
fn two_completion_queues_may_return_receives_of_one_shared_queue() {
    let (mut a_cq, mut b_cq) = (Cq::new(8, 64), Cq::new(8, 64));
    let mut srq = Srq::new();
    let _a = qp(1, &a_cq, &a_cq, Some(&srq));
    srq.post(10, &[]).unwrap();
    a_cq.write(received(1, 0, 1));
    assert_eq!(a_cq.poll().map(|c| c.cookie), Some(10));
    let _b = qp(2, &b_cq, &b_cq, Some(&srq));
    for round in 0..20u64 {
        srq.post(round, &[]).unwrap();
        srq.post(100 + round, &[]).unwrap();
        let at = |i: u64| ((1 + 2 * round + i) % 4) as u16;
        a_cq.write(received(1, at(0), 1));
        b_cq.write(received(2, at(1), 1));
        assert_eq!(a_cq.poll().map(|c| c.cookie), Some(round));
        assert_eq!(b_cq.poll().map(|c| c.cookie), Some(100 + round));
    }
}

/// Queue pairs come and go on one thread, which is also the device, while
/// another polls; the number is recycled at once. Every completion is reported
/// once, with its cookie and in order, or counted as stale.
#[test]
#[cfg_attr(
    miri,
    ignore = "the device of this test writes plain memory under the poller's eyes"
)]
fn numbers_are_recycled_while_another_thread_polls() {
    const QPN: u32 = 0x42;
    const ROUNDS: u64 = 20_000;
    let Cq {
        mut device,
        mut poller,
    } = Cq::new(64, 64);
    let mailbox = Arc::clone(poller.mailbox());
    let stop = AtomicUsize::new(0);
    let (reported, written) = std::thread::scope(|scope| {
        let reported = scope.spawn(|| {
            let mut reported = Vec::new();
            loop {
                let last = stop.load(Ordering::Acquire) != 0;
                match poller.poll() {
                    Some(completion) => reported.push(completion),
                    None if last => break,
                    None => std::hint::spin_loop(),
                }
            }
            (reported, poller.counters())
        });
        let mut written = 0;
        for round in 0..ROUNDS {
            while device.in_use() > 60 {
                std::thread::yield_now();
            }
            let mut pair = qp_on(QPN, &mailbox, &mailbox, None);
            let sends = round % 4;
            for send in 0..sends {
                pair.send(round << 8 | send).unwrap();
                device.write(done(QPN, send as u16), &[]);
                written += 1;
            }
            if round % 5 == 0 {
                pair.pair.reset();
                pair.pair.open_sends();
                pair.send(round << 8 | 0xff).unwrap();
                device.write(done(QPN, 0), &[]);
                written += 1;
            }
        }
        stop.store(1, Ordering::Release);
        (reported.join().unwrap(), written)
    });
    let (reported, counters) = reported;
    assert_eq!(counters.unknown, 0);
    assert_eq!(reported.len() as u64 + counters.stale, written);
    assert!(
        reported
            .iter()
            .all(|c| c.status.is_success() && c.qpn == QPN)
    );
    assert!(
        reported.is_sorted_by(|a, b| a.cookie < b.cookie),
        "each once, in order"
    );
}
