//! The whole direct path over plain memory: the tests simulate the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::completion::{Completion, CompletionFlags, CompletionOp, Status};
use crate::path::Arrival;
use crate::request::{PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest};
use crate::testing::Memory;
use mlx5_rings::PostReceives;
use mlx5_rings::layout::{
    CompletionLayout, RecvLayout, RegisterLayout, SendLayout, SharedRecvLayout,
};
use mlx5_rings::send::DoorbellPolicy;

/// Counts the owners that have not been dropped.
struct Alive(
    Arc<AtomicUsize>,
    #[allow(dead_code, reason = "keeps the memory alive")] Vec<Arc<Memory>>,
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

/// A completion queue, and the simulated device that writes its CQEs.
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

/// The fields of a CQE that the device writes.
#[derive(Clone, Copy)]
struct Entry {
    opcode: u8,
    /// The scatter format and the solicited bit.
    form: u8,
    request: u8,
    qpn: u32,
    counter: u16,
    bytes: u32,
    imm: u32,
    syndrome: u8,
    vendor: u8,
    stamp: u64,
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
    stamp: 0,
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
    /// Writes the next CQE; `payload` is placed in it as the scatter format says.
    fn write(&mut self, entry: Entry, payload: &[u8]) {
        let at = (self.produced & (self.size - 1)) as usize * self.stride + self.stride - 64;
        let owner = u8::from(self.produced & self.size != 0);
        let mut bytes = [0u8; 64];
        bytes[36..40].copy_from_slice(&entry.imm.to_be_bytes());
        bytes[44..48].copy_from_slice(&entry.bytes.to_be_bytes());
        bytes[48..56].copy_from_slice(&entry.stamp.to_be_bytes());
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

    /// Returns the number of CQEs that the poller has not released.
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

    fn post(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        // SAFETY: the tests keep the memory of the segments alive.
        unsafe {
            self.receives
                .producer
                .post(&RecvRequest { wr_id, segments })
        }
    }
}

struct Qp {
    alive: Arc<AtomicUsize>,
    ring: Arc<Memory>,
    pair: QueuePair,
}

fn qp(qpn: u32, send: &Cq, recv: &Cq, srq: Option<&Srq>) -> Qp {
    qp_on(qpn, send.poller.commands(), recv.poller.commands(), srq)
}

/// Creates a queue pair with eight sends of one WQEBB and four receives of three
/// segments.
fn qp_on(
    qpn: u32,
    send: &Arc<CqCommandQueue>,
    recv: &Arc<CqCommandQueue>,
    srq: Option<&Srq>,
) -> Qp {
    let ring = Arc::new(Memory::new(8 * 64 + 4 * 64, 0));
    let records = Arc::new(Memory::new(64, 0));
    let register = Arc::new(Memory::new(1024, 0));
    let alive = Arc::default();
    let mut doorbell = RegisterLayout::new(register.at(0));
    doorbell.half_size = 256;
    let mut layout = SendLayout::new(ring.at(0), 8, records.at(4).cast(), doorbell, qpn);
    layout.max_segments = 2;
    layout.atomics = true;
    let parts = QueuePairParts {
        send: layout,
        doorbell: DoorbellPolicy {
            blue_flame: true,
            locked: true,
        },
        recv: srq.is_none().then(|| RecvLayout {
            buf: ring.at(8 * 64),
            wqe_count: 4,
            stride: 64,
            dbrec: records.at(0).cast(),
        }),
        shared: srq.map(|srq| srq.receives.handle()),
        context: context(qpn),
        send_commands: Arc::clone(send),
        recv_commands: Arc::clone(recv),
        owner: owner(&alive, &[&ring, &records, &register]),
    };
    // SAFETY: the owner keeps the memory.
    let mut pair = unsafe { QueuePair::new(parts) }.unwrap();
    pair.open_receives();
    pair.open_sends();
    Qp { alive, ring, pair }
}

impl Qp {
    fn send(&mut self, wr_id: u64) -> Result<(), PostError> {
        self.send_op(wr_id, SendOp::Send, &[])
    }

    fn send_op(&mut self, wr_id: u64, op: SendOp, segments: &[Segment]) -> Result<(), PostError> {
        let request = SendRequest {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            segments,
        };
        // SAFETY: the tests keep the memory of the segments alive.
        unsafe { self.pair.sends.post(&request, 0) }
    }

    fn recv(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.pair.receives.post(&RecvRequest { wr_id, segments }) }
    }

    fn is_gone(alive: &AtomicUsize) -> bool {
        alive.load(Ordering::Relaxed) == 0
    }
}

/// Returns the context that completions of a test's queue pair carry.
fn context(qpn: u32) -> u64 {
    0xc0de_0000_0000_0000 | u64::from(qpn)
}

fn good(wr_id: u64, op: CompletionOp, qpn: u32) -> Completion {
    Completion {
        wr_id,
        context: context(qpn),
        op,
        qpn,
        ..Completion::default()
    }
}

mod completions;
mod lifetimes;
mod payload;
mod peek;
mod runs;

/// On every lap, until the CQE is consumed. An error CQE has no time stamp.
#[test]
fn the_next_cqe_reports_its_arrival() {
    for stride in [64, 128] {
        let mut cq = Cq::new(4, stride);
        for lap in 0..5 {
            let stamp = 0x1234_5678_9abc_0000 + lap;
            let error = |opcode| Entry {
                opcode,
                syndrome: 5,
                stamp,
                ..ENTRY
            };
            let good = Entry {
                stamp,
                ..received(1, 0, 5)
            };
            for (entry, expected) in [
                (good, Arrival::At(stamp)),
                (error(13), Arrival::Unknown),
                (error(14), Arrival::Unknown),
            ] {
                assert_eq!(cq.poller.arrival(), Arrival::Empty, "lap {lap}");
                cq.write(entry);
                assert_eq!(cq.poller.arrival(), expected, "lap {lap}");
                assert_eq!(cq.poller.arrival(), expected, "nothing was consumed");
                assert_eq!(cq.poll(), None, "of no queue pair");
            }
        }
    }
}
